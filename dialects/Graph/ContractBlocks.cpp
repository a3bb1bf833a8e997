//===- ContractBlocks.cpp - Products with weights of 4 bits ---------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::graph;

static std::string text(const Shape &shape) {
  std::string list;
  for (int64_t extent : shape)
    list += (list.empty() ? "" : "x") + std::to_string(extent);
  return list;
}

/// Rows of the input are loops of their own. A block is a loop of all operands, its
/// elements one of the input and, two in a byte, one of the weight.
Expected<ShardingRule> ContractBlocksOp::ruleFor(const std::vector<Shape> &shapes,
                                                 Adaptor adaptor) {
  const Shape &input = shapes[0], &weight = shapes[1];
  const auto block = static_cast<int64_t>(adaptor.getBlock());
  if (block < 2 || block % 2 != 0)
    return makeError("blocks have " + std::to_string(block) +
                     " numbers, expected is an even count");
  if (input.empty() || weight.size() != 3 || weight[2] != block / 2)
    return makeError("a weight of shape " + text(weight) + " has no blocks of " +
                     std::to_string(block) + " numbers");
  if (input.back() % block != 0 || input.back() / block != weight[1])
    return makeError("rows of " + std::to_string(input.back()) + " elements meet " +
                     std::to_string(weight[1]) + " blocks of " + std::to_string(block));
  const Shape perBlock{weight[1], weight[0]};
  for (size_t i = 2; i < shapes.size(); ++i)
    if (shapes[i] != perBlock)
      return makeError(std::string(i == 2 ? "scales" : "zero points") + " of shape " +
                       text(shapes[i]) + ", expected is " + text(perBlock));
  ShardingRule rule;
  TensorFactors rows;
  for (size_t d = 0; d + 1 < input.size(); ++d)
    rows.push_back(rule.addLoop(input[d], loop::Parallel{}));
  auto n = rule.addLoop(weight[0], loop::Parallel{});
  auto b = rule.addLoop(weight[1], loop::Reduction{});
  auto element = rule.addLoop(block, loop::Replicate{});
  auto byte = rule.addLoop(block / 2, loop::Replicate{});
  std::vector<int32_t> summands = b;
  summands.insert(summands.end(), element.begin(), element.end());
  TensorFactors in = rows, out = rows;
  in.push_back(summands);
  out.push_back(n);
  rule.operands = {in, {n, b, byte}, {b, n}};
  if (shapes.size() > 3)
    rule.operands.push_back({b, n});
  rule.results = {out};
  return rule;
}

LogicalResult ContractBlocksOp::verify() {
  auto element = [](Value value) { return getElementTypeOrSelf(value.getType()); };
  if (!element(getInput()).isF32() || !element(getScales()).isF32())
    return emitOpError("multiplies f32 by numbers whose scales are f32");
  if (!element(getWeight()).isUnsignedInteger(8))
    return emitOpError("has a weight of ")
           << element(getWeight()) << ", expected are bytes of ui8";
  if (getZeros() && !element(getZeros()).isUnsignedInteger(8) &&
      !element(getZeros()).isF32())
    return emitOpError("has zero points of ")
           << element(getZeros()) << ", expected are ui8 or f32";
  if (getAccuracyLevel() < 0 || getAccuracyLevel() > 4)
    return emitOpError("has accuracy_level ")
           << getAccuracyLevel() << ", expected is 0 to 4";
  return success();
}

/// A multiplication and an addition for each element and number.
int64_t ContractBlocksOp::getFlops() {
  return 2 * elementCount(shapeOf(getResult())) * shapeOf(getInput()).back();
}

/// Rounds each block to whole steps of a 127th of its largest magnitude.
static void roundBlocks(std::vector<double> &rows, size_t block) {
  for (size_t begin = 0; begin < rows.size(); begin += block) {
    double largest = 0;
    bool isFinite = true;
    for (size_t i = begin; i < begin + block; ++i) {
      isFinite &= std::isfinite(rows[i]);
      largest = std::max(largest, std::abs(rows[i]));
    }
    const double step = isFinite ? largest / 127 : std::nan("");
    for (size_t i = begin; i < begin + block; ++i)
      rows[i] =
          isFinite && largest < 0x1p-100 ? 0 : step * std::nearbyint(rows[i] / step);
  }
}

/// Sums in f64, rounded once.
Expected<std::vector<HostTensor>>
ContractBlocksOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const auto block = static_cast<int64_t>(getBlock());
  const int64_t n = operands[1]->shape[0], blocks = operands[1]->shape[1];
  const int64_t k = blocks * block;
  std::vector<double> input = reference::values<double>(*operands[0]);
  if (roundsRows())
    roundBlocks(input, static_cast<size_t>(block));
  std::vector<double> scales = reference::values<double>(*operands[2]), zeros;
  if (operands.size() > 3)
    zeros = reference::values<double>(*operands[3]);
  Shape shape = operands[0]->shape;
  shape.back() = n;
  const int64_t rows = elementCount(shape) / std::max<int64_t>(n, 1);
  std::vector<double> result(static_cast<size_t>(rows * n)),
      column(static_cast<size_t>(k));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < k; ++i) {
      const auto place = static_cast<size_t>(i / block * n + j);
      const auto byte =
          static_cast<unsigned>(operands[1]->bytes[static_cast<size_t>((j * k + i) / 2)]);
      const auto number = static_cast<double>(byte >> 4 * (i % 2) & 15);
      column[static_cast<size_t>(i)] =
          (number - (zeros.empty() ? 8 : zeros[place])) * scales[place];
    }
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += input[static_cast<size_t>(row * k + i)] * column[static_cast<size_t>(i)];
      result[static_cast<size_t>(row * n + j)] = sum;
    }
  }
  return std::vector<HostTensor>{reference::tensor<double>(DType::F32, shape, result)};
}
