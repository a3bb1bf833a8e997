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

def CutStepPass : Pass<"partita-cut-step", "::mlir::ModuleOp"> {
  let summary = "Cuts a stage's planned step into what its schedule runs";
  let description = [{
    A step of level L2 whose @main runs a loop over micro-batches becomes functions: what
    stands before the loop, a trip's forward and backward ops (and those of weights, if a
    schedule parts them), what stands behind the loop. What one makes and another reads has
    a buffer, named by `task.buffer` on arguments and results; what @main takes from or
    gives to other stages for all micro-batches becomes the part of one. What stands
    outside of the loop is cut where it waits for other stages (`task.level`).

    Before:
    ```mlir
    func.func private @micro_batch(%sum, %x, %w) { %y = …  %g = … {dist.phase = …} return }
    func.func @main(%x, %w {dist.state = …}) { %s = graph.repeat @micro_batch trips 4 …  %n = … }
    ```
    After:
    ```mlir
    func.func @begin() -> (… {task.buffer = "carried0"}) attributes {task.once = 0}
    func.func @forward(%x {task.buffer = "argument0"}, …) -> (… {task.buffer = "kept0"})
        attributes {dist.trips = 4}
    func.func @backward(…) attributes {dist.trips = 4}
    func.func @end(…) attributes {task.once = 1000}
    ```
  }];
  let options = [Option<"partsWeights", "part-weights", "bool", "false",
                        "Gradients of weights are a segment of their own">];
}

def SplitCollectivesPass : Pass<"partita-split-collectives", "::mlir::ModuleOp"> {
  let summary = "Writes a collective as several, over the levels of a cluster or by parts of axes";
  let description = [{
    Of one rank's program, level L3. With a cluster an all-reduce, a reduce-scatter or an
    all-gather whose ranks are in several units of a level works within these and across
    them with what is left, where its price is lower so. Sums and products of 16 bits are
    of f32 up to the last reduction and rounded once, behind it; they stay where the result
    is a part of a further sum.

    Before, on hosts of two ranks:
    ```mlir
    %1 = comm.all_reduce %0 from <#mesh, [{8}, {6} ] partial sum {dp}> to <#mesh, [{8}, {6} ]>
        : (tensor<8x6xf32>) -> tensor<8x6xf32>
    ```
    After:
    ```mlir
    %1 = comm.reduce_scatter %0 from <#mesh, [{8}, {6} ] partial sum {dp}>
                                to <#mesh, [{8: dp:(2)2}, {6} ] partial sum {dp:(1)2}>
    %2 = comm.all_reduce %1 from <#mesh, [{8: dp:(2)2}, {6} ] partial sum {dp:(1)2}>
                            to <#mesh, [{8: dp:(2)2}, {6} ]>
    %3 = comm.all_gather %2 from <#mesh, [{8: dp:(2)2}, {6} ]> to <#mesh, [{8}, {6} ]>
    ```

    With a limit of groups of ranks, collectives over several axes become one over each
    part of them, as an all-reduce over {a, b, c} one over {c} and one over {a, b}. Of the
    ways that leave few enough groups the one with the fewest collectives is taken; more
    groups are an error. A reduce-scatter begins with the major part, gathers and
    all-reduces with the minor one.
  }];
  let options = [
    Option<"cluster", "cluster", "std::string", "", "Cluster file (JSON)">,
    Option<"mostGroups", "most-groups", "int64_t", "0",
           "Groups of ranks that a program may have; 0: any number">,
  ];
  let dependentDialects = ["::partita::comm::CommDialect",
                           "::partita::graph::GraphDialect"];
  let statistics = [
    Statistic<"numSplit", "num-split", "Collectives that go level by level">,
  ];
}

def OrderCommunicationPass : Pass<"partita-order-communication", "::mlir::ModuleOp"> {
  let summary = "Puts a training step's collectives into buckets that start early";
  let description = [{
    Of every function that a segment runs and that updates parameters. What is a bucket,
    where it starts and where the ops stand that wait for it, lib/Comm decides;
    docs/communication.md says how. Each element keeps its bits.

    Before:
    ```mlir
    %1 = comm.all_reduce %0 …
    %2 = graph.map %w, %1 {dist.phase = #dist.phase<update>, …}
    %4 = comm.all_reduce %3 …
    %5 = graph.map %v, %4 {dist.phase = #dist.phase<update>, …}
    ```
    After:
    ```mlir
    %h = task.start : !task.handle<tensor<8xf32>, tensor<4xf32>> {
      %1 = comm.all_reduce %0 …
      %4 = comm.all_reduce %3 …
      task.yield %1, %4 : tensor<8xf32>, tensor<4xf32>
    }
    …
    %r:2 = task.wait %h : !task.handle<tensor<8xf32>, tensor<4xf32>> -> tensor<8xf32>, tensor<4xf32>
    %2 = graph.map %w, %r#0 {dist.phase = #dist.phase<update>, …}
    %5 = graph.map %v, %r#1 {dist.phase = #dist.phase<update>, …}
    ```
  }];
  let options = [
    Option<"inFlight", "in-flight", "int", "2", "Calls in flight where another starts">,
    Option<"autoBuckets", "auto-buckets", "int", "6", "Calls of one kind, about">,
    Option<"minBytes", "min-bytes", "int64_t", "4 << 20", "Bytes of a call, at least">,
    Option<"minSplit", "min-split", "int64_t", "64 << 10",
           "Bytes of a step of several calls, at least">,
    Option<"mostCalls", "most-calls", "int64_t", "0",
           "Distinct calls that a program may have; 0: any number">,
  ];
  let statistics = [
    Statistic<"numCollectives", "num-collectives", "Collectives of training steps">,
    Statistic<"numCalls", "num-calls", "Calls that they are">,
  ];
}

#endif // PARTITA_PASSES_STAGE_PASSES
