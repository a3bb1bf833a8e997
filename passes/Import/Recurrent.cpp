//===- Recurrent.cpp - Import of RNN, GRU and LSTM ------------------------===//
//
// The input's part of all gates of all steps is one product; a step is a product with the
// state and elementwise ops, and is the body of a loop.
//
//===----------------------------------------------------------------------===//
#include "passes/Import/Compose.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// So many steps stand in the program one behind the other: a loop would be as long.
static constexpr int64_t alwaysUnrolled = 2;
/// More would make programs that take minutes to compile.
static constexpr int64_t mostUnrolled = 512;

namespace {
/// Parameters only where the function has some.
struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

/// One direction of a recurrent op: what its steps read.
struct Direction {
  Value projected;     ///< [T, B, gates·H]: x·Wᵀ with the biases that are only added
  Value recurrent;     ///< [gates·H, H]
  Value recurrentBias; ///< [1, H], of a GRU whose reset comes behind the product; or null
  Value peepholes;     ///< [1, 3·H] of an LSTM, or null
  Value h, c;          ///< the state [B, H]; c of an LSTM only
  SmallVector<Activation> activations;
};

class Recurrent {
public:
  Recurrent(Importer &importer, const Node &node) : c(importer), node(node) {}
  Expected<Values> run();

private:
  Direction direction(int64_t d);
  void step(Direction &d, Value x);
  Value stepOf(Direction &d, Value own, Value time);
  Value unrolled(Direction &d, bool isBackward);
  Value repeated(Direction &d, bool isBackward);
  void rnnStep(Direction &d, Value gates);
  void gruStep(Direction &d, Value x);
  void lstmStep(Direction &d, Value gates);
  Value activate(const Activation &activation, Value x);
  void readActivations();
  Value gate(Value gates, int64_t i) {
    return c.slice(gates, 1, i * hidden, (i + 1) * hidden);
  }
  /// Slice `d` of a parameter with a dim of directions in front.
  Value parameter(size_t input, int64_t d);
  Value input(size_t i) { return c.importer.input(node, i); }
  Value clipped(Value x) { return clip > 0 ? c.clamp(x, -clip, clip) : x; }
  Value recurrentProduct(const Direction &d, Value h, int64_t from, int64_t to) {
    return c.contract(h, c.slice(d.recurrent, 0, from * hidden, to * hidden),
                      "b h, g h -> b g");
  }

  Compose c;
  const Node &node;
  bool isLstm = false, isGru = false, batchFirst = false;
  int64_t steps = 0, batch = 0, hidden = 0, gates = 1;
  double clip = 0;
  std::vector<Activation> activations; ///< of both directions
  Value x;                             ///< [T, B, I]
  Value lengths;                       ///< [B, 1], of sequences that end earlier; or null
};
} // namespace

Value Recurrent::parameter(size_t i, int64_t d) {
  Value all = input(i);
  if (!all)
    return nullptr;
  Shape shape = c.shape(all);
  return c.reshape(c.slice(all, 0, d, d + 1), Shape(shape.begin() + 1, shape.end()));
}

namespace {
/// An activation as an op; the defaults are those of ONNX's operator of the name.
struct KnownActivation {
  StringRef op;
  std::optional<double> alpha, beta;
};
} // namespace

static const llvm::StringMap<KnownActivation> &knownActivations() {
  static const llvm::StringMap<KnownActivation> known = {
      {"sigmoid", {"sigmoid", {}, {}}},
      {"tanh", {"tanh", {}, {}}},
      {"relu", {"relu", {}, {}}},
      {"softsign", {"softsign", {}, {}}},
      {"softplus", {"softplus", {}, {}}},
      {"elu", {"elu", 1, {}}},
      {"leakyrelu", {"leaky_relu", 0.01, {}}},
      {"thresholdedrelu", {"thresholded_relu", 1, {}}},
      {"hardsigmoid", {"hard_sigmoid", 0.2, 0.5}},
      {"affine", {"", 1, 0}},
      {"scaledtanh", {"tanh", 1, 1}}};
  return known;
}

Value Recurrent::activate(const Activation &activation, Value v) {
  const std::string &name = activation.name;
  auto found = knownActivations().find(name);
  if (found == knownActivations().end())
    return c.fail("activation '" + name + "' is not supported");
  double alpha = activation.alpha, beta = activation.beta;
  if (name == "affine")
    return c.add(c.mul(v, alpha), beta);
  if (name == "scaledtanh")
    return c.mul(c.op("tanh", c.mul(v, beta)), alpha);
  SmallVector<NamedAttribute> attrs;
  Builder &builder = c.importer.builder;
  if (found->second.alpha)
    attrs.push_back(c.attr("alpha", builder.getF64FloatAttr(alpha)));
  if (found->second.beta)
    attrs.push_back(c.attr("beta", builder.getF64FloatAttr(beta)));
  return c.op(found->second.op, v, attrs);
}

void Recurrent::readActivations() {
  size_t each = isLstm ? 3 : isGru ? 2 : 1;
  std::vector<std::string> names;
  if (const auto *given = node.attribute<std::vector<std::string>>("activations"))
    names = *given;
  auto list = [&](const char *name) {
    const auto *given = node.attribute<std::vector<float>>(name);
    return given ? *given : std::vector<float>();
  };
  // Parameters stand one behind the other, of those functions that have some.
  std::vector<float> alphas = list("activation_alpha"), betas = list("activation_beta");
  size_t alpha = 0, beta = 0;
  for (size_t i = 0; i < 2 * each; ++i) {
    bool isFirst = i % each == 0 && each != 1;
    std::string name = i < names.size() ? names[i] : isFirst ? "Sigmoid" : "Tanh";
    Activation activation{StringRef(name).lower()};
    auto known = knownActivations().lookup(activation.name);
    auto next = [](const std::vector<float> &given, size_t &at, double fallback) {
      return at < given.size() ? static_cast<double>(given[at++]) : fallback;
    };
    if (known.alpha)
      activation.alpha = next(alphas, alpha, *known.alpha);
    if (known.beta)
      activation.beta = next(betas, beta, *known.beta);
    activations.push_back(activation);
  }
}

Direction Recurrent::direction(int64_t number) {
  Direction d;
  int64_t all = gates * hidden;
  d.projected = c.contract(x, parameter(1, number), "t b i, g i -> t b g");
  d.recurrent = parameter(2, number);
  if (Value bias = parameter(3, number)) {
    Value own = c.slice(bias, 0, 0, all), recurrent = c.slice(bias, 0, all, 2 * all);
    if (isGru && intAttr(node, "linear_before_reset", 0) != 0) {
      d.recurrentBias = c.slice(recurrent, 0, 2 * hidden, all);
      Value zeros = c.sub(d.recurrentBias, d.recurrentBias);
      recurrent = c.concat({c.slice(recurrent, 0, 0, 2 * hidden), zeros}, 0);
    }
    d.projected = c.add(d.projected, c.add(own, recurrent));
  }
  Type element = c.type(x);
  Value zero = c.broadcast(c.reshape(c.scalar(element, 0), {1, 1}), {batch, hidden});
  auto initial = [&](size_t i) {
    if (!input(i))
      return zero;
    if (!batchFirst)
      return parameter(i, number);
    return c.reshape(c.slice(input(i), 1, number, number + 1), {batch, hidden});
  };
  d.h = initial(5);
  if (isLstm) {
    d.c = initial(6);
    if (Value peepholes = parameter(7, number))
      d.peepholes = c.reshape(peepholes, {1, 3 * hidden});
  }
  auto each = static_cast<int64_t>(activations.size() / 2);
  for (int64_t i = number * each; i < (number + 1) * each; ++i)
    d.activations.push_back(activations[static_cast<size_t>(i)]);
  return d;
}

void Recurrent::rnnStep(Direction &d, Value own) {
  Value sum = c.add(own, recurrentProduct(d, d.h, 0, 1));
  d.h = activate(d.activations[0], clipped(sum));
}

/// z, r, h: h' = (1 − z) ⊙ candidate + z ⊙ h.
void Recurrent::gruStep(Direction &d, Value own) {
  Value both = c.add(c.slice(own, 1, 0, 2 * hidden), recurrentProduct(d, d.h, 0, 2));
  both = activate(d.activations[0], clipped(both));
  Value z = gate(both, 0), r = gate(both, 1), part;
  if (intAttr(node, "linear_before_reset", 0) != 0) {
    part = recurrentProduct(d, d.h, 2, 3);
    if (d.recurrentBias)
      part = c.add(part, d.recurrentBias);
    part = c.mul(r, part);
  } else {
    part = recurrentProduct(d, c.mul(r, d.h), 2, 3);
  }
  Value candidate = activate(d.activations[1], clipped(c.add(gate(own, 2), part)));
  d.h = c.add(c.mul(c.sub(c.like(z, 1), z), candidate), c.mul(z, d.h));
}

/// i, o, f, c.
void Recurrent::lstmStep(Direction &d, Value own) {
  Value sum = c.add(own, recurrentProduct(d, d.h, 0, 4));
  auto peeped = [&](Value v, int64_t which, Value cell) {
    return d.peepholes ? c.add(v, c.mul(gate(d.peepholes, which), cell)) : v;
  };
  auto gated = [&](Value v) { return activate(d.activations[0], clipped(v)); };
  Value i = gated(peeped(gate(sum, 0), 0, d.c));
  Value f = intAttr(node, "input_forget", 0) != 0 ? c.sub(c.like(i, 1), i)
                                                  : gated(peeped(gate(sum, 2), 2, d.c));
  Value candidate = activate(d.activations[1], clipped(gate(sum, 3)));
  Value cell = c.add(c.mul(f, d.c), c.mul(i, candidate));
  Value o = gated(peeped(gate(sum, 1), 1, cell));
  d.c = cell;
  d.h = c.mul(o, activate(d.activations[2], cell));
}

void Recurrent::step(Direction &d, Value own) {
  if (isLstm)
    lstmStep(d, own);
  else if (isGru)
    gruStep(d, own);
  else
    rnnStep(d, own);
}

/// A step at `time`, a scalar, and what it gives: behind its end a sequence keeps its
/// state and gives zeros.
Value Recurrent::stepOf(Direction &d, Value own, Value time) {
  Value h = d.h, cell = d.c;
  step(d, own);
  if (!lengths)
    return d.h;
  Value isThere = c.less(c.cast(time, c.type(lengths)), lengths);
  Value y = c.select(isThere, d.h, c.like(d.h, 0));
  d.h = c.select(isThere, d.h, h);
  if (isLstm)
    d.c = c.select(isThere, d.c, cell);
  return y;
}

/// What all steps give, [T, B, H].
Value Recurrent::unrolled(Direction &d, bool isBackward) {
  Values rows(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    int64_t t = isBackward ? steps - 1 - i : i;
    Value own = c.reshape(c.slice(d.projected, 0, t, t + 1), {batch, gates * hidden});
    Value y = stepOf(d, own, c.scalar(c.i64(), static_cast<double>(t)));
    rows[static_cast<size_t>(t)] = c.reshape(y, {1, batch, hidden});
  }
  return c.concat(rows, 0);
}

Value Recurrent::repeated(Direction &d, bool isBackward) {
  auto turned = [&](Value rows) { return isBackward ? c.reversed(rows, 0) : rows; };
  Values carried{d.h}, scanned{turned(d.projected)};
  if (isLstm)
    carried.push_back(d.c);
  if (lengths)
    scanned.push_back(turned(c.iota(c.i64(), steps, 0, 1)));
  size_t states = carried.size();
  Values results = c.repeat(steps, carried, scanned, states + 1, [&](const Values &in) {
    Direction trip = d;
    trip.h = in[0];
    if (isLstm)
      trip.c = in[1];
    Value y = stepOf(trip, in[states], lengths ? in[states + 1] : nullptr);
    return isLstm ? Values{trip.h, trip.c, y} : Values{trip.h, y};
  });
  d.h = results[0];
  if (isLstm)
    d.c = results[1];
  return turned(results[states]);
}

Expected<Values> Recurrent::run() {
  isLstm = node.opType == "LSTM", isGru = node.opType == "GRU";
  gates = isLstm ? 4 : isGru ? 3 : 1;
  batchFirst = intAttr(node, "layout", 0) != 0;
  clip = floatAttr(node, "clip", 0);
  readActivations();
  x = batchFirst ? c.transpose(input(0), {1, 0, 2}) : input(0);
  Shape shape = c.shape(x), weights = c.shape(input(2));
  steps = shape[0], batch = shape[1], hidden = weights[2];
  if (steps > mostUnrolled && !c.importer.keepsLoops)
    return makeError("a sequence of " + std::to_string(steps) + " steps (at most " +
                     std::to_string(mostUnrolled) + " where loops are unrolled)");
  std::string way = stringAttr(node, "direction", "forward");
  int64_t directions = weights[0];
  if (lengths = input(4); lengths)
    lengths = c.reshape(lengths, {batch, 1});
  Values perDirection, lastH, lastC;
  for (int64_t number = 0; number < directions && !c.failed(); ++number) {
    Direction d = direction(number);
    bool isBackward = way == "reverse" || number == 1;
    bool isLoop = steps > alwaysUnrolled && c.importer.keepsLoops;
    Value y = isLoop ? repeated(d, isBackward) : unrolled(d, isBackward);
    perDirection.push_back(c.reshape(y, {steps, 1, batch, hidden}));
    lastH.push_back(c.reshape(d.h, {1, batch, hidden}));
    if (isLstm)
      lastC.push_back(c.reshape(d.c, {1, batch, hidden}));
  }
  if (c.failed())
    return c.results({});
  Value y = c.concat(perDirection, 1), h = c.concat(lastH, 0);
  if (batchFirst) {
    y = c.transpose(y, {2, 0, 1, 3});
    h = c.transpose(h, {1, 0, 2});
  }
  Values results{y, h};
  if (isLstm) {
    Value cell = c.concat(lastC, 0);
    results.push_back(batchFirst ? c.transpose(cell, {1, 0, 2}) : cell);
  }
  return c.results(results);
}

static Expected<Values> importRecurrent(Importer &importer, const Node &node) {
  return Recurrent(importer, node).run();
}

void import::addRecurrent(HandlerTable &table) {
  table["RNN"] = importRecurrent;
  table["GRU"] = importRecurrent;
  table["LSTM"] = importRecurrent;
}
