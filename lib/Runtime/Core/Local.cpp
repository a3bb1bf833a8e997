//===- Local.cpp - Ranks as threads of one process ------------------------===//
//
// Members of a collective meet twice. Each publishes its addresses, two per item, and
// arrives; when all have, each does its share by reading and writing the others' buffers,
// and is done; when all are, the call is over. An all-reduce is split by members: member
// i reduces part i of all sources and writes it to all targets, so memory is passed over
// once and an in-place call needs no copy.
//
// Nothing of that waits for anybody but Transport::wait: several calls may be in flight,
// and who waits for one does its share of all. Threads that are no ranks may do shares
// while ranks compute. A waiting rank sleeps on its own bell,
// which rings whenever a call that it takes part in comes to a meeting.
//
//===----------------------------------------------------------------------===//
#include "LocalShares.h"

#include <climits>
#include <ctime>
#include <deque>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
using namespace partita::runtime::local;

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

/// Bell that a rank sleeps on, or threads that move data meanwhile.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};

  void ring() {
    rings.fetch_add(1);
    if (asleep.load() != 0)
      ::syscall(SYS_futex, &rings, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
  /// Sleeps until it rings, for 50 ms at most, unless it has since `seen` was read or
  /// `isOver` is true.
  template <typename IsOver> void sleep(uint32_t seen, IsOver isOver) {
    timespec slice{0, 50'000'000};
    asleep.fetch_add(1);
    if (!isOver())
      ::syscall(SYS_futex, &rings, FUTEX_WAIT_PRIVATE, seen, &slice, nullptr, 0);
    asleep.fetch_sub(1);
  }
};

} // namespace

struct LocalTeam::Shared {
  Shared(int size, int helpers) : size(size), bells(static_cast<size_t>(size)) {
    for (int h = 0; h < helpers; ++h)
      threads.emplace_back([this] { moveMeanwhile(); });
  }
  ~Shared() {
    ends.store(true);
    bell.ring();
    for (std::thread &thread : threads)
      thread.join();
  }

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

  /// Counts a member of a call; the last one wakes the others. `self`: none but that one
  /// need not be woken; −1: all are.
  void arrive(std::atomic<uint32_t> &count, const Seat &seat, int self) {
    if (count.fetch_add(1) + 1 != seat.wanted())
      return;
    const Meeting &meeting = *seat.meeting;
    for (int32_t member : meeting.members)
      if (member != self)
        bells[static_cast<size_t>(member)].ring();
    if (!threads.empty() && &count == &meeting.arrived)
      bell.ring();
  }

  // Threads that move data while ranks compute. A share is done by whoever takes it
  // first, its rank or such a thread.

  void offer(Prepared &p) {
    if (threads.empty())
      return;
    std::lock_guard guard(flightsLock);
    flights.push_back(&p);
  }
  /// From now on no such thread touches the call.
  void withdraw(Prepared &p) {
    if (threads.empty())
      return;
    {
      std::lock_guard guard(flightsLock);
      std::erase(flights, &p);
    }
    while (p.isHelped.load())
      pauseCpu();
  }

  std::atomic<uint64_t> movedBytes{0}; ///< by these threads

private:
  Prepared *takeShare() {
    std::lock_guard guard(flightsLock);
    for (Prepared *p : flights)
      if (!aborted.load() && p->isMet() && !p->isTaken.exchange(true)) {
        p->isHelped.store(true);
        return p;
      }
    return nullptr;
  }

  void moveMeanwhile() {
    while (!ends.load()) {
      const uint32_t seen = bell.rings.load();
      if (Prepared *p = takeShare()) {
        share(*p);
        movedBytes.fetch_add(p->received);
        arrive(p->seat->meeting->done, *p->seat, -1);
        p->isHelped.store(false);
        continue;
      }
      bell.sleep(seen, [&] { return ends.load(); });
    }
  }

  Bell bell;
  std::atomic<bool> ends{false};
  std::mutex flightsLock;
  std::vector<Prepared *> flights;
  std::vector<std::thread> threads;
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
  /// A rank that fails leaves calls behind that nobody waits for.
  ~LocalTransport() override {
    for (size_t i = 0; i < numStarted; ++i)
      team.withdraw(*started[i]);
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
    ++p.seat->calls;
    p.isTaken.store(false);
    started[numStarted++] = &p;
    team.offer(p);
    team.arrive(p.seat->meeting->arrived, *p.seat, self);
    return !aborted();
  }

  bool wait(int call) noexcept override {
    Prepared &mine = prepared[static_cast<size_t>(call)];
    bool ok = await([&] {
      doShares();
      return reached(mine.seat->meeting->done, mine.seat->wanted());
    });
    team.withdraw(mine);
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
    ++everyone.calls;
    team.arrive(everyone.meeting->arrived, everyone, self);
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
  uint64_t movedMeanwhile() const override { return team.movedBytes.load(); }

private:
  void add(uint64_t handle, Collective c) {
    Meeting *meeting = team.meeting(handle, c.members);
    Seat &seat = seats[meeting];
    seat.meeting = meeting;
    std::vector<size_t> place(static_cast<size_t>(team.size));
    for (size_t m = 0; m < c.members.size(); ++m)
      place[static_cast<size_t>(c.members[m])] = m;
    const size_t n = c.members.size();
    Prepared &made = prepared.emplace_back();
    made.received = receivedBytes(c, self);
    made.collective = std::move(c);
    made.seat = &seat;
    made.place = std::move(place);
    made.sources.resize(n);
    made.targets.resize(n);
    started.resize(prepared.size());
  }

  bool aborted() const { return team.aborted.load(std::memory_order_relaxed); }

  void doShares() {
    for (size_t i = 0; i < numStarted; ++i) {
      Prepared &p = *started[i];
      if (p.isTaken.load() || !p.isMet() || p.isTaken.exchange(true))
        continue;
      share(p);
      team.arrive(p.seat->meeting->done, *p.seat, self);
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
    for (;;) {
      const uint32_t seen = bell.rings.load();
      bool over = false;
      bell.sleep(seen, [&] { return (over = isOver()) || aborted(); });
      if (over || aborted())
        return over && !aborted();
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

LocalTeam::LocalTeam(int size, int helpers)
    : shared(std::make_unique<Shared>(size, helpers)) {
  // More ranks than cores: spinning would only keep the others from arriving. With a core
  // each, the scheduler may still put two on one, so the spin is short (tens of µs).
  shared->spins = size <= availableCpus() ? 1000 : 0;
}

LocalTeam::~LocalTeam() = default;

std::unique_ptr<Transport> LocalTeam::connect(int rank) {
  return std::make_unique<LocalTransport>(*shared, rank);
}

void LocalTeam::abort() noexcept { shared->aborted.store(true); }
