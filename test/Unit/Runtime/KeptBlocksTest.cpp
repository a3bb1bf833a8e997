//===- KeptBlocksTest.cpp - Kept memory of the engine ---------------------===//
#include "../../../lib/Runtime/OneDnn/KeptBlocks.h"
#include "../../../lib/Runtime/OneDnn/EngineMemory.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <set>
#include <thread>

using namespace partita;
using namespace partita::onednn;

// The sanitizers see every block.
#if !__has_feature(address_sanitizer)
static void *take(size_t bytes, size_t alignment = 16) {
  return kept::take(kept::Malloc, alignment, bytes);
}

TEST_CASE("blocks are kept within a scope, by size, alignment and family") {
  keepEngineMemory(); // says where blocks come from
  CHECK(take(100) == nullptr);
  kept::Scope scope(false);
  void *a = take(100), *b = take(100);
  CHECK((a && b && a != b));
  std::memset(a, 1, 100);
  CHECK(kept::give(a));
  CHECK(take(97) == a); // of about that size
  CHECK(kept::give(a));
  void *larger = take(200), *aligned = take(100, 4096);
  void *other = kept::take(kept::New, 16, 100);
  CHECK(std::set<void *>{a, b, larger, aligned, other}.size() == 5);
  CHECK(reinterpret_cast<uintptr_t>(aligned) % 4096 == 0);
  for (void *block : {b, larger, aligned, other})
    CHECK(kept::give(block));
  CHECK(take(100, 4096) == aligned);
  CHECK(kept::give(aligned));
  CHECK(take(SIZE_MAX - 5) == nullptr);
  int own = 0;
  CHECK(!kept::give(&own));
  CHECK(!kept::give(nullptr));
  void *gone = take(100);
  kept::forget(gone);
  CHECK(!kept::give(gone));
  std::free(gone);
}

TEST_CASE("a thread's blocks end with it, those in use when they are freed") {
  keepEngineMemory();
  void *used = nullptr;
  std::thread([&] {
    kept::Scope scope(false);
    void *free = take(3000);
    used = take(3000);
    CHECK(kept::give(free));
  }).join();
  std::memset(used, 1, 3000);
  CHECK(!kept::give(used)); // nobody's any more
  std::free(used);
}

TEST_CASE("a block that another thread frees comes back to its owner") {
  keepEngineMemory();
  kept::Scope scope(false);
  void *block = take(5000);
  std::thread([&] { CHECK(kept::give(block)); }).join();
  CHECK(take(5000) == block);
  CHECK(kept::give(block));
}

TEST_CASE("only workers of a parallel scope keep blocks without one of their own") {
  keepEngineMemory();
  auto keeps = [](bool parallel) {
    kept::Scope scope(parallel);
    bool kept = false;
    std::thread([&] {
      void *block = take(64);
      kept = block != nullptr;
      if (block)
        kept::give(block);
    }).join();
    return kept;
  };
  CHECK(!keeps(false));
  CHECK(keeps(true));
}

TEST_CASE("a thread keeps a bounded number of blocks, and goes on where all are in use") {
  keepEngineMemory();
  std::thread([] {
    kept::Scope scope(false);
    std::set<void *> blocks;
    while (void *block = take(48))
      blocks.insert(block);
    CHECK(blocks.size() > 20);
    for (void *block : blocks)
      CHECK(kept::give(block));
    // Others of another size take their places.
    for (int i = 0; i < 1000; ++i) {
      void *block = take(static_cast<size_t>(64 + 16 * i));
      REQUIRE(block);
      CHECK(kept::give(block));
    }
  }).join();
}
#endif
