//===- Samples.cpp - Small programs in which every comm op occurs --------===//
#include "Samples.h"

#include "passes/Partition/Passes.h"
#include "passes/Shard/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

/// Each in a module with the mesh and a function @main.
constexpr Sample list[] = {
    {"two matmuls, split like a transformer's feed-forward block", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {8}]>})
      -> (tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{4: dp}, {8}]>}) {
    %w1 = graph.weight "w1" : tensor<8x6xf32>
    %w2 = graph.weight "w2" : tensor<6x8xf32>
    %0 = graph.contract %x, %w1 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: dp, n: tp}>}
      : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %1 = graph.gelu %0 {dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %2 = graph.contract %1, %w2 {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {m: dp, k: tp}>}
      : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
})"},
    {"a reduced dim of 5 on 3, weights and activations padded", R"(
#mesh = #dist.mesh<tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x5xf32>) -> tensor<4x6xf32> {
    %w = graph.weight "w" : tensor<5x6xf32>
    %0 = graph.relu %x {dist.strategy = #dist.strategy<#mesh, {b: {5/6: tp}}>} : (tensor<4x5xf32>) -> tensor<4x5xf32>
    %1 = graph.contract %0, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: {5/6: tp}}>}
      : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
    return %1 : tensor<4x6xf32>
  }
})"},
    {"reduce-scatter over two axes, then gathered", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<8x8xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = graph.contract %x, %y {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: {dp, tp}}>}
      : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: {tp, dp}}>} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %1 : tensor<8x4xf32>
  }
})"},
    {"axes move between dims", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = graph.tanh %x {dist.strategy = #dist.strategy<#mesh, {a: {dp, tp}}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = graph.tanh %1 {dist.strategy = #dist.strategy<#mesh, {a: tp, b: dp}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
})"},
    {"two axes move to another dim at once", R"(
#mesh = #dist.mesh<dp=2,tp=3>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<6x12xf32>) -> tensor<6x12xf32> {
    %0 = graph.tanh %x {dist.strategy = #dist.strategy<#mesh, {a: {dp, tp}}>} : (tensor<6x12xf32>) -> tensor<6x12xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {b: {dp, tp}}>} : (tensor<6x12xf32>) -> tensor<6x12xf32>
    return %1 : tensor<6x12xf32>
  }
})"},
    {"cuts that do not nest, another padded extent", R"(
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<5x4xf32>) -> tensor<5x4xf32> {
    %0 = graph.tanh %x {dist.strategy = #dist.strategy<#mesh, {a: {5/6: tp}}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: {5/8: tp}}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
    return %1 : tensor<5x4xf32>
  }
})"},
    {"one value in several layouts, partial and whole", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
    %w = graph.weight "w" : tensor<8x4xf32>
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>}
      : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    %1 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: tp, b: dp}>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = graph.tanh %0 {dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = graph.neg %0 {dist.strategy = #dist.strategy<#mesh, {} pass sum(0) {tp}>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %4 = graph.add %1, %2 {dist.strategy = #dist.strategy<#mesh, {a: dp, b: tp}>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %5 = graph.add %4, %3 {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %5 : tensor<4x4xf32>
  }
})"},
    {"a whole value joins a partial one", R"(
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<4x6xf32>, %b: tensor<3xf32>) -> tensor<4x3xf32> {
    %w = graph.weight "w" : tensor<6x3xf32>
    %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, dist.strategy = #dist.strategy<#mesh, {k: tp}>}
      : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
    %1 = graph.add %0, %b {dist.strategy = #dist.strategy<#mesh, {} pass sum(0, 1) {tp}>} : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
})"},
    {"maximum over 5 on 4, of negative numbers, then a product", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<5x4xf32>) -> tensor<f32> {
    %0 = graph.exp %x {dist.strategy = #dist.strategy<#mesh, {a: {5/8: dp, tp}}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
    %1 = graph.neg %0 {dist.strategy = #dist.strategy<#mesh, {a: {5/8: dp, tp}}>} : (tensor<5x4xf32>) -> tensor<5x4xf32>
    %2 = graph.reduce %1 {kind = #graph.reduce<max>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: {5/8: dp, tp}}>} : (tensor<5x4xf32>) -> tensor<4xf32>
    %3 = graph.reduce %2 {kind = #graph.reduce<prod>, axes = array<i64: 0>, dist.strategy = #dist.strategy<#mesh, {a: tp}>} : (tensor<4xf32>) -> tensor<f32>
    return %3 : tensor<f32>
  }
})"},
    {"13 indices on 8 ranks: garbage would point outside the table", R"(
#mesh = #dist.mesh<dp=2,tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @main(%i: tensor<13xi64>) -> tensor<13x2xf32> {
    %t = graph.weight "table" : tensor<7x2xf32>
    %0 = graph.max %i, %i {dist.strategy = #dist.strategy<#mesh, {a: {13/16: dp, tp}}>} : (tensor<13xi64>, tensor<13xi64>) -> tensor<13xi64>
    %1 = graph.gather %t, %0 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: {13/16: dp, tp}}>} : (tensor<7x2xf32>, tensor<13xi64>) -> tensor<13x2xf32>
    return %1 : tensor<13x2xf32>
  }
})"},
    {"a vocabulary of 50257 on 4: every rank has a row, indices of both signs", R"(
#mesh = #dist.mesh<dp=2,tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @main(%i: tensor<32xi64> {dist.layout = #dist.layout<#mesh, [{32: dp}]>}) -> tensor<32x2xf32> {
    %t = graph.weight "table" : tensor<50257x2xf32>
    %stride = graph.constant dense<16752> : tensor<32xi64>
    %size = graph.constant dense<50257> : tensor<32xi64>
    %0 = graph.mul %i, %stride {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
    %1 = graph.sub %0, %size {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<32xi64>, tensor<32xi64>) -> tensor<32xi64>
    %2 = graph.gather %t, %0 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: dp, b: {50257/50264: tp}}>} : (tensor<50257x2xf32>, tensor<32xi64>) -> tensor<32x2xf32>
    %3 = graph.gather %t, %1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {b: {50257/50264: dp, tp}}>} : (tensor<50257x2xf32>, tensor<32xi64>) -> tensor<32x2xf32>
    %4 = graph.sub %2, %3 {dist.strategy = #dist.strategy<#mesh, {a: dp} pass sum(0, 1) {tp}>} : (tensor<32x2xf32>, tensor<32x2xf32>) -> tensor<32x2xf32>
    %5 = graph.add %2, %4 {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<32x2xf32>, tensor<32x2xf32>) -> tensor<32x2xf32>
    return %5 : tensor<32x2xf32>
  }
})"},
    {"thirds of a fused projection, joined in another order", R"(
#mesh = #dist.mesh<tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<3x12xf32> {dist.layout = #dist.layout<#mesh, [{3}, {3}*{4: tp}]>}) -> tensor<3x8xf32> {
    %0 = graph.slice %x {starts = array<i64: 0, 4>, steps = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<3x12xf32>) -> tensor<3x4xf32>
    %1 = graph.slice %x {starts = array<i64: 0, 8>, steps = array<i64: 1, 1>, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<3x12xf32>) -> tensor<3x4xf32>
    %2 = graph.concat %1, %0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {c: tp}>} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
    return %2 : tensor<3x8xf32>
  }
})"},
    {"a convolution split in groups and in input channels, with a bias", R"(
#mesh = #dist.mesh<dp=2,tp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<2x8x5xf32>) -> tensor<2x4x3xf32> {
    %w = graph.weight "filter" : tensor<4x4x3xf32>
    %b = graph.weight "bias" : tensor<4xf32>
    %0 = graph.conv %x, %w, %b {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: 0, 0>, group = 2 : i64,
      dist.strategy = #dist.strategy<#mesh, {b: tp, c: dp}>} : (tensor<2x8x5xf32>, tensor<4x4x3xf32>, tensor<4xf32>) -> tensor<2x4x3xf32>
    return %0 : tensor<2x4x3xf32>
  }
})"},
    {"windows: rows of a convolution on 4, uneven behind a stride, then a maximum", R"(
#mesh = #dist.mesh<sp=4>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<1x2x13x5xf32> {dist.layout = #dist.layout<#mesh, [{1}, {2}, {13/16: sp}, {5}]>}) -> tensor<1x3x4x5xf32> {
    %w = graph.weight "filter" : tensor<3x2x3x3xf32>
    %0 = graph.conv %x, %w {strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>,
      dist.strategy = #dist.strategy<#mesh, {c: {7/8: sp}}>} : (tensor<1x2x13x5xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x7x5xf32>
    %1 = graph.neg %0 {dist.strategy = #dist.strategy<#mesh, {b: {7/8: sp}}>} : (tensor<1x3x7x5xf32>) -> tensor<1x3x7x5xf32>
    %2 = graph.exp %1 {dist.strategy = #dist.strategy<#mesh, {b: {7/8: sp}}>} : (tensor<1x3x7x5xf32>) -> tensor<1x3x7x5xf32>
    %3 = graph.neg %2 {dist.strategy = #dist.strategy<#mesh, {b: {7/8: sp}}>} : (tensor<1x3x7x5xf32>) -> tensor<1x3x7x5xf32>
    %4 = graph.pool %3 {kind = #graph.pool<max>, window = array<i64: 3, 3>, strides = array<i64: 2, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>,
      dist.strategy = #dist.strategy<#mesh, {b: sp}>} : (tensor<1x3x7x5xf32>) -> tensor<1x3x4x5xf32>
    return %4 : tensor<1x3x4x5xf32>
  }
})"},
    {"windows of rows and columns, of a partial sum, averaged inside the image", R"(
#mesh = #dist.mesh<dp=2,tp=2,cp=2>
module attributes {dist.mesh = #mesh} {
  func.func @main(%x: tensor<1x4x6x6xf32> {dist.layout = #dist.layout<#mesh, [{1}, {4: cp}, {6: dp}, {6: tp}]>}) -> tensor<1x2x6x6xf32> {
    %w1 = graph.weight "point" : tensor<2x4x1x1xf32>
    %0 = graph.conv %x, %w1 {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>,
      dist.strategy = #dist.strategy<#mesh, {a: cp, c: dp, d: tp}>} : (tensor<1x4x6x6xf32>, tensor<2x4x1x1xf32>) -> tensor<1x2x6x6xf32>
    %1 = graph.pool %0 {kind = #graph.pool<average>, window = array<i64: 3, 3>, strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>,
      dist.strategy = #dist.strategy<#mesh, {b: dp, c: tp}>} : (tensor<1x2x6x6xf32>) -> tensor<1x2x6x6xf32>
    return %1 : tensor<1x2x6x6xf32>
  }
})"},
};

ArrayRef<Sample> spmd::samples() { return list; }

OwningOpRef<ModuleOp> spmd::partitioned(MLIRContext &context, const Sample &sample) {
  auto module = parseSourceString<ModuleOp>(sample.text, &context);
  if (!module)
    return {};
  PassManager manager(&context);
  manager.addPass(createInsertReshardsPass());
  manager.addPass(createVerifyPlannedPass());
  manager.addPass(createPartitionPass());
  manager.addPass(createVerifyPartitionedPass());
  return failed(manager.run(*module)) ? OwningOpRef<ModuleOp>() : std::move(module);
}
