//===- MeasureKernels.cpp - One model of independent nodes ----------------===//
#include "Measure.h"

#include "common/Interrupt.h"
#include "dialects/Graph/Graph.h"
#include "partita/Base/Units.h"
#include "partita/Onnx/Write.h"
#include "partita/Reference/Kernels.h"
#include "partita/Rule/Scalar/Payload.h"
#include "partita/Runtime/Session.h"
#include "passes/Pipelines/Compile.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <unistd.h>

using namespace partita;

static constexpr int warmUps = 2, requests = 12;

/// Where the user wants temporary files; /tmp if that is no folder.
static std::filesystem::path temporaryFolder() {
  std::error_code failed;
  auto folder = std::filesystem::temp_directory_path(failed);
  return failed ? "/tmp" : folder;
}

namespace {
/// A folder that is gone when this is.
struct TemporaryFolder {
  TemporaryFolder()
      : path(temporaryFolder() / ("partita-calibrate-" + std::to_string(::getpid()))),
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

  /// Every kernel runs `length` times in a row, each on what the one before has written,
  /// and the last is the sample: it finds its code and its operands in caches, as most
  /// kernels of a program do. What is not read again is another output.
  static constexpr int length = 3;

  /// The first task of a request waits for the other ranks' and for its own code; the
  /// first after a large one finds none of it in the cache. Neither is what a kernel
  /// costs among others: one that is not a sample goes before.
  void warmUp() {
    std::string name = "warm-up " + std::to_string(++numWarmUps);
    give(node("MatMul", name, {input(name, {16, 128}), weight(name, {128, 64})})
             .outputs[0]);
    name += " relu";
    give(node("Relu", name, {input(name, {16, 32})}).outputs[0]);
  }
  /// Read from where nobody has been since the last request.
  void farStream(int64_t rows, int64_t columns) {
    double bytes = 2.0 * 4 * static_cast<double>(rows * columns);
    std::string name = "relu of " + bytesText(static_cast<int64_t>(bytes)) + ", far";
    give(node("Relu", name, {input(name, {rows, columns})}).outputs[0]);
    streamNodes.emplace_back(name, StreamSample{bytes, 0, 0, true});
  }
  /// `perPoint` steps on each element, as FlowOp::steps counts them.
  void stream(const std::string &op, int64_t rows, int64_t columns, int64_t perPoint) {
    auto points = static_cast<double>(rows * columns);
    std::string word = op;
    std::ranges::transform(word, word.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    std::string name = word + " of " + bytesText(static_cast<int64_t>(8 * points));
    std::string value = input(name, {rows, columns}), one = weight(name, {columns, 1});
    for (int i = 0; i < length; ++i) {
      onnx_model::Node &it = node(op, step(name, i), {apart(value, one, step(name, i))});
      if (op == "Softmax")
        it.attributes["axis"] = int64_t(-1);
      value = it.outputs[0];
      give(value);
    }
    streamNodes.emplace_back(
        name,
        StreamSample{8 * points, 0, points * static_cast<double>(perPoint + 1), false});
  }
  /// Softmax of the rows, of the columns, of the rows…: a kernel each, since rows of a
  /// kernel lie along the same dims; and products with a square behind them. No rank
  /// needs what another one has. An input of so many columns as are `given`, if that is
  /// more than 0, has the others for nothing.
  RequestSample chain(int kernels, int products, int64_t rows, int64_t columns,
                      int64_t given) {
    const std::string name = "chain";
    const int64_t all = std::max(given, columns);
    std::string value = input(name, {1, rows, all});
    if (all > columns) {
      const std::string begin = number(name + " begin", 0),
                        end = number(name + " end", static_cast<double>(columns)),
                        axis = number(name + " axis", 2);
      value = node("Slice", name + " columns", {value, begin, end, axis}).outputs[0];
    }
    for (int i = 0; i < kernels; ++i) {
      onnx_model::Node &it = node("Softmax", name + std::to_string(i), {value});
      it.attributes["axis"] = int64_t(i % 2 ? 1 : 2);
      value = it.outputs[0];
    }
    const std::string square = products > 0 ? weight(name, {columns, columns}) : "";
    for (int i = 0; i < products; ++i)
      value = node("MatMul", name + " product" + std::to_string(i), {value, square})
                  .outputs[0];
    give(value);
    const auto points = static_cast<double>(rows * columns);
    RequestSample sample;
    sample.kernel = {8 * points, 0, points * graph::SoftmaxOp::stepsPerElement, false};
    sample.kernels = kernels;
    sample.product = {DType::F32, {1, rows, columns, columns}, 0, 0, {}};
    sample.products = products;
    sample.bytes = 4 * (points + static_cast<double>(rows * all));
    return sample;
  }
  /// To columns and back, so that the last of three is of the same shape as the first.
  /// Bytes are unsigned, those of the weight signed; sums become bytes again in between.
  void matmul(int64_t m, int64_t n, int64_t k, DType type = DType::F32) {
    const bool isOfBytes = type == DType::U8;
    std::string name =
        "matmul " + std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n);
    if (type != DType::F32)
      name += " of " + std::string(partita::name(type));
    const DType right = isOfBytes ? DType::I8 : type;
    std::string forth = weight(name, {k, n}, right), value = input(name, {m, k}, type);
    std::string back = n == k ? forth : weight(name + " back", {n, k}, right);
    for (int i = 0; i < length; ++i) {
      if (i > 0 && isOfBytes)
        value = bytesOf(value, step(name, i));
      value = node(isOfBytes ? "MatMulInteger" : "MatMul", step(name, i),
                   {value, i % 2 ? back : forth})
                  .outputs[0];
    }
    give(value, isOfBytes ? DType::I32 : type);
    matmulNodes.emplace_back(name, MatmulShape{1, m, n, k});
    types[name] = type;
  }
  /// With a weight that nobody has read since the last request.
  void farMatmul(int64_t m, int64_t n, int64_t k) {
    std::string name = "matmul " + std::to_string(m) + "x" + std::to_string(k) + "x" +
                       std::to_string(n) + ", far";
    give(node("MatMul", name, {input(name, {m, k}), weight(name, {k, n})}).outputs[0]);
    matmulNodes.emplace_back(name, MatmulShape{1, m, n, k});
    farBytes[name] = 4.0 * static_cast<double>(k * n);
  }
  /// Attention's: `batch` products of two computed operands, to `n` columns and back.
  void products(int64_t batch, int64_t m, int64_t n, int64_t k) {
    std::string name = "matmul " + std::to_string(batch) + " of " + std::to_string(m) +
                       "x" + std::to_string(k) + "x" + std::to_string(n);
    std::string forth = input(name, {batch, k, n}),
                back = input(name + " back", {batch, n, k}),
                value = input(name + " rows", {batch, m, k});
    for (int i = 0; i < length; ++i)
      value = node("MatMul", step(name, i), {value, i % 2 ? back : forth}).outputs[0];
    give(value);
    matmulNodes.emplace_back(name, MatmulShape{batch, m, n, k});
  }
  /// `size` pixels in square, taps² taps, to other channels and back.
  void conv(int64_t pictures, int64_t from, int64_t to, int64_t size, int64_t taps) {
    std::string name = "conv " + std::to_string(taps) + "x" + std::to_string(taps) + " " +
                       std::to_string(from) + " to " + std::to_string(to) + " at " +
                       std::to_string(size) + "x" + std::to_string(size);
    if (pictures != 1)
      name += " of " + std::to_string(pictures);
    std::string forth = weight(name, {to, from, taps, taps});
    std::string back =
        from == to ? forth : weight(name + " back", {from, to, taps, taps});
    std::string value = input(name, {pictures, from, size, size});
    // One more behind the sample: what the program gives lies in another order than what
    // one convolution leaves for the next.
    for (int i = 0; i <= length; ++i) {
      onnx_model::Node &it = node("Conv", i < length ? step(name, i) : "behind " + name,
                                  {value, i % 2 ? back : forth});
      it.attributes["pads"] = std::vector<int64_t>(4, taps / 2);
      it.attributes["strides"] = std::vector<int64_t>(2, 1);
      it.attributes["dilations"] = std::vector<int64_t>(2, 1);
      it.attributes["kernel_shape"] = std::vector<int64_t>(2, taps);
      it.attributes["group"] = int64_t(1);
      value = it.outputs[0];
    }
    give(value);
    matmulNodes.emplace_back(
        name, MatmulShape{1, pictures * size * size, to, from * taps * taps});
    if (taps == 3)
      convs[name] = WinogradShape{pictures, size, size, from, to};
  }

  onnx_model::Model model;
  std::vector<std::pair<std::string, StreamSample>> streamNodes; ///< without seconds
  std::vector<std::pair<std::string, MatmulShape>> matmulNodes;
  std::map<std::string, DType> types;         ///< of the matmuls; others are f32
  std::map<std::string, double> farBytes;     ///< of the matmuls, where there are any
  std::map<std::string, WinogradShape> convs; ///< of 3 × 3 among them

private:
  /// The value plus a product with it: three kernels that need nothing of each other but
  /// what the one before has written would be one kernel of three results.
  std::string apart(const std::string &value, const std::string &weight,
                    const std::string &name) {
    std::string sum = node("MatMul", "sum " + name, {value, weight}).outputs[0];
    return node("Add", "apart " + name, {value, sum}).outputs[0];
  }
  /// The last one has the sample's name.
  static std::string step(const std::string &name, int i) {
    return i + 1 == length ? name : "before " + std::to_string(i) + " " + name;
  }
  std::string bytesOf(const std::string &value, const std::string &name) {
    onnx_model::Node &it = node("Cast", "bytes " + name, {value});
    it.attributes["to"] = int64_t(2); // onnx.TensorProto.UINT8
    return it.outputs[0];
  }
  void give(const std::string &value, DType type = DType::F32) {
    model.graph.outputs.push_back(value);
    model.graph.outputTypes.push_back(type);
  }
  std::string input(const std::string &node, std::vector<int64_t> shape,
                    DType type = DType::F32) {
    shape[0] *= ranks;
    model.graph.inputs.push_back({"x of " + node, type, std::move(shape)});
    model.inputNames.push_back(model.graph.inputs.back().name);
    return model.graph.inputs.back().name;
  }
  std::string weight(const std::string &node, std::vector<int64_t> shape,
                     DType type = DType::F32) {
    std::vector<double> numbers(static_cast<size_t>(elementCount(shape)));
    uint32_t state = 1; // not uniform: a tensor of one value is stored as a number
    for (double &number : numbers) {
      state = state * 1664525 + 1013904223;
      number = type == DType::I8 ? static_cast<double>(state >> 24) - 128
                                 : static_cast<double>(state >> 8) * 0x1p-28;
    }
    return constant("w of " + node, std::move(shape), type, numbers);
  }
  std::string number(const std::string &name, double value) {
    return constant(name, {1}, DType::I64, {value});
  }
  std::string constant(const std::string &name, std::vector<int64_t> shape, DType type,
                       const std::vector<double> &numbers) {
    auto values =
        std::make_shared<HostTensor>(reference::tensor<double>(type, shape, numbers));
    onnx_model::Tensor tensor;
    tensor.name = name;
    tensor.type = type;
    tensor.shape = std::move(shape);
    tensor.bytes = values->bytes;
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
    return model.graph.nodes.back();
  }

  int ranks;
  int numWarmUps = 0;
};
} // namespace

/// Steps of an elementwise op per element.
template <typename Op> static int64_t stepsOf() {
  return Payload::parse(Op::payloadText())->steps();
}

/// Shapes of transformers, vision models and small heads; 12 MiB at most, so that a run
/// takes seconds on any machine.
static Workload makeWorkload(int ranks) {
  Workload work(ranks);
  work.warmUp();
  for (int64_t columns : {65536, 262144, 1048576})
    work.farStream(4, columns);
  work.warmUp();
  for (int64_t columns : {16, 256, 4096, 16384, 65536, 262144, 524288, 1048576})
    work.stream("Relu", 4, columns, stepsOf<graph::ReluOp>());
  work.warmUp();
  for (int64_t rows : {16, 128, 512}) {
    work.stream("Sigmoid", rows, 128, stepsOf<graph::SigmoidOp>());
    work.stream("Tanh", rows, 128, stepsOf<graph::TanhOp>());
    work.stream("Gelu", rows, 128, stepsOf<graph::GeluOp>());
    work.stream("Softmax", rows, 128, graph::SoftmaxOp::stepsPerElement);
  }
  work.warmUp();
  for (int64_t m : {1, 16, 128, 512}) {
    work.matmul(m, 64, 64);
    work.matmul(m, 256, 256);
    work.matmul(m, 768, 768);
    if (m == 1)
      continue;
    work.matmul(m, 3072, 768);
    work.matmul(m, 768, 3072);
  }
  for (DType type : {DType::BF16, DType::F16, DType::U8})
    for (int64_t m : {1, 16, 128, 512}) {
      work.matmul(m, 768, 768, type);
      work.matmul(m, 3072, 768, type);
    }
  for (int64_t columns : {1, 16, 64, 512})
    work.matmul(64, columns, 8);
  work.farMatmul(1, 3072, 768);
  work.farMatmul(1, 768, 3072);
  work.matmul(512, 4, 64);
  work.matmul(128, 128, 64);
  work.matmul(256, 1000, 512);
  work.products(4, 128, 128, 64);
  work.products(4, 64, 512, 64);
  work.conv(1, 64, 64, 56, 3);
  work.conv(1, 256, 64, 56, 1);
  work.conv(1, 256, 256, 14, 3);
  work.conv(1, 512, 2048, 7, 1);
  work.conv(8, 16, 16, 16, 3);
  work.conv(8, 32, 64, 8, 1);
  work.conv(8, 128, 128, 4, 3);
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

namespace {
/// Inputs and outputs of a session's requests.
struct Tensors {
  explicit Tensors(const runtime::Session &session) {
    for (const runtime::TensorInfo &info : session.inputs())
      inputs.push_back(add(info));
    for (const runtime::TensorInfo &info : session.outputs())
      outputs.push_back(add(info));
  }
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;

private:
  std::byte *add(const runtime::TensorInfo &info) {
    memory.emplace_back(elementCount(info.shape), 0.5F);
    return reinterpret_cast<std::byte *>(memory.back().data());
  }
  std::vector<std::vector<float>> memory;
};
} // namespace

static Expected<std::map<std::string, std::vector<double>>>
runRequests(runtime::Session &session) {
  Tensors tensors(session);
  for (int i = 0; i < warmUps + requests; ++i)
    if (auto ok = session.run(tensors.inputs, tensors.outputs); !ok)
      return tl::unexpected(ok.error());
  auto profile = session.profile();
  if (!profile)
    return tl::unexpected(profile.error());
  return secondsByNode(*profile);
}

/// A model whose batch is split over the ranks, ready for requests, of which the first
/// `profile` are recorded.
static Expected<std::unique_ptr<runtime::Session>>
load(const onnx_model::Model &model, int ranks, int threads, int64_t profile) {
  TemporaryFolder folder;
  Request request;
  request.model.file = folder.path / "kernels.onnx";
  request.emission.output = folder.path / "bundle";
  if (ranks > 1)
    request.meshes = {*Mesh::create({{"r", ranks}})};
  request.mode = ShardMode::DataParallel;
  request.target.threads = threads;
  if (auto ok = onnx_model::writeModel(model, request.model.file); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = compileModel(request, [](const std::string &) {}); !ok)
    return tl::unexpected(ok.error());
  runtime::SessionOptions options;
  options.profile = profile;
  return runtime::Session::load(request.emission.output, options);
}

/// Seconds that a quarter of the requests do not exceed: they wait for a core now and
/// then, beside other programs.
static Expected<double> requestSeconds(const onnx_model::Model &model, int ranks,
                                       int threads) {
  constexpr size_t count = 400;
  auto session = load(model, ranks, threads, 0);
  if (!session)
    return tl::unexpected(session.error());
  Tensors tensors(**session);
  std::vector<double> took;
  for (size_t i = 0; i < count; ++i) {
    auto start = std::chrono::steady_clock::now();
    if (auto ok = (*session)->run(tensors.inputs, tensors.outputs); !ok)
      return tl::unexpected(ok.error());
    took.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  auto typical = took.begin() + count / 4;
  std::nth_element(took.begin(), typical, took.end());
  return *typical;
}

Expected<RequestSamples> partita::measureRequests(int ranks, int threads) {
  RequestSamples samples;
  struct Wanted {
    RequestSample *sample;
    int kernels, products;
    int64_t rows, columns;
    int64_t given = 0;
  };
  const Wanted wanted[] = {{&samples.small, 1, 0, 2, 4},
                           {&samples.chain, 9, 0, 2, 4},
                           {&samples.calls, 1, 8, 32, 8},
                           {&samples.large, 1, 0, 2, 4, 1 << 18}};
  for (const auto &[sample, kernels, products, rows, columns, given] : wanted) {
    Workload work(ranks);
    *sample = work.chain(kernels, products, rows, columns, given);
    auto seconds = requestSeconds(work.model, ranks, threads);
    if (!seconds)
      return tl::unexpected(seconds.error());
    sample->seconds = *seconds;
  }
  return samples;
}

Expected<KernelSamples> partita::measureKernels(int ranks, int threads) {
  Workload work = makeWorkload(ranks);
  auto session = load(work.model, ranks, threads, warmUps + requests);
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
  for (const auto &[node, sample] : work.streamNodes) {
    auto time = of(node);
    if (!time)
      return tl::unexpected(time.error());
    samples.streams.push_back(sample);
    samples.streams.back().seconds = *time;
    samples.streamNames.push_back(node);
  }
  for (const auto &[node, shape] : work.matmulNodes) {
    auto time = of(node);
    if (!time)
      return tl::unexpected(time.error());
    auto far = work.farBytes.find(node);
    auto type = work.types.find(node);
    samples.matmuls.push_back({type == work.types.end() ? DType::F32 : type->second,
                               shape, *time,
                               far == work.farBytes.end() ? 0 : far->second});
    if (auto conv = work.convs.find(node); conv != work.convs.end())
      samples.matmuls.back().conv = conv->second;
    samples.names.push_back(node);
  }
  return samples;
}
