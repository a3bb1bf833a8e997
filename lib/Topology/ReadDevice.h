//===- ReadDevice.h - The device of a cluster file --------------*- C++ -*-===//
#ifndef PARTITA_LIB_TOPOLOGY_READDEVICE_H
#define PARTITA_LIB_TOPOLOGY_READDEVICE_H

#include "partita/Base/Files/Json.h"
#include "partita/Topology/Topology.h"

namespace partita::cluster {

/// A preset with members changed, or a device that is written out.
Expected<Device> readDevice(const JsonValue &value);

} // namespace partita::cluster

#endif // PARTITA_LIB_TOPOLOGY_READDEVICE_H
