//===- Presets.h - Devices and servers that are known by name ---*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_PRESETS_H
#define PARTITA_TOPOLOGY_PRESETS_H

#include "partita/Topology/Topology.h"

#include <optional>

namespace partita {

/// "V100-16GB", "V100-32GB", "A100-80GB", "H100-80GB", "H100-96GB", "cpu-core".
std::optional<Device> devicePreset(std::string_view name);
std::vector<std::string> devicePresetNames();

/// A server: a device, the levels inside it and its host. "DGX-V100", "DGX-A100",
/// "DGX-H100", "cpu-host".
std::optional<Topology> serverPreset(std::string_view name);
std::vector<std::string> serverPresetNames();

/// A level without its size: "nvlink2", "nvlink3", "nvlink4", "edr", "hdr", "ndr",
/// "shared-memory".
std::optional<LinkLevel> levelPreset(std::string_view name);
std::vector<std::string> levelPresetNames();

/// A software stack on a device: its host's launches, fitted to steps that were measured
/// (docs/published.md), and which ops it joins. Links are as they are, and so is the
/// device, but for what products reach under the power that a whole step draws.
struct StackPreset {
  Stack stack;
  bool functionsApart = false; ///< MatmulModel::functionsApart
  double efficiency = 0;       ///< MatmulModel::efficiency; 0: the device's

  void applyTo(Topology &topology) const;
};
/// Stacks with constants for a device.
std::vector<StackPreset> stackPresets(std::string_view device);

} // namespace partita

#endif // PARTITA_TOPOLOGY_PRESETS_H
