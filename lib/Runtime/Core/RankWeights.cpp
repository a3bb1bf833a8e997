//===- RankWeights.cpp - The weights that one rank owns -------------------===//
#include "ExecutorOp.h"

#include "partita/Base/Layout/Layout.h"

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

static constexpr uintptr_t pageSize = 4096;

/// Advice about all pages that hold some of the bytes.
static void advise(const void *data, uint64_t bytes, int how) {
  auto first = reinterpret_cast<uintptr_t>(data) / pageSize * pageSize;
  auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  if (bytes != 0)
    ::madvise(reinterpret_cast<void *>(first), end - first, how);
}

void runtime::populate(void *data, uint64_t bytes) {
  advise(data, bytes, MADV_POPULATE_WRITE);
}

Expected<void> Executor::addWeight(size_t index) {
  TensorView t = program->table().tensor(index);
  options.progress->step(RankProgress::Loading, 0);
  if (t.file >= store->numFiles())
    return makeError("the bundle has no weight file " + std::to_string(t.file));
  auto bytes = store->file(t.file);
  if (t.fileOffset > bytes.size() || t.fileBytes > bytes.size() - t.fileOffset)
    return makeError("it leaves its file of " + std::to_string(bytes.size()) + " bytes");
  Weight weight;
  weight.tensor = index;
  weight.offset = program->table().buffers()[t.buffer].offset;
  weight.file = bytes.data() + t.fileOffset;
  weight.data = address[t.buffer];
  auto run = slices[index].contiguous();
  if (run &&
      reinterpret_cast<uintptr_t>(weight.file + *run) % PARTITA_BUFFER_ALIGNMENT == 0) {
    weight.inPlace = true;
    weight.data = const_cast<std::byte *>(weight.file + *run);
  }
  owned.push_back(weight);
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
    if (buffers[b].space != PARTITA_SPACE_WEIGHT)
      continue;
    auto next = std::upper_bound(
        owned.begin(), owned.end(), buffers[b].offset,
        [](uint64_t offset, const Weight &weight) { return offset < weight.offset; });
    if (next == owned.begin())
      continue;
    --next;
    weightOf[b] = static_cast<int>(next - owned.begin());
    address[b] = next->data + (buffers[b].offset - next->offset);
  }
}

/// Brings the elements to `data`. The pages of the file that were read for a copy leave
/// this process again, a few at a time.
void Executor::fetch(const Weight &weight) {
  if (weight.inPlace)
    return advise(weight.data, slices[weight.tensor].localBytes(), MADV_POPULATE_READ);
  constexpr uint64_t chunk = uint64_t(1) << 20;
  uint64_t kept = 0; // where the pages begin that are still here
  slices[weight.tensor].forEachRun([&](uint64_t from, uint64_t to, uint64_t bytes) {
    std::memcpy(weight.data + to, weight.file + from, bytes);
    if (from + bytes < kept + chunk)
      return;
    advise(weight.file + kept, from + bytes - kept, MADV_DONTNEED);
    kept = from + bytes;
  });
  uint64_t all = program->table().tensor(weight.tensor).fileBytes;
  advise(weight.file + kept, all - kept, MADV_DONTNEED);
}

/// Gives the pages back: a copy is gone, a mapped file merely leaves this process.
void Executor::drop(const Weight &weight) {
  uint64_t bytes = slices[weight.tensor].localBytes();
  if (weight.inPlace)
    return advise(weight.data, bytes, MADV_DONTNEED);
  // Its neighbours in the region stay.
  auto first = (reinterpret_cast<uintptr_t>(weight.data) + pageSize - 1) / pageSize;
  auto end = (reinterpret_cast<uintptr_t>(weight.data) + bytes) / pageSize;
  if (first < end)
    ::madvise(reinterpret_cast<void *>(first * pageSize), (end - first) * pageSize,
              MADV_DONTNEED);
}

/// Fetches the weights that some task reads as they are stored, so that the first request
/// does not wait for them.
void Executor::fetchRead() {
  std::vector<bool> read(owned.size(), false);
  for (const Op &op : ops)
    for (size_t i = 0; i < op.operands.size(); ++i) {
      int64_t buffer = op.operands[i];
      if (buffer < 0 || static_cast<int>(i) == op.packedOperand)
        continue;
      if (int weight = weightOf[static_cast<size_t>(buffer)]; weight >= 0)
        read[static_cast<size_t>(weight)] = true;
    }
  for (size_t w = 0; w < owned.size(); ++w) {
    options.progress->step(RankProgress::Loading, 0);
    if (read[w])
      fetch(owned[w]);
    else // the system reads ahead: a neighbour may have brought pages of this one
      advise(owned[w].file, program->table().tensor(owned[w].tensor).fileBytes,
             MADV_DONTNEED);
  }
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
  const Weight &weight =
      owned[static_cast<size_t>(weightOf[static_cast<size_t>(buffer)])];
  auto block = store->packed(identity, call.sizes().packed, [&](void *to) {
    if (!weight.inPlace)
      fetch(weight);
    auto ok = call.pack(weight.data, to);
    drop(weight);
    return ok;
  });
  if (!block)
    return tl::unexpected(block.error());
  if (std::find(packedBlocks.begin(), packedBlocks.end(), *block) == packedBlocks.end()) {
    packedBlocks.push_back(*block);
    packedTotal += call.sizes().packed;
  }
  return WeightStore::address(**block);
}
