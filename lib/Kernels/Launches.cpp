//===- Launches.cpp - Kernels and calls of a program ----------------------===//
#include "partita/Kernels/Launches.h"

#include "partita/Kernels/Places.h"

#include <algorithm>

using namespace partita;
using namespace partita::kernels;

static int64_t bytesOf(const LocalValue &value) {
  return elementCount(value.shape) * static_cast<int64_t>(byteWidth(value.type));
}

/// Tells whether another op computes the gradients of the same attention and both are one
/// kernel, which the first of them forms: there are so many heads of keys that each is
/// enough work for a thread.
static bool isFormedBefore(const LocalProgram &program, int32_t number,
                           const Target &target) {
  const LocalOp &op = program.op(number);
  if (op.facts.role != OpRole::AttentionGradient)
    return false;
  const std::vector<int64_t> &keys = program.operand(number, 1).shape;
  if (elementCount({keys.begin(), keys.end() - 2}) < target.fewestGradientHeads)
    return false;
  return std::ranges::any_of(program.operand(number, 6).uses, [&](const LocalUse &use) {
    const LocalOp &other = program.op(use.op);
    return use.op < number && other.facts.role == op.facts.role &&
           other.phase == op.phase && other.operands == op.operands &&
           other.results.size() != op.results.size();
  });
}

/// Bytes that the kernel of the op stores of its results: of rows that it changes where
/// they lie, as many as there are updates, the last operand. Results that nobody reads
/// are not stored, unless there are no others.
static int64_t storedBy(const LocalProgram &program, int32_t number) {
  const LocalOp &op = program.op(number);
  if (op.facts.mayChangeInPlace)
    return elementCount(program.value(op.operands.back()).shape) *
           static_cast<int64_t>(byteWidth(program.value(op.results[0]).type));
  int64_t bytes = 0;
  for (int32_t value : op.results)
    bytes += program.value(value).uses.empty() ? 0 : bytesOf(program.value(value));
  return bytes > 0 ? bytes : bytesOf(program.value(op.results[0]));
}

/// Calls, and kernels of attentions.
static void addCalls(const LocalProgram &program, const Grouping &grouping,
                     const Target &target, Launches &all) {
  for (size_t o = 0; o < program.ops.size(); ++o) {
    const auto number = static_cast<int32_t>(o);
    const LocalOp &op = program.ops[o];
    const bool isAttention = op.facts.kind == OpKind::Attention;
    if ((op.facts.kind != OpKind::Engine && !isAttention) ||
        op.attention == LocalOp::Attention::Inside)
      continue;
    int64_t stored = 0;
    for (int32_t value : program.op(grouping.lastOfCall(number)).results)
      stored += bytesOf(program.value(value));
    if (stored == 0)
      continue;
    all.bytesWritten += stored;
    const bool isKernel = isAttention || op.attention == LocalOp::Attention::Root;
    if (isFormedBefore(program, number, target))
      continue;
    ++(isKernel ? all.kernels : all.calls);
    all.attentions += isKernel;
  }
}

Launches kernels::launchesOf(const LocalProgram &program, const Grouping &grouping,
                             const Target &target) {
  Launches all;
  for (const Group &group : grouping.groups) {
    if (elementCount(group.domain) == 0)
      continue;
    ++all.kernels;
    all.bytesWritten += storedBy(program, group.root);
    for (int32_t value : group.kept)
      all.bytesWritten += bytesOf(program.value(value));
  }
  addCalls(program, grouping, target, all);
  for (const CopyKernel &copy : copiesOf(program, grouping, target)) {
    ++all.kernels, ++all.copies;
    all.bytesWritten += copy.bytes;
  }
  return all;
}
