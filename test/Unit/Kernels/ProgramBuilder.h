//===- ProgramBuilder.h - Programs for tests of kernels ---------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_KERNELS_PROGRAMBUILDER_H
#define PARTITA_TEST_UNIT_KERNELS_PROGRAMBUILDER_H

#include "partita/Kernels/LocalProgram.h"

namespace partita::kernels {

/// Makes a program of f32 tensors; ops are called by the value that they make.
struct ProgramBuilder {
  LocalProgram program;

  int32_t argument(std::vector<int64_t> shape) {
    return program.addValue(std::move(shape), DType::F32);
  }
  int32_t constant(double number) {
    int32_t value = op(OpFacts(), {}, {});
    program.values[static_cast<size_t>(value)].uniform = number;
    return value;
  }
  int32_t op(OpFacts facts, std::vector<int32_t> operands, std::vector<int64_t> shape,
             Phase phase = Phase::Forward) {
    int32_t result = program.addValue(std::move(shape), DType::F32);
    LocalOp made;
    made.facts = std::move(facts);
    made.phase = phase;
    made.operands = std::move(operands);
    made.results = {result};
    program.addOp(std::move(made));
    return result;
  }
  /// Ends the program with these results.
  void give(std::vector<int32_t> values) {
    LocalOp made;
    made.operands = std::move(values);
    program.addOp(std::move(made));
  }
  int32_t maker(int32_t value) const { return program.value(value).producer; }
};

} // namespace partita::kernels

#endif // PARTITA_TEST_UNIT_KERNELS_PROGRAMBUILDER_H
