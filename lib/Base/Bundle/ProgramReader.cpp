//===- ProgramReader.cpp - A table as one program of several --------------===//
#include "ProgramReader.h"

#include "partita/Base/Layout/Transfer.h"

#include <set>

using namespace partita;

static constexpr int64_t most = int64_t(1) << 20; ///< ranks of a run, micro-batches

Expected<void> TaskTable::ProgramReader::run() {
  table.ownName = textOf(from.name());
  table.numMicroBatches = from.micro_batches();
  if (table.numMicroBatches < 1 || table.numMicroBatches > most)
    return damaged("it has " + std::to_string(from.micro_batches()) + " micro-batches");
  for (auto step :
       {&ProgramReader::ranks, &ProgramReader::transfers, &ProgramReader::schedules})
    if (Expected<void> ok = (this->*step)(); !ok)
      return ok;
  return checkRanks();
}

/// Different ranks of a run, one for each place of a mesh.
static bool areRanks(const std::vector<int32_t> &ranks, const Mesh &mesh) {
  std::set<int32_t> seen;
  for (int32_t rank : ranks)
    if (rank < 0 || rank >= most || !seen.insert(rank).second)
      return false;
  return static_cast<int64_t>(ranks.size()) == mesh.numRanks();
}

Expected<void> TaskTable::ProgramReader::ranks() {
  if (!charge(from.ranks()))
    return tooMuch("the list of ranks");
  table.rankList = entriesOf(from.ranks());
  if (!table.rankList.empty() && !areRanks(table.rankList, table.mesh()))
    return damaged("its ranks are not those of its mesh");
  return {};
}

Expected<void> TaskTable::ProgramReader::transfers() {
  for (const fb::Transfer *t : entriesOf(from.transfers())) {
    std::string where = "transfer " + std::to_string(table.transferList.size()) + " (" +
                        std::string(textOf(t->name()).substr(0, 256)) + ")";
    if (auto ok = transfer(*t, where); !ok)
      return ok;
  }
  return {};
}

Expected<void> TaskTable::ProgramReader::transfer(const fb::Transfer &t,
                                                  const std::string &where) {
  if (t.dtype() >= PARTITA_NUM_DTYPES || t.layout() >= table.layouts.size() ||
      t.buffer() >= table.bufferList.size() || t.number() > most || !t.peer_layout())
    return damaged(where + " has a field out of range");
  if (!charge(t.peer_ranks()))
    return tooMuch(where);
  TransferView view{textOf(t.name()),
                    t.number(),
                    static_cast<DType>(t.dtype()),
                    t.sends(),
                    t.once(),
                    t.buffer(),
                    t.layout(),
                    {},
                    entriesOf(t.peer_ranks()),
                    {}};
  auto mesh = readMesh(t.peer_mesh());
  if (!mesh)
    return tl::unexpected(mesh.error());
  view.peerMesh = std::move(*mesh);
  if (!areRanks(view.peerRanks, view.peerMesh))
    return damaged(where + ": the other end's ranks are not those of its mesh");
  if (!read(*t.peer_layout(), view.peerLayout))
    return tooMuch(where);
  const Layout &own = table.layouts[t.layout()];
  if (auto ok = verifyTransfer({view.peerMesh, view.peerLayout}, {table.mesh(), own});
      !ok)
    return damaged(where + ": " + ok.error().message);
  const BufferView &buffer = table.bufferList[t.buffer()];
  if (buffer.space == Space::Weight || (buffer.space == Space::State && !view.sends) ||
      buffer.bytes < static_cast<uint64_t>(own.localElements()) * byteWidth(view.type))
    return damaged(where + ": its buffer is too small, or one that it may not fill");
  if (buffer.rolling >= 0)
    return damaged(where + ": its buffer is in a state that rolls");
  for (const TransferView &other : table.transferList)
    if (other.number == view.number)
      return damaged(where + " has the number of another one");
  table.transferList.push_back(std::move(view));
  return {};
}

Expected<void> TaskTable::ProgramReader::schedules() {
  for (const fb::Schedule *s : entriesOf(from.schedules())) {
    std::string where = "schedule " + std::to_string(table.scheduleList.size());
    if (auto ok = schedule(*s, where); !ok)
      return ok;
  }
  if (!table.scheduleList.empty())
    return {};
  schedule::Schedule once;
  for (size_t i = 0; i < table.segmentList.size(); ++i)
    once.entries.push_back({static_cast<int64_t>(i), 0, {}, {}});
  table.scheduleList.push_back(std::move(once));
  // A table of one segment need not say that it takes the inputs and gives the outputs.
  if (table.segmentList.size() == 1)
    for (const TensorView &tensor : table.tensors) {
      SegmentView &segment = table.segmentList[0];
      if (tensor.role == Role::Input || tensor.role == Role::State)
        segment.reads.push_back(tensor.buffer);
      if (tensor.role == Role::Output || tensor.role == Role::State)
        segment.writes.push_back(tensor.buffer);
    }
  return {};
}

Expected<void> TaskTable::ProgramReader::schedule(const fb::Schedule &s,
                                                  const std::string &where) {
  if (!charge(s.ranks()) || !charge(s.entries()))
    return tooMuch(where);
  schedule::Schedule schedule;
  for (int32_t rank : entriesOf(s.ranks()))
    schedule.ranks.push_back(rank);
  for (const fb::Entry *e : entriesOf(s.entries())) {
    std::string at = where + ", entry " + std::to_string(schedule.entries.size());
    auto made = entry(*e, at);
    if (!made)
      return tl::unexpected(made.error());
    schedule.entries.push_back(std::move(*made));
  }
  if (auto ok = checkFlights(schedule, where); !ok)
    return ok;
  table.scheduleList.push_back(std::move(schedule));
  return {};
}

Expected<schedule::Entry> TaskTable::ProgramReader::entry(const fb::Entry &e,
                                                          const std::string &where) {
  if (e.segment() < -1 || e.segment() >= static_cast<int64_t>(table.segmentList.size()))
    return damaged(where + ": no segment " + std::to_string(e.segment()));
  if (e.micro_batch() >= table.numMicroBatches)
    return damaged(where + ": no micro-batch " + std::to_string(e.micro_batch()));
  auto waits = flights(e.waits(), where), starts = flights(e.starts(), where);
  if (!waits)
    return tl::unexpected(waits.error());
  if (!starts)
    return tl::unexpected(starts.error());
  return schedule::Entry{e.segment(), e.micro_batch(), std::move(*waits),
                         std::move(*starts)};
}

Expected<std::vector<schedule::Flight>>
TaskTable::ProgramReader::flights(const flatbuffers::Vector<const fb::Flight *> *list,
                                  const std::string &where) {
  if (!charge(list))
    return tooMuch(where);
  std::vector<schedule::Flight> out;
  for (const fb::Flight *f : entriesOf(list)) {
    if (f->transfer() >= table.transferList.size())
      return damaged(where + ": no transfer " + std::to_string(f->transfer()));
    bool once = table.transferList[f->transfer()].once;
    if (f->micro_batch() >= (once ? 1 : table.numMicroBatches))
      return damaged(where + ": a transfer has no micro-batch " +
                     std::to_string(f->micro_batch()));
    out.push_back({f->transfer(), f->micro_batch()});
  }
  return out;
}

Expected<void> TaskTable::ProgramReader::checkFlights(const schedule::Schedule &s,
                                                      const std::string &where) const {
  std::set<schedule::Flight> flying, done;
  for (size_t i = 0; i < s.entries.size(); ++i) {
    std::string at = where + ", entry " + std::to_string(i);
    for (schedule::Flight flight : s.entries[i].waits)
      if (!flying.erase(flight))
        return damaged(at + " waits for a transfer that is not in flight");
    for (schedule::Flight flight : s.entries[i].starts) {
      if (!done.insert(flight).second)
        return damaged(at + " starts a transfer twice");
      flying.insert(flight);
    }
  }
  if (!flying.empty())
    return damaged(where + " never waits for a transfer that it starts");
  return {};
}

Expected<void> TaskTable::ProgramReader::checkRanks() const {
  if (table.scheduleList.size() == 1 && table.scheduleList[0].ranks.empty())
    return {};
  std::set<int64_t> seen;
  for (const schedule::Schedule &schedule : table.scheduleList)
    for (int64_t rank : schedule.ranks)
      if (rank < 0 || rank >= table.mesh().numRanks() || !seen.insert(rank).second)
        return damaged("rank " + std::to_string(rank) +
                       " is not in the mesh, or has two schedules");
  if (static_cast<int64_t>(seen.size()) != table.mesh().numRanks())
    return damaged("only " + std::to_string(seen.size()) + " of " +
                   std::to_string(table.mesh().numRanks()) + " ranks have a schedule");
  return {};
}

int64_t TaskTable::placeOf(int64_t worldRank) const {
  if (rankList.empty())
    return worldRank >= 0 && worldRank < meshOfRanks.numRanks() ? worldRank : -1;
  auto found = std::ranges::find(rankList, worldRank);
  return found == rankList.end() ? -1 : found - rankList.begin();
}

const schedule::Schedule &TaskTable::scheduleOf(int64_t rank) const {
  for (const schedule::Schedule &schedule : scheduleList)
    if (std::ranges::find(schedule.ranks, rank) != schedule.ranks.end())
      return schedule;
  return scheduleList[0];
}
