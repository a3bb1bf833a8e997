// A conversion to the layout that its operand was just converted to goes; other epochs stay.
// RUN: partita-opt %s --canonicalize | FileCheck %s
// Equal conversions merge, conversions of different epochs do not, unused ones go.
// RUN: partita-opt %s --cse | FileCheck %s --check-prefix=CSE

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // CHECK-LABEL: @f
  // CSE-LABEL: @f
  func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    // CHECK: %[[A:.*]] = dist.reshard
    // CHECK-NEXT: %[[B:.*]] = dist.reshard %[[A]] to {{.*}} epoch 1
    // CSE: %[[A:.*]] = dist.reshard
    // CSE-NEXT: %[[B:.*]] = dist.reshard %[[A]] to {{.*}} : tensor
    // CSE-NEXT: %[[C:.*]] = dist.reshard %[[A]] to {{.*}} epoch 1
    %0 = dist.reshard %x to <#mesh, [{4: tp}]> : tensor<4xf32>
    %1 = dist.reshard %0 to <#mesh, [{4: tp}]> : tensor<4xf32>
    %2 = dist.reshard %0 to <#mesh, [{4: tp}]> epoch 1 : tensor<4xf32>
    %3 = dist.reshard %0 to <#mesh, [{4: tp}]> : tensor<4xf32>
    %4 = dist.reshard %x to <#mesh, [{4}]> : tensor<4xf32>
    // CHECK: return %[[A]], %[[B]], %[[A]]
    // CSE: return %[[B]], %[[C]], %[[B]]
    return %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}
