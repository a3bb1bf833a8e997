//===- Compute.cpp - Matrix products and fused groups ---------------------===//
#include "partita/Cost/Compute.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

double partita::matmulArithmetic(const Device &device, DType type,
                                 const MatmulShape &shape) {
  if (shape.flops() == 0)
    return 0;
  const MatmulModel &model = device.matmul;
  double perUnit =
      device.peakOf(type) / static_cast<double>(model.units) * model.efficiency;
  auto width = static_cast<int64_t>(byteWidth(type));
  if (shape.n * width % model.rowBytes || shape.k * width % model.rowBytes)
    perUnit *= model.misaligned;
  double best = std::numeric_limits<double>::infinity();
  for (const MatmulTile &tile : model.tiles) {
    int64_t tiles = shape.batch * ceilDiv(shape.m, tile.m) * ceilDiv(shape.n, tile.n);
    auto rounds = static_cast<double>(ceilDiv(tiles, model.units));
    auto m = static_cast<double>(tile.m), n = static_cast<double>(tile.n);
    double ratio = m * n / (m + n);
    double reuse = ratio / (ratio + model.halfTile);
    double steps = static_cast<double>(shape.k) + model.fillSteps;
    best = std::min(best, rounds * 2 * m * n * steps / (perUnit * reuse));
  }
  return best;
}

/// `near` bytes move `nearSpeed` times as fast as other kernels have them from the cache.
static double trafficSeconds(const Device &device, double bytes, double far,
                             double nearSpeed) {
  double memory = device.memoryBandwidth * device.memoryEfficiency;
  double near = std::max(0.0, bytes - far);
  if (near == 0 || near > static_cast<double>(device.cache))
    return bytes / memory;
  return (bytes - near) / memory + near / (device.cacheBandwidth * nearSpeed);
}

double partita::matmulSeconds(const Device &device, DType type, const MatmulShape &shape,
                              double far, double kept, std::optional<DType> products) {
  auto batch = static_cast<double>(shape.batch), m = static_cast<double>(shape.m),
       n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  double bytes = batch * (m * k + k * n + m * n) * static_cast<double>(byteWidth(type));
  return std::hypot(matmulArithmetic(device, products.value_or(type), shape),
                    matmulTraffic(device, bytes - kept, far)) +
         device.launch;
}

double partita::matmulTraffic(const Device &device, double bytes, double far) {
  return trafficSeconds(device, bytes, far, device.matmul.nearSpeed);
}

double partita::matmulEfficiency(const Device &device, DType type,
                                 const MatmulShape &shape) {
  return shape.flops() / (device.peakOf(type) * matmulSeconds(device, type, shape));
}

double partita::streamSeconds(const Device &device, double bytes, double far) {
  return trafficSeconds(device, bytes, far, 1);
}

double partita::groupBytes(std::span<const GroupValue> values) {
  double bytes = 0;
  for (const GroupValue &value : values)
    if (!value.made || value.used)
      bytes += value.bytes;
  return bytes;
}

double partita::groupSeconds(const Device &device, double bytes, double operations,
                             double far) {
  return std::max(streamSeconds(device, bytes, far),
                  operations / device.pointwiseRate()) +
         device.launch;
}
