//===- GroupTest.cpp - Which ops share a kernel or an engine call ---------===//
#include "partita/Kernels/Group.h"

#include "partita/Base/Bundle/TaskTable.h"

#include "ProgramBuilder.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::kernels;

using Shape = std::vector<int64_t>;

namespace {
struct Builder : ProgramBuilder {
  int32_t pointwise(std::vector<int32_t> operands, Shape shape, double steps = 1,
                    Phase phase = Phase::Forward) {
    return op(OpFacts::pointwise(steps, Post::None), std::move(operands),
              std::move(shape), phase);
  }
  int32_t product(int32_t operand, Shape shape) {
    return op(OpFacts::engine(true), {operand}, std::move(shape));
  }
};
} // namespace

static OpFacts sumOfRows(bool keepsDims) {
  OpFacts facts = OpFacts::row({1});
  facts.reducesRow = true;
  facts.keepsDims = keepsDims;
  return facts;
}

TEST_CASE("pointwise ops join their only user, broadcast ones where it is worth it") {
  Builder b;
  int32_t x = b.argument({128, 768}), s = b.argument({128, 1});
  int32_t cheap = b.pointwise({s}, {128, 1});
  int32_t dear = b.pointwise({b.argument({1, 768})}, {1, 768}, 16);
  int32_t sum = b.pointwise({x, cheap, dear}, {128, 768});
  b.give({sum});
  Grouping grouping = group(b.program, cpu);
  REQUIRE(grouping.groups.size() == 2);
  CHECK(grouping.groupAt(b.maker(cheap)) == -1);
  CHECK(grouping.isIn(b.maker(cheap), grouping.groupAt(b.maker(sum))));
  // 16 · 768 steps and a launch, against 16 · 98,304.
  CHECK(grouping.groupAt(b.maker(dear)) >= 0);
  CHECK(grouping.apart.size() == 1);
}

TEST_CASE("a value that others read later is kept, but not one that they read before") {
  for (bool isLate : {true, false}) {
    Builder b;
    int32_t x = b.argument({64, 64});
    int32_t r = b.pointwise({x, x}, {64, 64});
    int32_t early = isLate ? -1 : b.product(r, {64, 64});
    int32_t n = b.op(OpFacts::row({1}), {r}, {64, 64});
    int32_t y = b.product(n, {64, 64});
    int32_t z = b.op(OpFacts(), {y, isLate ? r : early}, {64, 64});
    b.give({z});
    Grouping grouping = group(b.program, cpu);
    const Group &norm =
        grouping.groups[static_cast<size_t>(grouping.groupAt(b.maker(n)))];
    CHECK(norm.kept == (isLate ? std::vector{r} : std::vector<int32_t>()));
    CHECK(norm.rowDims == Shape{1});
    CHECK((grouping.groupAt(b.maker(r)) >= 0) == !isLate);
  }
}

TEST_CASE("what all its users may compute is computed again in each") {
  for (auto phase : {Phase::Forward, Phase::Backward}) {
    Builder b;
    int32_t x = b.product(b.argument({8, 8}), {8, 8});
    int32_t r = b.op(OpFacts::pointwise(1, Post::None), {x}, {8, 8});
    int32_t one = b.op(sumOfRows(true), {r}, {8, 1});
    OpFacts columns = sumOfRows(true);
    columns.rowDims = {0};
    int32_t two = b.op(columns, {r}, {1, 8}, phase);
    b.give({one, two});
    // Not as a post-op: x is stored for them.
    Target target = cpu;
    target.maxPostOps = 0;
    Grouping grouping = group(b.program, target);
    bool isSame = phase == Phase::Forward;
    CHECK(grouping.groupsOf[static_cast<size_t>(b.maker(r))].size() == (isSame ? 2 : 1));
  }
}

TEST_CASE("a cast to a wider type is made again in kernels of other parts of a step") {
  for (DType narrow : {DType::BF16, DType::F32}) {
    Builder b;
    int32_t x = b.product(b.argument({8, 8}), {8, 8});
    b.program.values[static_cast<size_t>(x)].type = narrow;
    int32_t wide = b.pointwise({x}, {8, 8});
    int32_t one = b.op(sumOfRows(true), {wide}, {8, 1}, Phase::Backward);
    OpFacts columns = sumOfRows(true);
    columns.rowDims = {0};
    int32_t two = b.op(columns, {wide}, {1, 8}, Phase::Weight);
    b.give({one, two});
    Target target = cpu;
    target.maxPostOps = 0;
    Grouping grouping = group(b.program, target);
    CHECK(grouping.groupsOf[static_cast<size_t>(b.maker(wide))].size() ==
          (narrow == DType::BF16 ? 2 : 1));
  }
}

TEST_CASE("calls take what the target's engines apply, linear functions as one") {
  Builder b;
  int32_t x = b.argument({4, 4}), bias = b.argument({4});
  int32_t two = b.constant(2), three = b.constant(3);
  int32_t y = b.product(x, {4, 4});
  auto apply = [&](Post post, int32_t operand) {
    y = b.op(OpFacts::pointwise(1, post),
             operand < 0 ? std::vector{y} : std::vector{y, operand}, {4, 4});
  };
  apply(Post::Add, bias);
  apply(Post::Mul, two);
  apply(Post::Add, three);
  apply(Post::Relu, -1);
  apply(Post::Relu, -1); // each kind comes once
  b.give({y});
  int32_t engine = b.program.value(x).uses[0].op;

  Grouping grouping = group(b.program, cpu);
  const std::vector<PostStep> &chain = grouping.chains[static_cast<size_t>(engine)];
  REQUIRE(chain.size() == 3);
  CHECK(chain[0].isSum());
  CHECK(chain[0].operand == bias);
  CHECK(chain[1].post.kind == PARTITA_POST_LINEAR);
  CHECK(chain[1].post.alpha == 2);
  CHECK(chain[1].post.beta == 3);
  CHECK(chain[1].merged.size() == 1);
  CHECK(chain[2].post.kind == PARTITA_POST_RELU);
  CHECK(grouping.formedAt(b.program, engine) == grouping.lastOfCall(engine));
  CHECK(grouping.groups.size() == 1);

  Target repeats = cpu;
  repeats.calls.repeatsPosts = true;
  CHECK(group(b.program, repeats).chains[static_cast<size_t>(engine)].size() == 4);

  Target noAdd = cpu;
  noAdd.posts &= ~(1u << static_cast<unsigned>(Post::Add));
  grouping = group(b.program, noAdd);
  CHECK(grouping.chains[static_cast<size_t>(engine)].empty());
  CHECK(grouping.groups.size() == 1); // one kernel of all five
}

TEST_CASE("calls apply functions to sums before they are rounded, of f64 none") {
  for (DType type : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    Builder b;
    int32_t x = b.argument({128, 64}), bias = b.argument({64});
    int32_t y = b.product(x, {128, 64});
    int32_t a = b.op(OpFacts::pointwise(1, Post::Add), {y, bias}, {128, 64});
    int32_t r = b.op(OpFacts::pointwise(1, Post::Relu), {a}, {128, 64});
    b.give({r});
    for (LocalValue &value : b.program.values)
      value.type = type;
    Grouping grouping = group(b.program, cpu);
    const size_t joined = type == DType::F64 ? 0 : 2;
    CHECK(grouping.chains[static_cast<size_t>(b.maker(y))].size() == joined);
    CHECK(grouping.groups.size() == (joined ? 0 : 1));
    // A term that is added has the type of the sums.
    b.program.values[static_cast<size_t>(bias)].type = DType::I32;
    CHECK(group(b.program, cpu).chains[static_cast<size_t>(b.maker(y))].empty());
  }
}

namespace {
/// A convolution of bytes to i32 and ops behind it, each with a type of its result.
struct Quantized : Builder {
  int32_t bias, factor, y;

  Quantized() {
    int32_t x = typed(argument({1, 8, 4, 4}), DType::U8);
    bias = typed(argument({8, 1, 1}), DType::I32);
    factor = argument({8, 1, 1});
    y = typed(op(OpFacts::engine(true, true), {x}, {1, 8, 4, 4}), DType::I32);
    engine = maker(y);
  }
  int32_t typed(int32_t value, DType type) {
    program.values[static_cast<size_t>(value)].type = type;
    return value;
  }
  /// Step with an operand of two, or −1.
  void apply(Post post, int32_t operand, DType type) {
    y = typed(op(OpFacts::pointwise(1, post),
                 operand < 0 ? std::vector{y} : std::vector{y, operand}, {1, 8, 4, 4}),
              type);
  }
  int32_t integer(double number) { return typed(constant(number), DType::I32); }
  void scale() {
    apply(Post::Add, bias, DType::I32);
    apply(Post::Cast, -1, DType::F32);
    apply(Post::Mul, factor, DType::F32);
  }
  void finish(double low, double high, DType type) {
    apply(Post::Round, -1, DType::F32);
    apply(Post::Add, constant(3), DType::F32);
    apply(Post::Max, constant(low), DType::F32);
    apply(Post::Min, constant(high), DType::F32);
    apply(Post::Cast, -1, type);
  }
  std::vector<int64_t> kinds(const Target &target = cpu) {
    std::vector<int64_t> all;
    const Grouping grouping = group(program, target);
    for (const PostStep &step : grouping.chains[static_cast<size_t>(engine)])
      all.push_back(step.post.kind);
    return all;
  }
  int32_t engine;
};
} // namespace

TEST_CASE("convolutions of bytes requantize what they sum") {
  const std::vector<int64_t> scaled{PARTITA_POST_BINARY_ADD, PARTITA_POST_TO_F32,
                                    PARTITA_POST_BINARY_MUL};
  std::vector<int64_t> whole = scaled;
  whole.insert(whole.end(), {PARTITA_POST_ROUND, PARTITA_POST_LINEAR, PARTITA_POST_CLIP});
  const std::vector<int64_t> limited = whole;
  whole.push_back(PARTITA_POST_TO_U8);
  auto kindsOf = [](double low, double high, DType type) {
    Quantized q;
    q.scale();
    q.finish(low, high, type);
    q.give({q.y});
    return q.kinds();
  };
  CHECK(kindsOf(0, 255, DType::U8) == whole);
  // No cast of what may not fit, and none to more than a byte.
  CHECK(kindsOf(0, 256, DType::U8) == limited);
  CHECK(kindsOf(-1, 255, DType::U8) == limited);
  CHECK(kindsOf(0, 255, DType::I32) == limited);
  whole.back() = PARTITA_POST_TO_I8;
  CHECK(kindsOf(-128, 127, DType::I8) == whole);

  Quantized read; // what somebody else reads is stored
  read.scale();
  const int32_t other = read.y;
  read.finish(0, 255, DType::U8);
  read.give({read.y, other});
  CHECK(read.kinds() == scaled);

  Target apart = cpu;
  apart.calls.requantizes = false;
  CHECK(read.kinds(apart).empty());

  Quantized integers; // f32 does not have every addend
  integers.apply(Post::Add, integers.integer(7), DType::I32);
  integers.apply(Post::Add, integers.integer((1 << 24) + 1), DType::I32);
  integers.give({integers.y});
  CHECK(integers.kinds() == std::vector<int64_t>{PARTITA_POST_LINEAR});

  Quantized twice; // two factors round twice
  twice.apply(Post::Cast, -1, DType::F32);
  twice.apply(Post::Mul, twice.constant(0.1), DType::F32);
  twice.apply(Post::Mul, twice.constant(0.3), DType::F32);
  twice.apply(Post::Relu, -1, DType::F32);
  twice.give({twice.y});
  CHECK(twice.kinds() == std::vector<int64_t>{PARTITA_POST_TO_F32, PARTITA_POST_LINEAR,
                                              PARTITA_POST_LINEAR, PARTITA_POST_RELU});
}

TEST_CASE("kernels are of limited length, and store a limited number of values") {
  Builder b;
  int32_t x = b.argument({64});
  for (int i = 0; i < 10; ++i)
    x = b.pointwise({x}, {64});
  b.give({x});
  Target target = cpu;
  CHECK(group(b.program, target).groups.size() == 1);
  target.maxOps = 4;
  CHECK(group(b.program, target).groups.size() == 3);

  Builder kept;
  int32_t v = kept.argument({64, 64});
  std::vector<int32_t> given;
  for (int i = 0; i < 5; ++i)
    given.push_back(v = kept.pointwise({v}, {64, 64}));
  kept.give(given);
  CHECK(group(kept.program, cpu).groups.size() == 1);
  target = cpu;
  target.maxKept = 1;
  CHECK(group(kept.program, target).groups.size() == 3);
}

TEST_CASE("rows over other dims, and reductions that drop dims, start a kernel") {
  Builder b;
  int32_t x = b.argument({16, 16});
  int32_t dropped = b.op(sumOfRows(false), {x}, {16});
  int32_t y = b.pointwise({dropped}, {16});
  int32_t kept = b.op(sumOfRows(true), {x}, {16, 1});
  int32_t z = b.pointwise({kept}, {16, 1});
  b.give({y, z});
  Grouping grouping = group(b.program, cpu);
  CHECK(grouping.groups.size() == 3);
  CHECK(grouping.groupAt(b.maker(dropped)) >= 0);
  CHECK(grouping.groupAt(b.maker(kept)) == -1);
  const Group &grown = grouping.groups[static_cast<size_t>(grouping.groupAt(b.maker(z)))];
  CHECK(grown.domain == Shape{16, 16});
}

TEST_CASE(
    "a large tensor less a number per row is read again, not kept for the gradient") {
  for (int64_t columns : {8, 1 << 20}) {
    Builder b;
    int32_t x = b.product(b.argument({8, columns}), {8, columns});
    int32_t mean = b.op(sumOfRows(true), {x}, {8, 1});
    int32_t offset = b.pointwise({x, mean}, {8, columns});
    int32_t squares = b.op(sumOfRows(true), {offset}, {8, 1});
    int32_t later = b.pointwise({offset, squares}, {8, columns}, 1, Phase::Backward);
    b.give({later, squares});
    Grouping grouping = group(b.program, cpu);
    bool isLarge = columns != 8;
    CHECK(grouping.groupsOf[static_cast<size_t>(b.maker(offset))].size() ==
          (isLarge ? 2 : 1));
  }
}

TEST_CASE(
    "a sum of rows is beside another that reads the same, unless it is needed before") {
  for (bool isNeeded : {false, true})
    for (int64_t columns : {8, 1 << 20}) {
      Builder b;
      int32_t x = b.argument({8, columns}), y = b.argument({8, columns});
      int32_t sum = b.op(sumOfRows(false), {x}, {8});
      int32_t early = isNeeded ? b.product(sum, {8}) : sum;
      int32_t product = b.pointwise({x, y}, {8, columns});
      int32_t other = b.op(sumOfRows(false), {product}, {8});
      b.give({early, other});
      Grouping grouping = group(b.program, cpu);
      const Group &group = grouping.groups[0];
      bool isBeside = columns != 8 && !isNeeded;
      CHECK(grouping.groups.size() == (isBeside ? 1 : 2));
      CHECK(group.root == b.maker(other));
      CHECK(group.kept == (isBeside ? std::vector{sum} : std::vector<int32_t>()));
    }
}

TEST_CASE("numbers of fewer bits are not found in memory and in registers") {
  Builder b;
  int32_t x = b.argument({64, 64});
  int32_t r = b.pointwise({x, x}, {64, 64});
  b.program.values[static_cast<size_t>(r)].type = DType::BF16;
  int32_t n = b.op(OpFacts::row({1}), {r}, {64, 64});
  b.give({n, r});
  CHECK(group(b.program, cpu).groups.size() == 2);
  b.program.values[static_cast<size_t>(r)].type = DType::F32;
  CHECK(group(b.program, cpu).groups.size() == 1);
}
