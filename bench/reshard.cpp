//===- reshard.cpp - Microseconds per reshard plan ------------------------===//
//
// bench-reshard: plans typical pairs of layouts on meshes from 8 to 1024 ranks and
// prints microseconds per plan. The strategy search calls the planner for every
// pair of strategies along an edge, so this is a hot path.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Layout/Reshard.h"

#include <chrono>
#include <cstdio>

using namespace partita;

namespace {
struct Pair {
  const char *what, *source, *target;
};
} // namespace

static constexpr Pair pairs[] = {
    {"equal", "[{4096: dp}, {1024: tp}]", "[{4096: dp}, {1024: tp}]"},
    {"slice", "[{4096: dp}, {1024}]", "[{4096: dp}, {1024: tp}]"},
    {"gather", "[{4096: dp}, {1024: tp}]", "[{4096: dp}, {1024}]"},
    {"all-reduce", "[{4096: dp}, {1024}] partial sum {tp}", "[{4096: dp}, {1024}]"},
    {"reduce-scatter", "[{4096: dp}, {1024}] partial sum {tp}",
     "[{4096: dp}, {1024: tp}]"},
    {"all-to-all", "[{4096: dp}, {1024: tp}, {64}]", "[{4096: dp}, {1024}, {64: tp}]"},
    {"swap", "[{4096: dp}, {1024: tp}]", "[{4096: tp}, {1024: dp}]"},
    {"gather two", "[{4096: dp}, {1024: tp}]", "[{4096}, {1024}]"},
    {"fused", "[{1024}, {3}*{1024: tp}]", "[{1024}, {3072: tp}]"},
    {"uneven gather", "[{50257/51200: tp}, {768}]", "[{50257/51200}, {768}]"},
    {"uneven slice", "[{50257/51200}, {768}]", "[{50257/51200: dp, tp}, {768}]"},
    {"uneven move", "[{50257/51200: tp}, {768}]", "[{50257/51200}, {768: tp}]"},
};

static double microseconds(const Mesh &mesh, const Layout &source, const Layout &target) {
  using Clock = std::chrono::steady_clock;
  int64_t plans = 0;
  Clock::time_point begin = Clock::now();
  double elapsed = 0;
  do {
    for (int i = 0; i < 100; ++i, ++plans)
      if (!planReshard(mesh, source, target))
        return -1;
    elapsed = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  } while (elapsed < 50e3);
  return elapsed / static_cast<double>(plans);
}

int main() {
  const char *meshes[] = {"dp=2,tp=4", "dp=8,tp=8", "dp=64,tp=16"};
  std::printf("%-16s", "us per plan");
  for (const char *mesh : meshes)
    std::printf(" %14s", mesh);
  std::printf("\n");
  for (const Pair &pair : pairs) {
    std::printf("%-16s", pair.what);
    for (const char *text : meshes) {
      Mesh mesh = *Mesh::parse(text);
      auto source = Layout::parse(pair.source, mesh);
      auto target = Layout::parse(pair.target, mesh);
      if (!source || !target) {
        std::printf(" %14s", "-");
        continue;
      }
      std::printf(" %14.1f", microseconds(mesh, *source, *target));
    }
    std::printf("\n");
  }
  return 0;
}
