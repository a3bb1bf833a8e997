//===- Window.cpp - Ranks of a host that share memory ---------------------===//
#include "Window.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <sched.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

//===----------------------------------------------------------------------===//
// Agreeing
//===----------------------------------------------------------------------===//

/// The reason of the first rank that has one, on all ranks of the job.
static std::string firstReason(const std::string &mine, int rank) {
  int first = mine.empty() ? INT_MAX : rank, found = INT_MAX;
  MPI_Allreduce(&first, &found, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (found == INT_MAX)
    return {};
  std::string text = "rank " + std::to_string(rank) + ": " + mine;
  auto length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, found, MPI_COMM_WORLD);
  text.resize(static_cast<size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, found, MPI_COMM_WORLD);
  return text;
}

Expected<std::unique_ptr<Window>> Window::open(MpiWindow asked) {
  int rank = 0, ranks = 1, hostRanks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int said[] = {asked == MpiWindow::On, asked == MpiWindow::Off};
  MPI_Allreduce(MPI_IN_PLACE, said, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  const bool mustBe = said[0] != 0, mayNot = said[1] != 0;
  if (mustBe && mayNot)
    return makeError("--mpi-window is on for some ranks and off for others");
  if (mayNot)
    return nullptr;
  MPI_Comm host;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL,
                          &host) != MPI_SUCCESS)
    return makeError("MPI does not tell which ranks are on one host");
  MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
  MPI_Comm_size(host, &hostRanks);
  std::unique_ptr<Window> window(new Window(host, rank));
  window->isWhole = hostRanks == ranks;
  Expected<void> ok;
  if (hostRanks > 1)
    ok = window->join();
  if (mustBe)
    if (std::string why = firstReason(ok ? "" : ok.error().message, rank); !why.empty())
      return makeError("ranks of a host cannot share memory, as --mpi-window on asks: " +
                       why);
  if (hostRanks == 1 || !ok)
    return nullptr;
  return window;
}

Window::~Window() {
  for (auto &[invitation, request] : sent)
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&host);
}

/// Addresses that a segment takes: twice the memory that there is, as pages that are
/// given back leave their addresses.
uint64_t Window::mostBytes(int ranksOfHost) {
  constexpr uint64_t unit = uint64_t(2) << 20, all = uint64_t(1) << 45;
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(2 * memory, all / static_cast<uint64_t>(ranksOfHost)) / unit * unit;
}

/// Shares memory with all ranks of this host, or none of them does. An error says why
/// this rank cannot; it is empty where another one cannot.
Expected<void> Window::join() {
  int ranks = 1, hostRanks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_size(host, &hostRanks);
  uint64_t most = mostBytes(hostRanks);
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UINT64_T, MPI_MIN, host);
  begins.resize(static_cast<size_t>(ranks));
  placeOnHost.resize(static_cast<size_t>(ranks), -1);
  Expected<void> ok = makeSegment(most);
  Card mine{self, ::getpid(), ok ? segment->file() : -1, ok.has_value(), {}, {}};
  if (ok)
    std::ranges::copy(head(self).token, mine.token);
  ::sched_getaffinity(0, sizeof(mine.cpus), &mine.cpus);
  std::vector<Card> cards(static_cast<size_t>(hostRanks));
  constexpr int bytes = sizeof(Card);
  bool isTold = MPI_Allgather(&mine, bytes, MPI_BYTE, cards.data(), bytes, MPI_BYTE,
                              host) == MPI_SUCCESS;
  if (ok && isTold && std::ranges::all_of(cards, &Card::isThere))
    ok = mapOthers(cards, most);
  int isGood = ok && isTold;
  MPI_Allreduce(MPI_IN_PLACE, &isGood, 1, MPI_INT, MPI_MIN, host);
  return ok && !isGood ? makeError("") : ok;
}

Expected<void> Window::makeSegment(uint64_t most) {
  auto made = Segment::create(most);
  if (!made)
    return tl::unexpected(made.error());
  segment = std::move(*made);
  auto place = segment->takeSmall(sizeof(Head));
  if (!place)
    return tl::unexpected(place.error());
  auto *own = new (*place) Head();
  std::random_device random;
  for (uint64_t &word : own->token)
    word = uint64_t(random()) << 32 | random();
  own->bell.scope = own->movers.scope = 0;
  begins[static_cast<size_t>(self)] = segment->begin();
  return {};
}

Expected<void> Window::mapOthers(const std::vector<Card> &cards, uint64_t most) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (size_t i = 0; i < cards.size(); ++i) {
    const Card &card = cards[i];
    const auto rank = static_cast<size_t>(card.rank);
    CPU_OR(&all, &all, &card.cpus);
    placeOnHost[rank] = static_cast<int>(i);
    if (card.rank == self)
      continue;
    auto mapped = MappedSegment::open(card.process, card.file, most);
    if (!mapped)
      return tl::unexpected(mapped.error());
    begins[rank] = mapped->begin();
    // Numbers of processes differ between namespaces: it may be another process.
    if (mapped->bytes() < sizeof(Head) ||
        !std::ranges::equal(head(card.rank).token, card.token))
      return makeError("process " + std::to_string(card.process) +
                       ", whose memory it maps, is not rank " +
                       std::to_string(card.rank));
    others.emplace(card.rank, std::move(*mapped));
  }
  // Looks as many times as a thread does: see LocalTeam.
  looks = static_cast<int>(cards.size()) <= CPU_COUNT(&all) ? 1000 : 0;
  return {};
}

bool Window::holds(const std::vector<int32_t> &ranks) const {
  return std::ranges::all_of(
      ranks, [&](int32_t rank) { return begins[static_cast<size_t>(rank)] != nullptr; });
}

uintptr_t Window::base(int rank) const {
  return reinterpret_cast<uintptr_t>(begins[static_cast<size_t>(rank)]);
}

void Window::ringMovers(const std::vector<int32_t> &members) {
  for (int32_t member : members)
    head(member).movers.ring();
}

void Window::beginThread() {
  movers = std::make_unique<Movers>(*this, head(self).movers, 1);
  calls.setMovers(movers.get());
}

//===----------------------------------------------------------------------===//
// Meetings
//===----------------------------------------------------------------------===//

static uint64_t keyOf(uint64_t handle, const std::vector<int32_t> &members) {
  uint64_t key = 14695981039346656037u;
  auto add = [&](uint64_t word) { key = (key ^ word) * 1099511628211u; };
  add(handle);
  for (int32_t member : members)
    add(static_cast<uint64_t>(member));
  return key;
}

/// Makes what the members of a meeting see, in this rank's segment.
Expected<int64_t> Window::makeRecord(size_t members) {
  auto place = segment->takeSmall(sizeof(MeetingCounts) + members * sizeof(MeetingSlot));
  if (!place)
    return tl::unexpected(place.error());
  new (*place) MeetingCounts();
  for (size_t m = 0; m < members; ++m)
    new (*place + sizeof(MeetingCounts) + m * sizeof(MeetingSlot)) MeetingSlot();
  return *place - segment->begin();
}

/// Tells the other members, without waiting for them.
bool Window::invite(const std::vector<int32_t> &members, int tag, Invitation invitation) {
  bool ok = true;
  for (int32_t member : members) {
    if (member == self)
      continue;
    auto &[what, request] = sent.emplace_back(invitation, MPI_REQUEST_NULL);
    ok &=
        MPI_Isend(&what, sizeof(what), MPI_BYTE, placeOnHost[static_cast<size_t>(member)],
                  tag, host, &request) == MPI_SUCCESS;
  }
  return ok;
}

/// Moves invitations along that MPI has not taken yet: it takes many at a time only while
/// their sender calls it, and those who are invited wait.
Neighbours::Beside Window::sendInvitations() noexcept {
  for (; !sent.empty(); sent.pop_front()) {
    int isTaken = 0;
    if (MPI_Test(&sent.front().second, &isTaken, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return Beside::Failure;
    if (!isTaken)
      return Beside::Something;
  }
  return Beside::Nothing;
}

Neighbours::Beside Window::moveBeside() {
  const Beside invitations = sendInvitations();
  if (invitations == Beside::Failure || !beside)
    return invitations;
  const Beside messages = beside();
  return messages == Beside::Nothing ? invitations : messages;
}

/// The member of the lowest rank makes the record and says where it is. Ranks wait for
/// lower ones only, so that the order of transfers may differ between programs.
Expected<Meeting *> Window::meeting(uint64_t handle, int tag,
                                    const std::vector<int32_t> &members) {
  auto [it, fresh] = meetings.try_emplace({handle, members});
  if (!fresh)
    return &it->second;
  const int owner = *std::ranges::min_element(members);
  const uint64_t key = keyOf(handle, members);
  Invitation invitation{-1, key};
  Expected<int64_t> made = owner == self ? makeRecord(members.size()) : int64_t(-1);
  bool ok = true;
  if (owner == self) {
    invitation.place = made.value_or(-1);
    ok = invite(members, tag, invitation);
  } else {
    ok = MPI_Recv(&invitation, sizeof(invitation), MPI_BYTE,
                  placeOnHost[static_cast<size_t>(owner)], tag, host,
                  MPI_STATUS_IGNORE) == MPI_SUCCESS;
  }
  if (!made)
    return tl::unexpected(made.error());
  if (!ok || invitation.place < 0 || invitation.key != key)
    return makeError("rank " + std::to_string(owner) +
                     " has no room for a call in the memory that it shares");
  std::byte *record = begins[static_cast<size_t>(owner)] + invitation.place;
  it->second = {members, reinterpret_cast<MeetingCounts *>(record),
                reinterpret_cast<MeetingSlot *>(record + sizeof(MeetingCounts))};
  return &it->second;
}

Expected<int> Window::add(uint64_t handle, int tag, Collective collective,
                          const std::vector<uint64_t> &sourceBytes) {
  auto met = meeting(handle, tag, collective.members);
  if (!met)
    return tl::unexpected(met.error());
  const size_t places = 2 * collective.items.size();
  auto list = segment->takeSmall(places * sizeof(uint64_t));
  if (!list)
    return tl::unexpected(list.error());
  Room &room = rooms.emplace_back();
  room.memory.resize(places), room.places.resize(places);
  for (size_t i = 0; i < collective.items.size(); ++i) {
    const CollectiveItem &item = collective.items[i];
    const bool isWritten = collective.kind == TaskKind::AllReduce;
    room.bytes.push_back(sourceBytes[i]);
    room.bytes.push_back(isWritten ? static_cast<uint64_t>(item.block * item.width())
                                   : 0);
  }
  return calls.add(**met, std::move(collective), reinterpret_cast<uint64_t *>(*list));
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Finds room in the segment for places outside of it that others look at, and copies
/// what they read. False if there is no room.
bool Window::bringInside(Room &room, void *const *places) noexcept {
  room.asked = nullptr;
  for (size_t k = 0; k < room.bytes.size(); ++k) {
    room.places[k] = places[k];
    if (room.bytes[k] == 0 || !places[k] || segment->contains(places[k]))
      continue;
    room.asked = places;
    if (k % 2 == 1 && places[k] == places[k - 1]) { // in place
      room.places[k] = room.places[k - 1];
      continue;
    }
    if (!room.memory[k]) {
      auto made = segment->take(room.bytes[k]);
      if (!made) {
        failure = made.error().message;
        return false;
      }
      room.memory[k] = std::move(*made);
    }
    room.places[k] = room.memory[k].get();
    if (k % 2 == 0)
      std::memcpy(room.places[k], places[k], room.bytes[k]);
  }
  return true;
}

bool Window::start(int call, void *const *places, const int64_t *counts) noexcept {
  Room &room = rooms[static_cast<size_t>(call)];
  return bringInside(room, places) && calls.start(call, room.places.data(), counts);
}

bool Window::wait(int call) noexcept {
  if (!calls.wait(call))
    return false;
  Room &room = rooms[static_cast<size_t>(call)];
  for (size_t k = 1; room.asked && k < room.bytes.size(); k += 2)
    if (room.places[k] != room.asked[k])
      std::memcpy(room.asked[k], room.places[k], room.bytes[k]);
  return true;
}
