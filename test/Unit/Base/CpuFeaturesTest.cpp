//===- CpuFeaturesTest.cpp - What code needs of a CPU ---------------------===//
#include "partita/Base/CpuFeatures.h"

#include <catch2/catch.hpp>

#include <set>

using namespace partita;

TEST_CASE("each feature that is masked alone is the one that lacks") {
  std::vector<std::string> all;
  for (std::string_view name : knownCpuFeatures())
    all.emplace_back(name);
  CHECK(std::set(all.begin(), all.end()).size() == all.size());
#if defined(__x86_64__)
  REQUIRE(all.size() > 50);
  CHECK(hasCpuFeature("sse2"));
#endif
  CHECK(checkCpuFeatures(all, [](std::string_view) { return true; }));
  for (const std::string &masked : all) {
    auto ok =
        checkCpuFeatures(all, [&](std::string_view name) { return name != masked; });
    REQUIRE(!ok);
    CHECK(ok.error().message == "this CPU lacks " + masked);
  }
}

TEST_CASE("a feature that nobody knows is of a newer compiler") {
  auto ok = checkCpuFeatures({"foo"}, [](std::string_view) { return true; });
  REQUIRE(!ok);
  CHECK_THAT(
      ok.error().message,
      Catch::Contains("'foo', which this runtime does not know: a newer compiler"));
  // A name of tuning is none either.
  CHECK(!hasCpuFeature("slow-lea"));
  CHECK(checkCpuFeatures({}));
}
