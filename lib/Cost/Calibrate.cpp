//===- Calibrate.cpp - Constants of a device from measurements ------------===//
#include "partita/Cost/Calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace partita;

/// Bytes, steps or seconds below this share of the smallest thing measured are nothing.
static constexpr double negligible = 1e-3;

/// Changes each constant by a factor as long as that makes `loss` less, then by the root
/// of the factor, down to a thousandth. Constants stay above zero.
static double minimize(std::vector<double *> constants,
                       const std::function<double()> &loss) {
  double best = loss();
  for (double factor = 4; factor > 1.001; factor = std::sqrt(factor))
    for (bool better = true; better;) {
      better = false;
      for (double *constant : constants)
        for (double by : {factor, 1 / factor}) {
          double before = *constant;
          *constant *= by;
          double now = loss();
          if (now < best - 1e-12) {
            best = now;
            better = true;
          } else {
            *constant = before;
          }
        }
    }
  return best;
}

template <typename Sample>
static double lossOf(const Topology &topology, std::span<const Sample> samples) {
  double sum = 0;
  for (const Sample &sample : samples) {
    double off = std::log(predictedSeconds(topology, sample) / sample.seconds);
    sum += off * off;
  }
  return sum / static_cast<double>(samples.size());
}

double partita::predictedSeconds(const Topology &topology, const StreamSample &sample) {
  return groupSeconds(topology.device, sample.bytes, sample.operations,
                      sample.far ? sample.bytes : 0);
}

double partita::predictedSeconds(const Topology &topology, const MatmulSample &sample) {
  if (sample.conv)
    return convSeconds(topology.device, *sample.conv, sample.far > 0);
  return matmulSeconds(topology.device, sample.type, sample.shape, sample.far);
}

double partita::predictedSeconds(const Topology &topology,
                                 const CollectiveSample &sample) {
  Span span;
  span.members[0] = topology.levels[0].size;
  return priceCollective(topology, span, sample.kind, sample.bytes).price.seconds;
}

/// The tasks of a request near a core.
static double taskSeconds(const Topology &topology, const RequestSample &sample) {
  const Host &host = topology.host;
  const double slower = host.launch > 0 ? topology.device.launch - host.launch : 0;
  const auto kernels = static_cast<double>(sample.kernels),
             products = static_cast<double>(sample.products);
  return kernels * (predictedSeconds(topology, sample.kernel) - slower) +
         (products > 0 ? products * (predictedSeconds(topology, sample.product) - slower +
                                     host.call)
                       : 0);
}

double partita::predictedSeconds(const Topology &topology, const RequestSample &sample) {
  return taskSeconds(topology, sample) + priceRequest(topology, sample.bytes).seconds();
}

void partita::fitRequests(Topology &topology, const RequestSamples &samples) {
  const auto &[small, chain, calls, large] = samples;
  Host &host = topology.host;
  const double launch = topology.device.launch;
  const double perKernel = (chain.seconds - small.seconds) /
                           static_cast<double>(chain.kernels - small.kernels);
  const double work = predictedSeconds(topology, small.kernel) - launch;
  host = {host.memory, host.bandwidth};
  host.launch = std::clamp(perKernel - work, negligible * launch, launch);
  const double more = calls.seconds - small.seconds -
                      (taskSeconds(topology, calls) - taskSeconds(topology, small));
  host.call = std::max(more / static_cast<double>(calls.products), 0.0);
  const double longer = large.seconds - small.seconds;
  host.copies = longer > 0 ? 2 * (large.bytes - small.bytes) / longer : 0;
  // More than 0, which says that nothing is known.
  host.request = std::max(small.seconds - predictedSeconds(topology, small),
                          negligible * small.seconds);
}

void partita::fitStreams(Device &device, std::span<const StreamSample> samples) {
  double shortest = std::numeric_limits<double>::infinity(), slowest = shortest;
  double fastest = 0, fastestFar = 0;
  std::vector<int64_t> capacities{0};
  for (const StreamSample &sample : samples) {
    shortest = std::min(shortest, sample.seconds);
    if (!sample.far)
      capacities.push_back(static_cast<int64_t>(sample.bytes));
    double &most = sample.far ? fastestFar : fastest;
    most = std::max(most, sample.bytes / sample.seconds);
    if (sample.operations > 0)
      slowest = std::min(slowest, sample.operations / sample.seconds);
  }
  bool hasOperations = std::isfinite(slowest);
  double least = std::numeric_limits<double>::infinity();
  Device best = device;
  for (int64_t capacity : capacities) {
    Topology topology{device, {}, {}};
    Device &fitted = topology.device;
    fitted.memoryEfficiency = 1;
    // What some sample reaches: a constant that no sample depends on stays as it is.
    fitted.memoryBandwidth = fastestFar > 0 ? fastestFar : fastest;
    fitted.launch = shortest / 2;
    fitted.cache = capacity;
    fitted.cacheBandwidth = capacity == 0 ? 0 : fastest;
    fitted.pointwise = hasOperations ? slowest : 0;
    std::vector<double *> constants{&fitted.memoryBandwidth, &fitted.launch};
    if (capacity != 0)
      constants.push_back(&fitted.cacheBandwidth);
    if (hasOperations)
      constants.push_back(&fitted.pointwise);
    double loss = minimize(constants, [&] { return lossOf(topology, samples); });
    if (fitted.launch < negligible * shortest)
      fitted.launch = 0;
    if (loss < least) {
      least = loss;
      best = fitted;
    }
  }
  device = best;
}

static void setPeak(Device &device, DType type, double peak) {
  std::erase_if(device.peak, [&](const auto &entry) { return entry.first == type; });
  device.peak.emplace_back(type, peak);
}

/// Fits the peak of the samples' type and some constants of products from where they are:
/// what is 0 stays so. Returns the loss.
static double fitFrom(Device &device, std::span<const MatmulSample> samples,
                      std::initializer_list<double MatmulModel::*> others) {
  const DType type = samples.front().type;
  Topology topology{device, {}, {}};
  double peak = device.peakOf(type);
  std::vector<double *> constants{&peak};
  for (auto other : others)
    if (double &constant = topology.device.matmul.*other; constant > 0)
      constants.push_back(&constant);
  double loss = minimize(constants, [&] {
    setPeak(topology.device, type, peak);
    return lossOf(topology, samples);
  });
  setPeak(topology.device, type, peak);
  device = topology.device;
  return loss;
}

void partita::fitPeak(Device &device, std::span<const MatmulSample> samples) {
  fitFrom(device, samples, {});
}

void partita::fitMatmuls(Device &device, std::span<const MatmulSample> samples,
                         std::span<const MatmulTile> tiles) {
  std::vector<MatmulTile> candidates(tiles.begin(), tiles.end());
  if (candidates.empty())
    candidates = device.matmul.tiles;
  // Where arithmetic takes longer than loads, the loss does not say how fast these are:
  // of speeds that are as good the first is taken.
  std::vector<double> speeds{1}, transforms{device.matmul.winograd};
  if (device.cache > 0)
    speeds = {1, 2, 4, 8};
  if (std::ranges::any_of(samples, [](const auto &sample) { return !!sample.conv; }))
    transforms = {0, device.peakOf(samples.front().type) / 16};
  double least = std::numeric_limits<double>::infinity();
  Device best = device;
  for (const MatmulTile &tile : candidates)
    for (double speed : speeds)
      for (double rate : transforms) {
        Device fitted = device;
        fitted.matmul.tiles = {tile};
        fitted.matmul.efficiency = 1;
        fitted.matmul.halfTile = fitted.matmul.fillSteps = 1;
        fitted.matmul.nearSpeed = speed;
        fitted.matmul.winograd = rate;
        double loss = fitFrom(
            fitted, samples,
            {&MatmulModel::halfTile, &MatmulModel::fillSteps, &MatmulModel::winograd});
        for (double *constant : {&fitted.matmul.halfTile, &fitted.matmul.fillSteps})
          if (*constant < negligible)
            *constant = 0;
        if (loss < least) {
          least = loss;
          best = fitted;
        }
      }
  device = best;
}

void partita::fitCollectives(Topology &topology,
                             std::span<const CollectiveSample> samples) {
  LinkLevel &level = topology.levels[0];
  level.efficiency = 1;
  double fewest = std::numeric_limits<double>::infinity();
  for (const CollectiveSample &sample : samples)
    fewest = std::min(fewest, sample.bytes);
  level.ramp = fewest;
  minimize({&level.bandwidth, &level.latency, &level.ramp},
           [&] { return lossOf(topology, samples); });
  if (level.ramp < negligible * fewest)
    level.ramp = 0;
}
