//===- JsonRecordTest.cpp - Structs as objects of a JSON file -------------===//
#include "partita/Base/Files/JsonRecord.h"

#include <catch2/catch.hpp>

using namespace partita;

namespace partita {
namespace {
struct Inner {
  std::string name;
  double share = 0;
  bool operator==(const Inner &) const = default;
};
struct Outer {
  int64_t count = 0, times = 1;
  bool flag = false;
  std::vector<std::vector<std::string>> lists;
  std::vector<Inner> inners;
  std::optional<Inner> maybe;
  bool operator==(const Outer &) const = default;
};

template <typename Io> void visit(Io &io, As<Io, Inner> &it) {
  io.member("name", it.name);
  io.optional("share", it.share);
}

template <typename Io> void visit(Io &io, As<Io, Outer> &it) {
  io.member("count", it.count);
  io.optional("times", it.times, int64_t(1));
  io.member("flag", it.flag);
  io.member("lists", it.lists);
  io.member("inners", it.inners);
  io.optional("maybe", it.maybe);
}
} // namespace
} // namespace partita

static std::string textOf(const Outer &outer) {
  JsonWriter out(JsonWriter::Style::Compact);
  JsonRecordWriter(out).record(outer);
  return out.take();
}

static std::string errorOf(const std::string &text) {
  JsonRecordReader reader(*parseJson(text, "f.json"));
  Outer outer;
  reader.record(outer);
  return reader.first.message;
}

TEST_CASE("structs are written and read by one description") {
  Outer outer{3, 1, true, {{"a", "b"}, {}}, {{"x", 0.5}, {"y", 0}}, Inner{"z", 1}};
  const std::string text = textOf(outer);
  CHECK(text.find("times") == std::string::npos);
  JsonRecordReader reader(*parseJson(text, "f.json"));
  Outer again;
  again.times = 7; // absent: as if it were written
  reader.record(again);
  CHECK(reader.first.message.empty());
  CHECK(again == outer);
  CHECK(textOf(again) == text);
}

TEST_CASE("the first thing that is wrong is said, with its place") {
  CHECK(errorOf(R"({"count": 1, "flag": true, "lists": []})").find("inners") !=
        std::string::npos);
  const std::string deep = errorOf(
      R"({"count": 1, "flag": 2, "lists": [], "inners": [{"name": "a"}, {"name": 3}]})");
  CHECK(deep.find("f.json") != std::string::npos);
  CHECK(deep.find("flag") != std::string::npos);
  const std::string inner = errorOf(
      R"({"count": 1, "flag": true, "lists": [], "inners": [{"name": "a"}, {"name": 3}]})");
  CHECK(inner.find("inners") != std::string::npos);
  CHECK(inner.find("name") != std::string::npos);
}
