//===- PostOps.cpp - Pointwise ops that a call applies --------------------===//
#include "PostOps.h"

#include "partita/Base/Bundle/TaskTable.h"

#include <algorithm>

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
        (step->operand >= 0 && program.value(step->operand).type != value.type) ||
        !appendStep(chain, std::move(*step), target))
      break;
    number = op.results[0];
  }
  return chain;
}
