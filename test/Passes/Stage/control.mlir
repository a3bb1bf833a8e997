// Loops are loops of the table: rows in and out (aligned ones in place, others copied), a
// reduction in every trip, loops in loops, a number of trips from data; and parts that a
// bool skips.
// DEFINE: %{inputs} = --input x=%t.inputs/x.npy --input w=%t.inputs/w.npy --input h=%t.inputs/h.npy --input n=%t.inputs/n.npy --input flag=%t.inputs/flag.npy
// RUN: partita-opt %s --partita-verify-scheduled -o %t.mlir
// RUN: FileCheck %s --input-file %t.mlir
// RUN: rm -rf %t.bundle %t.plain
// RUN: partita-opt %t.mlir --partita-check-bundle="keep=%t.bundle compare=false repeat=0" -o /dev/null
// RUN: %python %S/Inputs/run_control.py %t.bundle %t.inputs
// RUN: partita-opt %t.mlir --partita-check-bundle="keep=%t.plain target=plain compare=false repeat=0" -o /dev/null
// RUN: %python %S/Inputs/run_control.py %t.plain %t.inputs
// RUN: partita run %t.bundle --transport mpi %{inputs} --outputs-dir %t.mpi --repeat 2
// RUN: partita run %t.bundle %{inputs} --outputs-dir %t.local --repeat 2
// RUN: diff -r %t.mpi %t.local

// Twice the layers are not twice the tasks.
// RUN: partita-opt %t.mlir --partita-lower-kernels=print=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=TASKS
// TASKS: repeat
// TASKS: repeat
// TASKS: all-reduce
// TASKS-NOT: all-reduce
// TASKS: skip

// CHECK: task.repeat @step trips 3 carried(%{{.*}}) scanned(%{{.*}}) with(%{{.*}}) : (
// CHECK: task.repeat @rows trips 2 carried(
// CHECK: task.repeat @more trips 5 count %{{.*}} carried(
// CHECK: task.if %{{.*}} then @more else @less(
// CHECK: task.keep %{{.*}} count %{{.*}} along 0 in

#mesh = #dist.mesh<tp=2>
#one = #dist.layout<#mesh, []>
#rep = #dist.layout<#mesh, [{2}, {8}]>
#col = #dist.layout<#mesh, [{2}, {8: tp}]>
#own = #dist.layout<#mesh, [{8: tp}, {8}]>
#xs = #dist.layout<#mesh, [{3}, {2}, {8: tp}]>
#xss = #dist.layout<#mesh, [{2}, {3}, {2}, {8: tp}]>
#hs = #dist.layout<#mesh, [{3}, {2}, {8}]>
#hss = #dist.layout<#mesh, [{2}, {3}, {2}, {8}]>
#s0 = #dist.strategy<#mesh, {}>
#sk = #dist.strategy<#mesh, {k: tp}>
#matmul = #dist.rule<"m k, k n -> m n {m=2, k=8 sum, n=8} linear sum(0), sum(1)">
#add = #dist.rule<"a b, a b -> a b {a=2, b=8} linear sum(0, 1), max(0), max(1), min(0), min(1)">
#adds = #dist.rule<"a b,  -> a b {a=2, b=8} linear sum(0, 1), max(0), max(1), min(0), min(1)">
#subs = #dist.rule<"a b,  -> a b {a=2, b=8} linear sum(0, 1), max(0), min(0)">
#tanh = #dist.rule<"a b -> a b {a=2, b=8} linear max(0), min(0)">

module {
  task.program @program ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #xss : tensor<2x3x2x4xf32>
    task.buffer @w input "w" in #own : tensor<4x8xf32>
    task.buffer @h input "h" in #rep : tensor<2x8xf32>
    task.buffer @n input "n" in #one : tensor<i64>
    task.buffer @flag input "flag" in #one : tensor<i1>
    task.buffer @all output "all" in #hss : tensor<2x3x2x8xf32>
    task.buffer @last output "last" in #rep : tensor<2x8xf32>
    task.buffer @counted output "counted" in #rep : tensor<2x8xf32>
    task.buffer @either output "either" in #rep : tensor<2x8xf32>
    task.buffer @kept output "kept" in #rep : tensor<2x8xf32>
    task.buffer @swapped output "swapped" in #rep : tensor<2x8xf32>

    // tanh(h + x·w)
    func.func @step(%h: tensor<2x8xf32> {dist.layout = #rep}, %x: tensor<2x4xf32> {dist.layout = #col}, %w: tensor<4x8xf32> {dist.layout = #own}) -> (tensor<2x8xf32> {dist.layout = #rep}, tensor<2x8xf32> {dist.layout = #rep}) {
      %p = graph.contract %x, %w {dist.rule = #matmul, dist.strategy = #sk, equation = #graph.equation<"m k, k n -> m n">} : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
      %a = task.start : !task.handle<tensor<2x8xf32>> {
        %r = comm.all_reduce %p from <#mesh, [{2}, {8}] partial sum {tp}> to <#mesh, [{2}, {8}]> : (tensor<2x8xf32>) -> tensor<2x8xf32>
        task.yield %r : tensor<2x8xf32>
      }
      %z = task.wait %a : !task.handle<tensor<2x8xf32>> -> tensor<2x8xf32>
      %s = graph.add %h, %z {dist.rule = #add, dist.strategy = #s0} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
      %t = graph.tanh %s {dist.rule = #tanh, dist.strategy = #s0} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      return %t, %t : tensor<2x8xf32>, tensor<2x8xf32>
    }
    func.func @rows(%h: tensor<2x8xf32> {dist.layout = #rep}, %x: tensor<3x2x4xf32> {dist.layout = #xs}, %w: tensor<4x8xf32> {dist.layout = #own}) -> (tensor<2x8xf32> {dist.layout = #rep}, tensor<3x2x8xf32> {dist.layout = #hs}) {
      %r:2 = task.repeat @step trips 3 carried(%h) scanned(%x) with(%w) : (tensor<2x8xf32>, tensor<3x2x4xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<3x2x8xf32>)
      return %r#0, %r#1 : tensor<2x8xf32>, tensor<3x2x8xf32>
    }
    func.func @more(%h: tensor<2x8xf32> {dist.layout = #rep}) -> (tensor<2x8xf32> {dist.layout = #rep}) {
      %c = graph.constant {dist.layout = #one} dense<0.5> : tensor<f32>
      %s = graph.add %h, %c {dist.rule = #adds, dist.strategy = #s0} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
      return %s : tensor<2x8xf32>
    }
    func.func @less(%h: tensor<2x8xf32> {dist.layout = #rep}) -> (tensor<2x8xf32> {dist.layout = #rep}) {
      %c = graph.constant {dist.layout = #one} dense<0.25> : tensor<f32>
      %s = graph.sub %h, %c {dist.rule = #subs, dist.strategy = #s0} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
      return %s : tensor<2x8xf32>
    }
    // Each becomes what the other was, and one of them grows.
    func.func @swap(%a: tensor<2x8xf32> {dist.layout = #rep}, %b: tensor<2x8xf32> {dist.layout = #rep}) -> (tensor<2x8xf32> {dist.layout = #rep}, tensor<2x8xf32> {dist.layout = #rep}) {
      %s = graph.add %a, %b {dist.rule = #add, dist.strategy = #s0} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
      return %b, %s : tensor<2x8xf32>, tensor<2x8xf32>
    }
    func.func @main(%x: tensor<2x3x2x4xf32> {dist.layout = #xss}, %w: tensor<4x8xf32> {dist.layout = #own}, %h: tensor<2x8xf32> {dist.layout = #rep}, %n: tensor<i64> {dist.layout = #one}, %flag: tensor<i1> {dist.layout = #one}) -> (
        tensor<2x3x2x8xf32> {dist.layout = #hss}, tensor<2x8xf32> {dist.layout = #rep}, tensor<2x8xf32> {dist.layout = #rep},
        tensor<2x8xf32> {dist.layout = #rep}, tensor<2x8xf32> {dist.layout = #rep}, tensor<2x8xf32> {dist.layout = #rep}) {
      %r:2 = task.repeat @rows trips 2 carried(%h) scanned(%x) with(%w) : (tensor<2x8xf32>, tensor<2x3x2x4xf32>, tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<2x3x2x8xf32>)
      %c = task.repeat @more trips 5 count %n carried(%h) : (tensor<i64>, tensor<2x8xf32>) -> tensor<2x8xf32>
      %e = task.if %flag then @more else @less(%h) : (tensor<i1>, tensor<2x8xf32>) -> tensor<2x8xf32>
      %f = task.if %flag then @more(%e) : (tensor<i1>, tensor<2x8xf32>) -> tensor<2x8xf32>
      %k = task.keep %h count %n along 0 in #rep : tensor<2x8xf32>, tensor<i64>
      %s:2 = task.repeat @swap trips 4 carried(%h, %f) : (tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>)
      return %r#1, %r#0, %c, %f, %k, %s#0 : tensor<2x3x2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>
    }
    task.segment @request once calls @main from [@x, @w, @h, @n, @flag] to [@all, @last, @counted, @either, @kept, @swapped]
    task.schedule {
      task.run @request 0
    }
  }
  func.func @reference(%x: tensor<2x3x2x8xf32> {graph.name = "x"}, %w: tensor<8x8xf32> {graph.name = "w"}, %h: tensor<2x8xf32> {graph.name = "h"}, %n: tensor<i64> {graph.name = "n"}, %flag: tensor<i1> {graph.name = "flag"}) {
    return
  }
}
