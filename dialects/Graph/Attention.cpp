//===- Attention.cpp - Softmax between two products -----------------------===//
#include "dialects/Graph/Formula.h"
#include "dialects/Graph/SeenPairs.h"

#include "partita/Reference/Attention.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Type graph::detail::statisticType(Type type) {
  Type element = getElementTypeOrSelf(type);
  return element.isF64() ? element : Float32Type::get(type.getContext());
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

namespace {
/// Loops of an attention, and the tensors that have them.
class AttentionLoops {
public:
  /// Kinds of the loops over queries and over outer dims that keys lack, and over keys.
  struct Kinds {
    loop::Kind queries, groups, keys;
  };

  /// `shapes` begins with those of q, k and v.
  static Expected<AttentionLoops> of(const std::vector<Shape> &shapes,
                                     const Kinds &kinds);

  TensorFactors q, k, v, output, row;
  /// Dims of an operand of the payload, or an error.
  Expected<TensorFactors> scored(const Shape &shape) const;
  ShardingRule rule;

private:
  std::vector<int32_t> loop(int64_t size, const loop::Kind &kind, std::string name) {
    std::vector<int32_t> made = rule.addLoop(size, kind);
    if (!made.empty())
      rule.factors.back().name = std::move(name);
    return made;
  }

  TensorFactors scores;
  Shape whole; ///< of the scores
};
} // namespace

static std::string text(const Shape &shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

static Expected<void> checkShapes(const Shape &q, const Shape &k, const Shape &v) {
  size_t rank = q.size();
  if (rank < 2 || k.size() != rank || v.size() != rank)
    return makeError("q, k and v of ranks " + std::to_string(q.size()) + ", " +
                     std::to_string(k.size()) + " and " + std::to_string(v.size()) +
                     ": expected equal ranks of at least 2");
  if (q[rank - 1] != k[rank - 1])
    return makeError("q has rows of " + std::to_string(q[rank - 1]) +
                     " elements, and k of " + std::to_string(k[rank - 1]));
  if (k[rank - 2] != v[rank - 2])
    return makeError(std::to_string(k[rank - 2]) + " keys and " +
                     std::to_string(v[rank - 2]) + " values");
  for (size_t d = 0; d + 2 < rank; ++d)
    if (k[d] != v[d] || (k[d] != q[d] && k[d] != 1))
      return makeError("dim " + std::to_string(d) + " has size " + std::to_string(q[d]) +
                       " in q, " + std::to_string(k[d]) + " in k and " +
                       std::to_string(v[d]) +
                       " in v: expected equal sizes in k and v, those of q or 1");
  return {};
}

Expected<AttentionLoops> AttentionLoops::of(const std::vector<Shape> &shapes,
                                            const Kinds &kinds) {
  const Shape &q = shapes[0], &k = shapes[1], &v = shapes[2];
  if (auto ok = checkShapes(q, k, v); !ok)
    return tl::unexpected(ok.error());
  size_t outer = q.size() - 2;
  AttentionLoops loops;
  for (size_t d = 0; d < outer; ++d) {
    bool isGroup = k[d] != q[d];
    auto factors = loops.rule.addLoop(q[d], isGroup ? kinds.groups : loop::Parallel{});
    loops.q.push_back(factors);
    loops.k.push_back(isGroup ? std::vector<int32_t>() : factors);
  }
  loops.v = loops.k;
  loops.output = loops.row = loops.scores = loops.q;
  auto queries = loops.loop(q[outer], kinds.queries, "queries");
  auto keys = loops.loop(k[outer], kinds.keys, "keys");
  auto depth = loops.loop(q[outer + 1], loop::Replicate{}, "depth");
  auto width = loops.loop(v[outer + 1], loop::Replicate{}, "width");
  for (TensorFactors *rows : {&loops.q, &loops.output, &loops.row, &loops.scores})
    rows->push_back(queries);
  for (TensorFactors *rows : {&loops.k, &loops.v, &loops.scores})
    rows->push_back(keys);
  for (TensorFactors *columns : {&loops.q, &loops.k})
    columns->push_back(depth);
  for (TensorFactors *columns : {&loops.v, &loops.output})
    columns->push_back(width);
  loops.whole = q;
  loops.whole[outer + 1] = k[outer];
  return loops;
}

Expected<TensorFactors> AttentionLoops::scored(const Shape &shape) const {
  if (shape.size() > whole.size())
    return makeError("an operand of the payload has shape " + text(shape) +
                     ", and the scores " + text(whole));
  TensorFactors result;
  size_t skip = whole.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && shape[d] != whole[skip + d])
      return makeError("an operand of the payload has shape " + text(shape) +
                       ", which does not broadcast to that of the scores, " +
                       text(whole));
    result.push_back(shape[d] == 1 ? std::vector<int32_t>() : scores[skip + d]);
  }
  return result;
}

/// Adds the payload's operands, from `first` on.
static Expected<ShardingRule> withScored(AttentionLoops &loops,
                                         const std::vector<Shape> &shapes, size_t first) {
  for (size_t o = first; o < shapes.size(); ++o) {
    auto factors = loops.scored(shapes[o]);
    if (!factors)
      return tl::unexpected(factors.error());
    loops.rule.operands.push_back(std::move(*factors));
  }
  return std::move(loops.rule);
}

Expected<ShardingRule> AttentionOp::ruleFor(const std::vector<Shape> &shapes, Adaptor) {
  auto loops =
      AttentionLoops::of(shapes, {loop::Parallel{}, loop::Parallel{}, loop::Replicate{}});
  if (!loops)
    return tl::unexpected(loops.error());
  loops->rule.operands = {loops->q, loops->k, loops->v};
  loops->rule.results = {loops->output, loops->row, loops->row};
  return withScored(*loops, shapes, 3);
}

/// The rows that the gradients read beside q, k and v.
static Expected<ShardingRule> gradientRule(AttentionLoops &loops,
                                           const std::vector<Shape> &shapes) {
  Shape row(shapes[0].begin(), shapes[0].end() - 1), output = row;
  output.push_back(shapes[2].back());
  const std::pair<const char *, const Shape *> expected[] = {
      {"largest", &row}, {"sum", &row}, {"cotangent", &output}, {"delta", &row}};
  for (size_t i = 0; i < 4; ++i)
    if (shapes[3 + i] != *expected[i].second)
      return makeError(std::string(expected[i].first) + " has shape " +
                       text(shapes[3 + i]) + ", expected " + text(*expected[i].second));
  loops.rule.operands = {loops.q,   loops.k,      loops.v,  loops.row,
                         loops.row, loops.output, loops.row};
  return withScored(loops, shapes, 7);
}

Expected<ShardingRule> AttentionGradQueryOp::ruleFor(const std::vector<Shape> &shapes,
                                                     Adaptor) {
  auto loops =
      AttentionLoops::of(shapes, {loop::Parallel{}, loop::Parallel{}, loop::Reduction{}});
  if (!loops)
    return tl::unexpected(loops.error());
  loops->rule.results = {loops->q};
  return gradientRule(*loops, shapes);
}

Expected<ShardingRule> AttentionGradKeysOp::ruleFor(const std::vector<Shape> &shapes,
                                                    Adaptor) {
  auto loops = AttentionLoops::of(
      shapes, {loop::Reduction{}, loop::Reduction{}, loop::Parallel{}});
  if (!loops)
    return tl::unexpected(loops.error());
  loops->rule.results = {loops->k, loops->v};
  return gradientRule(*loops, shapes);
}

//===----------------------------------------------------------------------===//
// Verification and work
//===----------------------------------------------------------------------===//

template <typename Op> static LogicalResult verifyAttention(Op op) {
  auto operands = static_cast<int32_t>(op.getScored().size());
  const Payload &payload = op.getPayload();
  if (payload.numOperands() > operands + 1)
    return op.emitOpError("has a payload of ")
           << payload.numOperands() << " operands, the score among them, and " << operands
           << " further ones";
  if (!payload.attributeNames().empty())
    return op.emitOpError("has a payload with the attribute '")
           << payload.attributeNames()[0] << "'";
  Type type = getElementTypeOrSelf(op.getQ());
  if (!isa<FloatType>(type))
    return op.emitOpError("is of ") << type << ": expected floats";
  for (Value other : {op.getK(), op.getV()})
    if (getElementTypeOrSelf(other) != type)
      return op.emitOpError("has q of ")
             << type << " and k or v of " << getElementTypeOrSelf(other);
  return success();
}

template <typename Op> static LogicalResult verifyGradient(Op op) {
  Type statistic = graph::detail::statisticType(op.getQ().getType());
  for (Value row : {op.getLargest(), op.getSum(), op.getDelta()})
    if (getElementTypeOrSelf(row) != statistic)
      return op.emitOpError("has row statistics of ")
             << getElementTypeOrSelf(row) << ", expected " << statistic;
  return verifyAttention(op);
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this); }
LogicalResult AttentionGradQueryOp::verify() { return verifyGradient(*this); }
LogicalResult AttentionGradKeysOp::verify() { return verifyGradient(*this); }

/// Pairs of a query and a key.
template <typename Op> static int64_t pairsOf(Op op) {
  Shape q = shapeOf(op.getQ()), k = shapeOf(op.getK());
  return elementCount(q) / std::max<int64_t>(q.back(), 1) * k[k.size() - 2];
}
/// Operations of the pairs that are seen, so many each: kernels leave the others out.
template <typename Op> static int64_t flopsOf(Op op, int64_t perPair) {
  Shape q = shapeOf(op.getQ()), k = shapeOf(op.getK());
  const double share = graph::detail::seenShare(q[q.size() - 2], k[k.size() - 2],
                                                op.getScored(), op.getPayload());
  return static_cast<int64_t>(share * static_cast<double>(pairsOf(op) * perPair));
}
/// Elements of a key and of a value, so many times each.
template <typename Op> static int64_t products(Op op, int64_t depths, int64_t widths) {
  return depths * shapeOf(op.getQ()).back() + widths * shapeOf(op.getV()).back();
}
/// Steps of a weight beside products and payload: an exponential, and what brings it from
/// pass to pass.
static constexpr int64_t weightSteps = 24;

int64_t AttentionOp::getFlops() {
  return flopsOf(*this, 2 * products(*this, 1, 1) + getPayload().flops() + 4);
}
int64_t AttentionOp::getKernelSteps() {
  return pairsOf(*this) * (products(*this, 1, 1) + getPayload().steps() + weightSteps);
}
int64_t AttentionGradQueryOp::getFlops() {
  return flopsOf(*this, 2 * products(*this, 2, 1) + 2 * getPayload().flops() + 6);
}
int64_t AttentionGradQueryOp::getKernelSteps() {
  return pairsOf(*this) *
         (products(*this, 2, 1) + 2 * getPayload().steps() + weightSteps);
}
int64_t AttentionGradKeysOp::getFlops() {
  return flopsOf(*this, 2 * products(*this, 2, 2) + 2 * getPayload().flops() + 6);
}
int64_t AttentionGradKeysOp::getKernelSteps() {
  return pairsOf(*this) *
         (products(*this, 2, 2) + 2 * getPayload().steps() + weightSteps);
}

//===----------------------------------------------------------------------===//
// Evaluation and gradient
//===----------------------------------------------------------------------===//

template <typename Op> static reference::AttentionForm formOf(Op op) {
  return {op.getPayload(), op.getScale().convertToDouble(), op.getZeroForNan()};
}

static std::vector<const HostTensor *> from(ArrayRef<const HostTensor *> operands,
                                            size_t first) {
  return {operands.begin() + static_cast<std::ptrdiff_t>(first), operands.end()};
}

Expected<std::vector<HostTensor>>
AttentionOp::evaluate(ArrayRef<const HostTensor *> operands) {
  return reference::attention(formOf(*this), *operands[0], *operands[1], *operands[2],
                              from(operands, 3),
                              *dtypeOf(getElementTypeOrSelf(getSum())));
}

static reference::AttentionRows rowsOf(ArrayRef<const HostTensor *> operands) {
  return {*operands[3], *operands[4], *operands[5], *operands[6]};
}

Expected<std::vector<HostTensor>>
AttentionGradQueryOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto all =
      reference::attentionGradients(formOf(*this), *operands[0], *operands[1],
                                    *operands[2], rowsOf(operands), from(operands, 7));
  return oneResult(std::move(all[0]));
}

Expected<std::vector<HostTensor>>
AttentionGradKeysOp::evaluate(ArrayRef<const HostTensor *> operands) {
  auto all =
      reference::attentionGradients(formOf(*this), *operands[0], *operands[1],
                                    *operands[2], rowsOf(operands), from(operands, 7));
  all.erase(all.begin());
  return all;
}

Expected<std::vector<Value>> AttentionOp::gradients(OpBuilder &builder,
                                                    ArrayRef<Value> cotangents,
                                                    const std::vector<bool> &wanted) {
  for (size_t i = 3; i < wanted.size(); ++i)
    if (wanted[i])
      return makeError("its payload's operands have no gradient");
  if (cotangents[1] || cotangents[2])
    return makeError("its row statistics have no gradient");
  Formula f(builder, getLoc());
  Value g = cotangents[0];
  auto last = static_cast<int64_t>(f.shape(g).size()) - 1;
  Type statistic = graph::detail::statisticType(getQ().getType());
  Value delta = f.sum(f.mul(f.cast(g, statistic), f.cast(getOutput(), statistic)), {last},
                      /*keep=*/false);
  Values operands{getQ(), getK(), getV(), getLargest(), getSum(), g, delta};
  operands.insert(operands.end(), getScored().begin(), getScored().end());
  SmallVector<NamedAttribute> attrs{f.attr("payload", getPayloadAttr()),
                                    f.attr("scale", getScaleAttr()),
                                    f.attr("zero_for_nan", getZeroForNanAttr())};
  Values results(wanted.size());
  if (wanted[0])
    results[0] = f.op("attention_grad_query", operands, attrs);
  if (wanted[1] || wanted[2]) {
    Values both = f.ops("attention_grad_keys", 2, operands, attrs);
    results[1] = both[0], results[2] = both[1];
  }
  return f.results(std::move(results));
}
