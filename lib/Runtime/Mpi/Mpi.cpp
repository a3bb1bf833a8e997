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
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <deque>
#include <map>

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

/// The pieces of several pulls as they lie in the source or in the target.
MPI_Datatype pullsType(const std::vector<const Pull *> &pulls, bool source) {
  std::vector<MPI_Datatype> types;
  std::vector<MPI_Aint> places;
  for (const Pull *pull : pulls) {
    MPI_Datatype type = bytesType(pull->run);
    for (size_t d = pull->dims.size(); d-- > 0;) {
      const PullDim &dim = pull->dims[d];
      MPI_Datatype outer;
      MPI_Type_create_hvector(static_cast<int>(dim.count), 1,
                              source ? dim.source : dim.target, type, &outer);
      MPI_Type_free(&type);
      type = outer;
    }
    types.push_back(type);
    places.push_back(source ? pull->sourceOffset : pull->targetOffset);
  }
  std::vector<int> ones(types.size(), 1);
  MPI_Datatype all;
  MPI_Type_create_struct(static_cast<int>(types.size()), ones.data(), places.data(),
                         types.data(), &all);
  MPI_Type_commit(&all);
  for (MPI_Datatype &type : types)
    MPI_Type_free(&type);
  return all;
}

struct Message {
  int peer;
  MPI_Datatype type;
  int64_t offset; ///< bytes into the buffer concerned
};

class MpiTransport : public Transport {
public:
  MpiTransport() {
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    // A failed transfer is reported by run(), not by ending the process.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~MpiTransport() override {
    if (!aborted)
      MPI_Finalize();
  }
  int rank() const override { return self; }
  int size() const override { return ranks; }
  bool needsWarmUp() const override { return true; }

  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    auto [it, fresh] =
        known.emplace(std::pair(uint64_t(task.handle), collectiveKey(table, task)),
                      static_cast<int>(prepared.size()));
    if (fresh)
      if (auto ok =
              add(task.handle, 2 * int64_t(task.handle),
                  [&](int64_t rank) { return describeCollective(table, task, rank); });
          !ok)
        return tl::unexpected(ok.error());
    return it->second;
  }

  /// Ranks of different programs have nothing but transfers with each other, so their
  /// tags may be those of handles.
  Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                int64_t microBatch) override {
    int64_t number = table.transfers()[transfer].number;
    uint64_t handle = (uint64_t(number) + 1) << 32 | static_cast<uint64_t>(microBatch);
    auto [it, fresh] = known.emplace(std::pair(handle, transferKey(table)),
                                     static_cast<int>(prepared.size()));
    if (fresh)
      if (auto ok =
              add(handle, number * table.microBatches() + microBatch,
                  [&](int64_t rank) { return describeTransfer(table, transfer, rank); });
          !ok)
        return tl::unexpected(ok.error());
    return it->second;
  }

  bool start(int call, const void *source, void *target,
             const int64_t *counts) noexcept override {
    Prepared &p = prepared[static_cast<size_t>(call)];
    Flight &f = *p.flight;
    f.call = &p;
    f.source = static_cast<const std::byte *>(source);
    f.target = static_cast<std::byte *>(target);
    f.isReduced = false;
    started[numStarted++] = &f;
    if (p.collective.kind == TaskKind::AllToAllV)
      return postRows(f, counts);
    if (p.collective.reduces())
      return post(f, p.sends, f.source, p.receives, f.staging.data(), p.tag);
    if (!post(f, p.sends, f.source, p.receives, f.target, p.tag))
      return false;
    fillRest(p.collective, f.target);
    for (const Pull &pull : p.collective.pulls)
      if (pull.peer == self)
        copyPull(pull, f.source, f.target);
    return true;
  }

  /// MPI waits best for the requests of one call; where there are several, each is to
  /// move along.
  bool wait(int call) noexcept override {
    Flight &f = *prepared[static_cast<size_t>(call)].flight;
    while (f.call) {
      if (numStarted > 1) {
        if (!progress())
          return false;
        continue;
      }
      if (MPI_Waitall(f.numRequests, f.requests.data(), statusesOf(f)) != MPI_SUCCESS ||
          !advance(f))
        return false;
    }
    return true;
  }

  bool progress() noexcept override {
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

  void abort() noexcept override {
    aborted = true;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

private:
  static constexpr int outputTag = 2, firstDataTag = 4;

  struct Prepared;
  /// What a handle has: room for its messages, and the call that is in flight.
  struct Flight {
    std::vector<MPI_Request> requests;
    std::vector<MPI_Status> statuses; ///< of an AllToAllV
    std::vector<int> expected;        ///< rows, per message that it receives
    std::vector<std::byte> staging;
    int numRequests = 0; ///< of this phase
    Prepared *call = nullptr;
    const std::byte *source = nullptr;
    std::byte *target = nullptr;
    bool isReduced = false; ///< past the first phase
  };

  struct Prepared {
    Collective collective;
    Flight *flight = nullptr;
    int tag = 0; ///< of the first phase; the second has the next
    std::vector<Message> sends, receives;
    MPI_Datatype row = MPI_DATATYPE_NULL; ///< of an AllToAllV
    /// Reductions: this rank's part of the elements, and where each member's goes.
    std::vector<int64_t> first, count; ///< all-reduce, per member, in elements
    std::vector<Message> gatherSends, gatherReceives;
    std::vector<const void *> sources;
    int64_t partBytes = 0;
  };

  /// `describe`: the call as a rank sees it. `tag`: from 0 on; reductions take two.
  template <typename Describe>
  Expected<void> add(uint64_t handle, int64_t tag, Describe describe) {
    Prepared &p = prepared.emplace_back();
    p.flight = &flights[handle];
    if (firstDataTag + tag + 1 > lastTag())
      return makeError("MPI has tags up to " + std::to_string(lastTag()) +
                       ", the calls in flight need more");
    p.tag = static_cast<int>(firstDataTag + tag);
    p.collective = describe(self);
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
    return {};
  }

  template <typename Describe> void prepareMove(Prepared &p, Describe describe) {
    for (int32_t member : p.collective.members) {
      if (member == self)
        continue;
      std::vector<const Pull *> in, out;
      for (const Pull &pull : p.collective.pulls)
        if (pull.peer == member)
          in.push_back(&pull);
      Collective theirs = describe(member);
      for (const Pull &pull : theirs.pulls)
        if (pull.peer == self)
          out.push_back(&pull);
      if (!in.empty())
        p.receives.push_back({member, pullsType(in, false), 0});
      if (!out.empty())
        p.sends.push_back({member, pullsType(out, true), 0});
    }
  }

  static MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    return type;
  }

  void prepareReduce(Prepared &p) {
    const Collective &c = p.collective;
    auto n = static_cast<int64_t>(c.members.size());
    auto width = static_cast<int64_t>(byteWidth(c.type));
    bool scatter = c.kind == TaskKind::ReduceScatter;
    int64_t part = (c.block + n - 1) / n;
    for (int64_t m = 0; m < n; ++m) {
      p.first.push_back(scatter ? m * c.block : std::min(c.block, m * part));
      p.count.push_back(scatter ? c.block : std::min(part, c.block - p.first.back()));
    }
    p.sources.resize(static_cast<size_t>(n));
    int64_t mine = p.count[static_cast<size_t>(c.me)];
    p.partBytes = (c.outer * mine * width + 63) / 64 * 64;
    std::vector<std::byte> &staging = p.flight->staging;
    staging.resize(
        std::max<size_t>(staging.size(), static_cast<size_t>(n * p.partBytes)));
    for (int64_t m = 0; m < n; ++m) {
      int peer = c.members[static_cast<size_t>(m)];
      if (peer == self)
        continue;
      int64_t theirs = p.count[static_cast<size_t>(m)];
      int64_t theirFirst = p.first[static_cast<size_t>(m)] * width;
      if (theirs > 0) {
        Pull rows{0, theirFirst, 0, {{c.outer, n * c.block * width, 0}}, theirs * width};
        p.sends.push_back({peer, pullsType({&rows}, true), 0});
      }
      if (mine > 0)
        p.receives.push_back(
            {peer, committed(bytesType(c.outer * mine * width)), m * p.partBytes});
      if (scatter)
        continue;
      if (mine > 0)
        p.gatherSends.push_back({peer, committed(bytesType(mine * width)),
                                 p.first[static_cast<size_t>(c.me)] * width});
      if (theirs > 0)
        p.gatherReceives.push_back(
            {peer, committed(bytesType(theirs * width)), theirFirst});
    }
  }

  /// The messages of this phase have come.
  bool advance(Flight &f) noexcept {
    Prepared &p = *f.call;
    if (p.collective.reduces() && !f.isReduced) {
      reduce(f);
      f.isReduced = true;
      if (p.collective.kind == TaskKind::AllReduce)
        return post(f, p.gatherSends, f.target, p.gatherReceives, f.target, p.tag + 1);
    }
    bool ok = p.collective.kind != TaskKind::AllToAllV || areAsExpected(f);
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
    size_t width = byteWidth(c.type), n = c.members.size();
    auto me = static_cast<size_t>(c.me);
    auto mine = static_cast<size_t>(p.count[me]);
    bool scatter = c.kind == TaskKind::ReduceScatter;
    for (size_t o = 0; o < static_cast<size_t>(c.outer) && mine > 0; ++o) {
      size_t row = o * n * static_cast<size_t>(c.block);
      for (size_t m = 0; m < n; ++m)
        p.sources[m] = m == me
                           ? f.source + (row + static_cast<size_t>(p.first[me])) * width
                           : f.staging.data() + m * static_cast<size_t>(p.partBytes) +
                                 o * mine * width;
      void *to =
          f.target + (scatter ? o * mine : static_cast<size_t>(p.first[me])) * width;
      reduceElements(c.type, c.reduce, p.sources.data(), n, &to, 1,
                     static_cast<int64_t>(mine));
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
            std::memcpy(f.target + part.target, f.source + part.source,
                        static_cast<size_t>(rows * c.rowBytes));
          continue;
        }
        auto at = static_cast<size_t>(f.numRequests++);
        if (receives)
          f.expected[at] = rows;
        ok &=
            (receives ? MPI_Irecv(f.target + part.target, rows, p.row, c.members[m],
                                  p.tag, MPI_COMM_WORLD, &f.requests[at])
                      : MPI_Isend(f.source + part.source, rows, p.row, c.members[m],
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

  bool post(Flight &f, const std::vector<Message> &sends, const std::byte *from,
            const std::vector<Message> &receives, std::byte *to, int tag) noexcept {
    bool ok = true;
    f.numRequests = 0;
    for (const Message &m : receives)
      ok &= MPI_Irecv(to + m.offset, 1, m.type, m.peer, tag, MPI_COMM_WORLD,
                      &f.requests[static_cast<size_t>(f.numRequests++)]) == MPI_SUCCESS;
    for (const Message &m : sends)
      ok &= MPI_Isend(from + m.offset, 1, m.type, m.peer, tag, MPI_COMM_WORLD,
                      &f.requests[static_cast<size_t>(f.numRequests++)]) == MPI_SUCCESS;
    return ok;
  }

  static int64_t lastTag() {
    int *most = nullptr, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    return found ? *most : 32767;
  }

  int self = 0, ranks = 1;
  bool aborted = false;
  std::map<std::pair<uint64_t, std::string>, int> known; ///< by handle, collectiveKey
  std::deque<Prepared> prepared;
  std::map<uint64_t, Flight> flights; ///< by handle
  std::vector<Flight *> started;      ///< the first numStarted are in flight
  size_t numStarted = 0;
};

} // namespace

/// Of what both sides know the insides of; checked before anything is called.
extern "C" __attribute__((visibility("default"))) const char partita_mpi_abi[] =
    PARTITA_TRANSPORT_ABI;

/// Starts MPI and connects; null if MPI refuses.
extern "C" __attribute__((visibility("default"))) Transport *partita_mpi_create() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    return nullptr;
  return new MpiTransport();
}
