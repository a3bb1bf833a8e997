//===- Sizes.cpp - Integers that follow from sizes that are data ----------===//
#include "passes/Import/Sizes.h"

#include "partita/Reference/Kernels.h"
#include "passes/Import/Compose.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::import;

/// Shapes and places are short; longer tensors are data.
static constexpr int64_t maxElements = 256;
/// Beyond it nothing is a size.
static constexpr int64_t limit = int64_t(1) << 48;

//===-- The same number ---------------------------------------------------===//

namespace {
/// Whether two values are computed in the same way from the same values.
class Comparison {
public:
  bool same(Value a, Value b, int depth = 0) {
    constexpr int maxDepth = 64;
    if (a == b)
      return true;
    auto x = dyn_cast<OpResult>(a), y = dyn_cast<OpResult>(b);
    if (!x || !y || depth > maxDepth || a.getType() != b.getType() ||
        x.getResultNumber() != y.getResultNumber())
      return false;
    Operation *one = x.getOwner(), *other = y.getOwner();
    // Without dictionaries of properties, which take most of the time to make.
    if (one->getName() != other->getName() ||
        one->getNumOperands() != other->getNumOperands() ||
        one->getRawDictionaryAttrs() != other->getRawDictionaryAttrs() ||
        !one->getName().compareOpProperties(one->getPropertiesStorage(),
                                            other->getPropertiesStorage()))
      return false;
    auto [known, isNew] = pairs.try_emplace({a, b}, false);
    if (!isNew)
      return known->second;
    for (auto [p, q] : llvm::zip_equal(one->getOperands(), other->getOperands()))
      if (!same(p, q, depth + 1))
        return false;
    return pairs[{a, b}] = true;
  }

private:
  llvm::DenseMap<std::pair<Value, Value>, bool> pairs;
};
} // namespace

Value Sizes::addCount(Value count, int64_t most) {
  // A count that is a sum of others needs no unknown of its own.
  if (!read(count))
    (void)unknown(count, 0, 0, most);
  auto sum = read(count);
  for (Value known : counts)
    if (known == count || (known.getParentBlock() == count.getParentBlock() && sum &&
                           ofCount(known) == sum->front()))
      return known;
  counts.push_back(count);
  return count;
}

void Sizes::forget(Block *block) {
  llvm::erase_if(counts, [&](Value v) { return v.getParentBlock() == block; });
  for (Unknown &entry : unknowns) {
    if (entry.of && entry.of.getParentBlock() == block)
      entry = Unknown();
    if (entry.scalar && entry.scalar.getParentBlock() == block)
      entry.scalar = Value();
  }
}

size_t Sizes::find(Value of, int64_t element) {
  auto first = [&](auto isIt) {
    return static_cast<size_t>(llvm::find_if(unknowns,
                                             [&](const Unknown &entry) {
                                               return entry.of &&
                                                      entry.element == element &&
                                                      isIt(entry.of);
                                             }) -
                               unknowns.begin());
  };
  size_t number = first([&](Value known) { return known == of; });
  if (number != unknowns.size())
    return number;
  return first([&](Value known) {
    return known.getParentBlock() == of.getParentBlock() && Comparison().same(known, of);
  });
}

Size Sizes::unknown(Value of, int64_t element, int64_t least, int64_t most) {
  size_t number = find(of, element);
  if (number == unknowns.size())
    unknowns.push_back({of, element, least, most, {}});
  Unknown &entry = unknowns[number];
  entry.least = std::max(entry.least, least);
  entry.most = std::min(entry.most, most);
  Size size;
  size.times[number] = 1;
  return bounded(size);
}

//===-- Sums --------------------------------------------------------------===//

Size Sizes::bounded(Size size) const {
  size.least = size.most = size.constant;
  for (auto [number, times] : size.times) {
    const Unknown &entry = unknowns[number];
    size.least += times * (times > 0 ? entry.least : entry.most);
    size.most += times * (times > 0 ? entry.most : entry.least);
  }
  return size;
}

Size Sizes::add(const Size &a, const Size &b) {
  Size sum = a;
  sum.constant += b.constant;
  for (auto [number, times] : b.times)
    if ((sum.times[number] += times) == 0)
      sum.times.erase(number);
  return bounded(sum);
}

Size Sizes::scaled(const Size &a, int64_t times) {
  Size product = a;
  product.constant *= times;
  for (auto &entry : product.times)
    entry.second *= times;
  if (times == 0)
    product.times.clear();
  return bounded(product);
}

std::optional<Size> Sizes::exactDiv(const Size &a, int64_t by) {
  Size quotient = a;
  bool isExact = a.constant % by == 0;
  quotient.constant /= by;
  for (auto &entry : quotient.times) {
    isExact &= entry.second % by == 0;
    entry.second /= by;
  }
  return isExact ? std::optional(bounded(quotient)) : std::nullopt;
}

Size Sizes::computed(StringRef op, const Size &a, const Size &b) {
  Compose c(importer);
  Value result = c.op(op, {valueOf(a), valueOf(b)});
  auto size = result ? read(result) : std::nullopt;
  if (!size)
    llvm_unreachable("an op of two scalars that are known in bounds");
  return size->front();
}

Size Sizes::min(const Size &a, const Size &b) {
  return sub(a, b).most <= 0 ? a : sub(a, b).least >= 0 ? b : computed("min", a, b);
}

Size Sizes::max(const Size &a, const Size &b) {
  return sub(a, b).least >= 0 ? a : sub(a, b).most <= 0 ? b : computed("max", a, b);
}

Size Sizes::ceilDiv(const Size &a, int64_t by) {
  if (by == 1)
    return a;
  if (auto exact = exactDiv(a, by))
    return *exact;
  Size above = add(a, by - 1);
  return above.isKnown() ? Size(above.constant / by) : computed("div", above, by);
}

Size Sizes::ofCount(Value count) {
  auto size = read(count);
  if (!size)
    llvm_unreachable("a count is known in bounds");
  return size->front();
}

Value Sizes::valueOf(const Size &size) {
  Compose c(importer);
  Value sum;
  for (auto [number, times] : size.times) {
    Unknown &entry = unknowns[number];
    if (!entry.scalar ||
        entry.scalar.getParentBlock() != importer.builder.getInsertionBlock()) {
      int64_t elements = elementCount(c.shape(entry.of));
      Value one = c.reshape(entry.of, {elements});
      one = c.reshape(
          elements == 1 ? one : c.slice(one, 0, entry.element, entry.element + 1), {});
      one = c.type(one) == c.i64() ? one : c.cast(one, c.i64());
      unknowns[number].scalar = one;
    }
    Value term = unknowns[number].scalar;
    if (times != 1)
      term = c.mul(term, static_cast<double>(times));
    sum = sum ? c.add(sum, term) : term;
  }
  if (!sum)
    return c.scalar(c.i64(), static_cast<double>(size.constant));
  return size.constant == 0 ? sum : c.add(sum, static_cast<double>(size.constant));
}

//===-- Reading the ops ---------------------------------------------------===//

/// Whether a type has all integers of these bounds.
static bool holds(Type type, const Size &size) {
  int64_t most = std::max(std::abs(size.least), std::abs(size.most));
  if (isa<Float32Type>(type))
    return most <= int64_t(1) << 24;
  return isa<Float64Type>(type) ? most <= limit
         : type.isInteger(64)   ? most <= limit
         : type.isInteger(32)   ? most < int64_t(1) << 31
                                : type.isInteger(1) && most <= 1;
}

std::optional<std::vector<Size>> Sizes::read(Value value) {
  Known known;
  return readOnce(value, known);
}

std::optional<Sizes::Elements> Sizes::readOnce(Value value, Known &known) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  auto type = cast<RankedTensorType>(value.getType());
  Type element = type.getElementType();
  std::optional<Elements> elements;
  if (type.getNumElements() > maxElements ||
      !(element.isSignlessInteger() || isa<Float32Type, Float64Type>(element)))
    return known[value] = elements;
  if (auto constant = importer.constantValue(value)) {
    elements.emplace();
    for (double number : reference::values<double>(*constant)) {
      if (number != std::floor(number) || std::abs(number) > limit)
        return known[value] = std::nullopt;
      elements->push_back(static_cast<int64_t>(number));
    }
    return known[value] = elements;
  }
  if (Operation *op = value.getDefiningOp(); op && op->getNumResults() == 1)
    elements = compute(op, known);
  if (!elements && type.getNumElements() == 1)
    if (size_t i = find(value, 0); i < unknowns.size())
      elements = Elements{unknown(value, 0, unknowns[i].least, unknowns[i].most)};
  // A flag is 0 or 1, whatever it is computed from: the condition of an If.
  if (!elements && element.isInteger(1) && type.getNumElements() == 1)
    elements = Elements{unknown(value, 0, 0, 1)};
  if (elements)
    if (!llvm::all_of(*elements, [&](const Size &size) { return holds(element, size); }))
      elements.reset();
  return known[value] = elements;
}

std::optional<Sizes::Elements> Sizes::compute(Operation *op, Known &known) {
  if (isa<graph::ReshapeOp, graph::SliceOp, graph::ConcatOp, graph::BroadcastOp,
          graph::TransposeOp, graph::GatherOp>(op))
    return moved(op, known);
  if (isa<graph::ReduceOp>(op))
    return reduced(op, known);
  return elementwise(op, known);
}

/// The op itself says which element goes where: of the elements' numbers.
std::optional<Sizes::Elements> Sizes::moved(Operation *op, Known &known) {
  Elements all;
  std::vector<HostTensor> numbers;
  for (Value operand : op->getOperands()) {
    Shape shape = shapeOf(operand);
    if (isa<graph::GatherOp>(op) && operand == op->getOperand(1)) {
      auto indices = importer.constantValue(operand);
      if (!indices)
        return std::nullopt;
      numbers.push_back(*indices);
      continue;
    }
    auto elements = readOnce(operand, known);
    if (!elements)
      return std::nullopt;
    std::vector<int64_t> here;
    for (const Size &size : *elements) {
      here.push_back(static_cast<int64_t>(all.size()));
      all.push_back(size);
    }
    numbers.push_back(reference::tensor<int64_t>(DType::I64, shape, here));
  }
  std::vector<const HostTensor *> operands;
  for (const HostTensor &tensor : numbers)
    operands.push_back(&tensor);
  auto result = cast<EvaluateOpInterface>(op).evaluate(operands);
  if (!result)
    return std::nullopt;
  Elements elements;
  for (int64_t number : reference::values<int64_t>(result->front()))
    elements.push_back(all[static_cast<size_t>(number)]);
  return elements;
}

/// Of one element, over all of its operand's.
std::optional<Sizes::Elements> Sizes::reduced(Operation *op, Known &known) {
  auto reduce = cast<graph::ReduceOp>(op);
  auto from = readOnce(reduce.getInput(), known);
  if (!from || elementCount(shapeOf(op->getResult(0))) != 1 || from->empty())
    return std::nullopt;
  auto other = [&](int64_t least, int64_t most) {
    return Elements{unknown(op->getResult(0), 0, least, most)};
  };
  ReduceKind kind = reduce.getKind();
  Size all = from->front();
  int64_t factor = 1;
  if (kind == ReduceKind::Sum) {
    for (const Size &size : llvm::drop_begin(*from))
      all = add(all, size);
    return Elements{all};
  }
  if (kind == ReduceKind::Prod) {
    llvm::erase_if(*from, [&](const Size &size) {
      factor *= size.isKnown() ? size.least : 1;
      return size.isKnown();
    });
    if (from->size() <= 1)
      return Elements{from->empty() ? Size(factor) : scaled(from->front(), factor)};
    int64_t least = factor, most = factor;
    for (const Size &size : *from) {
      if (factor < 0 || size.least < 0 || size.most > limit / std::max<int64_t>(1, most))
        return std::nullopt;
      least *= size.least;
      most *= size.most;
    }
    return other(least, most);
  }
  bool isMax = kind == ReduceKind::Max;
  int64_t least = all.least, most = all.most;
  for (const Size &size : llvm::drop_begin(*from)) {
    least = isMax ? std::max(least, size.least) : std::min(least, size.least);
    most = isMax ? std::max(most, size.most) : std::min(most, size.most);
  }
  for (const Size &size : *from)
    if (llvm::all_of(*from, [&](const Size &every) {
          Size above = sub(every, size);
          return isMax ? above.most <= 0 : above.least >= 0;
        }))
      return Elements{size};
  return other(least, most);
}

std::optional<Sizes::Elements> Sizes::elementwise(Operation *op, Known &known) {
  Value result = op->getResult(0);
  Shape shape = shapeOf(result);
  std::vector<Elements> operands;
  std::vector<std::vector<int64_t>> strides;
  for (Value operand : op->getOperands()) {
    auto elements = readOnce(operand, known);
    Shape own = shapeOf(operand);
    if (!elements || own.size() > shape.size())
      return std::nullopt;
    operands.push_back(*elements);
    std::vector<int64_t> stride(shape.size() - own.size(), 0);
    for (auto [extent, step] : llvm::zip_equal(own, reference::strides(own)))
      stride.push_back(extent == 1 ? 0 : step);
    strides.push_back(stride);
  }
  Elements elements;
  bool isKnown = true;
  reference::forEachIndex(shape, [&](const Shape &index) {
    Elements here;
    for (size_t o = 0; o < operands.size(); ++o) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d)
        at += index[d] * strides[o][d];
      if (at < static_cast<int64_t>(operands[o].size()))
        here.push_back(operands[o][static_cast<size_t>(at)]);
    }
    isKnown &= here.size() == operands.size();
    auto size = isKnown ? scalarOp(op->getName().stripDialect(), here, result,
                                   static_cast<int64_t>(elements.size()))
                        : std::nullopt;
    isKnown &= size.has_value();
    elements.push_back(size.value_or(0));
  });
  return isKnown ? std::optional(elements) : std::nullopt;
}

std::optional<Size> Sizes::scalarOp(StringRef name, const Elements &x, Value result,
                                    int64_t element) {
  Type type = getElementTypeOrSelf(result.getType());
  bool isReal = isa<FloatType>(type);
  auto other = [&](int64_t least, int64_t most) {
    return std::optional(unknown(result, element, least, most));
  };
  auto decided = [&](bool yes, bool no) {
    return yes ? std::optional(Size(1)) : no ? std::optional(Size(0)) : other(0, 1);
  };
  if (name == "cast")
    return holds(type, x[0]) ? std::optional(x[0]) : std::nullopt;
  if (x.size() == 1) {
    if (name == "neg")
      return scaled(x[0], -1);
    if (name == "floor" || name == "ceil" || name == "round")
      return x[0];
    if (name == "not")
      return decided(x[0].most == 0, x[0].least == 1);
    return std::nullopt;
  }
  if (name == "where") {
    if (x[0].isKnown())
      return x[0].least != 0 ? x[1] : x[2];
    return x[1] == x[2]
               ? std::optional(x[1])
               : other(std::min(x[1].least, x[2].least), std::max(x[1].most, x[2].most));
  }
  if (x.size() != 2)
    return std::nullopt;
  const Size &a = x[0], &b = x[1];
  Size d = sub(a, b);
  if (name == "add")
    return add(a, b);
  if (name == "sub")
    return d;
  if (name == "less")
    return decided(d.most < 0, d.least >= 0);
  if (name == "less_equal")
    return decided(d.most <= 0, d.least > 0);
  if (name == "greater")
    return decided(d.least > 0, d.most <= 0);
  if (name == "greater_equal")
    return decided(d.least >= 0, d.most < 0);
  if (name == "equal")
    return decided(d.isKnown() && d.least == 0, d.least > 0 || d.most < 0);
  if (name == "and")
    return decided(a.least == 1 && b.least == 1, a.most == 0 || b.most == 0);
  if (name == "or")
    return decided(a.least == 1 || b.least == 1, a.most == 0 && b.most == 0);
  if (name == "min" || name == "max") {
    bool isMin = name == "min";
    if (d.most <= 0 || d.least >= 0)
      return (d.most <= 0) == isMin ? a : b;
    return isMin ? other(std::min(a.least, b.least), std::min(a.most, b.most))
                 : other(std::max(a.least, b.least), std::max(a.most, b.most));
  }
  if (name == "mul" && (a.isKnown() || b.isKnown()))
    return a.isKnown() ? scaled(b, a.least) : scaled(a, b.least);
  if (a.least < 0 || b.least < 0 || a.most > limit >> 24 || b.most > limit >> 24)
    return std::nullopt;
  if (name == "mul")
    return other(a.least * b.least, a.most * b.most);
  if (!b.isKnown() || b.least < 1 || isReal)
    return std::nullopt;
  int64_t by = b.least;
  if (name == "div") {
    auto exact = exactDiv(a, by);
    return exact         ? exact
           : a.isKnown() ? std::optional(Size(a.least / by))
                         : other(a.least / by, a.most / by);
  }
  if (name == "mod")
    return a.isKnown() ? std::optional(Size(a.least % by)) : other(0, by - 1);
  return std::nullopt;
}
