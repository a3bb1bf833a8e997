// States last from request to request: a counter, a moving average (split by columns, one
// all-reduce), a cache into which rows are written at the counter's place, and weights that
// a step updates where a bool says so.
// RUN: partita-opt %s --partita-verify-scheduled -o %t.mlir
// RUN: FileCheck %s --input-file %t.mlir
// RUN: rm -rf %t.bundle
// RUN: partita-opt %t.mlir --partita-check-bundle="keep=%t.bundle compare=false" -o /dev/null
// RUN: %python %S/Inputs/run_states.py %t.bundle %t
// RUN: partita run %t.bundle --transport mpi --input x=%t.x.npy --input rows=%t.rows.npy --outputs-dir %t.mpi --repeat 4
// RUN: partita run %t.bundle --input x=%t.x.npy --input rows=%t.rows.npy --outputs-dir %t.local --repeat 4
// RUN: diff -r %t.mpi %t.local

// In place: one row of the cache, and the average and weights where they lie.
// RUN: partita-opt %t.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=TASKS
// TASKS: task copy (b4, b4) {  } // task.update
// TASKS: task update (b1, b4, b2) { outer: 1, extent: 4, count: 1, inner: 16 }
// TASKS: task kernel @kernel_1 (b3, b0, b3)
// TASKS: task skip (b7) { tasks: 1 }
// TASKS-NEXT: task kernel @kernel_2 (b5, b3, b5)

// CHECK: task.buffer @count state "count" in <
// CHECK: task.buffer @w state "w" init "w0" in <
// CHECK: task.buffer @staged space host in <
// CHECK: task.segment @step once if @go calls @f_step from [@w, @average] to [@w]

#mesh = #dist.mesh<tp=2>
#one = #dist.layout<#mesh, [{1}]>
#scalar = #dist.layout<#mesh, []>
#col = #dist.layout<#mesh, [{4}, {8: tp}]>
#rep = #dist.layout<#mesh, [{4}, {8}]>
#cache = #dist.layout<#mesh, [{4}, {8: tp}, {4}]>
#rows = #dist.layout<#mesh, [{1}, {8: tp}, {4}]>
#s0 = #dist.strategy<#mesh, {}>
#s1 = #dist.strategy<#mesh, {b: tp}>

module {
  task.program @program ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #col : tensor<4x4xf32>
    task.buffer @rows input "rows" space io in #rows : tensor<1x4x4xf32>
    task.buffer @count state "count" in #one : tensor<1xi64>
    task.buffer @average state "average" in #col : tensor<4x4xf32>
    task.buffer @cache state "cache" in #cache : tensor<4x4x4xf32>
    task.buffer @w state "w" init "w0" in #col : tensor<4x4xf32>
    task.buffer @go in #one : tensor<1xi1>
    task.buffer @staged space host in #col : tensor<4x4xf32>
    task.buffer @y output "y" in #rep : tensor<4x8xf32>
    task.buffer @old output "old" in #one : tensor<1xi64>
    task.buffer @all output "all" space io in #cache : tensor<4x4x4xf32>

    // The place of the rows, and whether the step happens: in the second request and behind.
    func.func @f_count(%n: tensor<1xi64> {dist.layout = #one}) -> (
        tensor<1xi64> {dist.layout = #one}, tensor<1xi64> {dist.layout = #one},
        tensor<1xi1> {dist.layout = #one}) {
      %c1 = graph.constant {dist.layout = #one} dense<1> : tensor<1xi64>
      %m = graph.add %n, %c1 {dist.rule = #dist.rule<"a, a -> a {a=1} linear sum(0, 1)">, dist.strategy = #s0} : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
      %go = graph.less %c1, %m {dist.rule = #dist.rule<"a, a -> a {a=1} linear max(1), min(1)">, dist.strategy = #s0} : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
      return %m, %n, %go : tensor<1xi64>, tensor<1xi64>, tensor<1xi1>
    }
    // average + (x − average)/2, in place.
    func.func @f_average(%a: tensor<4x4xf32> {dist.layout = #col}, %x: tensor<4x4xf32> {dist.layout = #col}) -> (tensor<4x4xf32> {dist.layout = #col}) {
      %h = graph.constant {dist.layout = #scalar} dense<0.5> : tensor<f32>
      %d = graph.sub %x, %a {dist.rule = #dist.rule<"a b, a b -> a b {a=4, b=8} linear sum(0, 1), max(0), min(0)">, dist.strategy = #s1} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      %p = graph.mul %d, %h {dist.rule = #dist.rule<"a b,  -> a b {a=4, b=8} linear sum(0), sum(1), prod(0, 1)">, dist.strategy = #s1} : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
      %r = graph.add %a, %p {dist.rule = #dist.rule<"a b, a b -> a b {a=4, b=8} linear sum(0, 1), max(0), max(1), min(0), min(1)">, dist.strategy = #s1} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      return %r : tensor<4x4xf32>
    }
    func.func @f_append(%c: tensor<4x4x4xf32> {dist.layout = #cache}, %r: tensor<1x4x4xf32> {dist.layout = #rows}, %n: tensor<1xi64> {dist.layout = #one}) -> (tensor<4x4x4xf32> {dist.layout = #cache}) {
      %u = task.update %r into %c at %n along 0 in #cache : tensor<1x4x4xf32>, tensor<4x4x4xf32>, tensor<1xi64>
      return %u : tensor<4x4x4xf32>
    }
    func.func @f_step(%w: tensor<4x4xf32> {dist.layout = #col}, %a: tensor<4x4xf32> {dist.layout = #col}) -> (tensor<4x4xf32> {dist.layout = #col}) {
      %r = graph.sub %w, %a {dist.rule = #dist.rule<"a b, a b -> a b {a=4, b=8} linear sum(0, 1), max(0), min(0)">, dist.strategy = #s1} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      return %r : tensor<4x4xf32>
    }
    // To host memory and back, in flight.
    func.func @f_offload(%w: tensor<4x4xf32> {dist.layout = #col}) -> (tensor<4x4xf32> {dist.layout = #col}) {
      %h = task.start : !task.handle<tensor<4x4xf32>> {
        %m = task.move %w to host : tensor<4x4xf32>
        task.yield %m : tensor<4x4xf32>
      }
      %r = task.wait %h : !task.handle<tensor<4x4xf32>> -> tensor<4x4xf32>
      return %r : tensor<4x4xf32>
    }
    func.func @f_show(%s: tensor<4x4xf32> {dist.layout = #col}, %c: tensor<4x4x4xf32> {dist.layout = #cache}) -> (tensor<4x8xf32> {dist.layout = #rep}, tensor<4x4x4xf32> {dist.layout = #cache}) {
      %b = task.move %s to device : tensor<4x4xf32>
      %y = comm.all_gather %b from <#mesh, [{4}, {8: tp}]> to <#mesh, [{4}, {8}]> : (tensor<4x4xf32>) -> tensor<4x8xf32>
      return %y, %c : tensor<4x8xf32>, tensor<4x4x4xf32>
    }
    task.segment @append once calls @f_append from [@cache, @rows, @count] to [@cache]
    task.segment @counting once calls @f_count from [@count] to [@count, @old, @go]
    task.segment @averaging once calls @f_average from [@average, @x] to [@average]
    task.segment @step once if @go calls @f_step from [@w, @average] to [@w]
    task.segment @offload once calls @f_offload from [@w] to [@staged]
    task.segment @show once calls @f_show from [@staged, @cache] to [@y, @all]
    task.schedule {
      task.run @append 0
      task.run @counting 0
      task.run @averaging 0
      task.run @step 0
      task.run @offload 0
      task.run @show 0
    }
  }
  func.func @reference(%x: tensor<4x8xf32> {graph.name = "x"}, %rows: tensor<1x8x4xf32> {graph.name = "rows"}) -> (tensor<4x8xf32> {graph.name = "y"}) {
    %w = graph.weight "w0" : tensor<4x8xf32>
    return %w : tensor<4x8xf32>
  }
}
