//===- FusionCost.cpp - What a kernel takes -------------------------------===//
#include "passes/Codegen/Common/FusionCost.h"

#include "passes/Codegen/Common/Fusion.h"
#include "passes/Codegen/Common/Interfaces.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static double stepsToMove(Value value, int64_t elements) {
  double bytes =
      static_cast<double>(elements) *
      static_cast<double>(byteWidth(*dtypeOf(getElementTypeOrSelf(value.getType()))));
  return bytes > farTensor ? bytes * farByte : bytes;
}

double codegen::movedSteps(Value value) {
  return stepsToMove(value, elementCount(shapeOf(value)));
}

double codegen::stepsPerPoint(Operation *op) {
  if (auto payload = dyn_cast<PayloadOpInterface>(op))
    return static_cast<double>(payload.getPayload().steps());
  // Row and indexed ops, by what they count as operations.
  auto counted = dyn_cast<ShardingRuleOpInterface>(op);
  int64_t points = elementCount(shapeOf(op->getResult(0)));
  if (isa<RowOpInterface>(op))
    points = std::max(points, elementCount(shapeOf(op->getOperand(0))));
  if (!counted || points == 0)
    return 1;
  return std::max(1.0,
                  static_cast<double>(counted.getFlops()) / static_cast<double>(points));
}

int64_t codegen::pointsIn(const Shape &domain, const Shape &shape) {
  size_t used = 0; // leading dims of the domain up to the last that the op has
  size_t skipped = domain.size() - std::min(domain.size(), shape.size());
  for (size_t d = 0; d < shape.size() && skipped + d < domain.size(); ++d)
    if (shape[d] != 1)
      used = skipped + d + 1;
  int64_t points = 1;
  for (size_t d = 0; d < used; ++d)
    points *= domain[d];
  return points;
}

void KernelCost::repeat(Operation *op, int64_t points) {
  operations += stepsPerPoint(op) * static_cast<double>(points);
}

void KernelCost::add(Operation *op, int64_t points) {
  repeat(op, points);
  for (Value result : op->getResults())
    loaded.erase(result);
  for (Value operand : op->getOperands()) {
    if (isUniform(operand))
      continue;
    int64_t elements = elementCount(shapeOf(operand));
    // Of a table only what is looked up.
    if (isa<IndexedOpInterface>(op))
      elements = std::min(elements, points);
    loaded[operand] = std::max(loaded[operand], stepsToMove(operand, elements));
  }
}

double KernelCost::steps() const {
  double traffic = stored;
  for (const auto &entry : loaded)
    traffic += entry.second;
  return launchSteps + std::max(operations, traffic);
}
