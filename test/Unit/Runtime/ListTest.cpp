//===- ListTest.cpp - Tasks that read lists -------------------------------===//
//
// What a mixture of experts does: rows are put in order by a list, sent to where counts
// say, and the list and the counts are what an earlier task computed.
//
//===----------------------------------------------------------------------===//
#include "FarDevice.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::runtime;

namespace {
constexpr int64_t numRanks = 3, rows = 12, inner = 2, capacity = 24;

/// Where row r of a rank goes: counts and list, by a rank's number and the request's
/// seed.
int64_t goesTo(int64_t rank, int64_t row, int64_t seed) {
  return (rank * 5 + row * row + seed) % 7 % numRanks;
}

/// buffers: seed; list of this rank's rows by where they go; all counts. What the seed -1
/// and -2 compute is wrong.
void route(void *const *buffers, const int64_t *scalars, partita_status *, int64_t,
           int64_t, int64_t) {
  int64_t seed = *static_cast<const int64_t *>(buffers[0]);
  auto *list = static_cast<int32_t *>(buffers[1]);
  auto *counts = static_cast<int64_t *>(buffers[2]);
  std::fill(counts, counts + numRanks * numRanks, 0);
  for (int64_t i = 0; i < numRanks; ++i)
    for (int64_t r = 0; r < rows; ++r)
      ++counts[i * numRanks + goesTo(i, r, seed)];
  int64_t at = 0;
  for (int64_t j = 0; j < numRanks; ++j)
    for (int64_t r = 0; r < rows; ++r)
      if (goesTo(scalars[0], r, seed) == j)
        list[at++] = static_cast<int32_t>(r);
  if (seed == -1)
    list[3] = rows;
  if (seed == -2)
    counts[4] = rows;
}

struct Program {
  Mesh mesh = *Mesh::parse("a=3");
  TaskTableBuilder table{mesh};
  uint64_t end = 0;
  uint32_t place(int64_t bytes) {
    uint64_t offset = end;
    end += (static_cast<uint64_t>(bytes) + 63) / 64 * 64;
    return table.addBuffer(Space::Io, offset, static_cast<uint64_t>(bytes));
  }

  std::shared_ptr<const Stage> stage() {
    int64_t bytes = rows * inner * 4;
    uint32_t seed = place(8), x = place(bytes), list = place(rows * 4);
    uint32_t counts = place(numRanks * numRanks * 8), ordered = place(bytes);
    uint32_t got = place(capacity * inner * 4), back = place(bytes), y = place(bytes);
    auto tensor = [&](Role role, DType type, const char *name, const char *layout,
                      uint32_t buffer) {
      table.addTensor({role, type, name, *Layout::parse(layout, mesh), buffer});
    };
    tensor(Role::Input, DType::I64, "seed", "[]", seed);
    tensor(Role::Input, DType::I32, "x", "[{36: a}, {2}]", x);
    tensor(Role::Output, DType::I32, "y", "[{36: a}, {2}]", y);
    tensor(Role::Output, DType::I32, "got", "[{72: a}, {2}]", got);
    uint32_t me = table.addRankValue({.axes = mesh.all()});
    auto read = [&](DType type, int64_t most, int64_t count) {
      RankValueSpec value{PARTITA_RANK_READ, most, 0, {}, {}, type};
      value.count = count;
      return table.addRankValue(value);
    };
    uint32_t order = read(DType::I32, 1000, rows);
    uint32_t sizes = read(DType::I64, capacity, numRanks * numRanks);
    task::Kernel kernel;
    kernel.kernel = table.addKernel("route");
    table.addTask({.source = "route",
                   .operands = {seed, list, counts},
                   .params = kernel,
                   .rankValues = {me}});
    auto i32 = static_cast<uint8_t>(DType::I32);
    task::Rows take;
    take.dtype = i32, take.count = take.extent = rows, take.inner = inner;
    task::Fill nothing;
    nothing.dtype = i32, nothing.count = capacity * inner, nothing.bits = -1;
    table.addTask({.source = "nothing", .operands = {got}, .params = nothing});
    table.addTask({.source = "order",
                   .operands = {x, ordered, list},
                   .params = take,
                   .rankValues = {order}});
    task::AllToAllV dispatch;
    dispatch.dtype = i32, dispatch.rows = rows, dispatch.to_rows = capacity;
    dispatch.inner = inner, dispatch.group = mesh.all();
    table.addTask({.source = "dispatch",
                   .operands = {ordered, got, counts},
                   .params = dispatch,
                   .rankValues = {sizes},
                   .handle = 1});
    task::Copy copy;
    copy.dtype = i32, copy.count = rows * inner;
    table.addTask({.source = "copy", .operands = {ordered, back}, .params = copy});
    task::Wait wait;
    wait.handle = 1;
    table.addTask({.source = "dispatch", .operands = {ordered, got}, .params = wait});
    take.put = true;
    table.addTask({.source = "restore",
                   .operands = {back, y, list},
                   .params = take,
                   .rankValues = {order}});
    table.setMemory(0, 0, 0);
    table.setRegion(Space::Io, end);
    std::string blob = table.finish();
    auto made = TaskTable::read(std::as_bytes(std::span(blob)));
    if (!made)
      FAIL(made.error().message);
    return Stage::fromParts(std::move(*made), {route});
  }
};

struct Outcome {
  std::vector<int32_t> y = std::vector<int32_t>(numRanks * rows * inner),
                       got = std::vector<int32_t>(numRanks * capacity * inner);
  std::vector<std::string> errors;
};

Outcome runOn(Device &device, std::vector<int64_t> seeds) {
  auto stage = Program().stage();
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("plain"));
  LocalTeam team(numRanks);
  Outcome outcome;
  std::vector<int32_t> x(numRanks * rows * inner);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<int32_t>(i);
  std::mutex lock;
  auto bytes = [](auto &value) { return reinterpret_cast<std::byte *>(&value); };
  auto rankMain = [&](int rank) {
    auto transport = team.connect(rank);
    RankProgress progress;
    auto made = Executor::create(stage, store, *transport,
                                 {1, false, &progress, nullptr, &device});
    Expected<void> ok;
    if (!made)
      ok = tl::unexpected(made.error());
    for (size_t i = 0; i < seeds.size() && ok; ++i) {
      ok = (*made)->setInput(0, bytes(seeds[i]));
      if (ok)
        ok = (*made)->setInput(1, bytes(x[0]));
      if (ok)
        ok = (*made)->run();
    }
    std::lock_guard guard(lock);
    if (ok)
      ok = (*made)->getOutput(2, bytes(outcome.y[0]));
    if (ok)
      ok = (*made)->getOutput(3, bytes(outcome.got[0]));
    if (!ok)
      outcome.errors.push_back(ok.error().message);
  };
  std::vector<std::thread> ranks;
  for (int r = 0; r < numRanks; ++r)
    ranks.emplace_back(rankMain, r);
  for (std::thread &rank : ranks)
    rank.join();
  return outcome;
}
} // namespace

TEST_CASE("rows go where a list and counts say that an earlier task computed") {
  fardevice::FarDevice far;
  for (Device *device : {&cpuDevice(), static_cast<Device *>(&far)})
    for (int64_t seed : {0, 1, 2, 3}) {
      Outcome outcome = runOn(*device, {5, seed});
      INFO("seed " << seed << ": " << (outcome.errors.empty() ? "" : outcome.errors[0]));
      REQUIRE(outcome.errors.empty());
      std::vector<int32_t> x, got;
      for (int32_t i = 0; i < numRanks * rows * inner; ++i)
        x.push_back(i);
      CHECK(outcome.y == x); // ordered and put back
      for (int64_t to = 0; to < numRanks; ++to) {
        for (int64_t r = 0; r < numRanks * rows; ++r)
          for (int64_t k = 0; k < inner && goesTo(r / rows, r % rows, seed) == to; ++k)
            got.push_back(static_cast<int32_t>(r * inner + k));
        got.resize(static_cast<size_t>((to + 1) * capacity * inner), -1);
      }
      CHECK(outcome.got == got);
    }
}

TEST_CASE("a list or counts that cannot be are an error of every rank") {
  fardevice::FarDevice far;
  for (Device *device : {&cpuDevice(), static_cast<Device *>(&far)}) {
    Outcome list = runOn(*device, {0, -1}), counts = runOn(*device, {0, -2});
    REQUIRE(list.errors.size() == numRanks);
    REQUIRE(counts.errors.size() == numRanks);
    for (const std::string &error : list.errors)
      CHECK(error.ends_with(
          "node 'order' (rows): it reads the value 12, expected 0 to 11"));
    for (const std::string &error : counts.errors)
      CHECK(error.find("node 'dispatch' (all-to-all-v): member 1 sends ") !=
            std::string::npos);
  }
}
