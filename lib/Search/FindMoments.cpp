//===- FindMoments.cpp - Moments that ranks gather together ---------------===//
#include "FindMoments.h"

#include "partita/Comm/Order.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;
using kernels::OpKind;
using kernels::Post;

/// Tells if the op divides by a number. Of pointwise functions of two numbers that no
/// engine applies, the quotient alone is linear in the first one only.
static bool divides(const FlowOp &op) {
  auto isLinearIn = [&](int32_t operand) {
    return std::ranges::any_of(op.rule.linear, [&](const LinearSet &set) {
      return set.kind == ReduceKind::Sum && set.operands == std::vector{operand};
    });
  };
  return op.facts.kind == OpKind::Pointwise && op.facts.post == Post::None &&
         op.operands.size() == 2 && isLinearIn(0) && !isLinearIn(1);
}

static bool sumsRows(const FlowOp &op) {
  return op.facts.kind == OpKind::Row && op.facts.reducesRow && op.facts.keepsDims &&
         std::ranges::all_of(op.rule.factors, [](const Factor &factor) {
           const loop::Reduction *reduction = factor.reduction();
           return !reduction || reduction->reduce == ReduceKind::Sum;
         });
}

int32_t MomentFinder::makerOf(int32_t number, size_t operand) const {
  const int32_t value = op(number).operands[operand];
  const auto use = FlowUse{number, static_cast<int32_t>(operand)};
  for (const ServedLayout &service : services(value))
    if (std::ranges::count(service.uses, use))
      return -1;
  return producer(value);
}

bool MomentFinder::onlyReduces(const FlowMean &mean, const ServedLayout &service) const {
  Layout from =
      resultLayout(op(mean.share).rule, strategies[static_cast<size_t>(mean.share)], 0)
          .canonicalized();
  if (service.halo || service.from >= 0 || from.partial.size() != 1 ||
      from.partial[0].kind != ReduceKind::Sum)
    return false;
  from.partial.clear();
  return from.canonicalized() == service.layout.canonicalized();
}

std::optional<FlowMean> MomentFinder::meanOf(int32_t share) const {
  if (share < 0 || op(share).kind != FlowKind::Compute || !divides(op(share)))
    return std::nullopt;
  FlowMean mean{makerOf(share, 0), share, op(share).results[0], {}};
  if (mean.sum < 0 || op(mean.sum).kind != FlowKind::Compute || !sumsRows(op(mean.sum)))
    return std::nullopt;
  const FlowValue &elements = graph.values[static_cast<size_t>(op(mean.sum).operands[0])];
  int64_t count = 1;
  for (int64_t dim : op(mean.sum).facts.rowDims)
    count *= elements.shape[static_cast<size_t>(dim)];
  const FlowOp &number = op(producer(op(share).operands[1]));
  const std::vector<ServedLayout> served = services(mean.value);
  if (number.uniform != static_cast<double>(count) || served.size() != 1 ||
      !onlyReduces(mean, served[0]))
    return std::nullopt;
  mean.whole = served[0].layout;
  return mean;
}

std::optional<FlowMoments> MomentFinder::momentsOf(int32_t share) const {
  auto variance = meanOf(share);
  const int32_t square = variance ? makerOf(variance->sum, 0) : -1;
  if (square < 0 || op(square).facts.post != Post::Mul ||
      op(square).operands[0] != op(square).operands[1])
    return std::nullopt;
  const int32_t distance = makerOf(square, 0);
  if (distance < 0 || op(distance).facts.post != Post::Sub ||
      op(distance).operands.size() != 2)
    return std::nullopt;
  auto mean = meanOf(producer(op(distance).operands[1]));
  if (!mean || makerOf(distance, 1) >= 0 ||
      op(mean->sum).operands[0] != op(distance).operands[0] ||
      op(mean->sum).facts.rowDims != op(variance->sum).facts.rowDims)
    return std::nullopt;
  auto layoutOf = [&](int32_t number) {
    return operandLayout(op(number).rule, strategies[static_cast<size_t>(number)], 0)
        .canonicalized();
  };
  const Layout layout = layoutOf(mean->sum);
  if (layout != layoutOf(variance->sum) || layout != layoutOf(distance))
    return std::nullopt;
  auto groups = MomentGroups::of(layout, op(mean->sum).facts.rowDims);
  if (!groups || groups->count() < 2)
    return std::nullopt;
  const FlowValue &moment = graph.values[static_cast<size_t>(mean->value)];
  if (groups->gatheredBytes(elementCount(moment.shape), moment.elementBytes) >
      buckets::Options{}.joinBytes)
    return std::nullopt;
  return FlowMoments{std::move(*mean), std::move(*variance), distance, square,
                     std::move(*groups)};
}

/// Ops go from the last one on, as far as nobody else reads them. What the conversions
/// of mean and variance serve is made otherwise.
void MomentFinder::replace(const FlowMoments &moments) {
  replaced.insert(moments.variance.share);
  for (int32_t number : {moments.variance.sum, moments.square, moments.distance})
    if (std::ranges::all_of(
            graph.values[static_cast<size_t>(op(number).results[0])].uses,
            [&](const FlowUse &use) { return replaced.count(use.op) != 0; }))
      replaced.insert(number);
  replaced.insert(moments.mean.share);
  if (std::ranges::all_of(
          graph.values[static_cast<size_t>(op(moments.mean.sum).results[0])].uses,
          [&](const FlowUse &use) { return replaced.count(use.op) != 0; }))
    replaced.insert(moments.mean.sum);
}

std::vector<FlowMoments> MomentFinder::run() {
  std::vector<FlowMoments> found;
  for (size_t o = 0; o < graph.ops.size(); ++o)
    if (auto moments = momentsOf(static_cast<int32_t>(o))) {
      replace(*moments);
      found.push_back(std::move(*moments));
    }
  return found;
}
