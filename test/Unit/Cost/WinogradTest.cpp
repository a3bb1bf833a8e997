//===- WinogradTest.cpp - Convolutions by Winograd's algorithm ------------===//
#include "partita/Cost/Calibrate.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

using namespace partita;

/// A core without fill and reuse, whose cache holds everything.
static Device core() {
  Device device;
  device.peak = {{DType::F32, 1e11}};
  device.memoryBandwidth = 1e10;
  device.launch = 1e-6;
  device.cache = 1 << 30;
  device.cacheBandwidth = 5e10;
  device.matmul.winograd = 1e10;
  return device;
}

TEST_CASE("winograd: products, traffic and transforms") {
  Device device = core();
  // 5 × 7 results are 3 × 4 tiles.
  WinogradShape shape{2, 5, 7, 24, 40};
  double products = 2. * 16 * 24 * 24 * 40 / 1e11;
  double filter = 16. * 24 * 40 * 4, images = 2. * 5 * 7 * (24 + 40) * 4;
  double transforms = 16. * 24 * (24 + 40) / 1e10;
  CHECK(convSeconds(device, shape) ==
        Approx(std::hypot(products, (filter + images) / 5e10) + transforms + 1e-6));
  CHECK(convSeconds(device, shape, true) ==
        Approx(std::hypot(products, filter / 1e10 + images / 5e10) + transforms + 1e-6));
  device.matmul.tiles = {{1, 1}, {4, 4}};
  device.matmul.halfTile = 2; // of the larger tile half of the peak
  CHECK(convSeconds(device, shape) ==
        Approx(std::hypot(2 * products, (filter + images) / 5e10) + transforms + 1e-6));
}

TEST_CASE("winograd: what the runtime computes directly is priced as a product") {
  Device device = core();
  auto isProduct = [&](const WinogradShape &shape) {
    double far = 9. * static_cast<double>(shape.in * shape.out) * 4;
    return convSeconds(device, shape) ==
               matmulSeconds(device, DType::F32, shape.direct()) &&
           convSeconds(device, shape, true) ==
               matmulSeconds(device, DType::F32, shape.direct(), far);
  };
  CHECK(!isProduct({1, 8, 5, 16, 16}));
  CHECK(isProduct({1, 13, 3, 16, 16})); // 39 pixels
  CHECK(isProduct({1, 8, 8, 15, 64}));
  CHECK(isProduct({1, 8, 8, 64, 15}));
  device.matmul.winograd = 0;
  CHECK(isProduct({1, 56, 56, 64, 64}));
  device = *devicePreset("A100-80GB");
  CHECK(isProduct({1, 56, 56, 64, 64}));
}

/// docs/codegen.md, "Winograd's algorithm": one thread of an AMD EPYC whose peak is 118
/// GFLOP/s, vectors of 512 bits. The other constants are the preset's, so weights and
/// images come at 10 GB/s.
TEST_CASE("winograd: calls that were measured") {
  struct Row {
    int64_t channels, side;
    double milliseconds;
  };
  static constexpr Row rows[] = {{16, 160, 0.84}, {32, 56, 0.31},  {64, 56, 1.10},
                                 {128, 28, 1.00}, {256, 14, 0.99}, {512, 7, 1.55}};
  Device device = *devicePreset("cpu-core");
  device.peak = {{DType::F32, 118e9}};
  double sum = 0, sumDirect = 0;
  std::printf("%10s %9s %9s %9s\n", "", "measured", "predicted", "as product");
  for (const Row &row : rows) {
    WinogradShape shape{1, row.side, row.side, row.channels, row.channels};
    double now = 1e3 * convSeconds(device, shape);
    double direct = 1e3 * matmulSeconds(device, DType::F32, shape.direct());
    sum += std::abs(now / row.milliseconds - 1);
    sumDirect += std::abs(direct / row.milliseconds - 1);
    std::printf("%3lld, %3lld² %9.2f %9.2f %9.2f\n", static_cast<long long>(row.channels),
                static_cast<long long>(row.side), row.milliseconds, now, direct);
  }
  std::printf("3 x 3 convolutions: mean error %.1f%%, as products %.1f%%\n",
              100 * sum / 6, 100 * sumDirect / 6);
  CHECK(sum / 6 < 0.15);
}

TEST_CASE(
    "winograd: calibration finds the rate of the transforms, or that there are none") {
  for (bool isTaken : {true, false}) {
    Topology truth{core(), {}, {}};
    truth.device.matmul.winograd = isTaken ? 7.7e9 : 0;
    std::vector<MatmulSample> samples;
    for (int64_t k : {64, 256, 1024})
      samples.push_back({DType::F32, {1, 200, 256, k}, 0, 0, {}});
    for (int64_t side : {8, 16, 64})
      for (int64_t in : {16, 128})
        samples.push_back({DType::F32, {}, 0, 0, WinogradShape{1, side, side, in, 32}});
    for (MatmulSample &sample : samples)
      sample.seconds = predictedSeconds(truth, sample);
    Topology found{truth.device, {}, {}};
    found.device.matmul.winograd = 1e9;
    found.device.peak = {{DType::F32, 3e11}};
    fitMatmuls(found.device, samples, {});
    CHECK(found.device.matmul.winograd == Approx(isTaken ? 7.7e9 : 0).epsilon(0.02));
    CHECK(fitError<MatmulSample>(found, samples).largest < 0.02);
  }
}
