//===- Counts.cpp - Dims of which as many elements are there as data say --===//
//
// A dim with a count is to an op what a padded one is to the op of one rank: elements of
// which only the first are there. So the sharding rule says what becomes of it
// (docs/rules-any-op.md, Bounded sizes):
//
//     parallel loop     the dim of the result has the count
//     reduction         the neutral element is put behind the count, and all are there
//     any other         the op needs all elements, and is refused
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Importer.h"

#include "dialects/Graph/SeenPairs.h"
#include "dialects/Interfaces/RuleCache.h"
#include "partita/Base/Layout/Reshard.h"
#include "partita/Reference/Kernels.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

Value Importer::countOf(Value value, size_t d) const {
  auto it = counts.find(value);
  return it == counts.end() ? Value() : it->second[d];
}

SmallVector<size_t> Importer::countedDims(Value value) const {
  SmallVector<size_t> dims;
  if (auto it = counts.find(value); it != counts.end())
    for (size_t d = 0; d < it->second.size(); ++d)
      if (it->second[d])
        dims.push_back(d);
  return dims;
}

bool Importer::hasCounts(Operation *op) const {
  return llvm::any_of(op->getOperands(), [&](Value v) { return counts.contains(v); });
}

void Importer::setCount(Value value, size_t d, Value count) {
  assert(shapeOf(value)[d] > 1 && "a dim of size 1 belongs to no loop");
  count = sizes.addCount(count, shapeOf(value)[d]);
  auto &dims = counts[value];
  dims.resize(shapeOf(value).size());
  dims[d] = count;
}

Size Importer::sizeOf(Value value, size_t d) {
  Value count = countOf(value, d);
  return count ? sizes.ofCount(count) : Size(shapeOf(value)[d]);
}

void Importer::setSize(Value value, size_t d, const Size &size) {
  if (value && !size.isKnown())
    setCount(value, d, sizes.valueOf(size));
}

Expected<std::vector<Size>> Importer::inputSizes(const Node &node, size_t i) {
  Value operand = input(node, i);
  if (auto read = operand ? sizes.read(operand) : std::nullopt)
    return std::move(*read);
  auto known = constantIntegers(node, i);
  if (!known)
    return tl::unexpected(known.error());
  return std::vector<Size>(known->begin(), known->end());
}

std::string Importer::countText(Value value, size_t d) const {
  std::string name = "a value in it";
  for (const auto &entry : values)
    if (entry.second == value)
      name = "'" + entry.first().str() + "'";
  return "dim " + std::to_string(d) + " of " + name +
         " has as many elements as the data say (at most " +
         std::to_string(shapeOf(value)[d]) + ")";
}

/// An op that cannot fail, of values whose counts are the caller's matter.
Value Importer::made(StringRef op, ValueRange operands) {
  auto created = graph::createInferred(builder, location, op, operands);
  if (!created)
    llvm_unreachable("its operands were made to fit");
  return (*created)->getResult(0);
}

void Importer::forgetCounts(func::FuncOp function) {
  SmallVector<Value> gone;
  for (const auto &entry : counts)
    if (Value value = entry.first; value.getParentBlock() == &function.front())
      gone.push_back(value);
  for (Value value : gone)
    counts.erase(value);
  sizes.forget(&function.front());
  derivedCounts.clear();
}

Expected<void> Importer::checkAllThere(const Values &list,
                                       const std::string &otherwise) const {
  for (Value value : list)
    for (size_t d : value ? countedDims(value) : SmallVector<size_t>())
      return makeError(countText(value, d) + ", " + otherwise);
  return {};
}

Value Importer::countBy(StringRef op, Value count, int64_t number) {
  // A value of one function is none in another.
  std::string key =
      op.str() + " " + std::to_string(number) + " " +
      std::to_string(reinterpret_cast<uintptr_t>(count.getAsOpaquePointer()));
  Value &derived = derivedCounts[key];
  if (!derived || derived.getParentBlock() != builder.getInsertionBlock())
    derived =
        made(op, {count, scalar(builder.getI64Type(), static_cast<double>(number))});
  return derived;
}

Value Importer::places(int64_t extent) {
  if (auto known = iotas.find(extent); known != iotas.end()) {
    auto again = graph::WeightOp::create(
        builder, location, tensorType(builder.getContext(), DType::I64, {extent}),
        builder.getStringAttr(known->second));
    again->setAttr(graph::detail::progressionAttr, builder.getDenseI64ArrayAttr({0, 1}));
    return again;
  }
  std::vector<int64_t> all(static_cast<size_t>(extent));
  std::iota(all.begin(), all.end(), 0);
  Value made = constant(reference::tensor<int64_t>(DType::I64, {extent}, all),
                        "places_below_" + std::to_string(extent));
  if (auto kept = made.getDefiningOp<graph::WeightOp>())
    iotas[extent] = kept.getName().str();
  return made;
}

Value Importer::isThere(Value count, int64_t extent, size_t d, size_t rank) {
  Shape shape(rank, 1);
  shape[d] = extent;
  Value there = made("graph.less", {places(extent), count});
  if (rank == 1)
    return there;
  auto shaped = graph::createShaped(builder, location, "graph.reshape", there, shape);
  if (!shaped)
    llvm_unreachable("a vector is a tensor with dims of size 1");
  return (*shaped)->getResult(0);
}

/// The value as it is before the count of dim `d`, and `fill` behind it; without counts
/// of its own.
Value Importer::filledBehind(Value value, size_t d, const HostTensor &fill) {
  Shape shape = shapeOf(value);
  Value there = isThere(countOf(value, d), shape[d], d, shape.size());
  return made("graph.where", {there, value, constant(fill, "")});
}

Value Importer::withNeutral(Value value, size_t d, ReduceKind kind) {
  HostTensor neutral =
      HostTensor::zeros(*dtypeOf(getElementTypeOrSelf(value.getType())), {});
  fillNeutral(neutral, kind);
  return filledBehind(value, d, neutral);
}

void Importer::keepOtherCounts(Value from, Value to, size_t d) {
  for (size_t other : countedDims(from))
    if (other != d)
      setCount(to, other, countOf(from, other));
}

Expected<Value> Importer::whole(Value value, size_t d, ReduceKind kind) {
  if (!countOf(value, d))
    return value;
  Value filled = withNeutral(value, d, kind);
  keepOtherCounts(value, filled, d);
  return filled;
}

HostTensor Importer::lastInOrder(Type element, bool isDescending) {
  HostTensor last = HostTensor::zeros(*dtypeOf(element), {});
  fillNeutral(last, isDescending ? ReduceKind::Max : ReduceKind::Min);
  // A sort has NaN above all numbers.
  if (isa<FloatType>(element) && !isDescending)
    last = reference::tensor<double>(last.type, {},
                                     {std::numeric_limits<double>::quiet_NaN()});
  return last;
}

Expected<Value> Importer::lastInOrder(Value value, size_t d, bool isDescending) {
  if (!countOf(value, d))
    return value;
  Type element = getElementTypeOrSelf(value.getType());
  Value filled = filledBehind(value, d, lastInOrder(element, isDescending));
  keepOtherCounts(value, filled, d);
  return filled;
}

Expected<Value> Importer::whole(Value value) {
  Expected<Value> filled = value;
  for (size_t d : countedDims(value))
    if (filled)
      filled = whole(*filled, d, ReduceKind::Sum);
  return filled;
}

namespace {
/// What the rule of one op says about counts of its operands.
class CountRule {
public:
  CountRule(Importer &importer, Operation *op, const ShardingRule &rule)
      : importer(importer), op(op), rule(rule), ofLoop(rule.factors.size()) {}

  Importer &importer;
  Operation *op;
  const ShardingRule &rule;
  Values ofLoop; ///< null: all elements are there

  const Factor &factor(int32_t f) const { return rule.factors[static_cast<size_t>(f)]; }
  Value countOf(int32_t f) const { return ofLoop[static_cast<size_t>(f)]; }

  /// Finds the counts of loops; an error where the op needs all elements of one.
  Expected<void> find() {
    for (unsigned o = 0; o < op->getNumOperands(); ++o)
      for (size_t d : importer.countedDims(op->getOperand(o)))
        if (auto ok = add(o, d); !ok)
          return ok;
    for (unsigned o = 0; o < op->getNumOperands(); ++o)
      for (size_t d = 0; d < rule.operands[o].size(); ++d)
        if (auto ok = checkShared(o, d); !ok)
          return ok;
    return checkFirst();
  }

private:
  /// The count of the first loop of a dim that has a count: of one that is split into
  /// several, if the others divide it. Null: it cannot be said.
  Value countOfLoop(unsigned o, size_t d) const {
    Value operand = op->getOperand(o);
    const std::vector<int32_t> &loops = rule.operands[o][d];
    int64_t inner = 1, extent = shapeOf(operand)[d];
    if (loops.empty())
      return {};
    for (int32_t f : llvm::drop_begin(loops))
      inner *= factor(f).size;
    if (factor(loops[0]).size * inner != extent)
      return {};
    if (inner == 1)
      return importer.countOf(operand, d);
    auto outer = importer.sizes.exactDiv(importer.sizeOf(operand, d), inner);
    return outer ? importer.sizes.addCount(importer.sizes.valueOf(*outer), outer->most)
                 : Value();
  }

  Expected<void> add(unsigned o, size_t d) {
    Value operand = op->getOperand(o), count = countOfLoop(o, d);
    bool follows = count != nullptr;
    if (follows) {
      const Factor &loop = factor(rule.operands[o][d][0]);
      follows = (loop.kind() == FactorKind::Parallel || loop.reduction()) &&
                !loop.window() && loop.indexOperand() < 0;
    }
    if (!follows)
      return makeError(importer.countText(operand, d) + ", and " +
                       op->getName().stripDialect().str() + " needs all of them");
    Value &known = ofLoop[static_cast<size_t>(rule.operands[o][d][0])];
    if (!known)
      known = count;
    return {};
  }

  /// The elements that are there are the first of a result's dim.
  Expected<void> checkFirst() const {
    for (const TensorFactors &result : rule.results)
      for (const std::vector<int32_t> &loops : result)
        for (size_t i = 1; i < loops.size(); ++i)
          for (unsigned o = 0; countOf(loops[i]) && o < op->getNumOperands(); ++o)
            for (size_t d : importer.countedDims(op->getOperand(o)))
              if (rule.operands[o][d][0] == loops[i])
                return makeError(importer.countText(op->getOperand(o), d) + ", and " +
                                 op->getName().stripDialect().str() +
                                 " puts others between or behind them");
    return {};
  }

  /// Who shares a loop has as many elements.
  Expected<void> checkShared(unsigned o, size_t d) const {
    Value operand = op->getOperand(o);
    Value own = importer.countOf(operand, d) ? countOfLoop(o, d) : Value();
    for (int32_t f : rule.operands[o][d]) {
      if (countOf(f) == (f == rule.operands[o][d][0] ? own : Value()))
        continue;
      for (unsigned other = 0; other < op->getNumOperands(); ++other)
        for (size_t at = 0; at < rule.operands[other].size(); ++at)
          if (Value count = importer.countOf(op->getOperand(other), at);
              count && count != own && llvm::is_contained(rule.operands[other][at], f))
            return makeError(importer.countText(op->getOperand(other), at) +
                             ", which are not those of dim " + std::to_string(d) +
                             " of operand " + std::to_string(o) + " of " +
                             op->getName().stripDialect().str());
    }
    return {};
  }
};
} // namespace

Expected<Values> Importer::followCounts(Operation *op) {
  auto fail = [&](const Error &error) {
    for (Value result : op->getResults())
      counts.erase(result);
    op->erase();
    return tl::unexpected(error);
  };
  RuleRef facts = ruleOf(op);
  if (!facts->rule)
    return fail(facts->rule.error());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  CountRule rule(*this, op, *facts->rule);
  if (auto ok = rule.find(); !ok)
    return fail(ok.error());
  for (unsigned o = 0; o < op->getNumOperands(); ++o) {
    Value operand = op->getOperand(o);
    for (size_t d : countedDims(operand))
      if (const auto *sum = rule.factor(rule.rule.operands[o][d][0]).reduction())
        operand = *whole(operand, d, sum->reduce);
    for (const PaddingFill &fill : rule.rule.fills)
      for (size_t d : countedDims(operand))
        if (fill.operand == static_cast<int32_t>(o)) {
          Value filled = withNeutral(operand, d, fill.kind);
          for (size_t own : countedDims(operand))
            setCount(filled, own, countOf(operand, own));
          operand = filled;
        }
    op->setOperand(o, operand);
  }
  for (auto [r, result] : llvm::enumerate(op->getResults()))
    for (size_t d = 0; d < rule.rule.results[r].size(); ++d) {
      const std::vector<int32_t> &loops = rule.rule.results[r][d];
      Value count = loops.empty() ? Value() : rule.countOf(loops[0]);
      if (!count)
        continue;
      int64_t each = shapeOf(result)[d] / rule.factor(loops[0]).size;
      setCount(result, d, each == 1 ? count : countBy("graph.mul", count, each));
    }
  if (auto ok = checkSize(cast<RankedTensorType>(op->getResult(0).getType())); !ok)
    return fail(ok.error());
  return Values(op->result_begin(), op->result_end());
}
