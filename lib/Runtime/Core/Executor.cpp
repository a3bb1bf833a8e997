//===- Executor.cpp - Preparing one rank of a stage -----------------------===//
#include "ExecutorOp.h"

#include "partita/Base/Layout.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

// Since Linux 5.14, but not in every C library's header.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

using namespace partita;
using namespace partita::runtime;

Executor::Executor(std::shared_ptr<const Stage> stage,
                   std::shared_ptr<WeightStore> weights, Transport &transport,
                   Options options)
    : program(std::move(stage)), store(std::move(weights)), transport(transport),
      options(options) {}

Executor::~Executor() = default;

std::string Executor::where(size_t index) const {
  TaskView task = program->table().task(index);
  return "rank " + std::to_string(transport.rank()) + ", node '" +
         std::string(task.source) + "' (" + std::string(name(task.kind)) + ")";
}

Expected<std::unique_ptr<Executor>> Executor::create(std::shared_ptr<const Stage> stage,
                                                     std::shared_ptr<WeightStore> weights,
                                                     Transport &transport,
                                                     Options options) {
  std::unique_ptr<Executor> executor(
      new Executor(std::move(stage), std::move(weights), transport, options));
  const TaskTable &table = executor->program->table();
  if (table.mesh().numRanks() != transport.size())
    return makeError("the bundle is for " + std::to_string(table.mesh().numRanks()) +
                     " ranks, the run has " + std::to_string(transport.size()));
  onednn::setThreads(options.threads);
  options.progress->step(RankProgress::Loading, 0);
  if (auto ok = executor->allocate(); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = executor->prepareTensors(); !ok)
    return tl::unexpected(ok.error());
  executor->ops.reserve(table.numTasks());
  for (size_t i = 0; i < table.numTasks(); ++i) {
    options.progress->step(RankProgress::Loading, static_cast<uint32_t>(i));
    if (auto ok = executor->prepareTask(i); !ok)
      return makeError(executor->where(i) + ": " + ok.error().message);
  }
  executor->releaseUnused();
  executor->timing.resize(table.numTasks());
  options.progress->step(RankProgress::Idle, 0);
  return executor;
}

/// Touches pages at load, so that the first request does not wait for them. Kernels that
/// cannot do it are no error.
static void populate(void *data, uint64_t bytes, int how) {
  constexpr uintptr_t page = 4096;
  auto first = reinterpret_cast<uintptr_t>(data) / page * page;
  auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  if (bytes != 0)
    ::madvise(reinterpret_cast<void *>(first), end - first, how);
}

Expected<void> Executor::allocate() {
  const TaskTable &table = program->table();
  auto a = WeightStore::allocate(table.arenaBytes());
  auto w = WeightStore::allocate(table.weightBytes());
  if (!a)
    return tl::unexpected(a.error());
  if (!w)
    return tl::unexpected(w.error());
  arena = *a;
  weightRegion = *w;
  populate(WeightStore::address(*arena), table.arenaBytes(), MADV_POPULATE_WRITE);
  for (const partita_buffer &buffer : table.buffers()) {
    const auto &block = buffer.space == PARTITA_SPACE_ARENA ? arena : weightRegion;
    address.push_back(static_cast<std::byte *>(WeightStore::address(*block)) +
                      buffer.offset);
  }
  return {};
}

Expected<void> Executor::prepareTensors() {
  const TaskTable &table = program->table();
  int rank = transport.rank();
  for (size_t i = 0; i < table.numTensors(); ++i) {
    TensorView t = table.tensor(i);
    // Parsed and verified by the reader already.
    Layout layout = *Layout::parse(t.layout, table.mesh());
    slices.emplace_back(table.mesh(), layout, rank, byteWidth(t.type));
    // The first of the ranks that hold the same elements.
    AxisList used = layout.shardingAxes();
    bool first = true;
    for (int64_t r = 0; r < rank && first; ++r)
      first = table.mesh().coordinate(r, used) != table.mesh().coordinate(rank, used);
    ownsTensor.push_back(first);
    if (t.role == Role::Weight)
      if (auto ok = loadWeight(i); !ok)
        return makeError("rank " + std::to_string(rank) + ", weight '" +
                         std::string(t.name) + "': " + ok.error().message);
  }
  return {};
}

/// Uses the mapped file in place where the slice is one aligned run of it.
Expected<void> Executor::loadWeight(size_t index) {
  TensorView t = program->table().tensor(index);
  options.progress->step(RankProgress::Loading, 0);
  if (t.file >= store->numFiles())
    return makeError("the bundle has no weight file " + std::to_string(t.file));
  auto bytes = store->file(t.file);
  if (t.fileOffset > bytes.size() || t.fileBytes > bytes.size() - t.fileOffset)
    return makeError("it leaves its file of " + std::to_string(bytes.size()) + " bytes");
  const std::byte *global = bytes.data() + t.fileOffset;
  const SliceCopy &slice = slices[index];
  auto run = slice.contiguous();
  if (run && reinterpret_cast<uintptr_t>(global + *run) % PARTITA_BUFFER_ALIGNMENT == 0)
    address[t.buffer] = const_cast<std::byte *>(global + *run);
  else
    slice.toLocal(global, address[t.buffer]);
  return {};
}

/// Gives back the pages of weights that are only read in packed form.
void Executor::releaseUnused() {
  const TaskTable &table = program->table();
  std::vector<bool> used(table.buffers().size(), false);
  for (const Op &op : ops)
    for (size_t i = 0; i < op.operands.size(); ++i) {
      int64_t buffer = op.operands[i];
      if (buffer >= 0 && static_cast<int>(i) != op.packedOperand)
        used[static_cast<size_t>(buffer)] = true;
    }
  constexpr uintptr_t page = 4096;
  for (size_t b = 0; b < used.size(); ++b) {
    if (table.buffers()[b].space != PARTITA_SPACE_WEIGHT)
      continue;
    if (used[b]) {
      populate(address[b], table.buffers()[b].bytes, MADV_POPULATE_READ);
      continue;
    }
    auto first = (reinterpret_cast<uintptr_t>(address[b]) + page - 1) / page * page;
    auto end = (reinterpret_cast<uintptr_t>(address[b]) + table.buffers()[b].bytes) /
               page * page;
    // A copy is dropped, a mapped file merely leaves this process.
    if (first < end)
      ::madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
  }
}

void Executor::setInput(size_t tensor, const std::byte *global) {
  slices[tensor].toLocal(global, local(tensor));
}

void Executor::getOutput(size_t tensor, std::byte *global) const {
  slices[tensor].toGlobal(local(tensor), global);
}

bool Executor::owns(size_t tensor) const { return ownsTensor[tensor]; }

std::byte *Executor::local(size_t tensor) const {
  return address[program->table().tensor(tensor).buffer];
}

uint64_t Executor::localBytes(size_t tensor) const { return slices[tensor].localBytes(); }

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

Expected<void> Executor::prepareTask(size_t index) {
  TaskView task = program->table().task(index);
  Op &op = ops.emplace_back();
  op.kind = task.kind;
  op.index = static_cast<uint32_t>(index);
  op.operands.assign(task.operands.begin(), task.operands.end());
  for (int64_t buffer : task.operands)
    op.addresses.push_back(buffer < 0 ? nullptr : address[static_cast<size_t>(buffer)]);
  for (int64_t value : task.rankValues)
    op.scalars.push_back(
        program->table().rankValue(static_cast<size_t>(value), transport.rank()));
  if (task.kind == TaskKind::Kernel) {
    op.kernel = program->kernel(task.kernelIndex);
    return {};
  }
  if (task.kind == TaskKind::MatMul || task.kind == TaskKind::Conv ||
      task.kind == TaskKind::ConvTranspose || task.kind == TaskKind::Pool)
    return prepareEngine(op, task);
  if (!isCollective(task.kind))
    return prepareLocal(op, task);
  auto handle = transport.prepare(program->table(), task);
  if (!handle)
    return tl::unexpected(handle.error());
  op.handle = *handle;
  return {};
}

Expected<void> Executor::prepareEngine(Op &op, const TaskView &task) {
  auto call = onednn::Call::create(task.kind, task.params);
  if (!call)
    return tl::unexpected(call.error());
  onednn::Sizes sizes = (*call)->sizes();
  size_t scratch = task::MatMulScratch;
  if (task.kind == TaskKind::Pool)
    scratch = task::PoolScratch;
  int64_t buffer = task.operands[scratch];
  uint64_t has =
      buffer < 0 ? 0 : program->table().buffers()[static_cast<size_t>(buffer)].bytes;
  if (sizes.scratch > has)
    return makeError("the engine needs " + std::to_string(sizes.scratch) +
                     " bytes of scratch on this host, the bundle planned " +
                     std::to_string(has) + "; compile for this host and thread count");
  void *packed = nullptr;
  if (sizes.packed != 0) {
    size_t operand = onednn::Call::weightOperand(task.kind);
    auto made = packWeight(**call, task, operand);
    if (!made)
      return tl::unexpected(made.error());
    packed = *made;
    op.packedOperand = static_cast<int>(operand);
  }
  if (auto ok = (*call)->bind(op.addresses, packed); !ok)
    return ok;
  op.call = std::move(*call);
  return {};
}

/// The packed form of the weight operand. Ranks of one process that hold the same slice
/// of the same weight share it.
Expected<void *> Executor::packWeight(onednn::Call &call, const TaskView &task,
                                      size_t operand) {
  const TaskTable &table = program->table();
  int64_t buffer = task.operands[operand];
  std::string identity;
  for (size_t i = 0; i < table.numTensors() && identity.empty(); ++i) {
    TensorView t = table.tensor(i);
    if (t.role != Role::Weight || t.buffer != static_cast<uint32_t>(buffer))
      continue;
    Layout layout = *Layout::parse(t.layout, table.mesh());
    identity =
        std::to_string(t.file) + "@" + std::to_string(t.fileOffset) + " " +
        std::string(t.layout) + " " +
        std::to_string(table.mesh().coordinate(transport.rank(), layout.shardingAxes()));
  }
  if (identity.empty())
    return makeError("only a weight can be packed at load");
  identity += " " + call.packedKey();
  const void *raw = address[static_cast<size_t>(buffer)];
  auto block = store->packed(identity, call.sizes().packed,
                             [&](void *to) { return call.pack(raw, to); });
  if (!block)
    return tl::unexpected(block.error());
  if (std::find(packedBlocks.begin(), packedBlocks.end(), *block) == packedBlocks.end()) {
    packedBlocks.push_back(*block);
    packedTotal += call.sizes().packed;
  }
  return WeightStore::address(**block);
}
