// What becomes of a value: its conversions, who shares them, and its last reader.
// RUN: partita-opt %s --partita-insert-reshards="explain=fc" -o /dev/null 2>&1 | FileCheck %s
// RUN: partita-opt %s --partita-insert-reshards="explain=w" -o /dev/null 2>&1 | FileCheck %s --check-prefix=WEIGHT
// RUN: partita-opt %s --partita-insert-reshards="explain=h*" -o /dev/null 2>&1 | FileCheck %s --check-prefix=HIDDEN

// CHECK: remark: the value 'hidden' is made as [{8}, {6}] partial sum {tp}, which no op reads; as [{8: tp}, {6}] (reduce-scatter, 96 B received), read by 'relu' and 'neg', last by 'neg'; as [{8}, {6}] (all-gather, 96 B received), read by 'softmax'
// WEIGHT: remark: 'w' is read as [{4: tp}, {6}] by 'fc'
// HIDDEN: remark: the value 'hidden' is made as
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<8x4xf32> {dist.layout = #dist.layout<#mesh, [{8}, {4: tp}]>}) -> (tensor<8x6xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}, {6}]>}, tensor<8x6xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}, {6}]>}, tensor<8x6xf32> {dist.layout = #dist.layout<#mesh, [{8}, {6}]>}) {
    %w = graph.weight "w" : tensor<4x6xf32> loc("w")
    %h = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>} : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> loc("fc"("hidden"))
    %r = graph.relu %h {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("relu")
    %n = graph.neg %h {dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("neg")
    %s = graph.softmax %h {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<8x6xf32>) -> tensor<8x6xf32> loc("softmax")
    return %r, %n, %s : tensor<8x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>
  }
}
