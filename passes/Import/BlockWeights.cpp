//===- BlockWeights.cpp - Weights of few bits in scaled blocks ------------===//
//
// A product with a constant of 4-bit numbers, each block of a column's summands with a
// scale, keeps its bytes (graph.contract_blocks). Where that form does not do, the weight
// is expanded to real numbers: MatMulNBits says here how, DequantizeLinear by its own
// import. A table keeps its bytes, too: rows are unpacked behind the lookup.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/BlockWeights.h"

#include "partita/Reference/Kernels.h"
#include "passes/Import/Quantization.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

Value import::unpacked(graph::Formula &f, Value bytes, int64_t bits, int64_t d,
                       bool isHighFirst) {
  const int64_t each = 8 / bits;
  const size_t dim = f.axis(d, bytes);
  if (each == 1 || f.failed())
    return bytes;
  Shape split = f.shape(bytes), joined = split;
  joined[dim] *= each;
  split.insert(split.begin() + static_cast<int64_t>(dim) + 1, 1);
  Shape beside(split.size(), 1);
  beside[dim + 1] = each;
  std::vector<double> shifts;
  for (int64_t i = 0; i < each; ++i)
    shifts.push_back(static_cast<double>(bits * (isHighFirst ? each - 1 - i : i)));
  Value moved = f.op("shift_right",
                     {f.reshape(bytes, split), f.tensor(f.type(bytes), beside, shifts)});
  return f.reshape(f.op("bit_and", {moved, f.like(bytes, double((1 << bits) - 1))}),
                   joined);
}

namespace {
struct NBits {
  int64_t n, k, block, bits, level;
  int64_t blocks() const { return (k + block - 1) / block; }
};
} // namespace

bool import::takesForm(Compose &c, Value x, Value weight, int64_t block) {
  const Importer &importer = c.importer;
  const size_t rank = c.shape(x).size();
  return !importer.training && x && rank > 0 && isa<FloatType>(c.type(x)) &&
         !c.type(x).isF64() && block % 8 == 0 && !importer.countOf(x, rank - 1) &&
         isa_and_nonnull<graph::WeightOp, graph::ConstantOp>(weight.getDefiningOp());
}

/// [columns, blocks] as [blocks, columns].
static Value perBlock(Compose &c, Value value) { return c.transpose(value, {1, 0}); }

/// Numbers in another file are not looked at: the program must not depend on whether they
/// are here.
Value import::zerosOfForm(Compose &c, Value zeros) {
  if (!zeros || c.importer.isExternal(zeros))
    return zeros;
  auto known = c.importer.constantValue(zeros);
  const bool isAllEight =
      known && std::ranges::all_of(reference::values<double>(*known),
                                   [](double zero) { return zero == 8; });
  return isAllEight ? Value() : zeros;
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
  zeros = zerosOfForm(c, zeros);
  weight.zeros = zeros ? perBlock(c, zeros) : Value();
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
    weight.zeros = zerosOfForm(c, zero);
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

//===-- Lookups in tables of few bits -------------------------------------===//

/// Elements of the dims before dim `d`, and of those behind.
static std::pair<int64_t, int64_t> around(const Shape &shape, size_t d) {
  auto at = shape.begin() + static_cast<int64_t>(d);
  return {elementCount(Shape(shape.begin(), at)),
          elementCount(Shape(at + 1, shape.end()))};
}

/// Numbers of 4 bits, a byte each, two in a byte along dim `d`, the first in the low
/// half, with `offset` added. Padding of an odd dim is 0.
static HostTensor packedAlong(const HostTensor &numbers, size_t d, unsigned offset) {
  Shape shape = numbers.shape;
  const int64_t extent = shape[d];
  const auto [rows, behind] = around(shape, d);
  shape[d] = (extent + 1) / 2;
  HostTensor result = HostTensor::zeros(DType::U8, shape);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < extent; ++i)
      for (int64_t j = 0; j < behind; ++j) {
        const auto from = static_cast<size_t>((row * extent + i) * behind + j);
        const auto to = static_cast<size_t>((row * shape[d] + i / 2) * behind + j);
        const unsigned number =
            (static_cast<unsigned>(numbers.bytes[from]) + offset) & 15;
        result.bytes[to] |= static_cast<std::byte>(number << 4 * (i % 2));
      }
  return result;
}

namespace {
/// Numbers of which slices are looked up, and only then unpacked.
struct FewBitTable {
  Value stored;
  int64_t bits = 8;   ///< bits of a number
  size_t dim = 0;     ///< dim along which a byte has several
  int64_t extent = 0; ///< numbers along that dim
  double offset = 0;  ///< surplus of stored numbers
};
} // namespace

/// The table of a tensor of u8, which holds `extent` numbers of `bits` bits along its
/// last dim, or of i4 or u4. Numbers of i4 and u4 take a byte each in memory, so that
/// those of a constant are packed, along a dim that is not looked up in.
static FewBitTable tableOf(Compose &c, Value tensor, size_t lookedUp, int64_t bits,
                           int64_t extent) {
  const Shape shape = c.shape(tensor);
  const size_t last = shape.size() - 1;
  if (c.type(tensor).isUnsignedInteger(8))
    return {tensor, bits, last, extent, 0};
  const bool isConstant =
      isa_and_nonnull<graph::WeightOp, graph::ConstantOp>(tensor.getDefiningOp());
  if (!isConstant)
    return {tensor, 8, last, shape[last], 0};
  const size_t dim = lookedUp == last ? last - 1 : last;
  const unsigned offset = *dtypeOf(c.type(tensor)) == DType::I4 ? 8 : 0;
  Shape packed = shape;
  packed[dim] = (shape[dim] + 1) / 2;
  Type bytes = tensorType(c.importer.builder.getContext(), DType::U8, packed);
  Value made = c.importer.derivedWeight(
      tensor, cast<RankedTensorType>(bytes),
      [&](const HostTensor &known) { return packedAlong(known, dim, offset); });
  return {made, 4, dim, shape[dim], double(offset)};
}

/// The place of a dim behind a lookup along `axis` by indices of some rank.
static size_t behindLookup(size_t dim, size_t axis, size_t rank) {
  return dim < axis ? dim : dim + rank - 1;
}

/// The slices that `rows` names of dim `axis`, as f32.
static Value lookedUp(Compose &c, const FewBitTable &table, Value rows, size_t axis) {
  const size_t dim = behindLookup(table.dim, axis, c.shape(rows).size());
  Value slices = c.gather(table.stored, rows, static_cast<int64_t>(axis));
  if (c.failed())
    return nullptr;
  if (table.bits < 8)
    slices = c.slice(unpacked(c, slices, table.bits, static_cast<int64_t>(dim)), dim, 0,
                     table.extent);
  slices = c.cast(slices, c.f32());
  return table.offset == 0 ? slices : c.sub(slices, table.offset);
}

namespace {
/// Attributes and sizes of a GatherBlockQuantized.
struct BlockTable {
  size_t axis = 0, quantized = 0; ///< dims: looked up in, and cut in blocks
  int64_t bits = 4, block = 128;
  bool isBytes = false; ///< numbers are packed along the last dim
  Shape numbers;        ///< shape without packing
  int64_t blocks() const { return (numbers[quantized] + block - 1) / block; }
};
} // namespace

static std::string textOf(const Shape &shape) {
  std::string list;
  for (int64_t extent : shape)
    list += (list.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + list + "]";
}

Expected<void> import::checkShape(const Compose &c, const Node &node, size_t input,
                                  const Shape &expected) {
  const Shape shape = c.shape(c.importer.input(node, input));
  if (shape == expected)
    return {};
  return makeError("input " + std::to_string(input) + " '" + node.inputs[input] +
                   "' has shape " + textOf(shape) + ", expected is " + textOf(expected));
}

static Expected<BlockTable> blockTable(Compose &c, const Node &node) {
  Value data = c.importer.input(node, 0);
  BlockTable table;
  table.isBytes = c.type(data).isUnsignedInteger(8);
  table.numbers = c.shape(data);
  table.bits = intAttr(node, "bits", 4);
  table.block = intAttr(node, "block_size", 128);
  const DType type = *dtypeOf(c.type(data));
  if (!table.isBytes && type != DType::I4 && type != DType::U4)
    return makeError("data of " + std::string(name(type)) +
                     ", expected are u8, i4 or u4");
  if (table.bits != 4 && !(table.isBytes && (table.bits == 2 || table.bits == 8)))
    return makeError("numbers of " + std::to_string(table.bits) + " bits in " +
                     std::string(name(type)));
  if (table.block < 16 || (table.block & (table.block - 1)) != 0)
    return makeError("block_size " + std::to_string(table.block) +
                     " is no power of two of at least 16");
  if (table.numbers.size() < 2)
    return makeError("data of " + std::to_string(table.numbers.size()) +
                     " dims, expected are at least 2");
  table.axis = c.axis(intAttr(node, "gather_axis", 0), data);
  table.quantized = c.axis(intAttr(node, "quantize_axis", 1), data);
  if (auto known = c.results({}); !known)
    return tl::unexpected(known.error());
  const size_t last = table.numbers.size() - 1;
  if (table.isBytes && (table.axis != 0 || table.quantized != last))
    return makeError("data of u8 whose gather_axis is " + std::to_string(table.axis) +
                     " and quantize_axis " + std::to_string(table.quantized) +
                     ", expected are 0 and " + std::to_string(last));
  if (table.isBytes)
    table.numbers[last] *= 8 / table.bits;
  Shape perBlock = table.numbers;
  perBlock[table.quantized] = table.blocks();
  if (auto ok = checkShape(c, node, 2, perBlock); !ok)
    return tl::unexpected(ok.error());
  if (!node.hasInput(3))
    return table;
  if (table.isBytes)
    perBlock[last] = (table.blocks() * table.bits + 7) / 8;
  if (c.type(c.importer.input(node, 3)) != c.type(data))
    return makeError("zero points of another type than the data's");
  if (auto ok = checkShape(c, node, 3, perBlock); !ok)
    return tl::unexpected(ok.error());
  return table;
}

/// Rows of a table of numbers in blocks, each with a scale and a zero point. The lookup
/// is that of bytes. An index that names no row gives zeros.
static Expected<Values> importGatherBlocks(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  auto found = blockTable(c, node);
  if (!found)
    return tl::unexpected(found.error());
  const BlockTable &table = *found;
  const size_t axis = table.axis, rank = c.shape(in(1)).size();
  const auto rows = static_cast<double>(table.numbers[axis]);
  Value row = in(1);
  row = c.select(c.less(row, 0), c.add(row, rows), row);
  Value isRow = c.both(c.op("greater_equal", {row, c.like(row, 0)}), c.less(row, rows));
  row = c.select(isRow, row, c.like(row, 0));
  // Blocks of the dim that is looked up in are looked up themselves.
  const bool isAlong = axis == table.quantized;
  Value block = isAlong ? c.div(row, static_cast<double>(table.block)) : row;
  Value y =
      lookedUp(c, tableOf(c, in(0), axis, table.bits, table.numbers.back()), row, axis);
  auto perNumber = [&](Value value) {
    return isAlong
               ? value
               : beside(c, value, c.shape(y),
                        static_cast<int64_t>(behindLookup(table.quantized, axis, rank)),
                        table.block);
  };
  if (in(3)) {
    const int64_t last = table.isBytes ? table.blocks() : c.shape(in(3)).back();
    Value zeros = lookedUp(c, tableOf(c, in(3), axis, table.bits, last), block, axis);
    y = c.sub(y, perNumber(zeros));
  } else if (table.isBytes) {
    y = c.sub(y, double(1 << (table.bits - 1)));
  }
  Value scales = c.gather(in(2), block, static_cast<int64_t>(axis));
  y = c.cast(c.mul(y, perNumber(c.cast(scales, c.f32()))), c.type(in(2)));
  Shape places(axis, 1);
  llvm::append_range(places, c.shape(in(1)));
  places.resize(c.shape(y).size(), 1);
  return c.results({c.select(c.reshape(isRow, places), y, c.like(y, 0))});
}

//===-- Numbers of 16 values ----------------------------------------------===//

/// Values of bitsandbytes' FP4 and NF4 by their 4 bits, of which 1 is the largest.
static std::vector<double> valuesOf(bool isNormal) {
  if (!isNormal)
    return {
        0,  5.208333333e-03F,  0.66666667F,  1,  0.33333333F,  0.5,  0.16666667F,  0.25,
        -0, -5.208333333e-03F, -0.66666667F, -1, -0.33333333F, -0.5, -0.16666667F, -0.25};
  return {-1,
          -0.6961928009986877,
          -0.5250730514526367,
          -0.39491748809814453,
          -0.28444138169288635,
          -0.18477343022823334,
          -0.09105003625154495,
          0,
          0.07958029955625534,
          0.16093020141124725,
          0.24611230194568634,
          0.33791524171829224,
          0.44070982933044434,
          0.5626170039176941,
          0.7229568362236023,
          1};
}

/// The matrix [N, K] of a MatMulBnb4. Folding would expand the matrix, so that numbers
/// stay packed, and each run looks them up.
static Value bnbWeight(Compose &c, const Node &node, int64_t n, int64_t k,
                       int64_t block) {
  graph::Formula plain(c.builder, c.importer.location);
  Value bytes = c.importer.input(node, 1), largest = c.importer.input(node, 2);
  const Type real = c.type(largest);
  Value table = c.tensor(real, {16}, valuesOf(intAttr(node, "quant_type", 0) == 1));
  auto realOf = [&](Value packed) {
    Value number = plain.cast(unpacked(plain, packed, 4, -1, /*isHighFirst=*/true),
                              c.importer.builder.getI32Type());
    return plain.gather(table, number, 0);
  };
  Value weight;
  if (k % block == 0) { // Rows and their blocks are dims that split.
    const Shape perBlock{n, k / block, 1};
    weight = plain.mul(realOf(plain.reshape(bytes, {n, k / block, block / 2})),
                       c.reshape(largest, perBlock));
    weight = plain.reshape(weight, {n, k});
  } else {
    const int64_t count = n * k, blocks = (count + block - 1) / block;
    Value scale = plain.broadcast(c.reshape(largest, {blocks, 1}), {blocks, block});
    scale = plain.slice(plain.reshape(scale, {blocks * block}), 0, 0, count);
    Value numbers = realOf(plain.reshape(bytes, {(count + 1) / 2}));
    weight = plain.mul(plain.slice(numbers, 0, 0, count), scale);
    weight = plain.reshape(weight, {n, k});
  }
  if (auto made = plain.results({weight}); !made)
    return c.fail(made.error().message);
  return weight;
}

static Expected<Values> importMatMulBnb4(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  const int64_t n = intAttr(node, "N", 0), k = intAttr(node, "K", 0);
  const int64_t block = intAttr(node, "block_size", 0);
  const int64_t type = intAttr(node, "quant_type", -1);
  const bool isTransposed = intAttr(node, "transB", 1) != 0;
  if (type != 0 && type != 1)
    return makeError("quant_type " + std::to_string(type) +
                     ", expected is 0 (FP4) or 1 (NF4)");
  if (n < 1 || k < 1)
    return makeError("N and K have to be positive");
  if (block < 16 || (block & (block - 1)) != 0)
    return makeError("block_size " + std::to_string(block) +
                     " is no power of two of at least 16");
  if (elementCount(c.shape(in(1))) != (n * k + 1) / 2 ||
      elementCount(c.shape(in(2))) != (n * k + block - 1) / block)
    return makeError("B or absmax are not those of a " + std::to_string(n) + " by " +
                     std::to_string(k) + " matrix in blocks of " + std::to_string(block));
  const int64_t summands = isTransposed ? k : n;
  if (c.shape(in(0)).empty() || c.shape(in(0)).back() != summands)
    return makeError("rows of A have " +
                     std::to_string(c.shape(in(0)).empty() ? 0 : c.shape(in(0)).back()) +
                     " elements, expected are " + std::to_string(summands));
  Value weight = c.cast(bnbWeight(c, node, n, k, block), c.type(in(0)));
  if (isTransposed)
    weight = c.transpose(weight, {1, 0});
  return c.results({c.take(matMul(importer, in(0), weight))});
}

void import::addBlockWeights(HandlerTable &table) {
  table["com.microsoft.MatMulNBits"] = takesCounts(importMatMulNBits);
  table["com.microsoft.GatherBlockQuantized"] = takesCounts(importGatherBlocks);
  table["com.microsoft.MatMulBnb4"] = takesCounts(importMatMulBnb4);
}
