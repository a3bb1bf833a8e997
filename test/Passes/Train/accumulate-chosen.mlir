// A number of micro-batches that was chosen makes one mean of a batch: sums of the losses
// and of the labels that count go through the loop, and are divided behind it. A sum over
// the batch is one of sums.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/mean.json --partita-simplify --partita-verify-trained | FileCheck %s
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/sum.json --partita-simplify --partita-verify-trained | FileCheck %s --check-prefix=SUM
// Where the specification gives the number, nothing is chosen.
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/given.json --partita-simplify | FileCheck %s --check-prefix=GIVEN

// CHECK: func.func private @micro_batch(%[[LOSS:[a-z0-9]+]]: tensor<f32>, %{{.*}}: tensor<4x2xf32>{{.*}}, %[[COUNTED:[a-z0-9]+]]: tensor<f32>,
// CHECK: graph.add %[[COUNTED]], %{{[0-9a-z_]+}} :
// CHECK: %[[STEP:.*]]:3 = graph.repeat @micro_batch trips 3
// CHECK-DAG: graph.div %[[STEP]]#0, %[[STEP]]#2
// CHECK-DAG: graph.div %[[STEP]]#1, %[[STEP]]#2
// CHECK-NOT: graph.accumulation

// SUM: %[[STEP:.*]]:2 = graph.repeat @micro_batch trips 3
// SUM-NOT: 0.333
// SUM: return %[[STEP]]#0

// GIVEN: graph.repeat @micro_batch trips 2

//--- mean.json
{"loss": {"kind": "nll", "of": "y", "labels": "t", "ignore_index": -1}, "optimizer": {"kind": "sgd"},
 "accumulation": "auto"}
//--- sum.json
{"loss": {"kind": "nll", "of": "y", "labels": "t", "ignore_index": -1, "reduction": "sum"},
 "optimizer": {"kind": "sgd"}, "accumulation": "auto"}
//--- given.json
{"loss": {"kind": "nll", "of": "y", "labels": "t", "ignore_index": -1}, "optimizer": {"kind": "sgd"},
 "accumulation": 2}

//--- model.mlir
module attributes {graph.accumulation = 3 : i64} {
  func.func @main(%x: tensor<4x4xf32> {graph.name = "x"},
                  %w: tensor<4x2xf32> {dist.state = #dist.state<"w" from "w">})
      -> (tensor<4x2xf32> {graph.name = "y"}) {
    %y = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
         : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32> loc("fc")
    return %y : tensor<4x2xf32>
  }
}
