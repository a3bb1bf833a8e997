//===- VerifyScheduled.cpp - The gate of level L4 -------------------------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Task/Task.h"
#include "passes/Partition/Passes.h"

#include "mlir/IR/Builders.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYSCHEDULEDPASS
#include "passes/Pipelines/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::task_ir;

namespace {
struct VerifyScheduledPass : partita::impl::VerifyScheduledPassBase<VerifyScheduledPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved(); // nothing changes: the verifier need not run again
    ModuleOp module = getOperation();
    if (module.getOps<ProgramOp>().empty()) {
      module.emitError("has no task.program");
      return signalPassFailure();
    }
    for (auto program : module.getOps<ProgramOp>())
      if (failed(verifyCalls(program)))
        return signalPassFailure();
    if (failed(verifyHandles(module)) || failed(checkRanks(module)))
      return signalPassFailure();
    if (auto ok = schedule::check(pipelineOf(module)); !ok) {
      module.emitError("the schedules cannot be run: ") << ok.error().message;
      return signalPassFailure();
    }
    for (auto program : module.getOps<ProgramOp>())
      if (failed(checkFunctions(program)))
        return signalPassFailure();
  }

  /// The ranks of a run are 0 … n-1, each with one program.
  LogicalResult checkRanks(ModuleOp module) {
    llvm::DenseMap<int64_t, ProgramOp> owner;
    for (auto program : module.getOps<ProgramOp>())
      for (int64_t rank : program.getRanks())
        if (auto [at, fresh] = owner.try_emplace(rank, program); !fresh) {
          InFlightDiagnostic error = program.emitOpError("names rank ")
                                     << rank << " of another program";
          error.attachNote(at->second.getLoc()) << "the other program";
          return error;
        }
    for (int64_t rank = 0; rank < static_cast<int64_t>(owner.size()); ++rank)
      if (!owner.count(rank))
        return module.emitError("has ")
               << owner.size() << " ranks, and rank " << rank << " has no program";
    return success();
  }

  /// Ops that say in which layouts they take and give tensors become calls of functions
  /// that say so; moves are where they were.
  void callInstead(ModuleOp plain) {
    SmallVector<Operation *> ops;
    plain.walk([&](Operation *op) {
      if (isa<MoveOp>(op) || statedLayouts(op))
        ops.push_back(op);
    });
    OpBuilder builder(&getContext());
    for (auto [i, op] : llvm::enumerate(ops)) {
      if (auto move = dyn_cast<MoveOp>(op)) {
        move.getResult().replaceAllUsesWith(move.getInput());
        op->erase();
        continue;
      }
      StatedLayouts layouts = *statedLayouts(op);
      dist::MeshAttr mesh = dist::findMesh(op);
      builder.setInsertionPointToStart(plain.getBody());
      auto type = builder.getFunctionType(op->getOperandTypes(), op->getResultTypes());
      auto callee =
          func::FuncOp::create(builder, op->getLoc(), ("stated." + Twine(i)).str(), type);
      callee.setPrivate();
      for (auto [k, layout] : llvm::enumerate(layouts.operands))
        callee.setArgAttr(static_cast<unsigned>(k), dist::layoutAttr,
                          dist::LayoutAttr::get(&getContext(), mesh, layout));
      for (auto [k, layout] : llvm::enumerate(layouts.results))
        callee.setResultAttr(static_cast<unsigned>(k), dist::layoutAttr,
                             dist::LayoutAttr::get(&getContext(), mesh, layout));
      builder.setInsertionPoint(op);
      auto call = func::CallOp::create(builder, op->getLoc(), callee, op->getOperands());
      op->replaceAllUsesWith(call);
      op->erase();
    }
  }

  /// Whether the functions are of level L3 as they are.
  static bool isPlain(ProgramOp program) {
    return !program
                .walk([](Operation *op) {
                  bool isOther = isa<StartOp, WaitOp, MoveOp>(op) || statedLayouts(op);
                  return isOther ? WalkResult::interrupt() : WalkResult::advance();
                })
                .wasInterrupted();
  }

  /// Where communications take place when they start, the functions are of level L3.
  LogicalResult checkFunctions(ProgramOp program) {
    Block &block = program.getBody().front();
    if (isPlain(program))
      return verifyPartitioned(block.getOps<func::FuncOp>());
    OwningOpRef<ModuleOp> plain = ModuleOp::create(program.getLoc());
    for (NamedAttribute attr : program->getDiscardableAttrs())
      (*plain)->setDiscardableAttr(attr.getName(), attr.getValue());
    OpBuilder builder(plain->getBodyRegion());
    for (auto function : block.getOps<func::FuncOp>())
      builder.clone(*function);
    inlineStarts(*plain);
    callInstead(*plain);
    return verifyPartitioned(plain->getBody()->getOps<func::FuncOp>());
  }
};
} // namespace
