//===- Run.cpp - Walking the task table -----------------------------------===//
#include "ExecutorOp.h"

#include <algorithm>
#include <cstring>
#include <ctime>

using namespace partita;
using namespace partita::runtime;

static double now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Fills `bytes` with an element pattern of `width` bytes.
static void fillPattern(std::byte *target, int64_t bytes, uint64_t bits, int64_t width) {
  bool uniform = true;
  for (int64_t i = 1; i < width; ++i)
    uniform &= (bits >> (8 * i) & 0xff) == (bits & 0xff);
  if (uniform) {
    std::memset(target, static_cast<int>(bits & 0xff), static_cast<size_t>(bytes));
    return;
  }
  for (int64_t at = 0; at < bytes; at += width)
    std::memcpy(target + at, &bits, static_cast<size_t>(width));
}

/// All local kinds are rows: `outer` rows, of which `from` bytes are copied from the
/// source row (`skip` bytes long, 0: no source) at the target row of `to` bytes; what
/// remains of the target row is filled.
Expected<void> Executor::prepareLocal(Op &op, const TaskView &task) {
  auto rows = [&](int64_t dtype, int64_t outer, int64_t skip, int64_t from, int64_t to,
                  int64_t bits) {
    op.width = static_cast<int64_t>(byteWidth(static_cast<DType>(dtype)));
    op.outer = outer;
    op.skip = skip * op.width;
    op.from = from * op.width;
    op.to = to * op.width;
    op.bits = static_cast<uint64_t>(bits);
  };
  switch (task.kind) {
  case TaskKind::Slice: {
    auto p = *task::Slice::decode(task.params);
    int64_t c = op.scalars[0];
    if (c < 0 || c >= p.parts)
      return makeError("block " + std::to_string(c) + " of " + std::to_string(p.parts));
    rows(p.dtype, p.outer, p.parts * p.block, p.block, p.block, 0);
    op.addresses[0] = static_cast<std::byte *>(op.addresses[0]) + c * p.block * op.width;
    return {};
  }
  case TaskKind::Mask: {
    auto p = *task::Mask::decode(task.params);
    int64_t valid = std::clamp<int64_t>(op.scalars[0], 0, p.extent);
    rows(p.dtype, p.outer, p.extent * p.inner, valid * p.inner, p.extent * p.inner,
         p.bits);
    op.addresses.push_back(op.addresses[0]); // in place: nothing to copy
    return {};
  }
  case TaskKind::Copy: {
    auto p = *task::Copy::decode(task.params);
    rows(p.dtype, 1, p.count, p.count, p.count, 0);
    return {};
  }
  case TaskKind::Repad: {
    auto p = *task::Repad::decode(task.params);
    rows(p.dtype, p.outer, p.from * p.inner, std::min(p.from, p.to) * p.inner,
         p.to * p.inner, p.bits);
    return {};
  }
  case TaskKind::ToPartial: {
    auto p = *task::ToPartial::decode(task.params);
    rows(p.dtype, 1, p.count, op.scalars[0] == 0 ? p.count : 0, p.count, p.bits);
    return {};
  }
  default: {
    auto p = *task::Fill::decode(task.params);
    rows(p.dtype, 1, 0, 0, p.count, p.bits);
    op.addresses.push_back(op.addresses[0]);
    return {};
  }
  }
}

static void runRows(const std::byte *source, std::byte *target, int64_t outer,
                    int64_t skip, int64_t from, int64_t to, uint64_t bits,
                    int64_t width) {
  for (int64_t o = 0; o < outer; ++o, source += skip, target += to) {
    if (source != target && from != 0)
      std::memmove(target, source, static_cast<size_t>(from));
    if (from < to)
      fillPattern(target + from, to - from, bits, width);
  }
}

bool Executor::step(Op &op) noexcept {
  if (op.kernel) {
    op.kernel(op.addresses.data(), op.scalars.data(), &status);
    return status.code == PARTITA_STATUS_OK;
  }
  if (op.call)
    return op.call->run(*op.frame, op.addresses, op.weight.get());
  if (op.handle >= 0) {
    options.progress->step(RankProgress::Waiting, op.index);
    bool ok = transport.run(op.handle, op.addresses[0], op.addresses[1]);
    stopped = !ok;
    return ok;
  }
  runRows(static_cast<const std::byte *>(op.addresses[0]),
          static_cast<std::byte *>(op.addresses[1]), op.outer, op.skip, op.from, op.to,
          op.bits, op.width);
  return true;
}

/// Why the task failed.
Error Executor::failureOf(size_t index) const {
  std::string at = "rank " + std::to_string(transport.rank()) + ", node '";
  if (status.code == PARTITA_STATUS_INDEX) {
    TaskView task = program->table().task(index);
    auto check = static_cast<size_t>(status.check);
    std::string node(task.source);
    if (check < task.params.size())
      node = program->table().string(static_cast<uint32_t>(task.params[check]));
    return {at + node + "': index " + std::to_string(status.value) +
            " is outside a dim of " + std::to_string(status.size) + " elements"};
  }
  return {where(index) + (stopped ? ": stopped because another rank failed"
                                  : ": the engine reported a failure")};
}

Expected<void> Executor::run() {
  status = {};
  double last = options.profile ? now() : 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    options.progress->step(RankProgress::Running, static_cast<uint32_t>(i));
    if (!step(ops[i])) {
      options.progress->state.store(RankProgress::Failed);
      return tl::unexpected(failureOf(i));
    }
    if (options.profile) {
      double next = now();
      timing[i].seconds += next - last;
      ++timing[i].calls;
      last = next;
    }
  }
  options.progress->step(RankProgress::Idle, static_cast<uint32_t>(ops.size()));
  return {};
}
