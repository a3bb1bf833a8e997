//===- WriteTopology.cpp - Cluster files ----------------------------------===//
#include "partita/Topology/WriteTopology.h"

#include "partita/Base/Files/JsonWriter.h"

using namespace partita;

static void writeMatmul(JsonWriter &json, const MatmulModel &model) {
  json.beginObject();
  json.member("units", model.units);
  json.key("tiles");
  json.beginArray();
  for (const MatmulTile &tile : model.tiles) {
    json.beginArray();
    json.value(tile.m);
    json.value(tile.n);
    json.endArray();
  }
  json.endArray();
  json.member("efficiency", model.efficiency);
  json.member("half_tile", model.halfTile);
  json.member("fill_steps", model.fillSteps);
  json.member("row_bytes", model.rowBytes);
  json.member("misaligned", model.misaligned);
  if (model.nearSpeed != 1)
    json.member("near_speed", model.nearSpeed);
  if (model.winograd > 0)
    json.member("winograd", model.winograd);
  if (model.functionsApart)
    json.member("functions_apart", true);
  if (model.streamsAttention)
    json.member("streams_attention", true);
  json.endObject();
}

/// Pairs that are not as they are where nothing is said.
static void writeContention(JsonWriter &json, const Contention &contention) {
  if (contention == Contention())
    return;
  json.key("contention");
  json.beginObject();
  for (size_t a = 0; a < numResources; ++a)
    for (size_t b = a + 1; b < numResources; ++b)
      json.member(std::string(resourceNames[a]) + "-" + std::string(resourceNames[b]),
                  contention.of(static_cast<Resource>(a), static_cast<Resource>(b)));
  json.endObject();
}

static void writeDevice(JsonWriter &json, const Device &device) {
  json.beginObject();
  json.member("name", std::string_view(device.name));
  json.key("peak");
  json.beginObject();
  for (const auto &[type, rate] : device.peak)
    json.member(name(type), rate);
  json.endObject();
  json.member("memory", device.memory);
  if (device.reserve.total() > 0) {
    json.key("reserve");
    json.beginObject();
    const MemoryReserve &reserve = device.reserve;
    for (auto [name, bytes] : {std::pair("context", reserve.context),
                               std::pair("communicators", reserve.communicators),
                               std::pair("fragmentation", reserve.fragmentation)})
      if (bytes > 0)
        json.member(name, bytes);
    json.endObject();
  }
  json.member("memory_bandwidth", device.memoryBandwidth);
  json.member("memory_efficiency", device.memoryEfficiency);
  json.member("launch", device.launch);
  if (device.cache > 0) {
    json.member("cache", device.cache);
    json.member("cache_bandwidth", device.cacheBandwidth);
  }
  if (device.pointwise > 0)
    json.member("pointwise_steps", device.pointwise);
  json.key("matmul");
  writeMatmul(json, device.matmul);
  writeContention(json, device.contention);
  json.endObject();
}

static void writeLevel(JsonWriter &json, const LinkLevel &level) {
  json.beginObject();
  json.member("name", std::string_view(level.name));
  json.member("size", level.size);
  json.member("bandwidth", level.bandwidth);
  json.member("latency", level.latency);
  json.member("oversubscription", level.oversubscription);
  json.member("efficiency", level.efficiency);
  json.member("ramp", level.ramp);
  if (level.sharesMemory)
    json.member("shares_memory", true);
  json.endObject();
}

std::string partita::writeTopology(const Topology &topology) {
  JsonWriter json(JsonWriter::Style::Lines);
  json.beginObject();
  json.key("device");
  writeDevice(json, topology.device);
  json.key("levels");
  json.beginArray();
  for (const LinkLevel &level : topology.levels)
    writeLevel(json, level);
  json.endArray();
  if (topology.host.bandwidth > 0) {
    json.key("host");
    json.beginObject();
    json.member("memory", topology.host.memory);
    json.member("bandwidth", topology.host.bandwidth);
    if (topology.host.request > 0)
      json.member("request", topology.host.request);
    if (topology.host.launch > 0)
      json.member("launch", topology.host.launch);
    if (topology.host.call > 0)
      json.member("call", topology.host.call);
    if (topology.host.copies > 0)
      json.member("copies", topology.host.copies);
    json.endObject();
  }
  if (const Stack &stack = topology.stack; !stack.name.empty()) {
    json.key("stack");
    json.beginObject();
    json.member("name", std::string_view(stack.name));
    json.member("launch", stack.launch);
    json.member("backward_launch", stack.backwardLaunch);
    json.member("attention_apart", stack.attentionApart);
    json.member("flash_attention", stack.flashAttention);
    if (stack.attentionEfficiency > 0)
      json.member("attention_efficiency", stack.attentionEfficiency);
    json.member("eager", stack.isEager);
    json.member("overlaps", stack.overlaps);
    json.endObject();
  }
  json.endObject();
  return json.take() + "\n";
}
