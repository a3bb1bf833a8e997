//===- DeviceTest.cpp - The executor on a device of its own memory --------===//
#include "FarDevice.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace partita;
using namespace partita::runtime;

namespace {
constexpr int64_t numRanks = 2, width = 16, depth = 4;

float &at(void *buffer, int64_t i) { return static_cast<float *>(buffer)[i]; }

/// y = scalar · x, of which the scalar is the rank's coordinate + 1.
void scaleByRank(void *const *buffers, const int64_t *scalars, partita_status *, int64_t,
                 int64_t, int64_t) {
  for (int64_t i = 0; i < width; ++i)
    at(buffers[1], i) = static_cast<float>(scalars[0] + 1) * at(buffers[0], i);
}
/// y = x + 1
void addOne(void *const *buffers, const int64_t *, partita_status *, int64_t, int64_t,
            int64_t) {
  for (int64_t i = 0; i < width; ++i)
    at(buffers[1], i) = at(buffers[0], i) + 1;
}
/// y = x + 3·y
void accumulate(void *const *buffers, const int64_t *, partita_status *, int64_t, int64_t,
                int64_t) {
  for (int64_t i = 0; i < width; ++i)
    at(buffers[1], i) = at(buffers[0], i) + 3 * at(buffers[1], i);
}
/// Looks something up by `n`, which is no index from 3 on.
void lookUp(void *const *buffers, const int64_t *, partita_status *status, int64_t,
            int64_t, int64_t) {
  auto n = *static_cast<const int32_t *>(buffers[0]);
  if (n >= 3 && status->code == PARTITA_STATUS_OK)
    *status = {PARTITA_STATUS_INDEX, n, 3, 0};
}

/// A table with a task of every sort that a device sees otherwise than a CPU.
struct Program {
  Mesh mesh = *Mesh::parse("a=2");
  TaskTableBuilder table{mesh};
  uint64_t used[numSpaces] = {};
  enum Tensor : size_t { X, N, Flag, Y, Z, Acc, Kept, Cache };

  uint32_t place(Space space, int64_t bytes) {
    uint64_t &end = used[static_cast<size_t>(space)];
    uint64_t offset = end;
    end += (static_cast<uint64_t>(bytes) + 63) / 64 * 64;
    return table.addBuffer(space, offset, static_cast<uint64_t>(bytes));
  }
  void tensor(Role role, DType type, const char *name, std::vector<int64_t> shape,
              uint32_t buffer) {
    table.addTensor({role, type, name, Layout::replicated(shape), buffer});
  }
  void kernel(const char *symbol, std::vector<int64_t> operands,
              std::vector<uint32_t> values = {}, std::vector<task::Move> moves = {},
              bool checks = false) {
    task::Kernel call;
    call.kernel = table.addKernel(symbol);
    if (checks)
      call.checks = {symbol};
    table.addTask({.source = symbol,
                   .operands = std::move(operands),
                   .params = call,
                   .rankValues = std::move(values),
                   .moves = std::move(moves)});
  }
  void copy(uint32_t from, uint32_t to, uint32_t handle) {
    task::Copy p;
    p.dtype = static_cast<uint8_t>(DType::F32), p.count = width;
    table.addTask(
        {.source = "copy", .operands = {from, to}, .params = p, .handle = handle});
  }
  void wait(uint32_t handle, std::vector<int64_t> operands) {
    task::Wait p;
    p.handle = handle;
    table.addTask({.source = "wait", .operands = std::move(operands), .params = p});
  }

  std::shared_ptr<const Stage> stage() {
    int64_t row = width * 4;
    uint32_t x = place(Space::Io, row), n = place(Space::Io, 4),
             flag = place(Space::Io, 1);
    uint32_t y = place(Space::Io, row), z = place(Space::Io, row);
    uint32_t acc = place(Space::Io, depth * row), kept = place(Space::Io, row);
    uint32_t host = place(Space::Host, row), own = place(Space::Arena, row);
    uint32_t cache = place(Space::State, depth * row);
    tensor(Role::Input, DType::F32, "x", {width}, x);
    tensor(Role::Input, DType::I32, "n", {1}, n);
    tensor(Role::Input, DType::Bool, "flag", {1}, flag);
    tensor(Role::Output, DType::F32, "y", {width}, y);
    tensor(Role::Output, DType::F32, "z", {width}, z);
    tensor(Role::Output, DType::F32, "acc", {depth, width}, acc);
    tensor(Role::Output, DType::F32, "kept", {width}, kept);
    tensor(Role::State, DType::F32, "cache", {depth, width}, cache);
    uint32_t me = table.addRankValue({.axes = mesh.all()});
    uint32_t read = table.addRankValue({PARTITA_RANK_READ, depth, 0, {}, {}, DType::I32});
    auto f32 = static_cast<uint8_t>(DType::F32);

    kernel("lookUp", {n}, {}, {}, /*checks=*/true);
    kernel("scaleByRank", {x, own}, {me});
    copy(own, host, 2); // to the host, in flight together with the reduction
    task::AllReduce sum;
    sum.dtype = f32, sum.count = width, sum.group = mesh.all();
    table.addTask({.source = "sum", .operands = {own, y}, .params = sum, .handle = 1});
    kernel("addOne", {x, z});
    wait(1, {own, y});
    wait(2, {own, host});
    kernel("accumulate", {z, own}); // after both have read it
    task::Skip skip;
    skip.tasks = 1, skip.when = true;
    table.addTask({.source = "if", .operands = {flag}, .params = skip});
    kernel("accumulate", {y, z});
    task::Fill zeros;
    zeros.dtype = f32, zeros.count = depth * width;
    table.addTask({.source = "zeros", .operands = {acc}, .params = zeros});
    task::Repeat loop;
    loop.trips = depth, loop.tasks = 2;
    table.addTask(
        {.source = "loop", .operands = {n}, .params = loop, .rankValues = {read}});
    kernel("addOne", {z, acc}, {}, {{1, 0, 0, row}});
    kernel("accumulate", {own, z});
    task::Update update;
    update.dtype = f32, update.outer = 1, update.extent = depth, update.count = 1;
    update.inner = width;
    table.addTask({.source = "append",
                   .operands = {z, cache, n},
                   .params = update,
                   .rankValues = {read}});
    copy(host, kept, 0);
    table.setMemory(used[0], used[1], 0);
    for (Space space : {Space::State, Space::Io, Space::Host})
      table.setRegion(space, used[static_cast<size_t>(space)]);
    std::string blob = table.finish();
    auto made = TaskTable::read(std::as_bytes(std::span(blob)));
    if (!made)
      FAIL(made.error().message);
    std::map<std::string, partita_kernel_fn> kernels = {{"scaleByRank", scaleByRank},
                                                        {"addOne", addOne},
                                                        {"accumulate", accumulate},
                                                        {"lookUp", lookUp}};
    std::vector<partita_kernel_fn> inOrder;
    for (size_t i = 0; i < made->numKernels(); ++i)
      inOrder.push_back(kernels.at(made->kernel(i)));
    return Stage::fromParts(std::move(*made), inOrder);
  }
};

using Values = std::vector<std::vector<float>>; ///< y, z, acc, kept, cache

/// Three requests on two ranks; what rank `shown` has after the last, or the first error.
struct Outcome {
  Values values;
  std::vector<std::string> errors;
};

Outcome runOn(Device &device, int32_t n, bool flag) {
  auto stage = Program().stage();
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("cpu"));
  LocalTeam team(numRanks);
  Outcome outcome;
  std::mutex lock;
  auto rankMain = [&](int rank) {
    auto transport = team.connect(rank);
    RankProgress progress;
    auto made = Executor::create(stage, store, *transport,
                                 {1, false, &progress, nullptr, &device});
    auto note = [&](const Expected<void> &ok) {
      std::lock_guard guard(lock);
      if (!ok)
        outcome.errors.push_back(ok.error().message);
      return ok.has_value();
    };
    if (!made) {
      note(tl::unexpected(made.error()));
      return;
    }
    Executor &executor = **made;
    note(executor.resetStates());
    std::vector<float> x(width);
    auto bytes = [](const auto &value) {
      return reinterpret_cast<const std::byte *>(&value);
    };
    for (int32_t request = 0; request < 3; ++request) {
      for (int64_t i = 0; i < width; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>(i * 3 + request);
      int32_t count = n < 3 ? (n + request) % 3 : n;
      note(executor.setInput(Program::X, bytes(x[0])));
      note(executor.setInput(Program::N, bytes(count)));
      note(executor.setInput(Program::Flag, bytes(flag)));
      if (!note(executor.run())) {
        team.abort();
        return;
      }
    }
    for (size_t t = Program::Y; rank == 1 && t <= Program::Cache; ++t) {
      auto shape = stage->table().tensor(t).shape;
      std::vector<float> out(static_cast<size_t>(elementCount(shape)), -1);
      note(executor.getOutput(t, reinterpret_cast<std::byte *>(out.data())));
      outcome.values.push_back(out);
    }
  };
  std::vector<std::thread> ranks;
  for (int r = 0; r < numRanks; ++r)
    ranks.emplace_back(rankMain, r);
  for (std::thread &rank : ranks)
    rank.join();
  return outcome;
}
} // namespace

TEST_CASE("a device with memory and streams of its own gives what the CPU gives") {
  for (int32_t n : {0, 1, 2})
    for (bool flag : {false, true}) {
      INFO("n " << n << ", flag " << flag);
      fardevice::FarDevice device;
      Outcome here = runOn(cpuDevice(), n, flag), there = runOn(device, n, flag);
      INFO((there.errors.empty() ? "" : there.errors[0]));
      REQUIRE(here.errors.empty());
      REQUIRE(there.errors.empty());
      CHECK(here.values == there.values);
      CHECK(device.launches > 0);
      // Of the copy to the host: for what was there before it, and for it; in 3 requests
      // of 2 ranks.
      CHECK(device.awaited == 2 * 3 * numRanks);
      // y = (1 + 2)·x of the last request, kept = 2·x on rank 1.
      CHECK(here.values[0][5] == 3 * (5 * 3 + 2));
      CHECK(here.values[3][5] == 2 * (5 * 3 + 2));
    }
}

TEST_CASE("an index out of range ends the run on such a device too") {
  fardevice::FarDevice device;
  for (Device *each : {&cpuDevice(), static_cast<Device *>(&device)}) {
    Outcome outcome = runOn(*each, 3, false);
    REQUIRE(!outcome.errors.empty());
    bool isNamed = false;
    for (const std::string &error : outcome.errors)
      isNamed |= error.find("node 'lookUp': index 3 is outside a dim of 3 elements") !=
                 std::string::npos;
    CHECK(isNamed);
  }
}
