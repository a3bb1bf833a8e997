//===- MeasureKernels.cpp - One model of independent nodes ----------------===//
#include "Measure.h"

#include "common/Interrupt.h"
#include "partita/Onnx/Write.h"
#include "partita/Runtime/Session.h"
#include "passes/Pipelines/Compile.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <unistd.h>

using namespace partita;

static constexpr int warmUps = 2, requests = 12;

namespace {
/// A folder that is gone when this is.
struct TemporaryFolder {
  TemporaryFolder()
      : path(std::filesystem::temp_directory_path() /
             ("partita-calibrate-" + std::to_string(::getpid()))),
        interrupt(path.string()) {
    std::error_code code;
    std::filesystem::create_directories(path, code);
  }
  ~TemporaryFolder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
  std::filesystem::path path;
  RemovedOnInterrupt interrupt;
};

/// The model, and what its nodes are samples of. The leading dim of every input is split
/// over the ranks, so that a rank has `m` rows, or one picture.
class Workload {
public:
  explicit Workload(int ranks) : ranks(ranks) {
    model.opsets[""] = 23;
    model.graph.name = "calibrate";
  }

  /// The first task of a request waits for the other ranks' and for its own code; the
  /// first after a large one finds none of it in the cache. Neither is what a kernel
  /// costs among others: one that is not a sample goes before.
  void warmUp() {
    std::string name = "warm-up " + std::to_string(++numWarmUps);
    node("MatMul", name, {input(name, {16, 128}), weight(name, {128, 64})});
    name += " relu";
    node("Relu", name, {input(name, {16, 32})});
  }
  void stream(int64_t rows, int64_t columns) {
    std::string name = "relu " + std::to_string(rows * columns);
    node("Relu", name, {input(name, {rows, columns})});
    streamNodes[name] = 2.0 * 4 * static_cast<double>(rows * columns);
  }
  void matmul(int64_t m, int64_t n, int64_t k) {
    std::string name =
        "matmul " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
    node("MatMul", name, {input(name, {m, k}), weight(name, {k, n})});
    matmulNodes.emplace_back(name, MatmulShape{1, m, n, k});
  }
  /// `size` pixels in square, taps² taps.
  void conv(int64_t from, int64_t to, int64_t size, int64_t taps) {
    std::string name = "conv " + std::to_string(taps) + "x" + std::to_string(taps) + " " +
                       std::to_string(from) + " to " + std::to_string(to) + " at " +
                       std::to_string(size) + "x" + std::to_string(size);
    onnx_model::Node &it =
        node("Conv", name,
             {input(name, {1, from, size, size}), weight(name, {to, from, taps, taps})});
    it.attributes["pads"] = std::vector<int64_t>(4, taps / 2);
    it.attributes["strides"] = std::vector<int64_t>(2, 1);
    it.attributes["dilations"] = std::vector<int64_t>(2, 1);
    it.attributes["kernel_shape"] = std::vector<int64_t>(2, taps);
    it.attributes["group"] = int64_t(1);
    matmulNodes.emplace_back(name, MatmulShape{1, size * size, to, from * taps * taps});
  }

  onnx_model::Model model;
  std::map<std::string, double> streamNodes; ///< bytes by node
  std::vector<std::pair<std::string, MatmulShape>> matmulNodes;

private:
  std::string input(const std::string &node, std::vector<int64_t> shape) {
    shape[0] *= ranks;
    model.graph.inputs.push_back({"x of " + node, DType::F32, std::move(shape)});
    model.inputNames.push_back(model.graph.inputs.back().name);
    return model.graph.inputs.back().name;
  }
  std::string weight(const std::string &node, std::vector<int64_t> shape) {
    auto count = static_cast<size_t>(elementCount(shape));
    auto values = std::make_shared<std::vector<float>>(count);
    uint32_t state = 1; // not uniform: a tensor of one value is stored as a number
    for (float &value : *values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<float>(state >> 8) * 0x1p-28F;
    }
    onnx_model::Tensor tensor;
    tensor.name = "w of " + node;
    tensor.shape = std::move(shape);
    tensor.bytes = std::as_bytes(std::span(*values));
    tensor.owner = values;
    model.graph.initializers.push_back(std::move(tensor));
    return model.graph.initializers.back().name;
  }
  onnx_model::Node &node(const std::string &op, const std::string &name,
                         std::vector<std::string> inputs) {
    onnx_model::Node it;
    it.name = it.origin = name;
    it.opType = op;
    it.inputs = std::move(inputs);
    it.outputs = {"y of " + name};
    model.graph.nodes.push_back(std::move(it));
    model.graph.outputs.push_back(model.graph.nodes.back().outputs[0]);
    model.graph.outputTypes.push_back(DType::F32);
    return model.graph.nodes.back();
  }

  int ranks;
  int numWarmUps = 0;
};
} // namespace

/// Shapes of transformers, vision models and small heads; 12 MiB at most, so that a run
/// takes seconds on any machine.
static Workload makeWorkload(int ranks) {
  Workload work(ranks);
  work.warmUp();
  for (int64_t columns : {16, 256, 4096, 16384, 65536, 262144, 1048576})
    work.stream(4, columns);
  work.warmUp();
  for (int64_t m : {1, 16, 128, 512}) {
    work.matmul(m, 64, 64);
    work.matmul(m, 256, 256);
    work.matmul(m, 768, 768);
    work.matmul(m, 3072, 768);
    work.matmul(m, 768, 3072);
  }
  work.matmul(128, 128, 64);
  work.matmul(256, 1000, 512);
  work.conv(64, 64, 56, 3);
  work.conv(256, 64, 56, 1);
  work.conv(256, 256, 14, 3);
  work.conv(512, 2048, 7, 1);
  return work;
}

/// Seconds by node, of the requests after the warm-ups, of the slowest rank.
static std::map<std::string, std::vector<double>>
secondsByNode(const RunProfile &profile) {
  std::map<std::string, std::vector<double>> slowest;
  for (const RankRecord &rank : profile.ranks) {
    std::map<std::string, std::vector<double>> mine;
    for (const RunSpan &span : rank.spans) {
      if (span.what != RunSpan::Task || span.request < warmUps)
        continue;
      auto &of = mine[profile.programs[rank.program].tasks[span.index].node];
      of.resize(requests);
      of[span.request - warmUps] += span.end - span.begin;
    }
    for (const auto &[node, seconds] : mine) {
      auto &of = slowest[node];
      of.resize(requests);
      std::ranges::transform(of, seconds, of.begin(),
                             [](double a, double b) { return std::max(a, b); });
    }
  }
  return slowest;
}

static Expected<std::map<std::string, std::vector<double>>>
runRequests(runtime::Session &session) {
  std::vector<std::vector<float>> tensors;
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  auto add = [&](const runtime::TensorInfo &info) {
    tensors.emplace_back(elementCount(info.shape), 0.5F);
    return reinterpret_cast<std::byte *>(tensors.back().data());
  };
  for (const runtime::TensorInfo &info : session.inputs())
    inputs.push_back(add(info));
  for (const runtime::TensorInfo &info : session.outputs())
    outputs.push_back(add(info));
  for (int i = 0; i < warmUps + requests; ++i)
    if (auto ok = session.run(inputs, outputs); !ok)
      return tl::unexpected(ok.error());
  auto profile = session.profile();
  if (!profile)
    return tl::unexpected(profile.error());
  return secondsByNode(*profile);
}

Expected<KernelSamples> partita::measureKernels(int ranks, int threads) {
  Workload work = makeWorkload(ranks);
  TemporaryFolder folder;
  CompileOptions options;
  options.model = folder.path / "kernels.onnx";
  options.output = folder.path / "bundle";
  options.mesh = ranks > 1 ? "r=" + std::to_string(ranks) : "";
  options.mode = "data-parallel";
  options.threads = threads;
  if (auto ok = onnx_model::writeModel(work.model, options.model); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = compileModel(options, [](const std::string &) {}); !ok)
    return tl::unexpected(ok.error());
  runtime::SessionOptions sessionOptions;
  sessionOptions.profile = warmUps + requests;
  auto session = runtime::Session::load(options.output, sessionOptions);
  if (!session)
    return tl::unexpected(session.error());
  auto seconds = runRequests(**session);
  if (!seconds)
    return tl::unexpected(seconds.error());
  KernelSamples samples;
  auto of = [&](const std::string &node) -> Expected<double> {
    auto it = seconds->find(node);
    double least = it == seconds->end()
                       ? 0
                       : *std::min_element(it->second.begin(), it->second.end());
    if (least <= 0)
      return makeError("calibrate: no time was measured for '" + node + "'");
    return least;
  };
  for (const auto &[node, bytes] : work.streamNodes) {
    auto time = of(node);
    if (!time)
      return tl::unexpected(time.error());
    samples.streams.push_back({bytes, *time});
  }
  std::sort(samples.streams.begin(), samples.streams.end(),
            [](const auto &a, const auto &b) { return a.bytes < b.bytes; });
  for (const auto &[node, shape] : work.matmulNodes) {
    auto time = of(node);
    if (!time)
      return tl::unexpected(time.error());
    samples.matmuls.push_back({DType::F32, shape, *time});
    samples.names.push_back(node);
  }
  return samples;
}
