//===- RankWeights.cpp - The weights that one rank owns -------------------===//
#include "ExecutorOp.h"

#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <sys/mman.h>

// Since Linux 5.14, but not in every C library's header.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

using namespace partita;
using namespace partita::runtime;

static constexpr uintptr_t pageSize = 4096;
/// Of a weight of which a request touches less, not all pages are fetched ahead: a row
/// may bring a page or more, so that more of the weight is mapped than touched.
static constexpr double lookedUpShare = 1.0 / 16;

/// Advice about all pages that hold some of the bytes.
static void advise(const void *data, uint64_t bytes, int how) {
  auto first = reinterpret_cast<uintptr_t>(data) / pageSize * pageSize;
  auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  if (bytes != 0)
    ::madvise(reinterpret_cast<void *>(first), end - first, how);
}

Expected<void> Executor::checkFile(const TensorView &t) const {
  if (t.file >= store->numFiles())
    return makeError("the bundle has no weight file " + std::to_string(t.file));
  uint64_t size = store->file(t.file).size();
  if (t.fileOffset > size || t.fileBytes > size - t.fileOffset)
    return makeError("it leaves its file of " + std::to_string(size) + " bytes");
  return {};
}

Expected<void> Executor::addWeight(size_t index) {
  const TensorView &t = program->table().tensor(index);
  options.progress->step(RankProgress::Loading, 0);
  if (auto ok = checkFile(t); !ok)
    return ok;
  Weight weight{index, program->table().buffers()[t.buffer].offset, address[t.buffer]};
  weight.identity = identityOf(t);
  auto run = slices[index].contiguous();
  // The host's pages are no memory of another device.
  if (device.isHost() && run && (t.fileOffset + *run) % PARTITA_BUFFER_ALIGNMENT == 0) {
    auto mapping = store->mapped(t.file, t.fileOffset + *run, slices[index].localBytes());
    if (!mapping)
      return tl::unexpected(mapping.error());
    weight.mapping = *mapping;
  }
  weight.stored = &options.memory->weight(
      weight.identity, regions[static_cast<size_t>(Space::Weight)], weight.copy);
  weight.copy = weight.stored->place;
  owned.push_back(std::move(weight));
  return {};
}

/// A task may read part of a weight: every buffer of the region goes with the weight in
/// which it lies.
void Executor::placeWeights() {
  auto buffers = program->table().buffers();
  auto bytesOf = [&](const Weight &weight) { return slices[weight.tensor].localBytes(); };
  std::sort(owned.begin(), owned.end(), [&](const Weight &a, const Weight &b) {
    return std::pair(a.offset, bytesOf(a)) < std::pair(b.offset, bytesOf(b));
  });
  weightOf.assign(buffers.size(), -1);
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].space != Space::Weight)
      continue;
    auto next = std::upper_bound(
        owned.begin(), owned.end(), buffers[b].offset,
        [](uint64_t offset, const Weight &weight) { return offset < weight.offset; });
    if (next == owned.begin())
      continue;
    --next;
    weightOf[b] = static_cast<int>(next - owned.begin());
    // What is mapped is only ever read.
    address[b] =
        const_cast<std::byte *>(next->data()) + (buffers[b].offset - next->offset);
  }
}

/// The rank's slice of a tensor, from its file to a place of the device.
Expected<void> Executor::fetch(size_t tensor, std::byte *into) {
  if (device.isHost())
    return readSlice(tensor, into);
  std::vector<std::byte> here(slices[tensor].localBytes());
  if (auto ok = readSlice(tensor, here.data()); !ok)
    return ok;
  if (!device.copy(*work, into, here.data(), here.size()))
    return makeError("the device does not take it");
  return {};
}

/// Reads the rank's slice of a tensor from its file. Long runs are read into place; short
/// ones lie in a window of the file, which a strided slice passes over.
Expected<void> Executor::readSlice(size_t tensor, std::byte *into) const {
  constexpr uint64_t longRun = 4096, windowBytes = 65536;
  const TensorView &t = program->table().tensor(tensor);
  const InputFile &file = store->file(t.file);
  std::vector<std::byte> window; // made where there is a short run
  uint64_t begin = 0, end = 0;   // of what is in the window
  Expected<void> ok;
  auto visit = [&](uint64_t from, uint64_t to, uint64_t bytes) {
    if (ok && bytes >= longRun) {
      ok = file.read(t.fileOffset + from, {into + to, bytes});
      return;
    }
    if (ok && (from < begin || from + bytes > end)) {
      begin = from;
      end = std::min(from + windowBytes, t.fileBytes);
      window.resize(std::max<size_t>(window.size(), end - begin));
      ok = file.read(t.fileOffset + begin, {window.data(), end - begin});
    }
    if (ok)
      std::memcpy(into + to, window.data() + (from - begin), bytes);
  };
  slices[tensor].forEachRun(visit);
  return ok;
}

/// Checks the blocks of the file that hold some of a mapped weight; `aside`: without
/// touching the mapping.
Expected<void> Executor::checkMapped(const Weight &weight, bool aside) const {
  const TensorView &t = program->table().tensor(weight.tensor);
  uint64_t bytes = slices[weight.tensor].localBytes();
  uint64_t offset = t.fileOffset + *slices[weight.tensor].contiguous();
  return store->file(t.file).check(offset, bytes, aside ? nullptr : weight.data());
}

/// Gives the pages of the copy back; its neighbours in the region stay.
void Executor::drop(const Weight &weight) {
  uint64_t bytes = slices[weight.tensor].localBytes();
  auto first = (reinterpret_cast<uintptr_t>(weight.copy) + pageSize - 1) / pageSize;
  auto end = (reinterpret_cast<uintptr_t>(weight.copy) + bytes) / pageSize;
  if (first < end)
    ::madvise(reinterpret_cast<void *>(first * pageSize), (end - first) * pageSize,
              MADV_DONTNEED);
}

/// The most bytes of one operand that a run of the task touches.
static double mostTouched(const TaskView &task) {
  auto *kernel = std::get_if<task::Kernel>(&task.params);
  return kernel && kernel->bytes > 0 ? kernel->bytes
                                     : std::numeric_limits<double>::infinity();
}

/// Fetches the weights that some task reads as they are stored, so that the first request
/// does not wait for them. Of the others no mapping is left. Of a table of which a
/// request looks up a few rows, those pages are mapped that it needs: it may be the
/// largest weight of all, and the file is there for the next rows.
Expected<void> Executor::fetchRead() {
  std::vector<double> touched(owned.size(), 0);
  for (const Op &op : ops) {
    const TaskView task = program->table().task(op.index);
    for (size_t i = 0; i < task.operands.size(); ++i) {
      int32_t buffer = task.operands[i];
      if (buffer < 0 || static_cast<int>(i) == op.packedOperand)
        continue;
      if (int weight = weightOf[static_cast<size_t>(buffer)]; weight >= 0)
        touched[static_cast<size_t>(weight)] += op.uses * mostTouched(task);
    }
  }
  for (size_t w = 0; w < owned.size(); ++w) {
    Weight &weight = owned[w];
    options.progress->step(RankProgress::Loading, 0);
    if (options.stop.isRaised())
      return makeError("cancelled");
    uint64_t bytes = slices[weight.tensor].localBytes();
    if (touched[w] == 0 && !options.findNan) {
      weight.mapping.reset();
    } else if (weight.mapping) {
      bool isTable = touched[w] < lookedUpShare * static_cast<double>(bytes);
      advise(weight.data(), bytes, isTable ? MADV_RANDOM : MADV_POPULATE_READ);
      // A table's pages are not brought into the mapping by checking them.
      if (auto ok = checkMapped(weight, isTable); !ok)
        return makeError("rank " + std::to_string(transport.rank()) + ", weight '" +
                         std::string(program->table().tensor(weight.tensor).name) +
                         "': " + ok.error().message);
    } else if (!weight.stored->isFetched) {
      if (auto ok = fetch(weight.tensor, weight.copy); !ok)
        return makeError("rank " + std::to_string(transport.rank()) + ", weight '" +
                         std::string(program->table().tensor(weight.tensor).name) +
                         "': " + ok.error().message);
      weight.stored->isFetched = true;
    }
  }
  return {};
}

/// What this rank's slice of a weight holds, as one text for all ranks of a process that
/// hold the same.
std::string Executor::identityOf(const TensorView &t) const {
  const TaskTable &table = program->table();
  const Layout &layout = table.layoutOf(t);
  return std::to_string(t.file) + "@" + std::to_string(t.fileOffset) + " " +
         layout.str(table.mesh()) + " " +
         std::to_string(table.mesh().coordinate(meshPlace, layout.shardingAxes()));
}

/// The weight that the operand is, all of the rank's slice of it; null if it is none.
const Executor::Weight *Executor::weightAt(const TaskView &task, size_t operand) const {
  auto buffer = static_cast<size_t>(task.operands[operand]);
  int index = task.operands[operand] < 0 ? -1 : weightOf[buffer];
  if (index < 0)
    return nullptr;
  const Weight &weight = owned[static_cast<size_t>(index)];
  return program->table().tensor(weight.tensor).buffer == buffer ? &weight : nullptr;
}

/// The packed form of the weight operand. Ranks of one process that hold the same slice
/// of the same weight share it.
Expected<std::shared_ptr<engine::Call::Weight>>
Executor::packWeight(const engine::Call &call, const Weight &weight) {
  auto &known = packedWeights[{&weight, &call}];
  if (known)
    return known;
  std::string identity = weight.identity + " " + call.form().stored + call.form().packed;
  auto block = store->packed(identity, call.sizes().packed, [&](void *to) {
    // Into the region, mapped or not: a mapping would bring more than this weight.
    std::vector<std::byte> apart(device.isHost() ? 0
                                                 : slices[weight.tensor].localBytes());
    // Another entry may have it there, and go on reading it.
    bool isThere = device.isHost() && weight.stored->isFetched;
    std::byte *stored = device.isHost() ? weight.copy : apart.data();
    auto ok = isThere ? Expected<void>() : readSlice(weight.tensor, stored);
    if (ok)
      ok = call.pack(stored, to);
    if (device.isHost() && !isThere)
      drop(weight);
    return ok;
  });
  if (!block)
    return tl::unexpected(block.error());
  if (packedBlocks.insert(*block).second)
    packedTotal += call.sizes().packed;
  auto described = call.describe(block->get());
  if (!described)
    return tl::unexpected(described.error());
  known = std::move(*described);
  return known;
}
