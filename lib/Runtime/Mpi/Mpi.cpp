//===- Mpi.cpp - Ranks as processes of an MPI job -------------------------===//
//
// Point-to-point transfers only, on the world communicator: everything that does not
// reduce is one message per pair of ranks, described by a derived type built at load;
// reductions are a pairwise exchange of parts (Open MPI's own reduce-scatter is several
// times slower from 1 MiB on), so results combine in coordinate order and are equal on
// all members, whatever the element type.
//
// A call in flight is in its first or (an all-reduce) second phase. Handles are equal on
// all members of a group and phases follow each other, so both are in the tag: messages
// of calls that are in flight together never meet. Calls of one handle follow each other
// in one order, and so do their messages.
//
// Calls whose ranks are all on this host are no messages where these share memory
// (Window.h).
//
//===----------------------------------------------------------------------===//
#include "Window.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

using namespace partita;
using namespace partita::runtime;

namespace {

constexpr int64_t gib = int64_t(1) << 30;

/// `bytes` contiguous bytes, more than INT_MAX too.
MPI_Datatype bytesType(int64_t bytes) {
  MPI_Datatype type;
  if (bytes <= INT_MAX) {
    MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type);
    return type;
  }
  MPI_Datatype block, many;
  MPI_Type_contiguous(static_cast<int>(gib), MPI_BYTE, &block);
  MPI_Type_contiguous(static_cast<int>(bytes / gib), block, &many);
  int lengths[] = {1, static_cast<int>(bytes % gib)};
  MPI_Aint places[] = {0, bytes / gib * gib};
  MPI_Datatype types[] = {many, MPI_BYTE};
  MPI_Type_create_struct(2, lengths, places, types, &type);
  MPI_Type_free(&block);
  MPI_Type_free(&many);
  return type;
}

/// Where a message's pieces lie.
enum class Side { Sources, Targets, Staging };

/// Message from a rank to another in one phase of a call.
struct Message {
  /// A pull of an item; of sources the offsets are its source's, else its target's.
  struct Piece {
    size_t item;
    Pull pull;
  };
  int peer;
  Side side;
  std::vector<Piece> pieces = {};
  MPI_Datatype type = MPI_DATATYPE_NULL;

  /// Makes the type anew: from the begin of the only buffer, or, with the places of a
  /// bucket, from address 0.
  void makeType(void *const *places) {
    if (type != MPI_DATATYPE_NULL)
      MPI_Type_free(&type);
    std::vector<MPI_Datatype> types;
    std::vector<MPI_Aint> begins;
    const bool isSource = side == Side::Sources;
    for (const auto &[item, pull] : pieces) {
      MPI_Datatype piece = bytesType(pull.run);
      for (size_t d = pull.dims.size(); d-- > 0;) {
        const PullDim &dim = pull.dims[d];
        MPI_Datatype outer;
        MPI_Type_create_hvector(static_cast<int>(dim.count), 1,
                                isSource ? dim.source : dim.target, piece, &outer);
        MPI_Type_free(&piece);
        piece = outer;
      }
      MPI_Aint begin = 0;
      if (places)
        MPI_Get_address(places[2 * item + (isSource ? 0 : 1)], &begin);
      types.push_back(piece);
      begins.push_back(begin + (isSource ? pull.sourceOffset : pull.targetOffset));
    }
    std::vector<int> ones(types.size(), 1);
    MPI_Type_create_struct(static_cast<int>(types.size()), ones.data(), begins.data(),
                           types.data(), &type);
    MPI_Type_commit(&type);
    for (MPI_Datatype &piece : types)
      MPI_Type_free(&piece);
  }
};

class MpiTransport : public Transport {
public:
  /// `mayShare`: several threads may call MPI.
  MpiTransport(bool mayShare, std::unique_ptr<Window> shared)
      : window(std::move(shared)), mayShare(mayShare) {
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (window)
      window->setBeside([this] { return moveBeside(); });
  }
  ~MpiTransport() override {
    ends.store(true);
    if (thread.joinable())
      thread.join();
    if (aborted)
      return;
    window.reset();
    MPI_Finalize();
  }
  int rank() const override { return self; }
  int size() const override { return ranks; }
  bool needsWarmUp() const override { return true; }

  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    return prepare({uint64_t(task.handle), collectiveKey(table, task)},
                   2 * int64_t(task.handle),
                   [&](int64_t rank) { return describeCollective(table, task, rank); });
  }

  /// Ranks of different programs have nothing but transfers with each other, so their
  /// tags may be those of handles.
  Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                int64_t microBatch) override {
    return prepare({transferHandle(table, transfer, microBatch), transferKey(table)},
                   table.transfers()[transfer].number * table.microBatches() + microBatch,
                   [&](int64_t rank) { return describeTransfer(table, transfer, rank); });
  }

  Expected<Memory> memory(uint64_t bytes) override {
    return window ? window->memory(bytes) : Memory();
  }
  std::string problem() const override {
    return window ? window->problem() : std::string();
  }

  bool start(int call, void *const *places, const int64_t *counts) noexcept override {
    if (call < 0)
      return window->start(~call, places, counts);
    std::unique_lock guard = lockFlights();
    Prepared &p = prepared[static_cast<size_t>(call)];
    Flight &f = *p.flight;
    f.call = &p;
    f.places = places;
    f.isReduced = false;
    started[numStarted++] = &f;
    if (p.collective.kind == TaskKind::AllToAllV)
      return postRows(f, counts);
    if (p.isBucket())
      takePlaces(p, places);
    if (!post(f, p.sends, p.receives, p.tag))
      return false;
    if (p.collective.reduces())
      return true;
    for (size_t i = 0; i < p.collective.items.size(); ++i) {
      const CollectiveItem &item = p.collective.items[i];
      fillRest(item, f.target(i));
      for (const Pull &pull : item.pulls)
        if (pull.peer == self)
          copyPull(pull, f.source(i), f.target(i));
    }
    return true;
  }

  /// MPI waits best for the requests of one call; where there are several, each is to
  /// move along.
  bool wait(int call) noexcept override {
    if (call < 0)
      return window->wait(~call);
    Flight &f = *prepared[static_cast<size_t>(call)].flight;
    while (isFlying(f)) {
      if (thread.joinable() || numStarted > 1 || (window && window->hasStarted())) {
        if (!progress())
          return false;
        continue;
      }
      if (MPI_Waitall(f.numRequests, f.requests.data(), statusesOf(f)) != MPI_SUCCESS ||
          !advance(f))
        return false;
    }
    return !hasFailed;
  }

  bool progress() noexcept override {
    if (window && !window->progress())
      return false;
    std::unique_lock guard = lockFlights();
    return !hasFailed && moveAlong();
  }

  Expected<void> beginThread() override {
    const bool sendsMessages = !window || !window->holdsAll();
    if (sendsMessages && !mayShare)
      return makeError("this MPI lets only one thread call it at a time");
    if (window)
      window->beginThread();
    if (sendsMessages)
      thread = std::thread([this] { moveMeanwhile(); });
    return {};
  }
  uint64_t movedMeanwhile() const override {
    return movedBytes.load() + (window ? window->movedBytes() : 0);
  }

  bool barrier() noexcept override { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS; }

  bool maximum(std::span<int64_t> values) noexcept override {
    return MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                         MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS;
  }

  bool sendToRoot(const void *data, int64_t bytes) noexcept override {
    auto *at = static_cast<const std::byte *>(data);
    for (int64_t done = 0; done < bytes; done += gib)
      if (MPI_Send(at + done, static_cast<int>(std::min(gib, bytes - done)), MPI_BYTE, 0,
                   outputTag, MPI_COMM_WORLD) != MPI_SUCCESS)
        return false;
    return true;
  }

  bool receiveFrom(int from, void *data, int64_t bytes) noexcept override {
    auto *at = static_cast<std::byte *>(data);
    for (int64_t done = 0; done < bytes; done += gib)
      if (MPI_Recv(at + done, static_cast<int>(std::min(gib, bytes - done)), MPI_BYTE,
                   from, outputTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    return true;
  }

  bool beginSendToRoot(const void *data, int64_t bytes, size_t later) noexcept override {
    auto *at = static_cast<const std::byte *>(data);
    for (int64_t done = 0; done < bytes; done += gib)
      if (MPI_Isend(at + done, static_cast<int>(std::min(gib, bytes - done)), MPI_BYTE, 0,
                    outputTag, MPI_COMM_WORLD, begun(later, -1)) != MPI_SUCCESS)
        return false;
    return true;
  }

  bool beginReceiveFrom(int from, void *data, int64_t bytes,
                        size_t later) noexcept override {
    auto *at = static_cast<std::byte *>(data);
    for (int64_t done = 0; done < bytes; done += gib)
      if (MPI_Irecv(at + done, static_cast<int>(std::min(gib, bytes - done)), MPI_BYTE,
                    from, outputTag, MPI_COMM_WORLD, begun(later, from)) != MPI_SUCCESS)
        return false;
    return true;
  }

  bool beginMaximum(std::span<int64_t> values, size_t later) noexcept override {
    return MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                          MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD,
                          begun(later, -1)) == MPI_SUCCESS;
  }

  bool isOver(size_t later, bool &over, int &awaited) noexcept override {
    over = true, awaited = -1;
    if (later >= lists.size())
      return true;
    Begun &list = lists[later];
    int all = 0;
    if (MPI_Testall(static_cast<int>(list.requests.size()), list.requests.data(), &all,
                    MPI_STATUSES_IGNORE) != MPI_SUCCESS)
      return false;
    over = all != 0;
    if (over) {
      list.requests.clear(), list.senders.clear();
      return true;
    }
    for (size_t i = 0; i < list.requests.size() && awaited < 0; ++i) {
      int has = 1;
      if (list.senders[i] >= 0 &&
          MPI_Request_get_status(list.requests[i], &has, MPI_STATUS_IGNORE) !=
              MPI_SUCCESS)
        return false;
      awaited = has ? -1 : list.senders[i];
    }
    return true;
  }

  void abort() noexcept override {
    aborted = true;
    if (window)
      window->abort();
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

private:
  struct Flight;
  static constexpr int outputTag = 2, firstDataTag = 4;

  /// Keeps the thread beside the rank from what is in flight; where there is none, holds
  /// nothing.
  std::unique_lock<std::mutex> lockFlights() {
    return thread.joinable() ? std::unique_lock(flightsLock)
                             : std::unique_lock<std::mutex>();
  }

  bool moveAlong() noexcept {
    for (size_t i = numStarted; i-- > 0;) {
      Flight &f = *started[i];
      int arrived = 0;
      if (MPI_Testall(f.numRequests, f.requests.data(), &arrived, statusesOf(f)) !=
          MPI_SUCCESS)
        return false;
      if (arrived && !advance(f))
        return false;
    }
    return true;
  }

  /// While this rank waits for others of its host: messages may be under way, of which
  /// those may wait for the other end.
  Neighbours::Beside moveBeside() {
    using Beside = Neighbours::Beside;
    const bool isBegun = std::ranges::any_of(
        lists, [](const Begun &list) { return !list.requests.empty(); });
    if (numStarted == 0 && !isBegun)
      return Beside::Nothing;
    std::unique_lock guard = lockFlights();
    int found = 0;
    const bool ok = !hasFailed && moveAlong() &&
                    (!isBegun || MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                                            &found, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    return ok ? Beside::Something : Beside::Failure;
  }

  bool isFlying(const Flight &f) {
    std::unique_lock guard = lockFlights();
    return f.call && !hasFailed;
  }

  void moveMeanwhile() {
    constexpr std::chrono::microseconds nap(50);
    while (!ends.load()) {
      {
        std::lock_guard guard(flightsLock);
        isBeside = true;
        hasFailed = !moveAlong();
        isBeside = false;
        if (hasFailed)
          return;
      }
      std::this_thread::sleep_for(nap);
    }
  }

  /// Messages and agreements that belong together; of those that this rank receives who
  /// sends them, else -1.
  struct Begun {
    std::vector<MPI_Request> requests;
    std::vector<int> senders;
  };
  MPI_Request *begun(size_t later, int sender) {
    lists.resize(std::max(lists.size(), later + 1));
    lists[later].senders.push_back(sender);
    return &lists[later].requests.emplace_back(MPI_REQUEST_NULL);
  }

  struct Prepared;
  /// What a handle has: room for its messages, and the call that is in flight.
  struct Flight {
    std::vector<MPI_Request> requests;
    std::vector<MPI_Status> statuses; ///< of an AllToAllV
    std::vector<int> expected;        ///< rows, per message that it receives
    std::vector<std::byte> staging;
    int numRequests = 0; ///< of this phase
    Prepared *call = nullptr;
    void *const *places = nullptr;
    bool isReduced = false; ///< past the first phase

    const std::byte *source(size_t item) const {
      return static_cast<const std::byte *>(places[2 * item]);
    }
    std::byte *target(size_t item) const {
      return static_cast<std::byte *>(places[2 * item + 1]);
    }
  };

  struct Prepared {
    Collective collective;
    Flight *flight = nullptr;
    uint64_t received = 0; ///< bytes
    int tag = 0;           ///< of the first phase; the second has the next
    std::vector<Message> sends, receives;
    MPI_Datatype row = MPI_DATATYPE_NULL; ///< of an AllToAllV
    /// Reductions: which elements of an item each member reduces, and where in a
    /// member's staging what it sends of them goes.
    struct Parts {
      std::vector<int64_t> first, count; ///< per member, in elements
      int64_t staged = 0;                ///< bytes
    };
    std::vector<Parts> parts; ///< per item
    std::vector<Message> gatherSends, gatherReceives;
    std::vector<const void *> sources;
    int64_t partBytes = 0;      ///< of staging, per member
    std::vector<void *> places; ///< of a bucket, for which its types are

    bool isBucket() const { return collective.items.size() > 1; }
  };

  using Key = std::pair<uint64_t, std::string>; ///< handle, collectiveKey

  /// `describe`: the call as a rank sees it. `tag`: from 0 on; reductions take two. Calls
  /// of the window have negative numbers.
  template <typename Describe>
  Expected<int> prepare(Key key, int64_t tag, Describe describe) {
    if (auto it = known.find(key); it != known.end())
      return it->second;
    if (firstDataTag + tag + 1 > lastTag())
      return makeError("MPI has tags up to " + std::to_string(lastTag()) +
                       ", the calls in flight need more");
    const auto first = static_cast<int>(firstDataTag + tag);
    Collective mine = describe(self);
    int call = static_cast<int>(prepared.size());
    if (window && window->holds(mine.members)) {
      const auto read = sourceBytes(mine, describe);
      auto made = window->add(key.first, first, std::move(mine), read);
      if (!made)
        return tl::unexpected(made.error());
      call = ~*made;
    } else {
      add(key.first, first, std::move(mine), describe);
    }
    known.emplace(std::move(key), call);
    return call;
  }

  /// How far others read in the source of each item.
  template <typename Describe>
  static std::vector<uint64_t> sourceBytes(const Collective &mine, Describe describe) {
    std::vector<int64_t> bytes;
    for (const CollectiveItem &item : mine.items) {
      const auto parts = static_cast<int64_t>(
          mine.kind == TaskKind::ReduceScatter ? mine.members.size() : 1);
      bytes.push_back(mine.kind == TaskKind::AllToAllV
                          ? mine.rows * mine.rowBytes
                          : item.outer * parts * item.block * item.width());
    }
    const auto self = mine.members[static_cast<size_t>(mine.me)];
    for (int32_t member : mine.members) {
      if (mine.reduces())
        break;
      const Collective theirs = describe(member);
      for (size_t i = 0; i < bytes.size(); ++i)
        for (const Pull &pull : theirs.items[i].pulls)
          if (pull.peer == self)
            bytes[i] = std::max(bytes[i], sourceEnd(pull));
    }
    return {bytes.begin(), bytes.end()};
  }

  static int64_t sourceEnd(const Pull &pull) {
    int64_t end = pull.sourceOffset + pull.run;
    for (const PullDim &dim : pull.dims)
      end += (dim.count - 1) * dim.source;
    return end;
  }

  template <typename Describe>
  void add(uint64_t handle, int tag, Collective mine, Describe describe) {
    Prepared &p = prepared.emplace_back();
    p.flight = &flights[handle];
    p.tag = tag;
    p.collective = std::move(mine);
    p.received = receivedBytes(p.collective, self);
    bool isRagged = p.collective.kind == TaskKind::AllToAllV;
    if (isRagged)
      p.row = committed(bytesType(p.collective.rowBytes));
    else if (p.collective.reduces())
      prepareReduce(p);
    else
      prepareMove(p, describe);
    size_t messages = std::max(p.sends.size() + p.receives.size(),
                               p.gatherSends.size() + p.gatherReceives.size());
    if (isRagged) { // one to and one from every other member
      messages = 2 * p.collective.members.size();
      p.flight->statuses.resize(std::max(p.flight->statuses.size(), messages));
      p.flight->expected.resize(std::max(p.flight->expected.size(), messages / 2));
    }
    p.flight->requests.resize(std::max(p.flight->requests.size(), messages));
    started.resize(flights.size());
  }

  template <typename Describe> void prepareMove(Prepared &p, Describe describe) {
    for (int32_t member : p.collective.members) {
      if (member == self)
        continue;
      Message in{member, Side::Targets}, out{member, Side::Sources};
      Collective theirs = describe(member);
      for (size_t i = 0; i < p.collective.items.size(); ++i) {
        for (const Pull &pull : p.collective.items[i].pulls)
          if (pull.peer == member)
            in.pieces.push_back({i, pull});
        for (const Pull &pull : theirs.items[i].pulls)
          if (pull.peer == self)
            out.pieces.push_back({i, pull});
      }
      add(p, p.receives, std::move(in));
      add(p, p.sends, std::move(out));
    }
  }

  /// The types of buckets are made when their places are known.
  static void add(const Prepared &p, std::vector<Message> &list, Message message) {
    if (message.pieces.empty())
      return;
    if (!p.isBucket() || message.side == Side::Staging)
      message.makeType(nullptr);
    list.push_back(std::move(message));
  }

  static void takePlaces(Prepared &p, void *const *places) {
    const std::span now(places, 2 * p.collective.items.size());
    if (std::ranges::equal(p.places, now))
      return;
    p.places.assign(now.begin(), now.end());
    for (auto *list : {&p.sends, &p.receives, &p.gatherSends, &p.gatherReceives})
      for (Message &message : *list)
        if (message.side != Side::Staging)
          message.makeType(places);
  }

  static MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    return type;
  }

  static void divide(Prepared &p) {
    const Collective &c = p.collective;
    auto n = static_cast<int64_t>(c.members.size());
    for (const CollectiveItem &item : c.items) {
      bool scatter = c.kind == TaskKind::ReduceScatter;
      int64_t part = (item.block + n - 1) / n;
      Prepared::Parts &parts = p.parts.emplace_back();
      for (int64_t m = 0; m < n; ++m) {
        parts.first.push_back(scatter ? m * item.block : std::min(item.block, m * part));
        parts.count.push_back(scatter ? item.block
                                      : std::min(part, item.block - parts.first.back()));
      }
      int64_t mine = parts.count[static_cast<size_t>(c.me)];
      parts.staged = p.partBytes;
      p.partBytes += (item.outer * mine * item.width() + 63) / 64 * 64;
    }
  }

  void prepareReduce(Prepared &p) {
    const Collective &c = p.collective;
    divide(p);
    p.sources.resize(c.members.size());
    std::vector<std::byte> &staging = p.flight->staging;
    staging.resize(
        std::max(staging.size(), c.members.size() * static_cast<size_t>(p.partBytes)));
    for (size_t m = 0; m < c.members.size(); ++m)
      if (c.members[m] != self)
        prepareReduceWith(p, m);
  }

  /// The messages to and from member `m`.
  static void prepareReduceWith(Prepared &p, size_t m) {
    const Collective &c = p.collective;
    auto n = static_cast<int64_t>(c.members.size()), at = static_cast<int64_t>(m);
    int peer = c.members[m];
    Message send{peer, Side::Sources}, receive{peer, Side::Staging},
        sendResult{peer, Side::Targets}, receiveResult{peer, Side::Targets};
    for (size_t i = 0; i < c.items.size(); ++i) {
      const CollectiveItem &item = c.items[i];
      const Prepared::Parts &parts = p.parts[i];
      auto me = static_cast<size_t>(c.me);
      int64_t width = item.width();
      int64_t theirs = parts.count[m] * width, mine = parts.count[me] * width;
      int64_t row = n * item.block * width;
      if (theirs > 0)
        send.pieces.push_back(
            {i, {0, parts.first[m] * width, 0, {{item.outer, row, 0}}, theirs}});
      if (mine > 0)
        receive.pieces.push_back(
            {i, {0, 0, at * p.partBytes + parts.staged, {}, item.outer * mine}});
      if (c.kind == TaskKind::ReduceScatter)
        continue;
      if (mine > 0)
        sendResult.pieces.push_back({i, {0, 0, parts.first[me] * width, {}, mine}});
      if (theirs > 0)
        receiveResult.pieces.push_back({i, {0, 0, parts.first[m] * width, {}, theirs}});
    }
    add(p, p.sends, std::move(send));
    add(p, p.receives, std::move(receive));
    add(p, p.gatherSends, std::move(sendResult));
    add(p, p.gatherReceives, std::move(receiveResult));
  }

  /// The messages of this phase have come.
  bool advance(Flight &f) noexcept {
    Prepared &p = *f.call;
    if (p.collective.reduces() && !f.isReduced) {
      reduce(f);
      f.isReduced = true;
      if (p.collective.kind == TaskKind::AllReduce)
        return post(f, p.gatherSends, p.gatherReceives, p.tag + 1);
    }
    bool ok = p.collective.kind != TaskKind::AllToAllV || areAsExpected(f);
    if (isBeside)
      movedBytes.fetch_add(p.received);
    f.call = nullptr;
    size_t at = 0;
    while (started[at] != &f)
      ++at;
    started[at] = started[--numStarted];
    return ok;
  }

  /// This rank's part of the result, of what the others sent and its own.
  static void reduce(Flight &f) noexcept {
    Prepared &p = *f.call;
    const Collective &c = p.collective;
    size_t n = c.members.size();
    auto me = static_cast<size_t>(c.me);
    bool scatter = c.kind == TaskKind::ReduceScatter;
    for (size_t i = 0; i < c.items.size(); ++i) {
      const CollectiveItem &item = c.items[i];
      const Prepared::Parts &parts = p.parts[i];
      size_t width = byteWidth(item.type);
      auto mine = static_cast<size_t>(parts.count[me]);
      auto first = static_cast<size_t>(parts.first[me]);
      for (size_t o = 0; o < static_cast<size_t>(item.outer) && mine > 0; ++o) {
        size_t row = o * n * static_cast<size_t>(item.block);
        for (size_t m = 0; m < n; ++m)
          p.sources[m] = m == me
                             ? f.source(i) + (row + first) * width
                             : f.staging.data() + m * static_cast<size_t>(p.partBytes) +
                                   static_cast<size_t>(parts.staged) + o * mine * width;
        void *to = f.target(i) + (scatter ? o * mine : first) * width;
        reduceElements(item.type, c.reduce, p.sources.data(), n, &to, 1,
                       static_cast<int64_t>(mine));
      }
    }
  }

  static MPI_Status *statusesOf(Flight &f) {
    bool isRagged = f.call->collective.kind == TaskKind::AllToAllV;
    return isRagged ? f.statuses.data() : MPI_STATUSES_IGNORE;
  }

  /// A message to and from every other member, of no rows too: members whose counts
  /// differ find out, instead of waiting for each other.
  bool postRows(Flight &f, const int64_t *counts) noexcept {
    const Prepared &p = *f.call;
    const Collective &c = p.collective;
    auto me = static_cast<size_t>(c.me);
    bool ok = true;
    f.numRequests = 0;
    for (bool receives : {true, false})
      for (size_t m = 0; m < c.members.size(); ++m) {
        RaggedPart part =
            receives ? raggedPart(c, counts, m, me) : raggedPart(c, counts, me, m);
        auto rows = static_cast<int>(part.rows);
        if (m == me) {
          if (receives && rows != 0)
            std::memcpy(f.target(0) + part.target, f.source(0) + part.source,
                        static_cast<size_t>(rows * c.rowBytes));
          continue;
        }
        auto at = static_cast<size_t>(f.numRequests++);
        if (receives)
          f.expected[at] = rows;
        ok &=
            (receives ? MPI_Irecv(f.target(0) + part.target, rows, p.row, c.members[m],
                                  p.tag, MPI_COMM_WORLD, &f.requests[at])
                      : MPI_Isend(f.source(0) + part.source, rows, p.row, c.members[m],
                                  p.tag, MPI_COMM_WORLD, &f.requests[at])) == MPI_SUCCESS;
      }
    return ok;
  }

  /// Whether everybody sent what this rank expected.
  static bool areAsExpected(const Flight &f) noexcept {
    for (size_t at = 0; at + 1 < f.call->collective.members.size(); ++at) {
      int rows = -1;
      if (MPI_Get_count(&f.statuses[at], f.call->row, &rows) != MPI_SUCCESS ||
          (rows != f.expected[at] && f.call->collective.rowBytes != 0))
        return false;
    }
    return true;
  }

  bool post(Flight &f, const std::vector<Message> &sends,
            const std::vector<Message> &receives, int tag) noexcept {
    bool ok = true;
    f.numRequests = 0;
    auto begin = [&](const Message &m) -> void * {
      if (m.side == Side::Staging)
        return f.staging.data();
      return f.call->isBucket() ? MPI_BOTTOM : f.places[m.side == Side::Sources ? 0 : 1];
    };
    auto request = [&] { return &f.requests[static_cast<size_t>(f.numRequests++)]; };
    for (const Message &m : receives)
      ok &= MPI_Irecv(begin(m), 1, m.type, m.peer, tag, MPI_COMM_WORLD, request()) ==
            MPI_SUCCESS;
    for (const Message &m : sends)
      ok &= MPI_Isend(begin(m), 1, m.type, m.peer, tag, MPI_COMM_WORLD, request()) ==
            MPI_SUCCESS;
    return ok;
  }

  static int64_t lastTag() {
    int *most = nullptr, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    return found ? *most : 32767;
  }

  int self = 0, ranks = 1;
  bool aborted = false;
  std::unique_ptr<Window> window; ///< null: all calls are messages
  std::map<Key, int> known;
  std::deque<Prepared> prepared;
  std::map<uint64_t, Flight> flights; ///< by handle
  std::vector<Flight *> started;      ///< the first numStarted are in flight
  size_t numStarted = 0;
  std::vector<Begun> lists; ///< by the caller's number
  // A thread beside the rank, if there is one.
  const bool mayShare;
  std::mutex flightsLock; ///< of `started`, and of what is in flight
  bool isBeside = false;  ///< that thread moves calls along now
  bool hasFailed = false; ///< it has, and ends
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> movedBytes{0};
  std::thread thread;
};

} // namespace

/// Of what both sides know the insides of; checked before anything is called.
extern "C" __attribute__((visibility("default"))) const char partita_mpi_abi[] =
    PARTITA_TRANSPORT_ABI;

/// Starts MPI and connects; null if MPI refuses, or with `problem` if ranks cannot talk
/// as they were asked to.
extern "C" __attribute__((visibility("default"))) Transport *
partita_mpi_create(MpiWindow asked, std::string *problem) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    return nullptr;
  // A failed transfer is reported by run(), not by ending the process.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto window = Window::open(asked);
  if (!window) {
    *problem = window.error().message;
    return nullptr;
  }
  return new MpiTransport(provided == MPI_THREAD_MULTIPLE, std::move(*window));
}
