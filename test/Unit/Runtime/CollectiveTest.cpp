//===- CollectiveTest.cpp - Collectives between threads -------------------===//
#include "CollectiveCases.h"

#include "partita/Base/Reshard.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <mutex>
#include <thread>

using namespace partita;
using namespace partita::runtime;

/// Runs fn(transport) on a thread per rank.
template <typename Fn> static void onRanks(int ranks, Fn fn) {
  LocalTeam team(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { fn(*team.connect(r)); });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_CASE("every collective between threads gives what the Abi says") {
  size_t calls = 0, bad = 0;
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    auto cases = collectives::casesFor(mesh);
    TaskTable table = collectives::tableOf(mesh, cases);
    std::mutex lock;
    std::vector<std::string> wrong;
    onRanks(static_cast<int>(mesh.numRanks()), [&](Transport &transport) {
      auto mine = collectives::runCases(transport, mesh, cases, table);
      std::lock_guard guard(lock);
      wrong.insert(wrong.end(), mine.begin(), mine.end());
    });
    INFO(text << ": " << (wrong.empty() ? "" : wrong.front()));
    CHECK(wrong.empty());
    calls += cases.size();
    bad += wrong.size();
  }
  std::printf("local collectives: %zu calls, %zu wrong\n", calls, bad);
}

TEST_CASE("an exchange moves any layout to any other") {
  Mesh mesh = *Mesh::parse("a=2,b=3");
  const char *layouts[] = {"[{13}, {6}]", "[{13/18: a, b}, {6}]", "[{13/18: b}, {6: a}]",
                           "[{13}, {2: a}*{3: b}]", "[{13/14: a}, {6: b}]"};
  for (const char *before : layouts)
    for (const char *after : layouts) {
      TaskTableBuilder builder(mesh);
      builder.setMemory(8192, 0, 0);
      uint32_t x = builder.addBuffer(Space::Arena, 0, 4096);
      uint32_t y = builder.addBuffer(Space::Arena, 4096, 4096);
      task::Exchange p;
      p.dtype = static_cast<int64_t>(DType::I32);
      p.before = builder.addString(before);
      p.after = builder.addString(after);
      builder.addTask(
          {.kind = TaskKind::Exchange, .operands = {x, y}, .params = p.encode()});
      std::string blob = builder.finish();
      auto table = TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
      INFO(before << " to " << after);
      if (!table)
        FAIL(table.error().message);
      std::vector<int32_t> global(13 * 6);
      for (size_t i = 0; i < global.size(); ++i)
        global[i] = static_cast<int32_t>(i);
      Layout from = *Layout::parse(before, mesh), to = *Layout::parse(after, mesh);
      std::atomic<int> wrong{0};
      onRanks(6, [&](Transport &transport) {
        auto *bytes = reinterpret_cast<const std::byte *>(global.data());
        std::vector<int32_t> source(static_cast<size_t>(from.localElements()), -1);
        std::vector<int32_t> target(static_cast<size_t>(to.localElements()), 0);
        std::vector<int32_t> expected = target;
        extractLocal(mesh, from, transport.rank(), 4, bytes,
                     reinterpret_cast<std::byte *>(source.data()));
        extractLocal(mesh, to, transport.rank(), 4, bytes,
                     reinterpret_cast<std::byte *>(expected.data()));
        int handle = *transport.prepare(*table, table->task(0));
        if (!transport.run(handle, source.data(), target.data()) || target != expected)
          ++wrong;
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("an abort frees every waiting rank") {
  auto start = std::chrono::steady_clock::now();
  std::atomic<int> freed{0};
  LocalTeam team(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] { freed += !team.connect(r)->barrier(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  team.abort();
  for (std::thread &thread : threads)
    thread.join();
  CHECK(freed == 3);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("NaN survives maximum and minimum, f16 sums round once") {
  float nan = std::numeric_limits<float>::quiet_NaN();
  float a[2] = {nan, 1}, b[2] = {1, nan}, out[2];
  const void *sources[] = {a, b};
  void *target = out;
  for (ReduceKind kind : {ReduceKind::Max, ReduceKind::Min}) {
    reduceElements(DType::F32, kind, sources, 2, &target, 1, 2);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
  }
  // 2048 + 1 + 1 in f16: adding one by one stays at 2048, in f32 it is 2050.
  uint16_t big = floatToHalf(2048), one = floatToHalf(1), sum = 0;
  const void *halves[] = {&big, &one, &one};
  target = &sum;
  reduceElements(DType::F16, ReduceKind::Sum, halves, 3, &target, 1, 1);
  CHECK(halfToFloat(sum) == 2050);
}
