//===- Team.h - The threads of a rank ---------------------------*- C++ -*-===//
//
// A rank's threads are the OpenMP team of the runtime that the engine was built with: the
// calls of an engine and the kernels between them wake the same threads, one team per
// thread that asks. The runtime is found by name where the engine has loaded it, so that
// no second one is linked; without one, everything runs on the calling thread.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_TEAM_H
#define PARTITA_RUNTIME_TEAM_H

#include <cstdint>
#include <type_traits>

namespace partita::runtime {

/// Sets the size of the team of *this* thread, for the engine's calls and runParts. Sizes
/// and descriptors of engine calls depend on it: set it before they are prepared.
void setTeamSize(int threads);
/// At least 1.
int teamSize();

/// What 0 threads per rank stands for where `ranks` ranks share this machine: the cores
/// that this process may use, divided among them; at least 1.
int threadsPerRank(int64_t ranks);

using PartFunction = void (*)(void *data, int part);
void runParts(int parts, PartFunction function, void *data) noexcept;

/// Runs body(0) … body(parts − 1) on the team and returns when all are done. Which thread
/// runs which part never depends on time. Allocates nothing; `body` must not throw, and
/// must not run parts itself.
template <typename Body> void runParts(int parts, Body &&body) noexcept {
  using Plain = std::remove_reference_t<Body>;
  runParts(
      parts, [](void *data, int part) { (*static_cast<Plain *>(data))(part); }, &body);
}

/// Where part `part` of `parts` begins in `units`: they differ by one unit at most.
inline int64_t partBegin(int64_t units, int part, int parts) {
  return units / parts * part + units % parts * part / parts;
}

/// Calls body(begin, end) for ranges that together are [0, units), on the team where that
/// is worth it: a unit is `work` operations.
template <typename Body>
void runRanges(int64_t units, int64_t work, Body &&body) noexcept {
  constexpr int64_t worth = 1 << 16; // takes longer than waking a thread
  int64_t most = worth / (work > 0 ? work : 1) + 1, team = teamSize();
  int64_t parts = units / most < team ? units / most : team;
  if (parts <= 1)
    return body(int64_t(0), units);
  runParts(static_cast<int>(parts), [&](int part) {
    body(partBegin(units, part, static_cast<int>(parts)),
         partBegin(units, part + 1, static_cast<int>(parts)));
  });
}

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_TEAM_H
