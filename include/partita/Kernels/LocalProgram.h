//===- LocalProgram.h - One rank's program as plain data --------*- C++ -*-===//
//
// Description, without IR, of what `group` (Group.h) reads: ops in their order, each by
// its number, and values at the extents that one rank has.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_LOCALPROGRAM_H
#define PARTITA_KERNELS_LOCALPROGRAM_H

#include "partita/Base/DType.h"
#include "partita/Base/Phase.h"
#include "partita/Kernels/OpFacts.h"

#include <optional>
#include <vector>

namespace partita::kernels {

struct LocalOp {
  OpFacts facts;
  Phase phase = Phase::Forward;
  /// The part of an op in a kernel of attention, which ops are told of: *Root* is
  /// computed there as others are by themselves, *Inside* nowhere else.
  enum class Attention : uint8_t { None, Root, Inside } attention = Attention::None;
  std::vector<int32_t> operands, results; ///< value numbers
};

struct LocalUse {
  int32_t op;
  uint32_t operand;
};

struct LocalValue {
  std::vector<int64_t> shape; ///< in elements
  DType type = DType::F32;
  int32_t producer = -1; ///< −1: an argument
  /// The number that all elements of a constant are: kernels have the number in their
  /// code.
  std::optional<double> uniform = {};
  std::vector<LocalUse> uses = {}; ///< in the order of ops and operands

  bool isUniform() const { return uniform.has_value(); }
};

struct LocalProgram {
  /// In their order; what the program gives is read by ops without results.
  std::vector<LocalOp> ops;
  std::vector<LocalValue> values;

  int32_t addValue(std::vector<int64_t> shape, DType type);
  /// Adds an op behind those that make its operands, and makes it the producer of its
  /// results and a user of its operands.
  int32_t addOp(LocalOp op);

  const LocalOp &op(int32_t number) const { return ops[static_cast<size_t>(number)]; }
  const LocalValue &value(int32_t number) const {
    return values[static_cast<size_t>(number)];
  }
  /// The only result of the op.
  const LocalValue &result(int32_t op) const { return value(this->op(op).results[0]); }
  const LocalValue &operand(int32_t op, size_t number) const {
    return value(this->op(op).operands[number]);
  }
};

} // namespace partita::kernels

#endif // PARTITA_KERNELS_LOCALPROGRAM_H
