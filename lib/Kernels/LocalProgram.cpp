//===- LocalProgram.cpp - One rank's program as plain data ----------------===//
#include "partita/Kernels/LocalProgram.h"

using namespace partita::kernels;

int32_t LocalProgram::addValue(std::vector<int64_t> shape, DType type) {
  values.push_back({std::move(shape), type});
  return static_cast<int32_t>(values.size()) - 1;
}

int32_t LocalProgram::addOp(LocalOp op) {
  auto number = static_cast<int32_t>(ops.size());
  for (size_t i = 0; i < op.operands.size(); ++i)
    values[static_cast<size_t>(op.operands[i])].uses.push_back(
        {number, static_cast<uint32_t>(i)});
  for (int32_t result : op.results)
    values[static_cast<size_t>(result)].producer = number;
  ops.push_back(std::move(op));
  return number;
}
