//===- KernelFacts.cpp - How ops on rows are computed ---------------------===//
#include "dialects/Graph/Graph.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

static std::vector<int64_t> dimsAlong(Operation *op, ArrayRef<int64_t> axes) {
  size_t rank = shapeOf(op->getOperand(0)).size();
  std::vector<int64_t> dims;
  for (int64_t axis : axes)
    dims.push_back(*normalizeAxis(axis, rank));
  llvm::sort(dims);
  return dims;
}

kernels::OpFacts graph::detail::rowFacts(Operation *op, uint64_t axis, bool toEnd) {
  std::vector<int64_t> dims = dimsAlong(op, {static_cast<int64_t>(axis)});
  auto rank = static_cast<int64_t>(shapeOf(op->getOperand(0)).size());
  while (toEnd && dims.back() + 1 < rank)
    dims.push_back(dims.back() + 1);
  return kernels::OpFacts::row(std::move(dims));
}

kernels::OpFacts graph::detail::reductionFacts(Operation *op) {
  auto reduce = cast<ReduceOp>(op);
  kernels::OpFacts facts = kernels::OpFacts::row(dimsAlong(op, reduce.getAxes()));
  facts.reducesRow = true;
  facts.keepsDims = reduce.getKeepDims();
  return facts;
}

kernels::OpFacts graph::detail::suppressFacts() {
  kernels::OpFacts facts = kernels::OpFacts::row({2});
  facts.firstByPlace = 2;
  return facts;
}

/// A level is four lookups, two comparisons and a sum.
kernels::OpFacts graph::detail::treesFacts(Operation *op) {
  kernels::OpFacts facts = kernels::OpFacts::of(kernels::OpKind::Indexed);
  facts.steps = 8 * static_cast<double>(cast<TreesOp>(op).getDepth());
  return facts;
}

kernels::OpFacts graph::detail::scatterFacts(Operation *op) {
  kernels::OpFacts facts = rowFacts(op, cast<ScatterElementsOp>(op).getAxis());
  facts.mayChangeInPlace = true;
  facts.firstByPlace = 1;
  return facts;
}

/// A window is two loads, a comparison and a sum.
kernels::OpFacts graph::detail::maxPoolBackwardFacts(Operation *op) {
  kernels::OpFacts facts = kernels::OpFacts::of(kernels::OpKind::Indexed);
  auto pool = cast<MaxPoolBackwardOp>(op);
  facts.steps = 4;
  for (auto [taps, stride, dilation] :
       llvm::zip_equal(pool.getWindow(), pool.getStrides(), pool.getDilations()))
    facts.steps *= static_cast<double>(windowsPerElement(taps, stride, dilation));
  return facts;
}
