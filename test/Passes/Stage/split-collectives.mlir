// RUN: rm -rf %t && mkdir %t && echo '{"device": {"name": "core", "peak": {"f32": 1e12}, "memory": "16GiB", "memory_bandwidth": 1e11}, "levels": [{"name": "host", "size": 4, "bandwidth": 3e11, "latency": 1e-9}, {"name": "network", "size": 2, "bandwidth": 1e9, "latency": 1e-9}], "host": {"memory": "64GiB", "bandwidth": 26e9}}' > %t/hosts.json
// RUN: partita-opt %s --partita-split-collectives="cluster=%t/hosts.json" 2>&1 | FileCheck %s
// CHECK: remark: hierarchical collectives: 5 go level by level, {{[0-9.]+}} ms in place of
// RUN: partita-opt %s --partita-split-collectives="most-groups=2" 2>&1 | FileCheck %s --check-prefix=AXES
// AXES: remark: --comm-reuse: 3 groups of ranks became 2; 1 collective over several axes is one for each part of them
// RUN: not partita-opt %s --partita-split-collectives="most-groups=1" 2>&1 | FileCheck %s --check-prefix=FEW
// FEW: error: --comm-reuse 1: the program has 2 groups of ranks: {dp}, {tp}
// RUN: sed 's/"size": 4/"size": 3/' %t/hosts.json > %t/six.json && not partita-opt %s --partita-split-collectives="cluster=%t/six.json" 2>&1 | FileCheck %s --check-prefix=SIX
// SIX: error: the mesh dp=4,tp=2 has 8 ranks, the cluster 6 devices
#mesh = #dist.mesh<dp=4, tp=2>
module attributes {dist.mesh = #mesh} {
  // Ranks of a host are dp:(2)2 and tp.
  // CHECK-LABEL: func.func @main
  func.func @main(%a: tensor<8x6xf32>, %b: tensor<12xf32>, %c: tensor<8x6xf32>, %d: tensor<2x6xf32>, %e: tensor<8x6xbf16>, %f: tensor<5xf32>)
      -> (tensor<8x6xf32>, tensor<12xf32>, tensor<2x6xf32>, tensor<8x6xf32>, tensor<8x6xbf16>, tensor<5xf32>) {
    // CHECK: comm.reduce_scatter %arg0 {{.*}} [{8}, {6}] partial sum {dp}> to {{.*}} [{8: dp:(2)2}, {6}] partial sum {dp:(1)2}>
    // CHECK-NEXT: comm.all_reduce {{.*}} partial sum {dp:(1)2}> to {{.*}} [{8: dp:(2)2}, {6}]>
    // CHECK-NEXT: comm.all_gather {{.*}} [{8: dp:(2)2}, {6}]> to {{.*}} [{8}, {6}]>
    %0 = comm.all_reduce %a from <#mesh, [{8}, {6} ] partial sum {dp}> to <#mesh, [{8}, {6} ]> : (tensor<8x6xf32>) -> tensor<8x6xf32>
    // CHECK-NEXT: comm.reduce_scatter %arg1 {{.*}} partial sum {dp, tp}> to {{.*}} [{12: dp:(2)2, tp}] partial sum {dp:(1)2}>
    // AXES: comm.all_reduce %arg1 {{.*}} partial sum {dp, tp}> to {{.*}} partial sum {dp}>
    // AXES-NEXT: comm.all_reduce {{.*}} partial sum {dp}> to {{.*}} [{12}]>
    // CHECK-NEXT: comm.all_reduce
    // CHECK-NEXT: comm.all_gather
    %1 = comm.all_reduce %b from <#mesh, [{12} ] partial sum {dp, tp}> to <#mesh, [{12} ]> : (tensor<12xf32>) -> tensor<12xf32>
    // CHECK-NEXT: comm.reduce_scatter %arg2 {{.*}} -> tensor<4x6xf32>
    // CHECK-NEXT: comm.reduce_scatter {{.*}} -> tensor<2x6xf32>
    %2 = comm.reduce_scatter %c from <#mesh, [{8}, {6} ] partial sum {dp}> to <#mesh, [{8: dp}, {6} ]> : (tensor<8x6xf32>) -> tensor<2x6xf32>
    // Across first.
    // CHECK-NEXT: comm.all_gather %arg3 {{.*}} -> tensor<4x6xf32>
    // CHECK-NEXT: comm.all_gather {{.*}} -> tensor<8x6xf32>
    %3 = comm.all_gather %d from <#mesh, [{8: dp}, {6} ]> to <#mesh, [{8}, {6} ]> : (tensor<2x6xf32>) -> tensor<8x6xf32>
    // Sums of 16 bits are of f32 up to the last one.
    // CHECK-NEXT: graph.cast %arg4 {{.*}}pass sum(0) {dp}>{{.*}}to = f32
    // CHECK-NEXT: comm.reduce_scatter {{.*}} : (tensor<8x6xf32>) -> tensor<4x6xf32>
    // CHECK-NEXT: comm.all_reduce {{.*}} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    // CHECK-NEXT: graph.cast {{.*}}to = bf16
    // CHECK-NEXT: comm.all_gather {{.*}} : (tensor<4x6xbf16>) -> tensor<8x6xbf16>
    %4 = comm.all_reduce %e from <#mesh, [{8}, {6} ] partial sum {dp}> to <#mesh, [{8}, {6} ]> : (tensor<8x6xbf16>) -> tensor<8x6xbf16>
    // 5 elements are no 2 parts.
    // CHECK-NEXT: comm.all_reduce %arg5
    %5 = comm.all_reduce %f from <#mesh, [{5} ] partial sum {dp}> to <#mesh, [{5} ]> : (tensor<5xf32>) -> tensor<5xf32>
    return %0, %1, %2, %3, %4, %5 : tensor<8x6xf32>, tensor<12xf32>, tensor<2x6xf32>, tensor<8x6xf32>, tensor<8x6xbf16>, tensor<5xf32>
  }  // Ranks of one host.
  // CHECK-LABEL: func.func @near
  func.func @near(%a: tensor<8xf32>) -> tensor<8xf32> {
    // CHECK-NEXT: comm.all_reduce %arg0
    %0 = comm.all_reduce %a from <#mesh, [{8} ] partial sum {tp}> to <#mesh, [{8} ]> : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
