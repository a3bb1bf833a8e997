//===- Topology.h - Devices and the links between them ----------*- C++ -*-===//
//
// A topology is one kind of device, repeated along a row of *levels* from inside out:
// the 8 devices of a server behind NVLink, 16 servers of a rack behind their adapters,
// 8 racks behind a spine. Device numbers are row-major with the innermost level minor, so
// device 13 of levels 8, 16 is device 5 of server 1.
//
// A level says what joins its members: bandwidth is what one device can send and, at the
// same time, receive through it. Traffic between two devices goes through the links of
// the outermost level at which they differ.
//
// Bandwidths, peaks and memory are the data sheet's; what software reaches of them is
// said by the efficiencies beside them, which are measured once per device, never fitted
// to a model.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOPOLOGY_TOPOLOGY_H
#define PARTITA_TOPOLOGY_TOPOLOGY_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Topology/Contention.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// Block of a matrix product that one unit of a device computes at a time.
struct MatmulTile {
  int64_t m = 1, n = 1;
  bool operator==(const MatmulTile &) const = default;
};

/// How fast matrix products run; see Cost/Matmul.h for the formula that it feeds.
struct MatmulModel {
  int64_t units = 1; ///< that compute tiles at once: multiprocessors, or cores
  std::vector<MatmulTile> tiles{{1, 1}}; ///< that the engine has kernels for
  double efficiency = 1;                 ///< of the peak, for endless matrices
  /// Tile m·n/(m+n) at which loading a tile's operands takes as long as computing it.
  double halfTile = 0;
  /// Steps of the reduced loop that filling and draining a tile's pipeline cost.
  double fillSteps = 0;
  /// Bytes that the rows of both operands and of the result should be a multiple of, and
  /// the speed where they are not, as a fraction.
  int64_t rowBytes = 1;
  double misaligned = 1;
  /// How many times as fast as cacheBandwidth operands come from the cache: a product
  /// mostly reads, other kernels write as much as they read.
  double nearSpeed = 1;
  /// Elements per second that the transforms of Winograd's algorithm make, of the pieces
  /// of images and of results (Cost/Winograd.h); 0: convolutions are products.
  double winograd = 0;
  /// Whether functions of real numbers of what a product gives are a kernel of their own,
  /// and so what works on rows of it. Else they are computed before it is written.
  bool functionsApart = false;
  /// Whether a softmax between two products is one kernel with both, which keeps neither
  /// what goes into it nor what comes out.
  bool streamsAttention = false;
};

/// Bytes of a device that are no plan's: others take them.
struct MemoryReserve {
  int64_t context = 0;       ///< the driver, its context, the code of kernels
  int64_t communicators = 0; ///< buffers of the library that communicates
  /// Between values that are placed: a search counts those that are alive.
  int64_t fragmentation = 0;
  int64_t total() const { return context + communicators + fragmentation; }
};

struct Device {
  std::string name;
  std::vector<std::pair<DType, double>>
      peak;                    ///< FLOP/s, or integer operations per second
  int64_t memory = 0;          ///< bytes
  MemoryReserve reserve;       ///< of it, where no plan is given a memory exactly
  double memoryBandwidth = 0;  ///< bytes/s, the data sheet's
  double memoryEfficiency = 1; ///< of it, for long streams
  double launch = 0;           ///< seconds from one kernel to the next
  /// Bytes of the cache in which a kernel finds what has just been touched, and its
  /// bytes/s; 0: all comes from memory.
  int64_t cache = 0;
  double cacheBandwidth = 0;
  /// Steps per second (FlowOp::steps) of kernels that are no matrix products; 0: as many
  /// operations as the f32 peak has, and a function of real numbers is one.
  double pointwise = 0;
  MatmulModel matmul;
  Contention contention;

  /// Operations per second in matrix products of `type`. One that is not listed computes
  /// as the other 16-bit float or kind of byte, else as f32, else at the least rate
  /// listed; 0 without any.
  double peakOf(DType type) const;
  double pointwiseRate() const { return pointwise > 0 ? pointwise : peakOf(DType::F32); }
};

struct LinkLevel {
  std::string name;
  int64_t size = 1;     ///< members: devices, or units of the level inside
  double bandwidth = 0; ///< bytes/s per device and direction
  double latency = 0;   ///< seconds per message
  /// How many times more the members can send than what is above them can carry, ≥ 1.
  double oversubscription = 1;
  double efficiency = 1; ///< of the bandwidth, for long messages
  /// Bytes up to which a collective runs at half of that.
  double ramp = 0;
  /// Whether members read and write each other's memory, so that a collective takes two
  /// meetings of all and no messages.
  bool sharesMemory = false;

  /// Bytes/s that a device gets through this level with long messages when all devices
  /// send.
  double effective() const { return bandwidth * efficiency / oversubscription; }
};

struct Host {
  int64_t memory = 0;   ///< bytes per device
  double bandwidth = 0; ///< bytes/s per device and direction
  /// Seconds that a request takes beside its tasks and the copies of its inputs and
  /// outputs: the runtime wakes the ranks and, when they have ended, the caller.
  double request = 0;
  /// Device::launch in a request whose code and data stay in a core's own caches until
  /// the next request (RequestLimits); 0: unknown.
  double launch = 0;
  /// Seconds that a call of an engine takes in such a request beside a kernel's launch.
  double call = 0;
  /// Bytes/s that a request's copies read and write where both fit in the device's cache;
  /// 0: as kernels do. A copy does nothing else, and runs ahead further.
  double copies = 0;
};

/// The software that runs a program on the devices, where it is not Partita's.
struct Stack {
  std::string name; ///< empty: Partita's own
  /// Seconds in which the host of a device starts one kernel or collective of a forward
  /// pass (or of what is computed again), and of a backward pass. Kernels run meanwhile:
  /// both passes together take the longer of device and host. The update begins when all
  /// gradients are there, and starts few kernels.
  double launch = 0, backwardLaunch = 0;
  /// True if a training step computes attention by two products, with a tensor of
  /// queries × keys between them.
  bool attentionApart = false;
  /// True if attention is one kernel forward and one of five products backward, as
  /// FlashAttention-2 (Dao 2023, algorithm 2); else a gradient by queries and one by keys
  /// compute scores and their cotangents each.
  bool flashAttention = false;
  /// Share of the peak that these products reach in 16 bits; 0: what their shapes say.
  double attentionEfficiency = 0;
  /// True if each op is a kernel of its own, as without a compiler.
  bool isEager = false;
  /// True if collectives are in flight while kernels run that do not need them, in the
  /// order that lib/Comm gives a step (docs/communication.md).
  bool overlaps = false;
};

struct Topology {
  /// So that costs per level fit in an array.
  static constexpr size_t maxLevels = 8;

  Device device;
  std::vector<LinkLevel> levels; ///< from inside out
  Host host;
  Stack stack = {};

  /// Product of the level sizes; 1 without levels.
  int64_t numDevices() const;
  /// Devices in one unit of level `level`: the product of the sizes up to it.
  int64_t unit(size_t level) const;
};

/// Reads a cluster file, described in docs/topology.md. An error names the file, the
/// member and the value.
Expected<Topology> readTopologyFile(const std::string &path);
/// The same from a text; `file` is used in messages only.
Expected<Topology> readTopology(std::string_view text, const std::string &file);

/// What a plan is for, as it is asked for.
struct Machine {
  std::string file; ///< of the cluster, for messages
  /// Absent: this host, whose levels are the mesh axes.
  std::optional<Topology> cluster;
  std::optional<int64_t> memory; ///< bytes that a device may use; absent: no limit
  /// Whether `memory` was asked for; else it is what the cluster's devices have, less
  /// their reserve.
  bool isExact = false;

  /// Reads the cluster file, whose memory is the limit. An error names what is wrong
  /// with the file.
  Expected<void> readCluster(const std::string &path);
  /// Reads a limit as cluster files have it, "16GiB", in the place of the cluster's.
  Expected<void> readMemory(std::string_view text);
  /// The same machine with so many bytes for each device, or without a limit.
  Machine limitedTo(std::optional<int64_t> bytes) const;
};

} // namespace partita

#endif // PARTITA_TOPOLOGY_TOPOLOGY_H
