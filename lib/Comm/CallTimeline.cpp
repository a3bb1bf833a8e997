//===- CallTimeline.cpp - Calls in flight beside a rank's tasks -----------===//
#include "partita/Comm/CallTimeline.h"

#include <algorithm>
#include <map>

using namespace partita;

CallTimeline partita::simulateCalls(const std::vector<RankTask> &tasks, double least) {
  CallTimeline line;
  double linksFree = 0;
  std::map<int64_t, double> overAt; ///< by handle
  auto begin = [&] {
    ++line.calls;
    line.inCalls += least;
    return linksFree = std::max(linksFree, line.seconds) + least;
  };
  for (const RankTask &task : tasks) {
    double over = 0;
    if (task.kind == RankTask::Kind::Start)
      overAt[task.handle] = begin();
    else if (task.kind == RankTask::Kind::Call)
      over = begin();
    else if (task.kind == RankTask::Kind::Wait)
      over = overAt[task.handle];
    line.seconds = std::max(line.seconds + task.seconds, over);
  }
  return line;
}
