// Buckets: one call with several items, reduced, scattered and gathered, in flight while
// others run. Threads and processes give the same bytes.
// RUN: partita-opt %s --partita-verify-scheduled -o %t.mlir
// RUN: FileCheck %s --input-file %t.mlir
// RUN: rm -rf %t.bundle
// RUN: partita-opt %t.mlir --partita-check-bundle=keep=%t.bundle -o /dev/null
// RUN: partita-opt %t.mlir --partita-check-bundle=target=plain -o /dev/null
// RUN: %python -c "import numpy as np; r = np.random.default_rng(1); [np.save('%t.' + n + '.npy', r.normal(0, 1, s).astype('f')) for n, s in (('x', (2, 8)), ('y', (4, 8)), ('w', (8, 8)))]"
// RUN: partita run %t.bundle --input x=%t.x.npy --input y=%t.y.npy --input w=%t.w.npy --outputs-dir %t.local --repeat 3
// RUN: partita run %t.bundle --transport mpi --input x=%t.x.npy --input y=%t.y.npy --input w=%t.w.npy --outputs-dir %t.mpi --repeat 3
// RUN: diff -r %t.mpi %t.local

// The operands of a call are sources and targets in turn, and the wait has all of them.
// RUN: partita-opt %t.mlir --partita-lower-kernels=print=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=TASKS
// TASKS: task all-reduce ([[A:b[0-9]+]], [[A2:b[0-9]+]], [[B:b[0-9]+]], [[B2:b[0-9]+]]) {{.*}}more: [ { outer: 1, block: 32
// TASKS: task reduce-scatter (
// TASKS: task wait ([[A]], [[A2]], [[B]], [[B2]])
// TASKS: task wait (
// TASKS: task all-gather (

// CHECK: %[[H:.*]] = task.start : <tensor<2x8xf32>, tensor<4x8xf32>> {
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: task.yield %{{.*}}, %{{.*}} : tensor<2x8xf32>, tensor<4x8xf32>
// CHECK: %{{.*}}:2 = task.wait %[[H]] : <tensor<2x8xf32>, tensor<4x8xf32>> -> tensor<2x8xf32>, tensor<4x8xf32>

#mesh = #dist.mesh<tp=2>
#x = #dist.layout<#mesh, [{2}, {8: tp}]>
#y = #dist.layout<#mesh, [{4}, {8: tp}]>
#w = #dist.layout<#mesh, [{8: tp}, {8}]>
#a = #dist.layout<#mesh, [{2}, {8}]>
#b = #dist.layout<#mesh, [{4}, {8}]>
#sk = #dist.strategy<#mesh, {k: tp}>
#rx = #dist.rule<"m k, k n -> m n {m=2, k=8 sum, n=8} linear sum(0), sum(1)">
#ry = #dist.rule<"m k, k n -> m n {m=4, k=8 sum, n=8} linear sum(0), sum(1)">

module {
  task.program @program ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #x : tensor<2x4xf32>
    task.buffer @y input "y" in #y : tensor<4x4xf32>
    task.buffer @w input "w" in #w : tensor<4x8xf32>
    task.buffer @a output "a" in #a : tensor<2x8xf32>
    task.buffer @b output "b" in #b : tensor<4x8xf32>
    task.buffer @c output "c" in #a : tensor<2x8xf32>
    task.buffer @d output "d" in #b : tensor<4x8xf32>
    func.func @main(%x: tensor<2x4xf32> {dist.layout = #x}, %y: tensor<4x4xf32> {dist.layout = #y}, %w: tensor<4x8xf32> {dist.layout = #w}) -> (
        tensor<2x8xf32> {dist.layout = #a}, tensor<4x8xf32> {dist.layout = #b}, tensor<2x8xf32> {dist.layout = #a}, tensor<4x8xf32> {dist.layout = #b}) {
      %p = graph.contract %x, %w {dist.rule = #rx, dist.strategy = #sk, equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
      %q = graph.contract %y, %w {dist.rule = #ry, dist.strategy = #sk, equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      %h = task.start : !task.handle<tensor<2x8xf32>, tensor<4x8xf32>> {
        %0 = comm.all_reduce %p from <#mesh, [{2}, {8}] partial sum {tp}> to <#mesh, [{2}, {8}]> : (tensor<2x8xf32>) -> tensor<2x8xf32>
        %1 = comm.all_reduce %q from <#mesh, [{4}, {8}] partial sum {tp}> to <#mesh, [{4}, {8}]> : (tensor<4x8xf32>) -> tensor<4x8xf32>
        task.yield %0, %1 : tensor<2x8xf32>, tensor<4x8xf32>
      }
      %s = task.start : !task.handle<tensor<1x8xf32>, tensor<4x4xf32>> {
        %0 = comm.reduce_scatter %p from <#mesh, [{2}, {8}] partial sum {tp}> to <#mesh, [{2: tp}, {8}]> : (tensor<2x8xf32>) -> tensor<1x8xf32>
        %1 = comm.reduce_scatter %q from <#mesh, [{4}, {8}] partial sum {tp}> to <#mesh, [{4}, {8: tp}]> : (tensor<4x8xf32>) -> tensor<4x4xf32>
        task.yield %0, %1 : tensor<1x8xf32>, tensor<4x4xf32>
      }
      %r:2 = task.wait %h : !task.handle<tensor<2x8xf32>, tensor<4x8xf32>> -> tensor<2x8xf32>, tensor<4x8xf32>
      %t:2 = task.wait %s : !task.handle<tensor<1x8xf32>, tensor<4x4xf32>> -> tensor<1x8xf32>, tensor<4x4xf32>
      %g = task.start : !task.handle<tensor<2x8xf32>, tensor<4x8xf32>> {
        %0 = comm.all_gather %t#0 from <#mesh, [{2: tp}, {8}]> to <#mesh, [{2}, {8}]> : (tensor<1x8xf32>) -> tensor<2x8xf32>
        %1 = comm.all_gather %t#1 from <#mesh, [{4}, {8: tp}]> to <#mesh, [{4}, {8}]> : (tensor<4x4xf32>) -> tensor<4x8xf32>
        task.yield %0, %1 : tensor<2x8xf32>, tensor<4x8xf32>
      }
      %u:2 = task.wait %g : !task.handle<tensor<2x8xf32>, tensor<4x8xf32>> -> tensor<2x8xf32>, tensor<4x8xf32>
      return %r#0, %r#1, %u#0, %u#1 : tensor<2x8xf32>, tensor<4x8xf32>, tensor<2x8xf32>, tensor<4x8xf32>
    }
    task.segment @request once calls @main from [@x, @y, @w] to [@a, @b, @c, @d]
    task.schedule {
      task.run @request 0
    }
  }
  func.func @reference(%x: tensor<2x8xf32> {graph.name = "x"}, %y: tensor<4x8xf32> {graph.name = "y"}, %w: tensor<8x8xf32> {graph.name = "w"}) -> (
      tensor<2x8xf32> {graph.name = "a"}, tensor<4x8xf32> {graph.name = "b"}, tensor<2x8xf32> {graph.name = "c"}, tensor<4x8xf32> {graph.name = "d"}) {
    %p = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    %q = graph.contract %y, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    return %p, %q, %p, %q : tensor<2x8xf32>, tensor<4x8xf32>, tensor<2x8xf32>, tensor<4x8xf32>
  }
}
