//===- StepPlacement.h - The stage of everything in a step ------*- C++ -*-===//
#ifndef PARTITA_PASSES_STAGE_STEPPLACEMENT_H
#define PARTITA_PASSES_STAGE_STEPPLACEMENT_H

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <string>
#include <vector>

namespace partita {

/// The stage of an op that has none of its own: it is wherever it is read.
inline constexpr int32_t everywhere = -1;

/// The step with its loop, taken apart by operands of the loop.
struct LoopedStep {
  mutable mlir::func::FuncOp main, micro; // handles, whose methods are not const
  mutable graph::RepeatOp loop;

  unsigned numCarried() const { return static_cast<unsigned>(loop.getCarried().size()); }
  unsigned numScanned() const { return static_cast<unsigned>(loop.getScanned().size()); }
  bool isCarried(unsigned argument) const { return argument < numCarried(); }
  bool isScanned(unsigned argument) const {
    return argument >= numCarried() && argument < numCarried() + numScanned();
  }
  /// The value that a trip makes of a carried one.
  mlir::Value next(unsigned carried) const {
    return micro.front().getTerminator()->getOperand(carried);
  }
};

/// Gives a gradient to which several stages add, as that of a tied weight, a sum over the
/// micro-batches for each of them, and adds these behind the loop: what crosses once need
/// not cross with every micro-batch.
void sumApart(LoopedStep &step);

/// The stage of every op, of what is carried, and of states.
class StepPlacement {
public:
  /// There are `numStages` stages at least.
  StepPlacement(LoopedStep step, int32_t numStages);

  int32_t of(mlir::Operation *op) const { return ofOp.lookup(op); }
  const llvm::DenseMap<mlir::Operation *, int32_t> &all() const { return ofOp; }
  int32_t ofCarried(unsigned carried) const { return carriedIn[carried]; }
  /// The stage of a state by the number of its argument; inputs are everywhere.
  int32_t ofArgument(unsigned argument) const { return owner[argument]; }
  int32_t count() const { return numStages; }
  /// Tells whether another stage makes the forward op again rather than be sent what it
  /// gives with each micro-batch. Such are ops that follow from parameters alone, as the
  /// narrow copy of a tied table, and those that move or combine elements of inputs and
  /// constants, as a mask.
  bool isMadeAgain(mlir::Operation *op) const;

private:
  /// Sources of a value of the micro-batch: parameters, or slices of inputs; both
  /// if on what is carried, or computed by something that is not made again.
  enum Source : uint8_t { None = 0, Parameters = 1, Inputs = 2, Both = 3 };
  Source sourceOf(mlir::Operation &op) const;
  int32_t ofValue(mlir::Value value) const;
  int32_t latest(mlir::Operation &op) const;
  /// Ops that say nothing stay with what they read: forward with the latest of it,
  /// backward with the cotangent that they work on.
  int32_t follow(mlir::Operation &op) const;
  /// The first stage that reads a value of the micro-batch, through ops that are
  /// everywhere, too.
  int32_t firstReader(mlir::Value value) const;
  int32_t inMain(mlir::Operation &op) const;
  void placeMicroBatch();
  void placeStates();
  void placeMain();

  LoopedStep step;
  llvm::DenseMap<mlir::Operation *, int32_t> ofOp;
  llvm::DenseMap<mlir::Operation *, Source> sources; ///< of ops of the micro-batch
  std::vector<int32_t> carriedIn, owner;
  std::map<std::string, int32_t> stageOfParameter;
  int32_t numStages;
};

} // namespace partita

#endif // PARTITA_PASSES_STAGE_STEPPLACEMENT_H
