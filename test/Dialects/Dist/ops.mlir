// Attributes and conversions parse, print and parse again, generically and in bytecode too.
// RUN: partita-opt %s | partita-opt | FileCheck %s
// RUN: partita-opt %s --mlir-print-op-generic | partita-opt | FileCheck %s
// RUN: partita-opt %s --emit-bytecode | partita-opt | FileCheck %s
// RUN: partita-opt %s --mlir-print-local-scope | partita-opt | FileCheck %s

// CHECK: #mesh = #dist.mesh<dp=2,tp=6>
#mesh = #dist.mesh<dp=2, tp=6>
// CHECK: #rule = #dist.rule<"m k, k n -> m n {m=4, k=9 sum, n=12} linear sum(0), sum(1)">
#rule = #dist.rule<"m k, k n -> m n {m=4, k=9 sum, n=12} linear sum(0), sum(1)">
#rows = #dist.layout<#mesh, [{4: dp}, {9}]>
module attributes {dist.mesh = #mesh} {
  // CHECK: @main(%arg0: tensor<4x9xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {9}]>})
  func.func @main(%x: tensor<4x9xf32> {dist.layout = #rows}) -> tensor<4x9xf32> {
    // CHECK: dist.reshard %{{.*}} to <#mesh, [{4}, {9/12: dp, tp:(1)3}]> : tensor<4x9xf32>
    %0 = dist.reshard %x to <#mesh, [{4}, {9/12: dp, tp:(1)3}]> : tensor<4x9xf32>
    // CHECK: dist.reshard %{{.*}} to <#mesh, [{4}, {9=4+5: dp}] partial sum {tp}> epoch 1 : tensor<4x9xf32>
    %1 = dist.reshard %0 to <#mesh, [{4}, {9=4+5: dp}] partial sum {tp}> epoch 1 : tensor<4x9xf32>
    // CHECK: dist.reshard %{{.*}} to <#mesh, [{4: dp}, {9}]> : tensor<4x9xf32>
    %2 = dist.reshard %1 to #rows : tensor<4x9xf32>
    return %2 : tensor<4x9xf32>
  }
  // CHECK-LABEL: @strategies
  func.func @strategies(%x: tensor<4x9xf32>, %w: tensor<9x12xf32>) -> tensor<4x12xf32> {
    // CHECK: dist.strategy = #dist.strategy<#mesh, {m: {2: dp}*{2}, n: {2}*{6: tp}}>
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: {2: dp}*{2}, n: {2}*{6: tp}}>} : (tensor<4x9xf32>, tensor<9x12xf32>) -> tensor<4x12xf32>
    // CHECK: dist.strategy = #dist.strategy<#mesh, {a: dp} pass sum(0, 1) {tp:(2)3}>
    %1 = graph.add %0, %0 {dist.strategy = #dist.strategy<#mesh, {a: dp} pass sum(0, 1) {tp:(2)3}>} : (tensor<4x12xf32>, tensor<4x12xf32>) -> tensor<4x12xf32>
    return %1 : tensor<4x12xf32>
  }
  // CHECK-LABEL: @windows
  func.func @windows(%x: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
    // CHECK: dist.window %{{.*}} to <#dist.layout<#mesh, [{1}, {4}, {8: dp}, {8}]>, dim 2 stride 1 kernel_extent 3 low 1, fill max> : tensor<1x4x8x8xf32>
    %0 = dist.window %x to <#dist.layout<#mesh, [{1}, {4}, {8: dp}, {8}]>, dim 2 stride 1 kernel_extent 3 low 1, fill max> : tensor<1x4x8x8xf32>
    return %0 : tensor<1x4x8x8xf32>
  }
  // CHECK-LABEL: @manual
  func.func @manual(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    // CHECK: dist.manual enter %{{.*}} from <#mesh, [{4}, {6}]> to <#mesh, [{4: dp}, {6}]> : tensor<4x6xf32> -> tensor<2x6xf32>
    %0 = dist.manual enter %x from <#mesh, [{4}, {6}]> to <#mesh, [{4: dp}, {6}]> : tensor<4x6xf32> -> tensor<2x6xf32>
    // CHECK: dist.manual %{{.*}} from <#mesh, [{2}, {6}] partial max {dp}> to <#mesh, [{2}, {6}]> : tensor<2x6xf32> -> tensor<2x6xf32>
    %1 = dist.manual %0 from <#mesh, [{2}, {6}] partial max {dp}> to <#mesh, [{2}, {6}]> : tensor<2x6xf32> -> tensor<2x6xf32>
    // CHECK: dist.manual %{{.*}} from <#mesh, [{2}, {6}]> to <#mesh, [{2}, {6}]> pieces <#mesh, 0 to 1 [1 to 0 of 1, 0 to 2 of 4]> : tensor<2x6xf32> -> tensor<2x6xf32>
    %p = dist.manual %1 from <#mesh, [{2}, {6}]> to <#mesh, [{2}, {6}]> pieces <#mesh, 0 to 1 [1 to 0 of 1, 0 to 2 of 4]> : tensor<2x6xf32> -> tensor<2x6xf32>
    // CHECK: dist.manual leave %{{.*}} from <#mesh, [{4: dp}, {6}]> to <#mesh, [{4}, {6}]> : tensor<2x6xf32> -> tensor<4x6xf32>
    %2 = dist.manual leave %1 from <#mesh, [{4: dp}, {6}]> to <#mesh, [{4}, {6}]> : tensor<2x6xf32> -> tensor<4x6xf32>
    return %2 : tensor<4x6xf32>
  }
  // CHECK-LABEL: @local
  func.func @local(%x: tensor<2x9xf32>, %w: tensor<9x12xf32>) -> tensor<2x12xf32> {
    // CHECK: dist.rule = #rule, dist.strategy = #dist.strategy<#mesh, {m: dp}>
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.rule = #rule, dist.strategy = #dist.strategy<#mesh, {m: dp}>} : (tensor<2x9xf32>, tensor<9x12xf32>) -> tensor<2x12xf32>
    return %0 : tensor<2x12xf32>
  }
}
