//===- KernelFacts.cpp - How ops on rows are computed ---------------------===//
#include "dialects/Graph/Graph.h"

#include "llvm/ADT/StringMap.h"

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

kernels::OpFacts graph::detail::softmaxFacts(Operation *op) {
  kernels::OpFacts facts = rowFacts(op, cast<SoftmaxOp>(op).getAxis());
  facts.role = kernels::OpRole::Softmax;
  return facts;
}

/// Loops by number, in the order of their names' first use.
kernels::OpFacts graph::detail::contractFacts(Operation *op) {
  const Equation equation = cast<ContractOp>(op).getEquation();
  llvm::StringMap<int64_t> known;
  auto numbersOf = [&](const Equation::Tensor &tensor) {
    std::vector<int64_t> numbers;
    for (const auto &dim : tensor) {
      for (const std::string &loop : dim)
        numbers.push_back(
            known.try_emplace(loop, static_cast<int64_t>(known.size())).first->second);
      numbers.push_back(-1);
    }
    return numbers;
  };
  kernels::OpFacts facts = kernels::OpFacts::engine(true);
  facts.role = kernels::OpRole::Contract;
  for (const Equation::Tensor &tensor :
       {equation.operands[0], equation.operands[1], equation.results[0]})
    facts.numbers.push_back(numbersOf(tensor));
  return facts;
}

kernels::OpFacts graph::detail::joinFacts(Operation *op) {
  const size_t rank = shapeOf(op->getResult(0)).size();
  return kernels::OpFacts::of(kernels::OpKind::Other, kernels::OpRole::Join,
                              {{*normalizeAxis(cast<ConcatOp>(op).getAxis(), rank)}});
}

kernels::OpFacts graph::detail::padFacts(Operation *op) {
  auto pad = cast<PadOp>(op);
  if (pad.getMode() != PadMode::Constant)
    return {};
  return kernels::OpFacts::of(kernels::OpKind::Other, kernels::OpRole::Pad,
                              {pad.getLow().vec(), pad.getHigh().vec()});
}

/// Plain operations, of which a few at a point cost no more than a load.
static bool isCheap(const Payload &payload) {
  return payload.flops() <= 4 && llvm::none_of(payload.nodes(), [](const ScalarNode &n) {
           return (n.op >= ScalarOp::Exp && n.op <= ScalarOp::Cos) ||
                  n.op == ScalarOp::Div || n.op == ScalarOp::Pow || n.op == ScalarOp::Mod;
         });
}

kernels::OpFacts graph::detail::pointwiseFacts(Operation *op, kernels::OpRole role,
                                               kernels::Post post, double alpha,
                                               double beta) {
  kernels::OpFacts facts =
      kernels::OpFacts::pointwise(payloadSteps(op), post, alpha, beta);
  facts.role = role;
  facts.isCheap = isCheap(cast<PayloadOpInterface>(op).getPayload());
  return facts;
}
