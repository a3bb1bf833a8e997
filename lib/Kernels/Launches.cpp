//===- Launches.cpp - Kernels and calls of a program ----------------------===//
#include "partita/Kernels/Launches.h"

#include <algorithm>

using namespace partita;
using namespace partita::kernels;

static int64_t bytesOf(const LocalValue &value) {
  return elementCount(value.shape) * static_cast<int64_t>(byteWidth(value.type));
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

Launches kernels::launchesOf(const LocalProgram &program, const Grouping &grouping) {
  Launches all;
  for (const Group &group : grouping.groups) {
    if (elementCount(group.domain) == 0)
      continue;
    ++all.kernels;
    all.bytesWritten += storedBy(program, group.root);
    for (int32_t value : group.kept)
      all.bytesWritten += bytesOf(program.value(value));
  }
  for (size_t o = 0; o < program.ops.size(); ++o) {
    const auto number = static_cast<int32_t>(o);
    const LocalOp &op = program.ops[o];
    const bool isAttention = op.facts.kind == OpKind::Attention;
    if ((op.facts.kind != OpKind::Engine && !isAttention) ||
        op.attention == LocalOp::Attention::Inside)
      continue;
    const int32_t last = grouping.lastOfCall(number);
    const int64_t stored =
        isAttention ? storedBy(program, number) : bytesOf(program.result(last));
    if (stored == 0)
      continue;
    const bool isKernel = isAttention || op.attention == LocalOp::Attention::Root;
    ++(isKernel ? all.kernels : all.calls);
    all.attentions += isKernel;
    all.bytesWritten += stored;
  }
  return all;
}
