//===- Experts.cpp - Experts that tokens choose ---------------------------===//
//
// MoE and QMoE: each token goes through the k experts that its router likes best, and
// their results are summed by weights. The program computes all experts of all tokens,
// and what a token did not choose has weight 0. So experts, tokens and columns are loops
// of products, each of which splits, and there is no bound on the tokens of an expert.
// Weights go before the last product, which is linear: it sums over experts, too, so that
// a layer is two products, and weights of 4 bits stay packed in both.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Experts.h"

#include "passes/Import/BlockWeights.h"

#include <array>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// A product of each expert, `in` summands by `out` columns.
struct Projection {
  /// Inputs of the node: weights [experts, out, in], packed along `in` where they are
  /// numbers; scales, zero points and bias per column or block.
  size_t weight, scales, zeros, bias;
  int64_t bits; ///< bits of a number; 0: real numbers
  int64_t out, in;
};

/// A node and the sizes that it has.
struct Mixture {
  Compose &c;
  const Node &node;
  bool isQuantized;
  int64_t tokens = 0, experts = 0, hidden = 0, inner = 0;
  int64_t block = 0; ///< summands that share a scale; 0: all of a column
  int64_t fusion = 0;
  std::array<Projection, 3> projections{};

  Value input(size_t i) const { return c.importer.input(node, i); }
  Type real() const { return isQuantized ? c.f32() : c.type(input(0)); }
  int64_t blocks(const Projection &p) const { return block > 0 ? p.in / block : 1; }
};
} // namespace

//===-- Checks ------------------------------------------------------------===//

static Expected<void> checkAttributes(const Mixture &m, const std::string &activation) {
  const Node &node = m.node;
  const int64_t k = intAttr(node, "k", 1);
  if (k < 1 || k > m.experts)
    return makeError("k is " + std::to_string(k) + " of " + std::to_string(m.experts) +
                     " experts");
  if (!llvm::is_contained({"relu", "gelu", "silu", "swiglu", "identity"}, activation))
    return makeError("activation_type \"" + activation + "\" is not known");
  if (intAttr(node, "use_sparse_mixer", 0) != 0)
    return makeError("use_sparse_mixer is not supported");
  if (m.fusion < 0 || m.fusion > 2 || (m.fusion > 0 && activation != "swiglu"))
    return makeError("swiglu_fusion " + std::to_string(m.fusion) +
                     " with activation_type \"" + activation + "\"");
  if (const std::string type = stringAttr(node, "quant_type", "int"); type != "int")
    return makeError("quant_type \"" + type + "\" is not supported, \"int\" is");
  if (intAttr(node, "weights_prepacked", -1) == 1)
    return makeError("weights_prepacked 1: weights are in an order of a device's own");
  for (size_t i = 15; i < node.inputs.size(); ++i)
    if (node.hasInput(i))
      return makeError("input " + std::to_string(i) + " '" + node.inputs[i] +
                       "' is of another quant_type than \"int\"");
  return {};
}

static Expected<void> checkProjection(const Mixture &m, const Projection &p) {
  auto check = [&](size_t input, const Shape &expected) {
    return m.node.hasInput(input) ? checkShape(m.c, m.node, input, expected)
                                  : Expected<void>();
  };
  if (p.bits != 0 && p.bits != 2 && p.bits != 4 && p.bits != 8)
    return makeError("expert weights of " + std::to_string(p.bits) + " bits");
  if (p.bits != 0 && (p.in * p.bits % 8 != 0 || (m.block > 0 && p.in % m.block != 0)))
    return makeError("rows of " + std::to_string(p.in) + " numbers of " +
                     std::to_string(p.bits) + " bits are no whole " +
                     (m.block > 0 ? "blocks of " + std::to_string(m.block) : "bytes"));
  const int64_t packed = p.bits != 0 ? p.in * p.bits / 8 : p.in;
  if (auto ok = checkShape(m.c, m.node, p.weight, {m.experts, p.out, packed}); !ok)
    return ok;
  if (auto ok = check(p.bias, {m.experts, p.out}); !ok || p.bits == 0)
    return ok;
  if (!m.c.type(m.input(p.weight)).isUnsignedInteger(8))
    return makeError("input " + std::to_string(p.weight) + " '" +
                     m.node.inputs[p.weight] + "' is not of u8");
  Shape scales{m.experts, p.out}, zeros{m.experts, (p.out * p.bits + 7) / 8};
  if (m.block > 0) {
    scales.push_back(m.blocks(p));
    zeros = {m.experts, p.out, (m.blocks(p) * p.bits + 7) / 8};
  }
  if (auto ok = checkShape(m.c, m.node, p.scales, scales); !ok)
    return ok;
  return check(p.zeros, zeros);
}

/// The node's sizes and products; an error that names what does not fit.
static Expected<void> read(Mixture &m) {
  const Node &node = m.node;
  const Shape x = m.c.shape(m.input(0)), router = m.c.shape(m.input(1));
  const size_t second = m.isQuantized ? 5 : 4;
  const Shape last = m.c.shape(m.input(second));
  if ((x.size() != 2 && x.size() != 3) || router.size() != 2 || last.size() != 3)
    return makeError("input, router_probs and fc2_experts_weights have " +
                     std::to_string(x.size()) + ", " + std::to_string(router.size()) +
                     " and " + std::to_string(last.size()) +
                     " dims, expected are 2 or 3, 2 and 3");
  m.hidden = x.back(), m.experts = router[1];
  m.tokens = x.size() == 2 ? x[0] : x[0] * x[1];
  const std::string activation = stringAttr(node, "activation_type", "relu");
  m.fusion = intAttr(node, "swiglu_fusion", 0);
  m.block = m.isQuantized ? std::max<int64_t>(0, intAttr(node, "block_size", 0)) : 0;
  if (auto ok = checkAttributes(m, activation); !ok)
    return ok;
  if ((m.fusion > 0) == node.hasInput(m.isQuantized ? 8 : 6) && activation == "swiglu")
    return makeError("swiglu takes its two products from fc1 and fc3, or with "
                     "swiglu_fusion both from fc1");
  const int64_t bits = m.isQuantized ? intAttr(node, "expert_weight_bits", 4) : 0;
  auto bitsOf = [&](const char *attribute) {
    return m.isQuantized ? intAttr(node, attribute, bits) : 0;
  };
  const int64_t bits2 = bitsOf("fc2_expert_weight_bits");
  m.inner = bits2 > 0 && bits2 <= 8 ? last[2] * 8 / bits2 : last[2];
  const int64_t wide = m.fusion > 0 ? 2 * m.inner : m.inner;
  if (m.isQuantized)
    m.projections = {
        {{2, 3, 11, 4, bitsOf("fc1_expert_weight_bits"), wide, m.hidden},
         {5, 6, 12, 7, bits2, m.hidden, m.inner},
         {8, 9, 13, 10, bitsOf("fc3_expert_weight_bits"), m.inner, m.hidden}}};
  else
    m.projections = {{{2, 0, 0, 3, 0, wide, m.hidden},
                      {4, 0, 0, 5, 0, m.hidden, m.inner},
                      {6, 0, 0, 7, 0, m.inner, m.hidden}}};
  for (size_t i : {size_t(1), size_t(14)})
    if (node.hasInput(i) && (i == 1 || m.isQuantized))
      if (auto ok = checkShape(m.c, node, i, {m.tokens, m.experts}); !ok)
        return ok;
  for (const Projection &p : m.projections)
    if (node.hasInput(p.weight))
      if (auto ok = checkProjection(m, p); !ok)
        return ok;
  return {};
}

//===-- Products ----------------------------------------------------------===//

/// Scales [experts, out, blocks] in f32.
static Value scalesOf(const Mixture &m, const Projection &p) {
  Value scales = m.c.cast(m.input(p.scales), m.c.f32());
  return m.c.reshape(scales, {m.experts, p.out, m.blocks(p)});
}

/// Zero points [experts, out, blocks] as bytes; null: all are half of the range.
static Value zerosOf(const Mixture &m, const Projection &p) {
  Value zeros = m.input(p.zeros);
  if (!zeros)
    return nullptr;
  zeros = unpacked(m.c, zeros, p.bits);
  const bool isPerBlock = m.block > 0;
  zeros = m.c.slice(zeros, isPerBlock ? 2 : 1, 0, isPerBlock ? m.blocks(p) : p.out);
  return m.c.reshape(zeros, {m.experts, p.out, m.blocks(p)});
}

/// Bytes [experts, out, in / 2] with the columns before the experts.
static HostTensor byColumns(const HostTensor &weight, const Shape &shape) {
  HostTensor result = HostTensor::zeros(DType::U8, shape);
  const int64_t experts = weight.shape[0], out = weight.shape[1], row = weight.shape[2];
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t j = 0; j < out; ++j)
      std::copy_n(weight.bytes.begin() + (e * out + j) * row, row,
                  result.bytes.begin() + (j * experts + e) * row);
  return result;
}

/// The weights as they are stored, where the form does: the experts' columns side by
/// side, or, where `isSummed`, their summands one behind the other.
static std::optional<BlockWeight> packed(const Mixture &m, const Projection &p, Value x,
                                         bool isSummed) {
  Compose &c = m.c;
  const int64_t block = m.block > 0 ? m.block : p.in, blocks = m.blocks(p);
  if (p.bits != 4 || !takesForm(c, x, m.input(p.weight), block))
    return std::nullopt;
  Value zeros = zerosOfForm(c, zerosOf(m, p));
  if (!isSummed) {
    auto perBlock = [&](Value value) {
      return c.transpose(c.reshape(value, {m.experts * p.out, blocks}), {1, 0});
    };
    // An op also of a weight: hints go by the weight's name.
    graph::Formula plain(c.builder, c.importer.location);
    Value numbers =
        plain.reshape(m.input(p.weight), {m.experts * p.out, blocks, block / 2});
    return BlockWeight{numbers, perBlock(scalesOf(m, p)),
                       zeros ? perBlock(zeros) : Value(), block, p.in};
  }
  auto perBlock = [&](Value value) {
    return c.reshape(c.transpose(value, {0, 2, 1}), {m.experts * blocks, p.out});
  };
  const Shape shape{p.out, m.experts * blocks, block / 2};
  Type type = tensorType(c.importer.builder.getContext(), DType::U8, shape);
  Value numbers = c.importer.derivedWeight(
      m.input(p.weight), cast<RankedTensorType>(type),
      [&](const HostTensor &known) { return byColumns(known, shape); });
  return BlockWeight{numbers, perBlock(scalesOf(m, p)), zeros ? perBlock(zeros) : Value(),
                     block, m.experts * p.in};
}

/// Weights [experts, out, in] as real numbers.
static Value expanded(const Mixture &m, const Projection &p) {
  Compose &c = m.c;
  if (p.bits == 0)
    return m.input(p.weight);
  const int64_t blocks = m.blocks(p);
  const Shape apart{m.experts, p.out, blocks, p.in / blocks};
  const Shape beside{m.experts, p.out, blocks, 1};
  Value numbers = c.cast(unpacked(c, m.input(p.weight), p.bits), c.f32());
  numbers = c.reshape(numbers, apart);
  if (Value zeros = zerosOf(m, p))
    numbers = c.sub(numbers, c.reshape(c.cast(zeros, c.f32()), beside));
  else
    numbers = c.sub(numbers, double(1 << (p.bits - 1)));
  numbers = c.mul(numbers, c.reshape(scalesOf(m, p), beside));
  return c.reshape(numbers, {m.experts, p.out, p.in});
}

/// Tokens [tokens, in] times the matrices of all experts: [tokens, experts, out].
static Value ofAll(const Mixture &m, const Projection &p, Value x) {
  Compose &c = m.c;
  Value y;
  if (auto weight = packed(m, p, x, /*isSummed=*/false))
    y = c.reshape(blockProduct(c, x, *weight), {m.tokens, m.experts, p.out});
  else
    y = c.contract(x, expanded(m, p), "t i, e o i -> t e o");
  Value bias = m.input(p.bias);
  return bias ? c.add(y, c.cast(bias, c.type(y))) : y;
}

/// Rows of each expert, [tokens, experts, in], times its matrix, and biases times `gates`
/// [tokens, experts], summed over experts: [tokens, out].
static Value summed(const Mixture &m, const Projection &p, Value x, Value gates) {
  Compose &c = m.c;
  Value y, rows = c.reshape(x, {m.tokens, m.experts * p.in});
  if (auto weight = packed(m, p, rows, /*isSummed=*/true))
    y = blockProduct(c, rows, *weight);
  else
    y = c.contract(x, expanded(m, p), "t e i, e o i -> t o");
  if (Value bias = m.input(p.bias))
    y = c.add(y, c.contract(gates, c.cast(bias, c.type(y)), "t e, e o -> t o"));
  return y;
}

//===-- Formulas ----------------------------------------------------------===//

/// Flags of the experts that a token chose, and weights, 0 for the others: both [tokens,
/// experts]. Weights of a QMoE are a softmax over the chosen experts; a MoE's is over all
/// unless `normalize_routing_weights`.
static std::pair<Value, Value> route(const Mixture &m) {
  Compose &c = m.c;
  const int64_t k = intAttr(m.node, "k", 1);
  Value logits = c.cast(m.input(1), c.f32());
  Value given = m.isQuantized ? m.input(14) : Value();
  Values order = c.ops("sort", 2, logits,
                       {c.attr("axis", int64_t(1)), c.attr("count", k),
                        c.attr("descending", c.builder.getBoolAttr(true))});
  Value places = c.reshape(c.slice(order[1], 1, 0, k), {m.tokens, k, 1});
  Value hits = c.cast(c.equal(places, c.iota(c.i64(), m.experts, 2, 3)), c.f32());
  Value isChosen = c.equal(c.sum(hits, {1}, /*keep=*/false), 1);
  Value weights = given ? c.cast(given, c.f32())
                        : c.op("softmax", logits, c.attr("axis", int64_t(1)));
  weights = c.select(isChosen, weights, c.like(weights, 0));
  if (intAttr(m.node, "normalize_routing_weights", 0) != 0 || (m.isQuantized && !given)) {
    Value total = c.sum(weights, {1});
    weights = c.select(c.equal(total, 0), c.like(weights, 0), c.div(weights, total));
  }
  return {isChosen, c.cast(weights, m.real())};
}

/// The activation of [tokens, experts, out], `linear` beside it where fc3 makes one.
static Value activated(const Mixture &m, Value x, Value linear) {
  Compose &c = m.c;
  const std::string kind = stringAttr(m.node, "activation_type", "relu");
  auto swish = [&](Value of, double alpha) {
    Value inner = alpha == 1 ? of : c.mul(of, alpha);
    return c.mul(of, c.op("sigmoid", inner));
  };
  if (kind == "swiglu") {
    const double limit = floatAttr(m.node, "swiglu_limit", INFINITY);
    Value gate = x;
    const Shape each{m.tokens, m.experts, m.inner};
    if (m.fusion == 1) {
      Value pairs = c.reshape(x, {m.tokens, m.experts, m.inner, 2});
      gate = c.reshape(c.slice(pairs, 3, 0, 1), each);
      linear = c.reshape(c.slice(pairs, 3, 1, 2), each);
    } else if (m.fusion == 2) {
      gate = c.slice(x, 2, 0, m.inner);
      linear = c.slice(x, 2, m.inner, 2 * m.inner);
    }
    if (std::isfinite(limit)) {
      gate = c.min(gate, limit);
      linear = c.clamp(linear, -limit, limit);
    }
    linear = c.add(linear, floatAttr(m.node, "activation_beta", 0));
    return c.mul(swish(gate, floatAttr(m.node, "activation_alpha", 1)), linear);
  }
  Value y = x;
  if (kind == "relu")
    y = c.op("relu", x);
  else if (kind == "gelu")
    y = c.op("gelu_tanh", x);
  else if (kind == "silu")
    y = swish(x, 1);
  return linear ? c.mul(y, linear) : y;
}

static Expected<Values> importExperts(Importer &importer, const Node &node) {
  Compose c(importer);
  Mixture m{c, node, node.opType == "QMoE"};
  if (auto ok = read(m); !ok)
    return tl::unexpected(ok.error());
  const auto &[first, last, third] = m.projections;
  Value x = c.cast(c.reshape(m.input(0), {m.tokens, m.hidden}), m.real());
  auto [isChosen, gates] = route(m);
  Value linear = node.hasInput(third.weight) ? ofAll(m, third, x) : Value();
  Value inner = activated(m, ofAll(m, first, x), linear);
  // An expert that was not chosen adds nothing, even where its numbers are infinite.
  const Shape beside{m.tokens, m.experts, 1};
  inner = c.mul(inner, c.reshape(gates, beside));
  inner = c.select(c.reshape(isChosen, beside), inner, c.like(inner, 0));
  Value y = summed(m, last, inner, gates);
  return c.results({c.reshape(c.cast(y, c.type(m.input(0))), c.shape(m.input(0)))});
}

void import::addExperts(HandlerTable &table) {
  table["com.microsoft.MoE"] = takesCounts(importExperts);
  table["com.microsoft.QMoE"] = takesCounts(importExperts);
}
