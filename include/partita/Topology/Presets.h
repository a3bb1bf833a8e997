//===- Presets.h - Devices and servers that are known by name ---*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_PRESETS_H
#define PARTITA_TOPOLOGY_PRESETS_H

#include "partita/Topology/Topology.h"

#include <optional>

namespace partita {

/// "V100-16GB", "V100-32GB", "A100-80GB", "H100-80GB", "cpu-core".
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

/// What a software stack reaches of a device in 16-bit floats, and of the links of its
/// servers: eight constants, fitted to steps that were measured (docs/published.md).
struct StackPreset {
  std::string name;
  double launch = 0;            ///< Stack::launch
  double efficiency = 1;        ///< MatmulModel::efficiency
  double halfTile = 0;          ///< MatmulModel::halfTile
  double fillSteps = 0;         ///< MatmulModel::fillSteps
  double memoryEfficiency = 1;  ///< Device::memoryEfficiency
  double linkEfficiency = 1;    ///< LinkLevel::efficiency of the innermost level
  double linkRamp = 0;          ///< LinkLevel::ramp of all levels
  double networkEfficiency = 1; ///< LinkLevel::efficiency of the other levels
  bool functionsApart = false, attentionApart = false; ///< what it joins

  void applyTo(Topology &topology) const;
};
/// Stacks with constants for a device.
std::vector<StackPreset> stackPresets(std::string_view device);

} // namespace partita

#endif // PARTITA_TOPOLOGY_PRESETS_H
