//===- Fusion.cpp - Which ops share a kernel or an engine call ------------===//
#include "passes/Codegen/Common/Fusion.h"

#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/PostOps.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Longer kernels gain nothing and compile slowly.
static constexpr int maxOps = 64;
/// More operands than this spill registers in every iteration.
static constexpr size_t maxPostOps = 4;

bool codegen::isUniform(Value value) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  return constant &&
         (constant.getValue().isSplat() || constant.getValue().getNumElements() == 1);
}

double codegen::uniformValue(Value value) {
  auto elements =
      cast<DenseElementsAttr>(value.getDefiningOp<graph::ConstantOp>().getValue());
  Attribute first = *elements.getValues<Attribute>().begin();
  if (auto number = dyn_cast<FloatAttr>(first))
    return number.getValueAsDouble();
  auto number = cast<IntegerAttr>(first);
  if (number.getType().isInteger(1))
    return number.getValue().getBoolValue();
  return number.getType().isUnsignedInteger()
             ? static_cast<double>(number.getValue().getZExtValue())
             : static_cast<double>(number.getValue().getSExtValue());
}

static bool isFusable(Operation *op) {
  return isa<PayloadOpInterface, RowOpInterface, IndexedOpInterface>(op);
}

/// Few plain operations: cheaper to compute again than to store and load.
static bool isCheap(Operation *op) {
  auto payload = dyn_cast<PayloadOpInterface>(op);
  if (!payload || payload.getPayload().flops() > 2)
    return false;
  return llvm::none_of(payload.getPayload().nodes(), [](const ScalarNode &n) {
    return (n.op >= ScalarOp::Exp && n.op <= ScalarOp::Cos) || n.op == ScalarOp::Div ||
           n.op == ScalarOp::Pow || n.op == ScalarOp::Mod;
  });
}

Fusion::Fusion(func::FuncOp function, bool streamsAttention) {
  if (streamsAttention)
    attentions = findAttentions(function);
  findChains(function);
  findGroups(function);
}

/// Adds a step to a chain, or joins it with the last one; false if the chain cannot take
/// it. oneDNN 2.6's depthwise convolution applies the first parameters of a pointwise
/// kind to all post-ops of that kind, so each kind comes once.
static bool appendStep(std::vector<PostStep> &chain, PostStep step) {
  task::PostOp &post = step.post;
  if (!chain.empty() && post.kind == PARTITA_POST_LINEAR &&
      chain.back().post.kind == PARTITA_POST_LINEAR) {
    task::PostOp &last = chain.back().post;
    last.beta = post.alpha * last.beta + post.beta;
    last.alpha *= post.alpha;
    chain.back().merged.push_back(chain.back().op);
    chain.back().op = step.op;
    return true;
  }
  if (chain.size() == maxPostOps ||
      (!task::isBinary(post.kind) && llvm::any_of(chain, [&](const PostStep &other) {
        return other.post.kind == post.kind;
      })))
    return false;
  chain.push_back(std::move(step));
  return true;
}

void Fusion::findChains(func::FuncOp function) {
  for (Operation &op : function.front().without_terminator()) {
    auto engine = dyn_cast<TaskOpInterface>(op);
    if (!engine || !engine.takesPostOps() || attentions.absorbed.contains(&op) ||
        attentionAt(&op))
      continue;
    std::vector<PostStep> chain;
    Value value = op.getResult(0);
    while (value.hasOneUse()) {
      Operation *user = *value.user_begin();
      if (!isa<PayloadOpInterface>(user) || chained.contains(user) ||
          attentions.absorbed.contains(user) ||
          user->getResult(0).getType() != value.getType())
        break;
      auto step = postStepOf(user, value);
      if (!step ||
          (step->operand && getElementTypeOrSelf(step->operand.getType()) !=
                                getElementTypeOrSelf(value.getType())) ||
          !appendStep(chain, *step))
        break;
      chained[user] = &op;
      value = user->getResult(0);
    }
    engines[chain.empty() ? &op : chain.back().op] = &op;
    chains[&op] = std::move(chain);
  }
}

bool Fusion::join(Operation *op, Group &group) const {
  if (op->getNumResults() != 1)
    return false;
  Shape shape = shapeOf(op->getResult(0));
  auto row = dyn_cast<RowOpInterface>(op);
  if (!row) {
    if (shape == group.domain)
      return true;
    // Constant along the rows: computed once per row.
    bool perRow = !group.rowDims.empty() && isa<PayloadOpInterface>(op) &&
                  shape.size() == group.domain.size();
    for (size_t d = 0; perRow && d < shape.size(); ++d)
      perRow = shape[d] == (llvm::is_contained(group.rowDims, static_cast<int64_t>(d))
                                ? 1
                                : group.domain[d]);
    return perRow || isCheap(op);
  }
  Shape input = shapeOf(op->getOperand(0));
  SmallVector<int64_t> dims = row.getRowDims();
  std::vector<int64_t> rowDims(dims.begin(), dims.end());
  if ((row.reducesRow() && !row.keepsDims()) || elementCount(input) == 0)
    return false;
  bool fits =
      input == group.domain && (group.rowDims.empty() || group.rowDims == rowDims);
  // The kernel so far runs over what is left of the rows: it now runs over the rows.
  bool grows = row.reducesRow() && group.rowDims.empty() && shape == group.domain;
  if (!fits && !grows)
    return false;
  group.domain = input;
  group.rowDims = rowDims;
  return true;
}

void Fusion::findGroups(func::FuncOp function) {
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (!isFusable(&op) || chained.contains(&op) || attentions.absorbed.contains(&op))
      continue;
    Group *common = nullptr;
    bool together = !op.use_empty();
    for (OpOperand &use : op.getUses()) {
      Operation *user = use.getOwner();
      auto row = dyn_cast<RowOpInterface>(user);
      bool isAtPoint =
          row ? !row.readsByPlace(use.getOperandNumber()) : isa<PayloadOpInterface>(user);
      Group *group = isAtPoint ? groupOf.lookup(user) : nullptr;
      together &= group && (!common || group == common);
      common = group;
    }
    if (together && common->numOps < maxOps && join(&op, *common)) {
      groupOf[&op] = common;
      ++common->numOps;
      continue;
    }
    auto group = std::make_unique<Group>();
    group->root = &op;
    group->domain = shapeOf(op.getResult(0));
    if (auto row = dyn_cast<RowOpInterface>(op)) {
      group->domain = shapeOf(op.getOperand(0));
      SmallVector<int64_t> dims = row.getRowDims();
      group->rowDims.assign(dims.begin(), dims.end());
    }
    groupOf[&op] = group.get();
    groups.push_back(std::move(group));
  }
}

const Group *Fusion::groupAt(Operation *op) const {
  Group *group = groupOf.lookup(op);
  return group && group->root == op ? group : nullptr;
}

bool Fusion::isIn(Operation *op, const Group &group) const {
  return groupOf.lookup(op) == &group;
}

bool Fusion::isAbsorbed(Operation *op) const {
  Group *group = groupOf.lookup(op);
  return chained.contains(op) || attentions.absorbed.contains(op) ||
         (group && group->root != op);
}

const Attention *Fusion::attentionAt(Operation *op) const {
  auto found = attentions.byRoot.find(op);
  return found == attentions.byRoot.end() ? nullptr : &found->second;
}

Operation *Fusion::formedAt(Operation *op) const {
  if (attentions.absorbed.contains(op))
    return nullptr;
  if (Group *group = groupOf.lookup(op))
    return group->root;
  Operation *engine = chained.lookup(op);
  return callResult(engine ? engine : op).getDefiningOp();
}

ArrayRef<PostStep> Fusion::postChain(Operation *engine) const {
  auto found = chains.find(engine);
  return found == chains.end() ? ArrayRef<PostStep>() : ArrayRef(found->second);
}

Operation *Fusion::engineAt(Operation *op) const { return engines.lookup(op); }

Value Fusion::callResult(Operation *engine) const {
  ArrayRef<PostStep> chain = postChain(engine);
  return (chain.empty() ? engine : chain.back().op)->getResult(0);
}
