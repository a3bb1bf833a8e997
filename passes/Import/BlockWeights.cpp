//===- BlockWeights.cpp - Weights of few bits in scaled blocks ------------===//
//
// A product with a constant of 4-bit numbers, each block of a column's summands with a
// scale, keeps its bytes (graph.contract_blocks). Where that form does not do, the weight
// is expanded to real numbers: MatMulNBits says here how, DequantizeLinear by its own
// import.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/BlockWeights.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// Numbers of `bits` bits in bytes, the first in the lowest: the last dim becomes as many
/// times as long.
static Value unpacked(Compose &c, Value bytes, int64_t bits) {
  int64_t each = 8 / bits;
  if (each == 1)
    return bytes;
  Shape split = c.shape(bytes), joined = split;
  split.push_back(1);
  joined.back() *= each;
  bytes = c.reshape(bytes, split);
  Values parts;
  for (int64_t i = 0; i < each; ++i)
    parts.push_back(
        c.op("bit_and", {c.op("shift_right", {bytes, c.like(bytes, double(i * bits))}),
                         c.like(bytes, double((1 << bits) - 1))}));
  return c.reshape(c.concat(parts, static_cast<int64_t>(split.size()) - 1), joined);
}

namespace {
struct NBits {
  int64_t n, k, block, bits, level;
  int64_t blocks() const { return (k + block - 1) / block; }
};
} // namespace

/// Says whether the form is made of such a product: nothing of it trains, and its
/// summands are all there. Kernels take eight numbers at a time.
static bool takesForm(Compose &c, Value x, Value weight, int64_t block) {
  const Importer &importer = c.importer;
  const size_t rank = c.shape(x).size();
  return !importer.training && x && rank > 0 && isa<FloatType>(c.type(x)) &&
         !c.type(x).isF64() && block % 8 == 0 && !importer.countOf(x, rank - 1) &&
         isa_and_nonnull<graph::WeightOp, graph::ConstantOp>(weight.getDefiningOp());
}

/// [columns, blocks] as [blocks, columns].
static Value perBlock(Compose &c, Value value) { return c.transpose(value, {1, 0}); }

/// Says whether all zero points are known to be 8, which none at all stand for. Numbers
/// in another file are not looked at: the program must not depend on whether they are
/// here.
static bool isAllEight(Compose &c, Value zeros) {
  if (!zeros || c.importer.isExternal(zeros))
    return !zeros;
  auto known = c.importer.constantValue(zeros);
  return known && std::ranges::all_of(reference::values<double>(*known),
                                      [](double zero) { return zero == 8; });
}

/// The weight of a MatMulNBits as it is stored.
static std::optional<BlockWeight> packed(Compose &c, const Node &node, const NBits &of) {
  auto in = [&](size_t i) { return c.importer.input(node, i); };
  if (of.bits != 4 || in(4) || !takesForm(c, in(0), in(1), of.block))
    return std::nullopt;
  const int64_t blocks = of.blocks();
  BlockWeight weight{
      c.reshape(in(1), {of.n, blocks, of.block / 2}), {}, {}, of.block, of.k, of.level};
  weight.scales = perBlock(c, c.reshape(c.cast(in(2), c.f32()), {of.n, blocks}));
  Value zeros = in(3);
  if (zeros && isa<FloatType>(c.type(zeros)))
    zeros = c.cast(c.reshape(zeros, {of.n, blocks}), c.f32());
  else if (zeros)
    zeros =
        c.slice(unpacked(c, c.reshape(zeros, {of.n, (blocks + 1) / 2}), 4), 1, 0, blocks);
  weight.zeros = isAllEight(c, zeros) ? Value() : perBlock(c, zeros);
  return weight;
}

/// Rows that end within a block are filled up with zeros.
Value import::blockProduct(Compose &c, Value x, const BlockWeight &weight) {
  Type real = c.type(x);
  Value rows = c.cast(x, c.f32());
  const Shape shape = c.shape(rows);
  const int64_t rest = c.shape(weight.numbers)[1] * weight.block - weight.k;
  if (rest > 0) {
    Shape low(shape.size(), 0), high(shape.size(), 0);
    high.back() = rest;
    rows = c.pad(rows, low, high);
  }
  Values operands{rows, weight.numbers, weight.scales};
  if (weight.zeros)
    operands.push_back(weight.zeros);
  NamedAttrList attributes{c.attr("block", weight.block)};
  if (weight.accuracyLevel != 0)
    attributes.append(c.attr("accuracy_level", weight.accuracyLevel));
  return c.cast(c.op("contract_blocks", operands, attributes), real);
}

/// The node that gives an input, if it is such an operator.
static const Node *producer(const Importer &importer, const Node &node, size_t input,
                            StringRef opType) {
  if (!importer.nodes || !node.hasInput(input))
    return nullptr;
  for (const Node &other : *importer.nodes)
    if (llvm::is_contained(other.outputs, node.inputs[input]))
      return other.opType == opType ? &other : nullptr;
  return nullptr;
}

/// Numbers of 4 bits, a byte each, as blocks of columns with two in a byte. Behind the
/// last one of a column stand zero points.
static HostTensor packedNumbers(const HostTensor &numbers, bool isColumns,
                                const Shape &packed) {
  const int64_t n = packed[0], bytes = packed[1] * packed[2];
  const int64_t k = numbers.shape[isColumns ? 1 : 0];
  const unsigned offset = numbers.type == DType::I4 ? 8 : 0;
  HostTensor result = HostTensor::zeros(DType::U8, packed);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i) {
      const auto from = static_cast<size_t>(isColumns ? j * k + i : i * n + j);
      const unsigned number = (static_cast<unsigned>(numbers.bytes[from]) + offset) & 15;
      result.bytes[static_cast<size_t>(j * bytes + i / 2)] |=
          static_cast<std::byte>(number << 4 * (i % 2));
    }
  return result;
}

std::optional<BlockWeight> import::dequantizedWeight(Compose &c, const Node &node,
                                                     Value x, bool isTransposed) {
  Importer &importer = c.importer;
  const Node *source = &node;
  if (const Node *transpose = producer(importer, node, 1, "Transpose")) {
    if (intsAttr(*transpose, "perm", {1, 0}) != std::vector<int64_t>{1, 0})
      return std::nullopt;
    isTransposed = !isTransposed;
    source = transpose;
  }
  const Node *made =
      producer(importer, *source, source == &node ? 1 : 0, "DequantizeLinear");
  const int64_t block = made ? intAttr(*made, "block_size", 0) : 0;
  if (block <= 0)
    return std::nullopt;
  auto in = [&](size_t i) { return importer.input(*made, i); };
  Value numbers = in(0), scales = in(1), zeros = in(2);
  const Shape shape = c.shape(numbers);
  auto axis = normalizeAxis(intAttr(*made, "axis", 1), shape.size());
  const int64_t summed = isTransposed ? 1 : 0;
  if (!numbers || !scales || shape.size() != 2 || !axis || *axis != summed ||
      !takesForm(c, x, numbers, block) || c.shape(scales).size() != 2 ||
      (zeros && c.shape(zeros) != c.shape(scales)))
    return std::nullopt;
  const DType type = *dtypeOf(c.type(numbers));
  const int64_t k = shape[static_cast<size_t>(summed)];
  const int64_t n = shape[static_cast<size_t>(1 - summed)];
  const int64_t blocks = (k + block - 1) / block;
  const Shape perColumn = isTransposed ? Shape{n, blocks} : Shape{blocks, n};
  if ((type != DType::I4 && type != DType::U4) || c.shape(scales) != perColumn ||
      c.shape(x).back() != k)
    return std::nullopt;
  auto turned = [&](Value value) {
    return isTransposed ? c.transpose(value, {1, 0}) : value;
  };
  const Shape packed{n, blocks, block / 2};
  Type bytes = tensorType(importer.builder.getContext(), DType::U8, packed);
  BlockWeight weight{importer.derivedWeight(numbers, cast<RankedTensorType>(bytes),
                                            [&](const HostTensor &known) {
                                              return packedNumbers(known, isTransposed,
                                                                   packed);
                                            }),
                     turned(c.cast(scales, c.f32())),
                     {},
                     block,
                     k};
  // Signed numbers are 8 below those that are stored.
  if (zeros || type == DType::U4) {
    Value zero = zeros ? c.cast(zeros, importer.builder.getI32Type())
                       : c.zeros(importer.builder.getI32Type(), perColumn);
    if (type == DType::I4)
      zero = c.add(zero, 8);
    zero = c.cast(turned(zero), importer.builder.getIntegerType(8, false));
    weight.zeros = isAllEight(c, zero) ? Value() : zero;
  }
  return weight;
}

/// A matrix [N, K] of numbers of few bits, each block of K with a scale and a zero point,
/// times the rows of the operand.
static Expected<Values> importMatMulNBits(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  int64_t n = intAttr(node, "N", 0), k = intAttr(node, "K", 0);
  int64_t bits = intAttr(node, "bits", 4), block = intAttr(node, "block_size", 0);
  const int64_t level = intAttr(node, "accuracy_level", 0);
  if (bits != 2 && bits != 4 && bits != 8)
    return makeError("numbers of " + std::to_string(bits) + " bits");
  if (n < 1 || k < 1 || block < 1)
    return makeError("N, K and block_size have to be positive");
  if (level < 0 || level > 4)
    return makeError("accuracy_level " + std::to_string(level) + ", expected is 0 to 4");
  int64_t blocks = (k + block - 1) / block;
  if (elementCount(c.shape(in(1))) != n * blocks * (block * bits / 8) ||
      elementCount(c.shape(in(2))) != n * blocks)
    return makeError("B or its scales are not those of a " + std::to_string(n) + " by " +
                     std::to_string(k) + " matrix in blocks of " + std::to_string(block));
  if (auto form = packed(c, node, {n, k, block, bits, level})) {
    Value y = blockProduct(c, in(0), *form);
    return c.results({in(5) ? c.add(y, in(5)) : y});
  }
  Type real = c.type(in(0));
  Value numbers = unpacked(c, c.reshape(in(1), {n, blocks, block * bits / 8}), bits);
  Value scales = c.reshape(c.cast(in(2), real), {n, blocks}), zeros = in(3);
  if (!zeros) {
    zeros = c.broadcast(c.scalar(real, double(1 << (bits - 1))), {n, blocks});
  } else if (!isa<FloatType>(c.type(zeros))) {
    int64_t bytes = (blocks * bits + 7) / 8; // a row begins with a byte
    zeros = c.slice(unpacked(c, c.reshape(zeros, {n, bytes}), bits), 1, 0, blocks);
  }
  zeros = c.reshape(c.cast(zeros, real), {n, blocks});
  numbers = c.cast(numbers, real);
  Value weight;
  if (Value group = in(4)) { // which block an element of K belongs to
    numbers = c.slice(c.reshape(numbers, {n, blocks * block}), 1, 0, k);
    group = c.slice(group, 0, 0, k);
    weight = c.mul(c.sub(numbers, c.gather(zeros, group, 1)), c.gather(scales, group, 1));
  } else {
    Shape beside{n, blocks, 1};
    weight = c.mul(c.sub(numbers, c.reshape(zeros, beside)), c.reshape(scales, beside));
    weight = c.slice(c.reshape(weight, {n, blocks * block}), 1, 0, k);
  }
  Value y = c.take(matMul(importer, in(0), c.transpose(weight, {1, 0})));
  if (Value bias = in(5))
    y = c.add(y, bias);
  return c.results({y});
}

void import::addBlockWeights(HandlerTable &table) {
  table["com.microsoft.MatMulNBits"] = takesCounts(importMatMulNBits);
}
