//===- Executor.cpp - Preparing one rank of a stage -----------------------===//
#include "ExecutorOp.h"
#include "NanFinder.h"

#include "partita/Base/Layout/Layout.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <set>

using namespace partita;
using namespace partita::runtime;

Executor::Executor(std::shared_ptr<const Stage> stage,
                   std::shared_ptr<WeightStore> weights, Transport &transport,
                   Options options)
    : program(std::move(stage)), store(std::move(weights)), transport(transport),
      options(options), device(*options.device) {}

Executor::~Executor() = default;

std::string Executor::where(size_t index) const {
  const TaskTable &table = program->table();
  if (index >= table.numTasks())
    return "rank " + std::to_string(transport.rank()) + ", transfer '" +
           std::string(table.transfers()[index - table.numTasks()].name) + "'";
  const TaskView task = table.task(index);
  return "rank " + std::to_string(transport.rank()) + ", node '" +
         std::string(task.source) + "' (" + std::string(name(task.kind())) + ")";
}

Expected<std::unique_ptr<Executor>> Executor::create(std::shared_ptr<const Stage> stage,
                                                     std::shared_ptr<WeightStore> weights,
                                                     Transport &transport,
                                                     Options options) {
  std::unique_ptr<Executor> executor(
      new Executor(std::move(stage), std::move(weights), transport, options));
  const TaskTable &table = executor->program->table();
  executor->meshPlace = table.placeOf(transport.rank());
  if (executor->meshPlace < 0)
    return makeError("rank " + std::to_string(transport.rank()) + " of " +
                     std::to_string(transport.size()) + " has no place in mesh " +
                     table.mesh().str());
  setTeamSize(options.threads);
  options.progress->step(RankProgress::Loading, 0);
  if (auto ok = executor->allocate(); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = executor->placeStates(); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = executor->prepareTensors(); !ok)
    return tl::unexpected(ok.error());
  executor->makeOps();
  for (Op *op : executor->preparationOrder()) {
    options.progress->step(RankProgress::Loading, op->index);
    if (options.stop.isRaised())
      return makeError("cancelled");
    if (auto ok = executor->prepareOp(*op); !ok)
      return makeError(executor->where(op->index) + ": " + ok.error().message);
  }
  if (auto ok = executor->placeScratch(); !ok)
    return tl::unexpected(ok.error());
  executor->prepareWaits();
  executor->prepareLoops();
  if (auto ok = executor->prepareSchedule(); !ok)
    return tl::unexpected(ok.error());
  executor->prepareRolling();
  if (auto ok = executor->fetchRead(); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = executor->warmUp(); !ok)
    return tl::unexpected(ok.error());
  executor->prepareRecording();
  if (auto ok = executor->prepareFinder(); !ok)
    return tl::unexpected(ok.error());
  options.progress->step(RankProgress::Idle, 0);
  return executor;
}

Expected<void> Executor::allocate() {
  const TaskTable &table = program->table();
  if (!options.memory)
    options.memory = std::make_shared<RankMemory>();
  for (Space space : {Space::Arena, Space::Weight, Space::Io, Space::Host}) {
    uint64_t bytes = table.bytesOf(space);
    auto block = space == Space::Weight
                     ? device.allocate(space, bytes)
                     : options.memory->region(space, bytes, device, transport);
    if (!block)
      return tl::unexpected(block.error());
    regions[static_cast<size_t>(space)] = *block;
  }
  for (const BufferView &buffer : table.buffers()) {
    const auto &block = regions[static_cast<size_t>(buffer.space)];
    address.push_back(!block ? nullptr // see placeStates
                             : block.get() + buffer.offset);
  }
  auto stream = device.stream();
  if (!stream)
    return tl::unexpected(stream.error());
  work = std::move(*stream);
  return {};
}

Expected<void> Executor::prepareTensors() {
  const TaskTable &table = program->table();
  int64_t rank = meshPlace;
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &t = table.tensor(i);
    const Layout &layout = table.layoutOf(t);
    slices.emplace_back(table.mesh(), layout, rank, byteWidth(t.type));
    // The first of the ranks that hold the same elements.
    AxisList used = layout.shardingAxes();
    bool first = true;
    for (int64_t r = 0; r < rank && first; ++r)
      first = table.mesh().coordinate(r, used) != table.mesh().coordinate(rank, used);
    ownsTensor.push_back(first);
    if (t.role == Role::Weight)
      if (auto ok = addWeight(i); !ok)
        return makeError("rank " + std::to_string(transport.rank()) + ", weight '" +
                         std::string(t.name) + "': " + ok.error().message);
  }
  placeWeights();
  if (device.isHost())
    return {};
  uint64_t most = 0;
  for (size_t i = 0; i < table.numTensors(); ++i)
    if (table.tensor(i).role != Role::Weight)
      most = std::max(most, localBytes(i));
  edge.resize(most);
  return {};
}

namespace {
/// A tensor of the request, slot by slot.
struct Slots {
  uint32_t count;
  uint64_t bytes; ///< of the whole tensor in one

  Slots(const TaskTable &table, size_t tensor) {
    const TensorView &t = table.tensor(tensor);
    count = table.buffers()[t.buffer].slots;
    bytes = static_cast<uint64_t>(elementCount(t.shape)) * byteWidth(t.type) / count;
  }
};
} // namespace

Expected<void> Executor::setInput(size_t tensor, const std::byte *global) {
  Slots slots(program->table(), tensor);
  bool rolls = program->table().tensor(tensor).roll.has_value();
  bool isDirect = device.isHost() && !rolls;
  if (rolls)
    edge.resize(std::max<size_t>(edge.size(), localBytes(tensor)));
  awaitCopy(tensor);
  for (uint32_t s = 0; s < slots.count; ++s) {
    std::byte *place = placeOf(tensor, s);
    slices[tensor].toLocal(global + s * slots.bytes, isDirect ? place : edge.data());
    if (rolls ? !copyRows(tensor, s, nullptr, edge.data())
              : !isDirect && !device.copy(*work, place, edge.data(), localBytes(tensor)))
      return tl::unexpected(deviceFailure());
  }
  return {};
}

Expected<uint64_t> Executor::readInput(size_t tensor, const StoredTensor &source,
                                       std::vector<std::byte> &part) {
  Slots slots(program->table(), tensor);
  uint64_t own = localBytes(tensor), count = 0;
  part.resize(slots.count * own);
  for (uint32_t s = 0; s < slots.count; ++s) {
    auto read = partita::readSlice(source, s * slots.bytes, slices[tensor],
                                   part.data() + s * own);
    if (!read)
      return makeError("rank " + std::to_string(transport.rank()) + ", input '" +
                       std::string(program->table().tensor(tensor).name) +
                       "': " + read.error().message);
    count += *read;
  }
  return count;
}

Expected<void> Executor::setPart(size_t tensor, const std::vector<std::byte> &part) {
  uint64_t own = localBytes(tensor);
  for (uint32_t s = 0; s * own < part.size(); ++s)
    if (!device.copy(*work, placeOf(tensor, s), part.data() + s * own, own))
      return tl::unexpected(deviceFailure());
  return {};
}

Expected<void> Executor::getOutput(size_t tensor, std::byte *global) {
  Slots slots(program->table(), tensor);
  for (uint32_t s = 0; s < slots.count; ++s) {
    const std::byte *part = local(tensor, s);
    if (!part)
      return tl::unexpected(deviceFailure());
    slices[tensor].toGlobal(part, global + s * slots.bytes);
  }
  return {};
}

bool Executor::owns(size_t tensor) const { return ownsTensor[tensor]; }

std::byte *Executor::placeOf(size_t tensor, uint32_t slot) const {
  uint32_t buffer = program->table().tensor(tensor).buffer;
  return address[buffer] + slot * program->table().buffers()[buffer].slotStride;
}

const std::byte *Executor::local(size_t tensor, uint32_t slot) {
  // A tensor without elements may have no place: null is for failures.
  static constexpr std::byte nothing{};
  if (localBytes(tensor) == 0)
    return &nothing;
  std::byte *place = placeOf(tensor, slot);
  if (program->table().tensor(tensor).roll) {
    edge.resize(std::max<size_t>(edge.size(), localBytes(tensor)));
    return copyRows(tensor, slot, edge.data(), nullptr) ? edge.data() : nullptr;
  }
  if (device.isHost())
    return place;
  bool ok = device.copy(*work, edge.data(), place, localBytes(tensor));
  return ok ? edge.data() : nullptr;
}

Expected<void>
Executor::fillLocal(size_t tensor, uint32_t slot,
                    const std::function<Expected<void>(std::byte *)> &fill) {
  if (localBytes(tensor) == 0)
    return {};
  awaitCopy(tensor);
  std::byte *place = placeOf(tensor, slot);
  bool rolls = program->table().tensor(tensor).roll.has_value();
  if (device.isHost() && !rolls)
    return fill(place);
  // The rest of it stays.
  if (!local(tensor, slot))
    return tl::unexpected(deviceFailure());
  if (auto ok = fill(edge.data()); !ok)
    return ok;
  bool done = rolls ? copyRows(tensor, slot, nullptr, edge.data())
                    : device.copy(*work, place, edge.data(), localBytes(tensor));
  return done ? Expected<void>() : tl::unexpected(deviceFailure());
}

Error Executor::deviceFailure() const {
  return {"rank " + std::to_string(transport.rank()) + ": the device reported a failure"};
}

uint64_t Executor::localBytes(size_t tensor) const { return slices[tensor].localBytes(); }

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

/// An op for every call, or for every task of one that depends on its place.
void Executor::makeOps() {
  const TaskTable &table = program->table();
  constexpr uint32_t none = UINT32_MAX;
  std::vector<uint32_t> known(table.numCalls(), none);
  ops.reserve(table.numCalls());
  opOf.resize(table.numTasks());
  for (size_t i = 0; i < opOf.size(); ++i) {
    uint32_t call = table.callOf(i), op = known[call];
    if (op == none) {
      op = static_cast<uint32_t>(ops.size());
      ops.emplace_back().index = static_cast<uint32_t>(i);
      if (!table.descriptorOf(call).dependsOnPlace())
        known[call] = op;
    }
    ++ops[op].uses;
    opOf[i] = op;
  }
}

/// Engine calls first, those with the largest weights before: while one is packed it is
/// in memory twice, which matters least when the others are not there yet.
std::vector<Executor::Op *> Executor::preparationOrder() {
  const TaskTable &table = program->table();
  std::vector<std::pair<uint64_t, Op *>> order;
  for (Op &op : ops) {
    const TaskView task = table.task(op.index);
    uint64_t &bytes = order.emplace_back(0, &op).first;
    if (!hasWeight(task.kind()))
      continue;
    int64_t buffer = task.operands[engine::Call::weightOperand(task.kind())];
    if (buffer >= 0 && weightOf[static_cast<size_t>(buffer)] >= 0)
      bytes = table.buffers()[static_cast<size_t>(buffer)].bytes;
  }
  std::ranges::sort(order, [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<Op *> sorted;
  for (const auto &entry : order)
    sorted.push_back(entry.second);
  return sorted;
}

Expected<void> Executor::prepareOp(Op &op) {
  const TaskView task = program->table().task(op.index);
  op.addresses.reserve(task.operands.size());
  for (int32_t buffer : task.operands)
    op.addresses.push_back(buffer < 0 ? nullptr : address[static_cast<size_t>(buffer)]);
  findWrites(op, task);
  if (auto ok = prepareValues(op, task); !ok)
    return ok;
  if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
    auto code = device.kernel(*program, kernel->kernel);
    if (!code)
      return tl::unexpected(code.error());
    // The threads of a CPU are the rank's; other devices have their own.
    int parts =
        device.isHost() ? std::min(kernel->parts, options.threads) : kernel->parts;
    op.work = KernelWork{*code, kernel->units, parts, !kernel->checks.empty()};
    return {};
  }
  if (isEngineCall(task.kind()))
    return prepareEngine(op, task);
  if (task.kind() == TaskKind::Wait)
    return {}; // see prepareWaits
  if (auto *repeat = std::get_if<task::Repeat>(&task.params)) {
    op.work = LoopWork{repeat->tasks, repeat->trips};
    return {};
  }
  if (auto *skip = std::get_if<task::Skip>(&task.params)) {
    op.work = SkipWork{skip->tasks, skip->when};
    return {};
  }
  if (!isCollective(task.kind())) {
    auto ok = prepareLocal(op, task);
    return ok && task.handle != 0 && !device.isHost() ? prepareFlight(op) : ok;
  }
  // Others of its ranks may be at an earlier task.
  options.progress->step(RankProgress::Waiting, op.index);
  auto call = transport.prepare(program->table(), task);
  options.progress->step(RankProgress::Loading, op.index);
  if (!call)
    return tl::unexpected(call.error());
  const size_t count = 2 * task::numItems(task.params);
  std::vector<uint64_t> bytes;
  for (int32_t operand : task.operands.first(count))
    bytes.push_back(program->table().buffers()[static_cast<size_t>(operand)].bytes);
  op.staged = stage(std::span(op.addresses).first(count), bytes);
  if (task.kind() == TaskKind::AllToAllV)
    op.ragged = describeCollective(program->table(), task, transport.rank());
  op.work = CollectiveWork{*call, task.handle == 0 ? CollectivePart::Whole
                                                   : CollectivePart::Start};
  return {};
}

/// A scalar for every rank value. Those that are read have their operands at the end, and
/// kernels do not see these.
Expected<void> Executor::prepareValues(Op &op, const TaskView &task) {
  const TaskTable &table = program->table();
  size_t operand = task.operands.size() - table.numReadValues(task);
  for (uint32_t value : task.rankValues) {
    const RankValueSpec &spec = table.rankValue(value);
    op.scalars.push_back(table.rankValue(value, meshPlace));
    if (spec.kind == PARTITA_RANK_READ)
      op.reads.push_back({op.scalars.size() - 1, operand++, spec.block, spec.size,
                          spec.type == DType::I64});
  }
  if (int64_t list = task::listLength(task.params); list != 0) {
    // Of one element it may be any rank value.
    op.list.assign(static_cast<size_t>(list), op.scalars[0]);
    bool isRead = table.rankValue(task.rankValues[0]).kind == PARTITA_RANK_READ;
    if (isRead)
      op.reads[0].isList = true;
  }
  auto *repeat = std::get_if<task::Repeat>(&task.params);
  if (!repeat || op.scalars.empty())
    return {};
  for (Op::Read &read : op.reads)
    read.most = std::min(read.most, repeat->trips);
  if (op.scalars[0] < 0 || op.scalars[0] > repeat->trips)
    return makeError("it is to run " + std::to_string(op.scalars[0]) + " of " +
                     std::to_string(repeat->trips) + " times");
  return {};
}

/// A wait is for the call or copy that its handle was last started with.
void Executor::prepareWaits() {
  const TaskTable &table = program->table();
  std::vector<Op *> started(table.numHandles());
  if (started.size() == 1) // nothing is only started
    return;
  for (Op &op : ops) { // those with handles and the waits have one task each
    const TaskView task = table.task(op.index);
    if (task.handle != 0)
      started[task.handle] = &op;
    auto *wait = std::get_if<task::Wait>(&task.params);
    if (!wait)
      continue;
    Op *begun = started[wait->handle];
    if (auto *call = begun ? std::get_if<CollectiveWork>(&begun->work) : nullptr) {
      op.work = CollectiveWork{call->call, CollectivePart::Wait};
      op.staged = begun->staged;
    } else if (auto *flight = begun ? std::get_if<FlightWork>(&begun->work) : nullptr) {
      op.work = AwaitWork{flight->done.get()};
    } else {
      op.work = NoWork(); // a CPU has made a copy when it is started
    }
  }
}

/// Runs every distinct call and collective once: some primitives generate their code when
/// they first run, connections between processes are made then, and a first request is to
/// take as long as the others. The arena holds nothing yet.
Expected<void> Executor::warmUp() {
  std::set<const engine::Call *> calls;
  std::set<int> collectives;
  for (Op &op : ops) {
    auto *engine = std::get_if<EngineWork>(&op.work);
    auto *collective = std::get_if<CollectiveWork>(&op.work);
    bool first = (engine && calls.insert(engine->call.get()).second) ||
                 (collective && transport.needsWarmUp() &&
                  collectives.insert(collective->call).second);
    options.progress->step(RankProgress::Loading, op.index);
    current = op.index;
    if (first && !(collective ? communicate(op, collective->call, CollectivePart::Whole)
                              : step(op)))
      return tl::unexpected(failureOf(op.index));
  }
  return warmUpTransfers();
}

/// One micro-batch of each, all in flight together: programs know them in another order.
Expected<void> Executor::warmUpTransfers() {
  if (!transport.needsWarmUp())
    return {};
  std::map<size_t, const Moving *> first;
  for (const Entry &entry : entries)
    for (const Moving &moving : entry.starts)
      if (moving.microBatch == 0)
        first[moving.transfer] = &moving;
  for (const auto &[transfer, moving] : first)
    if (!begin(*moving))
      return tl::unexpected(failureOf(program->table().numTasks() + transfer));
  for (const auto &[transfer, moving] : first)
    if (!waitFor(*moving))
      return tl::unexpected(failureOf(program->table().numTasks() + transfer));
  return {};
}

/// How much scratch a call takes is the engine's choice for a CPU: where this one is not
/// the one that the bundle was compiled on, some calls may take more than there is in the
/// arena. These share a block of their own, as a rank's calls run one after the other.
Expected<void> Executor::placeScratch() {
  if (wantScratch.empty())
    return {};
  auto block = device.allocate(Space::Arena, moreScratch);
  if (!block)
    return tl::unexpected(block.error());
  scratch = std::move(*block);
  for (Op *op : wantScratch) {
    TaskKind kind = program->table().task(op->index).kind();
    op->addresses[scratchOperand(kind)] = scratch.get();
  }
  return {};
}

Expected<void> Executor::prepareEngine(Op &op, const TaskView &task) {
  TaskKind kind = task.kind();
  size_t operand = engine::Call::weightOperand(kind);
  const Weight *weight = hasWeight(kind) ? weightAt(task, operand) : nullptr;
  // Programs load at the same time, and each was compiled by itself: one must not fix the
  // form of a weight for another.
  auto call =
      store->calls().get(task.params, std::string(program->table().programName()) + "\n" +
                                          (weight ? weight->identity : std::string()));
  if (!call)
    return tl::unexpected(call.error());
  engine::Sizes sizes = (*call)->sizes();
  int64_t buffer = task.operands[scratchOperand(kind)];
  uint64_t has =
      buffer < 0 ? 0 : program->table().buffers()[static_cast<size_t>(buffer)].bytes;
  if (sizes.scratch > has) {
    wantScratch.push_back(&op);
    moreScratch = std::max(moreScratch, sizes.scratch);
  }
  EngineWork work;
  work.result = resultOperand(kind);
  work.bytes.reserve(task.operands.size());
  for (int32_t used : task.operands)
    work.bytes.push_back(
        used < 0 ? 0 : program->table().buffers()[static_cast<size_t>(used)].bytes);
  if (sizes.packed != 0) {
    if (!weight)
      return makeError("only a weight can be packed at load");
    auto packed = packWeight(**call, *weight);
    if (!packed)
      return tl::unexpected(packed.error());
    op.packedOperand = static_cast<int>(operand);
    work.weight = std::move(*packed);
  }
  auto &frame = frames[call->get()];
  if (!frame) {
    auto made = (*call)->frame();
    if (!made)
      return tl::unexpected(made.error());
    frame = std::move(*made);
  }
  work.frame = frame.get();
  work.call = std::move(*call);
  op.work = std::move(work);
  return {};
}
