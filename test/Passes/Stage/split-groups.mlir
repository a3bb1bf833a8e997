// Collectives over several axes become several, for few groups of ranks.
// RUN: partita-opt %s --partita-split-collectives="most-groups=2" --partita-verify-partitioned 2>&1 | FileCheck %s
// CHECK: remark: --comm-reuse: 3 groups of ranks became 2; 4 collectives over several axes are one for each part of them
// RUN: partita-opt %s --partita-split-collectives="most-groups=3" 2>&1 | FileCheck %s --check-prefix=STAY
// STAY-NOT: remark
// RUN: not partita-opt %s --partita-split-collectives="most-groups=1" 2>&1 | FileCheck %s --check-prefix=FEW
// FEW: error: --comm-reuse 1: the program has 2 groups of ranks: {a, b}, {c}
#mesh = #dist.mesh<a=2, b=2, c=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}] partial sum {a, b, c}>}, %y: tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}] partial sum {a, b}>}, %z: tensor<8xf32> {dist.layout = #dist.layout<#mesh, [{16: c}]>}, %w: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{16: a, b, c}]>}, %n: tensor<16xbf16> {dist.layout = #dist.layout<#mesh, [{16}] partial sum {a, b, c}>})
      -> (tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}]>}, tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}]>}, tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}]>}, tensor<16xf32> {dist.layout = #dist.layout<#mesh, [{16}]>}, tensor<16xbf16> {dist.layout = #dist.layout<#mesh, [{16}]>}, tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{16: a, b, c}]>}) {
    // A pair and what is left, as others have both.
    // CHECK-NEXT: comm.all_reduce %arg0 {{.*}} partial sum {a, b, c}> to {{.*}} partial sum {a, b}>
    // CHECK-NEXT: comm.all_reduce {{.*}} partial sum {a, b}> to {{.*}} [{16}]>
    %0 = comm.all_reduce %x from <#mesh, [{16}] partial sum {a, b, c}> to <#mesh, [{16}]> : (tensor<16xf32>) -> tensor<16xf32>
    // CHECK-NEXT: comm.all_reduce %arg1 {{.*}} partial sum {a, b}> to {{.*}} [{16}]>
    %1 = comm.all_reduce %y from <#mesh, [{16}] partial sum {a, b}> to <#mesh, [{16}]> : (tensor<16xf32>) -> tensor<16xf32>
    // CHECK-NEXT: comm.all_gather %arg2
    %2 = comm.all_gather %z from <#mesh, [{16: c}]> to <#mesh, [{16}]> : (tensor<8xf32>) -> tensor<16xf32>
    // The minor axis first.
    // CHECK-NEXT: comm.all_gather %arg3 {{.*}} [{16: a, b, c}]> to {{.*}} [{16: a, b}]>
    // CHECK-NEXT: comm.all_gather {{.*}} [{16: a, b}]> to {{.*}} [{16}]>
    %3 = comm.all_gather %w from <#mesh, [{16: a, b, c}]> to <#mesh, [{16}]> : (tensor<2xf32>) -> tensor<16xf32>
    // CHECK-NEXT: graph.cast %arg4 {{.*}}to = f32
    // CHECK-NEXT: comm.all_reduce {{.*}} -> tensor<16xf32>
    // CHECK-NEXT: comm.all_reduce {{.*}} -> tensor<16xf32>
    // CHECK-NEXT: graph.cast {{.*}}to = bf16
    %4 = comm.all_reduce %n from <#mesh, [{16}] partial sum {a, b, c}> to <#mesh, [{16}]> : (tensor<16xbf16>) -> tensor<16xbf16>
    // The major axes first.
    // CHECK-NEXT: comm.reduce_scatter %arg0 {{.*}} to {{.*}} [{16: a, b}] partial sum {c}>
    // CHECK-NEXT: comm.reduce_scatter {{.*}} to {{.*}} [{16: a, b, c}]>
    %5 = comm.reduce_scatter %x from <#mesh, [{16}] partial sum {a, b, c}> to <#mesh, [{16: a, b, c}]> : (tensor<16xf32>) -> tensor<2xf32>
    return %0, %1, %2, %3, %4, %5 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xbf16>, tensor<2xf32>
  }
}
