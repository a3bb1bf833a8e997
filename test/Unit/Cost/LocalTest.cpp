//===- LocalTest.cpp - Compute, overlap, optimizer, memory ----------------===//
#include "partita/Cost/Local.h"
#include "partita/Cost/Memory.h"
#include "partita/Cost/Optimizer.h"
#include "partita/Cost/Overlap.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

using namespace partita;

TEST_CASE("matmul: a device without a model runs at its peak") {
  Device device;
  device.peak = {{DType::F32, 1e9}};
  device.memoryBandwidth = 1e9;
  CHECK(matmulArithmetic(device, DType::F32, {2, 3, 5, 7}) == Approx(420e-9));
  // And 4 · 2 · (21 + 35 + 15) bytes at 1e9.
  CHECK(matmulSeconds(device, DType::F32, {2, 3, 5, 7}) ==
        Approx(std::sqrt(420. * 420 + 568 * 568) * 1e-9));
  CHECK(matmulArithmetic(device, DType::F32, {0, 3, 5, 7}) == 0);
}

TEST_CASE("matmul: whole tiles in whole rounds") {
  Device device;
  device.peak = {{DType::F32, 1e12}};
  device.memoryBandwidth = 1e15;
  device.matmul = {10, {{64, 64}}, 1, 0, 0};
  double one = matmulArithmetic(device, DType::F32, {1, 64, 64, 100});
  // A tile costs what one unit takes for it, up to ten tiles at once.
  CHECK(one == Approx(2.0 * 64 * 64 * 100 / 1e11));
  CHECK(matmulArithmetic(device, DType::F32, {1, 1, 1, 100}) == Approx(one));
  CHECK(matmulArithmetic(device, DType::F32, {1, 640, 64, 100}) == Approx(one));
  CHECK(matmulArithmetic(device, DType::F32, {1, 641, 64, 100}) == Approx(2 * one));
  CHECK(matmulArithmetic(device, DType::F32, {10, 33, 64, 100}) == Approx(one));
  // Another tile size may fit better.
  device.matmul.tiles.push_back({32, 32});
  CHECK(matmulArithmetic(device, DType::F32, {1, 1, 1, 100}) == Approx(one / 4));
  // Rows of 25 · 4 bytes load in smaller pieces.
  device.matmul.rowBytes = 16;
  device.matmul.misaligned = 0.5;
  CHECK(matmulArithmetic(device, DType::F32, {1, 64, 64, 25}) ==
        Approx(2 * matmulArithmetic(device, DType::F32, {1, 64, 64, 24}) * 25 / 24));
}

TEST_CASE("matmul: the published table of an A100") {
  // Azure AI benchmarking guide, ND A100 v4: cuBLASLt, f16, TFLOP/s.
  struct Row {
    int64_t m, n, k;
    double teraflops;
  };
  static constexpr Row rows[] = {
      {1024, 1024, 1024, 119.4},    {2048, 2048, 2048, 221.8},
      {4096, 4096, 4096, 228.0},    {8192, 8192, 8192, 253.7},
      {16384, 16384, 16384, 256.5}, {1024, 2145, 1024, 132.8},
      {6144, 12288, 12288, 250.8},  {802816, 192, 768, 157.8},
  };
  Device device = *devicePreset("A100-80GB");
  double sum = 0;
  for (const Row &row : rows) {
    double ours = 312 * matmulEfficiency(device, DType::F16, {1, row.m, row.n, row.k});
    std::printf("matmul %lld x %lld x %lld: %.1f TFLOP/s, measured %.1f, %+.1f%%\n",
                static_cast<long long>(row.m), static_cast<long long>(row.n),
                static_cast<long long>(row.k), ours, row.teraflops,
                100 * (ours / row.teraflops - 1));
    sum += std::abs(ours / row.teraflops - 1);
    CHECK(std::abs(ours / row.teraflops - 1) < 0.15);
  }
  std::printf("matmul: mean error %.1f%%\n", 100 * sum / std::size(rows));
  CHECK(sum / std::size(rows) < 0.08);
}

TEST_CASE("fused groups move what crosses their border") {
  GroupValue values[] = {{100, false, false}, {40, true, false}, {60, true, true}};
  CHECK(groupBytes(values) == 160);
  Device device;
  device.peak = {{DType::F32, 1e3}};
  device.memoryBandwidth = 100;
  device.memoryEfficiency = 0.5;
  device.launch = 1;
  CHECK(groupSeconds(device, 160) == Approx(4.2));
  CHECK(groupSeconds(device, 160, 5000) == Approx(6));
  CHECK(copySeconds(device, 100) == Approx(5));
  CHECK(maskSeconds(device, 50) == Approx(2));
  CHECK(maskSeconds(device, 0) == 0);
}

TEST_CASE("what has just been touched is in the cache, if it fits") {
  Device device;
  device.peak = {{DType::F32, 1e3}};
  device.memoryBandwidth = 100;
  device.cache = 400;
  device.cacheBandwidth = 1000;
  CHECK(streamSeconds(device, 400) == Approx(0.4));
  CHECK(streamSeconds(device, 401) == Approx(4.01));
  CHECK(streamSeconds(device, 400, 300) == Approx(3 + 0.1));
  CHECK(streamSeconds(device, 400, 400) == Approx(4));
  // What is far does not take the place of what is near.
  CHECK(streamSeconds(device, 1000, 700) == Approx(7 + 0.3));
  CHECK(groupSeconds(device, 400, 0, 300) == Approx(3.1));
  CHECK(copySeconds(device, 200) == Approx(0.4));
  // 3 · 4 · 16 bytes and 128 operations.
  CHECK(matmulSeconds(device, DType::F32, {1, 4, 4, 4}) ==
        Approx(std::hypot(0.128, 0.192)));
  CHECK(matmulSeconds(device, DType::F32, {1, 4, 4, 4}, 64) ==
        Approx(std::hypot(0.128, 0.64 + 0.128)));
  device.matmul.nearSpeed = 2;
  CHECK(matmulSeconds(device, DType::F32, {1, 4, 4, 4}, 64) ==
        Approx(std::hypot(0.128, 0.64 + 0.064)));
  CHECK(streamSeconds(device, 400, 300) == Approx(3 + 0.1));
  device.cache = 0;
  CHECK(streamSeconds(device, 4) == Approx(0.04));
}

TEST_CASE("pointwise operations have a rate of their own") {
  Device device;
  device.peak = {{DType::F32, 1e3}};
  device.memoryBandwidth = 100;
  CHECK(groupSeconds(device, 100, 2000) == Approx(2));
  device.pointwise = 250;
  CHECK(groupSeconds(device, 100, 2000) == Approx(8));
  CHECK(groupSeconds(device, 100, 200) == Approx(1));
}

TEST_CASE("overlap") {
  CHECK(overlapped(3, 2, 1).together == Approx(3));
  CHECK(overlapped(3, 2, 1).exposed == Approx(0));
  CHECK(overlapped(3, 2, 1.5).together == Approx(4));
  CHECK(overlapped(2, 3, 1.5).together == Approx(4));
  CHECK(overlapped(2, 3, 1.5).exposed == Approx(2));
  // Never worse than one after the other.
  CHECK(overlapped(3, 2, 5).together == Approx(5));
  CHECK(overlapped(3, 0).together == Approx(3));
}

TEST_CASE("optimizer: 16 bytes a parameter for mixed Adam") {
  TrainingMemory mixed = trainingMemory(OptimizerKind::Adam, DType::BF16, 10);
  CHECK(mixed.weights == 20);
  CHECK(mixed.gradients == 20);
  CHECK(mixed.optimizer == 120);
  CHECK(mixed.total() == 160);
  CHECK(trainingMemory(OptimizerKind::AdamW, DType::F32, 10).total() == 160);
  CHECK(trainingMemory(OptimizerKind::Sgd, DType::F32, 10).total() == 80);
  // Reads gradient, m, v and master; writes m, v, master and the weight.
  CHECK(updateBytes(OptimizerKind::Adam, DType::BF16, 1) == 2 + 12 + 12 + 2);
  CHECK(updateBytes(OptimizerKind::Momentum, DType::F32, 1) == 4 + 4 + 4 + 4 + 4);
  CHECK(updateBytes(OptimizerKind::Lamb, DType::F32, 1) == 28 + 16);
  Device device;
  device.memoryBandwidth = 28;
  device.launch = 2;
  CHECK(updateSeconds(device, OptimizerKind::Adam, DType::BF16, 3) == Approx(5));
}

TEST_CASE("memory: bytes alive over a step") {
  LiveValue values[] = {{MemoryKind::Weights, 10, 0, 3},
                        {MemoryKind::Activations, 5, 0, 1},
                        {MemoryKind::Activations, 7, 1, 2},
                        {MemoryKind::Workspace, 3, 3, 3}};
  CHECK(memoryOverTime(values, 4) == std::vector<int64_t>{15, 22, 17, 13});
  CHECK(memoryOverTime(values, 2) == std::vector<int64_t>{15, 22});
  MemoryPeak peak = memoryPeak(values);
  CHECK(peak.bytes == 22);
  CHECK(peak.moment == 1);
  CHECK(peak.byKind[static_cast<int>(MemoryKind::Weights)] == 10);
  CHECK(peak.byKind[static_cast<int>(MemoryKind::Activations)] == 12);
  CHECK(memoryPeak(values, 8).bytes == 16 + 8 + 8);
  CHECK(memoryPeak({}).bytes == 0);
}
