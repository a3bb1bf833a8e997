//===- FusionCost.h - What a kernel takes -----------------------*- C++ -*-===//
//
// Which ops share a kernel is decided by what their kernels would take together and apart
// (Fusion.h). A kernel takes the longer of its operations and its traffic, and a launch:
//
//     steps = launch + max(Σ operations · points, Σ bytes · (1 or farByte))
//
// in *steps*: what one vector operation takes for one element, 0.03 ns on a core of 3 GHz
// with two operations of eight elements a cycle. Each tensor that enters or leaves the
// kernel moves once. One that no cache keeps until it is read (farTensor) comes from
// memory.
//
//     softmax of 128 × 768, times exp(scale)    together: 16 · 98,304 steps more
//                                               apart:    16,000 for a launch, 16 · 768,
//                                                         and two small tensors
//
// The figures decide between ways to do the same; that they are within a factor of two
// of a machine's own is enough, so that all machines get the same kernels.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_FUSIONCOST_H
#define PARTITA_PASSES_CODEGEN_COMMON_FUSIONCOST_H

#include "partita/Rule/Sharding/Families.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace partita::codegen {

/// Half a microsecond: a task is looked up, a team is woken and meets.
inline constexpr double launchSteps = 16'000;
/// Of a byte from memory, where one from the caches takes one step.
inline constexpr double farByte = 3;
/// Bytes of a tensor that has left the caches when it is read.
inline constexpr double farTensor = 2 << 20;

/// Steps to move a value once.
double movedSteps(mlir::Value value);

/// Steps of a fusable op at one point.
double stepsPerPoint(mlir::Operation *op);

/// How often an op whose result has this shape computes it in a kernel over `domain`: it
/// is computed again along the dims behind the last one that it has, not along others.
///   [128, 1] over [128, 768]: 128         [768] over [128, 768]: 98,304
int64_t pointsIn(const Shape &domain, const Shape &shape);

/// What a kernel takes. Ops are added users first.
class KernelCost {
public:
  /// The op is computed at so many points.
  void add(mlir::Operation *op, int64_t points);
  /// It is computed there once more.
  void repeat(mlir::Operation *op, int64_t points);
  /// A result is stored: somebody reads it from memory.
  void store(mlir::Value value) { stored += movedSteps(value); }
  double steps() const;

private:
  double operations = 0, stored = 0;
  llvm::SmallDenseMap<mlir::Value, double, 8> loaded;
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_FUSIONCOST_H
