//===- PostOps.cpp - Pointwise ops that a call applies --------------------===//
#include "PostOps.h"

#include "partita/Base/Bundle/TaskTable.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::kernels;

/// x·c + 0 or x + c: a uniform operand needs no memory.
static std::optional<task::PostOp> linearPost(Post post, double constant,
                                              bool constantFirst) {
  task::PostOp linear{PARTITA_POST_LINEAR, 1, 0, 0};
  if (post == Post::Add)
    linear.beta = static_cast<float>(constant);
  else if (post == Post::Sub && !constantFirst)
    linear.beta = static_cast<float>(-constant);
  else if (post == Post::Mul)
    linear.alpha = static_cast<float>(constant);
  else
    return std::nullopt;
  return linear;
}

/// A function of one operand, which is operand 0.
static std::optional<task::PostOp> unaryPost(const LocalProgram &program, int32_t op) {
  const OpFacts &facts = program.op(op).facts;
  auto alpha = static_cast<float>(facts.alpha), beta = static_cast<float>(facts.beta);
  switch (facts.post) {
  case Post::Relu:
    return task::PostOp{PARTITA_POST_RELU, alpha};
  case Post::HardSwish:
    return task::PostOp{PARTITA_POST_HARDSWISH};
  case Post::HardSigmoid:
    return task::PostOp{PARTITA_POST_HARDSIGMOID, alpha, beta};
  case Post::Clip: {
    auto low = program.operand(op, 1).uniform, high = program.operand(op, 2).uniform;
    if (low && high)
      return task::PostOp{PARTITA_POST_CLIP, static_cast<float>(*low),
                          static_cast<float>(*high)};
    return std::nullopt;
  }
  default:
    return std::nullopt;
  }
}

static std::optional<int64_t> binaryKind(Post post) {
  switch (post) {
  case Post::Add:
    return PARTITA_POST_BINARY_ADD;
  case Post::Sub:
    return PARTITA_POST_BINARY_SUB;
  case Post::Mul:
    return PARTITA_POST_BINARY_MUL;
  default:
    return std::nullopt;
  }
}

std::optional<PostStep> kernels::postStepOf(const LocalProgram &program, int32_t op,
                                            int32_t value, const Target &target) {
  const std::vector<int32_t> &operands = program.op(op).operands;
  const Post post = program.op(op).facts.post;
  if (!target.takes(post))
    return std::nullopt;
  if (operands[0] == value)
    if (auto unary = unaryPost(program, op))
      return PostStep{op, *unary};
  if (operands.size() != 2 || operands[0] == operands[1])
    return std::nullopt;
  bool isSecond = operands[1] == value;
  int32_t other = operands[isSecond ? 0 : 1];
  if (auto uniform = program.value(other).uniform) {
    auto linear = linearPost(post, *uniform, isSecond);
    return linear ? std::optional(PostStep{op, *linear}) : std::nullopt;
  }
  auto kind = binaryKind(post);
  if (!kind || (isSecond && post == Post::Sub))
    return std::nullopt;
  return PostStep{op, task::PostOp{*kind}, other};
}

/// Adds a step to a chain, or joins it with the last one; false if the chain cannot take
/// it.
static bool appendStep(std::vector<PostStep> &chain, PostStep step,
                       const Target &target) {
  const task::PostOp &post = step.post;
  if (!chain.empty() && post.kind == PARTITA_POST_LINEAR &&
      chain.back().post.kind == PARTITA_POST_LINEAR) {
    task::PostOp &last = chain.back().post;
    last.beta = post.alpha * last.beta + post.beta;
    last.alpha *= post.alpha;
    chain.back().merged.push_back(chain.back().op);
    chain.back().op = step.op;
    return true;
  }
  auto isOfKind = [&](const PostStep &other) { return other.post.kind == post.kind; };
  if (chain.size() == target.maxPostOps ||
      (!target.calls.repeatsPosts && !task::isBinary(post.kind) &&
       std::ranges::any_of(chain, isOfKind)))
    return false;
  chain.push_back(std::move(step));
  return true;
}

/// How many of the last dims of a product's result only one of its operands has.
static size_t columnsOf(const OpFacts &product) {
  auto has = [&](size_t tensor, int64_t loop) {
    return std::ranges::count(product.numbers[tensor], loop) != 0;
  };
  const std::vector<int64_t> &result = product.numbers[2];
  size_t dims = 0;
  std::optional<bool> isRight;
  for (size_t i = result.size(); i-- > 0;) {
    if (result[i] < 0) {
      dims += i + 1 != result.size();
      continue;
    }
    const bool inRight = has(1, result[i]);
    if (inRight == has(0, result[i]) || isRight.value_or(inRight) != inRight)
      return dims;
    isRight = inRight;
  }
  return dims + !result.empty();
}

/// Tells whether the call takes the operand as it varies: a product, one along all dims
/// or along columns (CallAbilities::broadcastsPosts).
static bool takesOperand(const LocalProgram &program, int32_t engine, int32_t operand,
                         const Target &target) {
  const OpFacts &facts = program.op(engine).facts;
  if (facts.role != OpRole::Contract || target.calls.broadcastsPosts)
    return true;
  auto producer = [&](int32_t value) { return program.value(value).producer; };
  while (producer(operand) >= 0 &&
         program.op(producer(operand)).facts.role == OpRole::Broadcast)
    operand = program.op(producer(operand)).operands[0];
  const std::vector<int64_t> &result = program.result(engine).shape;
  const std::vector<int64_t> &own = program.value(operand).shape;
  const size_t rank = result.size(), columns = columnsOf(facts);
  auto varies = [&](size_t d) {
    return result[d] != 1 && d + own.size() >= rank && own[d + own.size() - rank] != 1;
  };
  // Dims from the last one on, without a gap, and columns all.
  size_t first = rank;
  while (first > 0 && (result[first - 1] == 1 || varies(first - 1)))
    --first;
  if (first + columns > rank)
    return false;
  bool isOfColumns = false, isElsewhere = false;
  for (size_t d = 0; d < rank; ++d)
    if (varies(d))
      (d >= first && d + columns >= rank ? isOfColumns : isElsewhere) = true;
  return first == 0 || (isOfColumns && !isElsewhere);
}

std::vector<PostStep> kernels::postChain(const LocalProgram &program, int32_t engine,
                                         const std::vector<int32_t> &callOf,
                                         const Target &target) {
  std::vector<PostStep> chain;
  int32_t number = program.op(engine).results[0];
  while (program.value(number).uses.size() == 1) {
    const LocalValue &value = program.value(number);
    int32_t user = value.uses[0].op;
    const LocalOp &op = program.op(user);
    if (op.facts.kind != OpKind::Pointwise || callOf[static_cast<size_t>(user)] >= 0 ||
        op.attention == LocalOp::Attention::Inside ||
        program.result(user).shape != value.shape ||
        program.result(user).type != value.type)
      break;
    auto step = postStepOf(program, user, number, target);
    if (!step ||
        (step->operand >= 0 && (program.value(step->operand).type != value.type ||
                                !takesOperand(program, engine, step->operand, target))) ||
        !appendStep(chain, std::move(*step), target))
      break;
    number = op.results[0];
  }
  return chain;
}

//===----------------------------------------------------------------------===//
// Sums of products of 8-bit integers
//===----------------------------------------------------------------------===//

namespace {
/// Limits of numbers of 8 bits; nothing for other types.
std::optional<std::pair<float, float>> rangeOf(DType type) {
  if (type == DType::U8)
    return std::pair(0.0f, 255.0f);
  if (type == DType::I8)
    return std::pair(-128.0f, 127.0f);
  return std::nullopt;
}

/// A limit to numbers of one side or of both.
std::optional<task::PostOp> clipOf(const LocalProgram &program, int32_t op,
                                   std::optional<double> other) {
  constexpr float all = std::numeric_limits<float>::infinity();
  switch (program.op(op).facts.post) {
  case Post::Clip:
    return unaryPost(program, op);
  case Post::Max:
    return other ? std::optional(
                       task::PostOp{PARTITA_POST_CLIP, static_cast<float>(*other), all})
                 : std::nullopt;
  case Post::Min:
    return other ? std::optional(
                       task::PostOp{PARTITA_POST_CLIP, -all, static_cast<float>(*other)})
                 : std::nullopt;
  default:
    return std::nullopt;
  }
}

/// Joins a limit with the one before; false if the two are no limit.
bool joinClip(PostStep &last, const PostStep &next) {
  task::PostOp &a = last.post;
  const task::PostOp &b = next.post;
  if (a.kind != PARTITA_POST_CLIP || b.kind != PARTITA_POST_CLIP || a.alpha > a.beta ||
      b.alpha > b.beta)
    return false;
  a.alpha = std::min(std::max(a.alpha, b.alpha), b.beta);
  a.beta = std::min(std::max(a.beta, b.alpha), b.beta);
  last.merged.push_back(last.op);
  last.op = next.op;
  return true;
}

/// A cast of what the steps so far give, or nothing.
std::optional<task::PostOp> castPost(const std::vector<PostStep> &chain, DType from,
                                     DType to) {
  if (from == DType::I32 && to == DType::F32)
    return task::PostOp{PARTITA_POST_TO_F32};
  auto range = rangeOf(to);
  if (from != DType::F32 || !range || chain.empty())
    return std::nullopt;
  const task::PostOp &last = chain.back().post;
  if (last.kind != PARTITA_POST_CLIP || last.alpha < range->first ||
      last.beta > range->second || last.alpha > last.beta)
    return std::nullopt;
  return task::PostOp{to == DType::U8 ? PARTITA_POST_TO_U8 : PARTITA_POST_TO_I8};
}

/// Tells whether f32 holds the addend of integers.
bool isExactAddend(double number) {
  return number == std::trunc(number) && std::abs(number) <= 1 << 24;
}

/// A sum, difference or product with another value.
std::optional<PostStep> arithmeticStep(const LocalProgram &program, int32_t op,
                                       int32_t value) {
  const std::vector<int32_t> &operands = program.op(op).operands;
  const Post post = program.op(op).facts.post;
  const DType type = program.value(value).type;
  auto kind = binaryKind(post);
  if (!kind || operands.size() != 2 || operands[0] == operands[1])
    return std::nullopt;
  const bool isSecond = operands[1] == value, isInteger = type == DType::I32;
  const int32_t other = operands[isSecond ? 0 : 1];
  if (program.value(other).type != type || (isSecond && post == Post::Sub) ||
      (isInteger && post == Post::Mul))
    return std::nullopt;
  if (auto uniform = program.value(other).uniform) {
    auto linear = isInteger && !isExactAddend(*uniform)
                      ? std::nullopt
                      : linearPost(post, *uniform, isSecond);
    return linear ? std::optional(PostStep{op, *linear}) : std::nullopt;
  }
  return PostStep{op, task::PostOp{*kind}, other};
}

std::optional<PostStep> requantizingStep(const LocalProgram &program,
                                         const std::vector<PostStep> &chain, int32_t op,
                                         int32_t value, const Target &target) {
  const LocalOp &it = program.op(op);
  const DType type = program.value(value).type;
  if (!target.takes(it.facts.post))
    return std::nullopt;
  std::optional<task::PostOp> unary;
  if (it.facts.post == Post::Cast)
    unary = castPost(chain, type, program.result(op).type);
  else if (program.result(op).type != type)
    return std::nullopt;
  else if (auto step = arithmeticStep(program, op, value))
    return step;
  else if (type != DType::F32)
    return std::nullopt;
  else if (it.facts.post == Post::Round)
    unary = task::PostOp{PARTITA_POST_ROUND};
  else if (it.facts.post == Post::Relu && it.operands[0] == value)
    unary = it.facts.alpha == 0 ? unaryPost(program, op) : std::nullopt;
  else if (it.operands.size() == 2 && it.operands[0] != it.operands[1])
    unary =
        clipOf(program, op, program.operand(op, it.operands[0] == value ? 1 : 0).uniform);
  else if (it.operands[0] == value)
    unary = clipOf(program, op, std::nullopt);
  return unary ? std::optional(PostStep{op, *unary}) : std::nullopt;
}
} // namespace

std::vector<PostStep> kernels::requantization(const LocalProgram &program, int32_t engine,
                                              const std::vector<int32_t> &callOf,
                                              const Target &target) {
  std::vector<PostStep> chain;
  int32_t number = program.op(engine).results[0];
  size_t operands = 0;
  while (program.value(number).uses.size() == 1 &&
         byteWidth(program.value(number).type) > 1) {
    const LocalValue &value = program.value(number);
    int32_t user = value.uses[0].op;
    const LocalOp &op = program.op(user);
    if (op.facts.kind != OpKind::Pointwise || callOf[static_cast<size_t>(user)] >= 0 ||
        op.attention == LocalOp::Attention::Inside ||
        program.result(user).shape != value.shape)
      break;
    auto step = requantizingStep(program, chain, user, number, target);
    operands += step && step->operand >= 0;
    if (!step || operands > target.maxPostOps)
      break;
    if (chain.empty() || !joinClip(chain.back(), *step))
      chain.push_back(std::move(*step));
    number = op.results[0];
  }
  return chain;
}
