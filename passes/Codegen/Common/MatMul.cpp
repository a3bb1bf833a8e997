//===- MatMul.cpp - Contractions as calls of a batched product ------------===//
#include "passes/Codegen/Common/MatMulLoops.h"

#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

#include <algorithm>
#include <array>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// One contraction on its way to a task. "Left" and "right" may change places, so that
/// the loop contiguous in the result belongs to the right one.
class Contraction {
public:
  Contraction(graph::ContractOp op, TaskFormer &former)
      : op(op), former(former), facts(ruleOf(op)), rule(*facts->rule), // verified

        chain(former.plan().postChain(op)), result(former.plan().callResult(op)),
        types{codegen::dtypeOf(op.getLhs()), codegen::dtypeOf(op.getRhs()),
              codegen::dtypeOf(result)} {}

  LogicalResult form() {
    findLoops();
    orientResult();
    former.setTensor(result, tensors[Result]);
    packReductions();
    chooseLoops();
    for (Side side : {Left, Right})
      if (!engineTakes(side))
        pack(side, loopsOf(side));
    return addTask();
  }

private:
  void findLoops();
  bool tryResult(const Tensor &wanted, const Tensor &dense);
  void orientResult();
  void denseResult();
  void swapSides();
  void packReductions();
  void chooseLoops();
  bool engineTakes(Side side) const;
  std::vector<Loop *> loopsOf(Side side);
  void pack(size_t tensor, const std::vector<Loop *> &order);
  size_t addPosts(Task &task, task::MatMul &params);
  LogicalResult addTask();

  DType typeOf(size_t tensor) const { return types[std::min<size_t>(tensor, Result)]; }
  bool moves(const Loop &loop, Side side) const {
    return (side == Left ? loop.inLeft : loop.inRight) || loop.isReduction();
  }

  graph::ContractOp op;
  TaskFormer &former;
  RuleRef facts;
  const ShardingRule &rule;
  ArrayRef<kernels::PostStep> chain;
  Value result;
  std::array<DType, 3> types;  ///< by Side; operands of post-ops have the result's
  std::vector<Tensor> tensors; ///< by Side
  std::vector<Loop> loops;     ///< unmerged
  std::vector<Loop> batch;
  Loop m, n, k;
};
} // namespace

void Contraction::findLoops() {
  tensors = {former.tensorOf(op.getLhs()), former.tensorOf(op.getRhs()), {}};
  for (const kernels::PostStep &step : chain)
    if (Value operand = former.plan().value(step.operand)) {
      tensors.push_back(former.tensorOf(operand));
      tensors.back().view = tensors.back().view.broadcast(shapeOf(result));
    }
  if (tryResult(former.allocateForUser(result), former.allocate(result)))
    return;
  // Some view's parts do not nest: dense tensors always do.
  for (size_t t = 0; t < tensors.size(); ++t)
    if (t != Result)
      tensors[t] = former.copied(tensors[t], typeOf(t), sourceName(op));
  bool nests = tryResult(former.allocate(result), former.allocate(result));
  assert(nests && "dense tensors nest with every rule");
  (void)nests;
}

/// Writing in the order that the user of the result reads is free unless it cuts the
/// product into smaller ones.
bool Contraction::tryResult(const Tensor &wanted, const Tensor &dense) {
  size_t fewest = SIZE_MAX;
  for (const Tensor *candidate : {&wanted, &dense}) {
    if (candidate != &wanted && wanted.view == dense.view)
      break;
    std::vector<View> views;
    for (const Tensor &tensor : tensors)
      views.push_back(tensor.view);
    views[Result] = candidate->view;
    auto found = contractLoops(rule, views);
    if (!found)
      continue;
    std::vector<Loop> merged = mergedLoops(*found, Left);
    auto count = static_cast<size_t>(
        llvm::count_if(merged, [](const Loop &loop) { return loop.inResult; }));
    // Nor must a weight become the left operand, which is not repacked.
    count += former.isWeight(tensors[Right]) && llvm::any_of(merged, [](const Loop &l) {
               return l.inLeft && !l.inRight && l.inResult && l.strides[Result] == 1;
             });
    if (count >= fewest)
      continue;
    fewest = count;
    loops = std::move(*found);
    tensors[Result] = *candidate;
  }
  return fewest != SIZE_MAX;
}

void Contraction::swapSides() {
  std::swap(tensors[Left], tensors[Right]);
  std::swap(types[Left], types[Right]);
  for (Loop &loop : loops) {
    std::swap(loop.inLeft, loop.inRight);
    std::swap(loop.strides[Left], loop.strides[Right]);
  }
}

/// The result's contiguous loop must belong to one operand alone, and that one is the
/// right one. Where it is a batch loop, the result gets another order in memory.
void Contraction::orientResult() {
  const Loop *column = nullptr;
  for (const Loop &loop : loops)
    if (loop.inResult && loop.strides[Result] == 1)
      column = &loop;
  if (column && column->isBatch()) {
    denseResult();
    column = nullptr;
    for (const Loop &loop : loops)
      if (loop.inResult && loop.strides[Result] == 1)
        column = &loop;
  }
  if (column && column->inLeft && !column->isBatch())
    swapSides();
}

/// Batch loops first, then those of the left, then those of the right operand.
void Contraction::denseResult() {
  std::vector<Loop *> order;
  auto add = [&](auto wanted) {
    for (Loop &loop : loops)
      if (loop.inResult && wanted(loop))
        order.push_back(&loop);
  };
  add([](const Loop &l) { return l.isBatch(); });
  add([](const Loop &l) { return l.inLeft && !l.inRight; });
  add([](const Loop &l) { return !l.inLeft && l.inRight; });
  int64_t stride = 1;
  for (Loop *loop : llvm::reverse(order)) {
    loop->strides[Result] = stride;
    stride *= loop->size;
  }
  // Loops come in the order of the result's dims.
  View view;
  auto next = loops.begin();
  for (int64_t size : shapeOf(result)) {
    view.dims.emplace_back();
    for (; size > 1; size /= next->size, ++next)
      view.dims.back().push_back({next->size, next->strides[Result]});
  }
  tensors[Result] = {former.addStorage(typeOf(Result), stride), std::move(view)};
}

/// The reductions must be one loop with one stride in each operand.
void Contraction::packReductions() {
  // Whether some order makes one loop of those that `tensors` see.
  auto isOne = [&](Side order, ArrayRef<Side> sides) {
    std::vector<Loop> seen;
    for (const Loop &loop : loops)
      if (loop.isReduction()) {
        Loop copy = loop;
        copy.inLeft = copy.inRight = true;
        copy.strides.clear();
        for (Side side : {Left, Right})
          copy.strides.push_back(
              loop.strides[llvm::is_contained(sides, side) ? side : order]);
        seen.push_back(std::move(copy));
      }
    std::vector<Loop> merged = mergedLoops(std::move(seen), order);
    return merged.size() <= 1 && (merged.empty() || (merged[0].strides[Left] != 0 &&
                                                     merged[0].strides[Right] != 0));
  };
  if (isOne(Left, {Left, Right}) || isOne(Right, {Left, Right}))
    return;
  bool keepLeft = isOne(Left, {Left}), keepRight = !keepLeft && isOne(Right, {Right});
  auto byStride = [&](Side side) {
    std::vector<Loop *> order = loopsOf(side);
    Side reductions = keepLeft ? Left : Right;
    std::stable_sort(order.begin(), order.end(), [&](const Loop *a, const Loop *b) {
      if (a->isReduction() != b->isReduction())
        return b->isReduction();
      return a->isReduction() && a->strides[reductions] > b->strides[reductions];
    });
    return order;
  };
  std::vector<Loop *> left = byStride(Left), right = byStride(Right);
  if (!keepLeft)
    pack(Left, left);
  if (!keepRight)
    pack(Right, right);
  // An operand that lacked a reduction now repeats along it.
  for (Loop &loop : loops)
    if (loop.isReduction())
      loop.inLeft = loop.inRight = true;
}

void Contraction::chooseLoops() {
  std::vector<Loop> merged = mergedLoops(loops, Left);
  if (llvm::count_if(merged, [](const Loop &l) { return l.isReduction(); }) > 1)
    merged = mergedLoops(loops, Right);
  Loop one;
  one.strides.assign(tensors.size(), 0);
  m = n = k = one;
  for (Loop &loop : merged) {
    bool both = loop.inLeft == loop.inRight;
    if (loop.isReduction())
      k = loop;
    else if (!both && loop.inRight && loop.strides[Result] == 1)
      n = loop;
    else if (!both && loop.inLeft && loop.size > m.size)
      std::swap(m, loop);
    if (loop.inResult && loop.size > 1 &&
        !(loop.inRight && !both && loop.strides[Result] == 1))
      batch.push_back(loop);
  }
}

/// One dim of a matrix must be contiguous, no stride negative, the first element aligned.
bool Contraction::engineTakes(Side side) const {
  const Loop &own = side == Left ? m : n;
  bool contiguous =
      own.size == 1 || k.size == 1 || own.strides[side] == 1 || k.strides[side] == 1;
  if ((own.size == 1 && k.size > 1 && k.strides[side] < 1) ||
      (k.size == 1 && own.size > 1 && own.strides[side] < 1))
    contiguous = false;
  auto negative = [&](const Loop &loop) { return loop.strides[side] < 0; };
  return contiguous && !negative(own) && !negative(k) && llvm::none_of(batch, negative) &&
         former.isAligned(tensors[side]);
}

std::vector<Loop *> Contraction::loopsOf(Side side) {
  std::vector<Loop *> order;
  bool merged = !batch.empty() || m.size * n.size * k.size > 1;
  if (!merged) {
    for (Loop &loop : loops)
      if (moves(loop, side))
        order.push_back(&loop);
    return order;
  }
  for (Loop &loop : batch)
    if (moves(loop, side))
      order.push_back(&loop);
  if (side == Left)
    order.insert(order.end(), {&m, &k});
  else
    order.insert(order.end(), {&k, &n});
  return order;
}

void Contraction::pack(size_t tensor, const std::vector<Loop *> &order) {
  Tensor from{tensors[tensor].storage, {tensors[tensor].view.offset, {}}};
  for (Loop *loop : order)
    from.view.dims.push_back(
        loop->size == 1 ? Parts() : Parts{{loop->size, loop->strides[tensor]}});
  tensors[tensor] = former.copied(from, typeOf(tensor), sourceName(op));
  int64_t stride = 1;
  for (Loop *loop : llvm::reverse(order)) {
    loop->strides[tensor] = stride;
    stride *= loop->size;
  }
}

/// A first sum with one value per column is the bias; other operands must be dense over
/// the dims along which they vary. Returns how many steps the call does.
size_t Contraction::addPosts(Task &task, task::MatMul &params) {
  size_t tensor = FirstPost;
  std::vector<Loop *> order;
  for (Loop &loop : batch)
    order.push_back(&loop);
  order.insert(order.end(), {&m, &n});
  for (auto [i, step] : llvm::enumerate(chain)) {
    task::PostOp post = step.post;
    if (step.operand < 0) {
      params.post.push_back(post);
      continue;
    }
    std::vector<Loop *> varying;
    bool whole = true;
    for (auto [d, loop] : llvm::enumerate(order))
      if (loop->strides[tensor] != 0) {
        post.mask |= int64_t(1) << d;
        varying.push_back(loop);
      } else {
        whole &= loop->size == 1;
      }
    bool perColumn = varying.size() == 1 && varying[0] == &n;
    if (!whole && !perColumn && !former.model().kernels.calls.broadcastsPosts)
      return i;
    int64_t expected = 1;
    bool dense = former.isAligned(tensors[tensor]);
    for (Loop *loop : llvm::reverse(varying)) {
      dense &= loop->strides[tensor] == expected;
      expected *= loop->size;
    }
    if (!dense)
      pack(tensor, varying);
    Place place = former.place(tensors[tensor++]);
    if (i == 0 && step.isSum() && perColumn) {
      params.bias_mask = 1;
      task.operands[task::MatMulBias] = place;
      continue;
    }
    params.post.push_back(post);
    task.operands.push_back(place);
  }
  return chain.size();
}

LogicalResult Contraction::addTask() {
  task::MatMul params;
  params.dtype = static_cast<uint8_t>(typeOf(Result));
  if (op.getSums()) {
    params.a_dtype = static_cast<uint8_t>(typeOf(Left));
    params.b_dtype = static_cast<uint8_t>(typeOf(Right));
  }
  params.m = m.size, params.n = n.size, params.k = k.size;
  // Strides of dims of size 1 are free: the dense ones.
  params.a_col = k.size == 1 ? 1 : k.strides[Left];
  params.a_row = m.size == 1 ? k.size * params.a_col : m.strides[Left];
  params.b_col = n.size == 1 ? 1 : n.strides[Right];
  params.b_row = k.size == 1 ? n.size * params.b_col : k.strides[Right];
  params.c_row = m.size == 1 ? n.size : m.strides[Result];
  if (k.size == 1 && params.a_row == 1)
    params.a_col = m.size;
  bool standing = true;
  for (const Loop &loop : batch) {
    params.batch.push_back(
        {loop.size, loop.strides[Left], loop.strides[Right], loop.strides[Result]});
    standing &= loop.strides[Right] == 0;
  }
  Task task{sourceName(op)};
  task.operands = {former.place(tensors[Left]), former.place(tensors[Right]),
                   former.place(tensors[Result]), Place(), Place()};
  params.b_packed = former.model().kernels.calls.packsWeights && standing &&
                    former.isWeight(tensors[Right]) && tensors[Right].view.offset == 0;
  size_t done = addPosts(task, params);
  task.made = former.namesOfCall(op, done);
  task.params = std::move(params);
  if (failed(
          former.addEngineCall(op, std::move(task), task::MatMulScratch, task::MatMulB)))
    return failure();
  if (done != chain.size())
    former.formRest(op, done, tensors[Result]);
  return success();
}

namespace {
struct ContractModel : TaskOpInterface::ExternalModel<ContractModel, graph::ContractOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    Value result = former.plan().callResult(op);
    if (elementCount(shapeOf(result)) == 0) {
      former.setTensor(result, former.allocate(result));
      return success();
    }
    if (elementCount(shapeOf(op->getOperand(0))) == 0) {
      if (failed(former.reduceNothing(op)))
        return failure();
      if (!former.plan().postChain(op).empty())
        former.formRest(op, 0, former.tensorOf(op->getResult(0)));
      return success();
    }
    return Contraction(cast<graph::ContractOp>(op), former).form();
  }
};
} // namespace

void codegen::attachMatMulModel(MLIRContext &context) {
  graph::ContractOp::attachInterface<ContractModel>(context);
}
