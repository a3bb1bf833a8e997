//===- Rolling.h - States whose rows stay where they are --------*- C++ -*-===//
//
// A cache that a model moves on by a concatenation,
//
//   both = concat(past, new)      [M + n rows]
//   present = the last M rows of both
//
// lies in a place for more than M rows, from a row on that the runtime calls its base.
// The new rows are written behind the old ones, `both` is a view of M + n rows at the
// base, and what is left for the next request begins n rows later: no old row is copied.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_ROLLING_H
#define PARTITA_PASSES_CODEGEN_COMMON_ROLLING_H

#include "dialects/Task/Task.h"
#include "passes/Codegen/Common/Program.h"

#include "llvm/ADT/DenseMap.h"

#include <map>
#include <optional>
#include <string>

namespace partita::codegen {

/// What a function makes of a state that it moves on: rows of what was there, with the
/// appended ones behind them.
struct RolledValues {
  size_t dim = 0;
  int64_t window = 0; ///< rows of the state
  /// In their order. Each is there once.
  llvm::SmallVector<mlir::Value> appended;
  /// By value its first row and the one behind its last: concatenations and slices of
  /// them.
  llvm::DenseMap<mlir::Value, std::pair<int64_t, int64_t>> rows;

  int64_t rowsOf(mlir::Value value) const;
  int64_t advance() const;
};

/// Whether what becomes of the state, `result` of the function, is its argument moved on
/// by rows that are appended to it.
std::optional<RolledValues> rolledValues(mlir::func::FuncOp function, unsigned argument,
                                         unsigned result);

/// Of a state's buffer: the segment that moves it on, and what is what in its function.
struct RollingSegment {
  task_ir::SegmentOp segment;
  RolledValues values;
};

/// Who touches the states of a program.
class StateUses {
public:
  explicit StateUses(task_ir::ProgramOp program);

  /// Whether a state may lie in rows of a larger place: the runtime fills it, and what is
  /// sent is dense.
  bool mayRoll(task_ir::BufferOp buffer) const;
  /// Nothing if it does not roll.
  std::optional<RollingSegment> rollingSegment(task_ir::BufferOp buffer) const;

private:
  /// Of a buffer.
  struct Uses {
    task_ir::SegmentOp segment;  ///< the last that touches it
    mlir::func::FuncOp function; ///< that segment's
    int segments = 0, reads = 0, writes = 0;
    unsigned read = 0, write = 0; ///< the last of them, by number
    bool isSent = false;
  };
  llvm::DenseMap<mlir::StringAttr, Uses> uses;
  int64_t microBatches;
};

/// Which states of a bundle roll, and in how many rows. All entries that have a state
/// must agree: they are added before one of them is formed.
class RollingStates {
public:
  /// The states of a module of level L4.
  void add(mlir::ModuleOp module);

  /// Of a buffer of a state: how it rolls, moving on by what its segment appends. Nothing
  /// if it stays as it is.
  std::optional<Roll> rollOf(task_ir::ProgramOp program, task_ir::BufferOp buffer) const;
  /// The segment that moves on a state of a program that was added, if it rolls.
  std::optional<RollingSegment> segmentOf(task_ir::ProgramOp program,
                                          task_ir::BufferOp buffer) const;

private:
  struct Known {
    size_t dim = 0;
    int64_t window = 0, most = 0; ///< rows, and the most of them that are appended
    bool differs = false;         ///< entries append along different dims
  };
  std::map<std::pair<std::string, std::string>, Known> states; ///< by program and name
  llvm::DenseMap<mlir::Operation *, StateUses> usesOf;         ///< by program
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_ROLLING_H
