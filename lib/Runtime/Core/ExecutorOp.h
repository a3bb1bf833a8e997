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
/// source row (`skip` bytes long) at the target row of `to` bytes; what remains of the
/// target row is filled with a pattern of `width` bytes.
struct RowsWork {
  int64_t outer = 0, skip = 0, from = 0, to = 0;
  uint64_t bits = 0;
  int64_t width = 1;
  int parts = 1; ///< of the rows, at once
};

/// Everything about a task that does not change between requests.
struct Executor::Op {
  uint32_t index = 0;
  std::vector<void *> addresses;
  std::vector<int64_t> scalars;
  int packedOperand = -1; ///< operand that is read in packed form only
  std::variant<KernelWork, EngineWork, CollectiveWork, RowsWork> work;
};

/// A transfer of one micro-batch.
struct Executor::Moving {
  size_t transfer;
  int64_t microBatch;
  int call;
  std::byte *address; ///< source, or target
  bool sends;
};

/// A prepared entry of the schedule.
struct Executor::Entry {
  int64_t segment, microBatch;
  std::vector<Moving> waits, starts;
};

/// Touches pages to be written at load, so that the first request does not wait for them.
/// Systems that cannot do it are no error.
void populate(void *data, uint64_t bytes);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
