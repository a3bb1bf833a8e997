//===- Presets.cpp - Devices and servers that are known by name -----------===//
//
// Every constant has its source beside it. "guide" is the Azure AI benchmarking guide
// (github.com/Azure/AI-benchmarking-guide, Azure_Results): cuBLASLt, BabelStream and
// nccl-tests on ND A100 v4 and ND H100 v5. Factors of contention are fitted to half of
// Mist's measurements (EuroSys 2025) by bench/published/overlap.py.
//
//===----------------------------------------------------------------------===//
#include "partita/Topology/Presets.h"

using namespace partita;

static constexpr int64_t MiB = int64_t(1) << 20, GiB = int64_t(1) << 30;

/// `unseen`: what CUDA does not show of the memory on the data sheet. A context without
/// kernels takes 320 MiB (Titan V, pytorch issue 28394), with kernels that are loaded
/// when they are needed 543 MiB (A100, pytorch issue 81257). A communicator of NCCL takes
/// 688 MB (A100, NVLink, more than two ranks; nccl issue 964); there are two, as for data
/// and tensor parallelism. An arena has at most 2% beside the values that are alive when
/// they take most.
static MemoryReserve cudaReserve(int64_t memory, int64_t unseen) {
  return {unseen + 543 * MiB, 2 * 688 * int64_t(1000000), memory / 50};
}

/// The tile sizes of cuBLAS kernels (cublasLtMatmulTile_t) that have at least 64 rows and
/// columns and fit the accumulators of one multiprocessor.
static std::vector<MatmulTile> cublasTiles() {
  return {{256, 128}, {128, 256}, {192, 128}, {128, 192}, {160, 128}, {128, 160},
          {128, 128}, {96, 128},  {128, 96},  {128, 64},  {64, 128},  {64, 64}};
}

/// NVIDIA V100 SXM2 data sheet: 125 TFLOP/s tensor, 15.7 f32, 7.8 f64, 900 GB/s; 80
/// multiprocessors (Volta white paper). What software reaches of it was not measured by
/// the guide: the A100's fractions stand in.
static Device v100(std::string name, int64_t memory, const Contention &contention) {
  // PyTorch shows 31.74 of 32 GiB (ChatGLM-Finetuning issue 73).
  Device device;
  device.name = std::move(name);
  device.peak = {{DType::F16, 125e12},
                 {DType::F32, 15.7e12},
                 {DType::F64, 7.8e12},
                 {DType::I8, 62e12}};
  device.memory = memory;
  device.reserve = cudaReserve(memory, 266 * MiB);
  device.memoryBandwidth = 900e9;
  device.memoryEfficiency = 0.834;
  device.launch = 4e-6;
  device.matmul = {80, cublasTiles(), 0.92, 10, 64, 16, 0.8};
  device.contention = contention;
  return device;
}

/// NVIDIA A100 80GB SXM data sheet: 312 TFLOP/s f16 and bf16, 19.5 f32, 9.7 f64, 624 i8,
/// 2,039 GB/s; 108 multiprocessors (Ampere white paper).
static Device a100() {
  Device device;
  device.name = "A100-80GB";
  device.peak = {{DType::F16, 312e12},
                 {DType::BF16, 312e12},
                 {DType::F32, 19.5e12},
                 {DType::F64, 9.7e12},
                 {DType::I8, 624e12}};
  device.memory = 80 * GiB;
  // PyTorch shows 79.25 GiB (OOTDiffusion issue 235).
  device.reserve = cudaReserve(device.memory, 768 * MiB);
  device.memoryBandwidth = 2039e9;
  // Guide: triad 1.70 TB/s.
  device.memoryEfficiency = 0.834;
  // nccl-tests issue 331: 8 bytes between two A100 take 9.9 µs, of which two messages of
  // 3 µs.
  device.launch = 4e-6;
  // Guide: 16384³ in f16 at 256.5 TFLOP/s, which is 0.822 of the peak, so 0.92 before the
  // largest tile's loads; halfTile, fillSteps and misaligned from
  // the other rows of its table; 16 bytes: NVIDIA's matrix multiplication guide, 2.2.
  device.matmul = {108, cublasTiles(), 0.92, 10, 64, 16, 0.8};
  // Measured on the A100 40GB.
  device.contention = Contention({1.12, 1.00, 1.03, 1.51, 1.85, 1.16});
  return device;
}

/// NVIDIA H100 80GB SXM data sheet: 989 TFLOP/s f16 and bf16, 67 f32, 34 f64, 1,979 i8,
/// 3.35 TB/s; 132 multiprocessors (Hopper white paper).
static Device h100(std::string name) {
  Device device;
  device.name = std::move(name);
  device.peak = {{DType::F16, 989e12},
                 {DType::BF16, 989e12},
                 {DType::F32, 67e12},
                 {DType::F64, 34e12},
                 {DType::I8, 1979e12}};
  device.memory = 80 * GiB;
  // PyTorch shows 79.11 GiB (vllm issue 27508).
  device.reserve = cudaReserve(device.memory, 911 * MiB);
  device.memoryBandwidth = 3350e9;
  // Guide: triad 2.97 TB/s.
  device.memoryEfficiency = 0.887;
  device.launch = 4e-6;
  // Guide: 16384³ in f8 at 1,377 of 1,979 TFLOP/s, 0.70, so 0.78 before the loads. Its
  // f16 was not measured.
  device.matmul = {132, cublasTiles(), 0.78, 10, 64, 16, 0.8};
  return device;
}

/// The H100 of Grand Teton servers: 96 GB of HBM2e at 2.4 TB/s and 500 W (torchtitan,
/// benchmarks/llama3_h100_202412_torchtitan.md). What it computes at most is that of
/// 700 W; what it does under its own limit is a stack's.
static Device h100OfLessPower() {
  Device device = h100("H100-96GB");
  device.memory = 96 * GiB;
  device.reserve = cudaReserve(device.memory, 911 * MiB);
  device.memoryBandwidth = 2400e9;
  return device;
}

/// One core of an x86-64 host with AVX-512: 115 GFLOP/s f32 in oneDNN's matrix products,
/// which is its peak at the 1.8 GHz of wide vectors (2 units × 16 lanes × 2). Memory is
/// one core's share of a server socket. A stand-in for a host that has not been measured.
static Device cpuCore() {
  Device device;
  device.name = "cpu-core";
  device.peak = {{DType::F32, 115e9}, {DType::F64, 57e9}};
  device.memory = 4 * GiB;
  device.memoryBandwidth = 10e9;
  device.launch = 1e-6;
  // oneDNN's AVX-512 micro-kernel keeps 8 × 48 accumulators in registers.
  device.matmul = {1, {{8, 48}}, 1, 0, 16};
  // The runtime's convolutions: 3 × 3 of 16 to 64 channels at 160² to 56² (`bench-engine
  // 1 3x3`, AMD EPYC), what they take beyond their products at the peak. Its engines
  // compute no functions behind a product (docs/codegen.md).
  device.matmul.winograd = 8e9;
  device.matmul.functionsApart = true;
  device.matmul.streamsAttention = true;
  return device;
}

std::optional<Device> partita::devicePreset(std::string_view name) {
  if (name == "V100-16GB")
    return v100("V100-16GB", 16 * GiB, Contention({1.00, 1.86, 1.91, 1.66, 1.72, 1.93}));
  if (name == "V100-32GB")
    return v100("V100-32GB", 32 * GiB, Contention({1.39, 1.00, 1.02, 1.27, 1.21, 1.25}));
  if (name == "A100-80GB")
    return a100();
  if (name == "H100-80GB")
    return h100("H100-80GB");
  if (name == "H100-96GB")
    return h100OfLessPower();
  if (name == "cpu-core")
    return cpuCore();
  return std::nullopt;
}

std::vector<std::string> partita::devicePresetNames() {
  return {"V100-16GB", "V100-32GB", "A100-80GB", "H100-80GB", "H100-96GB", "cpu-core"};
}

std::optional<LinkLevel> partita::levelPreset(std::string_view name) {
  // NVLink: data sheets, one direction. Reached: guide, all-reduce of 8 GB on 8 A100 at
  // 231 of 300 GB/s and half of that below 16 MB; V100 as A100. NVLink 4: all-gather
  // over 8 H100 at 320 of 450 GB/s (Meta's autoparallel, NCCL cost model); reductions
  // inside the switch, which reach 479 GB/s in the guide, are not modelled.
  // Latency: see a100(); 3 µs a message.
  if (name == "nvlink2")
    return LinkLevel{"nvlink2", 1, 150e9, 3e-6, 1, 0.77, 16e6};
  if (name == "nvlink3")
    return LinkLevel{"nvlink3", 1, 300e9, 3e-6, 1, 0.77, 16e6};
  if (name == "nvlink4")
    return LinkLevel{"nvlink4", 1, 450e9, 3e-6, 1, 0.71, 16e6};
  // InfiniBand with adapters of 100, 200, 400 Gb/s: 4 per 8 devices (DGX-1), one per
  // device (DGX A100, H100). 24 of 25 GB/s per 200 Gb/s is the peak that NCCL's authors
  // expect (nccl-tests issue 119). Latency: NCCL's tuning model (src/graph/tuning.cc), a
  // step of a ring over a network; on NVLink it has 3.4 µs.
  if (name == "edr")
    return LinkLevel{"edr", 1, 6.25e9, 14e-6, 1, 0.96, 16e6};
  if (name == "hdr")
    return LinkLevel{"hdr", 1, 25e9, 14e-6, 1, 0.96, 16e6};
  if (name == "ndr")
    return LinkLevel{"ndr", 1, 50e9, 14e-6, 1, 0.96, 16e6};
  // Ranks of one host copy through shared memory: one stream of reads and one of writes
  // share the core's memory bandwidth.
  if (name == "shared-memory")
    return LinkLevel{"shared-memory", 1, 5e9, 2e-6, 1, 1, 0};
  return std::nullopt;
}

std::vector<std::string> partita::levelPresetNames() {
  return {"nvlink2", "nvlink3", "nvlink4", "edr", "hdr", "ndr", "shared-memory"};
}

void StackPreset::applyTo(Topology &topology) const {
  topology.stack = stack;
  topology.device.matmul.functionsApart = functionsApart;
  if (efficiency > 0)
    topology.device.matmul.efficiency = efficiency;
}

/// XLA and PyTorch with FlashAttention on H100: functions of a product's result are
/// kernels of their own, and collectives of FSDP are in flight beside kernels.
static StackPreset hopperStack(const char *name, double efficiency,
                               double attentionEfficiency, bool isEager) {
  StackPreset preset{{name}, /*functionsApart=*/true, efficiency};
  preset.stack.flashAttention = true;
  preset.stack.attentionEfficiency = attentionEfficiency;
  preset.stack.isEager = isEager;
  preset.stack.overlaps = true;
  return preset;
}

std::vector<StackPreset> partita::stackPresets(std::string_view device) {
  // bench/published/fit.py, 79 of vTrain's steps on one server of A100.
  if (device == "A100-80GB")
    return {{{"megatron-2021", 20e-6, 56e-6, /*attentionApart=*/true},
             /*functionsApart=*/true}};
  // bench/published/fit.py, a seeded quarter of the rows of steps.csv in bf16. Attention:
  // FlashAttention-2, which torchtitan calls, reaches 35% of an H100 (Shah et al. 2024,
  // abstract); cuDNN's, which MaxText calls, what its shapes say.
  if (device == "H100-80GB")
    return {hopperStack("maxtext-2024", 0.83, 0, false)};
  if (device == "H100-96GB")
    return {hopperStack("torchtitan-2024", 0.65, 0.35, true),
            hopperStack("torchtitan-2024-compile", 0.65, 0.35, false)};
  return {};
}

static Topology server(const char *device, const char *level, int64_t size, Host host) {
  Topology result{*devicePreset(device), {*levelPreset(level)}, host};
  result.levels[0].size = size;
  return result;
}

std::optional<Topology> partita::serverPreset(std::string_view name) {
  // Host memory: the DGX data sheets (512 GB, 2 TB, 2 TB) over 8 devices; its bandwidth:
  // PCIe 3 ×16 shared by two devices, guide: 26 GB/s (A100) and 51 GB/s (H100).
  if (name == "DGX-V100")
    return server("V100-32GB", "nvlink2", 8, {64 * GiB, 6e9});
  if (name == "DGX-A100")
    return server("A100-80GB", "nvlink3", 8, {256 * GiB, 26e9});
  if (name == "DGX-H100")
    return server("H100-80GB", "nvlink4", 8, {256 * GiB, 51e9});
  // Threads of two ranks are woken, and the caller's; one rank of one thread takes 1 µs.
  if (name == "cpu-host")
    return server("cpu-core", "shared-memory", 2, {4 * GiB, 10e9, 10e-6});
  return std::nullopt;
}

std::vector<std::string> partita::serverPresetNames() {
  return {"DGX-V100", "DGX-A100", "DGX-H100", "cpu-host"};
}
