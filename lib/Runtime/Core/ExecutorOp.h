//===- ExecutorOp.h - A prepared task ---------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
#define PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H

#include "partita/Runtime/Executor.h"

#include <variant>

namespace partita::runtime {

/// A call of the transport. Of a device with memory of its own, what is sent and received
/// passes through `staged`, the same for a start and its wait.
struct Executor::Staged {
  /// By place of the call, source and target of each item; empty: that of the item's
  /// target, in which it takes place, or nothing.
  std::vector<std::vector<std::byte>> room;
  std::vector<void *> places; ///< in `room`
};

struct CollectiveWork {
  int call; ///< of the transport
  CollectivePart part = CollectivePart::Whole;
};

/// A copy in flight on a device whose work is not done when it is given: it goes on a
/// stream of its own, between two events.
struct FlightWork {
  RowsWork rows;
  std::unique_ptr<Device::Event> ready, done;
};

/// Work that is given from now on begins when a copy in flight is over.
struct AwaitWork {
  Device::Event *done;
};

/// The rows of a local copy for this value of its rank value, but for the parts. False if
/// it cannot be such a value.
bool rowsOf(const task::Params &params, int64_t value, RowsWork &rows) noexcept;

/// The tasks behind this one, `tasks` of them, run `trips` times, or as often as the op's
/// scalar says.
struct LoopWork {
  size_t tasks;
  int64_t trips;
  struct Moving {
    size_t op, operand; ///< an address of the op
    int64_t begin, stride;
  };
  std::vector<Moving> moving = {};
};

/// The tasks behind this one, `tasks` of them, do not run where the operand is `when`.
struct SkipWork {
  size_t tasks;
  bool when;
};

/// Rows by the op's list.
struct ListWork {
  int64_t rowBytes;
  bool put; ///< the list says where they go, else whence they come
};

/// In partita_status.code, beside those of kernels: a value that was read is out of its
/// bounds; the member `check` of an AllToAllV has counts for which there is no room.
enum : int64_t {
  outOfBounds = PARTITA_NUM_STATUS_CODES,
  sendsTooMany,
  receivesTooMany,
};

/// Is done when the task before it is.
struct NoWork {};

/// Everything about a call of the table that does not change between requests: tasks that
/// are the same call share it, but for those that depend on their place.
struct Executor::Op {
  uint32_t index = 0; ///< the first task that it is for
  uint32_t uses = 0;  ///< how many it is for
  std::vector<void *> addresses;
  std::vector<int64_t> scalars;
  int packedOperand = -1; ///< operand that is read in packed form only
  uint64_t received = 0;  ///< bytes from other ranks, where requests are recorded
  /// Scalars that are read when the task runs: integers of an operand.
  struct Read {
    size_t scalar, operand;
    int64_t element, most;
    bool wide;           ///< i64, else i32
    bool isList = false; ///< goes to `list`
  };
  std::vector<Read> reads;
  std::vector<int64_t> list; ///< of the tasks that take one
  Collective ragged;         ///< of an AllToAllV
  std::variant<KernelWork, EngineWork, CollectiveWork, RowsWork, LoopWork, SkipWork,
               NoWork, FlightWork, AwaitWork, ListWork>
      work;
  Staged *staged = nullptr; ///< of a collective
  std::vector<RankMemory::State *> writes = {};

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
  void *places[2]; ///< source, target; null: none of this rank's
  Staged *staged = nullptr;
  uint64_t received = 0;                      ///< as of an op
  const RankMemory::State *written = nullptr; ///< a state that it fills
};

/// A prepared entry of the schedule.
struct Executor::Entry {
  int64_t segment, microBatch;
  std::vector<Moving> waits, starts;
};

/// CLOCK_MONOTONIC in seconds.
double now();

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_EXECUTOROP_H
