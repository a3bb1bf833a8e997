//===- SharedCalls.h - Calls of ranks that see each other's memory -*- C++ -*-===//
//
// Ranks see each other's memory as threads of a process (LocalTeam) or as processes of a
// host that map it (lib/Runtime/Mpi/Window.h). Either way members of a collective meet
// twice. Each publishes its addresses, two per item, and arrives; when all have, each
// does its share by reading and writing the others' buffers, and is done; when all are,
// the call is over. An all-reduce is split by members: member i reduces part i of all
// sources and writes it to all targets, so memory is passed over once and an in-place
// call needs no copy.
//
// Nothing of that waits for anybody but SharedCalls::wait: several calls may be in
// flight, and who waits for one does its share of all. Threads that are no ranks may do
// shares while ranks compute (Movers). A waiting rank sleeps on its own bell, which rings
// whenever a call that it takes part in comes to a meeting.
//
// Addresses are published as distances from the begin of the rank's memory, because
// processes map it at different places. Between threads every memory begins at 0.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_SHAREDCALLS_H
#define PARTITA_RUNTIME_SHAREDCALLS_H

#include "partita/Runtime/Bell.h"
#include "partita/Runtime/Transport.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace partita::runtime {

/// Counts that all members of a meeting see. The counts only grow (and wrap): call k is
/// met when `arrived` has reached k · members.
struct MeetingCounts {
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> done{0};
};
/// A member's place there.
struct alignas(64) MeetingSlot {
  uint64_t list = 0; ///< distance of its list of places
};

/// Meeting of the members of a group for the calls of one handle, one call after the
/// other, as one rank sees it.
struct Meeting {
  std::vector<int32_t> members; ///< ranks
  MeetingCounts *counts = nullptr;
  MeetingSlot *slots = nullptr; ///< one per member
  uint32_t calls = 0;           ///< of this rank

  uint32_t wanted() const { return calls * static_cast<uint32_t>(members.size()); }
  static bool reached(const std::atomic<uint32_t> &count, uint32_t wanted) {
    return static_cast<int32_t>(count.load() - wanted) >= 0;
  }
  bool isMet() const { return reached(counts->arrived, wanted()); }
  bool isOver() const { return reached(counts->done, wanted()); }
};

/// Ranks that see each other's memory. Outlive their calls.
class Neighbours {
public:
  virtual ~Neighbours() = default;
  /// Place at which this process sees the begin of a rank's memory.
  virtual uintptr_t base(int rank) const = 0;
  virtual Bell &bell(int rank) = 0;
  /// Wakes all threads that move data for these ranks.
  virtual void ringMovers(const std::vector<int32_t> &members) = 0;
  virtual bool isAborted() const = 0;
  /// How often a waiting rank looks before it sleeps.
  virtual int spins() const = 0;

  /// Result of moving along what else a rank has begun.
  enum class Beside { Nothing, Something, Failure };
  /// Moves that along once. Called by the rank that waits.
  virtual Beside moveBeside() { return Beside::Nothing; }

  /// Counts a member of a call; the last one wakes the others. `self`: none but that one
  /// need not be woken; −1: all are.
  void arrive(std::atomic<uint32_t> &count, const Meeting &meeting, int self);
};

/// A rank's part in a collective.
struct SharedCall {
  Collective collective;
  Meeting *meeting = nullptr;
  uint64_t received = 0;        ///< bytes from others
  std::vector<uintptr_t> bases; ///< of the members' memory
  std::vector<size_t> place;    ///< in the group, by rank
  std::vector<const void *> sources;
  std::vector<void *> targets;
  uint64_t *list = nullptr;          ///< distances of its places, which others read
  std::vector<std::byte *> seen;     ///< by member, all of its places
  const int64_t *counts = nullptr;   ///< of what is in flight
  std::atomic<bool> isTaken{true};   ///< somebody does the share of it, or has
  std::atomic<bool> isHelped{false}; ///< a thread that is no rank does it now

  const std::byte *source(size_t member, size_t item) const {
    return seen[2 * (member * collective.items.size() + item)];
  }
  std::byte *target(size_t member, size_t item) const {
    return seen[2 * (member * collective.items.size() + item) + 1];
  }
};

/// Does the rank's share of a call that is met: reads and writes the members' buffers.
void share(SharedCall &call);

/// Threads that move data while ranks compute. A share is done by whoever takes it first,
/// its rank or such a thread.
class Movers {
public:
  /// `bell` rings when a call is met (Neighbours::ringMovers).
  Movers(Neighbours &host, Bell &bell, int threads);
  ~Movers();
  void offer(SharedCall &call);
  /// From now on no such thread touches the call.
  void withdraw(SharedCall &call);
  uint64_t movedBytes() const { return moved.load(); }

private:
  SharedCall *takeShare();
  void moveMeanwhile();

  Neighbours &host;
  Bell &bell;
  std::atomic<uint64_t> moved{0};
  std::atomic<bool> ends{false};
  std::mutex lock;
  std::vector<SharedCall *> flights;
  std::vector<std::thread> threads;
};

/// The calls of one rank.
class SharedCalls {
public:
  SharedCalls(Neighbours &host, int rank) : host(host), self(rank) {}
  /// A rank that fails leaves calls behind that nobody waits for.
  ~SharedCalls();
  SharedCalls(const SharedCalls &) = delete;

  /// From now on these threads do shares too; null: none do. While nothing is in flight.
  void setMovers(Movers *threads) { movers = threads; }
  /// Prepares a call; gives its number. `list`: memory that the members see, two places
  /// per item.
  int add(Meeting &meeting, Collective collective, uint64_t *list);
  size_t size() const { return calls.size(); }
  const Collective &collective(int call) const { return at(call).collective; }

  // Calls of Transport.
  bool start(int call, void *const *places, const int64_t *counts) noexcept;
  bool wait(int call) noexcept;
  bool progress() noexcept;
  bool hasStarted() const { return numStarted != 0; }
  /// Waits for all members of a meeting that has no calls.
  bool meet(Meeting &meeting) noexcept;

private:
  const SharedCall &at(int call) const { return calls[static_cast<size_t>(call)]; }
  void doShares();
  template <typename IsOver> bool await(IsOver isOver);

  Neighbours &host;
  int self;
  Movers *movers = nullptr;
  std::deque<SharedCall> calls;
  std::vector<SharedCall *> started; ///< the first numStarted are in flight
  size_t numStarted = 0;
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_SHAREDCALLS_H
