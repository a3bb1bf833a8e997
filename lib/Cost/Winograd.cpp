//===- Winograd.cpp - Convolutions by Winograd's algorithm ----------------===//
#include "partita/Cost/Winograd.h"

#include "partita/Runtime/WinogradShape.h"

#include <algorithm>
#include <cmath>

using namespace partita;

static constexpr double elementBytes = 4;

/// Operations per second of products that are long along all loops.
static double endlessRate(const Device &device) {
  const MatmulModel &model = device.matmul;
  double reuse = 0;
  for (const MatmulTile &tile : model.tiles) {
    auto m = static_cast<double>(tile.m), n = static_cast<double>(tile.n);
    double ratio = m * n / (m + n);
    reuse = std::max(reuse, ratio / (ratio + model.halfTile));
  }
  return device.peakOf(DType::F32) * model.efficiency * reuse;
}

double partita::convSeconds(const Device &device, const WinogradShape &shape,
                            bool isFilterFar) {
  const int64_t pixels = shape.batch * shape.height * shape.width;
  auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  if (device.matmul.winograd <= 0 || !winograd::isWorth(pixels, shape.in, shape.out))
    return matmulSeconds(device, DType::F32, shape.direct(),
                         isFilterFar ? 9 * in * out * elementBytes : 0);
  double pieces = static_cast<double>(winograd::tilePieces * shape.batch *
                                      winograd::tilesOf(shape.height, shape.width));
  double filter = winograd::tilePieces * in * out * elementBytes;
  double images = static_cast<double>(pixels) * (in + out) * elementBytes;
  double products = 2 * pieces * in * out / endlessRate(device);
  double transformed = pieces * (in + out);
  if (shape.isMade)
    transformed += winograd::tilePieces * in * out;
  double traffic = matmulTraffic(device, images + filter, isFilterFar ? filter : 0);
  return std::hypot(products, traffic) + transformed / device.matmul.winograd +
         device.launch;
}
