//===- CalibrateTest.cpp - Constants are found again ----------------------===//
#include "partita/Cost/Calibrate.h"
#include "partita/Topology/Presets.h"
#include "partita/Topology/WriteTopology.h"

#include <catch2/catch.hpp>

using namespace partita;

/// A machine whose constants are none of the starting points.
static Topology machine() {
  Topology topology;
  topology.device.name = "test";
  topology.device.peak = {{DType::F32, 61.3e9}};
  topology.device.memory = int64_t(3) << 30;
  topology.device.memoryBandwidth = 23.7e9;
  topology.device.launch = 3.1e-6;
  topology.device.cache = 262144;
  topology.device.cacheBandwidth = 81e9;
  topology.device.pointwise = 7.3e9;
  topology.device.matmul = {1, {{6, 16}}, 1, 2.5, 9};
  topology.device.matmul.nearSpeed = 4;
  topology.device.matmul.winograd = 6.1e9;
  topology.device.matmul.functionsApart = true;
  topology.levels = {{"ring", 4, 2.9e9, 17e-6, 1, 1, 5e4, false}};
  topology.host = {int64_t(3) << 30, 23.7e9};
  return topology;
}

TEST_CASE("calibrate: constants of exact samples are found") {
  Topology truth = machine();
  std::vector<StreamSample> streams;
  for (double bytes = 512; bytes < 1e8; bytes *= 8)
    for (bool far : {true, false})
      streams.push_back({bytes, 0, 0, far});
  for (double bytes : {1 << 14, 1 << 17})
    streams.push_back({bytes, 0, bytes / 2, false});
  for (StreamSample &sample : streams)
    sample.seconds = predictedSeconds(truth, sample);
  std::vector<MatmulSample> matmuls;
  for (int64_t m : {1, 7, 64, 500})
    for (int64_t k : {16, 256, 3072})
      for (double far : {0., 384. * static_cast<double>(k)})
        matmuls.push_back({DType::F32, {1, m, 96, k}, 0, far, {}});
  for (MatmulSample &sample : matmuls)
    sample.seconds = predictedSeconds(truth, sample);
  std::vector<CollectiveSample> collectives;
  for (Collective kind : {Collective::AllReduce, Collective::AllGather,
                          Collective::ReduceScatter, Collective::AllToAll})
    for (double bytes = 4096; bytes < 1e8; bytes *= 8)
      collectives.push_back({kind, bytes, 0});
  for (CollectiveSample &sample : collectives)
    sample.seconds = predictedSeconds(truth, sample);

  Topology found{*devicePreset("cpu-core"), {*levelPreset("shared-memory")}, {}};
  found.levels[0].size = 4;
  fitStreams(found.device, streams);
  CHECK(found.device.memoryBandwidth == Approx(23.7e9).epsilon(0.01));
  CHECK(found.device.launch == Approx(3.1e-6).epsilon(0.01));
  CHECK(found.device.cache == 262144);
  CHECK(found.device.cacheBandwidth == Approx(81e9).epsilon(0.01));
  CHECK(found.device.pointwise == Approx(7.3e9).epsilon(0.01));
  static constexpr MatmulTile tiles[] = {{1, 1}, {6, 16}, {8, 48}};
  fitMatmuls(found.device, matmuls, tiles);
  CHECK(found.device.matmul.tiles == std::vector<MatmulTile>{{6, 16}});
  CHECK(found.device.matmul.nearSpeed == 4);
  CHECK(fitError<MatmulSample>(found, matmuls).largest < 0.02);
  const double wide = found.device.peakOf(DType::F32);
  std::vector<MatmulSample> bytes;
  for (const MatmulSample &sample : matmuls)
    bytes.push_back({DType::U8, sample.shape, 0, 0, {}});
  Topology faster = found;
  faster.device.peak.emplace_back(DType::I8, 3.3 * wide);
  for (MatmulSample &sample : bytes)
    sample.seconds = predictedSeconds(faster, sample);
  fitPeak(found.device, bytes);
  CHECK(found.device.peakOf(DType::I8) == Approx(3.3 * wide).epsilon(0.01));
  CHECK(found.device.peakOf(DType::F32) == wide);
  fitCollectives(found, collectives);
  CHECK(found.levels[0].bandwidth == Approx(2.9e9).epsilon(0.03));
  CHECK(found.levels[0].latency == Approx(17e-6).epsilon(0.03));
  CHECK(fitError<CollectiveSample>(found, collectives).largest < 0.03);
}

TEST_CASE("calibrate: a request is what its kernels and its copies leave") {
  Topology found = machine();
  RequestSamples samples;
  auto &[small, chain, calls, large] = samples;
  for (RequestSample *sample : {&small, &chain, &calls, &large}) {
    sample->kernel.bytes = sample->bytes = 128;
    sample->kernels = sample == &chain ? 9 : 1;
  }
  calls.product = {DType::F32, {1, 2, 4, 4}, 0, 0, {}};
  calls.products = 8;
  large.bytes = 65536;
  found.host.request = 23e-6;
  found.host.launch = 45e-9;
  found.host.call = 310e-9;
  found.host.copies = 110e9;
  for (RequestSample *sample : {&small, &chain, &calls, &large})
    sample->seconds = predictedSeconds(found, *sample);
  CHECK(small.seconds > 23e-6);
  CHECK(small.seconds < 23e-6 + found.device.launch);
  found.host = {};
  fitRequests(found, samples);
  CHECK(found.host.request == Approx(23e-6));
  CHECK(found.host.launch == Approx(45e-9));
  CHECK(found.host.call == Approx(310e-9));
  CHECK(found.host.copies == Approx(110e9));
  // No kernel starts later than among many others.
  chain.seconds = small.seconds + 20 * found.device.launch;
  fitRequests(found, samples);
  CHECK(found.host.launch == found.device.launch);
  // Copies that take no time say no rate, a request that takes none still something.
  small.seconds = large.seconds = found.host.launch / 2;
  fitRequests(found, samples);
  CHECK(found.host.copies == 0);
  CHECK(found.host.request > 0);
  CHECK(found.host.request < 1e-8);
}

TEST_CASE("calibrate: a topology is read as it was written") {
  Topology truth = machine();
  truth.host.request = 12e-6;
  truth.host.launch = 37e-9;
  truth.host.call = 290e-9;
  truth.host.copies = 98e9;
  auto read = readTopology(writeTopology(truth), "written");
  REQUIRE(read);
  CHECK(read->device.name == truth.device.name);
  CHECK(read->device.peak == truth.device.peak);
  CHECK(read->device.memory == truth.device.memory);
  CHECK(read->device.memoryBandwidth == truth.device.memoryBandwidth);
  CHECK(read->device.launch == truth.device.launch);
  CHECK(read->device.cache == truth.device.cache);
  CHECK(read->device.cacheBandwidth == truth.device.cacheBandwidth);
  CHECK(read->device.pointwise == truth.device.pointwise);
  CHECK(read->device.matmul.tiles == truth.device.matmul.tiles);
  CHECK(read->device.matmul.halfTile == truth.device.matmul.halfTile);
  CHECK(read->device.matmul.nearSpeed == truth.device.matmul.nearSpeed);
  CHECK(read->device.matmul.winograd == truth.device.matmul.winograd);
  CHECK(read->device.matmul.functionsApart);
  CHECK(read->device.matmul.fillSteps == truth.device.matmul.fillSteps);
  REQUIRE(read->levels.size() == 1);
  CHECK(read->levels[0].name == "ring");
  CHECK(read->levels[0].size == 4);
  CHECK(read->levels[0].bandwidth == truth.levels[0].bandwidth);
  CHECK(read->levels[0].latency == truth.levels[0].latency);
  CHECK(read->levels[0].ramp == truth.levels[0].ramp);
  CHECK(!read->levels[0].sharesMemory);
  truth.levels[0].sharesMemory = true;
  CHECK(readTopology(writeTopology(truth), "written")->levels[0].sharesMemory);
  CHECK(read->host.memory == truth.host.memory);
  CHECK(read->host.request == truth.host.request);
  CHECK(read->host.launch == truth.host.launch);
  CHECK(read->host.call == truth.host.call);
  CHECK(read->host.copies == truth.host.copies);
}

TEST_CASE("calibrate: without samples for them a device has no cache and no own rate") {
  Topology truth = machine();
  truth.device.cache = 0;
  std::vector<StreamSample> streams;
  for (double bytes = 512; bytes < 1e8; bytes *= 8)
    streams.push_back({bytes, 0});
  for (StreamSample &sample : streams)
    sample.seconds = predictedSeconds(truth, sample);
  Device found = *devicePreset("cpu-core");
  fitStreams(found, streams);
  CHECK(found.memoryBandwidth == Approx(23.7e9).epsilon(0.01));
  CHECK(found.cache == 0);
  CHECK(found.pointwise == 0);
  std::string text = writeTopology({found, {}, {}});
  CHECK(text.find("cache") == std::string::npos);
  CHECK(text.find("pointwise") == std::string::npos);
}
