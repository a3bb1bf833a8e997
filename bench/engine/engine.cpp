//===- engine.cpp - Speed of single engine calls --------------------------===//
//
//   bench-engine
// One thread; shapes of BERT-base at 128 tokens and of ResNet-50 at batch 1. Prints
// milliseconds, GFLOP/s, scratch and packed bytes, and the implementation.
//
//===----------------------------------------------------------------------===//
#include "../Aligned.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace partita;

static void time(const char *what, const task::Params &params, double flops,
                 size_t weight) {
  auto call = onednn::oneDnn().create(params);
  auto needs = task::operandNeeds(params, *Mesh::parse(""));
  if (!call || !needs) {
    std::printf("%s: %s\n", what, call ? "bad" : call.error().message.c_str());
    return;
  }
  std::vector<void *> operands;
  for (const auto &need : *needs)
    operands.push_back(aligned(need.bytes));
  auto sizes = (*call)->sizes();
  operands[task::MatMulScratch] = aligned(sizes.scratch);
  void *packed = aligned(sizes.packed);
  if (sizes.packed)
    (void)(*call)->pack(operands[weight], packed);
  auto frame = (*call)->frame();
  std::unique_ptr<engine::Call::Weight> weightForm;
  if (sizes.packed)
    weightForm = std::move(*(*call)->describe(packed));
  std::vector<double> times;
  for (int i = 0; i < 30; ++i) {
    auto start = std::chrono::steady_clock::now();
    (*call)->run(**frame, operands, weightForm.get());
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  std::printf("%-44s %8.3f ms %7.1f GFLOP/s  scratch %9llu  packed %9llu  %s\n", what,
              times[10] * 1e3, flops / times[10] * 1e-9,
              static_cast<unsigned long long>(sizes.scratch),
              static_cast<unsigned long long>(sizes.packed),
              (*call)->implementation().c_str());
  for (void *operand : operands)
    std::free(operand);
  std::free(packed);
}

static void matmul(int64_t m, int64_t n, int64_t k, int64_t batch, bool packed) {
  task::MatMul p;
  p.m = m, p.n = n, p.k = k, p.a_row = k, p.a_col = 1, p.b_row = n, p.b_col = 1,
  p.c_row = n;
  p.b_packed = packed, p.bias_mask = packed;
  if (batch > 1)
    p.batch = {{batch, m * k, k * n, m * n}};
  char what[80];
  std::snprintf(what, sizeof(what), "matmul %lldx%lldx%lld batch %lld%s", (long long)m,
                (long long)n, (long long)k, (long long)batch,
                packed ? " packed bias" : "");
  time(what, p, 2.0 * m * n * k * batch, task::MatMulB);
}

static void conv(int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride,
                 int64_t groups, bool residual) {
  for (int64_t format : {PARTITA_FORMAT_CHANNELS_FIRST, PARTITA_FORMAT_CHANNELS_LAST}) {
    task::Conv p;
    p.batch = 1, p.in_channels = in, p.out_channels = out, p.groups = groups;
    p.has_bias = p.weights_packed = 1, p.src_format = p.dst_format = format;
    int64_t pad = kernel / 2, result = (size + 2 * pad - kernel) / stride + 1;
    p.spatial.assign(2, {size, result, kernel, stride, 1, pad, pad});
    if (residual)
      p.post.push_back({PARTITA_POST_BINARY_ADD, 0, 0, 15});
    p.post.push_back({PARTITA_POST_RELU});
    char what[80];
    std::snprintf(what, sizeof(what), "conv %lldx%lld %lld->%lld @%lld /%lld g%lld%s %s",
                  (long long)kernel, (long long)kernel, (long long)in, (long long)out,
                  (long long)size, (long long)stride, (long long)groups,
                  p.post.size() > 1 ? " add" : "",
                  format == PARTITA_FORMAT_CHANNELS_FIRST ? "first" : "last");
    time(what, p, 2.0 * in / groups * out * kernel * kernel * result * result,
         task::ConvWeights);
  }
}

int main() {
  runtime::setTeamSize(1);
  matmul(128, 768, 768, 1, true);
  matmul(128, 3072, 768, 1, true);
  matmul(128, 768, 3072, 1, true);
  matmul(128, 3072, 768, 1, false);
  matmul(128, 128, 64, 12, false);
  matmul(128, 64, 128, 12, false);
  matmul(1, 768, 768, 1, true);
  conv(3, 64, 224, 7, 2, 1, false);
  conv(64, 64, 56, 1, 1, 1, false);
  conv(64, 64, 56, 3, 1, 1, false);
  conv(64, 256, 56, 1, 1, 1, true);
  conv(256, 64, 56, 1, 1, 1, false);
  conv(128, 128, 28, 3, 1, 1, false);
  conv(256, 256, 14, 3, 1, 1, false);
  conv(1024, 256, 14, 1, 1, 1, false);
  conv(512, 512, 7, 3, 1, 1, false);
  conv(96, 96, 56, 3, 1, 96, false);
}
