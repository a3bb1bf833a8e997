//===- Contrib.cpp - Import of com.microsoft's operators ------------------===//
//
// ONNX Runtime's optimizer and its exporters leave these; their definitions are in its
// docs/ContribOperators.md. Each is its formula in graph ops, so that it splits as the
// operators do that it was fused from.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"
#include "passes/Import/Experts.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

//===-- Activations -------------------------------------------------------===//

static Expected<Values> importBiasGelu(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (Value bias = importer.input(node, 1))
    x = c.add(x, bias);
  bool isFast = node.opType == "FastGelu";
  return c.results({c.op(isFast ? "gelu_tanh" : "gelu", x)});
}

static Expected<Values> importQuickGelu(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Value inner = c.mul(x, floatAttr(node, "alpha", 1.702));
  return c.results({c.mul(x, c.op("sigmoid", inner))});
}

/// The `activation` of a fused op. Its parameters are a list, or two attributes.
static Value activated(Compose &c, const Node &node, Value x) {
  std::string name = stringAttr(node, "activation", "");
  std::vector<float> given;
  if (const auto *list = node.attribute<std::vector<float>>("activation_params"))
    given = *list;
  auto parameter = [&](size_t i, const char *attribute, double fallback) {
    double value = floatAttr(node, attribute, fallback);
    return i < given.size() ? static_cast<double>(given[i]) : value;
  };
  auto real = [&](const char *to, double value) {
    return c.importer.attr(to, c.importer.builder.getF64FloatAttr(value));
  };
  if (name.empty())
    return x;
  if (name == "Relu")
    return c.op("relu", x);
  if (name == "Tanh")
    return c.op("tanh", x);
  if (name == "Sigmoid")
    return c.op("sigmoid", x);
  if (name == "LeakyRelu")
    return c.op("leaky_relu", x, real("alpha", parameter(0, "activation_alpha", 0.01)));
  if (name == "Clip")
    return c.clamp(x, parameter(0, "activation_alpha", -INFINITY),
                   parameter(1, "activation_beta", INFINITY));
  if (name == "HardSigmoid")
    return c.op("hard_sigmoid", x,
                {real("alpha", parameter(0, "activation_alpha", 0.2)),
                 real("beta", parameter(1, "activation_beta", 0.5))});
  return c.fail("activation \"" + name + "\" is not known");
}

//===-- Products ----------------------------------------------------------===//

/// Dim 0, or all but the last two, stand behind dim -2 where transBatch says so.
static Value batchMoved(Compose &c, Value x) {
  auto rank = static_cast<int64_t>(c.shape(x).size());
  std::vector<int64_t> order;
  for (int64_t d = 1; d + 1 < rank; ++d)
    order.push_back(d);
  order.push_back(0);
  order.push_back(rank - 1);
  return c.transpose(x, order);
}

static Value swapped(Compose &c, Value x) {
  std::vector<int64_t> order = c.dimsFrom(0, x);
  if (order.size() < 2)
    return x; // a vector has no dims to exchange
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.transpose(x, order);
}

static Expected<Values> importFusedMatMul(Importer &importer, const Node &node) {
  Compose c(importer);
  Value a = importer.input(node, 0), b = importer.input(node, 1);
  if (intAttr(node, "transBatchA", 0) != 0)
    a = batchMoved(c, a);
  if (intAttr(node, "transBatchB", 0) != 0)
    b = batchMoved(c, b);
  if (intAttr(node, "transA", 0) != 0)
    a = swapped(c, a);
  if (intAttr(node, "transB", 0) != 0)
    b = swapped(c, b);
  if (c.failed())
    return c.results({});
  Value y = c.take(matMul(importer, a, b));
  double alpha = floatAttr(node, "alpha", 1);
  return c.results({alpha == 1 ? y : c.mul(y, alpha)});
}

static Expected<Values> importFusedGemm(Importer &importer, const Node &node) {
  Compose c(importer);
  Value a = importer.input(node, 0), b = importer.input(node, 1);
  Value bias = importer.input(node, 2);
  if (intAttr(node, "transA", 0) != 0)
    a = swapped(c, a);
  if (intAttr(node, "transB", 0) != 0)
    b = swapped(c, b);
  Value y = c.take(matMul(importer, a, b));
  if (double alpha = floatAttr(node, "alpha", 1); alpha != 1)
    y = c.mul(y, alpha);
  if (bias)
    y = c.add(y, c.mul(bias, floatAttr(node, "beta", 1)));
  return c.results({activated(c, node, y)});
}

/// A convolution with bias, a summand and an activation.
static Expected<Values> importFusedConv(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), bias = importer.input(node, 2);
  Value y = c.take(convolution(importer, node, x, importer.input(node, 1)));
  if (bias) {
    Shape beside(c.shape(x).size() - 1, 1);
    beside[0] = elementCount(c.shape(bias));
    y = c.add(y, c.reshape(bias, beside));
  }
  if (Value summand = importer.input(node, 3))
    y = c.add(y, summand);
  return c.results({activated(c, node, y)});
}

//===-- Normalizations ----------------------------------------------------===//

/// Of the sum of operand, skip and bias, which is the last result. Mean and deviation are
/// results that only training asks for.
static Expected<Values> importSkipNorm(Importer &importer, const Node &node) {
  Compose c(importer);
  bool isSimple = node.opType == "SkipSimplifiedLayerNormalization";
  Value sum = c.add(importer.input(node, 0), importer.input(node, 1));
  Value scale = importer.input(node, 2);
  Value shift = isSimple ? Value() : importer.input(node, 3);
  if (Value bias = importer.input(node, isSimple ? 3 : 4))
    sum = c.add(sum, bias);
  for (size_t i : {1, 2})
    if (node.outputs.size() > i && !node.outputs[i].empty())
      return makeError(node.opType + " with mean or deviation as output");
  SmallVector<NamedAttribute> attrs{
      importer.attr("axis", int64_t(-1)),
      importer.attr("epsilon",
                    importer.builder.getF64FloatAttr(floatAttr(node, "epsilon", 1e-12)))};
  Value y;
  if (isSimple)
    y = c.op("rms_norm", {sum, scale}, attrs);
  else
    y = c.op("layer_norm", {sum, scale, shift ? shift : c.like(sum, 0)}, attrs);
  return c.results({y, y, y, sum});
}

/// x / sqrt(mean(x²) + epsilon) · scale: RMSNormalization before ONNX had it.
static Expected<Values> importSimplifiedNorm(Importer &importer, const Node &node) {
  Compose c(importer);
  if (node.outputs.size() > 1 && !node.outputs[1].empty())
    return makeError(node.opType + " with the deviation as output");
  double epsilon = floatAttr(node, "epsilon", 1e-5);
  return c.results(
      {c.op("rms_norm", {importer.input(node, 0), importer.input(node, 1)},
            {importer.attr("axis", intAttr(node, "axis", -1)),
             importer.attr("epsilon", importer.builder.getF64FloatAttr(epsilon))})});
}

/// The sum of the rows of words, positions and segments, normalized; the number of words
/// that the mask leaves of each sequence, 0 without a mask; the sum.
static Expected<Values> importEmbedNorm(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  Shape ids = c.shape(in(0)), table = c.shape(in(3));
  if (ids.size() != 2 || table.size() != 2)
    return makeError("EmbedLayerNormalization whose words or positions have not 2 dims");
  auto rows = [&](size_t table, Value of) {
    return c.gather(in(table), c.cast(of, c.i64()), 0);
  };
  if (!in(8) && table[0] < ids[1])
    return makeError("EmbedLayerNormalization of " + std::to_string(ids[1]) +
                     " words with " + std::to_string(table[0]) + " positions");
  Value sum =
      c.add(rows(2, in(0)), in(8) ? rows(3, in(8)) : c.slice(in(3), 0, 0, ids[1]));
  if (in(1) && in(4))
    sum = c.add(sum, rows(4, in(1)));
  double epsilon = floatAttr(node, "epsilon", 1e-12);
  Value y = c.op("layer_norm", {sum, in(5), in(6)},
                 {importer.attr("axis", int64_t(-1)),
                  importer.attr("epsilon", importer.builder.getF64FloatAttr(epsilon))});
  Type i32 = importer.builder.getI32Type();
  Value length =
      in(7) ? c.sum(c.cast(c.equal(in(7), 1), i32), {1}, false) : c.zeros(i32, {ids[0]});
  return c.results({y, length, sum});
}

//===-- Attention ---------------------------------------------------------===//

/// x [B, N, S, H] turned by the angles of its positions, i64 [B, S] or a first position
/// [1]. Of each head the first 2·(columns of the cache) elements turn.
static Value rotated(Compose &c, Value x, Value positions, Value cosines, Value sines,
                     bool isInterleaved) {
  Shape shape = c.shape(x);
  if (c.failed() || shape.size() != 4)
    return c.fail("the rotary embedding's operand has not 4 dims");
  int64_t half = c.shape(cosines)[1], turned = 2 * half;
  if (turned > shape[3])
    return c.fail("the rotary embedding's cache is wider than a head");
  if (c.shape(positions).size() != 2)
    positions = c.add(c.iota(c.i64(), shape[2], 1, 2), c.reshape(positions, {1, 1}));
  positions = c.broadcast(positions, {shape[0], shape[2]});
  Shape angles{shape[0], 1, shape[2], half};
  Value cosine = c.reshape(c.gather(cosines, positions, 0), angles);
  Value sine = c.reshape(c.gather(sines, positions, 0), angles);
  Value part = c.slice(x, 3, 0, turned), first, second;
  Shape each{shape[0], shape[1], shape[2], half};
  if (isInterleaved) {
    Value pairs = c.reshape(part, {shape[0], shape[1], shape[2], half, 2});
    first = c.reshape(c.slice(pairs, 4, 0, 1), each);
    second = c.reshape(c.slice(pairs, 4, 1, 2), each);
  } else {
    first = c.slice(part, 3, 0, half);
    second = c.slice(part, 3, half, turned);
  }
  Value x0 = c.sub(c.mul(first, cosine), c.mul(second, sine));
  Value x1 = c.add(c.mul(first, sine), c.mul(second, cosine));
  Values parts;
  if (isInterleaved) {
    Shape pair = each;
    pair.push_back(1);
    Value both = c.concat({c.reshape(x0, pair), c.reshape(x1, pair)}, 4);
    parts = {c.reshape(both, {shape[0], shape[1], shape[2], turned})};
  } else {
    parts = {x0, x1};
  }
  if (turned != shape[3])
    parts.push_back(c.slice(x, 3, turned, shape[3]));
  return c.concat(parts, 3);
}

/// [B, S, N·H] as [B, N, S, H].
static Value heads(Compose &c, Value x, int64_t count) {
  Shape s = c.shape(x);
  if (c.failed() || s.size() != 3 || count < 1 || s[2] % count != 0)
    return c.fail("the operand is not made up of " + std::to_string(count) + " heads");
  return c.transpose(c.reshape(x, {s[0], s[1], count, s[2] / count}), {0, 2, 1, 3});
}

static Value joinedHeads(Compose &c, Value x) {
  Shape s = c.shape(x);
  if (c.failed())
    return nullptr;
  return c.reshape(c.transpose(x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

static Expected<Values> importRotary(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Value cosines = importer.input(node, 2), sines = importer.input(node, 3);
  if (intAttr(node, "is_packed_batching", 0) != 0)
    return makeError("RotaryEmbedding with packed batches");
  if (floatAttr(node, "scale", 1) != 1)
    return makeError("RotaryEmbedding with a scale");
  bool isMatrix = c.shape(x).size() == 3;
  int64_t count = intAttr(node, "num_heads", 0);
  if (isMatrix && count == 0)
    count = c.shape(x)[2] / (2 * c.shape(cosines)[1]);
  Value y = rotated(c, isMatrix ? heads(c, x, count) : x, importer.input(node, 1),
                    cosines, sines, intAttr(node, "interleaved", 0) != 0);
  return c.results({isMatrix ? joinedHeads(c, y) : y});
}

namespace {
/// Softmax(q·kᵀ·scale + bias)·v over heads [B, N, S, H]; keys and values may have fewer
/// heads, each of which serves as many of the queries'.
struct Scores {
  double scale = 0, softcap = 0; ///< scale 0: 1/√H; softcap 0: none
  Value bias;                    ///< added, broadcast to [B, N, S, T]; null: none
  Value seen;                    ///< boolean, broadcast likewise; null: all
  double unseen = -65504;        ///< the score of what is not: as low as f16 can be
  Value sink; ///< per head [N], the score of one more key, of value 0; null: none
};
} // namespace

static Value attention(Compose &c, Value q, Value k, Value v, const Scores &s) {
  Shape qs = c.shape(q), ks = c.shape(k), vs = c.shape(v);
  if (c.failed() || qs.size() != 4 || ks.size() != 4 || vs.size() != 4 ||
      qs[1] % ks[1] != 0)
    return c.fail("the heads of queries and keys do not fit");
  int64_t each = qs[1] / ks[1];
  double scale = s.scale != 0 ? s.scale : 1 / std::sqrt(static_cast<double>(qs[3]));
  Value grouped = c.reshape(c.mul(q, scale), {qs[0], ks[1], each, qs[2], qs[3]});
  Value scores = c.contract(grouped, k, "b n g s h, b n t h -> b n g s t");
  scores = c.reshape(scores, {qs[0], qs[1], qs[2], ks[2]});
  if (s.softcap != 0)
    scores = c.mul(c.op("tanh", c.div(scores, s.softcap)), s.softcap);
  if (s.bias)
    scores = c.add(scores, s.bias);
  if (s.seen)
    scores = c.select(s.seen, scores, c.like(scores, s.unseen));
  if (s.sink) {
    Value sink = c.reshape(c.cast(s.sink, c.type(scores)), {1, qs[1], 1, 1});
    scores = c.concat({scores, c.broadcast(sink, {qs[0], qs[1], qs[2], 1})}, 3);
  }
  Value weights = c.op("softmax", scores, c.importer.attr("axis", int64_t(3)));
  weights = c.slice(weights, 3, 0, ks[2]);
  weights = c.reshape(weights, {qs[0], ks[1], each, qs[2], ks[2]});
  Value y = c.contract(weights, v, "b n g s t, b n t h -> b n g s h");
  return c.reshape(y, {qs[0], qs[1], qs[2], vs[3]});
}

/// Row i of S queries sees keys up to `before` + i.
static Value causal(Compose &c, int64_t queries, int64_t keys, int64_t before) {
  Value row = c.add(c.iota(c.i64(), queries, 0, 2), static_cast<double>(before));
  return c.op("less_equal", {c.iota(c.i64(), keys, 1, 2), row});
}

/// [B] lengths or [B, T] flags as booleans [B, 1, 1, T], [B, S, T] flags as [B, 1, S, T].
/// A mask of 2·B numbers has ends, then begins. A mask of 3·B + 2 numbers has B lengths,
/// then the places where packed rows begin.
static Value keyMask(Compose &c, Value mask, int64_t batch, int64_t queries,
                     int64_t keys) {
  if (c.shape(mask) == Shape{3 * batch + 2})
    mask = c.slice(mask, 0, 0, batch);
  Shape shape = c.shape(mask);
  Shape full{batch, 1, 1, keys};
  auto numbers = [&](int64_t from) {
    Value some = c.slice(mask, 0, from, from + batch);
    return c.reshape(c.cast(some, c.i64()), {batch, 1, 1, 1});
  };
  Value key = c.iota(c.i64(), keys, 3, 4);
  if (shape == Shape{batch})
    return c.less(key, numbers(0));
  if (shape == Shape{2 * batch})
    return c.both(c.less(key, numbers(0)), c.op("less_equal", {numbers(batch), key}));
  if (shape == Shape{batch, keys})
    return c.reshape(c.cast(mask, c.importer.builder.getI1Type()), full);
  if (shape == Shape{batch, queries, keys})
    return c.reshape(c.cast(mask, c.importer.builder.getI1Type()),
                     {batch, 1, queries, keys});
  return c.fail("the mask is neither one length nor one flag per key");
}

/// The scores of queries by keys, heads of both, under a node's mask, bias and order;
/// `before` keys come before the first query.
static Scores scoresOf(Compose &c, const Node &node, Value q, Value k, Value mask,
                       Value bias, int64_t before) {
  Scores scores;
  if (c.failed())
    return scores;
  Shape qs = c.shape(q), ks = c.shape(k);
  scores.scale = floatAttr(node, "scale", 0);
  scores.bias = bias;
  if (mask) {
    // A number is added: a row of which the mask leaves nothing weighs keys as without
    // it.
    Value seen = keyMask(c, mask, qs[0], qs[2], ks[2]);
    double unseen = floatAttr(node, "mask_filter_value", -10000);
    Value added = c.select(seen, c.like(q, 0), c.like(q, unseen));
    scores.bias = bias ? c.add(bias, added) : added;
  }
  if (intAttr(node, "unidirectional", 0) != 0)
    scores.seen = causal(c, qs[2], ks[2], before);
  return scores;
}

static Expected<Values> importMultiHead(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  int64_t count = intAttr(node, "num_heads", 1);
  Value query = in(0), key = in(1), value = in(2);
  for (size_t i : {8, 9})
    if (in(i))
      return makeError("MultiHeadAttention with input " + std::to_string(i) +
                       ", which its decoder's kernel has");
  // Packed: [B, S, N, 3, H], or keys and values [B, S, N, 2, H].
  auto part = [&](Value packed, int64_t i) {
    Shape s = c.shape(packed);
    return c.reshape(c.slice(packed, 3, i, i + 1), {s[0], s[1], s[2] * s[4]});
  };
  auto isPacked = [&](Value packed, int64_t parts) {
    Shape s = c.shape(packed);
    return s.size() == 5 && s[2] == count && s[3] == parts;
  };
  if (!key && isPacked(query, 3)) {
    Value packed = query;
    query = part(packed, 0), key = part(packed, 1), value = part(packed, 2);
  } else if (!value && isPacked(key, 2)) {
    Value packed = key;
    key = part(packed, 0), value = part(packed, 1);
  }
  if (!key || !value || c.shape(query).size() != 3)
    return makeError("MultiHeadAttention whose operands are neither packed nor apart");
  if (Value bias = in(3)) {
    int64_t width = c.shape(query)[2], all = c.shape(bias)[0];
    query = c.add(query, c.slice(bias, 0, 0, width));
    if (c.shape(key).size() == 3)
      key = c.add(key, c.slice(bias, 0, width, 2 * width));
    if (c.shape(value).size() == 3)
      value = c.add(value, c.slice(bias, 0, 2 * width, all));
  }
  // Keys and values of another sequence come with their heads apart.
  Value q = heads(c, query, count);
  Value k = c.shape(key).size() == 4 ? key : heads(c, key, count);
  Value v = c.shape(value).size() == 4 ? value : heads(c, value, count);
  int64_t before = in(6) ? c.shape(in(6))[2] : 0;
  if (in(6))
    k = c.concat({in(6), k}, 2), v = c.concat({in(7), v}, 2);
  if (c.failed())
    return c.results({});
  Scores scores = scoresOf(c, node, q, k, in(4), in(5), before);
  return c.results({joinedHeads(c, attention(c, q, k, v, scores)), k, v});
}

/// Queries, keys and values are made of one operand by one product; keys and values of
/// the past stand before them.
static Expected<Values> importAttention(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  if (intAttr(node, "do_rotary", 0) != 0 || in(6) ||
      intAttr(node, "past_present_share_buffer", 0) != 0)
    return makeError("Attention with do_rotary, or with a past that is the present");
  Shape xs = c.shape(in(0)), ws = c.shape(in(1)), ps = c.shape(in(4));
  if (xs.size() != 3 || ws.size() != 2)
    return makeError("Attention whose operand or weights have not 3 and 2 dims");
  std::vector<int64_t> widths =
      intsAttr(node, "qkv_hidden_sizes", std::vector<int64_t>(3, ws[1] / 3));
  if (widths.size() != 3 || widths[0] + widths[1] + widths[2] != ws[1])
    return makeError("Attention whose weights have " + std::to_string(ws[1]) +
                     " columns, which qkv_hidden_sizes do not make up");
  if (in(4) && (ps.size() != 5 || ps[0] != 2))
    return makeError("Attention whose past is not of 5 dims, the first of 2");
  Value packed = c.take(matMul(importer, in(0), in(1)));
  if (in(2))
    packed = c.add(packed, in(2));
  int64_t end = 0;
  auto part = [&](int64_t width) {
    end += width;
    return heads(c, c.slice(packed, 2, end - width, end), intAttr(node, "num_heads", 1));
  };
  Value q = part(widths[0]), k = part(widths[1]), v = part(widths[2]);
  auto behind = [&](int64_t i, Value now) {
    Value past = c.slice(in(4), 0, i, i + 1);
    return c.concat({c.reshape(past, {ps[1], ps[2], ps[3], ps[4]}), now}, 2);
  };
  if (in(4))
    k = behind(0, k), v = behind(1, v);
  Scores scores = scoresOf(c, node, q, k, in(3), in(5), in(4) ? ps[3] : 0);
  Value y = joinedHeads(c, attention(c, q, k, v, scores));
  if (node.outputs.size() < 2 || node.outputs[1].empty() || c.failed())
    return c.results({y});
  auto one = [&](Value x) {
    Shape shape = c.shape(x);
    shape.insert(shape.begin(), 1);
    return c.reshape(x, shape);
  };
  return c.results({y, c.concat({one(k), one(v)}, 0)});
}

/// Keys [B, N, T, H] of a cache: row t is the past's before the row where this call's
/// begin, `starts` [B, 1, 1, 1], then this call's.
static Value appended(Compose &c, Value past, Value now, Value starts, int64_t total) {
  Shape shape = c.shape(now);
  int64_t length = shape[2];
  shape[2] = total;
  Value t = c.iota(c.i64(), total, 2, 4), row = c.sub(t, starts);
  Value place = c.clamp(row, 0, static_cast<double>(length - 1));
  Value moved = c.op("gather_elements", {now, c.broadcast(place, shape)},
                     c.importer.attr("axis", int64_t(2)));
  Value isNow = c.both(c.op("greater_equal", {row, c.like(row, 0)}),
                       c.less(row, static_cast<double>(length)));
  Value old = c.like(now, 0);
  if (past) {
    int64_t kept = c.shape(past)[2];
    old = kept >= total
              ? c.slice(past, 2, 0, total)
              : c.concat({past, c.broadcast(c.like(now, 0), {shape[0], shape[1],
                                                             total - kept, shape[3]})},
                         2);
  }
  Value isOld = c.less(row, 0);
  return c.select(isNow, moved, c.select(isOld, old, c.like(now, 0)));
}

/// Grouped queries over a cache of keys. `seqlens_k` has, per batch row, the number of
/// keys without one; this call's queries are the last of them, but a first call's begin
/// at 0, whatever padding follows.
static Expected<Values> importGroupQuery(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  int64_t count = intAttr(node, "num_heads", 1), keys = intAttr(node, "kv_num_heads", 1);
  if (intAttr(node, "qk_output", 0) != 0 ||
      intAttr(node, "sliding_window_cache", 0) != 0 ||
      stringAttr(node, "k_quant_type", "NONE") != "NONE" ||
      stringAttr(node, "v_quant_type", "NONE") != "NONE" || in(12) || in(13))
    return makeError("GroupQueryAttention with a quantized or a sliding cache, or with "
                     "scores as output");
  auto length = importer.constantIntegers(node, 6);
  if (!length)
    return tl::unexpected(length.error());
  Value query = in(0), key = in(1), value = in(2);
  if (!key && !value && c.shape(query).size() == 3) {
    // Packed: the heads of queries, keys and values one behind the other.
    Value packed = query;
    int64_t head = c.shape(packed)[2] / (count + 2 * keys), first = count * head;
    query = c.slice(packed, 2, 0, first);
    key = c.slice(packed, 2, first, first + keys * head);
    value = c.slice(packed, 2, first + keys * head, first + 2 * keys * head);
  }
  if (!key || !value)
    return makeError("GroupQueryAttention whose operands are neither packed nor apart");
  Value q = heads(c, query, count), k = heads(c, key, keys), v = heads(c, value, keys);
  auto norm = [&](Value x, size_t weight) {
    double epsilon = floatAttr(node, "qk_norm_epsilon", 1e-6);
    return in(weight) ? c.op("rms_norm", {x, in(weight)},
                             {importer.attr("axis", int64_t(-1)),
                              importer.attr("epsilon",
                                            importer.builder.getF64FloatAttr(epsilon))})
                      : x;
  };
  q = norm(q, 14), k = norm(k, 15);
  if (c.failed() || length->size() != 1)
    return c.results({});
  Shape qs = c.shape(q);
  bool hasPast = in(3) && c.shape(in(3))[2] != 0;
  int64_t total = std::max((*length)[0], hasPast ? c.shape(in(3))[2] : 0);
  Value ends = c.add(c.reshape(c.cast(in(5), c.i64()), {qs[0], 1, 1, 1}), 1);
  Value starts = c.sub(ends, static_cast<double>(qs[2]));
  bool isFirst = !hasPast || (*length)[0] == qs[2];
  if (isFirst)
    starts = c.mul(ends, 0);
  if (intAttr(node, "do_rotary", 0) != 0) {
    bool pairs = intAttr(node, "rotary_interleaved", 0) != 0;
    Value positions = c.add(c.reshape(starts, {qs[0], 1}), c.iota(c.i64(), qs[2], 1, 2));
    // Of a first call's positions only the very first counts; the others follow it.
    if (in(9))
      positions =
          isFirst ? c.reshape(c.slice(c.slice(in(9), 0, 0, 1), 1, 0, 1), {1}) : in(9);
    q = rotated(c, q, positions, in(7), in(8), pairs);
    k = rotated(c, k, positions, in(7), in(8), pairs);
  }
  if (c.failed())
    return c.results({});
  k = appended(c, hasPast ? in(3) : Value(), k, starts, total);
  v = appended(c, hasPast ? in(4) : Value(), v, starts, total);
  Value row = c.add(starts, c.iota(c.i64(), qs[2], 2, 4));
  Value column = c.iota(c.i64(), total, 3, 4);
  Scores scores;
  scores.scale = floatAttr(node, "scale", 0);
  scores.softcap = floatAttr(node, "softcap", 0);
  scores.bias = in(10);
  scores.sink = in(11);
  if (!scores.sink && intAttr(node, "smooth_softmax", 0) == 1)
    scores.sink = c.zeros(c.type(q), {count});
  // Without an order a query sees all keys that there are.
  bool isCausal = intAttr(node, "causal", 1) != 0;
  scores.seen = isCausal ? c.op("less_equal", {column, row}) : c.less(column, ends);
  if (int64_t window = intAttr(node, "local_window_size", -1); window > 0)
    scores.seen = c.both(
        scores.seen, c.op("greater", {column, c.sub(row, static_cast<double>(window))}));
  return c.results({joinedHeads(c, attention(c, q, k, v, scores)), k, v});
}

void import::addContrib(HandlerTable &table) {
  auto add = [&](const char *name, OperatorImport handler) {
    table[std::string("com.microsoft.") + name] = handler;
  };
  add("Gelu", takesCounts(importBiasGelu));
  add("BiasGelu", takesCounts(importBiasGelu));
  add("FastGelu", takesCounts(importBiasGelu));
  add("QuickGelu", takesCounts(importQuickGelu));
  add("FusedMatMul", takesCounts(importFusedMatMul));
  add("FusedGemm", takesCounts(importFusedGemm));
  add("FusedConv", takesCounts(importFusedConv));
  add("SkipLayerNormalization", takesCounts(importSkipNorm));
  add("SkipSimplifiedLayerNormalization", takesCounts(importSkipNorm));
  add("EmbedLayerNormalization", importEmbedNorm);
  add("Attention", importAttention);
  add("RotaryEmbedding", importRotary);
  add("MultiHeadAttention", importMultiHead);
  add("GroupQueryAttention", importGroupQuery);
  addExperts(table);
  // ONNX Runtime has it in ONNX's own domain.
  table["SimplifiedLayerNormalization"] = takesCounts(importSimplifiedNorm);
}
