//===- FormAttention.cpp - The kernel of an attention ---------------------===//
#include "passes/Codegen/Common/Attention.h"
#include "passes/Codegen/Common/AttentionScratch.h"
#include "passes/Codegen/Common/KernelBuilder.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static int64_t roundedUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

AttentionScratch::AttentionScratch(const KernelSpec &spec)
    : outer(static_cast<int64_t>(spec.numOuter())) {
  const int64_t *inner = spec.domain.data() + outer;
  depth = inner[0], width = inner[1], queries = inner[2], keys = inner[3];
  rows = roundedUp(spec.attention->queryBlock, tile);
  blockKeys = roundedUp(spec.attention->keyBlock, widestPanel);
  depthStride = roundedUp(depth, widestVector);
  widthStride = roundedUp(width, widestVector);
  auto take = [&](int64_t elements) {
    int64_t begin = total;
    total += roundedUp(elements, widestVector);
    return begin;
  };
  q = take(rows * depthStride);
  result = take(rows * widthStride);
  keysAcross = take(depthStride * blockKeys);
  values = take(blockKeys * widthStride);
  weights = take(tile * blockKeys);
  stage = take(widestVector * depthStride);
  top = take(rows), sum = take(rows), shrink = take(tile);
}

/// Keys and values of a block stay in the second-level cache, as many as there are; so do
/// queries and their results. A block of few queries transposes keys for little, a thread
/// without a block has nothing to do.
static void chooseBlocks(AttentionSpec &spec, const Shape &domain, int threads) {
  constexpr int64_t elements = 16'384, mostKeys = 256, fewestKeys = 64;
  constexpr int64_t mostQueries = 252, fewestQueries = 48;
  int64_t size = std::max(domain[0], domain[1]), outer = 1;
  for (size_t d = 2; d + 2 < domain.size(); ++d)
    outer *= domain[d];
  int64_t queries = domain[domain.size() - 2], keys = domain.back();
  spec.keyBlock =
      std::min(keys, std::clamp(elements / size / 64 * 64, fewestKeys, mostKeys));
  int64_t most = std::clamp(elements / size, fewestQueries, mostQueries);
  int64_t wanted = threads == 1 ? 1 : (8 * threads + outer - 1) / outer;
  int64_t count =
      std::max((queries + most - 1) / most, std::min(wanted, queries / fewestQueries));
  spec.queryBlock =
      std::min(queries, roundedUp((queries + count - 1) / count, AttentionScratch::tile));
}

namespace {
/// One attention on its way to a kernel.
class AttentionFormer {
public:
  AttentionFormer(const Attention &a, TaskFormer &former)
      : a(a), former(former), shape(a.domain()),
        builder(former, shape, {0, 1, rank() - 2, rank() - 1}) {}

  void form();

private:
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool isPlain(const View &view) const;
  void addOperand(Attention::Part part, Value value);
  std::pair<Tensor, View> placeResult(Value result);
  void findHiders();

  const Attention &a;
  TaskFormer &former;
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

void AttentionFormer::addOperand(Attention::Part part, Value value) {
  DType type = codegen::dtypeOf(value);
  Tensor tensor = former.tensorOf(value);
  std::optional<View> view = a.inDomain(part, tensor.view);
  if (!view || !isPlain(*view)) {
    tensor = former.copied(tensor, type, sourceName(a.output));
    view = a.inDomain(part, tensor.view);
  }
  builder.addOperand(tensor, *view, type);
}

std::pair<Tensor, View> AttentionFormer::placeResult(Value result) {
  Tensor tensor = former.allocateForUser(result);
  if (auto view = a.inDomain(Attention::Output, tensor.view); view && isPlain(*view))
    return {tensor, *view};
  tensor = former.allocate(result);
  return {tensor, *a.inDomain(Attention::Output, tensor.view)};
}

/// From the last op before the softmax back: a choice between scores and a constant, or
/// what is added to them.
void AttentionFormer::findHiders() {
  for (Operation *op : llvm::reverse(a.pointwise)) {
    auto isScore = [&](Value value) {
      Operation *from = value.getDefiningOp();
      return value == a.begin || (from && llvm::is_contained(a.pointwise, from));
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
  Value result = a.output->getResult(0);
  addOperand(Attention::Query, a.q);
  addOperand(Attention::Key, a.k);
  addOperand(Attention::Values, a.v);
  for (Operation *op : a.pointwise)
    builder.addMember(op);
  for (Operation *op : a.own)
    builder.addMember(op);
  spec.scale = a.scale;
  spec.zeroForNaN = a.zeroForNaN;
  spec.score = builder.score(codegen::dtypeOf(a.begin));
  builder.setNode(a.begin, spec.score);
  spec.logits = builder.nodeOf(a.softmax->getOperand(0));
  findHiders();
  chooseBlocks(spec, shape, former.target().team.threads);
  auto [tensor, view] = placeResult(result);
  builder.addOutput(-1, tensor, view, codegen::dtypeOf(result), false);
  former.setTensor(result, tensor);
  builder.setAttention(std::move(spec));
  builder.finish(sourceName(a.output));
}

void TaskFormer::noteApart() {
  for (const auto &[op, why] : fusion.apart())
    program.notes.emplace_back(sourceName(op), why);
}

LogicalResult TaskFormer::formAttention(const Attention &attention) {
  AttentionFormer(attention, *this).form();
  return success();
}
