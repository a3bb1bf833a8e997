//===- Window.h - Ranks of a host that share memory -------------*- C++ -*-===//
//
// Each rank has a segment (Segment.h), which all ranks of its host map. In it lie the
// memory of its calls, the rank's bells, and what it says in meetings: so these ranks run
// collectives as threads of one process do (SharedCalls.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_MPI_WINDOW_H
#define PARTITA_LIB_RUNTIME_MPI_WINDOW_H

#include "Segment.h"
#include "partita/Runtime/SharedCalls.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <map>
#include <sched.h>

namespace partita::runtime {

class Window final : public Neighbours {
public:
  /// Called by all ranks of the job, with what each was asked for. Null where ranks of
  /// this host have nobody to share with, are not to, or cannot. An error, on all ranks
  /// the same, where some rank is to share memory and cannot.
  static Expected<std::unique_ptr<Window>> open(MpiWindow asked);
  ~Window() override;

  /// Tells if all these ranks are on this host.
  bool holds(const std::vector<int32_t> &ranks) const;
  bool holdsAll() const { return isWhole; }

  /// Prepares a call of ranks that it holds, which all of them do in one order. `tag`:
  /// equal on all members, and of no other handle of the group's ranks. `sourceBytes`:
  /// per item, how far the others read in its source.
  Expected<int> add(uint64_t handle, int tag, Collective collective,
                    const std::vector<uint64_t> &sourceBytes);
  // Calls of Transport.
  bool start(int call, void *const *places, const int64_t *counts) noexcept;
  bool wait(int call) noexcept;
  bool progress() noexcept {
    return sendInvitations() != Beside::Failure && calls.progress();
  }
  bool hasStarted() const { return calls.hasStarted(); }
  Expected<Memory> memory(uint64_t bytes) { return segment->take(bytes); }
  const std::string &problem() const { return failure; }
  void beginThread();
  uint64_t movedBytes() const { return movers ? movers->movedBytes() : 0; }
  void abort() noexcept { aborted.store(true); }
  /// Sets the work that a waiting rank does beside.
  void setBeside(std::function<Beside()> what) { beside = std::move(what); }

  uintptr_t base(int rank) const override;
  Bell &bell(int rank) override { return head(rank).bell; }
  void ringMovers(const std::vector<int32_t> &members) override;
  bool isAborted() const override { return aborted.load(std::memory_order_relaxed); }
  int spins() const override { return looks; }
  Beside moveBeside() override;

private:
  /// Begin of a segment.
  struct Head {
    uint64_t token[2]; ///< so that nobody takes another file for it
    Bell bell, movers;
  };
  /// Words of a rank to the others about its segment.
  struct Card {
    int32_t rank, process, file, isThere;
    uint64_t token[2];
    cpu_set_t cpus;
  };
  /// A call's places outside of the segment, and room in it where the others find them.
  struct Room {
    std::vector<uint64_t> bytes;  ///< per place of the call; 0: others do not look there
    std::vector<Memory> memory;   ///< likewise, once it is needed
    std::vector<void *> places;   ///< of the call in flight
    void *const *asked = nullptr; ///< those it was started with, where some differ
  };
  struct Invitation {
    int64_t place; ///< distance of the record in the owner's segment; -1: there is none
    uint64_t key;  ///< of what
  };

  Window(MPI_Comm host, int rank) : host(host), self(rank), calls(*this, rank) {}
  static uint64_t mostBytes(int ranksOfHost);
  Expected<void> join();
  Expected<void> makeSegment(uint64_t most);
  Expected<void> mapOthers(const std::vector<Card> &cards, uint64_t most);
  Head &head(int rank) const { return *reinterpret_cast<Head *>(base(rank)); }
  Expected<Meeting *> meeting(uint64_t handle, int tag,
                              const std::vector<int32_t> &members);
  Expected<int64_t> makeRecord(size_t members);
  bool invite(const std::vector<int32_t> &members, int tag, Invitation invitation);
  Beside sendInvitations() noexcept;
  bool bringInside(Room &room, void *const *places) noexcept;

  MPI_Comm host;
  int self;
  bool isWhole = false;
  int looks = 0;
  std::shared_ptr<Segment> segment;
  std::map<int, MappedSegment> others; ///< by rank
  std::vector<std::byte *> begins;     ///< by rank; null: on another host
  std::vector<int> placeOnHost;        ///< by rank: its rank in `host`
  std::map<std::pair<uint64_t, std::vector<int32_t>>, Meeting> meetings;
  std::deque<std::pair<Invitation, MPI_Request>> sent;
  std::vector<Room> rooms; ///< by call
  std::string failure;
  std::function<Beside()> beside;
  std::atomic<bool> aborted{false};
  std::unique_ptr<Movers> movers; ///< null: there are none
  SharedCalls calls;              ///< ends before its movers
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_MPI_WINDOW_H
