//===- TaskTableTest.cpp - Task tables survive a round trip and any damage ===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <functional>
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
    builder.addTensor({Role::Input, DType::F32, "input", layout("[{16: dp}, {32}]"), x});
    builder.addTensor(
        {Role::Weight, DType::F32, "w", layout("[{32}, {16: tp}]"), w, 0, 128, 2048});
    builder.addTensor({Role::Output, DType::F32, "out", layout("[{16: dp}, {32}]"), y});
    addTasks();
  }

  Layout layout(const char *text) const { return *Layout::parse(text, mesh); }

  void addTasks() {
    uint32_t c = builder.addRankValue({.axes = {mesh.whole(1)}});
    uint32_t valid =
        builder.addRankValue({PARTITA_RANK_VALID_EXTENT, 13, 8, {mesh.whole(0)}});
    task::Kernel kernel;
    kernel.kernel = builder.addKernel("fused_0");
    kernel.checks = {"embed"};
    builder.addTask(
        {.source = "a", .operands = {x, y}, .params = kernel, .rankValues = {valid}});
    task::MatMul mm;
    mm.m = 8, mm.n = 8, mm.k = 32, mm.a_row = 32, mm.a_col = 1, mm.b_row = 8,
    mm.b_col = 1;
    mm.c_row = 8;
    mm.post.push_back({PARTITA_POST_RELU});
    builder.addTask({.source = "fc1", .operands = {x, w, y, -1, -1}, .params = mm});
    task::AllReduce ar;
    ar.count = 1024;
    ar.group = {mesh.whole(1)};
    builder.addTask({.source = "fc1", .operands = {x, y}, .params = ar});
    task::Slice slice;
    slice.outer = 4, slice.parts = 2, slice.block = 8;
    builder.addTask(
        {.source = "s", .operands = {x, y}, .params = slice, .rankValues = {c}});
    task::Permute permute;
    permute.count = 16;
    permute.from = {mesh.whole(0), mesh.whole(1)};
    permute.to = {mesh.whole(1), mesh.whole(0)};
    builder.addTask({.source = "p", .operands = {x, y}, .params = permute});
    task::Exchange exchange;
    exchange.before = builder.addLayout(layout("[{16: dp}, {32}]"));
    exchange.after = builder.addLayout(layout("[{16: tp}, {32}]"));
    builder.addTask({.source = "x", .operands = {x, y}, .params = exchange});
    task::Halo halo;
    halo.before = builder.addLayout(layout("[{16: dp}, {32}]"));
    halo.positions = builder.addLayout(layout("[{8: dp}, {32}]"));
    halo.windows = {{0, 2, 3, 1}};
    builder.addTask({.source = "h", .operands = {x, y}, .params = halo});
    start(3);
    wait(3);
  }

  /// A state of two windows of four rows of 64 bytes, which rolls; a task writes what it
  /// appends.
  void addRolling() {
    uint32_t all = builder.addBuffer(Space::State, 2112, 1024);
    TensorSpec spec{Role::State, DType::F32, "rows", layout("[{2}, {4}, {16}]"), all};
    spec.roll = {1, 8, 2};
    builder.addTensor(spec);
    task::Copy copy;
    copy.count = 16;
    builder.addTask({.source = "r",
                     .operands = {x, builder.addBuffer(Space::State, 2368, 640)},
                     .params = copy});
  }

  /// The same tasks as one program of a pipeline with two micro-batches.
  void makeProgram() {
    uint32_t h = builder.addBuffer(Space::Arena, 0, 1024, 1024, 2);
    builder.setProgram({"first", 2, {0, 1, 2, 3}});
    builder.addSegment({"more", true, {}, {h}});
    builder.addTransfer(transfer(h));
    builder.addSchedule(
        {{0, 3},
         {{0, 0, {}, {{0, 0}, {0, 1}}}, {1, 0, {{0, 0}}, {}}, {0, 1, {{0, 1}}, {}}}});
    builder.addSchedule(
        {{1, 2}, {{-1, 0, {}, {{0, 1}, {0, 0}}}, {0, 1, {{0, 0}, {0, 1}}, {}}}});
  }
  TransferSpec transfer(uint32_t buffer) const {
    Mesh other = *Mesh::parse("a=3");
    TransferSpec t;
    t.name = "act", t.number = 5, t.sends = true, t.buffer = buffer;
    t.layout = layout("[{16: dp}, {32}]");
    t.peerMesh = other, t.peerRanks = {4, 6, 5};
    t.peerLayout = *Layout::parse("[{16/18: a}, {32}]", other);
    return t;
  }

  /// States, a loop of loops over parts of them, a part that may be skipped, values that
  /// are read: all that the tasks above have not.
  void addControl() {
    builder.setRegion(Space::State, 4096);
    builder.setRegion(Space::Io, 64);
    builder.setRegion(Space::Host, 1024);
    uint32_t cache = builder.addBuffer(Space::State, 0, 2048);
    uint32_t count = builder.addBuffer(Space::State, 2048, 8);
    uint32_t flag = builder.addBuffer(Space::Io, 0, 1);
    uint32_t host = builder.addBuffer(Space::Host, 0, 1024);
    builder.addTensor(
        {Role::State, DType::F32, "cache", layout("[{16: dp}, {64}]"), cache});
    builder.addTensor({Role::State, DType::I64, "count", layout("[]"), count});
    builder.addTensor({Role::Input, DType::Bool, "flag", layout("[]"), flag});
    uint32_t read = builder.addRankValue({PARTITA_RANK_READ, 7, 0, {}, {}, DType::I64});
    repeat(4, 3);
    builder.addTask({.source = "l",
                     .operands = {cache, x},
                     .params = copies(64),
                     .moves = {{0, 0, 0, 512}}});
    repeat(2, 1);
    builder.addTask({.source = "l",
                     .operands = {x, cache},
                     .params = copies(16),
                     .moves = {{1, 0, 448, -64}, {1, 1, 0, 512}}});
    skip(flag, 3);
    builder.addTask(
        {.source = "m", .operands = {x, host}, .params = copies(256), .handle = 1});
    task::Wait wait;
    wait.handle = 1;
    builder.addTask({.source = "m", .operands = {x, host}, .params = wait});
    task::Update update;
    update.outer = 1, update.extent = 8, update.count = 1, update.inner = 64;
    builder.addTask({.source = "u",
                     .operands = {x, cache, count},
                     .params = update,
                     .rankValues = {read}});
    task::Kernel kernel;
    builder.addTask({.source = "k",
                     .operands = {x, y, count},
                     .params = kernel,
                     .rankValues = {read}});
  }
  void repeat(int64_t trips, uint32_t tasks) {
    task::Repeat p;
    p.trips = trips, p.tasks = tasks;
    builder.addTask({.source = "l", .params = p});
  }
  void skip(uint32_t flag, uint32_t tasks) {
    task::Skip p;
    p.tasks = tasks;
    builder.addTask({.source = "i", .operands = {flag}, .params = p});
  }
  static task::Copy copies(int64_t count) {
    task::Copy p;
    p.count = count;
    return p;
  }

  void start(uint32_t handle, bool inPlace = false) {
    task::AllReduce reduce;
    reduce.count = 16;
    builder.addTask({.source = "r",
                     .operands = {x, inPlace ? x : y},
                     .params = reduce,
                     .handle = handle});
  }
  void wait(uint32_t handle) {
    task::Wait params;
    params.handle = handle;
    builder.addTask({.source = "r", .operands = {x, y}, .params = params});
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
  REQUIRE(table->numTasks() == 9);
  CHECK(table->numHandles() == 4);
  Halo halo = table->halo(std::get<task::Halo>(table->task(6).params));
  CHECK(halo.shape() == std::vector<int64_t>{9, 32});
  CHECK(table->kernel(std::get<task::Kernel>(table->task(0).params).kernel) == "fused_0");
  CHECK(table->task(1).source == "fc1");
  auto *mm = std::get_if<task::MatMul>(&table->task(1).params);
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
  auto reason = [](const std::string &bytes) {
    auto table = TaskTable::read(asBytes(bytes));
    return table ? std::string("none") : table.error().message;
  };
  CHECK(reason(blob.substr(0, 7)) == "the task table is damaged: it has only 7 bytes");
  CHECK(reason(blob.substr(0, 20)) ==
        "the task table is damaged: its records do not hold together");
  std::string version = blob;
  version[7] = '9';
  CHECK(reason(version) == "the task table has version 9, this runtime reads version 8");
  CHECK(reason("PTBL" + std::string(100, '\1')) ==
        "the task table has version 1, this runtime reads version 8");
  version[5] = 'X';
  CHECK(reason(version) ==
        "the task table is damaged: it does not begin with its identifier");
  sample.builder.addTask({.source = "c", .operands = {0, 7}, .params = task::Copy()});
  CHECK(TaskTable::read(asBytes(sample.builder.finish())).error().message ==
        "the task table is damaged: task 9 (c, copy): operand 1 is no buffer");
}

TEST_CASE("a call that leaves its buffer is refused") {
  Sample sample;
  task::AllGather gather;
  gather.outer = 1, gather.block = 1024;
  gather.group = {sample.mesh.whole(0)};
  sample.builder.addTask({.source = "g", .operands = {0, 1}, .params = gather});
  CHECK(
      TaskTable::read(asBytes(sample.builder.finish())).error().message ==
      "the task table is damaged: task 9 (g, all-gather): operand 1 has 4096 bytes, the "
      "call needs 8192");
}

TEST_CASE("gradients of filters that cannot be are refused") {
  auto reason = [](auto edit) {
    Sample sample;
    task::ConvBackwardFilter p;
    p.batch = 2, p.in_channels = 4, p.out_channels = 8, p.groups = 2;
    p.spatial = {{8, 4, 3, 2, 1, 1, 1}};
    std::vector<int64_t> operands{sample.x, sample.y, sample.x, -1};
    edit(p, operands);
    sample.builder.addTask({.source = "w", .operands = operands, .params = p});
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: task 9 (w, conv-backward-filter): ";
  CHECK(reason([](auto &, auto &) {}) == "none");
  CHECK(reason([](auto &p, auto &) { p.groups = 3; }) ==
        at + "the channels are not a multiple of the groups");
  CHECK(reason([](auto &p, auto &) { p.groups = 0; }).starts_with(at + "groups is 0"));
  CHECK(reason([](auto &p, auto &) { p.batch = 0; }).starts_with(at + "batch is 0"));
  CHECK(reason([](auto &p, auto &) { p.dst_format = 2; }) ==
        at + "the format of an image is 2, expected 0 to 1");
  CHECK(reason([](auto &p, auto &) { p.spatial = {}; }) ==
        at + "the number of spatial dims is 0, expected 1 to 3");
  CHECK(reason([](auto &p, auto &) {
          p.spatial[0].stride = 0;
        }).starts_with(at + "a spatial parameter is 0"));
  CHECK(reason([](auto &p, auto &) { p.spatial[0].in = 1000; }) ==
        at + "operand 0 has 4096 bytes, the call needs 32000");
  CHECK(reason([](auto &p, auto &) { p.spatial[0].out = 1000; }) ==
        at + "operand 1 has 4096 bytes, the call needs 64000");
  CHECK(reason([](auto &p, auto &) { p.spatial[0].kernel = 1000; }) ==
        at + "operand 2 has 4096 bytes, the call needs 64000");
  CHECK(reason([](auto &p, auto &) {
          p.batch = p.in_channels = p.out_channels = int64_t(1) << 47;
        }) == at + "the sizes overflow 64 bits");
  CHECK(reason([](auto &, auto &operands) { operands[2] = -1; }) ==
        at + "operand 2 is no buffer");
  CHECK(reason([](auto &, auto &operands) { operands.pop_back(); }) ==
        at + "3 operands, expected 4");
}

TEST_CASE("handles that do not go from start to wait are refused") {
  auto reason = [](auto edit) {
    Sample sample;
    edit(sample);
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: ";
  CHECK(reason([](Sample &s) { s.start(1), s.wait(1), s.start(1), s.wait(1); }) ==
        "none");
  CHECK(reason([](Sample &s) { s.start(1); }) ==
        at + "segment 'request': handle 1 is never waited for");
  CHECK(reason([](Sample &s) { s.wait(1); }) ==
        at + "task 9 (r, wait): handle 1 is not in flight");
  CHECK(
      reason([](Sample &s) { s.start(1), s.start(2); }) ==
      at +
          "task 10 (r, all-reduce): it touches what handle 1, which is in flight, fills");
  CHECK(reason([](Sample &s) { s.start(99); }) ==
        at + "task 9 (r, all-reduce): handle 99 is more than there are tasks");
  CHECK(reason([](Sample &s) { s.start(1, /*inPlace=*/true), s.wait(1); }) ==
        at + "task 10 (r, wait): its operands are not those of handle 1");
  CHECK(reason([](Sample &s) {
          task::Fill fill;
          fill.count = 4;
          s.builder.addTask({.operands = {s.x}, .params = fill, .handle = 1});
        }) ==
        at + "task 9 (, fill): it has a handle, but is neither a collective nor a copy");
  // Into what another one still sends.
  CHECK(reason([](Sample &s) {
          s.start(1);
          task::AllReduce reduce;
          s.builder.addTask({.operands = {s.x, s.x}, .params = reduce, .handle = 2});
        }) ==
        at + "task 10 (, all-reduce): it fills what handle 1, which is in flight, reads");
  auto bucket = [](Sample &s, std::vector<int64_t> operands, int64_t block,
                   uint32_t handle = 0) {
    task::AllReduce p;
    p.count = 16, p.more = {{1, block, 0}};
    s.builder.addTask({"b", std::move(operands), p, {}, handle});
  };
  CHECK(reason([&](Sample &s) {
          bucket(s, {s.x, s.x, s.y, s.y}, 64, 1);
          task::Wait wait;
          wait.handle = 1;
          s.builder.addTask({"b", {s.x, s.x, s.y, s.y}, wait});
        }) == "none");
  const std::string call = at + "task 9 (b, all-reduce): ";
  CHECK(reason([&](Sample &s) { bucket(s, {s.x, s.x}, 16); }) ==
        call + "2 operands, expected 4");
  CHECK(reason([&](Sample &s) { bucket(s, {s.x, s.x, s.y, s.y}, 1 << 20); }) ==
        call + "operand 2 has 4096 bytes, the call needs 4194304");
  CHECK(reason([&](Sample &s) { bucket(s, {s.x, s.x, s.x, s.y}, 16); }) ==
        call + "its item 0 fills what item 1 has");
  CHECK(reason([&](Sample &s) { bucket(s, {s.x, s.x, s.y, s.y}, -1); }) ==
        call + "block is -1, expected 0 to 281474976710656");
  CHECK(reason([&](Sample &s) {
          task::AllReduce p;
          p.more.resize(5000);
          s.builder.addTask({"b", {}, p});
        }) == call + "the number of items is 5001, expected 1 to 1024");
  CHECK(reason([&](Sample &s) {
          bucket(s, {s.x, s.x, s.y, s.y}, 64, 1);
          s.wait(1);
        }) == at + "task 10 (r, wait): its operands are not those of handle 1");
}

TEST_CASE("a task that writes what a call in flight reads is refused") {
  auto reason = [](auto edit) {
    Sample s;
    task::AllReduce reduce;
    reduce.count = 16;
    const uint32_t far = s.builder.addBuffer(Space::Arena, 8192, 64);
    s.builder.setMemory(8256, 1024, 0);
    s.builder.addTask(
        {.source = "r", .operands = {s.y, far}, .params = reduce, .handle = 1});
    edit(s);
    task::Wait wait;
    wait.handle = 1;
    s.builder.addTask({.source = "r", .operands = {s.y, far}, .params = wait});
    auto table = TaskTable::read(asBytes(s.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  auto refused = [](const char *what) {
    return "the task table is damaged: task 10 (t, " + std::string(what) +
           "): it fills what handle 1, which is in flight, reads";
  };
  auto kernel = [&](std::vector<int64_t> operands, uint32_t inputs) {
    return reason([&](Sample &s) {
      task::Kernel params;
      params.inputs = inputs;
      s.builder.addTask({.source = "t", .operands = operands, .params = params});
    });
  };
  const int64_t x = 0, y = 1;
  CHECK(kernel({y, x}, 1) == "none");
  CHECK(kernel({x, y}, 1) == refused("kernel"));
  CHECK(kernel({x, x}, 0) == "none");
  CHECK(reason([&](Sample &s) {
          task::Fill fill;
          fill.count = 4;
          s.builder.addTask({.source = "t", .operands = {y}, .params = fill});
        }) == refused("fill"));
  auto product = [&](int64_t result, int64_t scratch) {
    return reason([&](Sample &s) {
      task::MatMul mm;
      mm.m = 8, mm.n = 8, mm.k = 32, mm.a_row = 32, mm.a_col = 1, mm.b_row = 8,
      mm.b_col = 1, mm.c_row = 8;
      s.builder.addTask(
          {.source = "t", .operands = {y, s.w, result, -1, scratch}, .params = mm});
    });
  };
  CHECK(product(x, x) == "none");
  CHECK(product(y, x) == refused("matmul"));
  CHECK(product(x, y) == refused("matmul"));
}

TEST_CASE("a halo that does not fit its layouts or buffers is refused") {
  auto reason = [](const char *positions, HaloWindow window) {
    Sample sample;
    task::Halo halo;
    halo.before = sample.builder.addLayout(sample.layout("[{16: dp}, {32}]"));
    halo.positions = sample.builder.addLayout(sample.layout(positions));
    halo.windows = {window};
    sample.builder.addTask({.source = "h", .operands = {0, 1}, .params = halo});
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: task 9 (h, halo): ";
  CHECK(reason("[{16: dp}, {32}]", {0, 1, 3, 1}) == "none");
  CHECK(reason("[{16: dp}, {32}]", {0, 1, 300, 1}) ==
        at + "operand 1 has 4096 bytes, the call needs 39296");
  CHECK(reason("[{1024: dp}, {32}]", {0, 1 << 30, 3, 1}) ==
        at + "the window buffer has more than 2^40 elements");
  CHECK(reason("[{16: dp}, {32}]", {2, 1, 3, 1}) ==
        at + "window of dim 2: the tensor has 2 dims");
  CHECK(reason("[{16: dp}, {16}]", {0, 1, 3, 1}) ==
        at + "dim 1 has size 32 in the source and 16 in the result");
}

TEST_CASE("a program of a pipeline reads back what was built") {
  Sample sample;
  sample.makeProgram();
  auto table = TaskTable::read(asBytes(sample.builder.finish()));
  REQUIRE(table);
  CHECK(table->programName() == "first");
  CHECK(table->microBatches() == 2);
  REQUIRE(table->segments().size() == 2);
  CHECK(table->segments()[0].numTasks == 9);
  CHECK(table->segments()[1].once);
  CHECK(table->buffers()[3].slots == 2);
  REQUIRE(table->transfers().size() == 1);
  CHECK(table->transfers()[0].peerRanks == std::vector<int32_t>{4, 6, 5});
  CHECK(table->transfers()[0].peerLayout == sample.transfer(0).peerLayout);
  CHECK(table->scheduleOf(3).entries.size() == 3);
  CHECK(table->scheduleOf(2).entries[0].segment == -1);
  CHECK(table->placeOf(7) == -1);
}

TEST_CASE("a program that cannot be is refused") {
  auto reason = [](auto edit) {
    Sample sample;
    edit(sample);
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  auto transferWith = [&](auto edit) {
    return reason([&](Sample &s) {
      TransferSpec t = s.transfer(s.x);
      edit(t);
      s.builder.addTransfer(t);
    });
  };
  using Entries = std::vector<schedule::Entry>;
  auto entries = [&](Entries list) {
    return reason([&](Sample &s) {
      s.builder.addTransfer(s.transfer(s.x));
      s.builder.addSchedule({{}, list});
    });
  };
  const std::string at = "the task table is damaged: ", t0 = at + "transfer 0 (act): ";
  CHECK(transferWith([](auto &) {}) == "none");
  CHECK(transferWith([](auto &t) { t.peerRanks = {4, 4, 5}; }) ==
        t0 + "the other end's ranks are not those of its mesh");
  CHECK(transferWith([](auto &t) { t.peerLayout = Layout::replicated({16, 33}); }) ==
        t0 + "the two layouts have different shapes");
  CHECK(transferWith([](auto &t) { t.type = DType::F64, t.buffer = 2; }) ==
        t0 + "its buffer is too small, or one that it may not fill");
  CHECK(transferWith([](auto &t) { t.buffer = 77; }) ==
        at + "transfer 0 (act) has a field out of range");
  const std::string s0 = at + "schedule 0, entry 0";
  CHECK(entries({{3, 0, {}, {}}}) == s0 + ": no segment 3");
  CHECK(entries({{0, 1, {}, {}}}) == s0 + ": no micro-batch 1");
  CHECK(entries({{0, 0, {{1, 0}}, {}}}) == s0 + ": no transfer 1");
  CHECK(entries({{0, 0, {{0, 0}}, {}}}) ==
        s0 + " waits for a transfer that is not in flight");
  CHECK(entries({{0, 0, {}, {{0, 0}, {0, 0}}}}) == s0 + " starts a transfer twice");
  CHECK(entries({{0, 0, {}, {{0, 0}}}}) ==
        at + "schedule 0 never waits for a transfer that it starts");
  CHECK(reason([](Sample &s) { s.builder.addSchedule({{0, 1, 2}, {}}); }) ==
        at + "only 3 of 4 ranks have a schedule");
  CHECK(reason([](Sample &s) { s.builder.setProgram({"p", 1, {0, 1, 2}}); }) ==
        at + "its ranks are not those of its mesh");
  CHECK(reason([](Sample &s) { s.builder.addBuffer(Space::Arena, 0, 4096, 4096, 3); }) ==
        at + "buffer 3: its slots overlap or leave their region");
}

TEST_CASE("loops, skipped parts, states and values that are read are read back") {
  Sample sample;
  sample.addControl();
  auto table = TaskTable::read(asBytes(sample.builder.finish()));
  if (!table)
    FAIL(table.error().message);
  REQUIRE(table->numTasks() == 18);
  CHECK(table->bytesOf(Space::State) == 4096);
  CHECK(table->tensor(3).role == Role::State);
  auto *repeat = std::get_if<task::Repeat>(&table->task(9).params);
  REQUIRE(repeat);
  CHECK(repeat->trips == 4);
  REQUIRE(table->task(12).moves.size() == 2);
  CHECK(table->task(12).moves[0].stride == -64);
  CHECK(table->task(12).moves[1].loop == 1);
  CHECK(table->numReadValues(table->task(17)) == 1);
  CHECK(table->rankValue(table->task(17).rankValues[0]).type == DType::I64);
}

TEST_CASE("loops, skipped parts, states and values that cannot be are refused") {
  auto reason = [](auto edit) {
    Sample sample;
    sample.addControl();
    edit(sample);
    auto table = TaskTable::read(asBytes(sample.builder.finish()));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: ", t18 = at + "task 18 ";
  const std::string l = at + "task 19 (, copy): ";
  auto moving = [&](task::Move move, int64_t trips = 4, int64_t count = 16) {
    return reason([&](Sample &s) {
      s.repeat(trips, 1);
      s.builder.addTask(
          {.operands = {s.x, s.y}, .params = s.copies(count), .moves = {move}});
    });
  };
  CHECK(moving({0, 0, 0, 64}) == "none");
  CHECK(moving({0, 0, 0, 4}) == "none");
  CHECK(moving({0, 0, 4096 - 64, -64}) == "none");
  CHECK(moving({0, 0, 4096, 0}) == l + "operand 0 moves out of its buffer");
  CHECK(moving({0, 0, 0, 2048}) == l + "operand 0 moves out of its buffer");
  CHECK(moving({1, 0, 64, -64}) == l + "operand 1 moves out of its buffer");
  CHECK(moving({1, 0, 0, 1 << 30}, int64_t(1) << 31) ==
        l + "operand 1 moves out of its buffer");
  CHECK(moving({2, 0, 0, 0}) ==
        l + "the move of operand 2 is of an operand that it does not have");
  CHECK(moving({0, 1, 0, 0}) ==
        l + "the move of operand 0 is by loop 1 of 1 around the task");
  CHECK(moving({0, 0, 0, INT64_MIN}) == l + "the move of operand 0 is too far");
  CHECK(reason([](Sample &s) {
          s.repeat(2, 1);
          task::Kernel kernel;
          s.builder.addTask(
              {.operands = {s.x}, .params = kernel, .moves = {{0, 0, 0, 4}}});
        }) == at + "task 19 (, kernel): the move of operand 0 is not aligned");
  CHECK(reason([](Sample &s) {
          s.repeat(2, 1);
          task::MatMul mm;
          mm.m = mm.n = mm.k = mm.a_row = mm.b_row = mm.c_row = 1;
          mm.b_packed = true;
          s.builder.addTask({.operands = {s.x, s.w, s.y, -1, -1},
                             .params = mm,
                             .moves = {{1, 0, 0, 64}}});
        }) == at + "task 19 (, matmul): a packed weight cannot move");
  CHECK(reason([](Sample &s) { s.repeat(2, 1); }) ==
        t18 + "(l, repeat): its 1 tasks leave the loop or segment that it is in");
  CHECK(
      reason([](Sample &s) { s.repeat(2, 1), s.repeat(2, 1), s.start(9), s.wait(9); }) ==
      at + "task 19 (l, repeat): its 1 tasks leave the loop or segment that it is in");
  CHECK(reason([](Sample &s) { s.repeat(0, 0); }) ==
        t18 + "(l, repeat): the number of trips is 0, expected 1 to 2147483648");
  CHECK(reason([](Sample &s) {
          for (uint32_t i = 0; i < 40; ++i)
            s.repeat(2, 39 - i);
        }) == at + "task 50 (l, repeat): more than 32 loops are nested");
  // What a trip starts, it waits for.
  CHECK(reason([](Sample &s) { s.repeat(2, 1), s.start(1), s.wait(1); }) ==
        at +
            "task 20 (r, wait): the loop or skipped part that ends before task 20 of the "
            "segment leaves other calls in flight than it found");
  CHECK(reason([](Sample &s) { s.start(1), s.skip(5, 1), s.wait(1); }) ==
        at +
            "segment 'request': the loop or skipped part that ends before task 21 of the "
            "segment leaves other calls in flight than it found");
  CHECK(reason([](Sample &s) { s.skip(77, 0); }) ==
        t18 + "(i, skip): operand 0 is no buffer");
  CHECK(reason([](Sample &s) {
          s.builder.addTask(
              {.operands = {s.x}, .params = task::Skip(), .rankValues = {0}});
        }) == t18 + "(, skip): wrong number of rank values");
  // Values that are read.
  auto reading = [&](RankValueSpec value, std::vector<int64_t> operands) {
    return reason([&](Sample &s) {
      s.builder.addTask({.operands = operands,
                         .params = task::Kernel(),
                         .rankValues = {s.builder.addRankValue(value)}});
    });
  };
  CHECK(reading({PARTITA_RANK_READ, 7, 0, {}, {}, DType::I32}, {4}) == "none");
  CHECK(reading({PARTITA_RANK_READ, 7, 1, {}, {}, DType::I64}, {4}) ==
        t18 + "(, kernel): operand 0 has 8 bytes, the call needs 16");
  CHECK(reading({PARTITA_RANK_READ, 7, 0, {}, {}, DType::I64}, {}) ==
        t18 + "(, kernel): it has no operands for the rank values that it reads");
  CHECK(reading({PARTITA_RANK_READ, 7, 0, {}, {}, DType::F32}, {4}) ==
        at + "rank value 3 is read and no i32 or i64 of all ranks");
  CHECK(reason([](Sample &s) {
          task::Update update;
          update.extent = 4, update.count = 5;
          s.builder.addTask({.operands = {s.x, s.y}, .params = update});
        }) == t18 + "(, update): count is 5, expected 0 to 4");
  // Lists. The group has 2 members, so 4 counts.
  auto listed = [&](task::Params params, RankValueSpec value, int64_t count,
                    std::vector<RankValueSpec> more = {}) {
    return reason([&](Sample &s) {
      value.count = count;
      TaskSpec spec{.operands = {s.x, s.y, 4}, .params = params};
      spec.rankValues = {s.builder.addRankValue(value)};
      for (const RankValueSpec &other : more) {
        spec.rankValues.push_back(s.builder.addRankValue(other));
        spec.operands.push_back(4);
      }
      s.builder.addTask(spec);
    });
  };
  RankValueSpec index{PARTITA_RANK_READ, 7, 0, {}, {}, DType::I32};
  task::AllToAllV ragged;
  ragged.rows = 4, ragged.to_rows = 8, ragged.inner = 2;
  ragged.group = {Sample().mesh.whole(1)};
  task::Rows rows;
  rows.count = 2, rows.extent = 8, rows.inner = 2;
  CHECK(listed(rows, index, 2) == "none");
  CHECK(listed(rows, index, 3) ==
        t18 + "(, rows): rank value 3 is a list of 3, expected 2");
  CHECK(listed(rows, index, 1) ==
        t18 + "(, rows): rank value 3 is a list of 1, expected 2");
  CHECK(listed(ragged, index, 3) ==
        t18 + "(, all-to-all-v): rank value 3 is a list of 3, expected 4");
  CHECK(listed(ragged, index, 4) ==
        t18 + "(, all-to-all-v): operand 2 has 8 bytes, the call needs 16");
  CHECK(listed(rows, index, -1) == at + "rank value 3 is a list of -1");
  CHECK(listed(rows, index, int64_t(1) << 60) ==
        at + "rank value 3 is a list of 1152921504606846976");
  CHECK(listed(rows, {PARTITA_RANK_BLOCK_INDEX, 7, 0, {}, {}}, 2) ==
        at + "rank value 3 is a list of 2");
  CHECK(listed(rows, index, 2, {index, index}) ==
        t18 + "(, rows): wrong number of rank values");
  rows.count = 0;
  CHECK(listed(rows, index, 2) == t18 + "(, rows): count is 0, expected 1 to 2147483648");
  rows.count = 2, rows.extent = 1 << 20;
  CHECK(listed(rows, index, 2).ends_with("bytes, the call needs 8388608"));
  ragged.rows = -1;
  CHECK(listed(ragged, index, 4) == t18 + "(, all-to-all-v): the number of rows is -1, "
                                          "expected 0 to 2147483647");
  ragged.rows = 4, ragged.inner = int64_t(1) << 48, ragged.to_rows = 1 << 20;
  CHECK(listed(ragged, index, 4) == t18 + "(, all-to-all-v): the sizes overflow 64 bits");
  // States.
  auto state = [&](uint64_t offset, uint64_t bytes, std::string name, Space space,
                   uint64_t fileBytes) {
    return reason([&](Sample &s) {
      uint32_t buffer = s.builder.addBuffer(space, offset, bytes);
      TensorSpec spec{Role::State, DType::F32, name, s.layout("[{16}]"), buffer};
      spec.fileBytes = fileBytes;
      s.builder.addTensor(spec);
    });
  };
  CHECK(state(4032, 64, "s", Space::State, 0) == "none");
  CHECK(state(4032, 64, "s", Space::State, 64) == "none");
  CHECK(state(4032, 64, "s", Space::State, 60) ==
        at + "tensor 6 (s): 60 bytes in the file, 64 by its shape");
  CHECK(state(4032, 64, "cache", Space::State, 0) == at + "state 'cache' is there twice");
  CHECK(state(1984, 64, "s", Space::State, 0) == at + "state 's' overlaps another one");
  CHECK(state(0, 64, "s", Space::State, 0) == at + "state 's' overlaps another one");
  CHECK(state(0, 64, "s", Space::Arena, 0) ==
        at + "tensor 6 (s): its buffer is in the wrong space");
  CHECK(reason([](Sample &s) { s.builder.addBuffer(Space::State, 4032, 64); }) ==
        at + "buffer 7 lies in no state");
  CHECK(reason([](Sample &s) { s.builder.addBuffer(Space::State, 1984, 128); }) ==
        at + "buffer 7 lies in no state");
  // A state of two windows of four rows of 64 bytes, which rolls in eight rows each.
  struct Rolling {
    const char *layout = "[{2}, {4}, {16}]";
    StateRoll roll = {1, 8, 2};
    Role role = Role::State;
    uint64_t bytes = 1024, fileBytes = 0;
    uint64_t offset = 0, reach = 896; ///< of what a task writes
    bool isSent = false;
  };
  auto rolling = [&](Rolling r) {
    return reason([&](Sample &s) {
      uint32_t all = s.builder.addBuffer(Space::State, 2112, r.bytes);
      TensorSpec spec{r.role, DType::F32, "r", s.layout(r.layout), all};
      spec.fileBytes = r.fileBytes, spec.roll = r.roll;
      s.builder.addTensor(spec);
      uint32_t rows = s.builder.addBuffer(Space::State, 2112 + r.offset, r.reach);
      task::Copy copy;
      copy.count = 16;
      s.builder.addTask({.source = "r", .operands = {s.x, rows}, .params = copy});
      if (r.isSent)
        s.builder.addTransfer(s.transfer(all));
    });
  };
  const std::string tr = at + "tensor 6 (r): ";
  CHECK(rolling({}) == "none");
  CHECK(rolling({.offset = 256, .reach = 640}) == "none");
  CHECK(rolling({.roll = {1, 6, 2}, .reach = 768}) == "none");
  CHECK(rolling({.roll = {1, 8, 4}, .reach = 1024}) == "none");
  CHECK(rolling({.roll = {1, 8, 0}, .reach = 768}) == "none");
  std::string leaves = " (r, copy): operand 1 leaves its state when that has rolled";
  for (Rolling r :
       {Rolling{.reach = 960}, Rolling{.reach = 1024},
        Rolling{.offset = 256, .reach = 704}, Rolling{.roll = {1, 8, 0}, .reach = 832}})
    CHECK(rolling(r).ends_with(leaves));
  CHECK(rolling({.roll = {3, 8, 2}}) == tr + "it rolls along dim 3 of 3");
  CHECK(rolling({.roll = {1, 8, 5}}) == tr + "it rolls by 5 of 8 rows, and has 4");
  CHECK(rolling({.roll = {1, 8, -1}}) == tr + "it rolls by -1 of 8 rows, and has 4");
  CHECK(rolling({.roll = {1, -8, 0}}) == tr + "it rolls by 0 of -8 rows, and has 4");
  CHECK(rolling({.roll = {1, 9, 2}}) == tr + "its buffer is too small to roll in");
  CHECK(rolling({.roll = {1, int64_t(1) << 48, 2}}) ==
        tr + "its buffer is too small to roll in");
  CHECK(rolling({.roll = {1, INT64_MAX, 2}}) ==
        tr + "it rolls by 2 of 9223372036854775807 rows, and has 4");
  // Rows of 60 bytes are 64 bytes apart, those of 68 bytes 128.
  CHECK(rolling({.layout = "[{2}, {4}, {15}]"}) == "none");
  CHECK(rolling({.layout = "[{2}, {4}, {17}]"}) ==
        tr + "its buffer is too small to roll in");
  CHECK(rolling({.layout = "[{0}, {4}, {16}]"}) == tr + "it rolls, and has no rows");
  CHECK(rolling({.fileBytes = 512}) ==
        tr + "it rolls, and is no state that begins as zeros");
  CHECK(rolling({.role = Role::Output}).starts_with(tr));
  CHECK(rolling({.isSent = true}) ==
        at + "transfer 0 (act): its buffer is in a state that rolls");
}

// Every single-byte change and many random ones: an error or a table that can be walked
// whole, never a crash (run under the asan preset).
TEST_CASE("no damage can crash the reader") {
  Sample sample;
  sample.addControl();
  sample.addRolling();
  sample.makeProgram();
  std::string blob = sample.builder.finish();
  size_t refused = 0;
  auto probe = [&](const std::string &bytes) {
    auto table = TaskTable::read(asBytes(bytes));
    if (!table) {
      ++refused;
      return;
    }
    size_t sum = 0;
    for (size_t i = 0; i < table->numTasks(); ++i) {
      const TaskView t = table->task(i);
      for (uint32_t v : t.rankValues)
        sum += static_cast<size_t>(table->rankValue(v, 3));
      sum += t.source.size() + t.operands.size() + task::bytesOf(t.params).size();
    }
    for (size_t i = 0; i < table->numTensors(); ++i)
      sum += table->tensor(i).name.size();
    for (int64_t r = 0; r < std::min<int64_t>(table->mesh().numRanks(), 8); ++r)
      for (const schedule::Entry &entry : table->scheduleOf(r).entries)
        sum += entry.segment < 0
                   ? 0
                   : table->segments()[static_cast<size_t>(entry.segment)].numTasks;
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
  // Fields that stand at their default are not written, so fewer bytes matter than
  // before.
  CHECK(refused > blob.size() / 2);
}
