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
  std::function<mlir::Value()> reduceRows(mlir::Value neutral, Element element,
                                          Combine combine) override;
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
  void emitChecks();
  void chunkLoop(const KernelSplit &split, mlir::Value first, mlir::Value last);
  void outerLoops(size_t dim);
  /// The last outer dim from `from` to before `to`, so many rows at once as there are
  /// lanes, and what is left one by one.
  void laneBlocks(mlir::Value from, mlir::Value to);
  /// A loop over the rows of a block, innermost: LLVM makes vectors of it.
  void laneLoop(llvm::function_ref<void()> body);
  void emitEntry(mlir::func::FuncOp function);

  mlir::Value firstLane; ///< the first row of the block; null outside of one
  mlir::Value lane;      ///< the current row of it
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_CPUEMITTER_H
