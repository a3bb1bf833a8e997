//===- Conversions.h - Prices of conversions, planned once per kind -*- C++ -*-===//
//
// A search asks for the price of a conversion per pair of layouts along every edge: some
// ten thousand for a network of convolutions, whose tensors have many shapes. Planning
// one takes tens of microseconds. But the steps of a plan depend on a dim's size only
// through which parts of the mesh divide it, and whether there is anything beside them.
// So every dim that is one even factor on both sides is replaced by the least one of its
// kind,
//
//     N → g · q,   g = gcd(N, ranks of the mesh), or their square where something is
//                  reduced;   q = 1 if N = g, else the least prime that divides no axis
//
// the small pair is planned once, and what its steps move is multiplied by N / (g·q) of
// each such dim. All counts of elements (blocks, what is received, bounds) are sums of
// products with one extent of each dim, so they grow by exactly that. Dims with padding
// or several factors stay as they are and are a part of the kind.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_CONVERSIONS_H
#define PARTITA_LIB_SEARCH_CONVERSIONS_H

#include "partita/Cost/Reshard.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace partita::search {

/// Plans of conversions between layouts on one mesh.
class ConversionPlans {
public:
  /// What one step needs to be priced, and what the whole plan moves.
  struct Plan {
    bool possible = false;
    std::vector<StepShape> steps;
    int64_t receivedElements = 0, peakElements = 0;
  };

  explicit ConversionPlans(const Placement &placement, const ReshardOptions &options);

  /// planReshard's plan, as shapes of steps. Both layouts are canonical, valid on the
  /// mesh, and of equal global shapes.
  Plan plan(const Layout &source, const Layout &target);

private:
  struct Hash {
    size_t operator()(const std::vector<int64_t> &key) const;
  };
  /// How many times as many elements a pair has as the least one of its kind.
  struct Scale {
    int64_t times = 1, over = 1;
    int64_t of(int64_t elements) const { return elements / over * times; }
  };

  Plan planned(const Layout &source, const Layout &target) const;
  /// Writes the pair's kind to `key`, and the extents that replace its own to `extents`
  /// (0: none does); nothing if plans of it are not kept.
  std::optional<Scale> kindOf(const Layout &source, const Layout &target);
  /// The layout with these extents.
  Layout shrunk(Layout layout) const;

  const Placement &placement;
  ReshardOptions options;
  int64_t foreignPrime = 2;
  std::vector<int64_t> key, extents; ///< of the pair that is looked at
  std::unordered_map<std::vector<int64_t>, Plan, Hash> known;
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_CONVERSIONS_H
