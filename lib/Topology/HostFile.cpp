//===- HostFile.cpp - The constants of the machine at hand ----------------===//
#include "partita/Topology/HostFile.h"

#include "partita/Topology/Presets.h"

#include <cstdlib>
#include <filesystem>

using namespace partita;

std::string partita::hostFile() {
  const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
  if (config && *config)
    return std::string(config) + "/partita/host.json";
  return home && *home ? std::string(home) + "/.config/partita/host.json" : "";
}

Expected<HostDevice> partita::hostDevice() {
  HostDevice result{*devicePreset("cpu-core"), *levelPreset("shared-memory"),
                    serverPreset("cpu-host")->host};
  std::string path = hostFile();
  std::error_code code;
  if (path.empty() || !std::filesystem::exists(path, code))
    return result;
  auto topology = readTopologyFile(path);
  if (!topology)
    return tl::unexpected(topology.error());
  if (topology->levels.size() != 1)
    return makeError(path + ": it has " + std::to_string(topology->levels.size()) +
                     " levels, that of this host has one; see partita calibrate");
  return HostDevice{topology->device, topology->levels[0], topology->host, true};
}
