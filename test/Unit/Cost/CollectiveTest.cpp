//===- CollectiveTest.cpp - Collectives by algorithm and level ------------===//
#include "partita/Cost/Collective.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

using namespace partita;

namespace {
constexpr auto Ring = CollectiveAlgorithm::Ring, Tree = CollectiveAlgorithm::Tree,
               Hierarchical = CollectiveAlgorithm::Hierarchical,
               Pairwise = CollectiveAlgorithm::Pairwise,
               Direct = CollectiveAlgorithm::Direct;

/// Servers of 8 at 100 B/s, 4 of them at 10 B/s, 2 times oversubscribed.
Topology cluster(double latency) {
  Topology topology;
  topology.levels = {{"inner", 8, 100, latency}, {"outer", 4, 20, 10 * latency, 2}};
  return topology;
}

Span span(int64_t inner, int64_t outer) {
  Span result;
  result.members[0] = inner;
  result.members[1] = outer;
  return result;
}

double seconds(const Topology &topology, const Span &span, Collective collective,
               double bytes, CollectiveAlgorithm algorithm) {
  return priceCollective(topology, span, collective, bytes, algorithm).price.seconds;
}
} // namespace

TEST_CASE("collectives within a level: the textbook formulas") {
  Topology t = cluster(1);
  Span s = span(8, 1);
  CHECK(seconds(t, s, Collective::AllReduce, 800, Ring) == Approx(14 + 14));
  CHECK(seconds(t, s, Collective::AllGather, 800, Ring) == Approx(7 + 7));
  CHECK(seconds(t, s, Collective::ReduceScatter, 800, Ring) == Approx(7 + 7));
  CHECK(seconds(t, s, Collective::AllReduce, 800, Tree) == Approx(16 + 6));
  CHECK(seconds(t, s, Collective::AllToAll, 800, Pairwise) == Approx(7 + 7));
  CHECK(seconds(t, s, Collective::Permute, 800, Direct) == Approx(8 + 1));
  CHECK(seconds(t, s, Collective::PointToPoint, 800, Direct) == Approx(8 + 1));
  CHECK(seconds(t, span(6, 1), Collective::AllReduce, 600, Tree) == Approx(12 + 6));
  CHECK(std::isinf(seconds(t, s, Collective::AllGather, 800, Tree)));
  CHECK(std::isinf(seconds(t, s, Collective::AllReduce, 800, Hierarchical)));
  CHECK(priceCollective(t, span(1, 1), Collective::AllReduce, 800).price.seconds == 0);
}

TEST_CASE("collectives over two levels") {
  Topology t = cluster(0);
  Span s = span(8, 4);
  // Inner links carry 31/32 of S, twice; outer links an eighth of that at a tenth of the
  // speed.
  CHECK(seconds(t, s, Collective::AllReduce, 3200, Ring) == Approx(2 * 31. / 32 * 40));
  // 7/8·S inside, twice; 3/4·S/8 across, twice.
  CHECK(seconds(t, s, Collective::AllReduce, 3200, Hierarchical) ==
        Approx(2 * (28 + 30)));
  CHECK(seconds(t, s, Collective::AllGather, 3200, Hierarchical) == Approx(28 + 30));
  // 24 of 32 peers are outside.
  CHECK(seconds(t, s, Collective::AllToAll, 3200, Pairwise) == Approx(240));
  CHECK(seconds(t, s, Collective::AllToAll, 3200, Hierarchical) == Approx(28 + 240));
  CHECK(seconds(t, s, Collective::Permute, 100, Direct) == Approx(10));
  // Messages: a ring of 32 has 31 edges in a row, 4 of which leave a server.
  t = cluster(1);
  CHECK(seconds(t, s, Collective::AllGather, 0, Ring) == Approx(28 + 3 * 10));
  CHECK(seconds(t, s, Collective::AllGather, 0, Hierarchical) == Approx(7 + 30));
  CHECK(seconds(t, s, Collective::AllReduce, 0, Tree) == Approx(2 * (3 + 20)));
  CHECK(seconds(t, s, Collective::AllToAll, 0, Pairwise) == Approx(7 + 240));
}

TEST_CASE("the best algorithm is named, and depends on size") {
  Topology t = cluster(1e-3);
  auto best = [&](Span s, Collective collective, double bytes) {
    return priceCollective(t, s, collective, bytes).algorithm;
  };
  CHECK(best(span(8, 1), Collective::AllReduce, 1e-6) == Tree);
  CHECK(best(span(8, 1), Collective::AllReduce, 1e6) == Ring);
  CHECK(best(span(8, 4), Collective::AllGather, 1e-6) == Hierarchical);
  CHECK(best(span(8, 4), Collective::AllGather, 1e6) == Ring);
  CHECK(best(span(8, 4), Collective::AllToAll, 1e-6) == Hierarchical);
  CHECK(best(span(8, 4), Collective::AllToAll, 1e6) == Pairwise);
  CHECK(best(span(1, 1), Collective::AllToAll, 1) == CollectiveAlgorithm::None);
  CHECK(name(best(span(2, 1), Collective::Permute, 1)) == "direct");
  for (Collective collective : {Collective::AllReduce, Collective::AllToAll})
    for (double bytes : {1e-6, 1., 1e6}) {
      double least = priceCollective(t, span(8, 4), collective, bytes).price.seconds;
      for (CollectiveAlgorithm a : {Ring, Tree, Hierarchical, Pairwise, Direct})
        CHECK(least <= seconds(t, span(8, 4), collective, bytes, a));
    }
}

TEST_CASE("links are busy at the levels that carry the bytes") {
  Topology t = cluster(0);
  TimeCost inner = priceCollective(t, span(8, 1), Collective::AllGather, 800).price;
  CHECK(inner.links[0] == Approx(7));
  CHECK(inner.links[1] == 0);
  TimeCost outer = priceCollective(t, span(1, 4), Collective::AllGather, 800).price;
  CHECK(outer.links[0] == 0);
  CHECK(outer.links[1] == Approx(60));
  CHECK(outer.device == 0);
}

TEST_CASE("members of a level that share memory meet twice and move their parts") {
  Topology t = cluster(1);
  t.levels[0].sharesMemory = true;
  Span s = span(8, 1);
  for (Collective collective : {Collective::AllReduce, Collective::AllGather,
                                Collective::ReduceScatter, Collective::AllToAll}) {
    CollectivePrice price = priceCollective(t, s, collective, 800);
    CHECK(name(price.algorithm) == "shared");
    CHECK(price.price.seconds == Approx(7 + 2));
    CHECK(price.price.links[0] == Approx(7));
  }
  CHECK(priceCollective(t, s, Collective::Permute, 800).price.seconds == Approx(8 + 2));
  CHECK(priceCollective(t, s, Collective::PointToPoint, 800).algorithm == Direct);
  // The members of several units do not share memory, those of a mesh of one host do.
  CHECK(priceCollective(t, span(8, 4), Collective::AllReduce, 3200).algorithm !=
        CollectiveAlgorithm::Shared);
  t.levels[1] = t.levels[0];
  CollectivePrice both = priceCollective(t, span(8, 8), Collective::AllReduce, 6400);
  CHECK(both.algorithm == CollectiveAlgorithm::Shared);
  CHECK(both.price.seconds == Approx(63 + 2));
  CHECK(both.price.links[0] == 0);
  CHECK(both.price.links[1] == Approx(63));
}

TEST_CASE("a level is at half speed below its ramp") {
  Topology t = cluster(0);
  t.levels[0].ramp = 400;
  CHECK(seconds(t, span(8, 1), Collective::Permute, 200, Direct) == Approx(4));
  CHECK(seconds(t, span(8, 1), Collective::Permute, 1000, Direct) == Approx(14));
}

TEST_CASE("all-reduce: the published table of eight A100") {
  // Azure AI benchmarking guide, ND A100 v4: nccl-tests all-reduce, bus bandwidth in
  // GB/s; sizes that are powers of two from 4 MB.
  static constexpr std::pair<int, double> rows[] = {
      {22, 71.43},  {23, 89.99},  {24, 109.22}, {25, 132.77}, {26, 166.63}, {27, 174.18},
      {28, 213.87}, {29, 221.58}, {30, 228.10}, {31, 230.22}, {32, 230.48}, {33, 231.58}};
  Topology server = *serverPreset("DGX-A100");
  double sum = 0;
  for (auto [power, measured] : rows) {
    double bytes = std::ldexp(1, power);
    CollectivePrice ours =
        priceCollective(server, span(8, 1), Collective::AllReduce, bytes);
    double busBandwidth = 1.75 * bytes / ours.price.seconds / 1e9;
    std::printf("all-reduce 2^%d bytes: %s %.1f GB/s, measured %.1f, %+.1f%%\n", power,
                std::string(name(ours.algorithm)).c_str(), busBandwidth, measured,
                100 * (busBandwidth / measured - 1));
    sum += std::abs(busBandwidth / measured - 1);
    CHECK(std::abs(busBandwidth / measured - 1) < 0.25);
  }
  std::printf("all-reduce: mean error %.1f%%\n", 100 * sum / std::size(rows));
  CHECK(sum / std::size(rows) < 0.08);
}
