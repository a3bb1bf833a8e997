// Updates of a scale and a bias wait for one another's sums, and not for the next product: the
// sums are one kernel, which reads the cotangent once.
// RUN: split-file %s %t
// RUN: partita-opt %t/model.mlir --partita-train=spec=%t/spec.json --partita-simplify --partita-verify-trained -o %t/step.mlir
// RUN: FileCheck %s --input-file %t/step.mlir
// RUN: partita-opt %t/step.mlir --partita-shard="mesh=dp=1 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=KERNEL

// CHECK: graph.reduce {{.*}}dist.phase = #dist.phase<weight>
// CHECK-NOT: #dist.phase<update>
// CHECK: graph.reduce {{.*}}dist.phase = #dist.phase<weight>
// CHECK-COUNT-2: dist.phase = #dist.phase<update>, graph.parameter = "{{scale|bias}}", payload = #graph.payload<"0.9 * x + y">
// CHECK: graph.contract {{.*}}dist.phase = #dist.phase<weight>

// KERNEL:      domain [1024, 1024] row dims 1
// KERNEL:      = graph.reduce {
// KERNEL-NEXT: = graph.reduce {
// KERNEL-NEXT: store
// KERNEL-NEXT: store

//--- spec.json
{"loss": {"kind": "mse", "of": "y", "labels": "target"},
 "optimizer": {"kind": "sgd", "lr": 0.5, "momentum": 0.9}}

//--- model.mlir
func.func @main(%x: tensor<1024x16xf32> {graph.name = "x"},
                %w: tensor<16x1024xf32> {dist.state = #dist.state<"w" from "w">},
                %scale: tensor<1024xf32> {dist.state = #dist.state<"scale" from "scale">},
                %bias: tensor<1024xf32> {dist.state = #dist.state<"bias" from "bias">})
    -> (tensor<1024x1024xf32> {graph.name = "y"}) {
  %h = graph.contract %x, %w {equation = #graph.equation<"b i, i o -> b o">}
       : (tensor<1024x16xf32>, tensor<16x1024xf32>) -> tensor<1024x1024xf32> loc("fc")
  %s = graph.mul %h, %scale : (tensor<1024x1024xf32>, tensor<1024xf32>) -> tensor<1024x1024xf32> loc("norm")
  %y = graph.add %s, %bias : (tensor<1024x1024xf32>, tensor<1024xf32>) -> tensor<1024x1024xf32> loc("norm")
  return %y : tensor<1024x1024xf32>
}
