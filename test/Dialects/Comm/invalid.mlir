// A collective whose types are not its layouts' local shapes is refused.
// RUN: partita-opt %s --split-input-file --verify-diagnostics

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @shape(%x: tensor<8xf32>) {
    // expected-error@+1 {{expected a result of local shape [2] for layout [{8: tp}], got 'tensor<4xf32>'}}
    %0 = comm.slice %x from <#mesh, [{8}]> to <#mesh, [{8: tp}]> : (tensor<8xf32>) -> tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @axis(%x: tensor<8xf32>) {
    // expected-error@+1 {{is not possible: no all-reduce leads from [{8}] to [{8}]: no partial axes change}}
    %0 = comm.all_reduce %x from <#mesh, [{8}]> to <#mesh, [{8}]> : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}

// -----

#here = #dist.mesh<tp=4>
#there = #dist.mesh<dp=4>
// expected-note@+1 {{the program's mesh "tp=4" is given here}}
module attributes {dist.mesh = #here} {
  func.func @mesh_0(%x: tensor<8xf32>) {
    // expected-error@+1 {{is for mesh "dp=4", the program is for "tp=4"}}
    %0 = comm.slice %x from <#there, [{8}]> to <#there, [{8: dp}]> : (tensor<8xf32>) -> tensor<2xf32>
    return
  }
}

// -----

#here = #dist.mesh<tp=4>
#there = #dist.mesh<dp=4>
module attributes {dist.mesh = #here} {
  func.func @mesh_1(%x: tensor<8xf32>) {
    // expected-error@+1 {{leads from mesh "tp=4" to mesh "dp=4"}}
    %0 = comm.slice %x from <#here, [{8}]> to <#there, [{8: dp}]> : (tensor<8xf32>) -> tensor<2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_buffer(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{expected a result of shape [6, 2] for the windows of [{8: sp}, {2}], got 'tensor<4x2xf32>'}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @halo_operand(%x: tensor<8x2xf32>) {
    // expected-error@+1 {{expected an operand of local shape [4, 2] for layout [{8: sp}, {2}], got 'tensor<8x2xf32>'}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<8x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_dim(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 2: the tensor has 2 dims}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 2 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_reach(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 0: stride 1, kernel_extent 0 and low 1 are out of range}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 0 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_none(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: there is no window}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_cut(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: window of dim 0: its positions have 2 factors instead of one}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{2: sp}*{4}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_sizes(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: dim 1 has size 2 in the source and 3 in the result}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {3}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_partial(%x: tensor<8x2xf32>) {
    // expected-error@+1 {{is inconsistent: the source and the positions have different partial axes}}
    %0 = comm.halo %x from <#mesh, [{8}, {2}] partial sum {sp}> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<8x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_layout(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{the mesh "sp=2" has no axis "tp"}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: tp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_kind(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{expected sum, max, min or prod, got mean}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill mean> : (tensor<4x2xf32>) -> tensor<6x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @halo_type(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{changes the element type}}
    %0 = comm.halo %x from <#mesh, [{8: sp}, {2}]> to <#dist.layout<#mesh, [{8: sp}, {2}]>, dim 0 stride 1 kernel_extent 3 low 1, fill sum> : (tensor<4x2xf32>) -> tensor<6x2xf16>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @dims(%x: tensor<8xi64>) {
    // expected-error@+1 {{expected the layout of one dim without partial axes, got [{8: tp}, {4}]}}
    %0 = comm.local_index %x in <#mesh, [{8: tp}, {4}]> : (tensor<8xi64>) -> tensor<8xi64>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @padding(%x: tensor<8xi64>) {
    // expected-error@+1 {{the extent 7 is not a multiple of its 4 shards}}
    %0 = comm.local_index %x in <#mesh, [{7: tp}]> : (tensor<8xi64>) -> tensor<8xi64>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @element(%x: tensor<8xf32>) {
    // expected-error@+1 {{expected integer indices, got 'tensor<8xf32>'}}
    %0 = comm.local_index %x in <#mesh, [{8: tp}]> : (tensor<8xf32>) -> tensor<8xf32>
    return
  }
}

// -----

// Each kind of step makes one kind of change.
#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_0(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{no all-gather leads from [{4}, {8}] to [{4}, {8}]: no place loses axes}}
    %0 = comm.all_gather %x from <#mesh, [{4}, {8}]> to <#mesh, [{4}, {8}]> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_1(%z: tensor<2x8xf32>) {
    // expected-error@+1 {{more than one place changes}}
    %0 = comm.all_gather %z from <#mesh, [{4: dp}, {16: tp}]> to <#mesh, [{4}, {16}]> : (tensor<2x8xf32>) -> tensor<4x16xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_2(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{the sum is over {tp}, the place gains {dp}}}
    %0 = comm.reduce_scatter %x from <#mesh, [{4}, {8}] partial sum {tp}> to <#mesh, [{4: dp}, {8}]> : (tensor<4x8xf32>) -> tensor<2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_3(%y: tensor<4x4xf32>) {
    // expected-error@+1 {{one place loses {tp}, the other gains {dp}}}
    %0 = comm.all_to_all %y from <#mesh, [{4}, {8: tp}]> to <#mesh, [{4: dp}, {8}]> : (tensor<4x4xf32>) -> tensor<2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_4(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{sum is reduced before max, which nests in it}}
    %0 = comm.all_reduce %x from <#mesh, [{4}, {8}] partial sum {dp}, max {tp}> to <#mesh, [{4}, {8}] partial max {tp}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_5(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{partial axes change}}
    %0 = comm.slice %x from <#mesh, [{4}, {8}] partial sum {tp}> to <#mesh, [{4: dp}, {8}]> : (tensor<4x8xf32>) -> tensor<2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_6(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{the global shapes differ}}
    %0 = comm.repad %x from <#mesh, [{4}, {8}]> to <#mesh, [{4}, {7/8}]> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_7(%z: tensor<2x8xf32>) {
    // expected-error@+1 {{dim 0 is split 2 ways before and 1 after}}
    %0 = comm.permute %z from <#mesh, [{4: dp}, {8}]> to <#mesh, [{4}, {8: tp}]> : (tensor<2x8xf32>) -> tensor<4x4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_8(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{the partial axes differ}}
    %0 = comm.exchange %x from <#mesh, [{4}, {8}] partial sum {tp}> to <#mesh, [{4: dp}, {8}]> : (tensor<4x8xf32>) -> tensor<2x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_9(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{expected one or more dims in ascending order}}
    %0 = comm.mask %x dims [] with <sum> in <#mesh, [{4}, {8}]> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<dp=2, tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @kinds_10(%x: tensor<4x8xf32>) {
    // expected-error@+1 {{names dim 2 of a tensor of rank 2}}
    %0 = comm.mask %x dims [2] with <sum> in <#mesh, [{4}, {8}]> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @both_forms(%x: tensor<4xf32>, %y: memref<8xf32>) {
    // expected-error@+1 {{on a tensor has a result and no buffer}}
    comm.all_gather %x into %y from <#mesh, [{8: tp}]> to <#mesh, [{8}]> : (tensor<4xf32>, memref<8xf32>) -> ()
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @no_buffer(%x: memref<4xf32>) {
    // expected-error@+1 {{on a buffer writes into a buffer and has no result}}
    comm.all_gather %x from <#mesh, [{8: tp}]> to <#mesh, [{8}]> : (memref<4xf32>) -> ()
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  // expected-note@+1 {{the value comes from here}}
  func.func @small_buffer(%x: memref<4xf32>, %y: memref<4xf32>) {
    // expected-error@+1 {{expected a result of local shape [8]}}
    comm.all_gather %x into %y from <#mesh, [{8: tp}]> to <#mesh, [{8}]> : (memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @masked(%x: tensor<4x4xf32>) {
    // expected-error@+1 {{changes the shape}}
    %0 = comm.mask %x dims [0] with <sum> in <#mesh, [{7/8: tp}, {4}]> : (tensor<4x4xf32>) -> tensor<4x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @coordinate() {
    // expected-error@+1 {{expected the layout of one dim without partial axes}}
    %0 = comm.coordinate in <#mesh, [{8: tp}, {4}]>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @pieces() {
    // expected-error@+1 {{expected a dim in one piece}}
    %0 = comm.coordinate in <#mesh, [{3}*{4: tp}]>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @claim(%x: tensor<8xf32>) {
    // expected-error@+1 {{expected a result of local shape [4] for layout [{8: tp}], got 'tensor<8xf32>'}}
    %0 = comm.claim %x from <#mesh, [{8}]> to <#mesh, [{8: tp}]> : tensor<8xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#other = #dist.mesh<tp=4>
func.func @claim(%x: tensor<8xf32>) {
  // expected-error@+1 {{leads from mesh "tp=2" to mesh "tp=4"}}
  %0 = comm.claim %x from <#mesh, [{8}]> to <#other, [{8}]> : tensor<8xf32>
  return
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @pieces_rank(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: the piece from rank 0 to rank 2: the mesh has 2 ranks}}
    %0 = comm.pieces %x by <#mesh, 0 to 2 [0 to 0 of 1, 0 to 0 of 2]> : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @pieces_box(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: the piece from rank 0 to rank 1: elements 0 to 3, 2 of them, are not in dim 0 of sizes 4 and 4}}
    %0 = comm.pieces %x by <#mesh, 0 to 1 [0 to 3 of 2, 0 to 0 of 2]> : (tensor<4x2xf32>) -> tensor<4x2xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @pieces_dims(%x: tensor<4x2xf32>) {
    // expected-error@+1 {{is inconsistent: ranks have tensors of 2 dims and get ones of 1}}
    %0 = comm.pieces %x by <#mesh, 0 to 1 [0 to 0 of 2, 0 to 0 of 2]> : (tensor<4x2xf32>) -> tensor<4xf32>
    return
  }
}

// -----

#mesh = #dist.mesh<sp=2>
module attributes {dist.mesh = #mesh} {
  func.func @pieces_none(%x: tensor<4xf32>) {
    // expected-error@+1 {{is inconsistent: there is no piece}}
    %0 = comm.pieces %x by <#mesh> : (tensor<4xf32>) -> tensor<4xf32>
    return
  }
}
