//===- ReadTopologyTest.cpp - Cluster files, good and bad -----------------===//
#include "partita/Topology/Presets.h"
#include "partita/Topology/WriteTopology.h"

#include <catch2/catch.hpp>

using namespace partita;

static std::string failure(std::string_view text) {
  auto topology = readTopology(text, "c.json");
  return topology ? "none" : topology.error().message;
}

TEST_CASE("cluster: a device that is written out") {
  auto topology = readTopology(R"({
    "device": {"name": "X", "peak": {"f32": 19.5e12, "bf16": 312e12}, "memory": "80GiB",
               "memory_bandwidth": 2.0e12, "launch": 1e-6,
               "matmul": {"units": 4, "tiles": [[64, 32]], "efficiency": 0.5}},
    "levels": [{"name": "nvlink", "size": 8, "bandwidth": 300e9, "latency": 3e-6},
               {"name": "rack", "size": 16, "bandwidth": 25e9, "latency": 1e-5,
                "oversubscription": 2, "efficiency": 0.8, "ramp": "1MiB"}],
    "host": {"memory": 1099511627776, "bandwidth": 32e9}})",
                               "c.json");
  REQUIRE(topology);
  const Device &device = topology->device;
  CHECK(device.name == "X");
  CHECK(device.peakOf(DType::BF16) == 312e12);
  CHECK(device.peakOf(DType::F16) == 312e12);
  CHECK(device.peakOf(DType::I32) == 19.5e12);
  CHECK(device.memory == int64_t(80) << 30);
  CHECK(device.launch == 1e-6);
  CHECK(device.matmul.units == 4);
  CHECK(device.matmul.tiles == std::vector<MatmulTile>{{64, 32}});
  CHECK(topology->numDevices() == 128);
  CHECK(topology->unit(0) == 8);
  CHECK(topology->levels[1].effective() == Approx(25e9 * 0.8 / 2));
  CHECK(topology->levels[1].ramp == 1 << 20);
  CHECK(topology->host.memory == int64_t(1) << 40);
}

TEST_CASE("cluster: caches, pointwise rates and shared memory are optional") {
  auto read = [](const std::string &device, const std::string &level) {
    return readTopology(
        R"({"device": {"name": "X", "peak": {"f32": 5e9}, "memory": "1GiB",
            "memory_bandwidth": 1e9)" +
            device + R"(}, "levels": [{"name": "a", "size": 2, "bandwidth": 1e9,
            "latency": 0)" +
            level + "}]}",
        "c.json");
  };
  auto without = read("", "");
  REQUIRE(without);
  CHECK(without->device.cache == 0);
  CHECK(without->device.pointwiseRate() == 5e9);
  CHECK(!without->levels[0].sharesMemory);
  auto with = read(R"(, "cache": "8MiB", "cache_bandwidth": 9e9, "pointwise_steps": 2e9)",
                   R"(, "shares_memory": true)");
  REQUIRE(with);
  CHECK(with->device.cache == 8 << 20);
  CHECK(with->device.cacheBandwidth == 9e9);
  CHECK(with->device.pointwiseRate() == 2e9);
  CHECK(with->levels[0].sharesMemory);
  auto half = read(R"(, "cache": "8MiB")", "");
  REQUIRE(!half);
  CHECK(half.error().message ==
        "c.json: device: has \"cache\" without \"cache_bandwidth\"");
}

TEST_CASE("cluster: presets, changed and extended") {
  auto topology = readTopology(R"({"server": "DGX-A100", "host": {"bandwidth": 20e9},
    "levels": [{"name": "rack", "preset": "hdr", "size": 16},
               {"name": "spine", "preset": "hdr", "size": 8, "oversubscription": 2}]})",
                               "c.json");
  REQUIRE(topology);
  CHECK(topology->numDevices() == 1024);
  CHECK(topology->device.name == "A100-80GB");
  CHECK(topology->levels[0].name == "nvlink3");
  CHECK(topology->levels[1].name == "rack");
  CHECK(topology->levels[2].effective() == Approx(topology->levels[1].effective() / 2));
  CHECK(topology->host.bandwidth == 20e9);
  CHECK(topology->host.memory == int64_t(256) << 30);
  auto less = readTopology(
      R"({"device": {"preset": "H100-80GB", "memory": "64GB"}, "levels": []})", "c.json");
  REQUIRE(less);
  CHECK(less->device.memory == 64000000000);
  CHECK(less->device.peakOf(DType::BF16) == 989e12);
  CHECK(less->numDevices() == 1);
}

TEST_CASE("cluster: a preset keeps a reserve, a memory that is said is exact") {
  auto read = [](const std::string &device) {
    auto topology =
        readTopology(R"({"device": {)" + device + R"(}, "levels": []})", "c.json");
    REQUIRE(topology);
    return topology->device;
  };
  Device a100 = read(R"("preset": "A100-80GB")");
  CHECK(a100.reserve.context > 0);
  CHECK(a100.reserve.communicators > 0);
  CHECK(a100.reserve.fragmentation == a100.memory / 50);
  CHECK(read(R"("preset": "A100-80GB", "memory": "80GiB")").reserve.total() == 0);
  Device said = read(R"("preset": "A100-80GB", "memory": "40GiB",
                        "reserve": {"context": "1GiB", "fragmentation": 5})");
  CHECK(said.reserve.context == int64_t(1) << 30);
  CHECK(said.reserve.total() == (int64_t(1) << 30) + 5);
  // What is written is what was read.
  auto again = readTopology(writeTopology({said, {}, {1, 1}}), "again.json");
  REQUIRE(again);
  CHECK(again->device.reserve.total() == said.reserve.total());
  auto bad = readTopology(R"({"device": {"preset": "A100-80GB", "memory": "1KiB",
      "reserve": {"context": "1KiB"}}, "levels": []})",
                          "c.json");
  REQUIRE_FALSE(bad);
  CHECK(bad.error().message ==
        "c.json: device: has a \"reserve\" of 1024 bytes in a memory of 1024");
}

TEST_CASE("cluster: every preset is complete") {
  for (const std::string &name : devicePresetNames()) {
    INFO(name);
    auto device = devicePreset(name);
    REQUIRE(device);
    CHECK(device->name == name);
    CHECK(device->peakOf(DType::F32) > 0);
    CHECK(device->memory > 0);
    CHECK(device->memoryBandwidth * device->memoryEfficiency > 0);
    CHECK_FALSE(device->matmul.tiles.empty());
  }
  for (const std::string &name : levelPresetNames())
    CHECK(levelPreset(name)->effective() > 0);
  for (const std::string &name : serverPresetNames())
    CHECK(serverPreset(name)->host.bandwidth > 0);
}

TEST_CASE("cluster: errors name the member and the value") {
  const std::string device = R"("device": {"preset": "A100-80GB"})";
  CHECK(failure(R"({"device": {"preset": "A1"}, "levels": []})") ==
        "c.json: device/preset: no device preset \"A1\"; there are V100-16GB, V100-32GB, "
        "A100-80GB, H100-80GB, H100-96GB, cpu-core");
  CHECK(failure("{" + device + R"(, "levels": [{"name": "a", "size": 0, "bandwidth": 1,
        "latency": 0}]})")
            .find("c.json: levels[0]/size: ") == 0);
  CHECK(failure("{" + device + R"(, "levels": [{"name": "a", "size": 2, "bandwidth": 0,
        "latency": 0}]})") ==
        "c.json: levels[0]/bandwidth: expected a number above 0, got 0");
  CHECK(failure("{" + device + R"(, "levels": [{"name": "a", "size": 2, "preset": "hdr",
        "oversubscription": 0.5}]})") ==
        "c.json: levels[0]/oversubscription: an oversubscription is at least 1");
  CHECK(failure("{" + device + R"(, "levels": [{"name": "a", "size": 2, "preset": "hdr"},
        {"name": "a", "size": 2, "preset": "hdr"}]})") ==
        "c.json: levels[1]: a level \"a\" is there already");
  CHECK(
      failure(
          R"({"device": {"preset": "A100-80GB", "memory": "80 gigs"}, "levels": []})") ==
      "c.json: device/memory: expected bytes such as \"80GiB\", got \"80 gigs\"");
  CHECK(failure("{" + device + R"(, "levels": [], "nodes": 3})").find("nodes") !=
        std::string::npos);
  CHECK(failure(R"({"server": "DGX-A100", )" + device + "}") ==
        "c.json: \"server\" and \"device\" are given; a server names its device");
  CHECK(failure(R"({"device": {"name": "X", "peak": {"f99": 1}, "memory": 1,
        "memory_bandwidth": 1}, "levels": []})") ==
        "c.json: device/peak: \"f99\" is no element type");
  CHECK(failure("{" + device + "}").find("levels") != std::string::npos);
  CHECK(failure(
            R"({"device": {"name": "X", "peak": {"f32": 1}, "memory": 1}, "levels": []})")
            .find("memory_bandwidth") != std::string::npos);
  CHECK(failure("{" + device +
                R"(, "levels": [{"name": "a", "size": 65536, "preset": "hdr"},
        {"name": "b", "size": 65536, "preset": "hdr"}]})") ==
        "c.json: levels[1]: with this level there are more than 2^20 devices");
}

TEST_CASE("cluster: a stack by name brings its figures") {
  auto read = [](const std::string &stack) {
    return readTopology(R"({"server": "DGX-A100", "levels": [{"name": "net",
        "preset": "hdr", "size": 2}], "stack": )" +
                            stack + "}",
                        "c.json");
  };
  auto plain = read(R"({"name": "own"})");
  REQUIRE(plain);
  CHECK(plain->stack.name == "own");
  CHECK(plain->stack.launch == 0);
  CHECK(plain->device.matmul.efficiency == devicePreset("A100-80GB")->matmul.efficiency);
  auto known = read("\"megatron-2021\"");
  REQUIRE(known);
  const StackPreset preset = stackPresets("A100-80GB").at(0);
  CHECK(known->stack.name == "megatron-2021");
  CHECK(known->stack.launch == preset.stack.launch);
  CHECK(known->stack.backwardLaunch == preset.stack.backwardLaunch);
  CHECK(known->stack.attentionApart);
  CHECK(known->device.matmul.functionsApart);
  // A written file is read as it was.
  auto again = readTopology(writeTopology(*known), "c.json");
  REQUIRE(again);
  CHECK(again->stack.name == known->stack.name);
  CHECK(again->stack.launch == known->stack.launch);
  CHECK(again->stack.backwardLaunch == known->stack.backwardLaunch);
  CHECK(again->stack.attentionApart);
}

TEST_CASE("cluster: a stack that overlaps, by name and by its members") {
  auto read = [](const std::string &stack) {
    return readTopology(R"({"device": {"preset": "H100-96GB"}, "levels": [{"name": "net",
        "preset": "ndr", "size": 2}], "stack": )" +
                            stack + "}",
                        "c.json");
  };
  auto known = read("\"torchtitan-2024\"");
  REQUIRE(known);
  CHECK(known->stack.flashAttention);
  CHECK(known->stack.isEager);
  CHECK(known->stack.overlaps);
  CHECK_FALSE(read("\"torchtitan-2024-compile\"")->stack.isEager);
  CHECK(known->device.matmul.efficiency == stackPresets("H100-96GB").at(0).efficiency);
  auto again = readTopology(writeTopology(*known), "c.json");
  REQUIRE(again);
  CHECK(again->stack.flashAttention);
  CHECK(again->stack.attentionEfficiency == known->stack.attentionEfficiency);
  CHECK(again->stack.isEager);
  CHECK(again->stack.overlaps);
  CHECK(again->device.matmul.efficiency == known->device.matmul.efficiency);
  auto own = read(R"({"name": "own", "attention_efficiency": 0.5, "overlaps": true})");
  REQUIRE(own);
  CHECK(own->stack.attentionEfficiency == 0.5);
  CHECK(own->stack.overlaps);
  CHECK_FALSE(own->stack.flashAttention);
  auto bad = read(R"({"name": "own", "attention_efficiency": 2})");
  REQUIRE_FALSE(bad);
  CHECK(bad.error().message.find("attention_efficiency") != std::string::npos);
}

TEST_CASE("cluster: stacks that are not known are errors") {
  auto of = [](const std::string &server, const std::string &stack) {
    return failure(R"({"server": ")" + server + R"(", "stack": )" + stack + "}");
  };
  CHECK(of("DGX-A100", "\"jax\"") ==
        "c.json: stack: no figures of a stack \"jax\" are known for device "
        "A100-80GB; there are megatron-2021");
  CHECK(of("DGX-H100", "\"megatron-2021\"").find("known for device H100-80GB") !=
        std::string::npos);
  CHECK(of("DGX-A100", R"({"launch": 1e-6})").find("\"name\"") != std::string::npos);
  CHECK(of("DGX-A100", R"({"name": ""})").find("a stack has a name") !=
        std::string::npos);
  CHECK(of("DGX-A100", R"({"name": "x", "speed": 1})").find("speed") !=
        std::string::npos);
  CHECK(of("DGX-A100", "3").find("stack") != std::string::npos);
}

TEST_CASE("cluster: factors of contention by pair") {
  auto with = [](const std::string &contention) {
    return R"({"device": {"preset": "A100-80GB", "contention": )" + contention +
           R"(}, "levels": [{"name": "link", "preset": "hdr", "size": 2}]})";
  };
  auto read = readTopology(with(R"({"device-links": 1.5, "host_in-host_out": 2})"), "c");
  REQUIRE(read);
  const Contention &own = read->device.contention,
                   preset = devicePreset("A100-80GB")->contention;
  CHECK(own.of(Resource::Links, Resource::Device) == 1.5);
  CHECK(own.of(Resource::HostIn, Resource::HostOut) == 2);
  CHECK(own.of(Resource::Links, Resource::HostOut) ==
        preset.of(Resource::Links, Resource::HostOut));
  auto again = readTopology(writeTopology(*read), "again");
  INFO((again ? "" : again.error().message));
  REQUIRE(again);
  CHECK(again->device.contention == own);
  CHECK(Device().contention.of(Resource::Device, Resource::Links) == defaultContention);
  CHECK_THAT(failure(with(R"({"device-links": 0.9})")),
             Catch::Contains("a factor of contention is at least 1"));
  CHECK_THAT(failure(with(R"({"links-device": 1.5})")),
             Catch::Contains(
                 "\"links-device\" is no pair of resources; there are device-links"));
}
