//===- RequiredFeaturesTest.cpp - What code of a CPU needs, by LLVM's table ---===//
#include "partita/Base/CpuFeatures.h"
#include "passes/Codegen/CPU/KernelCompiler.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using namespace partita;
using namespace partita::codegen;

#if defined(__x86_64__)

TEST_CASE("the runtime knows every feature that code for any CPU needs") {
  auto names = targetCpuNames();
  REQUIRE(names);
  REQUIRE(names->size() > 80);
  std::vector<std::string_view> known = knownCpuFeatures();
  size_t compiled = 0;
  for (const std::string &name : *names) {
    auto target = cpuTarget(name);
    if (!target) // of a CPU without SSE4.1
      continue;
    ++compiled;
    CHECK(std::ranges::find(target->required, "sse4.1") != target->required.end());
    for (const std::string &feature : target->required) {
      INFO(name << " needs " << feature);
      CHECK(std::ranges::find(known, feature) != known.end());
    }
  }
  CHECK(compiled > 50);
}

TEST_CASE("the runtime sees of this CPU what LLVM sees") {
  auto host = llvm::sys::getHostCPUFeatures();
  size_t common = 0;
  for (std::string_view name : knownCpuFeatures()) {
    INFO(name);
    auto theirs = host.find(name);
    REQUIRE(theirs != host.end()); // a name of ours that LLVM does not have
    ++common;
    CHECK(hasCpuFeature(name) == theirs->getValue());
  }
  CHECK(common > 50);
}

TEST_CASE("code for this CPU can be loaded on it, and needs what it has") {
  auto target = cpuTarget("");
  REQUIRE(target);
  CHECK(checkCpuFeatures(target->required));
  std::set<std::string> needed(target->required.begin(), target->required.end());
  for (const char *name : {"avx", "avx2", "fma", "avx512f", "avx512bf16", "gfni"})
    CHECK(needed.contains(name) == hasCpuFeature(name));
}

TEST_CASE("tuning, modes and what only the system uses are not needed") {
  auto target = cpuTarget("sapphirerapids");
  REQUIRE(target);
  std::set<std::string> needed(target->required.begin(), target->required.end());
  for (const char *name : {"avx512fp16", "avx512bf16", "avxvnni", "gfni", "vaes", "movbe",
                           "adx", "sha", "popcnt"})
    CHECK(needed.contains(name));
  for (const char *name :
       {"64bit-mode", "ermsb", "fsrm", "sgx", "xsaves", "amx-tile", "fast-gather",
        "false-deps-mullq", "prefer-256-bit", "vzeroupper", "macrofusion"})
    CHECK(!needed.contains(name));
}

#endif
