//===- Strategies.cpp - Every legal strategy of a rule --------------------===//
#include "Strategies.h"

#include <algorithm>

using namespace partita;
using namespace partita::spmd;

namespace {
class Enumerator {
public:
  Enumerator(const Mesh &mesh, const ShardingRule &rule, Depth depth)
      : mesh(mesh), rule(rule), depth(depth), perFactor(rule.factors.size()),
        perSet(rule.linear.size()) {
    for (int32_t a = 0; a < static_cast<int32_t>(mesh.axes().size()); ++a)
      for (const AxisRef &digit : primes({mesh.whole(a)}))
        digits.push_back(digit);
  }

  std::vector<Strategy> run() {
    assign(0);
    return std::move(found);
  }

private:
  /// Gives digit `i` and the later ones to every possible place.
  void assign(size_t i) {
    if (i == digits.size()) {
      current = Strategy::replicated(rule);
      for (size_t s = 0; s < perSet.size(); ++s)
        if (!perSet[s].empty())
          current.passing.push_back({static_cast<int32_t>(s), canonical(perSet[s])});
      return arrange(0);
    }
    assign(i + 1);
    auto put = [&](AxisList &place) {
      place.push_back(digits[i]);
      assign(i + 1);
      place.pop_back();
    };
    for (size_t f = 0; f < perFactor.size(); ++f)
      if (rule.factors[f].kind() != FactorKind::Replicate)
        put(perFactor[f]);
    for (AxisList &set : perSet)
      put(set);
  }

  /// Every arrangement of the axes of factor `f` and the later ones.
  void arrange(size_t f) {
    if (f == perFactor.size())
      return accept();
    if (perFactor[f].empty())
      return arrange(f + 1);
    int64_t size = rule.factors[f].size;
    AxisList order = perFactor[f];
    std::sort(order.begin(), order.end());
    do {
      emit(f, {{size, size, canonical(order)}});
      if (depth == Depth::Assignments)
        break;
      for (int64_t minor = 2; minor < size; ++minor)
        for (size_t k = 0; size % minor == 0 && k < order.size(); ++k) {
          auto at = order.begin() + static_cast<int64_t>(k);
          emit(f, {{size / minor, size / minor, canonical({order.begin(), at})},
                   {minor, minor, canonical({at, order.end()})}});
        }
    } while (std::next_permutation(order.begin(), order.end()));
  }

  void emit(size_t f, std::vector<DimFactor> subs) {
    DimFactor &major = subs[0];
    int64_t shards = major.shards(), all = mesh.numRanks();
    major.padded = (major.size + shards - 1) / shards * shards;
    bool uneven = major.padded != major.size;
    current.factors[f].factors = subs;
    arrange(f + 1);
    if (uneven && depth == Depth::Arrangements && major.padded % all != 0) {
      current.factors[f].factors[0].padded = (subs[0].size + all - 1) / all * all;
      arrange(f + 1);
    }
    // Of one factor at a time: factors do not meet.
    bool blocks = std::any_of(current.factors.begin(), current.factors.end(),
                              [](const DimLayout &dim) { return dim.hasBlocks(); });
    if (subs.size() == 1 && depth == Depth::Arrangements && !blocks) {
      current.factors[f].factors = {growingBlocks(subs[0])};
      arrange(f + 1);
    }
    current.factors[f] =
        DimLayout{{DimFactor{rule.factors[f].size, rule.factors[f].size, {}}}};
  }

  /// Given blocks: none, one, two … elements, and what is left.
  static DimFactor growingBlocks(DimFactor factor) {
    int64_t left = factor.size, longest = 0;
    for (int64_t i = 0; i < factor.shards(); ++i) {
      bool last = i + 1 == factor.shards();
      factor.blocks.push_back(last ? left : std::min(left, i));
      left -= factor.blocks.back();
      longest = std::max(longest, factor.blocks.back());
    }
    factor.padded = longest * factor.shards();
    return factor;
  }

  void accept() {
    if (verifyStrategy(mesh, rule, current))
      found.push_back(current);
  }

  const Mesh &mesh;
  const ShardingRule &rule;
  Depth depth;
  AxisList digits;
  std::vector<AxisList> perFactor, perSet;
  Strategy current;
  std::vector<Strategy> found;
};
} // namespace

std::vector<Strategy> spmd::enumerateStrategies(const Mesh &mesh,
                                                const ShardingRule &rule, Depth depth) {
  return Enumerator(mesh, rule, depth).run();
}
