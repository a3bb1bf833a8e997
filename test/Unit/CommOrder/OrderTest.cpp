//===- OrderTest.cpp - Buckets, starts and order of collectives -----------===//
#include "partita/Comm/Order.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

using namespace partita;
using namespace partita::buckets;

namespace {
/// A step, op by op; ops are called by their numbers.
struct Builder {
  std::vector<Op> ops;

  int32_t op(Phase phase, std::vector<int32_t> reads) {
    ops.push_back({std::move(reads), phase});
    return static_cast<int32_t>(ops.size()) - 1;
  }
  int32_t call(Phase phase, int32_t read, int64_t bytes, int32_t parameter = -1,
               int32_t key = 0) {
    int32_t number = op(phase, {read});
    ops.back().call = {key == 1 ? CallKind::AllGather : CallKind::AllReduce, key, bytes,
                       bytes, parameter};
    return number;
  }
  /// A gather of a weight for a layer.
  int32_t weight(Phase phase, int32_t layer, int64_t bytes, int32_t parameter = -1) {
    int32_t number = op(phase, {});
    ops.back().call = {CallKind::AllGather, 2, bytes, bytes, parameter, layer};
    return number;
  }
  /// The end reads what nobody else does.
  std::vector<Op> done() {
    std::set<int32_t> left;
    for (size_t i = 0; i < ops.size(); ++i) {
      left.insert(static_cast<int32_t>(i));
      for (int32_t read : ops[i].reads)
        left.erase(read);
    }
    op(Phase::Forward, {left.begin(), left.end()});
    return ops;
  }
};

/// Layers of these parameters' bytes: forward, then cotangent, weight gradient, its sum
/// and its update from the last to the first.
Builder stack(const std::vector<int64_t> &bytes) {
  Builder b;
  std::vector<int32_t> activations{b.op(Phase::Forward, {})};
  for (size_t l = 0; l < bytes.size(); ++l)
    activations.push_back(b.op(Phase::Forward, {activations.back()}));
  b.call(Phase::Forward, activations.back(), 4);
  int32_t cotangent = b.op(Phase::Backward, {activations.back()});
  for (size_t l = bytes.size(); l-- > 0;) {
    int32_t gradient = b.op(Phase::Weight, {activations[l], cotangent});
    int32_t sum = b.call(Phase::Weight, gradient, bytes[l], static_cast<int32_t>(l));
    b.op(Phase::Update, {sum});
    if (l > 0)
      cotangent = b.op(Phase::Backward, {cotangent});
  }
  return b;
}

/// Marks ops that calls need which are waited for where they start: such ops may stand
/// before their places.
std::vector<bool> mayBeEarly(const std::vector<Op> &ops, const Order &order) {
  std::vector<bool> result(ops.size(), false);
  for (size_t s = 0; s + 1 < order.steps.size(); ++s)
    if (const Step &step = order.steps[s];
        step.kind == Step::Kind::Start && order.steps[s + 1].kind == Step::Kind::Wait)
      for (int32_t member : order.buckets[static_cast<size_t>(step.number)])
        result[static_cast<size_t>(member)] = true;
  for (size_t o = ops.size(); o-- > 0;)
    for (int32_t read : ops[o].reads)
      result[static_cast<size_t>(read)] = result[static_cast<size_t>(read)] || result[o];
  return result;
}

/// A fault in the order of a step.
std::string wrong(const std::vector<Op> &ops, const Order &order,
                  const Options &options) {
  std::vector<int> bucketOf(ops.size(), -1);
  for (size_t b = 0; b < order.buckets.size(); ++b)
    for (int32_t member : order.buckets[b]) {
      const Op &op = ops[static_cast<size_t>(member)];
      const Op &first = ops[static_cast<size_t>(order.buckets[b][0])];
      if (!op.call || op.call->key != first.call->key)
        return "a bucket of two keys";
      bucketOf[static_cast<size_t>(member)] = static_cast<int>(b);
    }
  std::vector<bool> isThere(ops.size(), false);
  std::set<int32_t> flying, begun;
  bool flyingWeights = false;
  auto readsAreThere = [&](int32_t op) {
    return std::ranges::all_of(ops[static_cast<size_t>(op)].reads, [&](int32_t read) {
      return isThere[static_cast<size_t>(read)];
    });
  };
  const std::vector<bool> isEarly = mayBeEarly(ops, order);
  int32_t last = -1;
  for (const auto [kind, number] : order.steps) {
    auto n = static_cast<size_t>(number);
    if (kind == Step::Kind::Run) {
      if (bucketOf[n] >= 0 || isThere[n] || !readsAreThere(number))
        return "op " + std::to_string(number) + " runs too early, or twice";
      isThere[n] = true;
      bool keepsOrder = !ops[n].reads.empty() && (ops[n].phase == Phase::Forward ||
                                                  ops[n].phase == Phase::Backward);
      if (keepsOrder && number < last)
        return "op " + std::to_string(number) + " has left its place";
      last = keepsOrder && !isEarly[n] ? number : last;
      continue;
    }
    if (kind == Step::Kind::Start) {
      for (int32_t member : order.buckets[n])
        if (!readsAreThere(member))
          return "bucket " + std::to_string(number) + " starts too early";
      // The weights of a layer do not count, but may be of one layer alone.
      const bool isWeights =
          ops[static_cast<size_t>(order.buckets[n][0])].call->gathersWeight();
      if (isWeights && std::exchange(flyingWeights, true))
        return "bucket " + std::to_string(number) + " is of a second layer";
      if (!isWeights)
        flying.insert(number);
      if (!begun.insert(number).second ||
          static_cast<int32_t>(flying.size()) > options.maxInFlight + 1)
        return "bucket " + std::to_string(number) + " starts twice, or as one too many";
      continue;
    }
    const bool isWeights =
        ops[static_cast<size_t>(order.buckets[n][0])].call->gathersWeight();
    if (isWeights ? !std::exchange(flyingWeights, false) : flying.erase(number) == 0)
      return "bucket " + std::to_string(number) + " does not fly";
    for (int32_t member : order.buckets[n])
      isThere[static_cast<size_t>(member)] = true;
  }
  return std::ranges::count(isThere, false) ? "an op does not run" : "";
}

std::vector<size_t> sizes(const Order &order) {
  std::vector<size_t> list;
  for (const auto &bucket : order.buckets)
    list.push_back(bucket.size());
  return list;
}
} // namespace

TEST_CASE("a small step has one call, with the metric's sum in it") {
  std::vector<Op> ops = stack({400, 30, 200}).done();
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(order.calls == 1);
  CHECK(sizes(order) == std::vector<size_t>{4});
  CHECK(order.gradientBytes == 630);
  CHECK(order.earlyBytes == 0);
  CHECK(order.maxBytesInFlight == 634);
}

TEST_CASE("a large step has few calls, and all but the last start early") {
  std::vector<Op> ops = stack(std::vector<int64_t>(48, 10 << 20)).done();
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(order.calls <= 8);
  CHECK(order.earlyBytes >= order.gradientBytes * 9 / 10);
  // Calls in flight, and the one that starts.
  CHECK(order.maxBytesInFlight <= 3 * (order.gradientBytes / 6));
  Options blocking;
  blocking.maxInFlight = 0;
  Order apart = orderOf(ops, blocking);
  CHECK(wrong(ops, apart, blocking) == "");
  CHECK(apart.maxBytesInFlight <= order.gradientBytes / 6);
}

TEST_CASE("small weight gradients stand behind the start of a large last one") {
  // A tied table of a third of the bytes, whose gradient is the last.
  std::vector<int64_t> bytes(49, 7 << 20);
  bytes[0] = 150 << 20;
  std::vector<Op> ops = stack(bytes).done();
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(order.earlyBytes >= order.gradientBytes * 9 / 10);
  CHECK(order.calls <= 10);
  Options fixed;
  fixed.movesWeights = false;
  Order plain = orderOf(ops, fixed);
  CHECK(wrong(ops, plain, fixed) == "");
  CHECK(plain.earlyBytes < plain.gradientBytes * 3 / 4);
  CHECK(plain.earlyBytes >= plain.gradientBytes * 65 / 100);
}

TEST_CASE("parts of gradients come layer by layer where weights lie in parts") {
  // Two parameters a layer, of as many bytes; the smallest layers share a call.
  const std::vector<int64_t> bytes{1 << 10, 1 << 10, 2 << 10, 2 << 10, 1 << 20,
                                   1 << 20, 8 << 20, 8 << 20, 1 << 20, 1 << 20};
  auto ops = stack(bytes).done();
  for (Op &op : ops)
    if (op.call && op.call->parameter >= 0) {
      op.call->kind = CallKind::ReduceScatter;
      op.call->key = 3;
      op.call->layer = op.call->parameter / 2;
    }
  auto parametersOf = [&](const Order &order) {
    std::vector<std::set<int32_t>> result;
    for (const auto &bucket : order.buckets) {
      std::set<int32_t> parameters;
      for (int32_t member : bucket)
        parameters.insert(ops[static_cast<size_t>(member)].call->parameter);
      if (*parameters.begin() >= 0)
        result.push_back(parameters);
    }
    return result;
  };
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(parametersOf(order) ==
        std::vector<std::set<int32_t>>{{8, 9}, {6, 7}, {4, 5}, {0, 1, 2, 3}});
  // Weights that are whole: few buckets, whatever the layers.
  for (Op &op : ops)
    if (op.call)
      op.call->layer = -1;
  CHECK(parametersOf(orderOf(ops, {})) != parametersOf(order));
}

TEST_CASE("sums of updates are calls of their own") {
  Builder b = stack({400, 30});
  // A norm of the gradients, of which every new value is made; and gathers of those.
  int32_t norm = b.call(Phase::Update, static_cast<int32_t>(b.ops.size()) - 1, 4);
  for (int i = 0; i < 2; ++i)
    b.call(Phase::Update, b.op(Phase::Update, {norm}), 100, -1, /*key=*/1);
  std::vector<Op> ops = b.done();
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(sizes(order) == std::vector<size_t>{3, 1, 2});
}

TEST_CASE("what cannot wait ends a bucket") {
  Builder b = stack({400, 30});
  auto last = static_cast<int32_t>(b.ops.size()) - 1;
  b.op(Phase::Backward, {last}); // reads an update
  b.call(Phase::Weight, b.op(Phase::Weight, {last + 1}), 50);
  std::vector<Op> ops = b.done();
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(order.calls == 2);
}

TEST_CASE("buckets by size, by index, by groups, and none") {
  std::vector<Op> ops = stack({10, 10, 10, 25, 10, 10}).done();
  Options options;
  Fusion &fusion = options.fusion[static_cast<size_t>(CallKind::AllReduce)];
  fusion = {Fusion::Mode::Size, 24};
  Order order = orderOf(ops, options);
  CHECK(wrong(ops, order, options) == "");
  CHECK(sizes(order) == std::vector<size_t>{3, 1, 2, 1});
  fusion = {Fusion::Mode::Index, 0, {1, 4}};
  order = orderOf(ops, options);
  CHECK(wrong(ops, order, options) == "");
  CHECK(sizes(order) == std::vector<size_t>{1, 2, 3, 1}); // the metric, 4–5, 1–3, 0
  fusion = {Fusion::Mode::Alone};
  order = orderOf(ops, options);
  CHECK(wrong(ops, order, options) == "");
  CHECK(order.calls == 7);
  fusion.groups = {0, -1, 0, -1, -1, 0};
  order = orderOf(ops, options);
  CHECK(wrong(ops, order, options) == "");
  CHECK(order.calls == 5);
}

namespace {
/// The moments of two norms, one behind a chain of `length` ops beside the other, and the
/// sum of both.
std::vector<Op> norms(int length, int64_t bytes, bool isChained) {
  Builder b;
  int32_t x = b.op(Phase::Forward, {}), loss = b.op(Phase::Forward, {x});
  int32_t first = b.call(Phase::Forward, loss, bytes);
  int32_t y = b.op(Phase::Forward, {x, first});
  int32_t way = isChained ? y : x;
  for (int i = 0; i < length; ++i)
    way = b.op(Phase::Forward, {way});
  int32_t second = b.call(Phase::Forward, way, bytes);
  b.op(Phase::Forward, {y, b.op(Phase::Forward, {way, second})});
  return b.done();
}
} // namespace

TEST_CASE("small calls of norms that do not need each other meet") {
  std::vector<Op> ops = norms(3, 512, false);
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(sizes(order) == std::vector<size_t>{2});
  CHECK(order.calls == 1);
  CHECK(order.met == 2);
  // A norm behind the other, a long way, many bytes, and an order not to.
  auto calls = [](const std::vector<Op> &apart, const Options &options) {
    Order order = orderOf(apart, options);
    CHECK(wrong(apart, order, options) == "");
    return order.calls;
  };
  CHECK(calls(norms(3, 512, true), {}) == 2);
  CHECK(calls(norms(17, 512, false), {}) == 2);
  CHECK(calls(norms(3, 40 << 10, false), {}) == 2);
  Options alone;
  alone.fusion[0].mode = Fusion::Mode::Alone;
  CHECK(calls(ops, alone) == 2);
}

namespace {
/// Layers of two products, each with a gathered weight, forward and back again.
std::vector<Op> sharded(int32_t layers, int64_t bytes) {
  Builder b;
  int32_t x = b.op(Phase::Forward, {});
  auto layer = [&](Phase phase, int32_t l) {
    for (int32_t k = 0; k < 2; ++k)
      x = b.op(phase, {x, b.weight(phase, l, bytes, 2 * l + k)});
  };
  for (int32_t l = 0; l < layers; ++l)
    layer(Phase::Forward, l);
  for (int32_t l = layers; l-- > 0;)
    layer(Phase::Backward, l);
  return b.done();
}
} // namespace

TEST_CASE("weights of a layer come in one call, while the layer before is computed") {
  std::vector<Op> ops = sharded(3, 1 << 20);
  Order order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(sizes(order) == std::vector<size_t>(6, 2));
  CHECK(order.maxBytesInFlight == 2 << 20);
  using Kind = buckets::Step::Kind;
  // The first call, the second one, then the two products of the first layer.
  const std::vector<buckets::Step> begin(order.steps.begin(), order.steps.begin() + 7);
  CHECK(begin == std::vector<buckets::Step>{{Kind::Run, 0},
                                            {Kind::Start, 0},
                                            {Kind::Wait, 0},
                                            {Kind::Start, 1},
                                            {Kind::Run, 2},
                                            {Kind::Run, 4},
                                            {Kind::Wait, 1}});
  Options options;
  options.maxInFlight = 0;
  order = orderOf(ops, options);
  CHECK(wrong(ops, order, options) == "");
  CHECK(order.steps[3].kind == Kind::Run);
  // Small layers share a call, but not over the turn.
  ops = sharded(3, 1 << 10);
  order = orderOf(ops, {});
  CHECK(wrong(ops, order, {}) == "");
  CHECK(sizes(order) == std::vector<size_t>{6, 6});
}

TEST_CASE("weights by size, by index, by groups, and none") {
  std::vector<Op> ops = sharded(2, 1 << 20);
  Options options;
  Fusion &fusion = options.fusion[static_cast<size_t>(CallKind::AllGather)];
  auto found = [&] {
    Order order = orderOf(ops, options);
    CHECK(wrong(ops, order, options) == "");
    return sizes(order);
  };
  fusion = {Fusion::Mode::Size, 3 << 20};
  CHECK(found() == std::vector<size_t>{3, 1, 3, 1});
  fusion = {Fusion::Mode::Index, 0, {1}};
  CHECK(found() == std::vector<size_t>{1, 3, 2, 1, 1});
  fusion = {Fusion::Mode::Auto};
  fusion.groups = {0, 0, 0, 0};
  CHECK(found() == std::vector<size_t>{4, 4});
  fusion = {Fusion::Mode::Alone};
  CHECK(found().empty());
}

TEST_CASE("orders of random steps are orders") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    Builder b;
    auto phases = {Phase::Forward, Phase::Backward, Phase::Weight, Phase::Update};
    for (int i = 0; i < 40; ++i) {
      Phase phase = *(phases.begin() + static_cast<int>(random() % 4));
      std::vector<int32_t> reads;
      for (uint64_t k = 0; k < random() % 3 && i > 0; ++k)
        reads.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(i)));
      std::ranges::sort(reads);
      if (random() % 8 == 0)
        b.weight(random() % 2 ? Phase::Forward : Phase::Backward,
                 static_cast<int32_t>(random() % 3),
                 static_cast<int64_t>(random() % 200));
      else if (i > 0 && random() % 3 == 0)
        b.call(phase, static_cast<int32_t>(random() % static_cast<uint64_t>(i)),
               static_cast<int64_t>(random() % 100), -1,
               static_cast<int32_t>(random() % 2));
      else
        b.op(phase, std::move(reads));
    }
    std::vector<Op> ops = b.done();
    Options options;
    options.maxInFlight = static_cast<int32_t>(random() % 4);
    options.minBytes = static_cast<int64_t>(random() % 200);
    options.minSplit = static_cast<int64_t>(random() % 400);
    options.lastShare = 0.2;
    options.joinBytes = static_cast<int64_t>(random() % 200);
    options.maxHoisted = static_cast<int32_t>(random() % 4);
    Order order = orderOf(ops, options);
    INFO("round " << round);
    REQUIRE(wrong(ops, order, options) == "");
  }
}
