//===- Collective.cpp - What a collective costs over some levels ----------===//
#include "partita/Cost/Collective.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;

std::string_view partita::name(Collective collective) {
  static constexpr std::string_view names[] = {"all-reduce",     "all-gather",
                                               "reduce-scatter", "all-to-all",
                                               "permute",        "point-to-point"};
  return names[static_cast<size_t>(collective)];
}

std::string_view partita::name(CollectiveAlgorithm algorithm) {
  static constexpr std::string_view names[] = {
      "none", "ring", "tree", "hierarchical", "pairwise", "direct", "shared"};
  return names[static_cast<size_t>(algorithm)];
}

namespace {
/// Prices one collective over one span.
class Pricer {
public:
  Pricer(const Topology &topology, const Span &span)
      : topology(topology), span(span), size(span.size()) {}

  bool ring(Collective collective, double bytes);
  bool tree(Collective collective, double bytes);
  bool hierarchical(Collective collective, double bytes);
  bool pairwise(Collective collective, double bytes);
  bool direct(Collective collective, double bytes);
  bool shared(Collective collective, double bytes);
  /// Whether all members share memory and the collective is done by it.
  bool isShared(Collective collective) const {
    for (size_t l = 0; l < levels(); ++l)
      if (members(l) > 1 && !topology.levels[l].sharesMemory)
        return false;
    return collective != Collective::PointToPoint;
  }

  TimeCost price;

private:
  size_t levels() const { return topology.levels.size(); }
  int64_t members(size_t level) const { return span.members[level]; }
  /// Seconds that `bytes` keep one device's link of the level busy.
  double transfer(size_t level, double bytes) const {
    const LinkLevel &link = topology.levels[level];
    return (bytes + std::min(bytes, link.ramp)) / link.effective();
  }
  /// One pass of a ring within the level: (m−1)/m of `bytes`.
  void passWithin(size_t level, double bytes);

  const Topology &topology;
  const Span &span;
  int64_t size;
};
} // namespace

static int passes(Collective collective) {
  return collective == Collective::AllReduce ? 2 : 1;
}

static bool isRingCollective(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::AllGather ||
         collective == Collective::ReduceScatter;
}

bool Pricer::ring(Collective collective, double bytes) {
  if (!isRingCollective(collective))
    return false;
  double share = static_cast<double>(size - 1) / static_cast<double>(size);
  double slowest = 0, latency = 0;
  int64_t inside = 1, left = size;
  for (size_t l = 0; l < levels(); ++l) {
    if (members(l) > 1) {
      // What leaves a unit is spread over the links of its members.
      double busy =
          passes(collective) * share * transfer(l, bytes / static_cast<double>(inside));
      price.links[l] += busy;
      slowest = std::max(slowest, busy);
      // Of the ring's edges, those that stay inside a unit of this level but not inside
      // one of the level below.
      int64_t outside = left / members(l);
      latency += static_cast<double>(left - outside) * topology.levels[l].latency;
      left = outside;
    }
    inside *= members(l);
  }
  price.seconds = slowest + passes(collective) * latency;
  return true;
}

bool Pricer::tree(Collective collective, double bytes) {
  if (collective != Collective::AllReduce)
    return false;
  double slowest = 0, latency = 0;
  int64_t inside = 1;
  for (size_t l = 0; l < levels(); ++l) {
    if (members(l) > 1) {
      double busy = 2 * transfer(l, bytes / static_cast<double>(inside));
      price.links[l] += busy;
      slowest = std::max(slowest, busy);
      latency += std::ceil(std::log2(static_cast<double>(members(l)))) *
                 topology.levels[l].latency;
    }
    inside *= members(l);
  }
  price.seconds = slowest + 2 * latency;
  return true;
}

void Pricer::passWithin(size_t level, double bytes) {
  auto m = static_cast<double>(members(level));
  double busy = (m - 1) / m * transfer(level, bytes);
  price.links[level] += busy;
  price.seconds += busy + (m - 1) * topology.levels[level].latency;
}

bool Pricer::hierarchical(Collective collective, double bytes) {
  auto used = std::count_if(span.members.begin(), span.members.end(),
                            [](int64_t m) { return m > 1; });
  bool exchange = collective == Collective::AllToAll;
  if (used < 2 || !(exchange || isRingCollective(collective)))
    return false;
  for (size_t l = 0; l < levels(); ++l) {
    if (members(l) == 1)
      continue;
    for (int pass = 0; pass < passes(collective); ++pass)
      passWithin(l, bytes);
    // The next level works on the piece that each member has after this one.
    if (!exchange)
      bytes /= static_cast<double>(members(l));
  }
  return true;
}

bool Pricer::pairwise(Collective collective, double bytes) {
  if (collective != Collective::AllToAll)
    return false;
  double slowest = 0, latency = 0;
  int64_t inside = 1;
  for (size_t l = 0; l < levels(); ++l) {
    int64_t peers = inside * (members(l) - 1);
    inside *= members(l);
    if (peers == 0)
      continue;
    double busy =
        transfer(l, bytes * static_cast<double>(peers) / static_cast<double>(size));
    price.links[l] += busy;
    slowest = std::max(slowest, busy);
    latency += static_cast<double>(peers) * topology.levels[l].latency;
  }
  price.seconds = slowest + latency;
  return true;
}

bool Pricer::direct(Collective collective, double bytes) {
  if (collective != Collective::Permute && collective != Collective::PointToPoint)
    return false;
  auto outer = static_cast<size_t>(span.outermost());
  price.links[outer] += transfer(outer, bytes);
  price.seconds = price.links[outer] + topology.levels[outer].latency;
  return true;
}

bool Pricer::shared(Collective collective, double bytes) {
  if (!isShared(collective))
    return false;
  auto level = static_cast<size_t>(span.outermost());
  auto n = static_cast<double>(size);
  double share = collective == Collective::Permute ? 1 : (n - 1) / n;
  price.links[level] += share * transfer(level, bytes);
  price.seconds = price.links[level] + 2 * topology.levels[level].latency;
  return true;
}

CollectivePrice partita::priceCollective(const Topology &topology, const Span &span,
                                         Collective collective, double bytes,
                                         CollectiveAlgorithm algorithm) {
  if (span.size() == 1)
    return {};
  Pricer pricer(topology, span);
  bool can = false;
  switch (algorithm) {
  case CollectiveAlgorithm::Ring:
    can = pricer.ring(collective, bytes);
    break;
  case CollectiveAlgorithm::Tree:
    can = pricer.tree(collective, bytes);
    break;
  case CollectiveAlgorithm::Hierarchical:
    can = pricer.hierarchical(collective, bytes);
    break;
  case CollectiveAlgorithm::Pairwise:
    can = pricer.pairwise(collective, bytes);
    break;
  case CollectiveAlgorithm::Direct:
    can = pricer.direct(collective, bytes);
    break;
  case CollectiveAlgorithm::Shared:
    can = pricer.shared(collective, bytes);
    break;
  case CollectiveAlgorithm::None:
    break;
  }
  pricer.price.seconds += topology.device.launch;
  if (!can)
    pricer.price.seconds = std::numeric_limits<double>::infinity();
  return {pricer.price, algorithm};
}

CollectivePrice partita::priceCollective(const Topology &topology, const Span &span,
                                         Collective collective, double bytes) {
  if (span.size() == 1)
    return {};
  if (Pricer(topology, span).isShared(collective))
    return priceCollective(topology, span, collective, bytes,
                           CollectiveAlgorithm::Shared);
  CollectivePrice best;
  for (CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::Ring, CollectiveAlgorithm::Tree,
        CollectiveAlgorithm::Hierarchical, CollectiveAlgorithm::Pairwise,
        CollectiveAlgorithm::Direct}) {
    CollectivePrice next = priceCollective(topology, span, collective, bytes, algorithm);
    if (best.algorithm == CollectiveAlgorithm::None ||
        next.price.seconds < best.price.seconds)
      best = next;
  }
  return best;
}
