//===- ReshardTest.cpp - Every pair of small layouts, executed ------------===//
//
// For each configuration (mesh, tensor shape, dim factors) all layouts are
// enumerated, and every ordered pair is planned with and without all-to-all,
// executed on virtual ranks with poisoned padding, and compared element by
// element with what the definition of Layout says each rank holds.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Layout/Reshard.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>

using namespace partita;

namespace {
using Factors = std::vector<std::pair<int64_t, int64_t>>; ///< (size, padded)

struct Config {
  std::string mesh;
  /// Sets of digits that a layout may place, each "a", "a:(1)2"…
  std::vector<std::vector<std::string>> digitSets;
  /// Per dim the factor structures to try.
  std::vector<std::vector<Factors>> dims;
  std::vector<ReduceKind> kinds;
  bool blocks = false; ///< also with given blocks
};

/// A layout with everything about it that does not depend on the pair.
struct Entry {
  Layout layout;
  /// Per rank, per local element: the global element, or -1 for padding.
  std::vector<std::vector<int64_t>> global;
  int64_t partialRanks = 1;
};

/// Straight from the definition in Layout.h, without the library's slice code.
std::vector<int64_t> globalIndices(const Mesh &mesh, const Layout &layout, int64_t rank) {
  std::vector<int64_t> indices{0};
  for (const DimLayout &dim : layout.dims) {
    std::vector<int64_t> own{0};
    bool major = true;
    for (const DimFactor &factor : dim.factors) {
      int64_t block = factor.padded / product(factor.axes);
      int64_t c = mesh.coordinate(rank, factor.axes), begin = c * block;
      int64_t end = factor.size; // of what is valid, and only a major factor has more
      if (!factor.blocks.empty()) {
        begin = 0;
        for (int64_t k = 0; k < c; ++k)
          begin += factor.blocks[static_cast<size_t>(k)];
        end = begin + factor.blocks[static_cast<size_t>(c)];
      }
      std::vector<int64_t> next;
      for (int64_t i : own)
        for (int64_t q = begin; q < begin + block; ++q)
          next.push_back(i < 0 || (major && q >= end) ? -1 : i * factor.padded + q);
      own = next;
      major = false;
    }
    std::vector<int64_t> next;
    for (int64_t i : indices)
      for (int64_t j : own)
        next.push_back(i < 0 || j < 0 ? -1 : i * dim.size() + j);
    indices = next;
  }
  return indices;
}

/// Adds to `all` the layout with given blocks in each of its split dims alone: one block
/// longer than all before it together, and all in one block.
void giveBlocks(const Mesh &mesh, const Layout &layout,
                std::map<std::string, Layout> &all) {
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    const DimFactor &major = layout.dims[d].factors[0];
    auto count = static_cast<size_t>(major.shards());
    if (count == 1 || major.padded != major.size)
      continue;
    std::vector<int64_t> growing(count, 0), single(count, 0);
    int64_t left = major.size;
    for (size_t i = 0; i + 1 < count; ++i)
      left -= growing[i] = std::min<int64_t>(left, static_cast<int64_t>(i));
    growing.back() = left;
    single[1] = major.size;
    for (const std::vector<int64_t> &blocks : {growing, single}) {
      Layout next = layout;
      DimFactor &factor = next.dims[d].factors[0];
      factor.blocks = blocks;
      factor.padded = factor.shards() * *std::max_element(blocks.begin(), blocks.end());
      next = next.canonicalized();
      REQUIRE(next.verify(mesh));
      all.emplace(next.str(mesh), next);
    }
  }
}

/// Adds to `all` every way to place digits[at…] into `layout`.
void placeDigits(const Mesh &mesh, const AxisList &digits, size_t at, Layout layout,
                 const std::vector<ReduceKind> &kinds,
                 std::map<std::string, Layout> &all) {
  if (at == digits.size()) {
    Layout canonical = layout.canonicalized();
    if (canonical.verify(mesh))
      all.emplace(canonical.str(mesh), canonical);
    return;
  }
  placeDigits(mesh, digits, at + 1, layout, kinds, all);
  for (ReduceKind kind : kinds) {
    Layout next = layout;
    next.partial.push_back({kind, {digits[at]}});
    placeDigits(mesh, digits, at + 1, next, kinds, all);
  }
  for (size_t d = 0; d < layout.dims.size(); ++d)
    for (size_t f = 0; f < layout.dims[d].factors.size(); ++f) {
      DimFactor &factor = layout.dims[d].factors[f];
      if (factor.padded % (product(factor.axes) * digits[at].size))
        continue;
      for (size_t i = 0; i <= factor.axes.size(); ++i) {
        Layout next = layout;
        AxisList &axes = next.dims[d].factors[f].axes;
        axes.insert(axes.begin() + i, digits[at]);
        placeDigits(mesh, digits, at + 1, next, kinds, all);
      }
    }
}

std::vector<Entry> enumerate(const Config &config, const Mesh &mesh) {
  std::vector<Layout> bases{Layout{}};
  for (const std::vector<Factors> &structures : config.dims) {
    std::vector<Layout> next;
    for (const Layout &base : bases)
      for (const Factors &factors : structures) {
        next.push_back(base);
        DimLayout &dim = next.back().dims.emplace_back();
        for (auto [size, padded] : factors)
          dim.factors.push_back({size, padded, {}});
      }
    bases = next;
  }
  std::map<std::string, Layout> all;
  for (const Layout &base : bases)
    for (const std::vector<std::string> &set : config.digitSets) {
      AxisList digits;
      for (const std::string &text : set)
        digits.push_back(*mesh.parseAxis(text));
      placeDigits(mesh, digits, 0, base, config.kinds, all);
    }
  if (config.blocks)
    for (const auto &[text, layout] : std::map(all))
      giveBlocks(mesh, layout, all);
  std::vector<Entry> entries;
  for (const auto &[text, layout] : all) {
    // What is printed is what is meant.
    auto parsed = Layout::parse(text, mesh);
    REQUIRE(parsed);
    REQUIRE(*parsed == layout);
    Entry entry{layout, {}, product(layout.partialAxes())};
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      entry.global.push_back(globalIndices(mesh, layout, rank));
    entries.push_back(std::move(entry));
  }
  return entries;
}

int64_t reduceValue(int64_t a, int64_t b, ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
    return a + b;
  case ReduceKind::Max:
    return std::max(a, b);
  case ReduceKind::Min:
    return std::min(a, b);
  case ReduceKind::Prod:
    return a * b;
  }
  return a;
}

/// Reduces over the partial axes of a layout, innermost (last) kind first; value(c) is
/// the contribution of the rank that has coordinate c_k along entry k.
template <typename Value>
int64_t reduceNested(const Layout &layout, size_t entry, std::vector<int64_t> &at,
                     Value value) {
  if (entry == layout.partial.size())
    return value(at);
  int64_t result = 0;
  for (int64_t c = 0; c < product(layout.partial[entry].axes); ++c) {
    at[entry] = c;
    int64_t next = reduceNested(layout, entry + 1, at, value);
    result = c == 0 ? next : reduceValue(result, next, layout.partial[entry].kind);
  }
  return result;
}

/// What the ranks hold, and the true tensor. Small integers: exact in f32 and no product
/// of 24 of them leaves 2^24.
struct Values {
  std::vector<std::vector<int64_t>> local; ///< per rank; padding 0
  std::vector<int64_t> truth;
};

Values makeValues(const Mesh &mesh, const Entry &source, std::mt19937 &random) {
  int64_t count = elementCount(source.layout.globalShape());
  bool prod = false;
  for (const PartialAxes &entry : source.layout.partial)
    prod |= entry.kind == ReduceKind::Prod;
  // contribution[c]: one whole tensor per coordinate along all partial axes.
  AxisList partialAxes = source.layout.partialAxes();
  std::vector<std::vector<int64_t>> contribution(source.partialRanks);
  for (std::vector<int64_t> &tensor : contribution)
    for (int64_t i = 0; i < count; ++i) {
      int64_t draw = static_cast<int64_t>(random() % 2003);
      tensor.push_back(prod ? std::array<int64_t, 4>{1, -1, 2, 1}[draw % 4]
                            : draw - 1000);
    }
  Values values;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> at(source.layout.partial.size());
    values.truth.push_back(
        reduceNested(source.layout, 0, at, [&](const std::vector<int64_t> &c) {
          int64_t index = 0;
          for (size_t k = 0; k < c.size(); ++k)
            index = index * product(source.layout.partial[k].axes) + c[k];
          return contribution[index][i];
        }));
  }
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    const std::vector<int64_t> &tensor = contribution[mesh.coordinate(rank, partialAxes)];
    std::vector<int64_t> &local = values.local.emplace_back();
    for (int64_t g : source.global[rank])
      local.push_back(g < 0 ? 0 : tensor[g]);
  }
  return values;
}

std::vector<HostTensor> toTensors(const Entry &entry, const Values &values, DType type) {
  std::vector<HostTensor> tensors;
  for (const std::vector<int64_t> &local : values.local) {
    HostTensor &tensor =
        tensors.emplace_back(HostTensor::zeros(type, entry.layout.localShape()));
    for (size_t i = 0; i < local.size(); ++i)
      if (type == DType::F32)
        tensor.data<float>()[i] = static_cast<float>(local[i]);
      else
        tensor.data<int64_t>()[i] = local[i];
  }
  return tensors;
}

/// Whether every rank holds the target's slice of the truth, after reduction over the
/// target's own partial axes.
bool matches(const Mesh &mesh, const Entry &target, const std::vector<int64_t> &truth,
             const std::vector<HostTensor> &locals) {
  auto read = [&](int64_t rank, size_t i) {
    return locals[rank].type == DType::F32
               ? static_cast<double>(locals[rank].data<float>()[i])
               : static_cast<double>(locals[rank].data<int64_t>()[i]);
  };
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    if (locals[rank].shape != target.layout.localShape())
      return false;
    for (size_t i = 0; i < target.global[rank].size(); ++i) {
      if (target.global[rank][i] < 0)
        continue;
      double want = static_cast<double>(truth[target.global[rank][i]]);
      if (target.layout.partial.empty()) {
        if (read(rank, i) != want)
          return false;
        continue;
      }
      // Neutral elements (infinities, extremes) may be among the contributions.
      std::function<double(size_t, int64_t)> reduce = [&](size_t entry, int64_t at) {
        if (entry == target.layout.partial.size())
          return read(at, i);
        const PartialAxes &p = target.layout.partial[entry];
        double result = 0;
        for (int64_t c = 0; c < product(p.axes); ++c) {
          double next = reduce(entry + 1, mesh.withCoordinate(at, p.axes, c));
          result = c == 0                      ? next
                   : p.kind == ReduceKind::Sum ? result + next
                   : p.kind == ReduceKind::Max ? std::max(result, next)
                   : p.kind == ReduceKind::Min ? std::min(result, next)
                                               : result * next;
        }
        return result;
      };
      if (reduce(0, rank) != want)
        return false;
    }
  }
  return true;
}

/// An exchange that is an all-gather or a slice of given blocks.
bool gathersOrSlicesBlocks(const Step &step) {
  if (!step.before.hasBlocks() && !step.after.hasBlocks())
    return false;
  bool gathers = true;
  for (size_t d = 0; d < step.before.dims.size(); ++d)
    gathers &= step.before.dims[d] == step.after.dims[d] || !step.after.dims[d].sharded();
  return gathers || step.receivedElements == 0;
}

/// Structural promises of a plan; empty if all hold.
std::string brokenPromise(const Mesh &mesh, const Entry &source, const Entry &target,
                          const ReshardPlan &plan, const ReshardOptions &options) {
  if (plan.steps.empty())
    return source.layout == target.layout ? "" : "no steps";
  if (plan.steps.front().before != source.layout ||
      plan.steps.back().after != target.layout)
    return "does not begin at the source or end at the target";
  int64_t sum = 0;
  int64_t most = std::max(source.layout.localElements(), target.layout.localElements());
  // Where padded extents differ, the larger one counts on both sides.
  for (size_t d = 0; d < source.layout.dims.size(); ++d) {
    int64_t a = source.layout.dims[d].padded(), b = target.layout.dims[d].padded();
    most = most * std::max(a, b) / std::min(a, b);
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step &step = plan.steps[i];
    sum += step.receivedElements;
    if (i > 0 && step.before != plan.steps[i - 1].after)
      return "steps do not join";
    if (!step.after.verify(mesh))
      return "invalid layout between steps";
    bool moves = step.kind == StepKind::AllToAll || step.kind == StepKind::Permute ||
                 (step.kind == StepKind::Exchange && !gathersOrSlicesBlocks(step));
    if (moves && !options.allToAll)
      return "uses what the options forbid";
    if (options.allToAll && step.after.localElements() > most)
      return "needs more memory than source and target";
  }
  if (sum != plan.receivedElements)
    return "the volume is not the sum of the steps";
  if (plan.receivedElements < plan.lowerBoundElements)
    return "moves less than the lower bound";
  return "";
}

/// Why a pair may move more than twice the lower bound; "unexplained" fails the test.
std::string reasonAbove(const Layout &source, const Layout &target,
                        const ReshardPlan &plan) {
  // Collectives move whole blocks, the bound counts valid elements.
  double padding = 1;
  for (size_t d = 0; d < source.dims.size(); ++d)
    padding *=
        static_cast<double>(std::max(source.dims[d].padded(), target.dims[d].padded())) /
        static_cast<double>(source.dims[d].size());
  if (plan.receivedElements <= 2 * padding * plan.lowerBoundElements)
    return "collectives move padding";
  return "unexplained";
}

struct Outlier {
  double ratio;
  std::string reason;
  std::string text;
};

/// max over ranks of |needed \ held|, by sets.
int64_t countLacking(const Mesh &mesh, const Entry &source, const Entry &target) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    const std::vector<int64_t> &held = source.global[rank];
    std::set<int64_t> has(held.begin(), held.end());
    most = std::max(most, static_cast<int64_t>(std::count_if(
                              target.global[rank].begin(), target.global[rank].end(),
                              [&](int64_t g) { return g >= 0 && !has.count(g); })));
  }
  return most;
}

struct Share {
  int64_t pairs = 0, atBound = 0;
  void add(bool bound) {
    ++pairs;
    atBound += bound;
  }
  double percent() const { return 100.0 * atBound / std::max<int64_t>(pairs, 1); }
};

struct Tally {
  int64_t pairs = 0, wrong = 0, atBound = 0, above2 = 0;
  Share moved, padded, reduced; ///< even; with padding; with partial axes to reduce
  int64_t gatherOnly = 0, gatherOnlyAtBound = 0;
  std::vector<Outlier> outliers;
};

std::string describe(const Mesh &mesh, const Layout &source, const Layout &target,
                     const ReshardPlan &plan) {
  std::string text =
      mesh.str() + " " + source.str(mesh) + " -> " + target.str(mesh) + ":";
  for (const Step &step : plan.steps)
    if (step.kind != StepKind::View)
      text += " " + std::string(name(step.kind)) + mesh.str(step.axes) + "(" +
              std::to_string(step.receivedElements) + ")";
  return text + " bound " + std::to_string(plan.lowerBoundElements);
}

/// Replaces every step by what its kind and layouts alone say: what runs, in tests and in
/// programs, is always the derived step. Says what differs from the planner's, if
/// anything.
std::string deriveSteps(const Mesh &mesh, ReshardPlan &plan) {
  for (Step &step : plan.steps) {
    auto derived = stepBetween(mesh, step.kind, step.before, step.after);
    if (!derived)
      return "not derived: " + derived.error().message;
    if (derived->receivedElements != step.receivedElements)
      return std::string(name(step.kind)) + " derived with " +
             std::to_string(derived->receivedElements) +
             " received elements instead of " + std::to_string(step.receivedElements);
    step = std::move(*derived);
  }
  return "";
}

void checkPair(const Mesh &mesh, const Entry &source, const Entry &target,
               const Values &values, const std::vector<HostTensor> &locals, bool allToAll,
               Tally &tally) {
  ReshardOptions options{allToAll};
  auto plan = planReshard(mesh, source.layout, target.layout, options);
  std::string broken =
      plan ? brokenPromise(mesh, source, target, *plan, options) : plan.error().message;
  if (broken.empty())
    broken = deriveSteps(mesh, *plan);
  bool right = broken.empty() && matches(mesh, target, values.truth,
                                         executeReshard(mesh, *plan, locals, true));
  if (!right && ++tally.wrong <= 10)
    UNSCOPED_INFO((allToAll ? "" : "[no all-to-all] ")
                  << (plan ? describe(mesh, source.layout, target.layout, *plan)
                           : source.layout.str(mesh) + " -> " + target.layout.str(mesh))
                  << " " << (broken.empty() ? "wrong values" : broken));
  if (!plan)
    return;
  bool moves = source.layout.partial.empty() && target.layout.partial.empty();
  if (moves && allToAll && source.global[0].size() <= 200 &&
      plan->lowerBoundElements != countLacking(mesh, source, target)) {
    ++tally.wrong;
    UNSCOPED_INFO(
        "wrong lower bound: " << describe(mesh, source.layout, target.layout, *plan));
  }
  bool bound = plan->receivedElements == plan->lowerBoundElements;
  if (!allToAll) {
    ++tally.gatherOnly;
    tally.gatherOnlyAtBound += bound;
    return;
  }
  ++tally.pairs;
  tally.atBound += bound;
  bool uneven = false;
  for (const Layout *layout : {&source.layout, &target.layout})
    for (const DimLayout &dim : layout->dims)
      uneven |= dim.size() != dim.padded();
  (!moves ? tally.reduced : uneven ? tally.padded : tally.moved).add(bound);
  if (plan->receivedElements > 2 * plan->lowerBoundElements) {
    ++tally.above2;
    tally.outliers.push_back({static_cast<double>(plan->receivedElements) /
                                  static_cast<double>(plan->lowerBoundElements),
                              reasonAbove(source.layout, target.layout, *plan),
                              describe(mesh, source.layout, target.layout, *plan)});
  }
}

void runConfig(const Config &config, Tally &tally) {
  Mesh mesh = *Mesh::parse(config.mesh);
  std::vector<Entry> entries = enumerate(config, mesh);
  std::mt19937 random(7);
  int64_t before = tally.pairs;
  for (size_t s = 0; s < entries.size(); ++s) {
    Values values = makeValues(mesh, entries[s], random);
    std::vector<HostTensor> locals[2] = {toTensors(entries[s], values, DType::I64),
                                         toTensors(entries[s], values, DType::F32)};
    for (size_t t = 0; t < entries.size(); ++t) {
      // Both types, alternating; NaN as poison in f32, -1 in i64.
      checkPair(mesh, entries[s], entries[t], values, locals[(s + t) % 2], true, tally);
      checkPair(mesh, entries[s], entries[t], values, locals[(s + t + 1) % 2], false,
                tally);
    }
  }
  std::string shape;
  for (const std::vector<Factors> &dim : config.dims) {
    int64_t size = 1;
    for (auto [n, padded] : dim[0])
      size *= n;
    shape += (shape.empty() ? "" : "x") + std::to_string(size);
  }
  std::printf("reshard: mesh %s, tensor %s: %zu layouts, %lld pairs\n",
              config.mesh.c_str(), shape.c_str(), entries.size(),
              static_cast<long long>(tally.pairs - before));
}

constexpr ReduceKind sum = ReduceKind::Sum, maximum = ReduceKind::Max,
                     minimum = ReduceKind::Min, prod = ReduceKind::Prod;

std::vector<Config> configs() {
  std::vector<Config> all;
  std::vector<ReduceKind> kinds{sum, maximum, minimum, prod};
  // Rank 1, one axis of each size, sub-axes cut both ways, dim factors.
  all.push_back({"a=2", {{"a"}}, {{{{6, 6}}, {{3, 3}, {2, 2}}}}, kinds});
  all.push_back({"a=3", {{"a"}}, {{{{6, 6}}, {{2, 2}, {3, 3}}}}, kinds});
  all.push_back({"a=4",
                 {{"a"}, {"a:(1)2", "a:(2)2"}},
                 {{{{8, 8}}, {{2, 2}, {4, 4}}, {{4, 4}, {2, 2}}}},
                 kinds});
  all.push_back({"a=6",
                 {{"a"}, {"a:(1)2", "a:(2)3"}, {"a:(1)3", "a:(3)2"}},
                 {{{{12, 12}}, {{2, 2}, {6, 6}}, {{3, 3}, {4, 4}}, {{6, 6}, {2, 2}}}},
                 {sum, prod}});
  // Uneven: 13 rows on 8, 5 on 6, 7 on 4, with a factor below.
  all.push_back({"a=2,b=4",
                 {{"a", "b"}, {"a", "b:(1)2", "b:(2)2"}},
                 {{{{13, 16}}}},
                 {sum, minimum}});
  all.push_back({"a=6",
                 {{"a"}, {"a:(1)2", "a:(2)3"}, {"a:(1)3", "a:(3)2"}},
                 {{{{5, 6}}, {{5, 12}}}, {{{6, 6}}}},
                 {sum}});
  all.push_back(
      {"a=2,b=2", {{"a", "b"}}, {{{{7, 8}, {4, 4}}, {{7, 12}, {4, 4}}}}, kinds});
  all.push_back({"a=2,b=3", {{"a", "b"}}, {{{{5, 6}}}, {{{7, 12}}}}, {sum, maximum}});
  all.push_back({"a=2,b=4",
                 {{"a", "b"}, {"a", "b:(1)2", "b:(2)2"}},
                 {{{{11, 16}}}, {{{8, 8}}}},
                 {sum}});
  // Rank 2, pairs of axes of every size.
  for (std::string mesh : {"a=2,b=2", "a=2,b=3", "a=2,b=4", "a=3,b=4", "a=2,b=6"})
    all.push_back({mesh,
                   {{"a", "b"}},
                   {{{{12, 12}}, {{2, 2}, {6, 6}}}, {{{24, 24}}}},
                   {sum, maximum}});
  all.push_back({"a=4,b=6",
                 {{"a", "b"}, {"a:(1)2", "a:(2)2", "b"}},
                 {{{{24, 24}}}, {{{24, 24}}}},
                 {sum}});
  all.push_back({"a=2,b=6",
                 {{"a", "b:(1)2", "b:(2)3"}, {"a", "b:(1)3", "b:(3)2"}},
                 {{{{12, 12}}}, {{{12, 12}}}},
                 {sum}});
  all.push_back({"a=2,b=3,c=4", {{"a", "b", "c"}}, {{{{24, 24}}}, {{{24, 24}}}}, {}});
  all.push_back({"a=2,b=2,c=2",
                 {{"a", "b", "c"}},
                 {{{{2, 2}, {8, 8}}, {{4, 4}, {4, 4}}}, {{{8, 8}}}},
                 {}});
  // Rank 3.
  for (std::string mesh : {"a=2", "a=3", "a=4", "a=6"})
    all.push_back({mesh, {{"a"}}, {{{{12, 12}}}, {{{12, 12}}}, {{{12, 12}}}}, kinds});
  all.push_back(
      {"a=2,b=3", {{"a", "b"}}, {{{{6, 6}}}, {{{6, 6}}}, {{{6, 6}}}}, {sum, prod}});
  all.push_back({"a=2,b=4",
                 {{"a", "b"}, {"a", "b:(1)2", "b:(2)2"}},
                 {{{{8, 8}}}, {{{8, 8}}}, {{{8, 8}}}},
                 {sum}});
  all.push_back(
      {"a=2,b=2,c=2", {{"a", "b", "c"}}, {{{{8, 8}}}, {{{8, 8}}}, {{{8, 8}}}}, {sum}});
  all.push_back(
      {"a=2,b=3,c=2", {{"a", "b", "c"}}, {{{{12, 12}}}, {{{12, 12}}}, {{{12, 12}}}}, {}});
  all.push_back({"a=2,b=2",
                 {{"a", "b"}},
                 {{{{3, 4}}}, {{{5, 8}}}, {{{2, 2}, {4, 4}}}},
                 {sum, maximum}});
  // Given blocks, beside equal ones, with a factor below, and partial.
  all.push_back({"a=4",
                 {{"a"}, {"a:(1)2", "a:(2)2"}},
                 {{{{13, 13}}, {{13, 16}}}, {{{8, 8}}}},
                 kinds,
                 true});
  all.push_back({"a=2,b=3", {{"a", "b"}}, {{{{12, 12}}, {{6, 6}, {2, 2}}}}, {sum}, true});
  all.push_back(
      {"a=2,b=3", {{"a", "b"}}, {{{{6, 6}}}, {{{6, 6}}}}, {sum, maximum}, true});
  all.push_back({"a=3", {{"a"}}, {{{{6, 6}}}, {{{5, 6}}}, {{{4, 4}}}}, {sum}, true});
  return all;
}
} // namespace

TEST_CASE("reshard: every pair of layouts, executed") {
  Tally tally;
  for (const Config &config : configs())
    runConfig(config, tally);
  std::sort(tally.outliers.begin(), tally.outliers.end(),
            [](const Outlier &a, const Outlier &b) { return a.ratio > b.ratio; });
  std::map<std::string, int64_t> reasons;
  for (const Outlier &outlier : tally.outliers)
    ++reasons[outlier.reason];
  for (size_t i = 0; i < std::min<size_t>(tally.outliers.size(), 20); ++i)
    std::printf("  %.2f x %s [%s]\n", tally.outliers[i].ratio,
                tally.outliers[i].text.c_str(), tally.outliers[i].reason.c_str());
  for (const auto &[reason, count] : reasons)
    std::printf("reshard: %lld pairs above 2x: %s\n", static_cast<long long>(count),
                reason.c_str());
  std::printf("reshard: at the lower bound: %.1f%% of %lld even pairs without partial "
              "axes, %.1f%% of %lld with padding, %.1f%% of %lld with partial axes\n",
              tally.moved.percent(), static_cast<long long>(tally.moved.pairs),
              tally.padded.percent(), static_cast<long long>(tally.padded.pairs),
              tally.reduced.percent(), static_cast<long long>(tally.reduced.pairs));
  std::printf("reshard: without all-to-all: %lld pairs, %.1f%% at the lower bound\n",
              static_cast<long long>(tally.gatherOnly),
              100.0 * tally.gatherOnlyAtBound / tally.gatherOnly);
  std::printf(
      "reshard: %lld pairs, %lld wrong, %.1f%% at the lower bound, %lld above 2x\n",
      static_cast<long long>(tally.pairs), static_cast<long long>(tally.wrong),
      100.0 * tally.atBound / tally.pairs, static_cast<long long>(tally.above2));
  CHECK(tally.wrong == 0);
  CHECK(reasons.count("unexplained") == 0);
}
