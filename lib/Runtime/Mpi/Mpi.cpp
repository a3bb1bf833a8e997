//===- Mpi.cpp - Ranks as processes of an MPI job -------------------------===//
//
// Point-to-point transfers only, on the world communicator: everything that does not
// reduce is one message per pair of ranks, described by a derived type built at load;
// reductions are a pairwise exchange of parts (Open MPI's own reduce-scatter is several
// times slower from 1 MiB on), so results combine in coordinate order and are equal on
// all members, whatever the element type.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
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
        known.emplace(collectiveKey(table, task), static_cast<int>(prepared.size()));
    if (!fresh)
      return it->second;
    Prepared &p = prepared.emplace_back();
    p.collective = describeCollective(table, task, self);
    if (p.collective.reduces())
      prepareReduce(p);
    else
      prepareMove(p, table, task);
    requests.resize(
        std::max(requests.size(), 2 * static_cast<size_t>(ranks) + p.sends.size()));
    return it->second;
  }

  bool run(int handle, const void *source, void *target) noexcept override {
    Prepared &p = prepared[static_cast<size_t>(handle)];
    auto *from = static_cast<const std::byte *>(source);
    auto *to = static_cast<std::byte *>(target);
    if (p.collective.reduces())
      return reduce(p, from, to);
    if (!transfer(p.sends, from, p.receives, to))
      return false;
    fillRest(p.collective, to);
    for (const Pull &pull : p.collective.pulls)
      if (pull.peer == self)
        copyPull(pull, from, to);
    return true;
  }

  bool barrier() noexcept override { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS; }

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
  static constexpr int dataTag = 1, outputTag = 2;

  struct Prepared {
    Collective collective;
    std::vector<Message> sends, receives;
    /// Reductions: this rank's part of the elements, and where each member's goes.
    std::vector<int64_t> first, count; ///< all-reduce, per member, in elements
    std::vector<Message> gatherSends, gatherReceives;
    std::vector<const void *> sources;
    int64_t partBytes = 0;
  };

  void prepareMove(Prepared &p, const TaskTable &table, const TaskView &task) {
    for (int32_t member : p.collective.members) {
      if (member == self)
        continue;
      std::vector<const Pull *> in, out;
      for (const Pull &pull : p.collective.pulls)
        if (pull.peer == member)
          in.push_back(&pull);
      Collective theirs = describeCollective(table, task, member);
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

  bool reduce(Prepared &p, const std::byte *source, std::byte *target) noexcept {
    const Collective &c = p.collective;
    if (!transfer(p.sends, source, p.receives, staging.data()))
      return false;
    size_t width = byteWidth(c.type), n = c.members.size();
    auto me = static_cast<size_t>(c.me);
    auto mine = static_cast<size_t>(p.count[me]);
    bool scatter = c.kind == TaskKind::ReduceScatter;
    for (size_t o = 0; o < static_cast<size_t>(c.outer) && mine > 0; ++o) {
      size_t row = o * n * static_cast<size_t>(c.block);
      for (size_t m = 0; m < n; ++m)
        p.sources[m] = m == me ? source + (row + static_cast<size_t>(p.first[me])) * width
                               : staging.data() + m * static_cast<size_t>(p.partBytes) +
                                     o * mine * width;
      void *to = target + (scatter ? o * mine : static_cast<size_t>(p.first[me])) * width;
      reduceElements(c.type, c.reduce, p.sources.data(), n, &to, 1,
                     static_cast<int64_t>(mine));
    }
    return scatter || transfer(p.gatherSends, target, p.gatherReceives, target);
  }

  bool transfer(const std::vector<Message> &sends, const std::byte *from,
                const std::vector<Message> &receives, std::byte *to) noexcept {
    int count = 0;
    bool ok = true;
    for (const Message &m : receives)
      ok &= MPI_Irecv(to + m.offset, 1, m.type, m.peer, dataTag, MPI_COMM_WORLD,
                      &requests[static_cast<size_t>(count++)]) == MPI_SUCCESS;
    for (const Message &m : sends)
      ok &= MPI_Isend(from + m.offset, 1, m.type, m.peer, dataTag, MPI_COMM_WORLD,
                      &requests[static_cast<size_t>(count++)]) == MPI_SUCCESS;
    return ok && MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE) == MPI_SUCCESS;
  }

  int self = 0, ranks = 1;
  bool aborted = false;
  std::map<std::string, int> known; ///< by collectiveKey
  std::vector<Prepared> prepared;
  std::vector<MPI_Request> requests;
  std::vector<std::byte> staging;
};

} // namespace

/// Starts MPI and connects; null if MPI refuses. The one symbol of this library.
extern "C" __attribute__((visibility("default"))) Transport *partita_mpi_create() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED)
    return nullptr;
  return new MpiTransport();
}
