//===- LocalShares.h - What a rank does of a collective ---------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_LOCALSHARES_H
#define PARTITA_LIB_RUNTIME_CORE_LOCALSHARES_H

#include "partita/Runtime/Transport.h"

#include <atomic>

namespace partita::runtime::local {

/// Places of a member's buffers during one collective: source and target of each item.
struct alignas(64) Slot {
  void *const *places = nullptr;

  const std::byte *source(size_t item) const {
    return static_cast<const std::byte *>(places[2 * item]);
  }
  std::byte *target(size_t item) const {
    return static_cast<std::byte *>(places[2 * item + 1]);
  }
};

/// Meeting of the members of a group for the calls of one handle, one call after the
/// other. The counts only grow (and wrap): call k is met when one has reached k ·
/// members.
struct Meeting {
  std::vector<int32_t> members; ///< ranks
  std::vector<Slot> slots;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> done{0};
  explicit Meeting(const std::vector<int32_t> &members)
      : members(members), slots(members.size()) {}
};

inline bool reached(const std::atomic<uint32_t> &count, uint32_t wanted) {
  return static_cast<int32_t>(count.load() - wanted) >= 0;
}

/// A rank's place in a meeting: the number of its calls there.
struct Seat {
  Meeting *meeting = nullptr;
  uint32_t calls = 0;
  uint32_t wanted() const {
    return calls * static_cast<uint32_t>(meeting->members.size());
  }
};

/// A rank's part in a collective.
struct Prepared {
  Collective collective;
  Seat *seat = nullptr;
  uint64_t received = 0;     ///< bytes from others
  std::vector<size_t> place; ///< in the group, by rank
  std::vector<const void *> sources;
  std::vector<void *> targets;
  const int64_t *counts = nullptr;   ///< of what is in flight
  std::atomic<bool> isTaken{true};   ///< somebody does the share of it, or has
  std::atomic<bool> isHelped{false}; ///< a thread that is no rank does it now

  bool isMet() const { return reached(seat->meeting->arrived, seat->wanted()); }
};

/// Does the rank's share of a call that is met: reads and writes the members' buffers.
void share(Prepared &p);

} // namespace partita::runtime::local

#endif // PARTITA_LIB_RUNTIME_CORE_LOCALSHARES_H
