//===- JsonTest.cpp - The checked reader names the place of every error ---===//
#include "partita/Base/Files/Json.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("a wrong type names the file and the path") {
  auto doc = parseJson(R"({"nodes": {"fc1": [1, "x"]}})", "h.json");
  REQUIRE(doc);
  auto list = doc->at("nodes")->at("fc1")->asIntegers();
  REQUIRE(!list);
  CHECK(list.error().message ==
        "h.json: nodes/fc1[1]: expected an integer, got a string");
}

TEST_CASE("malformed text, duplicate keys and unknown members are errors") {
  CHECK(!parseJson("{", "a"));
  CHECK(parseJson(R"({"a":1,"a":2})", "a").error().message ==
        "a: the member \"a\" appears twice");
  auto doc = parseJson(R"({"in": 1, "inn": 2})", "a");
  CHECK(doc->allowOnly({"in", "out"}).error().message ==
        "a: unknown member \"inn\"; known are in, out");
  CHECK(!parseJson("18446744073709551615", "a")->asInteger());
  CHECK(parseJson("7", "a")->asInteger(0, 4).error().message ==
        "a: expected an integer from 0 to 4, got 7");
}
