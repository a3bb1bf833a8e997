//===- CallTrace.cpp - Calls in flight as they were run -------------------===//
#include "partita/Report/CallTrace.h"

#include "TraceEvents.h"
#include "partita/Base/Units.h"
#include "partita/Comm/CallTimeline.h"
#include "partita/Report/Cells.h"

#include <algorithm>
#include <array>
#include <map>

using namespace partita;
using namespace partita::report;

static RankTask::Kind kindOf(const TraceEvent &event) {
  if (event.handle < 0)
    return RankTask::Kind::Compute;
  if (event.handle == 0)
    return RankTask::Kind::Call;
  return event.kind == "wait" ? RankTask::Kind::Wait : RankTask::Kind::Start;
}

/// Seconds that are 1 in the file's last digit.
static constexpr double timeUnit = 1e-9;

/// A rank's tasks, each up to the begin of the next one. A loop is what its trips do.
static std::vector<RankTask> tasksOf(std::vector<const TraceEvent *> events) {
  std::ranges::stable_sort(events, {}, &TraceEvent::begin);
  std::vector<RankTask> tasks;
  for (size_t i = 0; i < events.size(); ++i) {
    const double next = i + 1 < events.size() ? events[i + 1]->begin : events[i]->end;
    const bool holdsNext = next < events[i]->end - timeUnit / 2;
    if (!holdsNext || kindOf(*events[i]) != RankTask::Kind::Compute)
      tasks.push_back({kindOf(*events[i]), next - events[i]->begin, events[i]->handle});
  }
  return tasks;
}

/// "  rank 0   80.2 ms     0.5 ms …", and with `least` the time that a request takes.
static std::string lineOf(int64_t rank, const std::vector<RankTask> &tasks,
                          double least) {
  std::array<double, 4> sums = {}; // by kind
  for (const RankTask &task : tasks)
    sums[static_cast<size_t>(task.kind)] += task.seconds;
  const CallTimeline now = simulateCalls(tasks, 0);
  std::string text = cell("  rank " + std::to_string(rank), 11);
  for (RankTask::Kind kind : {RankTask::Kind::Compute, RankTask::Kind::Start,
                              RankTask::Kind::Wait, RankTask::Kind::Call})
    text += cell(durationText(sums[static_cast<size_t>(kind)]), 12);
  text += cell(std::to_string(now.calls), 8);
  if (least > 0) {
    const CallTimeline then = simulateCalls(tasks, least);
    text += durationText(then.seconds) + ", " + durationText(then.seconds - now.seconds) +
            " more of " + durationText(then.inCalls);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

Expected<std::string> report::callTraceText(const std::string &file, int64_t ranks,
                                            double least) {
  auto trace = readTrace(file);
  if (!trace)
    return tl::unexpected(trace.error());
  std::map<int64_t, std::vector<const TraceEvent *>> byRank;
  for (const TraceEvent &event : trace->events)
    if (event.kind != "waiting" && event.kind != "segment" && event.kind != "transfer")
      byRank[event.rank].push_back(&event);
  if (byRank.empty())
    return makeError(file + ": request " + std::to_string(trace->number) +
                     " has no tasks; `partita run --trace` of the bundle writes them");
  if (const int64_t traced = byRank.rbegin()->first + 1; traced != ranks)
    return makeError(file + ": has tasks of " + std::to_string(traced) +
                     " ranks, the bundle has " + std::to_string(ranks));
  std::string text = "as run, request " + std::to_string(trace->number) + " of " + file +
                     ": " + durationText(trace->end - trace->begin) +
                     "\n           kernels     starts      waits       at once     calls";
  text += least > 0 ? "   if each takes at least " + durationText(least) + "\n" : "\n";
  for (const auto &[rank, events] : byRank)
    text += lineOf(rank, tasksOf(events), least);
  return text;
}
