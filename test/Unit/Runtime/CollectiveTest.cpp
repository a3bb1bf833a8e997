//===- CollectiveTest.cpp - Collectives between threads -------------------===//
#include "CollectiveCases.h"

#include "partita/Base/Layout/Reshard.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

using namespace partita;
using namespace partita::runtime;

/// Runs fn(transport) on a thread per rank; gives the bytes that threads beside them, of
/// which there are `helpers`, have received.
template <typename Fn> static uint64_t onRanks(int ranks, Fn fn, int helpers = 0) {
  LocalTeam team(ranks, helpers);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { fn(*team.connect(r)); });
  for (std::thread &thread : threads)
    thread.join();
  return team.connect(0)->movedMeanwhile();
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

TEST_CASE("buckets give the bits of their items alone") {
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    auto cases = collectives::casesFor(mesh);
    TaskTable table = collectives::tableOf(mesh, cases);
    std::atomic<int> wrong{0};
    onRanks(static_cast<int>(mesh.numRanks()), [&](Transport &transport) {
      wrong += collectives::runBuckets(transport, mesh, cases, table);
    });
    INFO(text);
    CHECK(wrong == 0);
  }
}

// PARTITA_TEST_FLIGHTS: how many schedules.
TEST_CASE("fifty collectives in flight, in random orders") {
  const char *wanted = std::getenv("PARTITA_TEST_FLIGHTS");
  int count = wanted ? std::atoi(wanted) : 100, wrong = 0, number = 0;
  for (const char *text : collectives::flightMeshes) {
    Mesh mesh = *Mesh::parse(text);
    auto cases = collectives::casesFor(mesh);
    auto meshes = static_cast<int>(std::size(collectives::flightMeshes));
    for (int i = number++; i < count; i += meshes) {
      auto seed = static_cast<uint64_t>(i);
      collectives::Flights flights(mesh, cases, seed);
      std::atomic<int> bad{0};
      onRanks(static_cast<int>(mesh.numRanks()), [&](Transport &transport) {
        bad += collectives::runFlights(transport, mesh, flights, seed);
      });
      INFO(text << ", seed " << seed);
      CHECK(bad == 0);
      wrong += bad != 0;
    }
  }
  std::printf("local schedules of %zu calls: %d, %d wrong\n", collectives::numFlightCalls,
              count, wrong);
}

TEST_CASE("all-to-alls of as many rows as random counts say") {
  int calls = 0;
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    for (uint64_t seed = 0; seed < 50; ++seed, ++calls) {
      std::atomic<int> wrong{0};
      onRanks(static_cast<int>(mesh.numRanks()), [&](Transport &transport) {
        wrong += collectives::runRagged(transport, mesh, seed);
      });
      INFO(text << ", seed " << seed);
      CHECK(wrong == 0);
    }
  }
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
      p.before = builder.addLayout(*Layout::parse(before, mesh));
      p.after = builder.addLayout(*Layout::parse(after, mesh));
      builder.addTask({.operands = {x, y}, .params = p});
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

TEST_CASE("a halo fetches windows from any layout, corners and partial values too") {
  Mesh mesh = *Mesh::parse("a=2,b=3");
  struct {
    const char *before, *positions;
    std::vector<HaloWindow> windows;
  } const cases[] = {
      {"[{13/14: a}, {9: b}, {2}]",
       "[{13/14: a}, {9: b}, {2}]",
       {{0, 1, 3, 1}, {1, 1, 5, 2}}},
      {"[{13}, {9}, {2}]", "[{7/12: a, b}, {9}, {2}]", {{0, 2, 3, 1}}},
      {"[{13}, {9: b}, {2: a}]", "[{7/12: a, b}, {9}, {2}]", {{0, 2, 3, 1}}},
      {"[{13/15: b}, {9}, {2}] partial sum {a}",
       "[{11/12: b}, {9}, {2}] partial sum {a}",
       {{0, 1, 3, 0}}},
      {"[{13}, {3}*{3: b}, {2}]", "[{13/14: a}, {3}*{3: b}, {2}]", {{0, 1, 3, 1}}},
      {"[{13}, {9}, {2}]", "[{13}, {5/6: b}, {2: a}]", {{1, 2, 2, 1}}}};
  for (const auto &c : cases) {
    Halo halo;
    halo.before = *Layout::parse(c.before, mesh);
    halo.positions = *Layout::parse(c.positions, mesh);
    halo.windows = c.windows;
    halo.fill = ReduceKind::Max;
    TaskTableBuilder builder(mesh);
    builder.setMemory(16384, 0, 0);
    uint32_t x = builder.addBuffer(Space::Arena, 0, 4096);
    uint32_t y = builder.addBuffer(Space::Arena, 4096, 8192);
    task::Halo p;
    p.dtype = static_cast<int64_t>(DType::F32);
    p.bits = task::elementBits(DType::F32, -std::numeric_limits<double>::infinity());
    p.windows = halo.windows;
    p.before = builder.addLayout(halo.before);
    p.positions = builder.addLayout(halo.positions);
    builder.addTask({.operands = {x, y}, .params = p});
    std::string blob = builder.finish();
    auto table = TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
    INFO(c.before << " to " << c.positions);
    if (!table)
      FAIL(table.error().message);
    std::vector<HostTensor> locals;
    for (int64_t r = 0; r < 6; ++r) {
      locals.push_back(HostTensor::zeros(DType::F32, halo.before.localShape()));
      for (int64_t i = 0; i < locals.back().size(); ++i)
        locals.back().data<float>()[i] = static_cast<float>(1000 * r + i);
    }
    // Ranks that hold the same elements hold the same values.
    HostTensor global = HostTensor::zeros(DType::F32, {13, 9, 2});
    for (int64_t i = 0; i < global.size(); ++i)
      global.data<float>()[i] = static_cast<float>(i);
    if (halo.before.partial.empty())
      for (int64_t r = 0; r < 6; ++r)
        locals[static_cast<size_t>(r)] = extractLocal(mesh, halo.before, r, global);
    auto expected = executeHalo(mesh, halo, locals);
    std::atomic<int> wrong{0};
    onRanks(6, [&](Transport &transport) {
      auto rank = static_cast<size_t>(transport.rank());
      std::vector<std::byte> target(expected[rank].bytes.size(), std::byte{0x5a});
      int handle = *transport.prepare(*table, table->task(0));
      if (!transport.run(handle, locals[rank].bytes.data(), target.data()) ||
          target != expected[rank].bytes)
        ++wrong;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("threads beside the ranks do their shares, while they compute too") {
  for (const char *text : collectives::flightMeshes) {
    Mesh mesh = *Mesh::parse(text);
    auto cases = collectives::casesFor(mesh);
    for (int helpers : {1, 3})
      for (uint64_t seed = 0; seed < 10; ++seed) {
        collectives::Flights flights(mesh, cases, seed);
        std::atomic<int> bad{0};
        onRanks(
            static_cast<int>(mesh.numRanks()),
            [&](Transport &transport) {
              bad += collectives::runFlights(transport, mesh, flights, seed);
            },
            helpers);
        INFO(text << ", seed " << seed << ", " << helpers << " threads");
        CHECK(bad == 0);
      }
  }
}

TEST_CASE("ranks that compute leave their shares to a thread beside them") {
  Mesh mesh = *Mesh::parse("a=2");
  auto cases = collectives::casesFor(mesh);
  TaskTable table = collectives::tableOf(mesh, cases);
  auto large = std::ranges::find_if(cases, [](const collectives::Case &c) {
    return c.what == "all-reduce" && c.sourceCount == 5000 && !c.inPlace;
  });
  REQUIRE(large != cases.end());
  std::atomic<int> wrong{0};
  const uint64_t moved = onRanks(
      2,
      [&](Transport &transport) {
        const int rank = transport.rank();
        auto source =
            collectives::sourceOf(rank, large->sourceCount, large->reduce, large->type);
        collectives::Bytes target(source.size());
        void *places[] = {source.data(), target.data()};
        const int call = *transport.prepare(
            table, table.task(static_cast<size_t>(large - cases.begin())));
        wrong += !transport.start(call, places);
        const auto expected = collectives::expectedOf(*large, mesh, rank);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (transport.movedMeanwhile() == 0 &&
               std::chrono::steady_clock::now() < deadline)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        wrong += !transport.wait(call) || target != expected;
      },
      /*helpers=*/1);
  CHECK(wrong == 0);
  CHECK(moved > 0);
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
