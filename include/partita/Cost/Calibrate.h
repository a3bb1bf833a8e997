//===- Calibrate.h - Constants of a device from measurements ----*- C++ -*-===//
//
// The other way round: from what kernels and collectives of known sizes took, the
// constants with which the formulas of this library come closest. The measure is
//
//     mean over samples of log(predicted / measured)²
//
// so a small kernel counts as much as a large one, and twice too long as much as twice
// too short. Constants are searched one after the other in steps of a factor that is
// halved, from the ones that the device or link has: with two to four constants and some
// tens of samples that takes milliseconds and gives the same on every run.
//
// Each step has its own constants: streams give memory bandwidth, cache, launch and the
// rate of pointwise operations, matrix products the peak and what small ones lose,
// collectives bandwidth, latency and ramp of a level, requests of a few small kernels
// what the runtime takes for it. Nothing is fitted to a model.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_CALIBRATE_H
#define PARTITA_COST_CALIBRATE_H

#include "partita/Cost/Collective.h"
#include "partita/Cost/Request.h"
#include "partita/Cost/Winograd.h"

#include <optional>
#include <span>

namespace partita {

/// A fused group that moved these bytes, all of them far or none (Cost/Compute.h).
struct StreamSample {
  double bytes = 0;
  double seconds = 0;
  double operations = 0; ///< as FlowOp::steps counts them
  bool far = true;
};

struct MatmulSample {
  DType type = DType::F32;
  MatmulShape shape;
  double seconds = 0;
  double far = 0; ///< of the bytes (Cost/Compute.h)
  /// A convolution that Winograd's algorithm may have computed; `shape` is not looked at.
  std::optional<WinogradShape> conv = {};
};

/// Over all members of one level; `bytes` as priceCollective has them.
struct CollectiveSample {
  Collective kind = Collective::AllReduce;
  double bytes = 0;
  double seconds = 0;
};

/// A request of so many kernels like this and so many small products, on every rank, one
/// on the result of the one before. A core's own caches hold their code and values.
struct RequestSample {
  StreamSample kernel; ///< its seconds are not looked at
  int64_t kernels = 1;
  MatmulSample product = {}; ///< likewise
  int64_t products = 0;
  double bytes = 0; ///< of a rank's inputs and outputs
  double seconds = 0;
};

/// Requests from which a host's constants are found.
struct RequestSamples {
  RequestSample small; ///< one kernel
  RequestSample chain; ///< several
  RequestSample calls; ///< one kernel, and several products of few rows
  RequestSample large; ///< one kernel, of some numbers of a large input
};

/// Sets the device's memory bandwidth (its efficiency becomes 1) and launch; its cache
/// and the rate of pointwise operations, if there are samples that are not far, or have
/// operations. The cache has the bytes of one of the samples.
void fitStreams(Device &device, std::span<const StreamSample> samples);

/// Sets the peak of the samples' type, the matrix products' tiles (the best one of
/// `tiles`, if it is not empty), halfTile and fillSteps, and with a cache nearSpeed. With
/// samples of `conv` also the rate of Winograd's transforms, 0 if these samples are met
/// better without them. Streams come first.
void fitMatmuls(Device &device, std::span<const MatmulSample> samples,
                std::span<const MatmulTile> tiles);

/// Sets the peak of the samples' type alone: the rest is as matrix products of another
/// type gave it.
void fitPeak(Device &device, std::span<const MatmulSample> samples);

/// Sets bandwidth (efficiency becomes 1), latency and ramp of a topology's only level.
void fitCollectives(Topology &topology, std::span<const CollectiveSample> samples);

/// Sets the host's launch, by how much longer the chain takes than its kernel, at most
/// the device's; what a call takes, by how much longer its sample does than the small
/// one; the rate of copies, by how much longer the large one takes than the small one, 0
/// (unknown) where it takes no longer; and the host's request: what the small one takes
/// beside its kernel and its copies, but more than nothing. Streams and products come
/// first.
void fitRequests(Topology &topology, const RequestSamples &samples);

/// What the constants predict.
double predictedSeconds(const Topology &topology, const StreamSample &sample);
double predictedSeconds(const Topology &topology, const MatmulSample &sample);
double predictedSeconds(const Topology &topology, const CollectiveSample &sample);
double predictedSeconds(const Topology &topology, const RequestSample &sample);

/// The mean of abs(predicted / measured − 1), and the largest.
struct FitError {
  double mean = 0, largest = 0;
};
template <typename Sample>
FitError fitError(const Topology &topology, std::span<const Sample> samples) {
  FitError error;
  for (const Sample &sample : samples) {
    double off = predictedSeconds(topology, sample) / sample.seconds - 1;
    error.mean += (off < 0 ? -off : off) / static_cast<double>(samples.size());
    error.largest = off < 0 ? (error.largest < -off ? -off : error.largest)
                            : (error.largest < off ? off : error.largest);
  }
  return error;
}

} // namespace partita

#endif // PARTITA_COST_CALIBRATE_H
