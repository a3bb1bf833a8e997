//===- IntegerPairs.cpp - Products between pairs, on bytes -----------------===//
//
// Exporters quantize by pairs around operators of real numbers: QuantizeLinear makes
// bytes, DequantizeLinear real numbers of them again. Import keeps that definition. Here,
// behind it, products of what two pairs give become products of the bytes:
//
//     Σ sx (x − zx) · sw w + b  =  sx sw · (Σ x·w + (b / (sx sw) − zx Σ w))
//
// The sum in parentheses is of integers. What QuantizeLinear divides by joins its scale,
// limits before QuantizeLinear (Relu, Clip) become limits of its bytes, and ops that move
// elements or pick the largest ones do so with bytes.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Quantization.h"
#include "passes/Import/Windows.h"

#include "dialects/Dist/Manual.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace partita;
using namespace partita::import;

static constexpr double everything = std::numeric_limits<double>::infinity();
/// Bias in quanta of the result: by this much it may miss a whole number of the sum's
/// units, or as f32 be beside the sum, for the result to be within 10⁻⁴ quanta.
static constexpr double biasError = 2e-5, mostAddend = 160;

//===----------------------------------------------------------------------===//
// Numbers beside a result
//===----------------------------------------------------------------------===//

/// Names of dims, "" for one that broadcasts.
using Labels = std::vector<std::string>;

namespace {
/// Numbers that are multiplied or added to a result, whose rank the shape has; its other
/// dims are 1.
struct Beside {
  Shape shape;
  std::vector<double> values;

  static Beside one(size_t rank, double value) { return {Shape(rank, 1), {value}}; }
};
} // namespace

static Beside combined(const Beside &a, const Beside &b,
                       double (*function)(double, double)) {
  Beside result{a.shape, {}};
  for (size_t d = 0; d < a.shape.size(); ++d)
    result.shape[d] = std::max(a.shape[d], b.shape[d]);
  auto at = [](const Beside &x, const Shape &index) {
    int64_t place = 0;
    for (size_t d = 0; d < index.size(); ++d)
      place = place * x.shape[d] + (x.shape[d] == 1 ? 0 : index[d]);
    return x.values[static_cast<size_t>(place)];
  };
  reference::forEachIndex(result.shape, [&](const Shape &index) {
    result.values.push_back(function(at(a, index), at(b, index)));
  });
  return result;
}

static Beside scaledBy(const Beside &a, double factor) {
  return combined(a, Beside::one(a.shape.size(), factor),
                  [](double x, double y) { return x * y; });
}

static double largest(const Beside &a) {
  double most = 0;
  for (double value : a.values)
    most = std::max(most, std::abs(value));
  return most;
}

/// The dim of the result that each of these dims is, −1 for those of one element; nothing
/// where one of more is none of the result's, or they stand in another order.
static std::optional<std::vector<int64_t>>
placesOf(const Shape &shape, const Labels &labels, const Labels &result) {
  std::vector<int64_t> places;
  int64_t last = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string &label = labels[labels.size() - shape.size() + d];
    auto found = label.empty() ? result.end() : std::ranges::find(result, label);
    const int64_t place = found == result.end() ? -1 : found - result.begin();
    if (shape[d] != 1 && place <= last)
      return std::nullopt;
    places.push_back(shape[d] == 1 ? -1 : place);
    last = std::max(last, places.back());
  }
  return places;
}

/// Numbers beside a tensor with these labels as numbers beside the result.
static std::optional<Beside> besideResult(const HostTensor &numbers, const Labels &labels,
                                          const Labels &result) {
  if (numbers.shape.size() > labels.size())
    return std::nullopt;
  auto places = placesOf(numbers.shape, labels, result);
  if (!places)
    return std::nullopt;
  Beside beside{Shape(result.size(), 1), reference::values<double>(numbers)};
  for (size_t d = 0; d < places->size(); ++d)
    if ((*places)[d] >= 0)
      beside.shape[static_cast<size_t>((*places)[d])] = numbers.shape[d];
  return beside;
}

/// Sums of an operand's numbers over the dims that the result lacks.
static std::optional<Beside> sumsBeside(const HostTensor &numbers, const Labels &labels,
                                        const Labels &result, bool isAbsolute) {
  Shape kept = numbers.shape;
  for (size_t d = 0; d < kept.size(); ++d)
    if (!llvm::is_contained(result, labels[d]))
      kept[d] = 1;
  // Numbers behind the last dim that is kept are one run.
  size_t outer = kept.size();
  int64_t run = 1;
  while (outer > 0 && kept[outer - 1] == 1)
    run *= numbers.shape[--outer];
  HostTensor sums = HostTensor::zeros(DType::F64, kept);
  const std::vector<double> values = reference::values<double>(numbers);
  const double *next = values.data();
  const Shape rows(numbers.shape.begin(),
                   numbers.shape.begin() + static_cast<int64_t>(outer));
  reference::forEachIndex(rows, [&](const Shape &index) {
    int64_t place = 0;
    for (size_t d = 0; d < index.size(); ++d)
      place = place * kept[d] + (kept[d] == 1 ? 0 : index[d]);
    for (int64_t i = 0; i < run; ++i, ++next)
      sums.data<double>()[place] += isAbsolute ? std::abs(*next) : *next;
  });
  return besideResult(sums, labels, result);
}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

static Operation *onlyUser(Value value) {
  return value.hasOneUse() ? *value.getUsers().begin() : nullptr;
}

static bool isExternal(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->hasAttr(externalAttr);
}

/// Says whether products and quotients by it are as exact as f32 is.
static bool isScale(double scale) { return scale >= 1e-30 && scale <= 1e30; }

static bool isByte(Value value) {
  auto type = dyn_cast<IntegerType>(getElementTypeOrSelf(value.getType()));
  return type && type.getWidth() == 8;
}

/// The number that all elements of a constant are.
static std::optional<double> uniform(Value value) {
  auto constant = value.getDefiningOp<graph::ConstantOp>();
  auto elements =
      constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!elements || !elements.isSplat())
    return std::nullopt;
  auto number = elements.getSplatValue<Attribute>();
  if (auto real = dyn_cast<FloatAttr>(number))
    return real.getValueAsDouble();
  auto integer = dyn_cast<IntegerAttr>(number);
  if (!integer)
    return std::nullopt;
  return integer.getType().isUnsignedInteger()
             ? static_cast<double>(integer.getValue().getZExtValue())
             : static_cast<double>(integer.getValue().getSExtValue());
}

namespace {
/// (numbers − zero) · scale, of bytes, with one scale and zero point for all.
struct Dequantized {
  Value numbers;
  double scale = 0, zero = 0;

  static std::optional<Dequantized> of(Value real);
  double most() const {
    return getElementTypeOrSelf(numbers.getType()).isUnsignedInteger() ? 255 : 128;
  }
};

/// cast(min(max(round(real / scale) [+ zero], low), high)): bytes of real numbers.
struct Quantized {
  graph::DivOp ratio;
  graph::MaxOp low;
  graph::MinOp high;
  graph::CastOp bytes;
  double scale = 0, zero = 0, lowest = 0, highest = 0;

  static std::optional<Quantized> of(Operation *first);
  /// The byte that a real number becomes, within the limits.
  double byteOf(double real) const {
    const double ratio = static_cast<float>(real / scale);
    return std::clamp(std::nearbyint(ratio) + zero, lowest, highest);
  }
};
} // namespace

std::optional<Dequantized> Dequantized::of(Value real) {
  auto product = real.getDefiningOp<graph::MulOp>();
  auto cast =
      product ? product->getOperand(0).getDefiningOp<graph::CastOp>() : graph::CastOp();
  if (!cast || !getElementTypeOrSelf(real.getType()).isF32())
    return std::nullopt;
  auto scale = uniform(product->getOperand(1));
  Dequantized result{cast.getInput(), scale.value_or(0), 0};
  if (auto difference = result.numbers.getDefiningOp<graph::SubOp>()) {
    auto zero = uniform(difference->getOperand(1));
    if (!zero || !getElementTypeOrSelf(difference.getType()).isInteger(32))
      return std::nullopt;
    result.zero = *zero, result.numbers = difference->getOperand(0);
  }
  if (auto wide = result.numbers.getDefiningOp<graph::CastOp>();
      wide && wide.getTo().isInteger(32))
    result.numbers = wide.getInput();
  if (!isScale(result.scale) || !isByte(result.numbers) ||
      shapeOf(result.numbers) != shapeOf(real) || std::abs(result.zero) > 255)
    return std::nullopt;
  return result;
}

std::optional<Quantized> Quantized::of(Operation *first) {
  Quantized result;
  result.ratio = dyn_cast_or_null<graph::DivOp>(first);
  auto scale = result.ratio ? uniform(first->getOperand(1)) : std::nullopt;
  if (!scale || !isScale(*scale) ||
      !getElementTypeOrSelf(first->getResult(0).getType()).isF32())
    return std::nullopt;
  result.scale = *scale;
  Operation *at = onlyUser(first->getResult(0));
  if (!isa_and_nonnull<graph::RoundOp>(at))
    return std::nullopt;
  at = onlyUser(at->getResult(0));
  if (auto sum = dyn_cast_or_null<graph::AddOp>(at)) {
    auto zero = uniform(sum->getOperand(1));
    if (!zero)
      return std::nullopt;
    result.zero = *zero;
    at = onlyUser(sum.getResult());
  }
  result.low = dyn_cast_or_null<graph::MaxOp>(at);
  at = result.low ? onlyUser(result.low.getResult()) : nullptr;
  result.high = dyn_cast_or_null<graph::MinOp>(at);
  at = result.high ? onlyUser(result.high.getResult()) : nullptr;
  result.bytes = dyn_cast_or_null<graph::CastOp>(at);
  if (!result.bytes || !isByte(result.bytes.getResult()))
    return std::nullopt;
  auto lowest = uniform(result.low->getOperand(1));
  auto highest = uniform(result.high->getOperand(1));
  if (!lowest || !highest || *lowest > *highest)
    return std::nullopt;
  result.lowest = *lowest, result.highest = *highest;
  return result;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The limits that an op sets to `value`; false if it sets none, or computed ones.
static bool limitsOf(Operation *op, Value value, double &least, double &most) {
  auto number = [&](unsigned i) {
    auto known = i < op->getNumOperands() ? uniform(op->getOperand(i)) : std::nullopt;
    return known && !std::isnan(*known) ? known : std::nullopt;
  };
  if (op->getNumResults() != 1 || op->getOperand(0) != value ||
      op->getResult(0).getType() != value.getType())
    return false;
  std::optional<double> low, high;
  if (isa<graph::ReluOp>(op))
    low = 0;
  else if (isa<graph::MaxOp>(op))
    low = number(1);
  else if (isa<graph::MinOp>(op))
    high = number(1);
  else if (isa<graph::ClipOp>(op) && number(2))
    low = number(1), high = number(2);
  if (!low && !high)
    return false;
  least = low.value_or(least), most = high.value_or(most);
  return true;
}

namespace {
/// An operand of a product: bytes, and what one of them is worth.
struct ByteOperand {
  Value numbers;
  Beside scale;
  double zero = 0, most = 128; ///< most: of the bytes without a zero point
  std::optional<HostTensor> known;
};

/// A sum of products in i32 of a result with these labels.
struct Product {
  Operation *op; ///< of real numbers, in whose place it is
  Labels labels;
  Value sums;
  Beside scale;                              ///< of one unit
  Beside offset;                             ///< whole numbers that are added
  double most;                               ///< of the sums with the offset
  std::optional<Beside> bias = std::nullopt; ///< real numbers
};

/// Ops that follow a product and join it.
struct Behind {
  Value real;                    ///< what the product is, with a bias
  SmallVector<Operation *> gone; ///< ops whose names it takes
  double low = -everything, high = everything;
  std::optional<Quantized> quantized;
};

class PairRewriter {
public:
  PairRewriter(func::FuncOp function, WeightTable &weights)
      : function(function), builder(function.getContext()), importer(builder, weights) {}

  /// Tells whether anything has changed.
  Expected<bool> run();

private:
  void moveBytes(graph::DivOp op);
  Expected<void> takeConv(graph::ConvOp op);
  Expected<void> takeContract(graph::ContractOp op);
  Expected<void> replace(Compose &c, Product product);
  Behind behind(Product &product);
  std::optional<ByteOperand> factorOf(Value real, const Labels &labels,
                                      const Labels &result);
  std::optional<ByteOperand> constantFactor(Value real, const Labels &labels,
                                            const Labels &result);
  std::optional<Beside> knownBeside(Value value, const Labels &labels,
                                    const Labels &result) const;
  Value sourceOf(Attribute source);
  void begin(Operation *op);
  static Value tensor(Compose &c, Type element, const Beside &numbers);
  static Value sumsOf(Compose &c, const ByteOperand &factor, const Labels &labels,
                      const Labels &result);

  func::FuncOp function;
  OpBuilder builder;
  Importer importer;
  bool hasChanged = false;
};
} // namespace

Expected<bool> PairRewriter::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : function.front())
    ops.push_back(&op);
  for (Operation *op : ops) {
    Expected<void> ok;
    if (auto ratio = dyn_cast<graph::DivOp>(op))
      moveBytes(ratio);
    else if (auto conv = dyn_cast<graph::ConvOp>(op))
      ok = takeConv(conv);
    else if (auto contract = dyn_cast<graph::ContractOp>(op))
      ok = takeContract(contract);
    if (!ok)
      return tl::unexpected(ok.error());
  }
  return hasChanged;
}

/// Makes what comes next of the op's node, and before the op.
void PairRewriter::begin(Operation *op) {
  builder.setInsertionPoint(op);
  importer.location = op->getLoc();
  importer.nodeName = "";
  if (auto named = dyn_cast<NameLoc>(op->getLoc())) {
    importer.location = NameLoc::get(named.getName());
    importer.nodeName = named.getName().str();
  }
}

/// A scalar, or a tensor without dims of one element before the first other one.
Value PairRewriter::tensor(Compose &c, Type element, const Beside &numbers) {
  auto first = std::ranges::find_if(numbers.shape, [](int64_t d) { return d != 1; });
  return c.tensor(element, Shape(first, numbers.shape.end()), numbers.values);
}

/// A constant that import noted, or a weight by name.
Value PairRewriter::sourceOf(Attribute source) {
  if (auto name = dyn_cast<StringAttr>(source)) {
    // A source is of no node: what a hint for a node calls an input comes from outside.
    const Location ofNode = importer.location;
    importer.location = NameLoc::get(name);
    Value weight = importer.knownWeight(name.getValue());
    importer.location = ofNode;
    return weight;
  }
  return graph::ConstantOp::create(builder, importer.location,
                                   cast<DenseElementsAttr>(source));
}

std::optional<Beside> PairRewriter::knownBeside(Value value, const Labels &labels,
                                                const Labels &result) const {
  auto known = isExternal(value) ? std::nullopt : importer.constantValue(value);
  return known ? besideResult(*known, labels, result) : std::nullopt;
}

/// Signed bytes without a zero point, as import noted them beside the real numbers that
/// it made of them, or as a weight that is too large for that.
std::optional<ByteOperand> PairRewriter::constantFactor(Value real, const Labels &labels,
                                                        const Labels &result) {
  Operation *op = real.getDefiningOp();
  Value numbers, scale;
  if (auto noted = op ? op->getAttrOfType<ArrayAttr>(numbersAttr) : ArrayAttr()) {
    numbers = sourceOf(noted[0]), scale = sourceOf(noted[1]);
  } else if (auto product = dyn_cast_or_null<graph::MulOp>(op)) {
    scale = product->getOperand(1);
    auto outer = product->getOperand(0).getDefiningOp<graph::CastOp>();
    Value wide = outer ? outer.getInput() : Value();
    if (auto difference = wide ? wide.getDefiningOp<graph::SubOp>() : graph::SubOp())
      wide =
          uniform(difference->getOperand(1)) == 0 ? difference->getOperand(0) : Value();
    auto inner = wide ? wide.getDefiningOp<graph::CastOp>() : graph::CastOp();
    numbers = inner ? inner.getInput() : Value();
  }
  if (!numbers || !scale ||
      !getElementTypeOrSelf(numbers.getType()).isSignlessInteger(8) ||
      shapeOf(numbers) != shapeOf(real) || isExternal(numbers))
    return std::nullopt;
  auto beside = knownBeside(scale, labels, result);
  auto known = importer.constantValue(numbers);
  if (!beside || !known ||
      !std::ranges::all_of(beside->values, [](double s) { return isScale(s); }))
    return std::nullopt;
  return ByteOperand{numbers, std::move(*beside), 0, 128, std::move(known)};
}

std::optional<ByteOperand> PairRewriter::factorOf(Value real, const Labels &labels,
                                                  const Labels &result) {
  if (auto pair = Dequantized::of(real);
      pair && !isa_and_nonnull<graph::WeightOp>(pair->numbers.getDefiningOp()))
    return ByteOperand{pair->numbers, Beside::one(result.size(), pair->scale), pair->zero,
                       pair->most(), std::nullopt};
  return constantFactor(real, labels, result);
}

Expected<void> PairRewriter::takeConv(graph::ConvOp op) {
  Labels result{"n", "o"}, filter{"o", "i"};
  for (size_t d = 2; d < shapeOf(op.getInput()).size(); ++d) {
    result.push_back("s" + std::to_string(d));
    filter.push_back("t" + std::to_string(d));
  }
  auto image = Dequantized::of(op.getInput());
  if (op.getSums() || !image)
    return {};
  begin(op);
  auto weights = constantFactor(op.getFilter(), filter, result);
  std::optional<Beside> bias;
  if (op.getBias() && !(bias = knownBeside(op.getBias(), {"o"}, result)))
    return {};
  if (!weights)
    return {};
  Compose c(importer);
  WindowAttrs window{
      {}, op.getStrides().vec(), op.getDilations().vec(), op.getPads().vec()};
  Value sums = byteWindows(c, image->numbers, weights->numbers, image->zero, window,
                           op.getGroup());
  auto perChannel = sumsBeside(*weights->known, filter, result, false);
  auto sizes = sumsBeside(*weights->known, filter, result, true);
  if (!perChannel || !sizes)
    return {};
  return replace(c, {op, result, sums, scaledBy(weights->scale, image->scale),
                     scaledBy(*perChannel, -image->zero), image->most() * largest(*sizes),
                     std::move(bias)});
}

/// Dims of one loop each; nothing where one has several.
static std::optional<Labels> labelsOf(const Equation::Tensor &tensor) {
  Labels labels;
  for (const std::vector<std::string> &dim : tensor) {
    if (dim.size() > 1)
      return std::nullopt;
    labels.push_back(dim.empty() || dim[0] == "1" ? "" : dim[0]);
  }
  return labels;
}

/// Sums over the dims that the result lacks, beside the result; null where they do not
/// stand there in its order.
Value PairRewriter::sumsOf(Compose &c, const ByteOperand &factor, const Labels &labels,
                           const Labels &result) {
  std::vector<int64_t> axes;
  Shape kept = c.shape(factor.numbers), beside(result.size(), 1);
  for (size_t d = 0; d < kept.size(); ++d)
    if (!llvm::is_contained(result, labels[d]))
      axes.push_back(static_cast<int64_t>(d)), kept[d] = 1;
  auto places = placesOf(kept, labels, result);
  if (!places)
    return nullptr;
  for (size_t d = 0; d < kept.size(); ++d)
    if ((*places)[d] >= 0)
      beside[static_cast<size_t>((*places)[d])] = kept[d];
  Value sums = c.sum(c.cast(factor.numbers, c.builder.getI32Type()), axes, true);
  return c.reshape(sums, beside);
}

Expected<void> PairRewriter::takeContract(graph::ContractOp op) {
  const Equation &equation = op.getEquation();
  auto left = labelsOf(equation.operands[0]), right = labelsOf(equation.operands[1]);
  auto result = labelsOf(equation.results[0]);
  if (op.getSums() || !left || !right || !result)
    return {};
  double depth = 1;
  for (auto [labels, other] : {std::pair(&*left, &*right), std::pair(&*right, &*left)})
    for (auto [label, extent] :
         llvm::zip_equal(*labels, shapeOf(op->getOperand(labels == &*left ? 0 : 1)))) {
      const bool isSummed = !llvm::is_contained(*result, label);
      if (isSummed && (label.empty() ? extent != 1 : !llvm::is_contained(*other, label)))
        return {};
      depth *= isSummed && labels == &*left ? static_cast<double>(extent) : 1;
    }
  begin(op);
  auto a = factorOf(op.getLhs(), *left, *result),
       b = factorOf(op.getRhs(), *right, *result);
  if (!a || !b || (a->known && b->known))
    return {};
  Compose c(importer);
  Value sums = c.op("contract", {a->numbers, b->numbers},
                    {c.attr("equation", op.getEquationAttr()),
                     c.attr("sums", TypeAttr::get(builder.getI32Type()))});
  Beside offset = Beside::one(result->size(), depth * a->zero * b->zero);
  double most = depth * 255 * 255;
  for (auto [zero, other, labels] :
       {std::tuple(a->zero, &*b, &*right), std::tuple(b->zero, &*a, &*left)}) {
    if (auto known = other->known) {
      auto all = sumsBeside(*known, *labels, *result, false);
      auto sizes = sumsBeside(*known, *labels, *result, true);
      if (!all || !sizes)
        return {};
      offset = combined(offset, scaledBy(*all, -zero),
                        [](double x, double y) { return x + y; });
      most = 255 * largest(*sizes);
    } else if (zero != 0) {
      Value extra = sumsOf(c, *other, *labels, *result);
      if (!extra)
        return {};
      sums = c.sub(sums, c.mul(extra, zero));
    }
  }
  return replace(c,
                 {op, *result, sums,
                  combined(a->scale, b->scale, [](double x, double y) { return x * y; }),
                  offset, most});
}

/// Finds what joins a product: a constant that is added, limits, and QuantizeLinear.
Behind PairRewriter::behind(Product &product) {
  Behind result;
  result.real = product.op->getResult(0);
  result.gone = {product.op};
  Operation *user = onlyUser(result.real);
  if (auto sum = dyn_cast_or_null<graph::AddOp>(user); sum && !product.bias) {
    Value other = sum->getOperand(sum->getOperand(0) == result.real ? 1 : 0);
    product.bias = other != result.real && sum.getType() == result.real.getType()
                       ? knownBeside(other, product.labels, product.labels)
                       : std::nullopt;
    if (product.bias) {
      result.real = sum.getResult();
      result.gone.push_back(sum);
      user = onlyUser(result.real);
    }
  }
  SmallVector<Operation *> limits;
  double low = -everything, high = everything;
  for (Value at = result.real; user; user = onlyUser(at)) {
    double least = -everything, most = everything;
    if (!limitsOf(user, at, least, most))
      break;
    low = std::min(std::max(low, least), most);
    high = std::min(std::max(high, least), most);
    limits.push_back(user);
    at = user->getResult(0);
  }
  result.quantized = Quantized::of(user);
  if (!result.quantized)
    return result;
  llvm::append_range(result.gone, limits);
  result.low = low, result.high = high;
  return result;
}

/// The bias in units of the sums, if it is whole numbers of them.
static std::optional<Beside> wholeUnits(const Beside &bias, const Beside &unit,
                                        double quantum) {
  Beside whole = combined(
      bias, unit, [](double number, double one) { return std::nearbyint(number / one); });
  Beside exact =
      combined(whole, unit, [](double number, double one) { return number * one; });
  Beside rest = combined(bias, exact, [](double x, double y) { return x - y; });
  const double most = quantum > 0 ? biasError * quantum : 0x1p-22 * largest(bias);
  return largest(rest) <= most ? std::optional(std::move(whole)) : std::nullopt;
}

/// Puts the integers in the place of the real product, and of what joins it.
Expected<void> PairRewriter::replace(Compose &c, Product product) {
  auto sum = [](double x, double y) { return x + y; };
  Behind all = behind(product);
  const double quantum = all.quantized ? all.quantized->scale : 0;
  const double perUnit = quantum > 0 ? 1 / quantum : 1;
  std::optional<Beside> addend;
  if (product.bias) {
    auto whole = wholeUnits(*product.bias, product.scale, quantum);
    if (whole) {
      product.most += largest(*whole);
      product.offset = combined(product.offset, *whole, sum);
    } else {
      addend = scaledBy(*product.bias, perUnit);
    }
  }
  if (c.failed() || !product.sums || product.most + largest(product.offset) >= 0x1p31 ||
      (quantum > 0 && addend && largest(*addend) > mostAddend))
    return c.results({}).map([](auto &&) {});
  Value integers = product.sums;
  if (largest(product.offset) != 0)
    integers = c.add(integers, tensor(c, builder.getI32Type(), product.offset));
  Value real = c.cast(integers, c.f32());
  Value factor = tensor(c, c.f32(), scaledBy(product.scale, perUnit));
  Value last = addend ? tensor(c, c.f32(), *addend) : factor;
  if (addend)
    real = c.mul(real, factor);
  Location ofNode = importer.location;
  importer.location = product.op->getLoc(); // with the names of the product
  real = addend ? c.add(real, last) : c.mul(real, last);
  importer.location = ofNode;
  if (c.failed())
    return c.results({}).map([](auto &&) {});
  hasChanged = true;
  for (Operation *gone : ArrayRef(all.gone).drop_front())
    takeValueNames(real, gone);
  if (!all.quantized) {
    all.real.replaceAllUsesWith(real);
    return {};
  }
  Quantized &behind = *all.quantized;
  auto limit = [&](Operation *op, double before, double now) {
    if (now != before)
      op->setOperand(1, c.scalar(c.f32(), now));
  };
  limit(behind.low, behind.lowest, behind.byteOf(all.low));
  limit(behind.high, behind.highest, behind.byteOf(all.high));
  behind.ratio.getResult().replaceAllUsesWith(real);
  return {};
}

//===----------------------------------------------------------------------===//
// Moves of bytes
//===----------------------------------------------------------------------===//

/// Says whether the op gives elements of its operand alone, by their places or size.
static bool isMove(Operation *op) {
  if (isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp, graph::SliceOp>(op))
    return true;
  auto pool = dyn_cast<graph::PoolOp>(op);
  if (!pool || pool.getKind() != graph::PoolKind::Max)
    return false;
  // Every window has an element.
  ArrayRef<int64_t> pads = pool.getPads(), window = pool.getWindow();
  for (size_t i = 0; i < pads.size(); ++i)
    if (pads[i] >= window[i % window.size()])
      return false;
  return true;
}

/// quantize(move(dequantize(x))) with one scale and zero point is move(x).
void PairRewriter::moveBytes(graph::DivOp op) {
  auto to = Quantized::of(op);
  SmallVector<Operation *> moves;
  Value at = op->getOperand(0);
  for (Operation *move = at.getDefiningOp(); move && isMove(move);
       move = at.getDefiningOp()) {
    moves.push_back(move);
    at = move->getOperand(0);
  }
  auto from = to ? Dequantized::of(at) : std::nullopt;
  if (!from)
    return;
  Type element = getElementTypeOrSelf(from->numbers.getType());
  const double lowest = element.isUnsignedInteger() ? 0 : -128;
  if (from->scale != to->scale || from->zero != to->zero ||
      element != to->bytes.getTo() || to->lowest > lowest || to->highest < lowest + 255)
    return;
  Value bytes = from->numbers;
  for (Operation *move : llvm::reverse(moves)) {
    builder.setInsertionPoint(op);
    Operation *copy = builder.clone(*move);
    copy->setOperand(0, bytes);
    bytes = copy->getResult(0);
    bytes.setType(cast<RankedTensorType>(bytes.getType()).clone(element));
  }
  hasChanged = true;
  takeValueNames(bytes, to->bytes);
  to->bytes.getResult().replaceAllUsesWith(bytes);
}

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

void partita::dropNumbers(ModuleOp module) {
  module.walk([](Operation *op) {
    op->removeAttr(numbersAttr);
    op->removeAttr(externalAttr);
  });
}

Expected<bool> partita::formIntegers(ModuleOp module, WeightTable &weights) {
  bool hasChanged = false;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || dist::findManual(module))
      continue;
    auto changed = PairRewriter(function, weights).run();
    if (!changed)
      return changed;
    hasChanged |= *changed;
  }
  dropNumbers(module);
  return hasChanged;
}
