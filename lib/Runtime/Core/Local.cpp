//===- Local.cpp - Ranks as threads of one process ------------------------===//
//
// Ranks see each other's memory at their own addresses: see SharedCalls.h.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/SharedCalls.h"

#include <map>
#include <sched.h>

using namespace partita;
using namespace partita::runtime;

static int availableCpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

struct LocalTeam::Shared : Neighbours {
  Shared(int size, int helpers) : size(size), bells(static_cast<size_t>(size)) {
    // More ranks than cores: spinning would only keep the others from arriving. With a
    // core each, the scheduler may still put two on one, so the spin is short (tens of
    // µs).
    looks = size <= availableCpus() ? 1000 : 0;
    if (helpers > 0)
      movers = std::make_unique<Movers>(*this, moversBell, helpers);
  }

  uintptr_t base(int) const override { return 0; }
  Bell &bell(int rank) override { return bells[static_cast<size_t>(rank)]; }
  void ringMovers(const std::vector<int32_t> &) override {
    if (movers)
      moversBell.ring();
  }
  bool isAborted() const override { return aborted.load(std::memory_order_relaxed); }
  int spins() const override { return looks; }

  struct Record {
    MeetingCounts counts;
    std::vector<MeetingSlot> slots;
  };
  Meeting meeting(uint64_t handle, const std::vector<int32_t> &members) {
    std::lock_guard guard(lock);
    Record &record = records[{handle, members}];
    record.slots.resize(members.size());
    return {members, &record.counts, record.slots.data()};
  }

  int size = 1;
  int looks = 0;
  std::atomic<bool> aborted{false};
  std::vector<Bell> bells; ///< by rank
  std::mutex lock;         ///< of `records`, taken at load only
  std::map<std::pair<uint64_t, std::vector<int32_t>>, Record> records;
  Bell moversBell;
  std::unique_ptr<Movers> movers; ///< null: there are none
};

namespace {

class LocalTransport : public Transport {
public:
  LocalTransport(LocalTeam::Shared &team, int rank)
      : team(team), self(rank), calls(team, rank) {
    std::vector<int32_t> all;
    for (int r = 0; r < team.size; ++r)
      all.push_back(r);
    everyone = team.meeting(UINT64_MAX, all);
    calls.setMovers(team.movers.get());
  }
  int rank() const override { return self; }
  int size() const override { return team.size; }

  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    auto [it, fresh] =
        known.emplace(std::pair(uint64_t(task.handle), collectiveKey(table, task)),
                      static_cast<int>(calls.size()));
    if (fresh)
      add(task.handle, describeCollective(table, task, self));
    return it->second;
  }

  Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                int64_t microBatch) override {
    const uint64_t handle = transferHandle(table, transfer, microBatch);
    auto [it, fresh] = known.emplace(std::pair(handle, transferKey(table)),
                                     static_cast<int>(calls.size()));
    if (fresh)
      add(handle, describeTransfer(table, transfer, self));
    return it->second;
  }

  bool start(int call, void *const *places, const int64_t *counts) noexcept override {
    return calls.start(call, places, counts);
  }
  bool wait(int call) noexcept override { return calls.wait(call); }
  bool progress() noexcept override { return calls.progress(); }
  bool barrier() noexcept override { return calls.meet(everyone); }
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
  uint64_t movedMeanwhile() const override {
    return team.movers ? team.movers->movedBytes() : 0;
  }

private:
  void add(uint64_t handle, Collective c) {
    auto [it, fresh] = meetings.try_emplace({handle, c.members});
    if (fresh)
      it->second = team.meeting(handle, c.members);
    lists.emplace_back(2 * c.items.size());
    calls.add(it->second, std::move(c), lists.back().data());
  }

  LocalTeam::Shared &team;
  int self;
  Meeting everyone;
  std::map<std::pair<uint64_t, std::string>, int> known; ///< by handle, collectiveKey
  std::map<std::pair<uint64_t, std::vector<int32_t>>, Meeting> meetings;
  std::deque<std::vector<uint64_t>> lists; ///< by call
  SharedCalls calls;
};

} // namespace

LocalTeam::LocalTeam(int size, int helpers)
    : shared(std::make_unique<Shared>(size, helpers)) {}

LocalTeam::~LocalTeam() = default;

std::unique_ptr<Transport> LocalTeam::connect(int rank) {
  return std::make_unique<LocalTransport>(*shared, rank);
}

void LocalTeam::abort() noexcept { shared->aborted.store(true); }
