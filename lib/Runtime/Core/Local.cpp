//===- Local.cpp - Ranks as threads of one process ------------------------===//
//
// Members of a collective meet twice. Each publishes its addresses, two per item, and
// arrives; when all have, each does its share by reading and writing the others' buffers,
// and is done; when all are, the call is over. An all-reduce is split by members: member
// i reduces part i of all sources and writes it to all targets, so memory is passed over
// once and an in-place call needs no copy.
//
// Nothing of that waits for anybody but Transport::wait: several calls may be in flight,
// and who waits for one does its share of all. A waiting rank sleeps on its own bell,
// which rings whenever a call that it takes part in comes to a meeting.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <deque>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

static void pauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static int availableCpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

namespace {

/// Where a member's buffers are during one collective: source and target of each item.
struct alignas(64) Slot {
  void *const *places = nullptr;

  const std::byte *source(size_t item) const {
    return static_cast<const std::byte *>(places[2 * item]);
  }
  std::byte *target(size_t item) const {
    return static_cast<std::byte *>(places[2 * item + 1]);
  }
};

/// Where the members of a group meet for the calls of one handle, one call after the
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

/// What a rank sleeps on.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};

  void ring() {
    rings.fetch_add(1);
    if (asleep.load() != 0)
      ::syscall(SYS_futex, &rings, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
};

bool reached(const std::atomic<uint32_t> &count, uint32_t wanted) {
  return static_cast<int32_t>(count.load() - wanted) >= 0;
}

} // namespace

struct LocalTeam::Shared {
  explicit Shared(int size) : size(size), bells(static_cast<size_t>(size)) {}
  int size = 1;
  int spins = 0;
  std::atomic<bool> aborted{false};
  std::vector<Bell> bells; ///< by rank
  std::mutex lock;         ///< of `meetings`, taken at load only
  std::map<std::pair<uint64_t, std::vector<int32_t>>, std::unique_ptr<Meeting>> meetings;

  Meeting *meeting(uint64_t handle, const std::vector<int32_t> &members) {
    std::lock_guard guard(lock);
    auto &entry = meetings[{handle, members}];
    if (!entry)
      entry = std::make_unique<Meeting>(members);
    return entry.get();
  }
};

namespace {

class LocalTransport : public Transport {
public:
  LocalTransport(LocalTeam::Shared &team, int rank) : team(team), self(rank) {
    std::vector<int32_t> all;
    for (int r = 0; r < team.size; ++r)
      all.push_back(r);
    everyone.meeting = team.meeting(UINT64_MAX, all);
  }
  int rank() const override { return self; }
  int size() const override { return team.size; }

  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    auto [it, fresh] =
        known.emplace(std::pair(uint64_t(task.handle), collectiveKey(table, task)),
                      static_cast<int>(prepared.size()));
    if (fresh)
      add(task.handle, describeCollective(table, task, self));
    return it->second;
  }

  Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                int64_t microBatch) override {
    // Handles of tables have 32 bits.
    uint64_t handle = (uint64_t(table.transfers()[transfer].number) + 1) << 32 |
                      static_cast<uint64_t>(microBatch);
    auto [it, fresh] = known.emplace(std::pair(handle, transferKey(table)),
                                     static_cast<int>(prepared.size()));
    if (fresh)
      add(handle, describeTransfer(table, transfer, self));
    return it->second;
  }

  bool start(int call, void *const *places, const int64_t *counts) noexcept override {
    Prepared &p = prepared[static_cast<size_t>(call)];
    p.counts = counts;
    p.seat->meeting->slots[static_cast<size_t>(p.collective.me)].places = places;
    p.shared = false;
    started[numStarted++] = &p;
    arrive(p.seat->meeting->arrived, *p.seat->meeting, ++p.seat->calls);
    return !aborted();
  }

  bool wait(int call) noexcept override {
    Prepared &mine = prepared[static_cast<size_t>(call)];
    bool ok = await([&] {
      doShares();
      return mine.shared && reached(mine.seat->meeting->done, mine.seat->wanted());
    });
    size_t at = 0;
    while (started[at] != &mine)
      ++at;
    started[at] = started[--numStarted];
    return ok;
  }

  bool progress() noexcept override {
    doShares();
    return !aborted();
  }

  bool barrier() noexcept override {
    arrive(everyone.meeting->arrived, *everyone.meeting, ++everyone.calls);
    return await([&] {
      doShares();
      return reached(everyone.meeting->arrived, everyone.wanted());
    });
  }
  // There is one process, whose values are the largest.
  bool maximum(std::span<int64_t>) noexcept override { return true; }
  // Outputs are written by the ranks themselves: they share the caller's memory.
  bool sendToRoot(const void *, int64_t) noexcept override { return true; }
  bool receiveFrom(int, void *, int64_t) noexcept override { return true; }
  bool beginSendToRoot(const void *, int64_t, size_t) noexcept override { return true; }
  bool beginReceiveFrom(int, void *, int64_t, size_t) noexcept override { return true; }
  bool beginMaximum(std::span<int64_t>, size_t) noexcept override { return true; }
  bool isOver(size_t, bool &over, int &awaited) noexcept override {
    over = true, awaited = -1;
    return true;
  }
  void abort() noexcept override { team.aborted.store(true); }

private:
  /// This rank's place in a meeting: the number of its calls there.
  struct Seat {
    Meeting *meeting = nullptr;
    uint32_t calls = 0;
    uint32_t wanted() const {
      return calls * static_cast<uint32_t>(meeting->members.size());
    }
  };
  struct Prepared {
    Collective collective;
    Seat *seat;
    std::vector<size_t> place; ///< in the group, by rank
    std::vector<const void *> sources;
    std::vector<void *> targets;
    const int64_t *counts = nullptr; ///< of what is in flight
    bool shared = true;              ///< whether this rank has done its share
  };

  void add(uint64_t handle, Collective c) {
    Meeting *meeting = team.meeting(handle, c.members);
    Seat &seat = seats[meeting];
    seat.meeting = meeting;
    std::vector<size_t> place(static_cast<size_t>(team.size));
    for (size_t m = 0; m < c.members.size(); ++m)
      place[static_cast<size_t>(c.members[m])] = m;
    size_t n = c.members.size();
    prepared.push_back({std::move(c), &seat, std::move(place),
                        std::vector<const void *>(n), std::vector<void *>(n)});
    started.resize(prepared.size());
  }

  bool aborted() const { return team.aborted.load(std::memory_order_relaxed); }

  /// Counts this rank; the last one wakes the others.
  void arrive(std::atomic<uint32_t> &count, Meeting &meeting, uint32_t call) {
    uint32_t all = call * static_cast<uint32_t>(meeting.members.size());
    if (count.fetch_add(1) + 1 != all)
      return;
    for (int32_t member : meeting.members)
      if (member != self)
        team.bells[static_cast<size_t>(member)].ring();
  }

  void doShares() {
    for (size_t i = 0; i < numStarted; ++i) {
      Prepared &p = *started[i];
      if (p.shared || !reached(p.seat->meeting->arrived, p.seat->wanted()))
        continue;
      share(p);
      p.shared = true;
      arrive(p.seat->meeting->done, *p.seat->meeting, p.seat->calls);
    }
  }

  /// Until `isOver`, or an abort. A waiting rank spins for a while, then sleeps in the
  /// kernel, where an abort is noticed within 50 ms. It never yields: a scheduler that
  /// shares out deadlines lets a thread that yields often wait for seconds behind
  /// programs that compute.
  template <typename IsOver> bool await(IsOver isOver) {
    for (int i = 0; i <= team.spins; ++i) {
      if (isOver())
        return !aborted();
      pauseCpu();
    }
    Bell &bell = team.bells[static_cast<size_t>(self)];
    timespec slice{0, 50'000'000};
    for (;;) {
      uint32_t seen = bell.rings.load();
      bell.asleep.store(1);
      bool over = isOver();
      if (!over && !aborted())
        ::syscall(SYS_futex, &bell.rings, FUTEX_WAIT_PRIVATE, seen, &slice, nullptr, 0);
      bell.asleep.store(0);
      if (over || aborted())
        return over && !aborted();
    }
  }

  static void share(Prepared &p) {
    for (size_t i = 0; i < p.collective.items.size(); ++i)
      share(p, i);
  }

  static void share(Prepared &p, size_t i) {
    const std::vector<Slot> &slots = p.seat->meeting->slots;
    const CollectiveItem &item = p.collective.items[i];
    std::byte *target = slots[static_cast<size_t>(p.collective.me)].target(i);
    if (p.collective.kind == TaskKind::AllReduce)
      allReduce(p, i);
    else if (p.collective.kind == TaskKind::ReduceScatter)
      reduceScatter(p, i);
    else if (p.collective.kind == TaskKind::AllToAllV)
      takeRows(p, target);
    else
      for (const Pull &pull : item.pulls)
        copyPull(pull, slots[p.place[static_cast<size_t>(pull.peer)]].source(i), target);
    fillRest(item, target);
  }

  static void takeRows(Prepared &p, std::byte *target) {
    const Collective &c = p.collective;
    for (size_t m = 0; m < c.members.size(); ++m) {
      RaggedPart part = raggedPart(c, p.counts, m, static_cast<size_t>(c.me));
      if (part.rows != 0)
        std::memcpy(target + part.target,
                    p.seat->meeting->slots[m].source(0) + part.source,
                    static_cast<size_t>(part.rows * c.rowBytes));
    }
  }

  static void allReduce(Prepared &p, size_t i) {
    const Collective &c = p.collective;
    const CollectiveItem &item = c.items[i];
    size_t n = c.members.size(), width = byteWidth(item.type);
    // Parts end at cache lines, so that no two members write to one.
    int64_t line = static_cast<int64_t>(64 / width);
    int64_t part = (item.block + static_cast<int64_t>(n) * line - 1) /
                   (static_cast<int64_t>(n) * line) * line;
    int64_t first = std::min(item.block, part * c.me);
    int64_t count = std::min(item.block - first, part);
    if (count == 0)
      return;
    for (size_t m = 0; m < n; ++m) {
      const Slot &slot = p.seat->meeting->slots[m];
      p.sources[m] = slot.source(i) + static_cast<size_t>(first) * width;
      p.targets[m] = slot.target(i) + static_cast<size_t>(first) * width;
    }
    reduceElements(item.type, c.reduce, p.sources.data(), n, p.targets.data(), n, count);
  }

  static void reduceScatter(Prepared &p, size_t i) {
    const Collective &c = p.collective;
    const CollectiveItem &item = c.items[i];
    const std::vector<Slot> &slots = p.seat->meeting->slots;
    size_t n = c.members.size();
    auto bytes = static_cast<size_t>(item.block * item.width());
    std::byte *target = slots[static_cast<size_t>(c.me)].target(i);
    for (int64_t o = 0; o < item.outer; ++o) {
      size_t at = (static_cast<size_t>(o) * n + static_cast<size_t>(c.me)) * bytes;
      for (size_t m = 0; m < n; ++m)
        p.sources[m] = slots[m].source(i) + at;
      p.targets[0] = target + static_cast<size_t>(o) * bytes;
      reduceElements(item.type, c.reduce, p.sources.data(), n, p.targets.data(), 1,
                     item.block);
    }
  }

  LocalTeam::Shared &team;
  int self;
  Seat everyone;
  std::map<std::pair<uint64_t, std::string>, int> known; ///< by handle, collectiveKey
  std::map<Meeting *, Seat> seats;
  std::deque<Prepared> prepared;
  std::vector<Prepared *> started; ///< the first numStarted are in flight
  size_t numStarted = 0;
};

} // namespace

LocalTeam::LocalTeam(int size) : shared(std::make_unique<Shared>(size)) {
  // More ranks than cores: spinning would only keep the others from arriving. With a core
  // each, the scheduler may still put two on one, so the spin is short (tens of µs).
  shared->spins = size <= availableCpus() ? 1000 : 0;
}

LocalTeam::~LocalTeam() = default;

std::unique_ptr<Transport> LocalTeam::connect(int rank) {
  return std::make_unique<LocalTransport>(*shared, rank);
}

void LocalTeam::abort() noexcept { shared->aborted.store(true); }
