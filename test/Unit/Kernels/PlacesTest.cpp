//===- PlacesTest.cpp - What is copied, and what attentions take ----------===//
#include "partita/Kernels/Places.h"
#include "partita/Kernels/Attention.h"
#include "partita/Kernels/Launches.h"

#include "ProgramBuilder.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::kernels;

namespace {
struct Builder : ProgramBuilder {
  int32_t of(OpKind kind, OpRole role, std::vector<std::vector<int64_t>> numbers,
             std::vector<int32_t> operands, Shape shape) {
    return op(OpFacts::of(kind, role, std::move(numbers)), std::move(operands),
              std::move(shape));
  }
  int32_t product(std::vector<std::vector<int64_t>> loops, int32_t left, int32_t right,
                  Shape shape) {
    OpFacts facts = OpFacts::engine(true);
    facts.role = OpRole::Contract, facts.numbers = std::move(loops);
    return op(std::move(facts), {left, right}, std::move(shape));
  }
  int32_t add(int32_t a, int32_t b, Shape shape) {
    OpFacts facts = OpFacts::pointwise(1, Post::Add);
    facts.role = OpRole::Add;
    return op(std::move(facts), {a, b}, std::move(shape));
  }
  Launches launches(const Target &target = cpu) {
    takeAttentions(program, target);
    return launchesOf(program, group(program, target), target);
  }
};

OpFacts convolution() { return OpFacts::image(OpFacts::engine(true), 1, true); }
} // namespace

TEST_CASE("parts of a join are copied by kernels where they are no runs of elements") {
  Builder rows;
  int32_t a = rows.argument({8, 16}), b = rows.argument({8, 16});
  rows.give({rows.of(OpKind::Other, OpRole::Join, {{0}}, {a, b}, {16, 16})});
  CHECK(rows.launches().copies == 0); // one behind the other

  Builder columns;
  a = columns.argument({8, 16}), b = columns.argument({8, 4});
  columns.give({columns.of(OpKind::Other, OpRole::Join, {{1}}, {a, b}, {8, 20})});
  Launches all = columns.launches();
  CHECK(all.copies == 2);
  CHECK(all.kernels == 2);
  CHECK(all.bytesWritten == 8 * 20 * 4);

  Builder unaligned; // the second part begins 4 bytes behind a cache line
  a = unaligned.argument({17}), b = unaligned.argument({16});
  unaligned.give({unaligned.of(OpKind::Other, OpRole::Join, {{0}}, {a, b}, {33})});
  CHECK(unaligned.launches().copies == 1);
}

TEST_CASE("a pad fills, and copies what it has") {
  Builder b;
  int32_t a = b.argument({4, 4});
  b.give(
      {b.of(OpKind::Other, OpRole::Pad, {{0, 1}, {0, 1}}, {a, b.constant(0)}, {4, 6})});
  Launches all = b.launches();
  CHECK(all.copies == 2);
  CHECK(all.bytesWritten == (4 * 6 + 4 * 4) * 4);
}

TEST_CASE("images are brought into the order of calls, and back for who needs rows") {
  Builder b;
  int32_t filter = b.argument({16, 16, 3, 3});
  int32_t image = b.argument({1, 16, 8, 8});
  int32_t first = b.op(convolution(), {image, filter}, {1, 16, 8, 8});
  int32_t second = b.op(convolution(), {first, filter}, {1, 16, 8, 8});
  b.give({second});
  Launches all = b.launches();
  CHECK(all.calls == 2);
  CHECK(all.copies == 1); // the argument; the result is written row-major

  Builder gathered; // communication moves dense tensors
  filter = gathered.argument({16, 16, 3, 3}), image = gathered.argument({1, 16, 8, 8});
  first = gathered.op(convolution(), {image, filter}, {1, 16, 8, 8});
  int32_t all_ = gathered.op(OpFacts(), {first}, {1, 32, 8, 8});
  gathered.give({gathered.op(convolution(), {all_, filter}, {1, 16, 8, 8})});
  CHECK(gathered.launches().copies == 3);

  Builder few; // images of few channels are read as they are
  filter = few.argument({16, 3, 3, 3}), image = few.argument({1, 3, 8, 8});
  few.give({few.op(convolution(), {image, filter}, {1, 16, 8, 8})});
  CHECK(few.launches().copies == 0);
}

TEST_CASE("a device that is only priced has no copies") {
  Builder b;
  int32_t a = b.argument({8, 16});
  b.give({b.of(OpKind::Other, OpRole::Join, {{1}}, {a, a}, {8, 32})});
  Target target = cpu;
  target.copiesOrders = false;
  CHECK(b.launches(target).copies == 0);
}

TEST_CASE("products take operands of functions that vary along columns or everywhere") {
  // x [b s k], w [k n] → [b s n]
  auto joins = [](Shape operand) {
    Builder b;
    int32_t x = b.argument({2, 4, 8}), w = b.argument({8, 6});
    int32_t y = b.product({{0, -1, 1, -1, 2, -1}, {2, -1, 3, -1}, {0, -1, 1, -1, 3, -1}},
                          x, w, {2, 4, 6});
    b.give({b.add(y, b.argument(std::move(operand)), {2, 4, 6})});
    return b.launches().kernels == 0;
  };
  CHECK(joins({6}));
  CHECK(joins({1, 1, 6}));
  CHECK(joins({2, 4, 6}));
  CHECK_FALSE(joins({4, 6}));
  CHECK_FALSE(joins({4, 1}));
  CHECK_FALSE(joins({2, 1, 6}));
  CHECK_FALSE(joins({1}));
}

/// Scores of so many queries and keys, masked by an operand of this shape.
static Launches attentionOf(int64_t queries, int64_t keys, bool isReadTwice = false) {
  Builder b;
  int32_t q = b.argument({2, queries, 8}), k = b.argument({2, keys, 8});
  int32_t v = b.argument({2, keys, 8});
  const Shape shape{2, queries, keys};
  int32_t scores = b.product(
      {{0, -1, 1, -1, 2, -1}, {0, -1, 3, -1, 2, -1}, {0, -1, 1, -1, 3, -1}}, q, k, shape);
  int32_t masked = b.add(scores, b.argument({1, queries, keys}), shape);
  OpFacts softmax = OpFacts::row({2});
  softmax.role = OpRole::Softmax;
  int32_t weights = b.op(softmax, {masked}, shape);
  int32_t y =
      b.product({{0, -1, 1, -1, 3, -1}, {0, -1, 3, -1, 2, -1}, {0, -1, 1, -1, 2, -1}},
                weights, v, {2, queries, 8});
  b.give(isReadTwice ? std::vector{y, scores} : std::vector{y});
  return b.launches();
}

TEST_CASE("a softmax between two products is one kernel") {
  Launches all = attentionOf(16, 32);
  CHECK(all.calls == 0);
  CHECK(all.kernels == 1);
  CHECK(all.attentions == 1);
  CHECK(all.bytesWritten == 2 * 16 * 8 * 4);
  // Few queries, and scores that others read too.
  CHECK(attentionOf(4, 32).attentions == 0);
  CHECK(attentionOf(4, 32).calls == 2);
  CHECK(attentionOf(16, 32, true).attentions == 0);
}
