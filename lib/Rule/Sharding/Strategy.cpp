//===- Strategy.cpp - What a strategy asks of operands and results --------===//
#include "partita/Rule/Sharding/Strategy.h"

#include <algorithm>

using namespace partita;

Strategy Strategy::replicated(const ShardingRule &rule) {
  Strategy strategy;
  for (const Factor &factor : rule.factors)
    strategy.factors.push_back(DimLayout{{DimFactor{factor.size, factor.size, {}}}});
  return strategy;
}

AxisList Strategy::axes() const {
  AxisList result;
  for (const DimLayout &factor : factors)
    for (const DimFactor &sub : factor.factors)
      result.insert(result.end(), sub.axes.begin(), sub.axes.end());
  for (const Passing &p : passing)
    result.insert(result.end(), p.axes.begin(), p.axes.end());
  return result;
}

bool partita::canPass(const ShardingRule &rule, const Strategy &strategy, int32_t set) {
  auto opposite = [](ReduceKind a, ReduceKind b) {
    return (a == ReduceKind::Max && b == ReduceKind::Min) ||
           (a == ReduceKind::Min && b == ReduceKind::Max);
  };
  const LinearSet &candidate = rule.linear[set];
  for (const Passing &p : strategy.passing)
    if (opposite(rule.linear[p.set].kind, candidate.kind) &&
        rule.linear[p.set].operands != candidate.operands)
      return false;
  return true;
}

Expected<void> partita::verifyStrategy(const Mesh &mesh, const ShardingRule &rule,
                                       const Strategy &strategy) {
  if (strategy.factors.size() != rule.factors.size())
    return makeError("the strategy has " + std::to_string(strategy.factors.size()) +
                     " factors, the rule " + std::to_string(rule.factors.size()));
  AxisList used;
  auto claim = [&](const AxisList &axes) -> Expected<void> {
    for (const AxisRef &axis : axes) {
      if (overlap(used, {axis}))
        return makeError("axis " + mesh.str(axis) + " is used twice");
      used.push_back(axis);
    }
    return {};
  };
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const DimLayout &layout = strategy.factors[f];
    if (layout.size() != rule.factors[f].size)
      return makeError("factor " + std::to_string(f) + " has size " +
                       std::to_string(rule.factors[f].size) + ", the strategy says " +
                       std::to_string(layout.size()));
    FactorKind kind = rule.factors[f].kind();
    if (kind == FactorKind::Replicate &&
        (layout.sharded() || layout.padded() != layout.size()))
      return makeError("factor " + std::to_string(f) + " (" + std::string(name(kind)) +
                       ") may not be split or padded");
    if (rule.factors[f].window() && layout.factors.size() != 1)
      return makeError("factor " + std::to_string(f) +
                       " (window) may not be cut into sub-factors");
    for (size_t s = 0; s < layout.factors.size(); ++s) {
      const DimFactor &sub = layout.factors[s];
      if (sub.padded < sub.size || sub.padded % sub.shards() != 0 ||
          (s != 0 && sub.padded != sub.size))
        return makeError("factor " + std::to_string(f) + " of size " +
                         std::to_string(sub.size) + " cannot be split " +
                         std::to_string(sub.shards()) + " ways");
      if (auto ok = claim(sub.axes); !ok)
        return ok;
    }
  }
  for (const Passing &p : strategy.passing) {
    if (p.set < 0 || p.set >= static_cast<int32_t>(rule.linear.size()))
      return makeError("no linear set " + std::to_string(p.set));
    if (!canPass(rule, strategy, p.set))
      return makeError("linear set " + std::to_string(p.set) +
                       " may not pass together with one of the opposite kind in another "
                       "operand");
    if (auto ok = claim(p.axes); !ok)
      return ok;
  }
  for (size_t i = 0; i < rule.operands.size(); ++i)
    if (auto ok = operandLayout(rule, strategy, i).verify(mesh); !ok)
      return makeError("operand " + std::to_string(i) + ", " + ok.error().message);
  for (size_t i = 0; i < rule.results.size(); ++i)
    if (auto ok = resultLayout(rule, strategy, i).verify(mesh); !ok)
      return makeError("result " + std::to_string(i) + ", " + ok.error().message);
  return {};
}

/// The elements that windows read, over the axes of their positions; as many are split
/// alike.
static DimLayout windowInput(const loop::Window &window, const DimLayout &positions) {
  if (window.input == positions.size())
    return positions;
  DimFactor input{window.input, window.input, positions.factors[0].axes};
  int64_t shards = input.shards();
  input.padded = (input.size + shards - 1) / shards * shards;
  return {{input}};
}

/// `operand`: which the tensor is; -1: a result.
static Layout layoutOf(const ShardingRule &rule, const TensorFactors &tensor,
                       const Strategy &strategy, int32_t operand) {
  Layout layout;
  layout.dims.reserve(tensor.size());
  for (const auto &dim : tensor) {
    DimLayout result;
    size_t count = 0;
    for (int32_t f : dim)
      count += strategy.factors[f].factors.size();
    result.factors.reserve(std::max<size_t>(count, 1));
    auto append = [&](const DimLayout &part) {
      result.factors.insert(result.factors.end(), part.factors.begin(),
                            part.factors.end());
    };
    for (int32_t f : dim)
      if (const loop::Window *window = rule.factors[f].windowOf(operand))
        append(windowInput(*window, strategy.factors[f]));
      else
        append(strategy.factors[f]);
    if (result.factors.empty())
      result.factors.push_back(DimFactor{});
    layout.dims.push_back(std::move(result));
  }
  return layout;
}

static void addPartial(Layout &layout, ReduceKind kind, const AxisList &axes) {
  if (axes.empty())
    return;
  auto it = std::find_if(layout.partial.begin(), layout.partial.end(),
                         [&](const PartialAxes &p) { return p.kind >= kind; });
  if (it == layout.partial.end() || it->kind != kind)
    it = layout.partial.insert(it, PartialAxes{kind, {}});
  it->axes.insert(it->axes.end(), axes.begin(), axes.end());
  std::sort(it->axes.begin(), it->axes.end());
  it->axes = canonical(it->axes);
}

Layout partita::operandLayout(const ShardingRule &rule, const Strategy &strategy,
                              size_t i) {
  Layout layout = layoutOf(rule, rule.operands[i], strategy, static_cast<int32_t>(i));
  for (const Passing &p : strategy.passing) {
    const LinearSet &set = rule.linear[p.set];
    if (std::find(set.operands.begin(), set.operands.end(), static_cast<int32_t>(i)) !=
        set.operands.end())
      addPartial(layout, set.kind, p.axes);
  }
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (const loop::Reduction *reduction = rule.factors[f].reduction())
      for (int32_t addend : reduction->addends)
        if (addend == static_cast<int32_t>(i))
          for (const DimFactor &sub : strategy.factors[f].factors)
            addPartial(layout, reduction->reduce, sub.axes);
  return layout;
}

Layout partita::resultLayout(const ShardingRule &rule, const Strategy &strategy,
                             size_t i) {
  Layout layout = layoutOf(rule, rule.results[i], strategy, -1);
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (const loop::Reduction *reduction = rule.factors[f].reduction())
      for (const DimFactor &sub : strategy.factors[f].factors)
        addPartial(layout, reduction->reduce, sub.axes);
  for (const Passing &p : strategy.passing)
    addPartial(layout, rule.linear[p.set].kind, p.axes);
  return layout;
}

std::optional<Halo> partita::operandHalo(const ShardingRule &rule,
                                         const Strategy &strategy, size_t i) {
  Halo halo;
  for (size_t d = 0; d < rule.operands[i].size(); ++d)
    for (int32_t f : rule.operands[i][d])
      if (const loop::Window *window = rule.factors[f].windowOf(static_cast<int32_t>(i));
          window && strategy.factors[f].sharded()) {
        if (halo.windows.empty())
          halo.before = halo.positions = operandLayout(rule, strategy, i);
        halo.positions.dims[d] = strategy.factors[f];
        halo.windows.push_back(
            {static_cast<int32_t>(d), window->stride, window->kernelExtent, window->low});
        halo.fill = window->outside;
      }
  if (halo.windows.empty())
    return std::nullopt;
  return halo;
}
