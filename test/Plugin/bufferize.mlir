// Communication inside other compilers' functions: bufferized and cleaned up by stock passes.
// RUN: mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin %s --pass-pipeline='builtin.module(partita-verify-partitioned,one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},canonicalize,cse)' | FileCheck %s
#mesh = #dist.mesh<tp=4>

// CHECK-LABEL: func.func @row_parallel
// CHECK-SAME: %[[X:.*]]: memref<8x4xf32>, %[[W:.*]]: memref<4x6xf32>
func.func @row_parallel(%x: tensor<8x4xf32>, %w: tensor<4x6xf32>) -> tensor<8x6xf32> attributes {dist.mesh = #mesh} {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x6xf32>
  %clear = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x6xf32>) -> tensor<8x6xf32>
  // CHECK: linalg.matmul ins(%[[X]], %[[W]] : {{.*}}) outs(%[[PART:.*]] : memref<8x6xf32>)
  %part = linalg.matmul ins(%x, %w : tensor<8x4xf32>, tensor<4x6xf32>) outs(%clear : tensor<8x6xf32>) -> tensor<8x6xf32>
  // CHECK: %[[SUM:.*]] = memref.alloc() {{.*}}: memref<8x6xf32>
  // CHECK-NEXT: comm.all_reduce %[[PART]] into %[[SUM]] from {{.*}} : (memref<8x6xf32>, memref<8x6xf32>) -> ()
  %sum = comm.all_reduce %part from <#mesh, [{8}, {6}] partial sum {tp}> to <#mesh, [{8}, {6}]> : (tensor<8x6xf32>) -> tensor<8x6xf32>
  // The partial sum is read again, so that the reduction must not have been in place.
  // CHECK: linalg.add ins(%[[SUM]], %[[PART]]
  %twice = linalg.add ins(%sum, %part : tensor<8x6xf32>, tensor<8x6xf32>) outs(%empty : tensor<8x6xf32>) -> tensor<8x6xf32>
  return %twice : tensor<8x6xf32>
}

// Every form, and a place that is computed from the rank's coordinate.
// CHECK-LABEL: func.func @forms
func.func @forms(%x: tensor<2x3xf32> {dist.layout = #dist.layout<#mesh, [{7/8: tp}, {3}]>}, %i: tensor<5xi64>, %image: tensor<1x2xf32>, %row: memref<8xf32>) -> (tensor<8x3xf32> {dist.layout = #dist.layout<#mesh, [{7/8}, {3}]>}, tensor<2x3xf32> {dist.layout = #dist.layout<#mesh, [{7/8: tp}, {3}]>}, i64, f32, f32) attributes {dist.mesh = #mesh} {
  // CHECK: comm.all_gather %{{.*}} into %{{.*}} from
  %g = comm.all_gather %x from <#mesh, [{7/8: tp}, {3}]> to <#mesh, [{7/8}, {3}]> : (tensor<2x3xf32>) -> tensor<8x3xf32>
  // CHECK: comm.mask %{{.*}} into %{{.*}} dims [0]
  %m = comm.mask %x dims [0] with <sum> in <#mesh, [{7/8: tp}, {3}]> : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: comm.local_index %{{.*}} into %{{.*}} in
  %l = comm.local_index %i in <#mesh, [{8: tp}]> : (tensor<5xi64>) -> tensor<5xi64>
  // CHECK: comm.halo %{{.*}} into %{{.*}} from
  %h = comm.halo %image from <#mesh, [{1}, {8: tp}]> to <#dist.layout<#mesh, [{1}, {8: tp}]>, dim 1 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<1x2xf32>) -> tensor<1x4xf32>
  // CHECK: %[[PLACE:.*]] = comm.coordinate in <#mesh, [{8: tp}]>
  // CHECK: memref.load %{{.*}}[%[[PLACE]]]
  %place = comm.coordinate in <#mesh, [{8: tp}]>
  %value = memref.load %row[%place] : memref<8xf32>
  // Of one block there is the first.
  // CHECK-NOT: comm.coordinate
  %first = comm.coordinate in <#mesh, [{8}]>
  %other = memref.load %row[%first] : memref<8xf32>
  %both = arith.addf %value, %other : f32
  %zero = arith.constant 0 : index
  %index = tensor.extract %l[%zero] : tensor<5xi64>
  %pixel = tensor.extract %h[%zero, %zero] : tensor<1x4xf32>
  return %g, %m, %index, %pixel, %both : tensor<8x3xf32>, tensor<2x3xf32>, i64, f32, f32
}
