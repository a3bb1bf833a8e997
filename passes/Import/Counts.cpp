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

#include "dialects/Interfaces/RuleCache.h"
#include "partita/Base/Layout/Reshard.h"
#include "partita/Reference/Kernels.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::import;

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
  auto &dims = counts[value];
  dims.resize(shapeOf(value).size());
  dims[d] = count;
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
  if (auto known = iotas.find(extent); known != iotas.end())
    return graph::WeightOp::create(builder, location,
                                   tensorType(builder.getContext(), DType::I64, {extent}),
                                   builder.getStringAttr(known->second));
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

/// The value as it is before the count of dim `d`, and neutral behind it; without counts
/// of its own.
Value Importer::withNeutral(Value value, size_t d, ReduceKind kind) {
  Shape shape = shapeOf(value);
  Value there = isThere(countOf(value, d), shape[d], d, shape.size());
  HostTensor neutral =
      HostTensor::zeros(*dtypeOf(getElementTypeOrSelf(value.getType())), {});
  fillNeutral(neutral, kind);
  return made("graph.where", {there, value, constant(neutral, "")});
}

Expected<Value> Importer::whole(Value value, size_t d, ReduceKind kind) {
  if (!countOf(value, d))
    return value;
  Value filled = withNeutral(value, d, kind);
  for (size_t other : countedDims(value))
    if (other != d)
      setCount(filled, other, countOf(value, other));
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
  CountRule(const Importer &importer, Operation *op, const ShardingRule &rule)
      : importer(importer), op(op), rule(rule), ofLoop(rule.factors.size()) {}

  const Importer &importer;
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
  Expected<void> add(unsigned o, size_t d) {
    Value operand = op->getOperand(o);
    const std::vector<int32_t> &loops = rule.operands[o][d];
    bool follows = loops.size() == 1 && factor(loops[0]).size == shapeOf(operand)[d];
    if (follows) {
      const Factor &loop = factor(loops[0]);
      follows = (loop.kind() == FactorKind::Parallel || loop.reduction()) &&
                !loop.window() && loop.indexOperand() < 0;
    }
    if (!follows)
      return makeError(importer.countText(operand, d) + ", and " +
                       op->getName().stripDialect().str() + " needs all of them");
    Value &known = ofLoop[static_cast<size_t>(loops[0])];
    if (!known)
      known = importer.countOf(operand, d);
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
    Value operand = op->getOperand(o), own = importer.countOf(operand, d);
    for (int32_t f : rule.operands[o][d]) {
      if (countOf(f) == own)
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
  CountRule rule(*this, op, *facts->rule);
  if (auto ok = rule.find(); !ok)
    return fail(ok.error());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
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
