//===- Families.cpp - Sharding rules shared by families of ops ------------===//
#include "partita/Rule/Sharding/Families.h"

#include <algorithm>
#include <numeric>

using namespace partita;

static std::string text(const Shape &shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

Expected<Shape> partita::broadcastShapes(const std::vector<Shape> &operands) {
  size_t rank = 0;
  for (const Shape &shape : operands)
    rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (size_t o = 0; o < operands.size(); ++o) {
    size_t offset = rank - operands[o].size();
    for (size_t d = 0; d < operands[o].size(); ++d) {
      int64_t extent = operands[o][d];
      int64_t &size = result[offset + d];
      if (extent != 1 && size != 1 && extent != size)
        return makeError("operand " + std::to_string(o) + " of shape " +
                         text(operands[o]) + " does not broadcast: dim " +
                         std::to_string(d) + " has size " + std::to_string(extent) +
                         ", another operand has " + std::to_string(size));
      if (extent != 1)
        size = extent;
    }
  }
  return result;
}

Expected<ShardingRule> partita::broadcastRule(const std::vector<Shape> &operands) {
  auto shape = broadcastShapes(operands);
  if (!shape)
    return tl::unexpected(shape.error());
  ShardingRule rule;
  TensorFactors result;
  for (int64_t extent : *shape) {
    result.emplace_back();
    if (extent != 1)
      result.back().push_back(rule.addFactor(extent));
  }
  for (const Shape &operand : operands) {
    TensorFactors tensor;
    size_t offset = shape->size() - operand.size();
    for (size_t d = 0; d < operand.size(); ++d)
      tensor.push_back(operand[d] == 1 ? std::vector<int32_t>{} : result[offset + d]);
    rule.operands.push_back(std::move(tensor));
  }
  rule.results.push_back(std::move(result));
  return rule;
}

namespace {
/// Walks both shapes from the minor end and pairs equal spans.
class ReshapeBuilder {
public:
  ReshapeBuilder(const Shape &in, const Shape &out) : in(in), out(out) {
    rule.operands.emplace_back(in.size());
    rule.results.emplace_back(out.size());
  }

  ShardingRule run() {
    i = static_cast<int64_t>(in.size()) - 1;
    j = static_cast<int64_t>(out.size()) - 1;
    loadIn();
    loadOut();
    while (a != 1 || b != 1) {
      if (a % b == 0 || b % a == 0) {
        int64_t shared = std::min(a, b);
        int32_t f = rule.addFactor(shared);
        attach(rule.operands[0], i, f);
        attach(rule.results[0], j, f);
        a /= shared;
        b /= shared;
      } else {
        crossSpan();
      }
      loadIn();
      loadOut();
    }
    return std::move(rule);
  }

private:
  static void attach(TensorFactors &tensor, int64_t dim, int32_t factor) {
    tensor[dim].insert(tensor[dim].begin(), factor);
  }
  void loadIn() {
    while (a == 1 && i >= 0)
      (remainingIn ? (--i, remainingIn = false) : (a = in[i], remainingIn = true));
    if (i < 0)
      a = 1;
  }
  void loadOut() {
    while (b == 1 && j >= 0)
      (remainingOut ? (--j, remainingOut = false) : (b = out[j], remainingOut = true));
    if (j < 0)
      b = 1;
  }
  /// The cut points do not nest: both sides are Replicate until their products meet.
  void crossSpan() {
    int64_t productIn = 1, productOut = 1;
    auto takeIn = [&] {
      loadIn();
      attach(rule.operands[0], i, rule.addFactor(a, loop::Replicate{}));
      productIn *= a;
      a = 1;
    };
    auto takeOut = [&] {
      loadOut();
      attach(rule.results[0], j, rule.addFactor(b, loop::Replicate{}));
      productOut *= b;
      b = 1;
    };
    takeIn();
    takeOut();
    while (productIn != productOut)
      productIn < productOut ? takeIn() : takeOut();
  }

  const Shape &in, &out;
  ShardingRule rule;
  int64_t i = -1, j = -1; ///< dims being consumed
  int64_t a = 1, b = 1;   ///< what is left of them
  bool remainingIn = false, remainingOut = false;
};
} // namespace

Expected<ShardingRule> partita::reshapeRule(const Shape &operand, const Shape &result) {
  if (elementCount(operand) != elementCount(result))
    return makeError("cannot reshape " + text(operand) + " of " +
                     std::to_string(elementCount(operand)) + " elements to " +
                     text(result) + " of " + std::to_string(elementCount(result)));
  if (elementCount(operand) == 0) {
    ShardingRule rule;
    auto replicate = [&](const Shape &shape) {
      TensorFactors tensor;
      for (int64_t extent : shape) {
        tensor.emplace_back();
        if (extent != 1)
          tensor.back().push_back(rule.addFactor(extent, loop::Replicate{}));
      }
      return tensor;
    };
    rule.operands.push_back(replicate(operand));
    rule.results.push_back(replicate(result));
    return rule;
  }
  return ReshapeBuilder(operand, result).run();
}

Expected<ShardingRule> partita::transposeRule(const Shape &operand,
                                              const std::vector<int64_t> &perm) {
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < operand.size(); ++d)
    if (sorted.size() != operand.size() || sorted[d] != static_cast<int64_t>(d))
      return makeError("the permutation " + text(perm) + " does not fit an operand of " +
                       "rank " + std::to_string(operand.size()));
  ShardingRule rule;
  rule.operands.emplace_back();
  for (int64_t extent : operand) {
    rule.operands[0].emplace_back();
    if (extent != 1)
      rule.operands[0].back().push_back(rule.addFactor(extent));
  }
  rule.results.emplace_back();
  for (int64_t d : perm)
    rule.results[0].push_back(rule.operands[0][d]);
  return rule;
}

Expected<ShardingRule> partita::reduceRule(const Shape &operand,
                                           const std::vector<int64_t> &axes,
                                           bool keepDims,
                                           std::optional<ReduceKind> kind) {
  std::vector<bool> reduced(operand.size(), false);
  for (int64_t axis : axes) {
    auto normal = normalizeAxis(axis, operand.size());
    if (!normal)
      return tl::unexpected(normal.error());
    if (reduced[*normal])
      return makeError("axis " + std::to_string(axis) + " is reduced twice");
    reduced[*normal] = true;
  }
  ShardingRule rule;
  rule.operands.emplace_back();
  rule.results.emplace_back();
  for (size_t d = 0; d < operand.size(); ++d) {
    std::vector<int32_t> factors;
    if (operand[d] != 1) {
      loop::Kind what = loop::Parallel{};
      if (reduced[d] && kind)
        what = loop::Reduction{.reduce = *kind};
      else if (reduced[d])
        what = loop::Replicate{};
      factors.push_back(rule.addFactor(operand[d], what));
    }
    rule.operands[0].push_back(factors);
    if (!reduced[d])
      rule.results[0].push_back(factors);
    else if (keepDims)
      rule.results[0].emplace_back();
  }
  return rule;
}

/// Adds a pair of dims where `part` elements are one of the equal blocks of `whole`.
static void addBlockDim(ShardingRule &rule, int64_t whole, int64_t part,
                        std::vector<int32_t> &wholeDim, std::vector<int32_t> &partDim) {
  if (whole != part)
    wholeDim.push_back(rule.addFactor(whole / part, loop::Replicate{}));
  if (part != 1) {
    int32_t n = rule.addFactor(part);
    wholeDim.push_back(n);
    partDim.push_back(n);
  }
}

Expected<ShardingRule> partita::sliceRule(const Shape &operand, const Shape &result,
                                          const std::vector<int64_t> &starts,
                                          const std::vector<int64_t> &steps) {
  if (operand.size() != result.size() || starts.size() != operand.size() ||
      steps.size() != operand.size())
    return makeError("starts, steps and the result must have the operand's rank " +
                     std::to_string(operand.size()));
  ShardingRule rule;
  rule.operands.emplace_back(operand.size());
  rule.results.emplace_back(operand.size());
  for (size_t d = 0; d < operand.size(); ++d) {
    int64_t last = starts[d] + (result[d] - 1) * steps[d];
    if (result[d] > 0 &&
        (starts[d] < 0 || starts[d] >= operand[d] || last < 0 || last >= operand[d]))
      return makeError("dim " + std::to_string(d) + ": elements " +
                       std::to_string(starts[d]) + " to " + std::to_string(last) +
                       " are not inside the size " + std::to_string(operand[d]));
    auto &from = rule.operands[0][d], &to = rule.results[0][d];
    bool block = steps[d] == 1 && result[d] > 0 && operand[d] % result[d] == 0 &&
                 starts[d] % result[d] == 0;
    if (block) {
      addBlockDim(rule, operand[d], result[d], from, to);
      continue;
    }
    if (operand[d] != 1)
      from.push_back(rule.addFactor(operand[d], loop::Replicate{}));
    if (result[d] != 1)
      to.push_back(rule.addFactor(result[d], loop::Replicate{}));
  }
  return rule;
}

Expected<ShardingRule> partita::concatRule(const std::vector<Shape> &operands,
                                           int64_t axis) {
  if (operands.empty())
    return makeError("expected at least one operand");
  auto normal = normalizeAxis(axis, operands[0].size());
  if (!normal)
    return tl::unexpected(normal.error());
  auto at = static_cast<size_t>(*normal);
  int64_t total = 0;
  bool equal = true;
  for (size_t o = 0; o < operands.size(); ++o) {
    Shape other = operands[o];
    if (other.size() == operands[0].size())
      other[at] = operands[0][at];
    if (other != operands[0])
      return makeError("operand " + std::to_string(o) + " of shape " + text(operands[o]) +
                       " does not fit operand 0 of shape " + text(operands[0]) +
                       " outside axis " + std::to_string(at));
    total += operands[o][at];
    equal &= operands[o][at] == operands[0][at];
  }
  ShardingRule rule;
  rule.operands.assign(operands.size(), TensorFactors(operands[0].size()));
  rule.results.emplace_back(operands[0].size());
  for (size_t d = 0; d < operands[0].size(); ++d) {
    if (d == at && equal && total > 0) {
      addBlockDim(rule, total, operands[0][d], rule.results[0][d], rule.operands[0][d]);
    } else if (d == at) {
      for (size_t o = 0; o < operands.size(); ++o)
        if (operands[o][d] != 1)
          rule.operands[o][d] = {rule.addFactor(operands[o][d], loop::Replicate{})};
      if (total != 1)
        rule.results[0][d] = {rule.addFactor(total, loop::Replicate{})};
      continue;
    } else if (operands[0][d] != 1) {
      rule.operands[0][d] = rule.results[0][d] = {rule.addFactor(operands[0][d])};
    }
    for (TensorFactors &operand : rule.operands)
      operand[d] = rule.operands[0][d];
  }
  return rule;
}

Expected<ShardingRule> partita::rowRule(const Shape &operand,
                                        const std::vector<int64_t> &axes) {
  ShardingRule rule;
  TensorFactors tensor;
  std::vector<bool> mixed(operand.size(), false);
  for (int64_t axis : axes) {
    auto normal = normalizeAxis(axis, operand.size());
    if (!normal)
      return tl::unexpected(normal.error());
    mixed[*normal] = true;
  }
  for (size_t d = 0; d < operand.size(); ++d) {
    tensor.emplace_back();
    loop::Kind what = loop::Parallel{};
    if (mixed[d])
      what = loop::Replicate{};
    if (operand[d] != 1)
      tensor.back().push_back(rule.addFactor(operand[d], what));
  }
  rule.operands.push_back(tensor);
  rule.results.push_back(std::move(tensor));
  return rule;
}

void partita::addSpatialDim(ShardingRule &rule, const SpatialDim &dim, ReduceKind fill,
                            std::vector<int32_t> &operandDim,
                            std::vector<int32_t> &resultDim) {
  loop::Kind what = loop::Parallel{};
  if (!dim.pointwise())
    what = loop::Window{fill, dim.input, dim.stride, dim.kernelExtent(), dim.low};
  else if (dim.output == 1)
    return;
  // A single window is a loop too: on a rank that has one position of many, the rule says
  // where its window begins.
  operandDim = resultDim = {rule.addFactor(dim.output, what)};
}

std::vector<int32_t> partita::addSummedPositions(ShardingRule &rule,
                                                 const SpatialDim &dim, int32_t operand) {
  loop::Reduction sum;
  if (!dim.pointwise())
    sum.window = loop::Window{ReduceKind::Sum,    dim.input, dim.stride,
                              dim.kernelExtent(), dim.low,   operand};
  else if (dim.output == 1)
    return {};
  return {rule.addFactor(dim.output, std::move(sum))};
}

/// Rounded down, unlike C++'s division.
static int64_t floorDivided(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

std::optional<SpatialDim> partita::transposedWindows(const SpatialDim &dim) {
  if (dim.output % dim.stride != 0)
    return std::nullopt;
  // Position i reads the elements j with i + low − reach ≤ j·stride ≤ i + low. A group's
  // window begins where its first position's does, but so early that the local op need
  // not put elements before its result: `low + before · stride` is not negative.
  int64_t reach = dim.kernelExtent() - 1;
  int64_t before = std::max(floorDivided(reach - dim.low, dim.stride),
                            -floorDivided(dim.low, dim.stride));
  int64_t last = floorDivided(dim.stride - 1 + dim.low, dim.stride);
  return SpatialDim{.input = dim.input,
                    .output = dim.output / dim.stride,
                    .kernel = before + last + 1,
                    .low = before};
}

void partita::addTransposedDim(ShardingRule &rule, const SpatialDim &dim,
                               std::vector<int32_t> &operandDim,
                               std::vector<int32_t> &resultDim) {
  if (auto windows = transposedWindows(dim)) {
    addSpatialDim(rule, *windows, ReduceKind::Sum, operandDim, resultDim);
    if (dim.stride != 1)
      resultDim.push_back(rule.addFactor(dim.stride, loop::Replicate{}));
    return;
  }
  if (dim.input != 1)
    operandDim = {rule.addFactor(dim.input, loop::Replicate{})};
  if (dim.output != 1)
    resultDim = {rule.addFactor(dim.output, loop::Replicate{})};
}

void partita::addStretchedDim(ShardingRule &rule, int64_t size, int64_t times,
                              std::vector<int32_t> &operandDim,
                              std::vector<int32_t> &resultDim) {
  if (size != 1)
    operandDim = resultDim = {rule.addFactor(size)};
  // A part of what one element makes is not what any local op could compute.
  if (times != 1)
    resultDim.push_back(rule.addFactor(times, loop::Replicate{}));
}

Expected<int64_t> partita::normalizeAxis(int64_t axis, size_t rank) {
  auto signedRank = static_cast<int64_t>(rank);
  if (axis < -signedRank || axis >= signedRank)
    return makeError("axis " + std::to_string(axis) + " is out of range for rank " +
                     std::to_string(rank));
  return axis < 0 ? axis + signedRank : axis;
}
