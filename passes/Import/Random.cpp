//===- Random.cpp - Import of random numbers ------------------------------===//
//
// A number is a function of its place in the tensor and of the node's seed: the place,
// mixed with keys made of the seed. So an op that draws numbers is elementwise, splits
// along every dim, and draws the same ones on any number of ranks. A node without a seed
// has one that follows from its name; a request that is repeated draws the same numbers.
//
//===----------------------------------------------------------------------===//
#include "dialects/Graph/DrawingNodes.h"
#include "passes/Import/Compose.h"

#include "partita/Reference/Kernels.h"

#include <numbers>
#include <random>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// The node's `seed` as 64 bits; without one, of its name (FNV-1a).
static uint64_t seedOf(const Node &node) {
  if (const auto *real = node.attribute<float>("seed"))
    return std::bit_cast<uint32_t>(*real);
  if (const auto *whole = node.attribute<int64_t>("seed"))
    return static_cast<uint64_t>(*whole);
  uint64_t hash = 0xcbf29ce484222325;
  for (char letter : node.name)
    hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return hash;
}

/// A bijection of 32 bits in which each bit depends on every other (the finalizer of
/// MurmurHash3).
static Value mixed(Compose &c, Value x) {
  auto shifted = [&](Value v, double by) {
    return c.op("bit_xor", {v, c.op("shift_right", {v, c.like(v, by)})});
  };
  x = c.mul(shifted(x, 16), 0x85ebca6b);
  return shifted(c.mul(shifted(x, 13), 0xc2b2ae35), 16);
}

/// Says of the node that it draws other numbers in each step.
static void noteDrawing(Importer &importer) {
  auto module =
      importer.builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto name = cast<NameLoc>(importer.location).getName();
  SmallVector<Attribute> nodes;
  if (auto known = module->getAttrOfType<ArrayAttr>(drawingNodesAttr))
    llvm::append_range(nodes, known);
  if (!llvm::is_contained(nodes, name))
    nodes.push_back(name);
  module->setAttr(drawingNodesAttr, importer.builder.getArrayAttr(nodes));
}

/// 32 random bits per element. Streams of one seed are independent of each other.
static Value randomBits(Compose &c, const Shape &shape, uint64_t seed, uint32_t stream) {
  Type u32 = c.importer.builder.getIntegerType(32, false);
  Value place = c.scalar(u32, 0);
  std::vector<int64_t> strides = reference::strides(shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) {
      // Places of more than 2^32 elements wrap.
      auto stride = static_cast<double>(static_cast<uint32_t>(strides[d]));
      place = c.add(place, c.mul(c.iota(u32, shape[d], d, shape.size()), stride));
    }
  if (c.importer.training)
    seed ^= c.importer.training->seed * 0x9e3779b97f4a7c15;
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      stream};
  uint32_t keys[2];
  words.generate(std::begin(keys), std::end(keys));
  Value x = mixed(c, c.add(place, static_cast<double>(keys[0])));
  // A step of training draws its own numbers: its number is a third key.
  if (Value step = c.importer.step) {
    noteDrawing(c.importer);
    x = mixed(c,
              c.add(x, mixed(c, c.add(c.cast(step, u32), static_cast<double>(stream)))));
  }
  x = mixed(c, c.add(x, static_cast<double>(keys[1])));
  return c.broadcast(x, shape);
}

/// In [0, 1), a multiple of the type's step below 1: rounding never makes it 1.
static Value uniform(Compose &c, const Shape &shape, Type element, uint64_t seed,
                     uint32_t stream = 0) {
  int digits = element.isF64() ? 32 : element.isF16() ? 11 : element.isBF16() ? 8 : 24;
  Value bits = randomBits(c, shape, seed, stream);
  if (digits < 32)
    bits = c.op("shift_right", {bits, c.like(bits, 32 - digits)});
  return c.mul(c.cast(bits, element), std::ldexp(1.0, -digits));
}

/// By Box and Muller: an angle, and a radius by the logarithm of a number in (0, 1].
static Value normal(Compose &c, const Shape &shape, Type element, uint64_t seed) {
  Type wide = element.isF64() ? element : c.f32();
  Value u = uniform(c, shape, wide, seed, 0), v = uniform(c, shape, wide, seed, 1);
  Value radius = c.sqrt(c.mul(c.op("log", c.sub(c.like(u, 1), u)), -2));
  return c.mul(radius, c.op("cos", c.mul(v, 2 * std::numbers::pi)));
}

/// The element type: that of `dtype`, else that of the operand, else f32.
static Expected<Type> elementOf(Importer &importer, const Node &node, bool isLike) {
  if (int64_t number = intAttr(node, "dtype", isLike ? 0 : 1); number != 0)
    return elementTypeOfOnnx(importer, number);
  return getElementTypeOrSelf(importer.input(node, 0).getType());
}

/// RandomUniform, RandomNormal and their Like forms.
static Expected<Values> importRandom(Importer &importer, const Node &node) {
  Compose c(importer);
  bool isLike = node.opType.ends_with("Like");
  Shape shape = isLike ? c.shape(importer.input(node, 0)) : intsAttr(node, "shape", {});
  auto element = elementOf(importer, node, isLike);
  if (!element)
    return tl::unexpected(element.error());
  if (!isa<FloatType>(*element))
    return makeError("random numbers that are no floats");
  if (node.opType.starts_with("RandomNormal")) {
    Value x =
        c.mul(normal(c, shape, *element, seedOf(node)), floatAttr(node, "scale", 1));
    return c.results({c.cast(c.add(x, floatAttr(node, "mean", 0)), *element)});
  }
  double low = floatAttr(node, "low", 0), high = floatAttr(node, "high", 1);
  Value x = uniform(c, shape, *element, seedOf(node));
  return c.results({c.add(c.mul(x, high - low), low)});
}

/// 1 where a number in [0, 1) is less than the operand.
static Expected<Values> importBernoulli(Importer &importer, const Node &node) {
  Compose c(importer);
  Value chance = importer.input(node, 0);
  auto element = elementOf(importer, node, true);
  if (!element)
    return tl::unexpected(element.error());
  Value drawn = uniform(c, c.shape(chance), c.type(chance), seedOf(node));
  return c.results({c.cast(c.less(drawn, chance), *element)});
}

/// In training: an element stays, divided by the chance to, or becomes 0.
static Expected<Values> importDropout(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), ratio = importer.input(node, 1);
  auto training = importer.constantIntegers(node, 2);
  if (!training)
    return tl::unexpected(training.error());
  Value stays = c.broadcast(c.scalar(importer.builder.getI1Type(), 1), c.shape(x));
  if (training->empty() || training->front() == 0)
    return c.results({x, stays});
  ratio = ratio ? c.cast(c.reshape(ratio, {}), c.type(x)) : c.like(x, 0.5);
  Value drawn = uniform(c, c.shape(x), c.type(x), seedOf(node));
  stays = c.op("greater_equal", {drawn, ratio});
  Value scaled = c.div(x, c.sub(c.like(x, 1), ratio));
  return c.results({c.select(stays, scaled, c.like(x, 0)), stays});
}

/// Draws classes by unnormalized logarithms of their chances: the class is the number of
/// those whose chances, added up, are not more than a number in [0, 1).
static Expected<Values> importMultinomial(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape shape = c.shape(x);
  if (shape.size() != 2)
    return makeError("Multinomial of rank " + std::to_string(shape.size()));
  auto element = elementTypeOfOnnx(importer, intAttr(node, "dtype", 6));
  if (!element)
    return tl::unexpected(element.error());
  int64_t samples = intAttr(node, "sample_size", 1);
  Value chances = c.op("softmax", x, importer.attr("axis", int64_t(1)));
  auto no = importer.builder.getBoolAttr(false);
  Value sums = c.op("cumsum", chances,
                    {importer.attr("axis", int64_t(1)), importer.attr("exclusive", no),
                     importer.attr("reverse", no)});
  Value drawn = uniform(c, {shape[0], samples, 1}, c.type(x), seedOf(node));
  Value passed = c.op("less_equal", {c.reshape(sums, {shape[0], 1, shape[1]}), drawn});
  Value count = c.sum(c.cast(passed, c.i64()), {2}, false);
  // The last sum may have been rounded to less than 1.
  count = c.min(count, static_cast<double>(shape[1] - 1));
  return c.results({c.cast(count, *element)});
}

void import::addRandom(HandlerTable &table) {
  table["RandomUniform"] = importRandom;
  table["RandomUniformLike"] = importRandom;
  table["RandomNormal"] = importRandom;
  table["RandomNormalLike"] = importRandom;
  table["Bernoulli"] = importBernoulli;
  table["Dropout"] = importDropout;
  table["Multinomial"] = importMultinomial;
}
