//===- TaskTableTest.cpp - Task tables survive a round trip and any damage ===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>

using namespace partita;

static std::span<const std::byte> asBytes(const std::string &blob) {
  return std::as_bytes(std::span(blob.data(), blob.size()));
}

namespace {
/// A table with one task of most kinds on dp=2,tp=2.
struct Sample {
  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  TaskTableBuilder builder{mesh};
  uint32_t x, y, w;

  Sample() {
    x = builder.addBuffer(Space::Arena, 0, 4096);
    y = builder.addBuffer(Space::Arena, 4096, 4096);
    w = builder.addBuffer(Space::Weight, 0, 1024);
    builder.setMemory(8192, 1024, 0);
    builder.addTensor(
        {Role::Input, DType::F32, "input", {16, 32}, "[{16: dp}, {32}]", x});
    builder.addTensor(
        {Role::Weight, DType::F32, "w", {32, 16}, "[{32}, {16: tp}]", w, 0, 128, 2048});
    builder.addTensor({Role::Output, DType::F32, "out", {16, 32}, "[{16: dp}, {32}]", y});
    addTasks();
  }

  void addTasks() {
    uint32_t c = builder.addRankValue({.axes = {mesh.whole(1)}});
    uint32_t valid =
        builder.addRankValue({PARTITA_RANK_VALID_EXTENT, 13, 8, {mesh.whole(0)}});
    uint32_t kernel = builder.addKernel("fused_0");
    builder.addTask(
        {.source = "a", .kernel = kernel, .operands = {x, y}, .rankValues = {valid}});
    task::MatMul mm;
    mm.m = 8, mm.n = 8, mm.k = 32, mm.a_row = 32, mm.a_col = 1, mm.b_row = 8,
    mm.b_col = 1;
    mm.c_row = 8;
    mm.post.push_back({PARTITA_POST_RELU});
    builder.addTask({.kind = TaskKind::MatMul,
                     .source = "fc1",
                     .operands = {x, w, y, -1, -1},
                     .params = mm.encode()});
    task::AllReduce ar;
    ar.count = 1024;
    ar.group = {mesh.whole(1)};
    builder.addTask({.kind = TaskKind::AllReduce,
                     .source = "fc1",
                     .operands = {x, y},
                     .params = ar.encode()});
    task::Slice slice;
    slice.outer = 4, slice.parts = 2, slice.block = 8;
    builder.addTask({.kind = TaskKind::Slice,
                     .source = "s",
                     .operands = {x, y},
                     .params = slice.encode(),
                     .rankValues = {c}});
    task::Permute permute;
    permute.count = 16;
    permute.from = {mesh.whole(0), mesh.whole(1)};
    permute.to = {mesh.whole(1), mesh.whole(0)};
    builder.addTask({.kind = TaskKind::Permute,
                     .source = "p",
                     .operands = {x, y},
                     .params = permute.encode()});
    task::Exchange exchange;
    exchange.before = builder.addString("[{16: dp}, {32}]");
    exchange.after = builder.addString("[{16: tp}, {32}]");
    builder.addTask({.kind = TaskKind::Exchange,
                     .source = "x",
                     .operands = {x, y},
                     .params = exchange.encode()});
    task::Halo halo;
    halo.before = builder.addString("[{16: dp}, {32}]");
    halo.positions = builder.addString("[{8: dp}, {32}]");
    halo.windows = {{0, 2, 3, 1}};
    builder.addTask({.kind = TaskKind::Halo,
                     .source = "h",
                     .operands = {x, y},
                     .params = halo.encode()});
  }
};
} // namespace

TEST_CASE("a task table reads back what was built") {
  Sample sample;
  std::string blob = sample.builder.finish();
  CHECK(blob == Sample().builder.finish());
  auto table = TaskTable::read(asBytes(blob));
  REQUIRE(table);
  CHECK(table->mesh() == sample.mesh);
  CHECK(table->numTensors() == 3);
  CHECK(table->tensor(1).name == "w");
  CHECK(table->tensor(1).fileOffset == 128);
  REQUIRE(table->numTasks() == 7);
  Halo halo = table->halo(*task::Halo::decode(table->task(6).params));
  CHECK(halo.shape() == std::vector<int64_t>{9, 32});
  CHECK(table->task(0).kernel == "fused_0");
  CHECK(table->task(1).source == "fc1");
  auto mm = task::MatMul::decode(table->task(1).params);
  REQUIRE(mm);
  CHECK(mm->k == 32);
  REQUIRE(mm->post.size() == 1);
  CHECK(mm->post[0].kind == PARTITA_POST_RELU);
  // Rank 3 is (dp 1, tp 1): block 1 along tp; 13 rows in blocks of 8 along dp leave 5.
  CHECK(table->rankValue(0, 3) == 1);
  CHECK(table->rankValue(1, 0) == 8);
  CHECK(table->rankValue(1, 3) == 5);
}

TEST_CASE("a damaged table is an error that says where") {
  Sample sample;
  std::string blob = sample.builder.finish();
  CHECK(TaskTable::read(asBytes(blob.substr(0, 20))).error().message ==
        "the task table is damaged: it has only 20 bytes");
  std::string version = blob;
  version[4] = 9;
  CHECK(TaskTable::read(asBytes(version)).error().message ==
        "the task table has version 9, this runtime reads version 1");
  sample.builder.addTask({.kind = TaskKind::Copy,
                          .source = "c",
                          .operands = {0, 7},
                          .params = task::Copy().encode()});
  CHECK(TaskTable::read(asBytes(sample.builder.finish())).error().message ==
        "the task table is damaged: task 7 (c, copy): operand 1 is no buffer");
}

TEST_CASE("a call that leaves its buffer is refused") {
  Sample sample;
  task::AllGather gather;
  gather.outer = 1, gather.block = 1024;
  gather.group = {sample.mesh.whole(0)};
  sample.builder.addTask({.kind = TaskKind::AllGather,
                          .source = "g",
                          .operands = {0, 1},
                          .params = gather.encode()});
  CHECK(
      TaskTable::read(asBytes(sample.builder.finish())).error().message ==
      "the task table is damaged: task 7 (g, all-gather): operand 1 has 4096 bytes, the "
      "call needs 8192");
}

TEST_CASE("a halo that does not fit its layouts or buffers is refused") {
  auto reason = [](const char *positions, HaloWindow window) {
    Sample sample;
    task::Halo halo;
    halo.before = sample.builder.addString("[{16: dp}, {32}]");
    halo.positions = sample.builder.addString(positions);
    halo.windows = {window};
    sample.builder.addTask({.kind = TaskKind::Halo,
                            .source = "h",
                            .operands = {0, 1},
                            .params = halo.encode()});
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: task 7 (h, halo): ";
  CHECK(reason("[{16: dp}, {32}]", {0, 1, 3, 1}) == "none");
  CHECK(reason("[{16: dp}, {32}]", {0, 1, 300, 1}) == at + "operand 1 is too small");
  CHECK(reason("[{1024: dp}, {32}]", {0, 1 << 30, 3, 1}) ==
        at + "the window buffer has more than 2^40 elements");
  CHECK(reason("[{16: dp}, {32}]", {2, 1, 3, 1}) ==
        at + "window of dim 2: the tensor has 2 dims");
  CHECK(reason("[{16: dp}, {16}]", {0, 1, 3, 1}) ==
        at + "dim 1 has size 32 in the source and 16 in the result");
}

// Every single-byte change and many random ones: an error or a table that can be walked
// whole, never a crash (run under the asan preset).
TEST_CASE("no damage can crash the reader") {
  std::string blob = Sample().builder.finish();
  size_t refused = 0;
  auto probe = [&](const std::string &bytes) {
    auto table = TaskTable::read(asBytes(bytes));
    if (!table) {
      ++refused;
      return;
    }
    size_t sum = 0;
    for (size_t i = 0; i < table->numTasks(); ++i) {
      TaskView t = table->task(i);
      for (int64_t v : t.rankValues)
        sum += static_cast<size_t>(table->rankValue(static_cast<size_t>(v), 3));
      sum += t.source.size() + t.kernel.size() + t.params.size();
    }
    for (size_t i = 0; i < table->numTensors(); ++i)
      sum += table->tensor(i).name.size();
    CHECK(sum > 0);
  };
  for (size_t i = 0; i < blob.size(); ++i)
    for (unsigned char value : {0x00, 0x01, 0x7f, 0xff}) {
      std::string bytes = blob;
      bytes[i] = static_cast<char>(value);
      probe(bytes);
    }
  for (size_t length = 0; length < blob.size(); length += 7)
    probe(blob.substr(0, length));
  std::mt19937 random(1);
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = blob;
    for (int k = 0; k < 4; ++k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    probe(bytes);
  }
  CHECK(refused > blob.size());
}
