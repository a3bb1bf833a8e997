//===- ExecutorTest.cpp - What ranks prepare, and share -------------------===//
#include "FarDevice.h"

#include "partita/Base/Scalar.h"
#include "partita/Runtime/Executor.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <functional>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

namespace {
constexpr int64_t width = 64;

float weightAt(int64_t i) { return static_cast<float>((i * 37 + 11) % 17) / 64 - 0.1f; }

/// A row of products x ← x·w on one rank: one product per entry of `rows`, with so many
/// rows of the input, and weight `weightOf[i]`.
struct Chain {
  std::vector<int64_t> rows, weightOf;
  std::string path;
  std::shared_ptr<const Stage> stage;
  std::shared_ptr<WeightStore> store;
  std::unique_ptr<LocalTeam> team = std::make_unique<LocalTeam>(1);
  std::unique_ptr<Transport> transport = team->connect(0);
  RankProgress progress;
  std::unique_ptr<Executor> executor;

  Chain(std::vector<int64_t> rows, std::vector<int64_t> weightOf,
        Device &device = cpuDevice())
      : rows(std::move(rows)), weightOf(std::move(weightOf)) {
    writeWeights();
    std::string blob = table();
    auto read = TaskTable::read(std::as_bytes(std::span(blob)));
    REQUIRE(read);
    stage = Stage::fromParts(std::move(*read), {});
    auto file = InputFile::open(path);
    REQUIRE(file);
    store = std::make_shared<WeightStore>(
        std::vector<std::shared_ptr<const InputFile>>{*file}, *engineOf("cpu"));
    auto made = Executor::create(stage, store, *transport,
                                 {1, false, &progress, nullptr, &device});
    if (!made)
      FAIL(made.error().message);
    executor = std::move(*made);
  }
  ~Chain() { std::filesystem::remove(path); }

  int64_t numWeights() const {
    return *std::max_element(weightOf.begin(), weightOf.end()) + 1;
  }
  void writeWeights() {
    char name[] = "/tmp/partita-test-XXXXXX";
    ::close(::mkstemp(name));
    path = name;
    std::vector<float> values(static_cast<size_t>(numWeights() * width * width));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = weightAt(static_cast<int64_t>(i));
    REQUIRE(writeFile(
        path, {reinterpret_cast<const char *>(values.data()), values.size() * 4}));
  }

  std::string table() const {
    Mesh mesh = *Mesh::parse("");
    TaskTableBuilder builder(mesh);
    int64_t most = *std::max_element(rows.begin(), rows.end());
    auto activation = static_cast<uint64_t>(most * width * 4);
    uint64_t square = width * width * 4, scratch = 1 << 20;
    uint32_t x[] = {builder.addBuffer(Space::Arena, 0, activation),
                    builder.addBuffer(Space::Arena, activation, activation)};
    uint32_t room = builder.addBuffer(Space::Arena, 2 * activation, scratch);
    builder.setMemory(2 * activation + scratch,
                      static_cast<uint64_t>(numWeights()) * square, 0);
    Layout image = Layout::replicated({most, width});
    builder.addTensor({Role::Input, DType::F32, "x", image, x[0]});
    builder.addTensor({Role::Output, DType::F32, "y", image, x[rows.size() % 2]});
    std::vector<uint32_t> weights;
    for (int64_t w = 0; w < numWeights(); ++w) {
      uint64_t at = static_cast<uint64_t>(w) * square;
      weights.push_back(builder.addBuffer(Space::Weight, at, square));
      builder.addTensor({Role::Weight, DType::F32, "w" + std::to_string(w),
                         Layout::replicated({width, width}), weights.back(), 0, at,
                         square});
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      task::MatMul p;
      p.m = rows[i], p.n = p.k = width;
      p.a_row = p.b_row = p.c_row = width, p.a_col = p.b_col = 1;
      p.b_packed = 1;
      builder.addTask({.source = "fc" + std::to_string(i),
                       .operands = {x[i % 2], weights[static_cast<size_t>(weightOf[i])],
                                    x[1 - i % 2], -1, room},
                       .params = p});
    }
    return builder.finish();
  }

  /// The largest difference from plain loops, of the rows that all products have.
  double run() {
    int64_t least = *std::min_element(rows.begin(), rows.end());
    int64_t most = *std::max_element(rows.begin(), rows.end());
    std::vector<float> x(static_cast<size_t>(most * width)), y = x;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 7) / 8;
    std::vector<double> now(x.begin(), x.end());
    REQUIRE(executor->setInput(0, reinterpret_cast<const std::byte *>(x.data())));
    REQUIRE(executor->run());
    REQUIRE(executor->getOutput(1, reinterpret_cast<std::byte *>(y.data())));
    for (int64_t w : weightOf) {
      std::vector<double> next(now.size(), 0.0);
      for (int64_t m = 0; m < least; ++m)
        for (int64_t k = 0; k < width; ++k)
          for (int64_t n = 0; n < width; ++n)
            next[static_cast<size_t>(m * width + n)] +=
                now[static_cast<size_t>(m * width + k)] *
                weightAt(w * width * width + k * width + n);
      now = next;
    }
    double worst = 0;
    for (int64_t i = 0; i < least * width; ++i) {
      auto at = static_cast<size_t>(i);
      worst = std::max(worst, std::fabs(now[at] - y[at]) / (1e-6 + std::fabs(now[at])));
    }
    return worst;
  }
};

Chain layers(int64_t count) {
  std::vector<int64_t> each;
  for (int64_t i = 0; i < count; ++i)
    each.push_back(i);
  return Chain(std::vector<int64_t>(static_cast<size_t>(count), 24), each);
}
} // namespace

TEST_CASE("equal layers share one prepared call, whose weights are their own") {
  Chain few = layers(12), many = layers(96);
  CHECK(few.store->calls().size() == 1);
  CHECK(many.store->calls().size() == few.store->calls().size());
  CHECK(many.executor->packedBytes() == 8 * few.executor->packedBytes());
  CHECK(few.run() < 1e-3);
  CHECK(few.run() < 1e-3); // every address is set anew
}

TEST_CASE("calls of all shapes that read one weight share its packed form") {
  Chain one({24}, {0}), several({24, 1, 256, 24, 3}, {0, 0, 0, 0, 0});
  CHECK(several.run() < 1e-3);
  CHECK(several.executor->packedBytes() == one.executor->packedBytes());
}

TEST_CASE("weights and calls on a device with memory of its own") {
  fardevice::FarDevice device;
  Chain one({24, 24, 3}, {0, 1, 0}, device);
  CHECK(one.run() < 1e-3);
  CHECK(one.run() < 1e-3);
}

/// Products of f16 are made of widened copies in scratch, whatever the CPU.
TEST_CASE("calls that take more scratch than was planned have a block of their own") {
  constexpr int64_t rows = 4, columns = 8;
  constexpr uint64_t bytes = columns * columns * 2;
  TaskTableBuilder builder(*Mesh::parse(""));
  uint32_t at[4];
  for (uint64_t i = 0; i < 4; ++i)
    at[i] = builder.addBuffer(Space::Arena, i * bytes, bytes);
  uint32_t little = builder.addBuffer(Space::Arena, 4 * bytes, 64);
  builder.setMemory(4 * bytes + 64, 0, 0);
  Layout image = Layout::replicated({rows, columns});
  builder.addTensor({Role::Input, DType::F16, "x", image, at[0]});
  builder.addTensor(
      {Role::Input, DType::F16, "w", Layout::replicated({columns, columns}), at[1]});
  builder.addTensor({Role::Output, DType::F16, "y", image, at[2]});
  builder.addTensor({Role::Output, DType::F16, "z", image, at[3]});
  task::MatMul p;
  p.dtype = static_cast<uint8_t>(DType::F16);
  p.m = rows, p.n = p.k = columns;
  p.a_row = p.b_row = p.c_row = columns, p.a_col = p.b_col = 1;
  for (auto [to, scratch] :
       {std::pair(at[2], int64_t(-1)), std::pair(at[3], int64_t(little))})
    builder.addTask(
        {.source = "fc", .operands = {at[0], at[1], to, -1, scratch}, .params = p});
  std::string blob = builder.finish();
  auto read = TaskTable::read(std::as_bytes(std::span(blob)));
  REQUIRE(read);
  LocalTeam team(1);
  auto transport = team.connect(0);
  RankProgress progress;
  auto made = Executor::create(
      Stage::fromParts(std::move(*read), {}),
      std::make_shared<WeightStore>(std::vector<std::shared_ptr<const InputFile>>(),
                                    *engineOf("cpu")),
      *transport, {1, 0, &progress});
  REQUIRE(made);
  std::vector<uint16_t> x(rows * columns), w(columns * columns), y(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = floatToHalf(static_cast<float>(i % 5));
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = floatToHalf(static_cast<float>(i % 3));
  REQUIRE((*made)->setInput(0, reinterpret_cast<const std::byte *>(x.data())));
  REQUIRE((*made)->setInput(1, reinterpret_cast<const std::byte *>(w.data())));
  REQUIRE((*made)->run());
  for (size_t output : {2, 3}) {
    REQUIRE((*made)->getOutput(output, reinterpret_cast<std::byte *>(y.data())));
    for (size_t i = 0; i < y.size(); ++i) {
      float sum = 0;
      for (size_t k = 0; k < columns; ++k)
        sum += static_cast<float>((i / columns * columns + k) % 5) *
               static_cast<float>((k * columns + i % columns) % 3);
      CHECK(halfToFloat(y[i]) == sum);
    }
  }
}

/// Rows of `x` that copies leave in `y`, which are four rows of 16 elements each.
static std::vector<float> copiedBy(const std::function<void(TaskTableBuilder &)> &tasks,
                                   size_t *numCalls = nullptr) {
  constexpr uint64_t row = 64;
  TaskTableBuilder builder(*Mesh::parse(""));
  builder.addBuffer(Space::Arena, 0, row);
  builder.addBuffer(Space::Arena, row, 4 * row);
  builder.addTensor({Role::Input, DType::F32, "x", Layout::replicated({16}), 0});
  builder.addTensor({Role::Output, DType::F32, "y", Layout::replicated({4, 16}), 1});
  builder.setMemory(5 * row, 0, 0);
  task::Fill zeros;
  zeros.count = 64;
  builder.addTask({.source = "zeros", .operands = {1}, .params = zeros});
  tasks(builder);
  std::string blob = builder.finish();
  auto read = TaskTable::read(std::as_bytes(std::span(blob)));
  REQUIRE(read);
  if (numCalls)
    *numCalls = read->numCalls();
  LocalTeam team(1);
  auto transport = team.connect(0);
  RankProgress progress;
  auto made = Executor::create(
      Stage::fromParts(std::move(*read), {}),
      std::make_shared<WeightStore>(std::vector<std::shared_ptr<const InputFile>>(),
                                    *engineOf("cpu")),
      *transport, {1, 0, &progress});
  REQUIRE(made);
  std::vector<float> x(16, 1), y(64), rows;
  REQUIRE((*made)->setInput(0, reinterpret_cast<const std::byte *>(x.data())));
  for (int request = 0; request < 2; ++request) { // the second finds all as it was
    REQUIRE((*made)->run());
    REQUIRE((*made)->getOutput(1, reinterpret_cast<std::byte *>(y.data())));
    rows = {y[0], y[16], y[32], y[48]};
  }
  return rows;
}

TEST_CASE("tasks of one call share what is prepared, but where their place matters") {
  auto copy = [](TaskTableBuilder &table, const char *source) {
    task::Copy p;
    p.count = 16;
    table.addTask(
        {.source = source, .operands = {0, 1}, .params = p, .moves = {{1, 0, 0, 64}}});
  };
  auto repeat = [](TaskTableBuilder &table, uint32_t tasks, int64_t trips) {
    task::Repeat p;
    p.tasks = tasks, p.trips = trips;
    table.addTask({.source = "loop", .params = p});
  };
  using Rows = std::vector<float>;
  size_t numCalls = 0;
  // The same move in one loop twice, and in a loop within another: each is its own.
  CHECK(copiedBy(
            [&](TaskTableBuilder &table) {
              repeat(table, 2, 2);
              copy(table, "a");
              copy(table, "b");
            },
            &numCalls) == Rows{1, 1, 0, 0});
  CHECK(numCalls == 3); // zeros, the loop, the copy
  CHECK(copiedBy(
            [&](TaskTableBuilder &table) {
              repeat(table, 3, 2);
              copy(table, "a");
              repeat(table, 1, 3);
              copy(table, "b");
            },
            &numCalls) == Rows{1, 1, 1, 0});
  CHECK(numCalls == 4);
  // Loops of one call have other tasks in them.
  CHECK(copiedBy(
            [&](TaskTableBuilder &table) {
              repeat(table, 1, 2);
              copy(table, "a");
              repeat(table, 1, 2);
              table.addTask({.source = "zeros", .operands = {1}, .params = [] {
                               task::Fill first;
                               first.count = 16;
                               return first;
                             }()});
            },
            &numCalls) == Rows{0, 1, 0, 0});
  CHECK(numCalls == 4);
}
