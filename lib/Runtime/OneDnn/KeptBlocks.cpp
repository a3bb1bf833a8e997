//===- KeptBlocks.cpp - Memory that an engine takes again and again -------===//
#include "KeptBlocks.h"

#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>

using namespace partita::onednn;

namespace {

constexpr size_t maxPerThread = 128, tableSize = 1 << 13;

/// A kept block. Orphan: in use, and its thread has ended.
enum State : uint32_t { Free, Used, Orphan };

/// Entries stay where they are, so that they can be searched without a lock: a block that
/// somebody holds cannot leave the table meanwhile.
struct Entry {
  std::atomic<void *> block{nullptr};
  std::atomic<uint32_t> state{Free};
  kept::Family family{};
  uint32_t alignment = 0;
  uint64_t bytes = 0;
};

Entry table[tableSize];
/// In place of a block that left: searches go on behind it.
void *const gone = reinterpret_cast<void *>(1);
/// Of insertions and removals, which happen at load and at the end of threads.
std::mutex lock;
size_t occupied = 0; ///< entries that are not as they were made
std::atomic<size_t> live{0};

kept::Source sources[2];
std::atomic<int> parallelScopes{0};

size_t placeOf(const void *block) {
  return static_cast<size_t>(reinterpret_cast<uintptr_t>(block) * 0x9e3779b97f4a7c15 >>
                             51);
}
static_assert(tableSize == size_t(1) << (64 - 51));

Entry *find(const void *block) {
  if (live.load(std::memory_order_relaxed) == 0 || !block)
    return nullptr;
  for (size_t at = placeOf(block);; at = (at + 1) % tableSize) {
    void *there = table[at].block.load(std::memory_order_acquire);
    if (there == block)
      return &table[at];
    if (!there)
      return nullptr;
  }
}

/// With the lock held.
void remove(Entry &entry) {
  entry.block.store(gone, std::memory_order_relaxed);
  live.fetch_sub(1);
}

Entry *insert(void *block, kept::Family family, size_t alignment, size_t bytes) {
  std::lock_guard guard(lock);
  size_t at = placeOf(block);
  while (void *there = table[at].block.load(std::memory_order_relaxed)) {
    if (there == gone)
      break;
    at = (at + 1) % tableSize;
  }
  Entry &entry = table[at];
  bool fresh = !entry.block.load(std::memory_order_relaxed);
  // Searches end at an entry that was never used.
  if (fresh && occupied == tableSize * 3 / 4)
    return nullptr;
  occupied += fresh;
  entry.state.store(Used, std::memory_order_relaxed);
  entry.family = family;
  entry.alignment = static_cast<uint32_t>(alignment);
  entry.bytes = bytes;
  entry.block.store(block, std::memory_order_release);
  live.fetch_add(1);
  return &entry;
}

/// The blocks of one thread.
struct Owner {
  Entry *entries[maxPerThread];
  /// What each entry held when it came here: after `forget` it may hold another's block.
  void *blocks[maxPerThread];
  size_t size = 0, victim = 0;
  unsigned depth = 0;  ///< scopes of this thread
  bool hadOne = false; ///< so it is no worker

  bool mine(size_t i) const {
    return entries[i]->block.load(std::memory_order_relaxed) == blocks[i];
  }
  /// Makes room by freeing one that nobody uses, in turn. False: all are in use.
  bool makeRoom() {
    for (size_t tried = 0; tried < size; ++tried) {
      size_t at = victim++ % size;
      uint32_t free = Free;
      if (mine(at) && !entries[at]->state.compare_exchange_strong(free, Orphan))
        continue;
      if (mine(at))
        discard(*entries[at], blocks[at]);
      --size;
      entries[at] = entries[size];
      blocks[at] = blocks[size];
      return true;
    }
    return false;
  }
  ~Owner() {
    for (size_t i = 0; i < size; ++i)
      if (mine(i) && entries[i]->state.exchange(Orphan) == Free)
        discard(*entries[i], blocks[i]);
    size = 0;
  }

private:
  static void discard(Entry &entry, void *block) {
    kept::Family family = entry.family;
    {
      std::lock_guard guard(lock);
      remove(entry);
    }
    sources[family].release(block);
  }
};

Owner &owner() {
  static thread_local Owner own;
  return own;
}

/// Steps of a quarter: blocks of one size serve requests of about that size, and what a
/// call once got it gets again, whatever other calls do.
size_t rounded(size_t bytes) {
  if (bytes <= 32)
    return 32;
  size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

} // namespace

void kept::setSource(Family family, Source source) { sources[family] = source; }

void *kept::take(Family family, size_t alignment, size_t bytes) {
  Owner &own = owner();
  if (own.depth == 0 &&
      (own.hadOne || parallelScopes.load(std::memory_order_relaxed) == 0))
    return nullptr;
  if (bytes > SIZE_MAX / 2)
    return nullptr;
  bytes = rounded(bytes);
  for (size_t i = 0; i < own.size; ++i) {
    Entry &entry = *own.entries[i];
    uint32_t free = Free;
    if (entry.bytes == bytes && entry.alignment == alignment && entry.family == family &&
        own.mine(i) && entry.state.compare_exchange_strong(free, Used))
      return own.blocks[i];
  }
  if (own.size == maxPerThread && !own.makeRoom())
    return nullptr;
  void *block = sources[family].allocate(alignment, bytes);
  if (!block)
    return nullptr;
  forget(block);
  if (Entry *entry = insert(block, family, alignment, bytes)) {
    own.entries[own.size] = entry;
    own.blocks[own.size++] = block;
  }
  return block;
}

bool kept::give(void *block) {
  Entry *entry = find(block);
  if (!entry)
    return false;
  uint32_t used = Used;
  if (entry->state.compare_exchange_strong(used, Free, std::memory_order_release))
    return true;
  forget(block);
  return false;
}

void kept::forget(void *block) {
  Entry *entry = find(block);
  if (!entry)
    return;
  std::lock_guard guard(lock);
  remove(*entry);
}

kept::Scope::Scope(bool parallel) : parallel(parallel) {
  Owner &own = owner();
  ++own.depth;
  own.hadOne = true;
  if (parallel)
    parallelScopes.fetch_add(1);
}

kept::Scope::~Scope() {
  --owner().depth;
  if (parallel)
    parallelScopes.fetch_sub(1);
}
