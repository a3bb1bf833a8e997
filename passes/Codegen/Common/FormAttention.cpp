//===- FormAttention.cpp - The kernel of an attention ---------------------===//
#include "passes/Codegen/Common/KernelBuilder.h"

#include "dialects/Graph/Graph.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// One attention on its way to a kernel.
class AttentionFormer {
public:
  AttentionFormer(const kernels::Attention &a, TaskFormer &former)
      : a(a), former(former), plan(former.plan()), shape(a.domain(plan.program())),
        builder(former, shape, {0, 1, rank() - 2, rank() - 1}) {}

  void form();

private:
  using Part = kernels::Attention::Part;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool isPlain(const View &view) const;
  void addOperand(Part part, Value value);
  std::pair<Tensor, View> placeResult(Value result);
  void findHiders();

  std::optional<View> inDomain(Part part, const View &view) const {
    return a.inDomain(plan.program(), part, view);
  }
  bool isPointwise(Operation *op) const {
    return llvm::any_of(a.pointwise, [&](int32_t other) { return plan.op(other) == op; });
  }

  const kernels::Attention &a;
  TaskFormer &former;
  Fusion &plan;
  Shape shape;
  KernelBuilder builder;
  AttentionSpec spec;
};
} // namespace

/// Whether it has one stride along each of the dims that are no outer ones.
bool AttentionFormer::isPlain(const View &view) const {
  for (int64_t d : {int64_t(0), int64_t(1), rank() - 2, rank() - 1})
    if (view.dims[static_cast<size_t>(d)].size() != 1)
      return false;
  return true;
}

void AttentionFormer::addOperand(Part part, Value value) {
  DType type = codegen::dtypeOf(value);
  Tensor tensor = former.tensorOf(value);
  std::optional<View> view = inDomain(part, tensor.view);
  if (!view || !isPlain(*view)) {
    tensor = former.copied(tensor, type, sourceName(plan.op(a.output)));
    view = inDomain(part, tensor.view);
  }
  builder.addOperand(tensor, *view, type);
}

std::pair<Tensor, View> AttentionFormer::placeResult(Value result) {
  Tensor tensor = former.allocateForUser(result);
  if (auto view = inDomain(Part::Output, tensor.view); view && isPlain(*view))
    return {tensor, *view};
  tensor = former.allocate(result);
  return {tensor, *inDomain(Part::Output, tensor.view)};
}

/// From the last op before the softmax back: a choice between scores and a constant, or
/// what is added to them.
void AttentionFormer::findHiders() {
  const Value begin = plan.value(a.begin);
  for (int32_t number : llvm::reverse(a.pointwise)) {
    Operation *op = plan.op(number);
    auto isScore = [&](Value value) {
      Operation *from = value.getDefiningOp();
      return value == begin || (from && isPointwise(from));
    };
    if (isa<graph::CastOp>(op))
      continue;
    if (isa<graph::WhereOp>(op) && spec.hiders.empty()) {
      bool isThen = isScore(op->getOperand(1));
      Value other = op->getOperand(isThen ? 2 : 1);
      if (isScore(op->getOperand(0)) || !uniformOf(other) || *uniformOf(other) > -1e3)
        return;
      spec.hides = isThen ? AttentionSpec::Hides::Where : AttentionSpec::Hides::WhereNot;
      spec.hidden = *uniformOf(other);
      spec.hiders = {builder.nodeOf(op->getOperand(0))};
      return;
    }
    if (!isa<graph::AddOp>(op))
      return;
    spec.hides = AttentionSpec::Hides::Sum;
    spec.hiders.push_back(builder.nodeOf(op->getOperand(isScore(op->getOperand(0)))));
  }
}

void AttentionFormer::form() {
  const Value result = plan.op(a.output)->getResult(0), begin = plan.value(a.begin);
  addOperand(Part::Query, plan.value(a.q));
  addOperand(Part::Key, plan.value(a.k));
  addOperand(Part::Values, plan.value(a.v));
  for (const auto *ops : {&a.pointwise, &a.own})
    for (int32_t op : *ops)
      builder.addMember(plan.op(op));
  spec.scale = a.scale;
  spec.zeroForNaN = a.zeroForNaN;
  spec.score = builder.score(codegen::dtypeOf(begin));
  builder.setNode(begin, spec.score);
  spec.logits = builder.nodeOf(plan.op(a.softmax)->getOperand(0));
  findHiders();
  auto [tensor, view] = placeResult(result);
  builder.addOutput(-1, tensor, view, codegen::dtypeOf(result), false);
  former.setTensor(result, tensor);
  builder.setAttention(std::move(spec));
  builder.finish(sourceName(plan.op(a.output)));
}

void TaskFormer::noteApart() {
  for (const auto &[op, why] : fusion.apart())
    program.notes.emplace_back(sourceName(op), why);
}

LogicalResult TaskFormer::formAttention(const kernels::Attention &attention) {
  AttentionFormer(attention, *this).form();
  return success();
}
