//===- ExecutorOp.h - A prepared task ---------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
#define PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H

#include "partita/Runtime/Executor.h"

namespace partita::runtime {

/// Everything about a task that does not change between requests.
struct Executor::Op {
  TaskKind kind = TaskKind::Kernel;
  uint32_t index = 0;
  std::vector<int64_t> operands;
  std::vector<void *> addresses;
  std::vector<int64_t> scalars;
  int packedOperand = -1; ///< operand that is read in packed form only

  partita_kernel_fn kernel = nullptr;
  std::shared_ptr<const onednn::Call> call;
  onednn::Call::Frame *frame = nullptr;         ///< the rank's, for this call
  std::unique_ptr<onednn::Call::Weight> weight; ///< where it is packed
  int handle = -1;                              ///< of the transport

  /// Local copies, in bytes: see LocalOps.cpp.
  int64_t outer = 0, from = 0, to = 0, skip = 0;
  uint64_t bits = 0;
  int64_t width = 1;
};

/// Touches pages to be written at load, so that the first request does not wait for them.
/// Systems that cannot do it are no error.
void populate(void *data, uint64_t bytes);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
