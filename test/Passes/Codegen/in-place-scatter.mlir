// Rows that are scattered into a state are written where it lies, and nothing else is: no
// copy, and a kernel whose place for the old is that for the new. A state that is read
// behind the write as it was before stays until then.
// RUN: split-file %s %t
// RUN: partita-opt %t/write.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-schedule --partita-verify-scheduled --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=WRITE
// RUN: partita-opt %t/kept.mlir --partita-shard="mesh=dp=2 mode=data-parallel" --partita-insert-reshards --partita-partition --partita-schedule --partita-verify-scheduled --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=KEPT

// WRITE-NOT: task copy
// WRITE: task kernel @kernel_{{[0-9]+}} ([[S:b[0-9]+]], {{.*}}[[S]], {{.*}}) // written
// WRITE-NOT: task copy
// WRITE: task kernel {{.*}} ([[S]], {{b[0-9]+}}) // read

// KEPT: task kernel {{.*}} ([[S:b[0-9]+]], {{b[0-9]+, b[0-9]+}}, [[NEW:b[0-9]+]], {{.*}}) // written
// KEPT: task kernel {{.*}} ([[NEW]], [[S]], {{b[0-9]+}}) // read
// KEPT: task copy ([[NEW]], [[S]])

//--- write.mlir
func.func @main(%cache: tensor<2x6x4xf32> {graph.name = "past", dist.state = #dist.state<"cache">},
                %at: tensor<2x2x4xi64> {graph.name = "at"}, %rows: tensor<2x2x4xf32> {graph.name = "rows"})
    -> (tensor<2x4xf32> {graph.name = "sum"}, tensor<2x6x4xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %new = graph.scatter_elements %cache, %at, %rows {axis = 1 : i64} : (tensor<2x6x4xf32>, tensor<2x2x4xi64>, tensor<2x2x4xf32>) -> tensor<2x6x4xf32> loc("written")
  %sum = graph.reduce %new {axes = array<i64: 1>, kind = #graph.reduce<sum>} : (tensor<2x6x4xf32>) -> tensor<2x4xf32> loc("read")
  return %sum, %new : tensor<2x4xf32>, tensor<2x6x4xf32>
}
//--- kept.mlir
func.func @main(%cache: tensor<2x6x4xf32> {graph.name = "past", dist.state = #dist.state<"cache">},
                %at: tensor<2x2x4xi64> {graph.name = "at"}, %rows: tensor<2x2x4xf32> {graph.name = "rows"})
    -> (tensor<2x6x4xf32> {graph.name = "both"}, tensor<2x6x4xf32> {graph.name = "present", dist.state = #dist.state<"cache">}) {
  %new = graph.scatter_elements %cache, %at, %rows {axis = 1 : i64} : (tensor<2x6x4xf32>, tensor<2x2x4xi64>, tensor<2x2x4xf32>) -> tensor<2x6x4xf32> loc("written")
  %both = graph.mul %new, %cache : (tensor<2x6x4xf32>, tensor<2x6x4xf32>) -> tensor<2x6x4xf32> loc("read")
  return %both, %new : tensor<2x6x4xf32>, tensor<2x6x4xf32>
}
