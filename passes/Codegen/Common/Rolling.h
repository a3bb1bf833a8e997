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

/// Which states of a bundle roll, and in how many rows. All entries that have a state
/// must agree: they are added before one of them is formed.
class RollingStates {
public:
  /// The states of a module of level L4.
  void add(mlir::ModuleOp module);

  /// Of a buffer of a state: how it rolls, moving on by what its segment appends. Nothing
  /// if it stays as it is.
  std::optional<Roll> rollOf(task_ir::ProgramOp program, task_ir::BufferOp buffer) const;

private:
  struct Known {
    size_t dim = 0;
    int64_t window = 0, most = 0; ///< rows, and the most of them that are appended
    bool differs = false;         ///< entries append along different dims
  };
  std::map<std::pair<std::string, std::string>, Known> states; ///< by program and name
};

/// Of a state's buffer: the segment that moves it on, and what is what in its function.
struct RollingSegment {
  task_ir::SegmentOp segment;
  RolledValues values;
};
std::optional<RollingSegment> rollingSegment(task_ir::ProgramOp program,
                                             task_ir::BufferOp buffer);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_ROLLING_H
