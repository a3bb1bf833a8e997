//===- Cost.cpp - What a kernel takes -------------------------------------===//
#include "Cost.h"

#include <algorithm>

using namespace partita;
using namespace partita::kernels;

static double stepsToMove(const LocalValue &value, int64_t elements,
                          const Target &target) {
  double bytes =
      static_cast<double>(elements) * static_cast<double>(byteWidth(value.type));
  return bytes > target.farTensor ? bytes * target.farByte : bytes;
}

double kernels::movedSteps(const LocalValue &value, const Target &target) {
  return stepsToMove(value, elementCount(value.shape), target);
}

int64_t kernels::pointsIn(const std::vector<int64_t> &domain, const LocalProgram &program,
                          int32_t op) {
  if (program.op(op).facts.kind == OpKind::Row)
    return elementCount(domain);
  const std::vector<int64_t> &shape = program.result(op).shape;
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

void KernelCost::repeat(int32_t op, int64_t points) {
  operations += program->op(op).facts.steps * static_cast<double>(points);
}

void KernelCost::add(int32_t number, int64_t points) {
  const LocalOp &op = program->op(number);
  repeat(number, points);
  std::erase_if(loaded, [&](const auto &entry) {
    return std::ranges::count(op.results, entry.first) != 0;
  });
  for (int32_t operand : op.operands) {
    const LocalValue &value = program->value(operand);
    if (value.isUniform())
      continue;
    int64_t elements = elementCount(value.shape);
    // A table is read only where it is looked up.
    if (op.facts.kind == OpKind::Indexed)
      elements = std::min(elements, points);
    double steps = stepsToMove(value, elements, *target);
    auto found = std::ranges::find(loaded, operand, &std::pair<int32_t, double>::first);
    if (found == loaded.end())
      loaded.emplace_back(operand, steps);
    else
      found->second = std::max(found->second, steps);
  }
}

double KernelCost::steps() const {
  double traffic = stored;
  for (const auto &entry : loaded)
    traffic += entry.second;
  return target->launchSteps + std::max(operations, traffic);
}
