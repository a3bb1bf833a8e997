//===- Fusion.cpp - Which ops share a kernel or an engine call ------------===//
#include "passes/Codegen/Common/Fusion.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/PostOps.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Longer kernels gain nothing and compile slowly.
static constexpr int maxOps = 64;
/// More operands than this spill registers in every iteration.
static constexpr size_t maxPostOps = 4;
/// More streams than this leave the first-level cache's ways to one another.
static constexpr size_t maxKept = 6;

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

static std::vector<int64_t> rowDimsOf(RowOpInterface row) {
  SmallVector<int64_t> dims = row.getRowDims();
  return {dims.begin(), dims.end()};
}

/// Whether the kernel so far runs over what is left of the op's rows, and may run over
/// the rows.
static bool growsTo(RowOpInterface row, const Group &group) {
  return row.reducesRow() && group.rowDims.empty() &&
         shapeOf(row->getResult(0)) == group.domain;
}

/// The points of the kernel once the op is in it.
static Shape domainWith(Operation *op, const Group &group) {
  auto row = dyn_cast<RowOpInterface>(op);
  return row ? shapeOf(op->getOperand(0)) : group.domain;
}

/// How often the op is computed in a kernel over `domain`.
static int64_t pointsOf(Operation *op, const Shape &domain) {
  return isa<RowOpInterface>(op) ? elementCount(domain)
                                 : pointsIn(domain, shapeOf(op->getResult(0)));
}

Fusion::Fusion(func::FuncOp function, bool streamsAttention) {
  if (streamsAttention)
    attentions = findAttentions(function);
  for (const auto &[op, why] : attentions.apart)
    whyApart.emplace_back(op, "its attention is two products: " + why);
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

//===-- Kernels -----------------------------------------------------------===//

bool Fusion::fits(Operation *op, const Group &group) const {
  if (op->getNumResults() != 1 || group.numOps >= maxOps)
    return false;
  Shape shape = shapeOf(op->getResult(0));
  auto row = dyn_cast<RowOpInterface>(op);
  if (!row)
    return shape == group.domain || isa<PayloadOpInterface>(op);
  Shape input = shapeOf(op->getOperand(0));
  if ((row.reducesRow() && !row.keepsDims()) || elementCount(input) == 0)
    return false;
  return (input == group.domain &&
          (group.rowDims.empty() || group.rowDims == rowDimsOf(row))) ||
         growsTo(row, group);
}

void Fusion::join(Operation *op, Group &group) {
  if (auto row = dyn_cast<RowOpInterface>(op)) {
    group.domain = shapeOf(op->getOperand(0));
    group.rowDims = rowDimsOf(row);
  }
  group.cost.add(op, pointsOf(op, group.domain));
  ++group.numOps;
  groupsOf[op].push_back(&group);
}

Fusion::Readers Fusion::readersOf(Operation *op) const {
  Readers readers;
  for (OpOperand &use : op->getUses()) {
    Operation *user = use.getOwner();
    auto row = dyn_cast<RowOpInterface>(user);
    bool isAtPoint =
        row ? !row.readsByPlace(use.getOperandNumber()) : isa<PayloadOpInterface>(user);
    auto found = groupsOf.find(user);
    if (!isAtPoint || found == groupsOf.end()) {
      readers.others = true;
      continue;
    }
    for (Group *group : found->second)
      if (!llvm::is_contained(readers.groups, group))
        readers.groups.push_back(group);
  }
  return readers;
}

Operation *Fusion::firstReading(Operation *op, const Group *except) const {
  Block *block = op->getBlock();
  Operation *first = block->getTerminator();
  auto meet = [&](Operation *at) {
    if (at->isBeforeInBlock(first))
      first = at;
  };
  for (OpOperand &use : op->getUses()) {
    Operation *user = block->findAncestorOpInBlock(*use.getOwner());
    if (isa<ViewOpInterface>(user)) {
      Operation *at = firstReading(user, nullptr);
      if (!at)
        return nullptr;
      meet(at);
    } else if (auto found = groupsOf.find(user); found != groupsOf.end()) {
      auto row = dyn_cast<RowOpInterface>(user);
      bool isByPlace = (row && row.readsByPlace(use.getOperandNumber())) ||
                       isa<IndexedOpInterface>(user);
      for (Group *group : found->second)
        if (group != except || isByPlace)
          meet(group->root);
    } else if (user->getNumResults() != 0) {
      Operation *at = formedAt(user);
      if (!at)
        return nullptr;
      meet(at);
    } else {
      meet(user);
    }
  }
  return first;
}

/// Parts of a training step are told apart in traces and memory.
static bool isSamePart(Operation *a, Operation *b) {
  return a->getDiscardableAttr(phaseAttr) == b->getDiscardableAttr(phaseAttr);
}

/// Stored numbers of fewer bits than kernels compute with are rounded: one that some
/// users find in memory and others in registers would be two numbers.
static bool isRoundedWhenStored(Operation *op) {
  auto type = dyn_cast<FloatType>(getElementTypeOrSelf(op->getResult(0).getType()));
  return type && type.getWidth() < 32;
}

/// Whether a kernel with this one output may change elements of a state where they lie,
/// and leave the others as they are.
static bool mayChangeInPlace(Operation *op) {
  auto row = dyn_cast<RowOpInterface>(op);
  return row && row.mayChangeInPlace();
}

double Fusion::heldLonger(Operation *op, Operation *root) const {
  double held = 0;
  SmallVector<Value> values(op->getOperands());
  llvm::SmallDenseSet<Operation *, 8> tree{op};
  llvm::SmallDenseSet<Value, 8> seen;
  while (!values.empty()) {
    Value value = values.pop_back_val();
    Operation *from = value.getDefiningOp();
    if (!from || isUniform(value) || !seen.insert(value).second)
      continue;
    // It will be computed in the same kernel, or is no memory of its own.
    if (isa<ViewOpInterface>(from) || (value.hasOneUse() && isFusable(from))) {
      tree.insert(from);
      llvm::append_range(values, from->getOperands());
      continue;
    }
    bool isThere = llvm::any_of(value.getUsers(), [&](Operation *user) {
      if (tree.contains(user) || isa<ViewOpInterface>(user))
        return false;
      if (user->getNumResults() == 0)
        return true;
      Operation *at = formedAt(user);
      return at && !at->isBeforeInBlock(root);
    });
    held += isThere ? 0 : movedSteps(value);
  }
  return held;
}

std::string Fusion::whyNotKept(Operation *op, const Group &group) const {
  if (isRoundedWhenStored(op))
    return "what is stored of it is rounded";
  if (!fits(op, group))
    return "the kernel of its first user runs over other points or rows, or is long "
           "enough";
  if (!isSamePart(op, group.root))
    return "the kernel of its first user is of another part of the step";
  if (mayChangeInPlace(op) || mayChangeInPlace(group.root) ||
      group.kept.size() >= maxKept)
    return "the kernel of its first user stores nothing else";
  Shape shape = shapeOf(op->getResult(0)), domain = domainWith(op, group);
  auto row = dyn_cast<RowOpInterface>(op);
  Shape perRow = domain;
  for (int64_t d : row ? rowDimsOf(row) : group.rowDims)
    perRow[static_cast<size_t>(d)] = 1;
  if ((shape != domain && shape != perRow) || elementCount(domain) == 0)
    return "it has other elements than the kernel of its first user";
  Operation *first = firstReading(op, &group);
  if (!first || !group.root->isBeforeInBlock(first))
    return "others read it before the kernel of its first user has run";
  // A step of training has its peak where activations or gradients wait.
  if (heldLonger(op, group.root) > (isStep ? 0 : movedSteps(op->getResult(0))))
    return "what it reads would have to be kept longer";
  return "";
}

static bool isArgument(Value value) {
  while (isa_and_nonnull<ViewOpInterface>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return isa<BlockArgument>(value);
}

/// Whether computing it later, too, keeps no more alive than its result would. An
/// argument may be a state, in whose place another one is made once nobody reads it.
static bool keepsLessAlive(Operation *op) {
  double read = 0;
  for (Value operand : op->getOperands()) {
    if (isArgument(operand))
      return false;
    read += isUniform(operand) ? 0 : movedSteps(operand);
  }
  return read <= movedSteps(op->getResult(0));
}

Fusion::Place Fusion::choosePlace(Operation *op, const Readers &readers,
                                  std::string &why) const {
  double before = 0;
  for (Group *group : readers.groups)
    before += group->cost.steps();
  // The kernels of its users load it, now.
  KernelCost own;
  own.add(op, pointsOf(op, shapeOf(op->getResult(0))));
  own.store(op->getResult(0));
  Place best;
  best.steps = before + own.steps();
  auto with = [&](Group *group) {
    KernelCost cost = group->cost;
    cost.add(op, pointsOf(op, domainWith(op, *group)));
    return cost;
  };
  bool fitsAll = llvm::all_of(readers.groups, [&](Group *g) { return fits(op, *g); });
  bool isOne = readers.groups.size() == 1;
  if (!fitsAll)
    why = "the kernel of its users runs over other points or rows, or is long enough";
  if (!readers.others && fitsAll &&
      (isOne || (isa<PayloadOpInterface>(op) && !isRoundedWhenStored(op) &&
                 keepsLessAlive(op) && llvm::all_of(readers.groups, [&](Group *group) {
                   return isSamePart(op, group->root);
                 })))) {
    double steps = 0;
    for (Group *group : readers.groups)
      steps += with(group).steps();
    if (steps <= best.steps)
      best = {readers.groups, false, steps};
    else
      why = "computing it at each of their points takes longer than storing it";
  }
  if (isOne && !readers.others)
    return best;
  // The others find it once the first of these kernels has run.
  Group *first = *llvm::min_element(readers.groups, [](Group *a, Group *b) {
    return a->root->isBeforeInBlock(b->root);
  });
  if (std::string reason = whyNotKept(op, *first); !reason.empty()) {
    if (best.groups.empty())
      why = reason;
    return best;
  }
  KernelCost cost = with(first);
  cost.store(op->getResult(0));
  // The pass over a row that stores is another than the one that takes a sum of it.
  if (!first->rowDims.empty() && isa<PayloadOpInterface>(op))
    cost.repeat(op, pointsOf(op, first->domain));
  double steps = before - first->cost.steps() + cost.steps();
  return steps <= best.steps ? Place{{first}, true, steps} : best;
}

void Fusion::findGroups(func::FuncOp function) {
  isStep = llvm::any_of(function.front().without_terminator(),
                        [](Operation &op) { return op.hasAttr(phaseAttr); });
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (!isFusable(&op) || chained.contains(&op) || attentions.absorbed.contains(&op))
      continue;
    Readers readers = readersOf(&op);
    std::string why;
    Place place;
    if (!readers.groups.empty() && op.getNumResults() == 1)
      place = choosePlace(&op, readers, why);
    for (Group *group : place.groups) {
      join(&op, *group);
      if (place.isKept) {
        group->kept.push_back(op.getResult(0));
        group->cost.store(op.getResult(0));
      }
    }
    if (!place.groups.empty())
      continue;
    if (!why.empty())
      whyApart.emplace_back(&op, "it is a kernel of its own: " + why);
    auto group = std::make_unique<Group>();
    group->root = &op;
    group->numOps = 0;
    group->domain = shapeOf(op.getResult(0));
    for (Value result : op.getResults())
      if (!result.use_empty())
        group->cost.store(result);
    join(&op, *group);
    groups.push_back(std::move(group));
  }
}

const Group *Fusion::groupAt(Operation *op) const {
  auto found = groupsOf.find(op);
  return found != groupsOf.end() && found->second.front()->root == op
             ? found->second.front()
             : nullptr;
}

bool Fusion::isIn(Operation *op, const Group &group) const {
  auto found = groupsOf.find(op);
  return found != groupsOf.end() && llvm::is_contained(found->second, &group);
}

bool Fusion::isAbsorbed(Operation *op) const {
  return chained.contains(op) || attentions.absorbed.contains(op) ||
         (groupsOf.contains(op) && !groupAt(op));
}

const Attention *Fusion::attentionAt(Operation *op) const {
  auto found = attentions.byRoot.find(op);
  return found == attentions.byRoot.end() ? nullptr : &found->second;
}

Operation *Fusion::formedAt(Operation *op) const {
  if (attentions.absorbed.contains(op))
    return nullptr;
  if (auto found = groupsOf.find(op); found != groupsOf.end())
    return (*llvm::max_element(
                found->second,
                [](Group *a, Group *b) { return a->root->isBeforeInBlock(b->root); }))
        ->root;
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
