//===- SharedPlaces.cpp - Who touches what segments share -----------------===//
#include "SharedPlaces.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

using namespace partita;

namespace {
/// Entries of a schedule from the first that touches a buffer to the last.
struct InUse {
  int64_t first = INT64_MAX, last = INT64_MIN;
  void add(int64_t entry) {
    first = std::min(first, entry), last = std::max(last, entry);
  }
};

class Places {
public:
  explicit Places(const TaskTable &table) : table(table) {
    for (const SegmentView &segment : table.segments())
      for (const auto *list : {&segment.reads, &segment.writes})
        named.insert(list->begin(), list->end());
    for (const TransferView &transfer : table.transfers())
      named.insert(transfer.buffer);
    sortByPlace();
    for (const SegmentView &segment : table.segments())
      foreign.push_back(foreignTo(segment));
  }

  Expected<void> run() {
    for (const schedule::Schedule &schedule : table.schedules()) {
      const std::map<int64_t, InUse> inUse = usesOf(schedule);
      if (auto ok = apart(inUse); !ok)
        return ok;
      for (size_t e = 0; e < schedule.entries.size(); ++e)
        if (const int64_t segment = schedule.entries[e].segment; segment >= 0)
          if (auto ok = entry(static_cast<int64_t>(e), segment, inUse); !ok)
            return ok;
    }
    if (visits >= mostVisits)
      return makeError("more buffers of its segments lie in the same places than can be "
                       "checked");
    return {};
  }

private:
  /// Pairs of places that are looked at: seconds of work. Programs have a few for each
  /// operand, and a small blob can describe many buffers in one place.
  static constexpr int64_t mostVisits = int64_t(1) << 28;

  const BufferView &bufferOf(int64_t buffer) const {
    return table.buffers()[static_cast<size_t>(buffer)];
  }

  void sortByPlace() {
    std::erase_if(named, [&](int64_t buffer) { return bufferOf(buffer).bytes == 0; });
    byPlace.assign(named.begin(), named.end());
    std::ranges::sort(byPlace, {}, [&](int64_t buffer) {
      const BufferView &view = bufferOf(buffer);
      return std::tuple(view.space, view.offset, view.end(), buffer);
    });
    for (size_t i = 0; i < byPlace.size(); ++i) {
      const BufferView &view = bufferOf(byPlace[i]);
      const bool isNext = i != 0 && bufferOf(byPlace[i - 1]).space == view.space;
      reach.push_back(isNext ? std::max(reach.back(), view.end()) : view.end());
    }
  }

  /// Calls `body` with each named buffer that has bytes of the view.
  void eachOverlapping(const BufferView &view,
                       const std::function<void(int64_t)> &body) const {
    if (view.bytes == 0)
      return;
    auto behind = std::ranges::partition_point(byPlace, [&](int64_t buffer) {
      const BufferView &other = bufferOf(buffer);
      return std::tuple(other.space, other.offset) < std::tuple(view.space, view.end());
    });
    for (auto i = static_cast<size_t>(behind - byPlace.begin());
         i-- > 0 && bufferOf(byPlace[i]).space == view.space && reach[i] > view.offset &&
         ++visits < mostVisits;)
      if (bufferOf(byPlace[i]).end() > view.offset)
        body(byPlace[i]);
  }

  /// Buffers that tasks of the segment touch and the segment does not name, each with a
  /// task.
  std::map<int64_t, size_t> foreignTo(const SegmentView &segment) const {
    std::set<int64_t> own(segment.writes.begin(), segment.writes.end());
    own.insert(segment.reads.begin(), segment.reads.end());
    std::map<int32_t, size_t> operands; // the first task of each
    for (size_t i = segment.firstTask; i < segment.firstTask + segment.numTasks; ++i)
      for (int32_t operand : table.task(i).operands)
        if (operand >= 0)
          operands.try_emplace(operand, i);
    std::map<int64_t, size_t> found;
    for (const auto &[operand, task] : operands)
      eachOverlapping(bufferOf(operand), [&, task = task](int64_t buffer) {
        if (!own.contains(buffer))
          found.try_emplace(buffer, task);
      });
    return found;
  }

  std::map<int64_t, InUse> usesOf(const schedule::Schedule &schedule) const {
    std::map<int64_t, InUse> uses;
    const auto end = static_cast<int64_t>(schedule.entries.size());
    for (int64_t e = 0; e < end; ++e) {
      const schedule::Entry &entry = schedule.entries[static_cast<size_t>(e)];
      for (const auto *list : {&entry.waits, &entry.starts})
        for (schedule::Flight flight : *list)
          uses[table.transfers()[static_cast<size_t>(flight.transfer)].buffer].add(e);
      if (entry.segment < 0)
        continue;
      const SegmentView &segment = table.segments()[static_cast<size_t>(entry.segment)];
      for (const auto *list : {&segment.reads, &segment.writes})
        for (int64_t buffer : *list)
          uses[buffer].add(e);
    }
    for (size_t t = 0; t < table.numTensors(); ++t) {
      const TensorView &tensor = table.tensor(t);
      auto found = uses.find(tensor.buffer);
      if (found == uses.end())
        continue;
      if (tensor.role == Role::Input || tensor.role == Role::State)
        found->second.add(-1);
      if (tensor.role == Role::Output || tensor.role == Role::State)
        found->second.add(end);
    }
    return uses;
  }

  /// An entry may read one buffer and write another in its place.
  Expected<void> apart(const std::map<int64_t, InUse> &inUse) const {
    std::string clash;
    for (const auto &[buffer, uses] : inUse)
      eachOverlapping(bufferOf(buffer), [&, buffer = buffer, uses = uses](int64_t other) {
        auto found = inUse.find(other);
        if (other < buffer && clash.empty() && found != inUse.end() &&
            found->second.first < uses.last && uses.first < found->second.last)
          clash = "buffers " + std::to_string(other) + " and " + std::to_string(buffer) +
                  ", which segments share, lie in the same place and are in use at the "
                  "same time";
      });
    return clash.empty() ? Expected<void>() : makeError(clash);
  }

  Expected<void> entry(int64_t number, int64_t segment,
                       const std::map<int64_t, InUse> &inUse) const {
    for (const auto &[buffer, task] : foreign[static_cast<size_t>(segment)]) {
      auto found = inUse.find(buffer);
      if (found == inUse.end() || found->second.first >= number ||
          found->second.last <= number)
        continue;
      return makeError("task " + std::to_string(task) + " (" +
                       std::string(table.task(task).source.substr(0, 256)) +
                       ") of segment '" +
                       std::string(table.segments()[static_cast<size_t>(segment)].name) +
                       "' touches the place of buffer " + std::to_string(buffer) +
                       ", which the segment does not name and others use before and "
                       "behind it");
    }
    return {};
  }

  const TaskTable &table;
  mutable int64_t visits = 0;
  std::set<int64_t> named;      ///< buffers, by segments and transfers
  std::vector<int64_t> byPlace; ///< these, by space and first byte
  std::vector<uint64_t> reach;  ///< end of these and of all before, in a space
  std::vector<std::map<int64_t, size_t>> foreign; ///< by segment: buffers, tasks
};
} // namespace

Expected<void> partita::checkSharedPlaces(const TaskTable &table) {
  if (table.segments().size() == 1 && table.transfers().empty())
    return {};
  return Places(table).run();
}
