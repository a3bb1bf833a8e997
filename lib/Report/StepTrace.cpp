//===- StepTrace.cpp - A pipeline's step as it was run --------------------===//
#include "partita/Report/StepTrace.h"

#include "TraceEvents.h"
#include "partita/Base/Bundle/StageOrder.h"
#include "partita/Base/Units.h"
#include "partita/Comm/StepTimeline.h"
#include "partita/Report/Cells.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

using namespace partita;
using namespace partita::report;

namespace {
/// A segment that a rank ran.
struct Ran {
  std::optional<StepPart> part; ///< none: it runs once in a request
  int64_t stage = 0, microBatch = 0, group = 0, rank = 0;
  double begin = 0, end = 0; ///< seconds
};

class TraceReader {
public:
  TraceReader(const PlanEntry &plan, const PipelineStep &step) : step(step) {
    const StageOrder order = orderOf(plan);
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      stageOf.emplace(order.groupOf[s], static_cast<int64_t>(s));
      for (int64_t rank : plan.stages[s].ranks)
        groupOf[rank] = order.groupOf[s];
    }
  }

  Expected<void> read(const std::string &file) {
    auto read = readTrace(file);
    if (!read)
      return tl::unexpected(read.error());
    request = read->number, begin = read->begin, end = read->end;
    for (const TraceEvent &event : read->events)
      if (auto known = event.kind == "segment" ? segment(event.name, event.rank)
                                               : std::optional<Ran>()) {
        known->microBatch = event.microBatch;
        known->begin = event.begin, known->end = event.end;
        ran.push_back(*known);
      }
    if (ran.empty())
      return makeError(file + ": has no segments of a step with these stages; `run " +
                       "--trace` of the bundle writes them");
    return {};
  }

  std::vector<Ran> ran;
  int64_t request = 0;       ///< the last
  double begin = 0, end = 0; ///< of the request

private:
  /// "run_forward", or "run_stage2_forward" where a group has several stages.
  std::optional<Ran> segment(std::string_view name, int64_t rank) const {
    auto group = groupOf.find(rank);
    if (group == groupOf.end() || !name.starts_with("run_"))
      return std::nullopt;
    Ran out;
    out.rank = rank, out.group = group->second, out.stage = stageOf.at(out.group);
    name.remove_prefix(4);
    if (name.starts_with("stage")) {
      const char *last = name.data() + name.size();
      auto number = std::from_chars(name.data() + 5, last, out.stage);
      if (number.ec != std::errc() || number.ptr == last || out.stage >= step.stages())
        return std::nullopt;
      name.remove_prefix(static_cast<size_t>(number.ptr + 1 - name.data()));
    }
    out.part = name == "forward"    ? std::optional(StepPart::Forward)
               : name == "backward" ? std::optional(StepPart::Backward)
               : name == "weight"   ? std::optional(StepPart::Weight)
                                    : std::nullopt;
    return out;
  }

  const PipelineStep &step;
  std::map<int64_t, int64_t> groupOf; ///< by rank
  std::map<int64_t, int64_t> stageOf; ///< a group's first
};

/// Sums of what ranks ran, of each group its slowest rank.
struct Sums {
  std::array<double, 3> parts = {}; ///< forward, backward, weight
  double once = 0;
  double all() const { return parts[0] + parts[1] + parts[2] + once; }
};
} // namespace

static std::vector<Sums> sumsOf(const TraceReader &trace, const PipelineStep &step,
                                std::vector<StepTimes> &times) {
  std::map<int64_t, std::pair<int64_t, Sums>> byRank;
  std::map<std::pair<int64_t, int64_t>, std::array<double, 3>> byStage; // and rank
  for (const Ran &it : trace.ran) {
    auto &[group, sums] = byRank[it.rank];
    group = it.group;
    const double seconds = it.end - it.begin;
    (it.part ? sums.parts[static_cast<size_t>(*it.part)] : sums.once) += seconds;
    if (it.part)
      byStage[{it.stage, it.rank}][static_cast<size_t>(*it.part)] +=
          seconds / static_cast<double>(step.microBatches);
  }
  std::vector<Sums> groups(static_cast<size_t>(step.groups()));
  for (const auto &[rank, own] : byRank)
    if (Sums &sums = groups[static_cast<size_t>(own.first)];
        own.second.all() > sums.all())
      sums = own.second;
  times.assign(static_cast<size_t>(step.stages()), {0, 0, 0, 0});
  for (const auto &[key, parts] : byStage) {
    StepTimes &own = times[static_cast<size_t>(key.first)];
    own.forward = std::max(own.forward, parts[0]);
    own.backward = std::max(own.backward, parts[1]);
    own.weight = std::max(own.weight, parts[2]);
  }
  return groups;
}

/// The part that the first rank of a group ran at a time.
static std::string partAt(const TraceReader &trace, const PipelineStep &step,
                          int64_t group, double time) {
  for (const Ran &it : trace.ran)
    if (it.group == group && it.begin <= time && time < it.end)
      return it.part ? (step.groups() < step.stages() ? std::to_string(it.stage) : "") +
                           std::string("FBW").substr(static_cast<size_t>(*it.part), 1) +
                           std::to_string(it.microBatch)
                     : "+";
  return ".";
}

Expected<std::string> report::stepTraceText(const PlanEntry &plan,
                                            const PipelineStep &step,
                                            const std::string &file) {
  TraceReader trace(plan, step);
  if (auto ok = trace.read(file); !ok)
    return tl::unexpected(ok.error());
  std::vector<StepTimes> times;
  const std::vector<Sums> groups = sumsOf(trace, step, times);
  const StepTimeline line = simulate(step, times);
  double planned = 0, following = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto &spans = line.spans[g];
    const double begins = spans.empty() ? 0 : spans.front().begin,
                 ends = spans.empty() ? 0 : spans.back().end;
    planned = std::max(planned, groups[g].once + ends);
    following = std::max(following, groups[g].once + ends - begins);
  }
  const double seconds = trace.end - trace.begin;
  std::string text =
      "as run, request " + std::to_string(trace.request) + " of " + file + ": " +
      durationText(seconds) +
      "; by the schedule, with parts as long as these: " + durationText(planned) +
      ", and " + durationText(following) + " where steps follow each other\n" +
      "           forward     backward    weight      once        idle   by schedule\n";
  auto share = [](double busy, double all) {
    return formatted(
        "%-7s", formatted("%.1f%%", 100 * (1 - busy / std::max(all, 1e-12))).c_str());
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    text += cell("  group " + std::to_string(g), 11);
    for (double part : groups[g].parts)
      text += cell(durationText(part), 12);
    text += cell(durationText(groups[g].once), 12) + share(groups[g].all(), seconds) +
            share(line.busy[g] + groups[g].once, planned) + "\n";
  }
  constexpr int cells = 40;
  for (int64_t g = 0; g < step.groups(); ++g) {
    text += cell("  group " + std::to_string(g), 11);
    for (int c = 0; c < cells; ++c)
      text += cell(partAt(trace, step, g, trace.begin + seconds * (c + 0.5) / cells),
                   step.groups() < step.stages() ? 5 : 4);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}
