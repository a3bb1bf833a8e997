//===- CpuEmitter.h - A kernel as loops over ranges of units ----*- C++ -*-===//
//
//   void kernel_body(ptr operand0, …, ptr scratch, ptr scalars, ptr status,
//                    i64 begin, i64 end)
//
//   if begin is 0, the checks
//   for units from begin to before end (KernelSplit), for further outer dims: the row
//
// and `kernel`, the entry point that the runtime calls (partita_kernel_fn). A row is done
// by one thread.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_CPUEMITTER_H
#define PARTITA_PASSES_CODEGEN_CPU_CPUEMITTER_H

#include "passes/Codegen/Emit/KernelEmitter.h"

namespace partita::codegen {

class CpuEmitter : public KernelEmitter {
public:
  using KernelEmitter::KernelEmitter;
  void emit() override;

  void mapFirst(int64_t points, llvm::function_ref<void()> body) override;
  mlir::Value reduceRow(mlir::Value neutral, Element element, Combine combine) override;
  /// A single loop carries all sums.
  void reduceRows(llvm::ArrayRef<Reduction> reductions) override;
  void eachRow(llvm::function_ref<void()> body) override;
  void scanRow(mlir::Value neutral, Element element, Combine combine, Step step,
               bool backwards) override;
  void forEach(mlir::Value from, mlir::Value to, mlir::Value step,
               llvm::function_ref<void(mlir::Value)> body) override;

protected:
  void checkLoop(llvm::ArrayRef<int64_t> shape,
                 llvm::function_ref<void(mlir::ValueRange)> body) override;
  mlir::Value claimStatus(mlir::Value status) override;
  void oncePerRow(llvm::function_ref<void()> body) override;
  void keepPerRow() override;
  void storeOutput(size_t output, mlir::Value element) override;

  /// What a call computes: the units from `begin` to before `end`.
  virtual void unitLoop();
  mlir::scf::ForOp enterLoop(mlir::Value from, mlir::Value to);

  mlir::Value begin, end; ///< of the units

private:
  using RowBody = llvm::function_ref<Values(mlir::ValueRange carried)>;
  /// A loop over the first points of the row, front to back or back to front; returns
  /// what the last iteration carried.
  Values rowLoop(mlir::ValueRange initial, int64_t points, RowBody body,
                 bool backwards = false);

  // Elements whose steps wait for one another, several at once.

  struct Range {
    mlir::Value from, to;
    int64_t step;
  };
  /// The Indexed node whose elements a loop computes several at once
  /// (IndexedOpInterface::getElementsAtOnce); −1 without.
  int nodeAtOnce() const;
  /// A loop over a dim, front to back in steps: the elements of the node at all points of
  /// a step, then `body` for each point. Steps fill the range.
  Values loopAtOnce(int number, size_t dim, const Range &range, mlir::ValueRange initial,
                    RowBody body);
  /// The row, as rowLoop.
  Values rowAtOnce(int number, mlir::ValueRange initial, RowBody body);
  /// The last outer dim from `from` to before `to`, of a kernel without rows.
  void mapAtOnce(int number, mlir::Value from, mlir::Value to);
  /// Tells whether the last outer dim needs a loop of its own kind, and emits it.
  bool lastLoop(mlir::Value from, mlir::Value to);

  void emitChecks();
  void chunkLoop(const KernelSplit &split, mlir::Value first, mlir::Value last);
  void outerLoops(size_t dim);
  void emitEntry(mlir::func::FuncOp function);

  // Rows across memory (CpuLanes.cpp). Rows of a *group* are computed at once, a block of
  // `lanes` of them in the innermost loop. A sum is an array with an element per row of
  // the group, so that memory is read in its own order however many rows there are.

  /// A sum over a pass: an array per lane, and another to which it is added every few
  /// hundred points. A sum of very many points would lose the small ones otherwise.
  struct LaneSum {
    const Reduction *reduction;
    mlir::Value sums, totals;
    /// The Row node of the squares around the mean, and their array; −1 without.
    int squares = -1;
    mlir::Value squareSums;
  };
  /// Tells if the last outer dim goes by blocks of lanes.
  bool hasLanes() const { return spec.split.lanes != 1 || isStreamed(); }
  int64_t lanes() const;
  /// How many rows of a group have room in the first-level cache for their arrays.
  int64_t groupRows() const;
  /// The last outer dim from `from` to before `to`: groups of rows, and what is left one
  /// by one.
  void laneGroups(mlir::Value from, mlir::Value to);
  /// Loops over the rows of the group, innermost those of a block: LLVM makes vectors of
  /// it.
  void laneLoop(llvm::function_ref<void()> body);
  using PointsBody = llvm::function_ref<void(mlir::Value first, int64_t count)>;
  /// A loop over the row, of so many points of its last dim at once, and of what is left
  /// point by point; `pause` comes every few hundred points and behind the last.
  void pointBlocks(int64_t count, PointsBody body, llvm::function_ref<void()> pause);
  void reduceLanes(llvm::ArrayRef<Reduction> reductions);
  void addPoints(llvm::ArrayRef<LaneSum> sums, mlir::Value first, int64_t count);
  void addCentered(const LaneSum &sum, llvm::ArrayRef<mlir::Value> elements,
                   mlir::Value pointsBefore);
  void defineSquares(const LaneSum &sum);
  /// A Row node that sums (x − m)² where `sum` sums x, and m is a function of that sum
  /// and of what is known; −1: there is none.
  int squaresAround(int sum) const;
  int meanOf(int squares) const;
  /// Nodes that are the same along the row and read where it is not, of floats.
  llvm::SmallVector<int> keptNodes() const;
  mlir::Value laneArray(mlir::Type type, int64_t rows);
  mlir::Value loadLane(mlir::Value array, mlir::Type type);
  void storeLane(mlir::Value array, mlir::Value element);
  /// Says whether an output goes past the caches: nothing reads so large a tensor before
  /// the begin of it has left them.
  bool isStreamed(const KernelOperand &output) const;
  bool isStreamed() const;
  void storeStaged(mlir::Value block);

  mlir::Value firstLane, endLane; ///< rows of the group; null outside of one
  mlir::Value lane;               ///< of the current row in the group
  mlir::Value laneInBlock;
  /// Per streamed output, elements of a block before they are stored.
  llvm::SmallVector<mlir::Value> staged;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_CPUEMITTER_H
