//===- Stage.cpp - A stage library made by hand ---------------------------===//
//
// What the code generator emits, with the table filled in when the library is loaded
// instead of at compile time. PARTITA_TEST_MESH says for which mesh.
//
//===----------------------------------------------------------------------===//
#include "Model.h"

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Team.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

using namespace partita;
using namespace testmodel;

extern "C" {
alignas(64) unsigned char partita_task_table[65536];
uint64_t partita_task_table_size;

static void misbehaveIf(int64_t what) {
  if (what == Hang)
    for (;;)
      ::pause();
  if (what != Kill && what != Crash && what != Stop)
    return;
  // `local` ranks are threads of one process. A signal also ends ranks that are still on
  // their way to this kernel, and nobody could tell who was meant. They get time to pass.
  ::usleep(300'000);
  // To the process, not the thread: a stop is of the whole process anyway.
  ::kill(::getpid(), what == Kill ? SIGKILL : what == Crash ? SIGSEGV : SIGSTOP);
  ::pause();
}

void misbehave(void *const *buffers, const int64_t *scalars, partita_status *status,
               int64_t, int64_t, int64_t) {
  auto *mode = static_cast<const int64_t *>(buffers[0]);
  if (mode[1] == scalars[0])
    misbehaveIf(mode[0]);
}

void misbehave_between(void *const *buffers, const int64_t *scalars,
                       partita_status *status, int64_t, int64_t, int64_t) {
  auto *mode = static_cast<const int64_t *>(buffers[0]);
  if (mode[1] == scalars[0])
    misbehaveIf(mode[0] - Between);
}

void scale(void *const *buffers, const int64_t *scalars, partita_status *status, int64_t,
           int64_t, int64_t) {
  auto *x = static_cast<const float *>(buffers[0]);
  auto *y = static_cast<float *>(buffers[1]);
  for (int64_t i = 0; i < scalars[0] * width; ++i)
    y[i] = 0.5f * x[i];
}
}

namespace {
struct Build {
  Mesh mesh = *Mesh::parse(PARTITA_TEST_MESH);
  TaskTableBuilder table{mesh};
  uint64_t arena = 0, weights = 0;
  AxisRef dp = mesh.whole(0), tp = mesh.whole(1);
  int64_t localRows = (rows + dp.size - 1) / dp.size;
  int64_t localHidden = hidden / tp.size;

  uint32_t place(Space space, int64_t bytes) {
    uint64_t &end = space == Space::Arena ? arena : weights;
    uint64_t offset = end;
    end += (static_cast<uint64_t>(bytes) + 63) / 64 * 64;
    return table.addBuffer(space, offset, static_cast<uint64_t>(bytes));
  }

  void matmul(const char *node, int64_t n, int64_t k, std::vector<int64_t> operands,
              bool relu) {
    task::MatMul p;
    p.m = localRows, p.n = n, p.k = k;
    p.a_row = k, p.a_col = 1, p.b_row = n, p.b_col = 1, p.c_row = n;
    p.b_packed = 1, p.bias_mask = relu;
    if (relu)
      p.post.push_back({PARTITA_POST_RELU});
    runtime::setTeamSize(1);
    auto sizes = (*onednn::oneDnn().create(p))->sizes();
    operands.push_back(place(Space::Arena, static_cast<int64_t>(sizes.scratch)));
    table.addTask({.source = node, .operands = operands, .params = p});
  }

  Build() {
    std::string rowsText =
        "{" + std::to_string(rows) + "/" + std::to_string(localRows * dp.size) + ": dp}";
    uint32_t x = place(Space::Arena, localRows * width * 4);
    uint32_t mode = place(Space::Arena, 16);
    uint32_t h = place(Space::Arena, localRows * localHidden * 4);
    uint32_t z = place(Space::Arena, localRows * width * 4);
    uint32_t y = place(Space::Arena, localRows * width * 4);
    uint32_t w1 = place(Space::Weight, width * localHidden * 4);
    uint32_t b1 = place(Space::Weight, localHidden * 4);
    uint32_t w2 = place(Space::Weight, localHidden * width * 4);
    auto layout = [&](const std::string &text) { return *Layout::parse(text, mesh); };
    Layout image = layout("[" + rowsText + ", {16}]");
    table.addTensor({Role::Input, DType::F32, "x", image, x});
    table.addTensor({Role::Input, DType::I64, "mode", layout("[{2}]"), mode});
    table.addTensor({Role::Weight, DType::F32, "w1", layout("[{16}, {32: tp}]"), w1, 0,
                     w1Offset, width * hidden * 4});
    table.addTensor({Role::Weight, DType::F32, "b1", layout("[{32: tp}]"), b1, 0,
                     b1Offset, hidden * 4});
    table.addTensor({Role::Weight, DType::F32, "w2", layout("[{32: tp}, {16}]"), w2, 0,
                     w2Offset, hidden * width * 4});
    table.addTensor({Role::Output, DType::F32, "y", image, y});
    auto kernel = [&](const char *symbol) {
      task::Kernel call;
      call.kernel = table.addKernel(symbol);
      return call;
    };
    table.addTask({.source = "guard",
                   .operands = {mode},
                   .params = kernel("misbehave"),
                   .rankValues = {table.addRankValue({.axes = mesh.all()})}});
    matmul("fc1", localHidden, width, {x, w1, h, b1}, true);
    matmul("fc2", width, localHidden, {h, w2, z, -1}, false);
    task::AllReduce reduce;
    reduce.count = localRows * width, reduce.group = {tp};
    table.addTask({.source = "fc2", .operands = {z, z}, .params = reduce, .handle = 1});
    table.addTask({.source = "between",
                   .operands = {mode},
                   .params = kernel("misbehave_between"),
                   .rankValues = {table.addRankValue({.axes = mesh.all()})}});
    task::Wait wait;
    wait.handle = 1;
    table.addTask({.source = "fc2", .operands = {z, z}, .params = wait});
    table.addTask({.source = "scale",
                   .operands = {z, y},
                   .params = kernel("scale"),
                   .rankValues = {table.addRankValue(
                       {PARTITA_RANK_VALID_EXTENT, rows, localRows, {dp}})}});
    table.setMemory(arena, weights, 0);
    std::string blob = table.finish();
    std::memcpy(partita_task_table, blob.data(), blob.size());
    partita_task_table_size = blob.size();
  }
} build;
} // namespace
