//===- HostFile.h - The constants of the machine at hand --------*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_HOSTFILE_H
#define PARTITA_TOPOLOGY_HOSTFILE_H

#include "partita/Topology/Topology.h"

namespace partita {

/// Where `partita calibrate` leaves what it found: partita/host.json in
/// $XDG_CONFIG_HOME, else in $HOME/.config. Empty without either.
std::string hostFile();

/// A rank of this machine and what joins ranks: of hostFile() if that is there, else the
/// presets "cpu-core" and "shared-memory".
struct HostDevice {
  Device device;
  LinkLevel level; ///< of whatever size
  Host host;
  bool calibrated = false;
};
/// An error if the file is there and no cluster file of one level.
Expected<HostDevice> hostDevice();

} // namespace partita

#endif // PARTITA_TOPOLOGY_HOSTFILE_H
