//===- Passes.td - Backward pass and optimizer --------------*- tablegen -*-===//
#ifndef PARTITA_PASSES_TRAIN_PASSES
#define PARTITA_PASSES_TRAIN_PASSES

include "mlir/Pass/PassBase.td"

def FormAttentionPass : Pass<"partita-form-attention", "::mlir::ModuleOp"> {
  let summary = "Makes one op of softmax between two products, before it is differentiated";
  let description = [{
    Looks in `@main` for a product, pointwise ops, a softmax along the last dim, and a
    product that sums over it, where nobody else reads what is between. What stands
    between product and softmax becomes one payload; a comparison of positions with
    positions is made in it. A softmax that is only just no attention stays, with a remark
    that says why. See docs/attention.md.

    Before:
    ```mlir
    %s = graph.contract %q, %k {equation = #graph.equation<"b m d, b n d -> b m n">} : …
    %t = graph.mul %s, %c : …                               // %c = 0.125
    %l = graph.where %mask, %t, %low : …                    // %low = -3.4e38
    %p = graph.softmax %l {axis = -1 : i64} : …
    %y = graph.contract %p, %v {equation = #graph.equation<"b m n, b n e -> b m e">} : …
    ```
    After:
    ```mlir
    %y, %largest, %sum = graph.attention %q, %k, %v, %mask
        {payload = #graph.payload<"select(y, x, -3.4e38)">, scale = 0.125 : f64} : …
    ```
  }];
  let options = [ListOption<"nodes", "nodes", "std::string",
                            "Globs of nodes: attentions that one of them names stay">,
                 ListOption<"inner", "inner", "std::string",
                            "Likewise, but for the node of the second product">,
                 ListOption<"parts", "parts", "std::string",
                            "Likewise, where none names the second product too">,
                 Option<"byStages", "by-stages", "bool", "false",
                        "Attentions whose ops are in several stages (dist.stage) stay">];
  let dependentDialects = ["::partita::graph::GraphDialect"];
}

def TrainPass : Pass<"partita-train", "::mlir::ModuleOp"> {
  let summary = "Makes a training step of an imported model";
  let description = [{
    States of `@main` that are only read are its parameters. The pass adds the loss that
    the specification names, the cotangents of the parameters by reverse mode
    (DifferentiableOpInterface), accumulation over micro-batches, and the update: the
    result is one function from states and a batch to states and metrics. See
    docs/training.md.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                    %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">})
        -> (tensor<4x2xf32> {graph.name = "y"}) {
      %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">} : …
      return %y
    }
    ```
    After, with mean squared error and SGD (names of nodes left out):
    ```mlir
    func.func @main(%x, %target, %w, %step)
        -> (tensor<f32> {graph.name = "loss"}, …,
            tensor<3x2xf32> {dist.state = #dist.state<"w">}, …) {
      %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">} : …
      …
      %g = graph.contract %dy, %x {dist.phase = #dist.phase<weight>,
                                   equation = #graph.equation<"b o, b i -> i o">} : …
      %next = graph.map %w, %rate, %g {dist.phase = #dist.phase<update>, graph.parameter = "w",
                                       payload = #graph.payload<"x - y * z">} : …
      return %loss, %rate, %next, %t : …
    }
    ```
  }];
  let options = [Option<"spec", "spec", "std::string", "\"\"",
                        "Specification (JSON, docs/training.md)">];
  let dependentDialects = ["::partita::graph::GraphDialect",
                           "::partita::dist::DistDialect"];
}

def EvaluatePass : Pass<"partita-evaluate", "::mlir::ModuleOp"> {
  let summary = "Makes of an imported model what gives the loss of rows that are held out";
  let description = [{
    Adds the loss that the specification names, and makes it the only result beside the
    number of labels or numbers that count. The states of `@main` are only read. An input
    `row_weights` says which rows of the batch count, so that the last rows of a file can
    fill one. See docs/training.md.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x3xf32> {graph.name = "x"},
                    %w: tensor<3x2xf32> {dist.state = #dist.state<"w" from "w">})
        -> (tensor<4x2xf32> {graph.name = "y"}) {
      %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">} : …
      return %y
    }
    ```
    After, with mean squared error:
    ```mlir
    func.func @main(%x, %target, %weights: tensor<4xf32> {graph.name = "row_weights"}, %w)
        -> (tensor<f32> {graph.name = "loss"}, tensor<f32> {graph.name = "counted"}) {
      …
      %loss = graph.div %total, %most : …
      return %loss, %counted : …
    }
    ```
  }];
  let options = [Option<"spec", "spec", "std::string", "\"\"",
                        "Specification (JSON, docs/training.md)">];
  let dependentDialects = ["::partita::graph::GraphDialect",
                           "::partita::dist::DistDialect"];
}

def MarkRecomputePass : Pass<"partita-mark-recompute", "::mlir::ModuleOp"> {
  let summary = "Marks what the backward pass of a training step computes again";
  let description = [{
    Gives forward ops that the specification's `recompute` names, or that were chosen
    under a memory limit, a `dist.recompute`, as far as what is behind the forward pass
    reads them. See docs/training.md; the copies are made by `partita-recompute`, once
    strategies and conversions are there.
  }];
  let options = [Option<"spec", "spec", "std::string", "\"\"",
                        "Specification (JSON, docs/training.md)">];
  let dependentDialects = ["::partita::dist::DistDialect"];
}

def ExpandGradientsPass : Pass<"partita-expand-gradients", "::mlir::ModuleOp"> {
  let summary = "Replaces graph.gradient by the ops that compute it";
  let description = [{
    The function that is differentiated is inlined, and its derivatives behind it. What the
    program computes of it already is computed once after CSE.

    Before:
    ```mlir
    func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = graph.mul %x, %x : …
      return %y
    }
    …
    %dx = graph.gradient @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
    ```
    After:
    ```mlir
    %one = graph.constant dense<1.0> : tensor<2xf32>
    %dx = graph.map %one, %x {payload = #graph.payload<"x * y + x * y">} : …
    ```
  }];
  let dependentDialects = ["::partita::graph::GraphDialect",
                           "::partita::dist::DistDialect"];
}

def VerifyTrainedPass : Pass<"partita-verify-trained", "::mlir::ModuleOp"> {
  let summary = "Gate of level L1: one function from states and a batch to states";
  let description = [{
    Every state that `@main` takes it also gives, but for those that are only read; every
    trained one is updated; results that are no states come before those that are. The
    phases of ops are in order: nothing forward depends on something backward, nothing
    backward on an update.
  }];
}

#endif // PARTITA_PASSES_TRAIN_PASSES
