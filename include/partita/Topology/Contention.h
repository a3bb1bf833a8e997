//===- Contention.h - What works beside what goes slower --------*- C++ -*-===//
//
// A device computes, sends and receives through its links, and copies from and to its
// host. Each alone takes a time; at once they share memory, caches and buses. While a set
// S of them works, resource r does a second's work in
//
//     1 + Σ over s in S, s ≠ r of (of(r, s) − 1)     seconds,
//
// but all together do at least one second's work in a second: else they would take turns.
// docs/cost.md has how the factors were found, and what the rule errs by.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOPOLOGY_CONTENTION_H
#define PARTITA_TOPOLOGY_CONTENTION_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace partita {

/// Parts of a device that work beside one another.
enum class Resource : uint8_t {
  Device,  ///< kernels
  Links,   ///< collectives, of any level
  HostIn,  ///< copies from the host
  HostOut, ///< copies to the host
};
inline constexpr size_t numResources = 4;
inline constexpr std::array<std::string_view, numResources> resourceNames = {
    "device", "links", "host_in", "host_out"};

/// The middle of what Galvatron (VLDB 2023, 1.1 to 1.3) and vTrain (MICRO 2024, NCCL 1.3
/// in a training step) measured, for devices that were not.
inline constexpr double defaultContention = 1.2;

/// Factors, at least 1, by unordered pair of resources.
class Contention {
public:
  Contention() : Contention(defaultContention) {}
  /// The same for all pairs.
  explicit Contention(double factor) { factors.fill(factor); }
  /// In the order device-links, device-host_in, device-host_out, links-host_in,
  /// links-host_out, host_in-host_out.
  explicit Contention(std::array<double, 6> factors) : factors(factors) {}

  double of(Resource a, Resource b) const { return factors[place(a, b)]; }
  void set(Resource a, Resource b, double factor) { factors[place(a, b)] = factor; }
  bool operator==(const Contention &) const = default;

private:
  static size_t place(Resource a, Resource b) {
    auto low = static_cast<size_t>(a < b ? a : b),
         high = static_cast<size_t>(a < b ? b : a);
    return low * (2 * numResources - low - 1) / 2 + (high - low - 1);
  }
  std::array<double, 6> factors;
};

} // namespace partita

#endif // PARTITA_TOPOLOGY_CONTENTION_H
