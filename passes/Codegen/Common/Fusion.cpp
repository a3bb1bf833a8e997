//===- Fusion.cpp - Which ops share a kernel or an engine call ------------===//
#include "passes/Codegen/Common/Fusion.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

Described codegen::describe(func::FuncOp function) {
  Described all;
  llvm::DenseMap<Value, int32_t> known;
  auto add = [&](Value value) {
    // Handles of what is in flight are no tensors.
    bool isTensor = isa<RankedTensorType>(value.getType());
    int32_t number = all.program.addValue(isTensor ? shapeOf(value) : Shape(),
                                          isTensor ? codegen::dtypeOf(value) : DType::U8);
    all.program.values.back().uniform = uniformOf(value);
    all.values.push_back(value);
    known[value] = number;
    return number;
  };
  for (Value argument : function.getArguments())
    add(argument);
  for (Operation &op : function.front()) {
    kernels::LocalOp entry;
    // Ops without a rule.
    entry.facts =
        isa<comm::LocalIndexOp>(op) ? kernels::OpFacts::of(kernels::OpKind::Indexed)
        : isa<comm::HaloOp>(op)
            ? kernels::OpFacts::of(kernels::OpKind::Other, kernels::OpRole::Window, {})
            : kernelFactsOf(&op);
    entry.phase = dist::phaseOf(&op);
    for (Value operand : op.getOperands())
      entry.operands.push_back(known.at(operand));
    // Communication that is only started is in the op that starts it.
    for (Region &region : op.getRegions())
      for (Operation &inner : region.getOps())
        for (Value operand : inner.getOperands())
          if (auto found = known.find(operand); found != known.end())
            entry.operands.push_back(found->second);
    for (Value result : op.getResults())
      entry.results.push_back(add(result));
    all.program.addOp(std::move(entry));
    all.ops.push_back(&op);
  }
  return all;
}

Fusion::Fusion(func::FuncOp function, const kernels::Target &target) {
  described = describe(function);
  attentions = kernels::takeAttentions(described.program, target);
  for (auto [number, op] : llvm::enumerate(described.ops))
    numbers[op] = static_cast<int32_t>(number);
  grouping = kernels::group(described.program, target);
}

std::vector<std::pair<Operation *, std::string>> Fusion::apart() const {
  std::vector<std::pair<Operation *, std::string>> all;
  for (const auto &[softmax, why] : attentions.apart)
    all.emplace_back(op(softmax), "its attention is two products: " + why);
  for (const auto &[number, why] : grouping.apart)
    all.emplace_back(op(number), "it is a kernel of its own: " + std::string(why));
  return all;
}

const kernels::Attention *Fusion::attentionAt(Operation *op) const {
  auto found = attentions.byRoot.find(numberOf(op));
  return found == attentions.byRoot.end() ? nullptr : &found->second;
}

Operation *Fusion::engineAt(Operation *it) const {
  int32_t number = numberOf(it);
  int32_t engine = grouping.callOf[static_cast<size_t>(number)];
  return engine >= 0 && grouping.lastOfCall(engine) == number ? op(engine) : nullptr;
}

Operation *Fusion::formedAt(Operation *it) const {
  int32_t number = grouping.formedAt(described.program, numberOf(it));
  return number < 0 ? nullptr : op(number);
}

Value Fusion::callResult(Operation *engine) const {
  return op(grouping.lastOfCall(numberOf(engine)))->getResult(0);
}
