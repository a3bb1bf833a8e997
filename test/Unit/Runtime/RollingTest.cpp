//===- RollingTest.cpp - States whose rows stay where they are ------------===//
#include "FarDevice.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>

using namespace partita;
using namespace partita::runtime;

namespace {
/// Two slots of a state [2, 5, 20], which rolls in `capacity` rows.
constexpr int64_t outer = 2, window = 5, width = 20,
                  row = 32; ///< floats, and with padding
constexpr uint32_t slots = 2;

int64_t capacity = 0, added = 0; ///< of the kernel that runs

float &at(void *buffer, int64_t i) { return static_cast<float *>(buffer)[i]; }

/// Rows x [outer, added, width] go behind the window in c; y is all rows that there are.
void append(void *const *buffers, const int64_t *, partita_status *, int64_t, int64_t,
            int64_t) {
  int64_t rows = window + added;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t r = 0; r < added; ++r)
        at(buffers[1], (o * capacity + window + r) * row + i) =
            at(buffers[0], (o * added + r) * width + i);
      for (int64_t r = 0; r < rows; ++r)
        at(buffers[2], (o * rows + r) * width + i) =
            at(buffers[1], (o * capacity + r) * row + i);
    }
}

/// Programs of two micro-batches; tensor 0 is x, 1 is y, 2 the state.
std::shared_ptr<const Stage> stageFor(int64_t rows, int64_t places) {
  Mesh mesh = *Mesh::parse("a=1");
  TaskTableBuilder table(mesh);
  auto aligned = [](uint64_t bytes) { return (bytes + 63) / 64 * 64; };
  uint64_t xBytes = aligned(outer * static_cast<uint64_t>(rows) * width * 4),
           yBytes = aligned(outer * static_cast<uint64_t>(window + rows) * width * 4),
           all = outer * static_cast<uint64_t>(places) * row * 4;
  uint32_t x = table.addBuffer(Space::Io, 0, xBytes, xBytes, slots),
           y = table.addBuffer(Space::Io, slots * xBytes, yBytes, yBytes, slots),
           state = table.addBuffer(Space::State, 0, all, all, slots);
  uint64_t reach = all - static_cast<uint64_t>(places - window - rows) * row * 4;
  uint32_t part = table.addBuffer(Space::State, 0, reach, all, slots);
  auto layout = [](int64_t n) { return Layout::replicated({outer, n, width}); };
  table.addTensor({Role::Input, DType::F32, "x", layout(rows), x});
  table.addTensor({Role::Output, DType::F32, "y", layout(window + rows), y});
  TensorSpec spec{Role::State, DType::F32, "c", layout(window), state};
  spec.roll = {1, places, rows};
  table.addTensor(spec);
  table.setProgram({"p", slots});
  table.addSegment({"s", false, {x, state}, {y, state}});
  task::Kernel call;
  call.kernel = table.addKernel("append");
  table.addTask({.source = "append", .operands = {x, part, y}, .params = call});
  table.addSchedule({{}, {{0, 0, {}, {}}, {0, 1, {}, {}}}});
  table.setMemory(0, 0, 0);
  table.setRegion(Space::Io, slots * (xBytes + yBytes));
  table.setRegion(Space::State, slots * all);
  std::string blob = table.finish();
  auto made = TaskTable::read(std::as_bytes(std::span(blob)));
  if (!made)
    FAIL(made.error().message);
  return Stage::fromParts(std::move(*made), {append});
}

/// What a dense state would be.
struct Dense {
  std::vector<float> rows = std::vector<float>(slots * outer * window * width);

  /// y of a request with these rows, after which the state has the last of them.
  std::vector<float> append(const std::vector<float> &x, int64_t count) {
    std::vector<float> y;
    for (int64_t o = 0; o < slots * outer; ++o) {
      auto old = rows.begin() + o * window * width;
      std::vector<float> both(old, old + window * width);
      both.insert(both.end(), x.begin() + o * count * width,
                  x.begin() + (o + 1) * count * width);
      std::copy(both.end() - window * width, both.end(), old);
      y.insert(y.end(), both.begin(), both.end());
    }
    return y;
  }
};

std::byte *bytes(std::vector<float> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

/// Requests of one row and of three, by two tables with one state, in `places` rows.
void check(Device &device, int64_t places) {
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("cpu"));
  LocalTeam team(1);
  auto transport = team.connect(0);
  RankProgress progress;
  Executor::Options options{1, 0, &progress, std::make_shared<RankMemory>(), &device};
  std::map<int64_t, std::unique_ptr<Executor>> executors;
  for (int64_t rows : {1, 3}) {
    auto made = Executor::create(stageFor(rows, places), store, *transport, options);
    REQUIRE(made.has_value());
    executors[rows] = std::move(*made);
    REQUIRE(executors[rows]->resetStates().has_value());
  }
  Dense expected;
  float next = 1;
  capacity = places;
  std::mt19937 random(static_cast<unsigned>(places));
  std::vector<float> read(expected.rows.size());
  for (int request = 0; request < 60; ++request) {
    added = random() % 3 == 0 ? 3 : 1;
    Executor &executor = *executors[added];
    std::vector<float> x(static_cast<size_t>(slots * outer * added * width));
    std::iota(x.begin(), x.end(), next);
    next += 1000;
    REQUIRE(executor.setInput(0, bytes(x)).has_value());
    REQUIRE(executor.run().has_value());
    std::vector<float> wanted = expected.append(x, added), y(wanted.size());
    REQUIRE(executor.getOutput(1, bytes(y)).has_value());
    REQUIRE(y == wanted);
    // By either table, wherever the window is.
    REQUIRE(executors[4 - added]->getOutput(2, bytes(read)).has_value());
    REQUIRE(read == expected.rows);
    if (request % 17 == 5) {
      for (float &value : expected.rows)
        value = -value;
      REQUIRE(executors[4 - added]->setInput(2, bytes(expected.rows)).has_value());
    }
    if (request == 31) {
      REQUIRE(executor.resetStates().has_value());
      expected = {};
    }
  }
}
} // namespace

TEST_CASE("a state that rolls is what a dense one is, wherever its window is") {
  fardevice::FarDevice far;
  for (Device *device : {&cpuDevice(), static_cast<Device *>(&far)})
    for (int64_t places : {8, 9, 10, 13, 30}) {
      INFO(places << " rows");
      check(*device, places);
    }
}

TEST_CASE("tables that let a state roll in other numbers of rows do not go together") {
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("cpu"));
  LocalTeam team(1);
  auto transport = team.connect(0);
  RankProgress progress;
  Executor::Options options{1, 0, &progress, std::make_shared<RankMemory>()};
  REQUIRE(Executor::create(stageFor(1, 8), store, *transport, options).has_value());
  auto other = Executor::create(stageFor(1, 9), store, *transport, options);
  REQUIRE(!other.has_value());
  INFO(other.error().message);
  CHECK(other.error().message.find("rolls in 9 rows of dim 1 in one entry point") !=
        std::string::npos);
}
