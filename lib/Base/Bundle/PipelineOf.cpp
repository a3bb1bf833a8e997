//===- PipelineOf.cpp - Several tables as one pipeline --------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <algorithm>
#include <map>
#include <optional>

using namespace partita;
using namespace partita::schedule;

namespace {

class Joining {
public:
  explicit Joining(const std::vector<const TaskTable *> &tables) : tables(tables) {}

  Expected<Pipeline> run() {
    result.microBatches = tables[0]->microBatches();
    if (auto ok = ranks(); !ok)
      return tl::unexpected(ok.error());
    for (size_t i = 0; i < tables.size(); ++i) {
      if (tables[i]->microBatches() != result.microBatches)
        return makeError("program " + nameOf(i) + " has " +
                         std::to_string(tables[i]->microBatches()) +
                         " micro-batches, program " + nameOf(0) + " has " +
                         std::to_string(result.microBatches));
      for (size_t t = 0; t < tables[i]->transfers().size(); ++t)
        if (auto ok = end(i, t); !ok)
          return tl::unexpected(ok.error());
    }
    for (auto &[number, ends] : transfers)
      if (auto ok = transfer(ends); !ok)
        return tl::unexpected(ok.error());
    for (size_t i = 0; i < tables.size(); ++i)
      result.programs.push_back(program(i));
    return std::move(result);
  }

private:
  struct Ends {
    const TransferView *from = nullptr, *to = nullptr;
    size_t fromProgram = 0, toProgram = 0;
  };

  std::string nameOf(size_t i) const {
    std::string name(tables[i]->programName());
    return name.empty() ? std::to_string(i) : name;
  }

  /// The ranks of a run are 0 … n-1, each with one program.
  Expected<void> ranks() const {
    int64_t count = 0;
    for (const TaskTable *table : tables)
      count += table->mesh().numRanks();
    for (int64_t rank = 0; rank < count; ++rank) {
      auto has = [&](const TaskTable *t) { return t->placeOf(rank) >= 0; };
      if (std::ranges::count_if(tables, has) != 1)
        return makeError("rank " + std::to_string(rank) + " of " + std::to_string(count) +
                         " has no program, or several");
    }
    return {};
  }

  Expected<void> end(size_t i, size_t t) {
    const TransferView &view = tables[i]->transfers()[t];
    Ends &ends = transfers[view.number];
    const TransferView *&mine = view.sends ? ends.from : ends.to;
    if (mine)
      return makeError("transfer " + std::string(view.name) +
                       " has two sources or two targets");
    mine = &view;
    (view.sends ? ends.fromProgram : ends.toProgram) = i;
    return {};
  }

  /// Whether `other` is what `view`, of program `i`, says about its other end.
  bool fits(size_t i, const TransferView &view, const TransferView &other) const {
    const TaskTable &table = *tables[i];
    std::vector<int32_t> ranks;
    for (int64_t place = 0; place < table.mesh().numRanks(); ++place)
      ranks.push_back(static_cast<int32_t>(table.worldRank(place)));
    return other.peerMesh == table.mesh() && other.peerRanks == ranks &&
           other.peerLayout == table.layout(view.layout) && other.type == view.type &&
           other.once == view.once;
  }

  Expected<void> transfer(const Ends &ends) {
    if (!ends.from || !ends.to)
      return makeError("transfer " +
                       std::string((ends.from ? ends.from : ends.to)->name) +
                       " has one end");
    if (!fits(ends.fromProgram, *ends.from, *ends.to) ||
        !fits(ends.toProgram, *ends.to, *ends.from))
      return makeError("transfer " + std::string(ends.from->name) +
                       " is not the same at both ends");
    numbers[ends.from] = numbers[ends.to] = static_cast<int64_t>(result.transfers.size());
    result.transfers.push_back({std::string(ends.from->name),
                                static_cast<int64_t>(ends.fromProgram), ends.from->buffer,
                                static_cast<int64_t>(ends.toProgram), ends.to->buffer,
                                ends.from->once});
    return {};
  }

  Program program(size_t i) {
    const TaskTable &table = *tables[i];
    Program out;
    out.name = nameOf(i);
    out.numRanks = table.mesh().numRanks();
    for (size_t b = 0; b < table.buffers().size(); ++b)
      out.buffers.push_back({std::to_string(b), table.buffers()[b].slots});
    for (size_t t = 0; t < table.numTensors(); ++t) {
      const TensorView &tensor = table.tensor(t);
      Buffer &buffer = out.buffers[tensor.buffer];
      buffer.name = tensor.name;
      buffer.input |= tensor.role == Role::Input;
      buffer.output |= tensor.role == Role::Output;
      buffer.state |= tensor.role == Role::State;
    }
    for (const SegmentView &s : table.segments()) {
      Segment segment{std::string(s.name), s.once, false, s.reads, s.writes};
      for (size_t t = 0; t < s.numTasks; ++t)
        segment.communicates |=
            isCollective(table.descriptorOf(table.callOf(s.firstTask + t)).kind());
      if (s.numTasks != 0)
        if (auto *skip = std::get_if<task::Skip>(&table.task(s.firstTask).params))
          segment.mayBeSkipped = skip->tasks + 1 == s.numTasks;
      out.segments.push_back(std::move(segment));
    }
    out.schedules.assign(table.schedules().begin(), table.schedules().end());
    for (Schedule &schedule : out.schedules)
      for (Entry &entry : schedule.entries)
        for (auto *list : {&entry.waits, &entry.starts})
          for (Flight &flight : *list)
            flight.transfer =
                numbers[&table.transfers()[static_cast<size_t>(flight.transfer)]];
    return out;
  }

  const std::vector<const TaskTable *> &tables;
  Pipeline result;
  std::map<uint32_t, Ends> transfers; ///< by number
  std::map<const TransferView *, int64_t> numbers;
};

} // namespace

Expected<Pipeline> partita::pipelineOf(const std::vector<const TaskTable *> &tables) {
  return Joining(tables).run();
}
