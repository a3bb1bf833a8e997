//===- Run.cpp - Walking the task table -----------------------------------===//
#include "ExecutorOp.h"

#include "partita/Runtime/Team.h"

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

namespace {
/// What a local copy is as rows, on a rank with this one value. Sizes in elements.
struct RowsOf {
  int64_t value;

  RowsWork operator()(const task::Slice &p) const {
    return {p.outer, p.parts * p.block, p.block, p.block};
  }
  RowsWork operator()(const task::Mask &p) const {
    int64_t valid = std::clamp<int64_t>(value, 0, p.extent);
    return {p.outer, p.extent * p.inner, valid * p.inner, p.extent * p.inner,
            static_cast<uint64_t>(p.bits)};
  }
  RowsWork operator()(const task::Copy &p) const { return {1, 0, p.count, p.count}; }
  RowsWork operator()(const task::Repad &p) const {
    return {p.outer, p.from * p.inner, std::min(p.from, p.to) * p.inner, p.to * p.inner,
            static_cast<uint64_t>(p.bits)};
  }
  RowsWork operator()(const task::ToPartial &p) const {
    return {1, 0, value == 0 ? p.count : 0, p.count, static_cast<uint64_t>(p.bits)};
  }
  RowsWork operator()(const task::Fill &p) const {
    return {1, 0, 0, p.count, static_cast<uint64_t>(p.bits)};
  }
};
} // namespace

Expected<void> Executor::prepareLocal(Op &op, const TaskView &task) {
  RowsOf rowsOf{op.scalars.empty() ? 0 : op.scalars[0]};
  RowsWork rows;
  std::visit(
      [&](const auto &p) {
        if constexpr (requires { rowsOf(p); }) {
          rows = rowsOf(p);
          rows.width = static_cast<int64_t>(byteWidth(static_cast<DType>(p.dtype)));
        }
      },
      task.params);
  for (int64_t *elements : {&rows.skip, &rows.from, &rows.to})
    *elements *= rows.width;
  if (auto *p = std::get_if<task::Slice>(&task.params)) {
    if (rowsOf.value < 0 || rowsOf.value >= p->parts)
      return makeError("block " + std::to_string(rowsOf.value) + " of " +
                       std::to_string(p->parts));
    op.addresses[0] = static_cast<std::byte *>(op.addresses[0]) + rowsOf.value * rows.to;
  }
  if (op.addresses.size() == 1) // in place: nothing to copy
    op.addresses.push_back(op.addresses[0]);
  // Fewer bytes are copied before another thread is awake.
  constexpr int64_t worth = 64 << 10;
  rows.parts =
      static_cast<int>(std::clamp(std::min(rows.outer, rows.outer * rows.to / worth),
                                  int64_t(1), static_cast<int64_t>(options.threads)));
  op.work = rows;
  return {};
}

static void runKernel(const KernelWork &work, void *const *buffers,
                      const int64_t *scalars, partita_status *status) {
  runParts(work.parts, [&](int part) {
    work.function(buffers, scalars, status, partBegin(work.units, part, work.parts),
                  partBegin(work.units, part + 1, work.parts), part);
  });
}

/// Rows from `begin` to before `end`.
static void runRows(const RowsWork &work, const std::byte *source, std::byte *target,
                    int64_t begin, int64_t end) {
  source += begin * work.skip;
  target += begin * work.to;
  for (int64_t o = begin; o < end; ++o, source += work.skip, target += work.to) {
    if (source != target && work.from != 0)
      std::memmove(target, source, static_cast<size_t>(work.from));
    if (work.from < work.to)
      fillPattern(target + work.from, work.to - work.from, work.bits, work.width);
  }
}

bool Executor::communicate(Op &op, int call, CollectivePart part) noexcept {
  bool ok = true;
  if (part != CollectivePart::Wait) {
    ok = transport.start(call, op.addresses[0], op.addresses[1]);
    ++inFlight;
  }
  if (ok && part != CollectivePart::Start) {
    options.progress->step(RankProgress::Waiting, op.index);
    ok = transport.wait(call);
    --inFlight;
  }
  stopped = !ok;
  return ok;
}

bool Executor::step(Op &op) noexcept {
  if (auto *kernel = std::get_if<KernelWork>(&op.work)) {
    runKernel(*kernel, op.addresses.data(), op.scalars.data(), &status);
    return status.code == PARTITA_STATUS_OK;
  }
  if (auto *engine = std::get_if<EngineWork>(&op.work))
    return engine->call->run(*engine->frame, op.addresses, engine->weight.get());
  if (auto *collective = std::get_if<CollectiveWork>(&op.work))
    return communicate(op, collective->call, collective->part);
  auto &rows = *std::get_if<RowsWork>(&op.work);
  runParts(rows.parts, [&](int part) {
    runRows(rows, static_cast<const std::byte *>(op.addresses[0]),
            static_cast<std::byte *>(op.addresses[1]),
            partBegin(rows.outer, part, rows.parts),
            partBegin(rows.outer, part + 1, rows.parts));
  });
  return true;
}

/// Why the task failed.
Error Executor::failureOf(size_t index) const {
  std::string at = "rank " + std::to_string(transport.rank()) + ", node '";
  if (status.code == PARTITA_STATUS_INDEX) {
    const TaskView &task = program->table().task(index);
    auto *kernel = std::get_if<task::Kernel>(&task.params);
    auto check = static_cast<size_t>(status.check);
    std::string node(task.source);
    if (kernel && check < kernel->checks.size())
      node = kernel->checks[check];
    return {at + node + "': index " + std::to_string(status.value) +
            " is outside a dim of " + std::to_string(status.size) + " elements"};
  }
  return {where(index) + (stopped ? ": stopped because another rank failed"
                                  : ": the engine reported a failure")};
}

void Executor::record(size_t time) noexcept {
  if (!options.profile)
    return;
  double next = now();
  timing[time].seconds += next - lastTime;
  ++timing[time].calls;
  lastTime = next;
}

Expected<void> Executor::runSegment(size_t index) {
  const SegmentView &segment = program->table().segments()[index];
  for (size_t i = segment.firstTask; i < segment.firstTask + segment.numTasks; ++i) {
    options.progress->step(RankProgress::Running, static_cast<uint32_t>(i));
    // Nobody else moves along what is in flight.
    stopped = inFlight != 0 && !transport.progress();
    if (stopped || !step(ops[i]))
      return tl::unexpected(failureOf(i));
    record(i);
  }
  return {};
}

bool Executor::begin(const Moving &moving) noexcept {
  ++inFlight;
  stopped = !transport.start(moving.call, moving.sends ? moving.address : nullptr,
                             moving.sends ? nullptr : moving.address);
  return !stopped;
}

bool Executor::waitFor(const Moving &moving) noexcept {
  size_t index = program->table().numTasks() + moving.transfer;
  options.progress->step(RankProgress::Waiting, static_cast<uint32_t>(index));
  stopped = !transport.wait(moving.call);
  --inFlight;
  return !stopped;
}

Expected<void> Executor::runEntry(const Entry &entry) {
  size_t numTasks = program->table().numTasks();
  for (const Moving &moving : entry.waits) {
    if (!waitFor(moving))
      return tl::unexpected(failureOf(numTasks + moving.transfer));
    record(numTasks + moving.transfer);
  }
  if (entry.segment >= 0) {
    setSlots(static_cast<size_t>(entry.segment), entry.microBatch);
    if (auto ok = runSegment(static_cast<size_t>(entry.segment)); !ok)
      return ok;
  }
  for (const Moving &moving : entry.starts)
    if (!begin(moving))
      return tl::unexpected(failureOf(numTasks + moving.transfer));
  return {};
}

Expected<void> Executor::run() {
  status = {};
  lastTime = options.profile ? now() : 0;
  for (const Entry &entry : entries)
    if (auto ok = runEntry(entry); !ok) {
      options.progress->state.store(RankProgress::Failed);
      return ok;
    }
  options.progress->step(RankProgress::Idle, static_cast<uint32_t>(timing.size()));
  return {};
}
