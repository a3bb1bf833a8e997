//===- ReadTopology.cpp - Cluster files -----------------------------------===//
#include "ReadDevice.h"
#include "partita/Topology/Quantity.h"

#include "partita/Topology/Presets.h"

#include <algorithm>

using namespace partita;
using namespace partita::cluster;

/// The level preset that is named, or an empty level if none is.
static Expected<LinkLevel> startingPoint(const JsonValue &value) {
  if (!value.has("preset")) {
    for (const char *key : {"bandwidth", "latency"})
      if (auto member = value.at(key); !member)
        return tl::unexpected(member.error());
    return LinkLevel();
  }
  auto preset = value.at("preset");
  auto name = preset->asString();
  if (!name)
    return tl::unexpected(name.error());
  std::optional<LinkLevel> level = levelPreset(*name);
  if (!level)
    return preset->error("no level preset \"" + *name + "\"; there are " +
                         listed(levelPresetNames()));
  return *level;
}

static Expected<double> readOversubscription(const JsonValue &value) {
  auto ratio = readPositive(value);
  if (ratio && *ratio < 1)
    return value.error("an oversubscription is at least 1");
  return ratio;
}

static Expected<LinkLevel> readLevel(const JsonValue &value) {
  if (auto ok =
          value.allowOnly({"preset", "name", "size", "bandwidth", "latency",
                           "oversubscription", "efficiency", "ramp", "shares_memory"});
      !ok)
    return tl::unexpected(ok.error());
  for (const char *key : {"name", "size"})
    if (auto member = value.at(key); !member)
      return tl::unexpected(member.error());
  auto start = startingPoint(value);
  if (!start)
    return start;
  LinkLevel level = std::move(*start);
  auto text = [](const JsonValue &v) { return v.asString(); };
  auto flag = [](const JsonValue &v) { return v.asBool(); };
  auto size = [](const JsonValue &v) { return v.asInteger(1, int64_t(1) << 31); };
  auto bytes = [](const JsonValue &v) -> Expected<double> {
    if (v.isNumber())
      return readNonNegative(v);
    return readBytes(v).map([](int64_t n) { return static_cast<double>(n); });
  };
  auto ok = readMember(value, "name", level.name, text)
                .and_then([&] { return readMember(value, "size", level.size, size); })
                .and_then([&] {
                  return readMember(value, "bandwidth", level.bandwidth, readPositive);
                })
                .and_then([&] {
                  return readMember(value, "latency", level.latency, readNonNegative);
                })
                .and_then([&] {
                  return readMember(value, "oversubscription", level.oversubscription,
                                    readOversubscription);
                })
                .and_then([&] {
                  return readMember(value, "efficiency", level.efficiency, readFraction);
                })
                .and_then([&] { return readMember(value, "ramp", level.ramp, bytes); })
                .and_then([&] {
                  return readMember(value, "shares_memory", level.sharesMemory, flag);
                });
  if (!ok)
    return tl::unexpected(ok.error());
  return level;
}

/// Appends the levels of the file; names are distinct, so that reports can use them.
static Expected<void> readLevels(const JsonValue &value, std::vector<LinkLevel> &levels) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  for (const JsonValue &element : *elements) {
    auto level = readLevel(element);
    if (!level)
      return tl::unexpected(level.error());
    for (const LinkLevel &other : levels)
      if (other.name == level->name)
        return element.error("a level \"" + level->name + "\" is there already");
    int64_t devices = 1;
    for (const LinkLevel &other : levels)
      devices *= other.size;
    // A mesh has no more ranks (Mesh::create).
    if (level->size > (int64_t(1) << 20) / devices)
      return element.error("with this level there are more than 2^20 devices");
    levels.push_back(std::move(*level));
  }
  if (levels.size() > Topology::maxLevels)
    return value.error("there are " + std::to_string(levels.size()) +
                       " levels, at most " + std::to_string(Topology::maxLevels) +
                       " are possible");
  return {};
}

static Expected<Host> readHost(const JsonValue &value, Host host) {
  auto ok =
      value.allowOnly({"memory", "bandwidth", "request", "launch", "call", "copies"})
          .and_then([&] { return readMember(value, "memory", host.memory, readBytes); })
          .and_then([&] {
            return readMember(value, "bandwidth", host.bandwidth, readPositive);
          })
          .and_then(
              [&] { return readMember(value, "request", host.request, readNonNegative); })
          .and_then(
              [&] { return readMember(value, "launch", host.launch, readNonNegative); })
          .and_then([&] { return readMember(value, "call", host.call, readNonNegative); })
          .and_then(
              [&] { return readMember(value, "copies", host.copies, readNonNegative); });
  if (!ok)
    return tl::unexpected(ok.error());
  return host;
}

static Expected<Stack> readStack(const JsonValue &value) {
  Stack stack;
  if (auto ok = value.allowOnly({"name", "launch", "backward_launch", "attention_apart",
                                 "flash_attention", "attention_efficiency", "eager",
                                 "overlaps"});
      !ok)
    return tl::unexpected(ok.error());
  if (auto name = value.at("name"); !name)
    return tl::unexpected(name.error());
  auto text = [](const JsonValue &v) -> Expected<std::string> {
    auto name = v.asString();
    return name && name->empty() ? v.error("a stack has a name") : name;
  };
  auto flag = [&](const char *name, bool &member) {
    return readMember(value, name, member, [](const JsonValue &v) { return v.asBool(); });
  };
  auto ok = readMember(value, "name", stack.name, text)
                .and_then([&] {
                  return readMember(value, "launch", stack.launch, readNonNegative);
                })
                .and_then([&] {
                  return readMember(value, "backward_launch", stack.backwardLaunch,
                                    readNonNegative);
                })
                .and_then([&] {
                  return readMember(value, "attention_efficiency",
                                    stack.attentionEfficiency, readFraction);
                })
                .and_then([&] { return flag("attention_apart", stack.attentionApart); })
                .and_then([&] { return flag("flash_attention", stack.flashAttention); })
                .and_then([&] { return flag("eager", stack.isEager); })
                .and_then([&] { return flag("overlaps", stack.overlaps); });
  if (!ok)
    return tl::unexpected(ok.error());
  return stack;
}

/// The stack by itself, or by name with its constants for the device and its levels.
static Expected<void> takeStack(const JsonValue &value, Topology &topology) {
  if (value.isObject())
    return readStack(value).map([&](Stack stack) { topology.stack = std::move(stack); });
  auto name = value.asString();
  if (!name)
    return tl::unexpected(name.error());
  auto known = stackPresets(topology.device.name);
  const auto preset = std::ranges::find(
      known, *name, [](const StackPreset &it) { return it.stack.name; });
  if (preset == known.end()) {
    std::vector<std::string> names;
    for (const StackPreset &it : known)
      names.push_back(it.stack.name);
    return value.error("no figures of a stack \"" + *name + "\" are known for device " +
                       topology.device.name +
                       (names.empty() ? "" : "; there are " + listed(names)));
  }
  preset->applyTo(topology);
  return {};
}

static Expected<Topology> readServer(const JsonValue &value) {
  auto name = value.asString();
  if (!name)
    return tl::unexpected(name.error());
  std::optional<Topology> server = serverPreset(*name);
  if (!server)
    return value.error("no server preset \"" + *name + "\"; there are " +
                       listed(serverPresetNames()));
  return *server;
}

static Expected<Topology> readRoot(const JsonValue &root) {
  Topology result;
  auto host = [&](const JsonValue &v) { return readHost(v, result.host); };
  if (auto ok = root.allowOnly({"server", "device", "levels", "host", "stack"}); !ok)
    return tl::unexpected(ok.error());
  if (root.has("server") && root.has("device"))
    return root.error("\"server\" and \"device\" are given; a server names its device");
  if (!root.has("server"))
    for (const char *key : {"device", "levels"})
      if (auto member = root.at(key); !member)
        return tl::unexpected(member.error());
  auto ok =
      readMember(root, "server", result, readServer)
          .and_then([&] { return readMember(root, "device", result.device, readDevice); })
          .and_then([&] { return readMember(root, "host", result.host, host); });
  if (ok && root.has("levels"))
    ok = readLevels(*root.at("levels"), result.levels);
  if (ok && root.has("stack"))
    ok = takeStack(*root.at("stack"), result);
  if (!ok)
    return tl::unexpected(ok.error());
  return result;
}

Expected<Topology> partita::readTopology(std::string_view text, const std::string &file) {
  return parseJson(text, file).and_then(readRoot);
}

Expected<Topology> partita::readTopologyFile(const std::string &path) {
  return readJsonFile(path).and_then(readRoot);
}

Expected<void> Machine::readCluster(const std::string &path) {
  auto read = readTopologyFile(path);
  if (!read)
    return tl::unexpected(read.error());
  file = path;
  memory = read->device.memory - read->device.reserve.total();
  cluster = std::move(*read);
  return {};
}

Expected<void> Machine::readMemory(std::string_view text) {
  auto bytes = cluster::parseBytes(text);
  if (!bytes)
    return makeError("memory: " + bytes.error().message);
  *this = limitedTo(*bytes);
  return {};
}

Machine Machine::limitedTo(std::optional<int64_t> bytes) const {
  Machine machine = *this;
  machine.memory = bytes;
  machine.isExact = true;
  return machine;
}
