//===- engine.cpp - Speed of single engine calls --------------------------===//
//
//   bench-engine [THREADS [FILTER]]
//   bench-engine THREADS - < PROBLEMS
// Shapes of BERT-base at 128 tokens and of ResNet-50 at batch 1, for one thread or a
// team; as the runtime takes them and, where that is another way, by the library alone,
// in turns. Prints milliseconds, GFLOP/s (of the direct algorithm), scratch and packed
// bytes, and the implementation. ONEDNN_MAX_CPU_ISA=AVX2 shows what a machine without
// 512-bit vectors does. With `-`, problems come from standard input, a line each, and a
// line of JSON is printed for each (table.py).
//
//===----------------------------------------------------------------------===//
#include "../Aligned.h"
#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <vector>

using namespace partita;

static const char *filter = "";

namespace {
/// A call with operands, ready to run.
struct Ready {
  std::shared_ptr<const engine::Call> call;
  std::vector<void *> operands;
  void *packed = nullptr;
  std::unique_ptr<engine::Call::Frame> frame;
  std::unique_ptr<engine::Call::Weight> weight;
  std::vector<double> times;

  Ready(std::shared_ptr<const engine::Call> made, const task::Params &params,
        const std::vector<task::OperandNeed> &needs)
      : call(std::move(made)) {
    for (const auto &need : needs)
      operands.push_back(need.bytes ? aligned(need.bytes) : nullptr);
    operands[task::MatMulScratch] = aligned(call->sizes().scratch);
    if (call->sizes().packed) {
      packed = aligned(call->sizes().packed);
      (void)call->pack(operands[engine::Call::weightOperand(kindOf(params))], packed);
      weight = std::move(*call->describe(packed));
    }
    frame = std::move(*call->frame());
  }
  Ready(const Ready &) = delete;
  ~Ready() {
    for (void *operand : operands)
      std::free(operand);
    std::free(packed);
  }
  void run() {
    auto start = std::chrono::steady_clock::now();
    call->run(*frame, operands, weight.get());
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  /// Faster than two thirds of the runs: others use the machine.
  double time() {
    auto third = times.begin() + static_cast<ptrdiff_t>(times.size() / 3);
    std::nth_element(times.begin(), third, times.end());
    return *third;
  }
};
} // namespace

static void time(const char *what, const task::Params &params, double flops) {
  if (!std::strstr(what, filter))
    return;
  auto needs = task::operandNeeds(params, *Mesh::parse(""));
  std::vector<std::unique_ptr<Ready>> ways;
  for (auto who : {onednn::Products::OfMachine, onednn::Products::OfLibrary}) {
    auto call = onednn::oneDnn(who).create(params);
    if (!call || !needs) {
      std::printf("%s: %s\n", what, call ? "bad" : call.error().message.c_str());
      return;
    }
    if (ways.empty() || ways[0]->call->implementation() != (*call)->implementation())
      ways.push_back(std::make_unique<Ready>(*call, params, *needs));
  }
  for (int i = 0; i < 30; ++i)
    for (auto &way : ways)
      way->run();
  for (auto &way : ways) {
    auto sizes = way->call->sizes();
    std::printf("%-44s %8.3f ms %7.1f GFLOP/s  scratch %9llu  packed %9llu  %s\n", what,
                way->time() * 1e3, flops / way->time() * 1e-9,
                static_cast<unsigned long long>(sizes.scratch),
                static_cast<unsigned long long>(sizes.packed),
                way->call->implementation().c_str());
  }
}

/// Products of bytes are summed as i32, without a bias.
template <typename Params> static bool setTypes(Params &p, const std::string &type) {
  if (type == "u8s8") {
    p.dtype = PARTITA_DTYPE_I32;
    p.a_dtype = PARTITA_DTYPE_U8, p.b_dtype = PARTITA_DTYPE_I8;
    return true;
  }
  p.dtype = type == "bf16"  ? PARTITA_DTYPE_BF16
            : type == "f16" ? PARTITA_DTYPE_F16
                            : PARTITA_DTYPE_F32;
  return type == "bf16" || type == "f16" || type == "f32";
}

/// "matmul TYPE M N K" or "conv TYPE IN OUT SIZE KERNEL STRIDE GROUPS".
static std::optional<task::Params> parse(const std::string &line) {
  std::istringstream in(line);
  std::string kind, type;
  in >> kind >> type;
  if (kind == "matmul") {
    task::MatMul p;
    in >> p.m >> p.n >> p.k;
    p.a_row = p.k, p.a_col = 1, p.b_row = p.c_row = p.n, p.b_col = 1;
    p.b_packed = true;
    p.bias_mask = type != "u8s8";
    return in && setTypes(p, type) ? std::optional<task::Params>(p) : std::nullopt;
  }
  task::Conv p;
  int64_t size = 0, kernel = 0, stride = 0;
  in >> p.in_channels >> p.out_channels >> size >> kernel >> stride >> p.groups;
  if (kind != "conv" || !in || stride < 1 || !setTypes(p, type))
    return std::nullopt;
  p.batch = 1, p.weights_packed = true, p.has_bias = type != "u8s8";
  p.src_format = p.dst_format = PARTITA_FORMAT_CHANNELS_LAST;
  const int64_t pad = kernel / 2, result = (size + 2 * pad - kernel) / stride + 1;
  p.spatial.assign(2, {size, result, kernel, stride, 1, pad, pad});
  return p;
}

/// Our own kernels for it, by vectors of 512 bits where these may be used.
static std::shared_ptr<const engine::Call> ownCall(const task::Params &params) {
  const char *most = std::getenv("ONEDNN_MAX_CPU_ISA");
  const bool isWide =
      !most || (std::strcmp(most, "AVX2") != 0 && std::strcmp(most, "AVX512_CORE") != 0);
  if (auto *conv = std::get_if<task::Conv>(&params); conv && task::isOfBytes(*conv))
    return gemm::byteConv(*conv, isWide);
  auto call = onednn::oneDnn(onednn::Products::Own).create(params);
  return call ? *call : nullptr;
}

/// The runtime's choice first, then what each side does by itself where that differs.
static void solve(const std::string &line) {
  auto params = parse(line);
  auto needs = params ? task::operandNeeds(*params, *Mesh::parse(""))
                      : makeError("no problem: '" + line + "'");
  if (!needs) {
    std::fprintf(stderr, "%s\n", needs.error().message.c_str());
    std::exit(1);
  }
  std::vector<std::pair<const char *, std::unique_ptr<Ready>>> ways;
  auto add = [&](const char *name, const std::shared_ptr<const engine::Call> &call) {
    if (call)
      ways.emplace_back(name, std::make_unique<Ready>(call, *params, *needs));
  };
  for (auto [name, who] : {std::pair("runtime", onednn::Products::OfMachine),
                           std::pair("packaged", onednn::Products::OfLibrary)})
    add(name, onednn::oneDnn(who).create(*params).value_or(nullptr));
  add("own", ownCall(*params));
  for (int i = 0; i < 30; ++i)
    for (auto &[name, way] : ways)
      way->run();
  std::printf("{");
  for (auto &[name, way] : ways)
    std::printf("%s\"%s\": [%.6f, \"%s\"]", name == ways[0].first ? "" : ", ", name,
                way->time() * 1e3, way->call->implementation().c_str());
  std::printf("}\n");
  std::fflush(stdout);
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
  time(what, p, 2.0 * m * n * k * batch);
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
    time(what, p, 2.0 * in / groups * out * kernel * kernel * result * result);
  }
}

/// Blocks of ResNet-50 whose pictures have `size` rows, and the change from those before.
static void stage(int64_t before, int64_t channels, int64_t size) {
  const int64_t wide = 4 * channels, stride = before == channels ? 1 : 2;
  conv(before, channels, size * stride, 1, 1, 1, false);
  conv(before, wide, size * stride, 1, stride, 1, false);
  if (stride > 1)
    conv(channels, channels, size * stride, 3, stride, 1, false);
  conv(wide, channels, size, 1, 1, 1, false);
  conv(channels, channels, size, 3, 1, 1, false);
  conv(channels, wide, size, 1, 1, 1, true);
}

int main(int argc, char **argv) {
  runtime::setTeamSize(argc > 1 ? std::atoi(argv[1]) : 1);
  filter = argc > 2 ? argv[2] : "";
  if (!std::strcmp(filter, "-")) {
    for (std::string line; std::getline(std::cin, line);)
      solve(line);
    return 0;
  }
  matmul(128, 768, 768, 1, true);
  matmul(128, 3072, 768, 1, true);
  matmul(128, 768, 3072, 1, true);
  matmul(128, 3072, 768, 1, false);
  matmul(128, 128, 64, 12, false);
  matmul(128, 64, 128, 12, false);
  matmul(1, 768, 768, 1, true);
  conv(3, 64, 224, 7, 2, 1, false);
  stage(64, 64, 56);
  stage(256, 128, 28);
  stage(512, 256, 14);
  stage(1024, 512, 7);
  conv(32, 32, 56, 3, 1, 1, false);
  conv(16, 16, 160, 3, 1, 1, false);
  conv(96, 96, 56, 3, 1, 96, false);
}
