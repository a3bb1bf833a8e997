//===- OperandForm.cpp - What a local op must find in its operands --------===//
#include "partita/Rule/Sharding/OperandForm.h"

#include "partita/Rule/Sharding/Families.h"

#include <algorithm>
#include <map>

using namespace partita;

std::vector<int64_t> OperandForm::dimsOf(ReduceKind kind) const {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < padding.size(); ++d)
    if (padding[d] == kind)
      dims.push_back(static_cast<int64_t>(d));
  return dims;
}

static bool isPadded(const DimLayout &dim) { return dim.padded() != dim.size(); }

/// Padding that is reduced, and all of an operand that the op acts on.
static std::vector<std::optional<ReduceKind>> paddingOf(const ShardingRule &rule,
                                                        const Strategy &strategy,
                                                        size_t operand,
                                                        const Layout &layout) {
  std::vector<std::optional<ReduceKind>> padding(layout.dims.size());
  for (size_t d = 0; d < padding.size(); ++d)
    for (int32_t f : rule.operands[operand][d])
      if (const auto *reduction = rule.factors[static_cast<size_t>(f)].reduction();
          reduction && reduction->index < 0 &&
          isPadded(strategy.factors[static_cast<size_t>(f)]))
        padding[d] = reduction->reduce;
  for (const PaddingFill &fill : rule.fills)
    if (fill.operand == static_cast<int32_t>(operand))
      for (size_t d = 0; d < padding.size(); ++d)
        if (isPadded(layout.dims[d]))
          padding[d] = fill.kind;
  return padding;
}

OperandForm partita::operandForm(const ShardingRule &rule, const Strategy &strategy,
                                 size_t operand) {
  OperandForm form;
  Layout layout = operandLayout(rule, strategy, operand);
  form.window = operandHalo(rule, strategy, operand);
  if (form.window) {
    form.window->before = form.window->before.canonicalized();
    form.window->positions = form.window->positions.canonicalized();
  } else {
    form.padding = paddingOf(rule, strategy, operand, layout);
  }
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (const DimLayout &dim = strategy.factors[f];
        rule.factors[f].isIndexedBy(operand) && (dim.sharded() || isPadded(dim)))
      form.localIndex = dim;
  form.layout = layout.canonicalized();
  return form;
}

//===-- The rule of the local op ------------------------------------------===//

namespace {
/// Maps every loop of a rule to what it is on one rank.
class Localizer {
public:
  Localizer(const ShardingRule &rule, const Strategy &strategy)
      : rule(rule), strategy(strategy) {}

  ShardingRule run() {
    for (size_t f = 0; f < rule.factors.size(); ++f)
      rule.factors[f].window() ? addWindow(f) : addPlain(f);
    for (const TensorFactors &tensor : rule.operands)
      local.operands.push_back(mapped(tensor, inOperands));
    for (const TensorFactors &tensor : rule.results)
      local.results.push_back(mapped(tensor, inResults));
    local.linear = rule.linear;
    local.fills = rule.fills;
    return std::move(local);
  }

private:
  using Pieces = std::vector<int32_t>;

  void addPlain(size_t f) {
    Factor factor = rule.factors[f];
    if (factor.indexOperand() >= 0)
      factor.setLocalized(strategy.factors[f].sharded() || isPadded(strategy.factors[f]));
    Pieces pieces = local.addLoop(strategy.factors[f].local(), std::move(factor.what));
    for (int32_t piece : pieces)
      local.factors[static_cast<size_t>(piece)].name = factor.name;
    inOperands.push_back(pieces);
    inResults.push_back(std::move(pieces));
  }

  /// As the op itself states a spatial dim of these sizes.
  void addWindow(size_t f) {
    const loop::Window &window = *rule.factors[f].window();
    const DimLayout &positions = strategy.factors[f];
    SpatialDim dim{.input = window.input,
                   .output = positions.local(),
                   .kernel = window.kernelExtent,
                   .stride = window.stride,
                   .dilation = 1,
                   .low = window.low};
    if (positions.sharded()) {
      HaloWindow buffer{0, window.stride, window.kernelExtent, window.low};
      dim.input = buffer.extent(positions.local());
      dim.low = 0;
    }
    inOperands.emplace_back();
    inResults.emplace_back();
    if (const loop::Reduction *stated = rule.factors[f].reduction()) {
      inOperands.back() = addSummedPositions(local, dim, window.operand);
      // Kinds are as stated, so that others than the op's own are seen.
      for (int32_t piece : inOperands.back()) {
        auto &made =
            std::get<loop::Reduction>(local.factors[static_cast<size_t>(piece)].what);
        made.reduce = stated->reduce;
        if (made.window) {
          made.window->outside = window.outside;
          made.window->operands = window.operands;
        }
      }
    } else {
      addSpatialDim(local, dim, window.outside, inOperands.back(), inResults.back());
      for (int32_t piece : inOperands.back())
        if (loop::Window *made = local.factors[static_cast<size_t>(piece)].window())
          made->operands = window.operands;
    }
  }

  static TensorFactors mapped(const TensorFactors &tensor,
                              const std::vector<Pieces> &pieces) {
    TensorFactors result;
    for (const auto &dim : tensor) {
      result.emplace_back();
      for (int32_t f : dim)
        result.back().insert(result.back().end(), pieces[static_cast<size_t>(f)].begin(),
                             pieces[static_cast<size_t>(f)].end());
    }
    return result;
  }

  const ShardingRule &rule;
  const Strategy &strategy;
  ShardingRule local;
  std::vector<Pieces> inOperands, inResults;
};
} // namespace

ShardingRule partita::localRule(const ShardingRule &rule, const Strategy &strategy) {
  return Localizer(rule, strategy).run();
}

/// Loops numbered by where they stand first,
/// without names.
static ShardingRule normalized(const ShardingRule &rule) {
  std::map<int32_t, int32_t> numbers;
  ShardingRule result;
  auto convert = [&](const std::vector<TensorFactors> &tensors) {
    std::vector<TensorFactors> list = tensors;
    for (TensorFactors &tensor : list)
      for (auto &dim : tensor)
        for (int32_t &f : dim) {
          auto [it, added] =
              numbers.try_emplace(f, static_cast<int32_t>(result.factors.size()));
          if (added) {
            result.factors.push_back(rule.factors[static_cast<size_t>(f)]);
            result.factors.back().name.clear();
          }
          f = it->second;
        }
    return list;
  };
  result.operands = convert(rule.operands);
  result.results = convert(rule.results);
  result.linear = rule.linear;
  result.fills = rule.fills;
  return result;
}

bool partita::equalUpToNames(const ShardingRule &a, const ShardingRule &b) {
  return normalized(a) == normalized(b);
}

Strategy partita::strategyForLayout(const ShardingRule &rule, const TensorFactors &tensor,
                                    const Layout &layout) {
  Strategy strategy = Strategy::replicated(rule);
  for (size_t d = 0; d < tensor.size(); ++d)
    for (int32_t f : tensor[d])
      strategy.factors[static_cast<size_t>(f)] = layout.dims[d];
  // The one tensor of an end, which may be a sum that is still to be made.
  if (rule.operands.size() + rule.results.size() == 1)
    for (const PartialAxes &partial : layout.partial)
      for (size_t s = 0; s < rule.linear.size(); ++s)
        if (rule.linear[s].kind == partial.kind)
          strategy.passing.push_back({static_cast<int32_t>(s), partial.axes});
  return strategy;
}
