// Products and attention are tile programs in PTX: loads by cp.async ahead of products in
// shared memory, halves by mma.sync with sums in f32, f32 by FMA.
// RUN: split-file %s %t
// RUN: partita-opt %t/product.mlir --partita-emit-ptx="out=%t/product.ptx manifest=%t/product.json architecture=sm_80" -o /dev/null | FileCheck %s --check-prefix=COUNT
// RUN: FileCheck %s --check-prefix=PRODUCT --input-file=%t/product.ptx
// RUN: FileCheck %s --check-prefix=CALL --input-file=%t/product.json
// RUN: sed s/bf16/f32/g %t/product.mlir | partita-opt --partita-emit-ptx="out=%t/single.ptx architecture=sm_80" -o /dev/null
// RUN: FileCheck %s --check-prefix=SINGLE --input-file=%t/single.ptx
// RUN: partita-opt %t/attention.mlir --partita-emit-ptx="out=%t/attention.ptx manifest=%t/attention.json architecture=sm_80" -o /dev/null
// RUN: FileCheck %s --check-prefix=ATTENTION --input-file=%t/attention.ptx
// RUN: FileCheck %s --check-prefix=ROWS --input-file=%t/attention.json

// The product, and one kernel behind it: products take no post-ops.
// COUNT: 2 kernels

// PRODUCT:     .entry product_0
// PRODUCT:     .maxntid 128
// PRODUCT:     cp.async.cg.shared.global
// PRODUCT:     cp.async.wait_group
// PRODUCT:     ldmatrix.sync.aligned.m8n8.x4.shared.b16
// PRODUCT:     ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// PRODUCT:     mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
// PRODUCT-NOT: fma.rn.f32

// SINGLE:     .entry product_0
// SINGLE-NOT: mma.sync
// SINGLE:     fma.rn.f32

// 3 heads, 100 rows by 64 and 72 columns by 64; rows of b that are read are 144 bytes long.
// CALL:      "product_0"
// CALL:      "fc"
// CALL:      "grid": 12,
// CALL-NEXT: "block": 128,
// CALL-NEXT: "shared": 29184,
// CALL-NEXT: "flops": 1728000,

// A block has 64 queries of a head, all keys one tile after the other; the mask is
// computed of positions, and exp is ex2 of scaled scores.
// ATTENTION:     .entry kernel_0
// ATTENTION:     mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// ATTENTION:     shfl.sync.bfly
// ATTENTION:     ex2.approx.f32
// ATTENTION:     cvt.rn.f16x2.f32
// ATTENTION:     mma.sync

// ROWS:     "name": "kernel_0"
// ROWS:     "grid": 4,
// ROWS:     "block": 128,
// ROWS-NOT: "scratch"

//--- product.mlir
func.func @main(%a: tensor<3x100x40xbf16>, %b: tensor<3x40x72xbf16>, %bias: tensor<72xbf16>) -> tensor<3x100x72xbf16> {
  %p = graph.contract %a, %b {equation = #graph.equation<"h m k, h k n -> h m n">} : (tensor<3x100x40xbf16>, tensor<3x40x72xbf16>) -> tensor<3x100x72xbf16> loc("fc")
  %y = graph.add %p, %bias : (tensor<3x100x72xbf16>, tensor<72xbf16>) -> tensor<3x100x72xbf16>
  return %y : tensor<3x100x72xbf16>
}

//--- attention.mlir
func.func @main(%q: tensor<4x64x48xf16>, %k: tensor<4x90x48xf16>, %v: tensor<4x90x32xf16>,
                %i: tensor<64x1xi64>, %j: tensor<1x90xi64>) -> tensor<4x64x32xf16> {
  %low = graph.constant dense<-6.5e4> : tensor<f16>
  %seen = graph.less_equal %j, %i : (tensor<1x90xi64>, tensor<64x1xi64>) -> tensor<64x90xi1>
  %s = graph.contract %q, %k {equation = #graph.equation<"h m k, h n k -> h m n">} : (tensor<4x64x48xf16>, tensor<4x90x48xf16>) -> tensor<4x64x90xf16>
  %l = graph.where %seen, %s, %low : (tensor<64x90xi1>, tensor<4x64x90xf16>, tensor<f16>) -> tensor<4x64x90xf16>
  %p = graph.softmax %l {axis = 2 : i64} : (tensor<4x64x90xf16>) -> tensor<4x64x90xf16>
  %y = graph.contract %p, %v {equation = #graph.equation<"h m k, h k n -> h m n">} : (tensor<4x64x90xf16>, tensor<4x90x32xf16>) -> tensor<4x64x32xf16>
  return %y : tensor<4x64x32xf16>
}
