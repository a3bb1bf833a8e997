//===- GpuEmitter.h - A kernel as blocks of threads -------------*- C++ -*-===//
//
// Emits a KernelSpec for a grid of blocks of `threadsPerBlock`:
//
//   void kernel(ptr operand0, …, ptr output0, …, ptr scratch, ptr scalars, ptr status)
//
//   without rows: every thread does points, `grid size` apart
//   with rows:    every block does outer points, its threads share the row: a map is a
//                 loop over the thread's points, a reduction goes on by shuffles in warps
//                 and shared memory between them, a scan gives each thread neighbours
//
// Scratch is per block. A grid may have any number of blocks.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_GPUEMITTER_H
#define PARTITA_PASSES_CODEGEN_NVPTX_GPUEMITTER_H

#include "passes/Codegen/Emit/KernelEmitter.h"

namespace partita::codegen {

class GpuEmitter : public KernelEmitter {
public:
  static constexpr int64_t threadsPerBlock = 256, threadsPerWarp = 32;
  /// The symbol of the 8-byte slots that warps of a block meet in.
  static constexpr const char *sharedSymbol = "partita_shared";

  /// Says whether a block shares a row; else every thread has points of its own.
  static bool hasRows(const KernelSpec &kernel);

  using KernelEmitter::KernelEmitter;
  void emit() override;

  void mapFirst(int64_t points, llvm::function_ref<void()> body) override;
  mlir::Value reduceRow(mlir::Value neutral, Element element, Combine combine) override;
  void scanRow(mlir::Value neutral, Element element, Combine combine, Step step,
               bool backwards) override;
  void forEach(mlir::Value from, mlir::Value to, mlir::Value step,
               llvm::function_ref<void(mlir::Value)> body) override;
  mlir::Value isMine(mlir::Value place) override;
  void meet() override;

protected:
  void checkLoop(llvm::ArrayRef<int64_t> shape,
                 llvm::function_ref<void(mlir::ValueRange)> body) override;
  mlir::Value claimStatus(mlir::Value status) override;

  mlir::Value intrinsic(llvm::StringRef name, mlir::Type result, mlir::ValueRange args);
  mlir::Value number(llvm::StringRef special);
  mlir::Value binary(bool isMultiply, mlir::Value a, mlir::Value b);
  mlir::Value less(mlir::Value a, mlir::Value b);
  /// The value of another thread of the warp, as `shfl.sync` says.
  mlir::Value shuffle(llvm::StringRef how, mlir::Value value, mlir::Value lane,
                      int64_t clamp);

private:
  mlir::Value shared(mlir::Value slot);
  void keep(mlir::Value slot, mlir::Value value);
  mlir::Value kept(mlir::Value slot, mlir::Type type);
  /// A loop with one carried value, or none if `initial` is null.
  mlir::Value strided(mlir::Value from, mlir::Value to, mlir::Value step,
                      mlir::Value initial,
                      llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> body);
  /// By warps: what `value` of all threads is together, or of those before this one.
  mlir::Value overBlock(mlir::Value value, mlir::Value neutral, Combine combine);
  mlir::Value before(mlir::Value value, mlir::Value neutral, Combine combine);

  mlir::Value thread, block, blocks; ///< i64
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_GPUEMITTER_H
