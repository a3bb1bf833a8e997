//===- CalibrateCommand.cpp - partita calibrate ---------------------------===//
#include "Commands.h"

#include "Measure.h"
#include "common/CommandLine.h"
#include "common/OutputFile.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Units.h"
#include "partita/Topology/HostFile.h"
#include "partita/Topology/Presets.h"
#include "partita/Topology/WriteTopology.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <unistd.h>

using namespace partita;

namespace {
struct CalibrateOptions {
  std::string output;
  int ranks = 2;
  int threads = 1;
  bool mpi = false; ///< started by mpirun
  bool quiet = false;
};
} // namespace

/// What Linux calls this processor.
static std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "cpu";
}

/// Three digits are what such measurements are good for.
static double rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return std::strtod(text, nullptr);
}

static Topology startingPoint(const CalibrateOptions &options) {
  Topology topology{*devicePreset("cpu-core"), {*levelPreset("shared-memory")}, {}};
  int64_t memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                   static_cast<int64_t>(::sysconf(_SC_PAGESIZE)) / options.ranks;
  topology.device.name = processorName() + ", " + std::to_string(options.threads) +
                         (options.threads == 1 ? " thread" : " threads");
  topology.device.memory = memory;
  topology.levels[0].name = options.mpi ? "mpi" : "shared-memory";
  topology.levels[0].size = options.ranks;
  topology.levels[0].sharesMemory = !options.mpi;
  topology.host.memory = memory;
  return topology;
}

template <typename Sample>
static void printSample(const Topology &topology, const std::string &name,
                        const Sample &sample) {
  double predicted = predictedSeconds(topology, sample);
  std::printf("  %-36s %12s %12s %+7.0f%%\n", name.c_str(),
              durationText(sample.seconds).c_str(), durationText(predicted).c_str(),
              100 * (predicted / sample.seconds - 1));
}

static void print(const Topology &topology, const KernelSamples &kernels,
                  const std::vector<CollectiveSample> &collectives) {
  std::printf("  %-36s %12s %12s %8s\n", "", "measured", "predicted", "");
  for (size_t i = 0; i < kernels.streams.size(); ++i)
    printSample(topology, kernels.streamNames[i], kernels.streams[i]);
  for (size_t i = 0; i < kernels.matmuls.size(); ++i)
    printSample(topology, kernels.names[i], kernels.matmuls[i]);
  const RequestSamples &requests = kernels.requests;
  for (const RequestSample *it :
       {&requests.small, &requests.chain, &requests.calls, &requests.large})
    printSample(topology,
                "request of " + std::to_string(it->kernels) + " kernels, " +
                    std::to_string(it->products) + " calls, " +
                    bytesText(static_cast<int64_t>(it->bytes)),
                *it);
  for (const CollectiveSample &sample : collectives)
    printSample(topology,
                std::string(name(sample.kind)) + " of " +
                    bytesText(static_cast<int64_t>(sample.bytes)),
                sample);
}

/// Products of f32, and those of narrower types.
static std::pair<std::vector<MatmulSample>, std::vector<MatmulSample>>
byWidth(const std::vector<MatmulSample> &samples) {
  std::pair<std::vector<MatmulSample>, std::vector<MatmulSample>> result;
  for (const MatmulSample &sample : samples)
    (sample.type == DType::F32 ? result.first : result.second).push_back(sample);
  return result;
}

static void printErrors(const Topology &topology, const KernelSamples &kernels,
                        const std::vector<CollectiveSample> &collectives) {
  auto line = [](const char *what, const FitError &error) {
    std::printf("%s: mean error %.0f%%, largest %.0f%%\n", what, 100 * error.mean,
                100 * error.largest);
  };
  line("streams", fitError<StreamSample>(topology, kernels.streams));
  const auto [wide, narrow] = byWidth(kernels.matmuls);
  line("products and convolutions", fitError<MatmulSample>(topology, wide));
  line("products of narrower types", fitError<MatmulSample>(topology, narrow));
  if (!collectives.empty())
    line("collectives", fitError<CollectiveSample>(topology, collectives));
}

/// Fits, with the streams of the samples first: launch and bandwidth are in all others.
static void fit(Topology &topology, const KernelSamples &kernels,
                const std::vector<CollectiveSample> &collectives) {
  Device &device = topology.device;
  device.peak = {{DType::F32, 1e11}};
  fitStreams(device, kernels.streams);
  // Blocks of accumulators in registers that engines have for vectors of 4, 8, 16 floats.
  static constexpr MatmulTile tiles[] = {{1, 1}, {4, 8}, {6, 16}, {8, 48}, {14, 32}};
  const auto [wide, narrow] = byWidth(kernels.matmuls);
  fitMatmuls(device, wide, tiles);
  for (DType type : {DType::BF16, DType::F16, DType::U8}) {
    std::vector<MatmulSample> ofType;
    std::ranges::copy_if(narrow, std::back_inserter(ofType),
                         [&](const MatmulSample &sample) { return sample.type == type; });
    fitPeak(device, ofType);
  }
  if (!collectives.empty())
    fitCollectives(topology, collectives);
  fitRequests(topology, kernels.requests);
  topology.host.bandwidth = device.memoryBandwidth;
  for (auto &[type, rate] : device.peak)
    rate = rounded(rate);
  LinkLevel &level = topology.levels[0];
  for (double *value :
       {&device.memoryBandwidth, &device.launch, &device.cacheBandwidth,
        &device.pointwise, &device.matmul.halfTile, &device.matmul.fillSteps,
        &device.matmul.winograd, &level.bandwidth, &level.latency, &level.ramp,
        &topology.host.bandwidth, &topology.host.request, &topology.host.launch,
        &topology.host.call, &topology.host.copies})
    *value = rounded(*value);
}

static Expected<void> calibrate(CalibrateOptions options) {
  if (const char *size = std::getenv("OMPI_COMM_WORLD_SIZE")) {
    options.mpi = true;
    options.ranks = std::atoi(size);
  }
  const char *mpiRank = std::getenv("OMPI_COMM_WORLD_RANK");
  bool isRoot = !mpiRank || std::atoi(mpiRank) == 0;
  if (options.output.empty() && isRoot)
    return makeError("calibrate: there is no $HOME to write to; give --output");
  if (isRoot)
    if (auto ok = makeFolderOf(options.output); !ok)
      return ok;
  if (isRoot)
    std::fprintf(stderr, "measuring %d %s of %d %s…\n", options.ranks,
                 options.ranks == 1 ? "rank" : "ranks", options.threads,
                 options.threads == 1 ? "thread" : "threads");
  auto kernels = measureKernels(options.mpi ? 1 : options.ranks, options.threads);
  if (!kernels)
    return tl::unexpected(kernels.error());
  auto requests = measureRequests(options.mpi ? 1 : options.ranks, options.threads);
  if (!requests)
    return tl::unexpected(requests.error());
  kernels->requests = *requests;
  std::vector<CollectiveSample> collectives;
  if (options.ranks > 1) {
    auto measured =
        options.mpi ? measureMpiCollectives() : measureLocalCollectives(options.ranks);
    if (!measured)
      return tl::unexpected(measured.error());
    collectives = std::move(*measured);
  }
  if (!isRoot)
    return {};
  Topology topology = startingPoint(options);
  fit(topology, *kernels, collectives);
  if (!options.quiet)
    print(topology, *kernels, collectives);
  printErrors(topology, *kernels, collectives);
  if (auto ok = writeFile(options.output, writeTopology(topology)); !ok)
    return ok;
  std::printf("wrote %s\n", options.output.c_str());
  return {};
}

void partita::addCalibrateCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<CalibrateOptions>();
  options->output = hostFile();
  CLI::App *command = app.add_subcommand(
      "calibrate", "Measure this machine's kernels and collectives for plans without "
                   "--cluster");
  command->footer("Examples:\n"
                  "  partita calibrate\n"
                  "  partita calibrate --ranks 4 --threads 2 -o host.json\n"
                  "  mpirun -n 2 partita calibrate -o mpi.json");
  command
      ->add_option("-o,--output", options->output, "Cluster file, see docs/topology.md")
      ->capture_default_str();
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks that compute at the same time, as threads of one process")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads of each rank")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_flag("-q,--quiet", options->quiet, "Print errors of the fit only");
  command->callback([options, &status] {
    auto ok = calibrate(*options);
    status = ok ? 0 : fail(ok.error().message);
  });
}
