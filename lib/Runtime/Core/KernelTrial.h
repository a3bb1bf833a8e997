//===- KernelTrial.h - Which node of a task made a NaN ----------*- C++ -*-===//
//
// A kernel computes several nodes of the model, and a call applies some to its result, of
// which the memory shows the last alone. Here what lies between is computed once more,
// one element at a time, from the operands that the task has read.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_CORE_KERNELTRIAL_H
#define PARTITA_LIB_RUNTIME_CORE_KERNELTRIAL_H

#include "partita/Base/Bundle/Formulas.h"
#include "partita/Base/Bundle/TaskKinds.h"
#include "partita/Runtime/NotFinite.h"

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace partita::runtime {

/// Numbers of a value that are not finite.
struct NotFinite {
  uint64_t nan = 0, inf = 0, elements = 0; ///< elements: of the whole value
  bool any() const { return nan + inf != 0; }
  void add(double value);
  NotFinite &operator+=(const NotFinite &other);
};

/// Operands of which a number was made that is not finite.
enum class MadeFrom : uint8_t {
  Finite,   ///< every operand is finite
  Infinite, ///< a NaN of operands of which none is a NaN
};
inline constexpr size_t numMadeFrom = 2;

/// Numbers that each node made, by its own.
struct Trial {
  /// Counts by MadeFrom.
  std::vector<std::array<NotFinite, numMadeFrom>> made;
  /// Nodes of which one made what the task wrote, where it cannot be said which.
  std::vector<int> suspects;
};

/// Memory of a kernel's operand as the kernel found it, or left it.
struct TrialOperand {
  const std::byte *data;
  uint64_t bytes;
};

/// Visits the elements of an operand: their places, in elements. False if some are beyond
/// `bytes`.
bool forEachElement(const KernelFormula &formula, const KernelFormula::Operand &operand,
                    uint64_t bytes, const std::function<void(int64_t)> &visit);

/// An element as a number.
double elementAt(DType type, const std::byte *data, int64_t place);

/// Computes the rows of a whole formula of whose results some are not finite, and at most
/// so many of these.
Trial tryKernel(const KernelFormula &formula, std::span<const TrialOperand> reads,
                std::span<const TrialOperand> writes, int64_t mostRows,
                const ReadPayload &readPayload);

/// Finds the post-op of a MatMul or Conv by which its first result that is not finite is
/// so: 0: the products themselves, k: the k-th name of the task's. −1: not known.
/// `operands` are the task's, by place, with the stored weight, and what was in the
/// result before.
int tryCall(const task::Params &params, std::span<const TrialOperand> operands,
            std::span<const std::byte> resultBefore);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_KERNELTRIAL_H
