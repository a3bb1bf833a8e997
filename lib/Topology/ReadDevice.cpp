//===- ReadDevice.cpp - The device of a cluster file ----------------------===//
#include "ReadDevice.h"

#include "partita/Topology/Quantity.h"

#include "partita/Topology/Presets.h"

#include <map>

using namespace partita;
using namespace partita::cluster;

static Expected<std::vector<std::pair<DType, double>>> readPeak(const JsonValue &value) {
  auto members = value.members();
  if (!members)
    return tl::unexpected(members.error());
  std::vector<std::pair<DType, double>> peak;
  for (const auto &[name, rate] : *members) {
    std::optional<DType> type = dtypeFromName(name);
    if (!type)
      return value.error("\"" + name + "\" is no element type");
    auto number = readPositive(rate);
    if (!number)
      return tl::unexpected(number.error());
    peak.emplace_back(*type, *number);
  }
  if (peak.empty())
    return value.error("names no element type");
  return peak;
}

static Expected<std::vector<MatmulTile>> readTiles(const JsonValue &value) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<MatmulTile> tiles;
  for (const JsonValue &element : *elements) {
    auto sizes = element.asIntegers();
    if (!sizes)
      return tl::unexpected(sizes.error());
    if (sizes->size() != 2 || (*sizes)[0] < 1 || (*sizes)[1] < 1)
      return element.error("expected [rows, columns], each at least 1");
    tiles.push_back({(*sizes)[0], (*sizes)[1]});
  }
  if (tiles.empty())
    return value.error("lists no tile");
  return tiles;
}

static Expected<MatmulModel> readMatmul(const JsonValue &value, MatmulModel model) {
  auto units = [](const JsonValue &v) { return v.asInteger(1, 1 << 24); };
  auto flag = [](const JsonValue &v) { return v.asBool(); };
  auto ok =
      value
          .allowOnly({"units", "tiles", "efficiency", "half_tile", "fill_steps",
                      "row_bytes", "misaligned", "near_speed", "winograd",
                      "functions_apart", "streams_attention"})
          .and_then([&] { return readMember(value, "units", model.units, units); })
          .and_then([&] { return readMember(value, "tiles", model.tiles, readTiles); })
          .and_then([&] {
            return readMember(value, "efficiency", model.efficiency, readFraction);
          })
          .and_then([&] {
            return readMember(value, "half_tile", model.halfTile, readNonNegative);
          })
          .and_then([&] {
            return readMember(value, "fill_steps", model.fillSteps, readNonNegative);
          })
          .and_then([&] { return readMember(value, "row_bytes", model.rowBytes, units); })
          .and_then([&] {
            return readMember(value, "misaligned", model.misaligned, readFraction);
          })
          .and_then([&] {
            return readMember(value, "near_speed", model.nearSpeed, readPositive);
          })
          .and_then([&] {
            return readMember(value, "winograd", model.winograd, readNonNegative);
          })
          .and_then([&] {
            return readMember(value, "functions_apart", model.functionsApart, flag);
          })
          .and_then([&] {
            return readMember(value, "streams_attention", model.streamsAttention, flag);
          });
  if (!ok)
    return tl::unexpected(ok.error());
  return model;
}

static Expected<MemoryReserve> readReserve(const JsonValue &value) {
  MemoryReserve reserve;
  auto ok =
      value.allowOnly({"context", "communicators", "fragmentation"})
          .and_then(
              [&] { return readMember(value, "context", reserve.context, readBytes); })
          .and_then([&] {
            return readMember(value, "communicators", reserve.communicators, readBytes);
          })
          .and_then([&] {
            return readMember(value, "fragmentation", reserve.fragmentation, readBytes);
          });
  if (!ok)
    return tl::unexpected(ok.error());
  return reserve;
}

/// "device-links" and the like; pairs that are not named stay as they are.
static Expected<Contention> readContention(const JsonValue &value, Contention result) {
  auto members = value.members();
  if (!members)
    return tl::unexpected(members.error());
  std::vector<std::string> names;
  std::map<std::string, std::pair<Resource, Resource>> pairs;
  for (size_t a = 0; a < numResources; ++a)
    for (size_t b = a + 1; b < numResources; ++b) {
      names.push_back(std::string(resourceNames[a]) + "-" +
                      std::string(resourceNames[b]));
      pairs[names.back()] = {static_cast<Resource>(a), static_cast<Resource>(b)};
    }
  for (const auto &[name, member] : *members) {
    if (!pairs.contains(name))
      return value.error("\"" + name + "\" is no pair of resources; there are " +
                         listed(names));
    auto factor = readPositive(member);
    if (!factor)
      return tl::unexpected(factor.error());
    if (*factor < 1)
      return member.error("a factor of contention is at least 1");
    result.set(pairs[name].first, pairs[name].second, *factor);
  }
  return result;
}

/// The preset that is named, or an empty device if none is.
static Expected<Device> startingPoint(const JsonValue &value) {
  if (!value.has("preset")) {
    for (const char *key : {"name", "peak", "memory", "memory_bandwidth"})
      if (auto member = value.at(key); !member)
        return tl::unexpected(member.error());
    return Device();
  }
  auto preset = value.at("preset");
  auto name = preset->asString();
  if (!name)
    return tl::unexpected(name.error());
  std::optional<Device> device = devicePreset(*name);
  if (!device)
    return preset->error("no device preset \"" + *name + "\"; there are " +
                         listed(devicePresetNames()));
  return *device;
}

Expected<Device> cluster::readDevice(const JsonValue &value) {
  if (auto ok =
          value.allowOnly({"preset", "name", "peak", "memory", "memory_bandwidth",
                           "memory_efficiency", "reserve", "launch", "cache",
                           "cache_bandwidth", "pointwise_steps", "matmul", "contention"});
      !ok)
    return tl::unexpected(ok.error());
  auto start = startingPoint(value);
  if (!start)
    return start;
  Device device = std::move(*start);
  if (value.has("memory")) // what is said is exact
    device.reserve = {};
  auto text = [](const JsonValue &v) { return v.asString(); };
  auto matmul = [&](const JsonValue &v) { return readMatmul(v, device.matmul); };
  auto contention = [&](const JsonValue &v) {
    return readContention(v, device.contention);
  };
  auto ok =
      readMember(value, "name", device.name, text)
          .and_then([&] { return readMember(value, "peak", device.peak, readPeak); })
          .and_then([&] { return readMember(value, "memory", device.memory, readBytes); })
          .and_then(
              [&] { return readMember(value, "reserve", device.reserve, readReserve); })
          .and_then([&] {
            return readMember(value, "memory_bandwidth", device.memoryBandwidth,
                              readPositive);
          })
          .and_then([&] {
            return readMember(value, "memory_efficiency", device.memoryEfficiency,
                              readFraction);
          })
          .and_then(
              [&] { return readMember(value, "launch", device.launch, readNonNegative); })
          .and_then([&] { return readMember(value, "cache", device.cache, readBytes); })
          .and_then([&] {
            return readMember(value, "cache_bandwidth", device.cacheBandwidth,
                              readPositive);
          })
          .and_then([&] {
            return readMember(value, "pointwise_steps", device.pointwise, readPositive);
          })
          .and_then([&] { return readMember(value, "matmul", device.matmul, matmul); })
          .and_then([&] {
            return readMember(value, "contention", device.contention, contention);
          });
  if (!ok)
    return tl::unexpected(ok.error());
  if (device.reserve.total() >= device.memory)
    return value.error("has a \"reserve\" of " + std::to_string(device.reserve.total()) +
                       " bytes in a memory of " + std::to_string(device.memory));
  if (device.cache > 0 && device.cacheBandwidth == 0)
    return value.error("has \"cache\" without \"cache_bandwidth\"");
  return device;
}
