//===- Watchdog.h - Sees ranks that stand still -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_WATCHDOG_H
#define PARTITA_LIB_RUNTIME_CORE_WATCHDOG_H

#include "Interface.h"

#include <chrono>
#include <optional>

namespace partita::runtime {

/// Watches the ranks of this process during one request.
class Watchdog {
public:
  Watchdog(const Stages &stages, std::vector<int> ranks, const RankProgress *progress,
           double timeout);

  /// From now on.
  void begin();
  /// The sentence for a rank that stands still, if one does. A rank that waits for others
  /// is not to blame, so it is named only when nobody else can be. `awaited`: the rank
  /// whose outputs this process waits for, or -1.
  std::optional<std::string> look(int awaited);

private:
  using Clock = std::chrono::steady_clock;
  struct Sighting {
    uint64_t heartbeat = 0;
    Clock::time_point when;
  };
  std::string placeOf(int rank) const;

  const Stages &stages;
  std::vector<int> ranks;
  const RankProgress *progress; ///< by rank
  double timeout;
  std::vector<Sighting> seen;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_WATCHDOG_H
