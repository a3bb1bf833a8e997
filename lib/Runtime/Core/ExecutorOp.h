//===- ExecutorOp.h - A prepared task ---------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
#define PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H

#include "partita/Runtime/Executor.h"

#include <variant>

namespace partita::runtime {

struct KernelWork {
  partita_kernel_fn function;
  int64_t units;
  int parts; ///< calls at once
};

struct EngineWork {
  std::shared_ptr<const engine::Call> call;
  engine::Call::Frame *frame = nullptr;         ///< the rank's, for this call
  std::unique_ptr<engine::Call::Weight> weight; ///< where it is packed
};

struct CollectiveWork {
  int call; ///< of the transport
  CollectivePart part = CollectivePart::Whole;
};

/// All local copies are rows: `outer` rows, of which `from` bytes are copied from the
/// source row at the target row of `to` bytes; what remains of the target row is filled
/// with a pattern of `width` bytes. Source rows are `skip` bytes apart, target rows
/// `targetSkip`, or where that is 0, as long as they are.
struct RowsWork {
  int64_t outer = 0, skip = 0, from = 0, to = 0;
  uint64_t bits = 0;
  int64_t width = 1;
  /// By the task's value: how far behind the operands' beginnings the rows begin.
  int64_t sourceShift = 0, targetShift = 0, targetSkip = 0;
  int parts = 1; ///< of the rows, at once
};

/// The rows of a local copy for this value of its rank value, but for the parts. False if
/// it cannot be such a value.
bool rowsOf(const task::Params &params, int64_t value, RowsWork &rows) noexcept;

/// The tasks behind this one, up to before `end`, run `trips` times, or as often as the
/// op's scalar says.
struct LoopWork {
  size_t end;
  int64_t trips;
  struct Moving {
    size_t op, operand; ///< an address of the op
    int64_t begin, stride;
  };
  std::vector<Moving> moving = {};
};

/// The tasks behind this one, up to before `end`, do not run where the operand is `when`.
struct SkipWork {
  size_t end;
  bool when;
};

/// Is done when the task before it is.
struct NoWork {};

/// Everything about a task that does not change between requests.
struct Executor::Op {
  uint32_t index = 0;
  std::vector<void *> addresses;
  std::vector<int64_t> scalars;
  int packedOperand = -1; ///< operand that is read in packed form only
  uint64_t received = 0;  ///< bytes from other ranks, where requests are recorded
  /// Scalars that are read when the task runs: integers of an operand.
  struct Read {
    size_t scalar, operand;
    int64_t element, most;
    bool wide; ///< i64, else i32
  };
  std::vector<Read> reads;
  std::variant<KernelWork, EngineWork, CollectiveWork, RowsWork, LoopWork, SkipWork,
               NoWork>
      work;

  /// The task's operand that an address is of. A copy in place has the address of its
  /// first operand twice.
  size_t operandOf(size_t address, const TaskView &task) const {
    return addresses.size() > task.operands.size() && address > 0 ? address - 1 : address;
  }
};

/// A transfer of one micro-batch.
struct Executor::Moving {
  size_t transfer;
  int64_t microBatch;
  int call;
  std::byte *address; ///< source, or target
  bool sends;
  uint64_t received = 0; ///< as of an op
};

/// A prepared entry of the schedule.
struct Executor::Entry {
  int64_t segment, microBatch;
  std::vector<Moving> waits, starts;
};

/// CLOCK_MONOTONIC in seconds.
double now();

/// Touches pages to be written at load, so that the first request does not wait for them.
/// Systems that cannot do it are no error.
void populate(void *data, uint64_t bytes);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
