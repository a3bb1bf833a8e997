//===- Schedule.cpp - A function that runs once; orders made whole --------===//
#include "passes/Stage/Passes.h"

#include "dialects/Task/Task.h"

namespace partita {
#define GEN_PASS_DEF_SCHEDULEPASS
#define GEN_PASS_DEF_COMPLETESCHEDULESPASS
#include "passes/Stage/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
struct SchedulePass : partita::impl::SchedulePassBase<SchedulePass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto function = module.lookupSymbol<func::FuncOp>("main");
    if (!function || function.isExternal()) {
      module.emitError("has no function @main");
      return signalPassFailure();
    }
    OwningOpRef<ModuleOp> scheduled = task_ir::takeStraightProgram(function);
    module.getBody()->clear();
    module.getBody()->getOperations().splice(module.getBody()->end(),
                                             scheduled->getBody()->getOperations());
  }
};

struct CompleteSchedulesPass
    : partita::impl::CompleteSchedulesPassBase<CompleteSchedulesPass> {
  void runOnOperation() override {
    schedule::Pipeline pipeline = task_ir::pipelineOf(getOperation());
    // Numbers that lead nowhere are for the check to name.
    if (auto ok = schedule::checkRanges(pipeline); !ok) {
      getOperation().emitError(ok.error().message);
      return signalPassFailure();
    }
    schedule::complete(pipeline);
    task_ir::setSchedules(getOperation(), pipeline);
  }
};
} // namespace
