//===- gemm.cpp - Products of f32 against the peak of the core ------------===//
//
//   bench-gemm [THREADS [FILTER]]
// The shapes of the transformers that are measured, for one thread or a team: by oneDNN's
// product, by its 1 × 1 convolution with the weight in blocks, by our own kernels, and as
// the runtime takes it.
// Weights are constants unless a line says "computed". Prints GFLOP/s and the share of
// the peak of as many cores, which is measured around every line.
// ONEDNN_MAX_CPU_ISA=AVX2 shows what a machine without 512-bit vectors does.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Gemm.h"
#include "../Aligned.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Roofline.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

using namespace partita;

/// Seconds of this thread's processor where it works alone: others may use the machine.
static bool isAlone = true;
static double now() {
  timespec time;
  ::clock_gettime(isAlone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

/// GFLOP/s of this core.
static double peak(int width) { return 1e-9 * runtime::measurePeak(width, now); }
static bool hasWide() { return runtime::widestVectors() == 16; }

//===----------------------------------------------------------------------===//
// One call
//===----------------------------------------------------------------------===//

namespace {
/// A call with operands, ready to run.
struct Ready {
  std::shared_ptr<const engine::Call> call;
  std::vector<void *> operands;
  void *packed = nullptr;
  std::unique_ptr<engine::Call::Frame> frame;
  std::unique_ptr<engine::Call::Weight> weight;
  std::vector<double> times;

  Ready(std::shared_ptr<const engine::Call> made, const task::Params &params)
      : call(std::move(made)) {
    auto needs = task::operandNeeds(params, Mesh());
    for (const auto &need : *needs)
      operands.push_back(need.bytes ? aligned(need.bytes) : nullptr);
    operands[task::MatMulScratch] = aligned(call->sizes().scratch);
    if (call->sizes().packed) {
      packed = aligned(call->sizes().packed);
      (void)call->pack(operands[task::MatMulB], packed);
      weight = std::move(*call->describe(packed));
    }
    frame = std::move(*call->frame());
  }
  ~Ready() {
    for (void *operand : operands)
      std::free(operand);
    std::free(packed);
  }
  Ready(const Ready &) = delete;
  void run() {
    double begin = now();
    call->run(*frame, operands, weight.get());
    times.push_back(now() - begin);
  }
  double median() {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
};

struct Shape {
  int64_t m, n, k, batch;
  bool computed, transposed;
};
} // namespace

static task::MatMul product(const Shape &s) {
  task::MatMul p;
  p.m = s.m, p.n = s.n, p.k = s.k, p.a_row = s.k, p.a_col = 1, p.c_row = s.n;
  p.b_row = s.transposed ? 1 : s.n, p.b_col = s.transposed ? s.k : 1;
  p.b_packed = p.bias_mask = !s.computed;
  if (s.batch > 1)
    p.batch = {{s.batch, s.m * s.k, s.k * s.n, s.m * s.n}};
  return p;
}

/// The same product as a convolution of an image of m × 1 pixels with k channels.
static task::Conv convolution(const Shape &s) {
  task::Conv p;
  p.batch = 1, p.in_channels = s.k, p.out_channels = s.n, p.has_bias = 1;
  p.weights_packed = 1, p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  p.spatial = {{s.m, s.m, 1, 1, 1, 0, 0}, {1, 1, 1, 1, 1, 0, 0}};
  return p;
}

static void measure(const Shape &s, int threads, int width) {
  std::vector<std::pair<const char *, std::unique_ptr<Ready>>> ways;
  auto add = [&](const char *name, const task::Params &params,
                 Expected<std::shared_ptr<const engine::Call>> made) {
    if (made && *made)
      ways.emplace_back(name, std::make_unique<Ready>(*made, params));
  };
  const engine::Engine &library = onednn::oneDnn(onednn::Products::OfLibrary);
  add("library", product(s), library.create(product(s)));
  if (!s.computed)
    add("1x1", convolution(s), library.create(convolution(s)));
  add("own", product(s), std::shared_ptr<const engine::Call>(gemm::matMul(product(s))));
  add("taken", product(s), onednn::oneDnn().create(product(s)));
  double flops = 2.0 * double(s.m * s.n * s.k * s.batch), best = 0;
  auto rounds = static_cast<int>(std::clamp(6e9 / flops, 7.0, 400.0));
  for (int round = 0; round < rounds; ++round) {
    if (round % (rounds / 4 + 1) == 0)
      best = std::max(best, peak(width) * threads);
    for (auto &[name, ready] : ways)
      ready->run();
  }
  char what[64];
  std::snprintf(what, sizeof(what), "%lldx%lldx%lld%s%s", (long long)s.m, (long long)s.n,
                (long long)s.k, s.computed ? " computed" : "",
                s.batch > 1 ? (" x" + std::to_string(s.batch)).c_str() : "");
  std::printf("%-28s", what);
  for (auto &[name, ready] : ways) {
    double speed = flops / ready->median() * 1e-9;
    std::printf("  %s %6.1f (%.2f)", name, speed, speed / best);
  }
  std::printf("  [%s; %s]\n", ways.front().second->call->implementation().c_str(),
              ways.back().second->call->implementation().c_str());
  std::fflush(stdout);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const char *filter = argc > 2 ? argv[2] : "";
  runtime::setTeamSize(threads);
  isAlone = threads == 1;
  const char *limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  int width = hasWide() && !(limit && std::strcmp(limit, "AVX2") == 0) ? 16 : 8;
  std::printf("peak of a core, GFLOP/s: 256 bits %.1f", peak(8));
  if (hasWide())
    std::printf(", 512 bits %.1f", peak(16));
  std::printf("; shares are of %d bits, rows x columns x summands\n", width * 32);
  std::vector<Shape> shapes;
  for (int64_t m : {1, 2, 3, 4, 8, 128, 197})
    for (auto [n, k] : {std::pair<int64_t, int64_t>{768, 768},
                        {2304, 768},
                        {3072, 768},
                        {768, 3072},
                        {2048, 768},
                        {768, 2048},
                        {32000, 768},
                        {50257, 768}})
      if (n < 30000 || m == 1 || m == 128)
        shapes.push_back({m, n, k, 1, false, n > 30000});
  for (int64_t m : {1, 8, 128, 197}) {
    int64_t keys = m < 128 ? 128 : m;
    shapes.push_back({m, keys, 64, 12, true, true});
    shapes.push_back({m, 64, keys, 12, true, false});
  }
  shapes.push_back({128, 3072, 768, 1, true, false});
  shapes.push_back({128, 768, 3072, 1, true, true});
  shapes.push_back({1, 3072, 768, 1, true, false});
  shapes.push_back({1, 3072, 768, 1, true, true});
  // Few columns, or few summands.
  for (int64_t few : {1, 2, 4, 8, 12}) {
    shapes.push_back({512, few, 512, 1, false, false});
    shapes.push_back({512, few, 512, 1, true, false});
    shapes.push_back({512, 512, few, 1, true, false});
    shapes.push_back({few, 512, 512, 1, true, false});
    shapes.push_back({few, 512, 512, 1, true, true});
  }
  for (const Shape &s : shapes) {
    std::string name = std::to_string(s.m) + "x" + std::to_string(s.n);
    if (name.find(filter) != std::string::npos)
      measure(s, threads, width);
  }
}
