//===- Run.cpp - Walking the task table -----------------------------------===//
#include "ExecutorOp.h"

#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

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
/// In partita_status.code, beside those of kernels: a value that was read is out of its
/// bounds.
constexpr int64_t outOfBounds = PARTITA_NUM_STATUS_CODES;

/// What a local copy is as rows, on a rank with this one value. Sizes in elements.
struct RowsOf {
  int64_t value;

  RowsWork operator()(const task::Slice &p) const {
    RowsWork rows{p.outer, p.parts * p.block, p.block, p.block};
    rows.sourceShift = value * p.block;
    return rows;
  }
  RowsWork operator()(const task::Update &p) const {
    RowsWork rows{p.outer, p.count * p.inner, p.count * p.inner, p.count * p.inner};
    rows.targetSkip = p.extent * p.inner;
    rows.targetShift = value * p.inner;
    return rows;
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

/// Whether a copy has such a place.
static bool isValue(const task::Params &params, int64_t value) {
  if (auto *p = std::get_if<task::Slice>(&params))
    return value >= 0 && value < p->parts;
  if (auto *p = std::get_if<task::Update>(&params))
    return value >= 0 && value <= p->extent - p->count;
  return true;
}

bool runtime::rowsOf(const task::Params &params, int64_t value, RowsWork &rows) noexcept {
  if (!isValue(params, value))
    return false;
  int parts = rows.parts;
  std::visit(
      [&](const auto &p) {
        if constexpr (requires(RowsOf rowsOf) { rowsOf(p); }) {
          rows = RowsOf{value}(p);
          rows.width = static_cast<int64_t>(byteWidth(static_cast<DType>(p.dtype)));
        }
      },
      params);
  for (int64_t *elements : {&rows.skip, &rows.from, &rows.to, &rows.sourceShift,
                            &rows.targetShift, &rows.targetSkip})
    *elements *= rows.width;
  if (rows.targetSkip == 0)
    rows.targetSkip = rows.to;
  rows.parts = parts;
  return true;
}

Expected<void> Executor::prepareLocal(Op &op, const TaskView &task) {
  RowsWork rows;
  int64_t value = op.scalars.empty() ? 0 : op.scalars[0];
  if (!rowsOf(task.params, value, rows))
    return makeError("its place is " + std::to_string(value) +
                     ", where its target has none");
  if (op.addresses.size() == 1 + op.reads.size()) // in place: nothing to copy
    op.addresses.insert(op.addresses.begin(), op.addresses[0]);
  for (Op::Read &read : op.reads)
    read.operand = op.addresses.size() - 1;
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
  source += work.sourceShift + begin * work.skip;
  target += work.targetShift + begin * work.targetSkip;
  for (int64_t o = begin; o < end; ++o, source += work.skip, target += work.targetSkip) {
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
    double begin = recording ? now() : 0;
    ok = transport.wait(call);
    waiting += recording ? now() - begin : 0;
    --inFlight;
  }
  stopped = !ok;
  return ok;
}

/// Fetches the scalars that earlier tasks have written. False, with word of it, if one is
/// not what it may be.
bool Executor::readValues(Op &op) noexcept {
  for (const Op::Read &read : op.reads) {
    const auto *from = static_cast<const std::byte *>(op.addresses[read.operand]);
    int64_t value = 0;
    if (read.wide) {
      std::memcpy(&value, from + read.element * 8, 8);
    } else {
      int32_t narrow;
      std::memcpy(&narrow, from + read.element * 4, 4);
      value = narrow;
    }
    if (value < 0 || value > read.most) {
      status = {outOfBounds, value, read.most, 0};
      return false;
    }
    op.scalars[read.scalar] = value;
  }
  auto *rows = std::get_if<RowsWork>(&op.work);
  if (!rows || op.reads.empty())
    return true;
  const TaskView &task = program->table().task(op.index);
  if (!rowsOf(task.params, op.scalars[0], *rows)) {
    status = {outOfBounds, op.scalars[0], op.reads[0].most, 0};
    return false;
  }
  return true;
}

bool Executor::step(Op &op) noexcept {
  if (!op.reads.empty() && !readValues(op))
    return false;
  if (auto *kernel = std::get_if<KernelWork>(&op.work)) {
    runKernel(*kernel, op.addresses.data(), op.scalars.data(), &status);
    return status.code == PARTITA_STATUS_OK;
  }
  if (auto *engine = std::get_if<EngineWork>(&op.work))
    return engine->call->run(*engine->frame, op.addresses, engine->weight.get());
  if (auto *collective = std::get_if<CollectiveWork>(&op.work))
    return communicate(op, collective->call, collective->part);
  if (std::holds_alternative<NoWork>(op.work))
    return true;
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
  if (status.code == outOfBounds)
    return {where(index) + ": it reads the value " + std::to_string(status.value) +
            ", expected 0 to " + std::to_string(status.size)};
  return {where(index) + (stopped ? ": stopped because another rank failed"
                                  : ": the engine reported a failure")};
}

Expected<void> Executor::runLoop(const Op &op) {
  const auto &loop = std::get<LoopWork>(op.work);
  int64_t trips = op.scalars.empty() ? loop.trips : op.scalars[0];
  auto move = [&](auto bytes) {
    for (const LoopWork::Moving &m : loop.moving) {
      void *&address = ops[m.op].addresses[m.operand];
      address = static_cast<std::byte *>(address) + bytes(m);
    }
  };
  for (int64_t t = 0; t < trips; ++t) {
    move([&](const auto &m) { return t == 0 ? m.begin : m.stride; });
    if (auto ok = runTasks(op.index + 1, loop.end); !ok)
      return ok;
  }
  if (trips > 0)
    move([&](const auto &m) { return -(m.begin + (trips - 1) * m.stride); });
  return {};
}

Expected<void> Executor::runTasks(size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
    options.progress->step(RankProgress::Running, static_cast<uint32_t>(i));
    // Nobody else moves along what is in flight.
    stopped = inFlight != 0 && !transport.progress();
    Op &op = ops[i];
    if (auto *loop = std::get_if<LoopWork>(&op.work); loop && !stopped) {
      if (!readValues(op))
        return tl::unexpected(failureOf(i));
      if (auto ok = runLoop(op); !ok)
        return ok;
      i = loop->end - 1;
      continue;
    }
    if (auto *skip = std::get_if<SkipWork>(&op.work); skip && !stopped) {
      if ((*static_cast<const uint8_t *>(op.addresses[0]) != 0) == skip->when)
        i = skip->end - 1;
      continue;
    }
    if (stopped || !step(op))
      return tl::unexpected(failureOf(i));
    if (recording)
      record(RunSpan::Task, i, lastTime, op.received);
  }
  return {};
}

Expected<void> Executor::runSegment(size_t index) {
  const SegmentView &segment = program->table().segments()[index];
  return runTasks(segment.firstTask, segment.firstTask + segment.numTasks);
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
  double begin = recording ? now() : 0;
  stopped = !transport.wait(moving.call);
  waiting += recording ? now() - begin : 0;
  --inFlight;
  return !stopped;
}

Expected<void> Executor::runEntry(const Entry &entry) {
  size_t numTasks = program->table().numTasks();
  for (const Moving &moving : entry.waits) {
    if (!waitFor(moving))
      return tl::unexpected(failureOf(numTasks + moving.transfer));
    if (recording)
      record(RunSpan::Transfer, moving.transfer, lastTime, moving.received,
             moving.microBatch);
  }
  if (entry.segment >= 0) {
    auto segment = static_cast<size_t>(entry.segment);
    double begin = lastTime;
    setSlots(segment, entry.microBatch);
    if (auto ok = runSegment(segment); !ok)
      return ok;
    if (recording && entries.size() > 1)
      record(RunSpan::Segment, segment, begin, 0, entry.microBatch);
  }
  for (const Moving &moving : entry.starts)
    if (!begin(moving))
      return tl::unexpected(failureOf(numTasks + moving.transfer));
  return {};
}

Expected<void> Executor::run() {
  status = {};
  beginRecording();
  double begin = lastTime;
  for (const Entry &entry : entries)
    if (auto ok = runEntry(entry); !ok) {
      options.progress->state.store(RankProgress::Failed);
      return ok;
    }
  endRecording(begin);
  const TaskTable &table = program->table();
  options.progress->step(
      RankProgress::Idle,
      static_cast<uint32_t>(table.numTasks() + table.transfers().size()));
  return {};
}
