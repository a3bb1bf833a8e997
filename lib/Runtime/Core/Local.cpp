//===- Local.cpp - Ranks as threads of one process ------------------------===//
//
// Every member publishes its two addresses, all meet, each does its share by reading
// and writing the others' buffers, all meet again. An all-reduce is split by members:
// member i reduces part i of all sources and writes it to all targets, so memory is
// passed over once and an in-place call needs no copy.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#include <atomic>
#include <climits>
#include <ctime>
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

/// Where a member's buffers are during one collective.
struct alignas(64) Slot {
  const std::byte *source = nullptr;
  std::byte *target = nullptr;
};

struct alignas(64) Barrier {
  std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> sleepers{0};

  /// A waiting rank spins `spins` times, then sleeps in the kernel, where an abort is
  /// noticed within 50 ms. It never yields: a scheduler that shares out deadlines lets a
  /// thread that yields often wait for seconds behind programs that compute.
  bool wait(uint32_t members, int spins, const std::atomic<bool> &aborted) {
    uint32_t seen = generation.load();
    if (arrived.fetch_add(1) + 1 == members) {
      arrived.store(0);
      generation.fetch_add(1);
      if (sleepers.load() != 0)
        ::syscall(SYS_futex, &generation, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
                  0);
      return !aborted.load(std::memory_order_relaxed);
    }
    for (int i = 0; i < spins; ++i) {
      if (generation.load(std::memory_order_acquire) != seen)
        return true;
      pauseCpu();
    }
    return sleep(seen, aborted);
  }

private:
  bool sleep(uint32_t seen, const std::atomic<bool> &aborted) {
    sleepers.fetch_add(1);
    timespec slice{0, 50'000'000};
    while (generation.load() == seen && !aborted.load())
      ::syscall(SYS_futex, &generation, FUTEX_WAIT_PRIVATE, seen, &slice, nullptr, 0);
    sleepers.fetch_sub(1);
    return generation.load() != seen;
  }
};

struct Group {
  std::vector<Slot> slots;
  Barrier barrier;
  explicit Group(size_t members) : slots(members) {}
};

} // namespace

struct LocalTeam::Shared {
  int size = 1;
  int spins = 0;
  std::atomic<bool> aborted{false};
  std::mutex lock; ///< of `groups`, taken at load only
  std::map<std::vector<int32_t>, std::unique_ptr<Group>> groups;
  std::unique_ptr<Group> everyone;

  Group *group(const std::vector<int32_t> &members) {
    std::lock_guard guard(lock);
    auto &entry = groups[members];
    if (!entry)
      entry = std::make_unique<Group>(members.size());
    return entry.get();
  }
  bool meet(Group &group) {
    return group.barrier.wait(static_cast<uint32_t>(group.slots.size()), spins, aborted);
  }
};

namespace {

class LocalTransport : public Transport {
public:
  LocalTransport(LocalTeam::Shared &team, int rank) : team(team), self(rank) {}
  int rank() const override { return self; }
  int size() const override { return team.size; }

  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    auto [it, fresh] =
        known.emplace(collectiveKey(table, task), static_cast<int>(prepared.size()));
    if (fresh) {
      Collective c = describeCollective(table, task, self);
      Group *group = team.group(c.members);
      std::vector<int32_t> place(c.pulls.size());
      for (size_t i = 0; i < c.pulls.size(); ++i)
        for (size_t m = 0; m < c.members.size(); ++m)
          if (c.members[m] == c.pulls[i].peer)
            place[i] = static_cast<int32_t>(m);
      size_t n = c.members.size();
      prepared.push_back({std::move(c), group, std::move(place),
                          std::vector<const void *>(n), std::vector<void *>(n)});
    }
    return it->second;
  }

  bool run(int handle, const void *source, void *target) noexcept override {
    Prepared &p = prepared[static_cast<size_t>(handle)];
    Slot &mine = p.group->slots[static_cast<size_t>(p.collective.me)];
    mine.source = static_cast<const std::byte *>(source);
    mine.target = static_cast<std::byte *>(target);
    if (!team.meet(*p.group))
      return false;
    if (p.collective.kind == TaskKind::AllReduce)
      allReduce(p);
    else if (p.collective.kind == TaskKind::ReduceScatter)
      reduceScatter(p);
    else
      for (size_t i = 0; i < p.collective.pulls.size(); ++i)
        copyPull(p.collective.pulls[i],
                 p.group->slots[static_cast<size_t>(p.place[i])].source, mine.target);
    fillRest(p.collective, mine.target);
    return team.meet(*p.group);
  }

  bool barrier() noexcept override { return team.meet(*team.everyone); }
  // Outputs are written by the ranks themselves: they share the caller's memory.
  bool sendToRoot(const void *, int64_t) noexcept override { return true; }
  bool receiveFrom(int, void *, int64_t) noexcept override { return true; }
  void abort() noexcept override { team.aborted.store(true); }

private:
  struct Prepared {
    Collective collective;
    Group *group;
    std::vector<int32_t> place; ///< per pull, the peer's place in the group
    std::vector<const void *> sources;
    std::vector<void *> targets;
  };

  static void allReduce(Prepared &p) {
    const Collective &c = p.collective;
    size_t n = c.members.size(), width = byteWidth(c.type);
    // Parts end at cache lines, so that no two members write to one.
    int64_t line = static_cast<int64_t>(64 / width);
    int64_t part = (c.block + static_cast<int64_t>(n) * line - 1) /
                   (static_cast<int64_t>(n) * line) * line;
    int64_t first = std::min(c.block, part * c.me);
    int64_t count = std::min(c.block - first, part);
    if (count == 0)
      return;
    for (size_t m = 0; m < n; ++m) {
      p.sources[m] = p.group->slots[m].source + static_cast<size_t>(first) * width;
      p.targets[m] = p.group->slots[m].target + static_cast<size_t>(first) * width;
    }
    reduceElements(c.type, c.reduce, p.sources.data(), n, p.targets.data(), n, count);
  }

  static void reduceScatter(Prepared &p) {
    const Collective &c = p.collective;
    size_t n = c.members.size();
    auto bytes = static_cast<size_t>(c.block) * byteWidth(c.type);
    std::byte *target = p.group->slots[static_cast<size_t>(c.me)].target;
    for (int64_t o = 0; o < c.outer; ++o) {
      size_t at = (static_cast<size_t>(o) * n + static_cast<size_t>(c.me)) * bytes;
      for (size_t m = 0; m < n; ++m)
        p.sources[m] = p.group->slots[m].source + at;
      p.targets[0] = target + static_cast<size_t>(o) * bytes;
      reduceElements(c.type, c.reduce, p.sources.data(), n, p.targets.data(), 1, c.block);
    }
  }

  LocalTeam::Shared &team;
  int self;
  std::map<std::string, int> known; ///< by collectiveKey
  std::vector<Prepared> prepared;
};

} // namespace

LocalTeam::LocalTeam(int size) : shared(std::make_unique<Shared>()) {
  shared->size = size;
  // More ranks than cores: spinning would only keep the others from arriving. With a core
  // each, the scheduler may still put two on one, so the spin is short (tens of µs).
  shared->spins = size <= availableCpus() ? 1000 : 0;
  shared->everyone = std::make_unique<Group>(static_cast<size_t>(size));
}

LocalTeam::~LocalTeam() = default;

std::unique_ptr<Transport> LocalTeam::connect(int rank) {
  return std::make_unique<LocalTransport>(*shared, rank);
}

void LocalTeam::abort() noexcept { shared->aborted.store(true); }
