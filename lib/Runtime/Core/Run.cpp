//===- Run.cpp - Walking the task table -----------------------------------===//
#include "ExecutorOp.h"
#include "NanFinder.h"
#include "Sanitizer.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

namespace {
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
  if (auto *p = std::get_if<task::Rows>(&task.params))
    return prepareList(op, *p);
  RowsWork rows;
  int64_t value = op.scalars.empty() ? 0 : op.scalars[0];
  if (!rowsOf(task.params, value, rows))
    return makeError("its place is " + std::to_string(value) +
                     ", where its target has none");
  if (op.addresses.size() == 1 + op.reads.size()) // in place: nothing to copy
    op.addresses.insert(op.addresses.begin(), op.addresses[0]);
  for (Op::Read &read : op.reads)
    read.operand = op.addresses.size() - 1;
  rows.parts = partsOf(rows);
  op.work = rows;
  return {};
}

/// By how many threads rows are copied.
int Executor::partsOf(const RowsWork &rows) const {
  // Fewer bytes are copied before another thread is awake.
  constexpr int64_t worth = 64 << 10;
  return static_cast<int>(std::clamp(std::min(rows.outer, rows.outer * rows.to / worth),
                                     int64_t(1), static_cast<int64_t>(options.threads)));
}

bool Executor::communicate(Op &op, int call, CollectivePart part) noexcept {
  bool ok = true;
  void *const *places = op.addresses.data();
  if (part != CollectivePart::Wait) {
    if (!countsFit(op) || (op.staged && !toHost(*op.staged, places)))
      return false;
    ok = transport.start(call, op.staged ? op.staged->places.data() : places,
                         op.list.data());
    ++inFlight;
  }
  if (ok && part != CollectivePart::Start) {
    options.progress->step(RankProgress::Waiting, current);
    double begin = recording ? now() : 0;
    ok = transport.wait(call);
    waiting += recording ? now() - begin : 0;
    --inFlight;
    if (ok && op.staged && !fromHost(*op.staged, places))
      return false;
  }
  stopped = !ok && transport.problem().empty();
  return ok;
}

/// A few bytes that the host needs, of memory of the device.
bool Executor::read(void *to, const void *from, uint64_t bytes) noexcept {
  if (!device.isHost())
    return device.copy(*work, to, from, bytes);
  std::memcpy(to, from, bytes);
  return true;
}

/// Fetches the scalars that earlier tasks have written. False, with word of it, if one is
/// not what it may be.
bool Executor::readValues(Op &op) noexcept {
  int64_t most = 0; // elements of a list that are read
  for (size_t r = op.reads.size(); r-- > 0;) {
    const Op::Read &read = op.reads[r];
    const auto *from = static_cast<const std::byte *>(op.addresses[read.operand]);
    int64_t count =
        read.isList ? (op.reads.size() > 1 ? most : int64_t(op.list.size())) : 1;
    for (int64_t i = 0; i < count; ++i) {
      int64_t value = 0;
      int32_t narrow = 0;
      bool ok = read.wide ? this->read(&value, from + (read.element + i) * 8, 8)
                          : this->read(&narrow, from + (read.element + i) * 4, 4);
      if (!ok)
        return false;
      value = read.wide ? value : narrow;
      if (value < 0 || value > read.most) {
        work->status = {outOfBounds, value, read.most, 0};
        return false;
      }
      (read.isList ? op.list[static_cast<size_t>(i)] : op.scalars[read.scalar]) = value;
      most = value;
    }
  }
  auto *rows = std::get_if<RowsWork>(&op.work);
  if (!rows || op.reads.empty())
    return true;
  const TaskView task = program->table().task(op.index);
  if (!rowsOf(task.params, op.scalars[0], *rows)) {
    work->status = {outOfBounds, op.scalars[0], op.reads[0].most, 0};
    return false;
  }
  return true;
}

/// Where addresses are checked: while a task works, nobody may touch the rank's blocks
/// but at the task's operands. Others may where calls are in flight.
class Executor::OnlyOperands {
public:
  OnlyOperands(const Executor &rank, const Op &op)
      : rank(rank), isOn(checksAddresses && rank.inFlight == 0) {
    if (!isOn)
      return;
    each(forbid);
    const TaskTable &table = rank.program->table();
    const TaskView task = table.task(op.index);
    for (size_t k = 0; k < op.addresses.size(); ++k)
      if (int32_t buffer = task.operands[op.operandOf(k, task)]; buffer >= 0)
        allow(op.addresses[k], table.buffers()[static_cast<size_t>(buffer)].bytes);
  }
  ~OnlyOperands() {
    if (isOn)
      each(allow);
  }
  OnlyOperands(const OnlyOperands &) = delete;

private:
  void each(void (*tell)(const void *, uint64_t)) const {
    for (Space space : {Space::Arena, Space::Weight, Space::Io, Space::Host})
      if (const Memory &block = rank.regions[static_cast<size_t>(space)])
        tell(block.get(), rank.program->table().bytesOf(space));
  }

  const Executor &rank;
  bool isOn;
};

bool Executor::step(Op &op) noexcept {
  if (!op.reads.empty() && !readValues(op))
    return false;
  if (auto *collective = std::get_if<CollectiveWork>(&op.work))
    return communicate(op, collective->call, collective->part);
  OnlyOperands guard(*this, op);
  if (auto *kernel = std::get_if<KernelWork>(&op.work))
    return device.launch(*work, *kernel, op.addresses, op.scalars) &&
           work->status.code == PARTITA_STATUS_OK;
  if (auto *engine = std::get_if<EngineWork>(&op.work))
    return device.call(*work, *engine, op.addresses);
  if (auto *rows = std::get_if<RowsWork>(&op.work))
    return device.rows(*work, *rows, op.addresses[0], op.addresses[1]);
  if (auto *list = std::get_if<ListWork>(&op.work))
    return runList(op, *list);
  return std::holds_alternative<NoWork>(op.work) || runFlight(op);
}

/// Why the task failed.
Error Executor::failureOf(size_t index) const {
  std::string at = "rank " + std::to_string(transport.rank()) + ", node '";
  const partita_status &status = work->status;
  if (status.code == PARTITA_STATUS_INDEX) {
    const TaskView task = program->table().task(index);
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
  if (status.code == sendsTooMany || status.code == receivesTooMany)
    return {where(index) + ": member " + std::to_string(status.check) +
            (status.code == sendsTooMany ? " sends " : " receives ") +
            std::to_string(status.value) + " rows, it has room for " +
            std::to_string(status.size)};
  if (const std::string problem = transport.problem(); !problem.empty())
    return {where(index) + ": " + problem};
  bool isCall =
      index < opOf.size() && std::holds_alternative<EngineWork>(ops[opOf[index]].work);
  return {where(index) + (stopped  ? ": stopped because another rank failed"
                          : isCall ? ": the engine reported a failure"
                                   : ": the device reported a failure")};
}

Expected<void> Executor::runLoop(const Op &op, size_t index) {
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
    if (auto ok = runTasks(index + 1, index + 1 + loop.tasks); !ok)
      return ok;
  }
  if (trips > 0)
    move([&](const auto &m) { return -(m.begin + (trips - 1) * m.stride); });
  return {};
}

Expected<void> Executor::runTasks(size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
    current = static_cast<uint32_t>(i);
    options.progress->step(RankProgress::Running, current);
    // Nobody else moves along what is in flight.
    stopped = options.stop.isRaised() || (inFlight != 0 && !transport.progress());
    Op &op = ops[opOf[i]];
    if (auto *loop = std::get_if<LoopWork>(&op.work); loop && !stopped) {
      if (!readValues(op))
        return tl::unexpected(failureOf(i));
      if (auto ok = runLoop(op, i); !ok)
        return ok;
      i += loop->tasks;
      continue;
    }
    if (auto *skip = std::get_if<SkipWork>(&op.work); skip && !stopped) {
      uint8_t isSet = 0;
      if (!read(&isSet, op.addresses[0], 1))
        return tl::unexpected(failureOf(i));
      if ((isSet != 0) == skip->when)
        i += skip->tasks;
      continue;
    }
    if (!stopped)
      for (const RankMemory::State *state : op.writes)
        state->awaitCopy();
    if (stopped || !(finder ? stepAndLook(op, i) : step(op)))
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
  Staged *staged = moving.staged;
  if (staged && !toHost(*staged, moving.places))
    return false;
  if (moving.written)
    moving.written->awaitCopy();
  lookAtTransfer(moving);
  ++inFlight;
  const bool ok =
      transport.start(moving.call, staged ? staged->places.data() : moving.places);
  stopped = !ok && transport.problem().empty();
  return ok;
}

bool Executor::waitFor(const Moving &moving) noexcept {
  size_t index = program->table().numTasks() + moving.transfer;
  options.progress->step(RankProgress::Waiting, static_cast<uint32_t>(index));
  double begin = recording ? now() : 0;
  stopped = !transport.wait(moving.call);
  waiting += recording ? now() - begin : 0;
  --inFlight;
  if (!stopped && moving.staged)
    return fromHost(*moving.staged, moving.places);
  return !stopped;
}

Expected<void> Executor::runEntry(const Entry &entry) {
  size_t numTasks = program->table().numTasks();
  if (options.meanwhile && !options.meanwhile()) {
    stopped = true;
    return tl::unexpected(failureOf(current));
  }
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
  work->status = {};
  beginRecording();
  double begin = lastTime;
  if (device.isHost())
    edge = {}; // of what was read or written between requests
  if (finder)
    finder->beginRequest();
  if (!beginRolling())
    return tl::unexpected(deviceFailure());
  for (const Entry &entry : entries)
    if (auto ok = runEntry(entry); !ok) {
      options.progress->state.store(RankProgress::Failed);
      return ok;
    }
  if (!device.finish(*work))
    return tl::unexpected(deviceFailure());
  if (finder)
    endFinding();
  endRolling();
  endRecording(begin);
  const TaskTable &table = program->table();
  options.progress->step(
      RankProgress::Idle,
      static_cast<uint32_t>(table.numTasks() + table.transfers().size()));
  return {};
}
