//===- SharedCalls.cpp - Calls of ranks that see each other's memory ------===//
#include "partita/Runtime/SharedCalls.h"

using namespace partita;
using namespace partita::runtime;

static void pauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void Neighbours::arrive(std::atomic<uint32_t> &count, const Meeting &meeting, int self) {
  if (count.fetch_add(1) + 1 != meeting.wanted())
    return;
  for (int32_t member : meeting.members)
    if (member != self)
      bell(member).ring();
  if (&count == &meeting.counts->arrived)
    ringMovers(meeting.members);
}

//===----------------------------------------------------------------------===//
// Movers
//===----------------------------------------------------------------------===//

Movers::Movers(Neighbours &host, Bell &bell, int count) : host(host), bell(bell) {
  for (int t = 0; t < count; ++t)
    threads.emplace_back([this] { moveMeanwhile(); });
}

Movers::~Movers() {
  ends.store(true);
  bell.ring();
  for (std::thread &thread : threads)
    thread.join();
}

void Movers::offer(SharedCall &call) {
  std::lock_guard guard(lock);
  flights.push_back(&call);
}

void Movers::withdraw(SharedCall &call) {
  {
    std::lock_guard guard(lock);
    std::erase(flights, &call);
  }
  while (call.isHelped.load())
    pauseCpu();
}

SharedCall *Movers::takeShare() {
  std::lock_guard guard(lock);
  for (SharedCall *call : flights)
    if (!host.isAborted() && call->meeting->isMet() && !call->isTaken.exchange(true)) {
      call->isHelped.store(true);
      return call;
    }
  return nullptr;
}

void Movers::moveMeanwhile() {
  while (!ends.load()) {
    const uint32_t seen = bell.rings.load();
    if (SharedCall *call = takeShare()) {
      share(*call);
      moved.fetch_add(call->received);
      host.arrive(call->meeting->counts->done, *call->meeting, -1);
      call->isHelped.store(false);
      continue;
    }
    bell.sleep(seen, [&] { return ends.load(); });
  }
}

//===----------------------------------------------------------------------===//
// Calls of a rank
//===----------------------------------------------------------------------===//

SharedCalls::~SharedCalls() {
  for (size_t i = 0; i < numStarted && movers; ++i)
    movers->withdraw(*started[i]);
}

int SharedCalls::add(Meeting &meeting, Collective c, uint64_t *list) {
  SharedCall &made = calls.emplace_back();
  const size_t n = c.members.size();
  for (size_t m = 0; m < n; ++m) {
    auto member = static_cast<size_t>(c.members[m]);
    made.place.resize(std::max(made.place.size(), member + 1));
    made.place[member] = m;
    made.bases.push_back(host.base(c.members[m]));
  }
  made.received = receivedBytes(c, self);
  made.seen.resize(2 * n * c.items.size());
  made.collective = std::move(c);
  made.meeting = &meeting;
  made.list = list;
  made.sources.resize(n);
  made.targets.resize(n);
  started.resize(calls.size());
  return static_cast<int>(calls.size()) - 1;
}

bool SharedCalls::start(int call, void *const *places, const int64_t *counts) noexcept {
  SharedCall &p = calls[static_cast<size_t>(call)];
  const auto me = static_cast<size_t>(p.collective.me);
  const uintptr_t base = p.bases[me];
  for (size_t k = 0; k < 2 * p.collective.items.size(); ++k)
    p.list[k] = places[k] ? reinterpret_cast<uintptr_t>(places[k]) - base : 0;
  p.meeting->slots[me].list = reinterpret_cast<uintptr_t>(p.list) - base;
  p.counts = counts;
  ++p.meeting->calls;
  p.isTaken.store(false);
  started[numStarted++] = &p;
  if (movers)
    movers->offer(p);
  host.arrive(p.meeting->counts->arrived, *p.meeting, self);
  return !host.isAborted();
}

bool SharedCalls::wait(int call) noexcept {
  SharedCall &mine = calls[static_cast<size_t>(call)];
  bool ok = await([&] {
    doShares();
    return mine.meeting->isOver();
  });
  if (movers)
    movers->withdraw(mine);
  size_t at = 0;
  while (started[at] != &mine)
    ++at;
  started[at] = started[--numStarted];
  return ok;
}

bool SharedCalls::progress() noexcept {
  doShares();
  return !host.isAborted();
}

bool SharedCalls::meet(Meeting &meeting) noexcept {
  ++meeting.calls;
  host.arrive(meeting.counts->arrived, meeting, self);
  return await([&] {
    doShares();
    return meeting.isMet();
  });
}

void SharedCalls::doShares() {
  for (size_t i = 0; i < numStarted; ++i) {
    SharedCall &p = *started[i];
    if (p.isTaken.load() || !p.meeting->isMet() || p.isTaken.exchange(true))
      continue;
    share(p);
    host.arrive(p.meeting->counts->done, *p.meeting, self);
  }
}

/// Until `isOver`, or an abort. A waiting rank spins for a while, then sleeps in the
/// kernel, where an abort is noticed within 50 ms. It never yields: a scheduler that
/// shares out deadlines lets a thread that yields often wait for seconds behind programs
/// that compute. What is to be moved along beside waits for no bell.
template <typename IsOver> bool SharedCalls::await(IsOver isOver) {
  using Beside = Neighbours::Beside;
  for (int i = 0; i <= host.spins(); ++i) {
    if (isOver())
      return !host.isAborted();
    pauseCpu();
  }
  Bell &bell = host.bell(self);
  for (;;) {
    const uint32_t seen = bell.rings.load();
    const Beside beside = host.moveBeside();
    if (beside == Beside::Failure)
      return false;
    bool over = false;
    auto mayGo = [&] { return (over = isOver()) || host.isAborted(); };
    if (beside == Beside::Nothing)
      bell.sleep(seen, mayGo);
    else if (!mayGo() && host.spins() == 0)
      bell.sleep(seen, mayGo, Bell::nap);
    if (over || host.isAborted())
      return over && !host.isAborted();
  }
}
