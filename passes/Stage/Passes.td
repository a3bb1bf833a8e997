//===- Passes.td - From one rank's program to schedules -----*- tablegen -*-===//
#ifndef PARTITA_PASSES_STAGE_PASSES
#define PARTITA_PASSES_STAGE_PASSES

include "mlir/Pass/PassBase.td"

def SchedulePass : Pass<"partita-schedule", "::mlir::ModuleOp"> {
  let summary = "The program that runs @main once, on the ranks of its mesh";
  let description = [{
    Level L3 becomes L4: one program with one segment and one entry, whose arguments and
    results are buffers. docs/schedule.md has what else a schedule can say.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x4xf32> {graph.name = "x", dist.layout = #l}) -> (…) { … }
    ```
    After:
    ```mlir
    task.program @program ranks [0, 1] attributes {dist.mesh = #mesh} {
      task.buffer @input_0 input "x" in #l : tensor<4x4xf32>
      task.buffer @output_0 output "y" in #m : tensor<4x8xf32>
      func.func @main(%x: …) -> (…) { … }
      task.segment @request calls @main from [@input_0] to [@output_0]
      task.schedule {
        task.run @request 0
      }
    }
    ```
  }];
  let dependentDialects = ["::partita::task_ir::TaskDialect"];
}

def CompleteSchedulesPass : Pass<"partita-complete-schedules", "::mlir::ModuleOp"> {
  let summary = "Adds the waits and starts of transfers to an order of segments";
  let description = [{
    A schedule may say only which segment runs for which micro-batch when. This adds, for
    every transfer that it does not name, where each end starts it and waits for it: a
    sender after the segment that fills the buffer, a receiver as soon as its slot is
    free. The gate of L4 says whether the order allows it.

    Before:
    ```mlir
    task.schedule {
      task.run @forward 0
      task.run @forward 1
    }
    ```
    After, where @act leads from a buffer of one slot that @forward writes:
    ```mlir
    task.schedule {
      task.run @forward 0 start [@act 0]
      task.run @forward 1 wait [@act 0] start [@act 1]
      task.run wait [@act 1]
    }
    ```
  }];
}

#endif // PARTITA_PASSES_STAGE_PASSES
