//===- cost.cpp - Microseconds per priced reshard -------------------------===//
//
// bench-cost: on meshes from 8 to 1024 ranks, the microseconds of the closed form of a
// reshard's volume beside the planner's, per pair of layouts, and the mean over all pairs
// of the layouts that a transformer's activations may have. A search asks for one volume
// per pair of strategies along every edge.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Layout/Reshard.h"
#include "partita/Cost/Collective.h"
#include "partita/Cost/ReshardVolume.h"
#include "partita/Topology/Presets.h"

#include <algorithm>
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
    {"sub-axes", "[{4096: dp:(1)2, tp:(1)2}, {1024: tp:(2)2}, {64: dp:(2)4}]",
     "[{4096: tp}, {1024: dp:(1)4}, {64: dp:(4)2}]"},
    {"two kinds", "[{2: dp:(1)2}*{2048}, {1024}] partial sum {dp:(2)4}, max {tp}",
     "[{2: tp:(1)2}*{2048: dp}, {1024: tp:(2)2}]"},
};

/// Mean microseconds of `work(i)`, called for i < count again and again.
template <typename Work> static double microseconds(size_t count, Work work) {
  using Clock = std::chrono::steady_clock;
  int64_t rounds = 0;
  double elapsed = 0;
  Clock::time_point begin = Clock::now();
  do {
    for (size_t i = 0; i < count; ++i)
      work(i);
    ++rounds;
    elapsed = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  } while (elapsed < 50e3);
  return elapsed / static_cast<double>(rounds) / static_cast<double>(count);
}

/// All layouts of [batch · sequence, hidden] with dp, tp on either dim or partial.
static std::vector<Layout> activations(const Mesh &mesh) {
  std::vector<Layout> result;
  for (const char *text :
       {"[{4096}, {1024}]", "[{4096: dp}, {1024}]", "[{4096}, {1024: dp}]",
        "[{4096: tp}, {1024}]", "[{4096}, {1024: tp}]", "[{4096: dp, tp}, {1024}]",
        "[{4096: tp, dp}, {1024}]", "[{4096: dp}, {1024: tp}]",
        "[{4096: tp}, {1024: dp}]", "[{4096}, {1024: dp, tp}]",
        "[{4096}, {1024: tp, dp}]", "[{4096: dp}, {1024}] partial sum {tp}",
        "[{4096}, {1024: dp}] partial sum {tp}", "[{4096}, {1024}] partial sum {tp}",
        "[{4096}, {1024: tp}] partial sum {dp}", "[{4096: tp}, {1024}] partial sum {dp}",
        "[{4096}, {1024}] partial sum {dp}", "[{4096}, {1024}] partial sum {dp, tp}"})
    if (auto layout = Layout::parse(text, mesh))
      result.push_back(layout->canonicalized());
  return result;
}

static void allPairs(const Mesh &mesh) {
  std::vector<Layout> layouts = activations(mesh);
  size_t n = layouts.size(), closed = 0;
  int64_t sum = 0;
  for (size_t i = 0; i < n * n; ++i)
    closed += reshardVolume(mesh, layouts[i / n], layouts[i % n]).has_value();
  double form = microseconds(n * n, [&](size_t i) {
    sum += reshardVolume(mesh, layouts[i / n], layouts[i % n]).value_or(0);
  });
  double planner = microseconds(n * n, [&](size_t i) {
    sum += planReshard(mesh, layouts[i / n], layouts[i % n])->receivedElements;
  });
  std::printf(
      "%-14s all %zu pairs: %zu in closed form, %.2f us each, planner %.1f us%s\n",
      mesh.str().c_str(), n * n, closed, form, planner, sum < 0 ? "!" : "");
}

/// The span of an axis list and the best algorithm over it, on 128 servers of 8.
static void collectives() {
  Mesh mesh = *Mesh::parse("dp=64,tp=16");
  Topology topology = *serverPreset("DGX-A100");
  topology.levels.push_back(*levelPreset("hdr"));
  topology.levels.back().size = 128;
  Placement placement = *Placement::create(mesh, topology);
  double sum = 0;
  double us = microseconds(100, [&](size_t i) {
    Span span = placement.span(mesh.whole(static_cast<int32_t>(i % 2)));
    sum += priceCollective(topology, span, Collective::AllReduce, 1e6).price.seconds;
  });
  std::printf("a collective's span, algorithm and price: %.2f us%s\n", us,
              sum < 0 ? "!" : "");
}

int main() {
  int64_t sum = 0;
  double worst = 0;
  for (const char *text : {"dp=2,tp=4", "dp=8,tp=8", "dp=64,tp=16"}) {
    Mesh mesh = *Mesh::parse(text);
    for (const Pair &pair : pairs) {
      auto source = Layout::parse(pair.source, mesh);
      auto target = Layout::parse(pair.target, mesh);
      if (!source || !target)
        continue;
      Layout from = source->canonicalized(), to = target->canonicalized();
      double form = microseconds(
          100, [&](size_t) { sum += reshardVolume(mesh, from, to).value_or(0); });
      double planner = microseconds(
          100, [&](size_t) { sum += planReshard(mesh, from, to)->receivedElements; });
      worst = std::max(worst, form);
      std::printf("%-14s %-16s closed form %6.2f us, planner %8.1f us\n", text, pair.what,
                  form, planner);
    }
    allPairs(mesh);
  }
  collectives();
  std::printf("the slowest closed form: %.2f us%s\n", worst, sum < 0 ? "!" : "");
  return 0;
}
