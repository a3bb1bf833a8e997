//===- Recording.cpp - When a rank did what -------------------------------===//
#include "Recording.h"

#include "ExecutorOp.h"
#include "partita/Base/Bundle/TaskWork.h"

#include <algorithm>
#include <ctime>

using namespace partita;
using namespace partita::runtime;

double runtime::now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Spans of the tasks from `firstTask` to before `end`, at most.
size_t Executor::spansOf(size_t firstTask, size_t end) const {
  size_t spans = 0;
  for (size_t i = firstTask; i < end; ++i) {
    auto *loop = std::get_if<LoopWork>(&ops[opOf[i]].work);
    if (!loop) {
      ++spans;
      continue;
    }
    spans += static_cast<size_t>(loop->trips) * spansOf(i + 1, i + 1 + loop->tasks);
    i += loop->tasks;
  }
  return spans;
}

/// Makes room: nothing is allocated while requests run.
void Executor::prepareRecording() {
  if (options.profile <= 0)
    return;
  const TaskTable &table = program->table();
  const int rank = transport.rank();
  spansPerRequest = 1;
  for (Op &op : ops)
    if (auto *it = std::get_if<CollectiveWork>(&op.work);
        it && it->part != CollectivePart::Wait)
      op.received =
          receivedBytes(describeCollective(table, table.task(op.index), rank), rank);
  for (Entry &entry : entries) {
    spansPerRequest += entry.waits.size();
    for (Moving &moving : entry.waits)
      if (moving.places[1])
        moving.received =
            receivedBytes(describeTransfer(table, moving.transfer, rank), rank);
    if (entry.segment < 0)
      continue;
    const SegmentView &segment = table.segments()[static_cast<size_t>(entry.segment)];
    spansPerRequest +=
        1 + spansOf(segment.firstTask, segment.firstTask + segment.numTasks);
  }
  // Half a gigabyte. Later requests are not recorded.
  constexpr size_t most = (size_t(512) << 20) / sizeof(RunSpan);
  size_t requests = std::min(static_cast<size_t>(options.profile),
                             std::max<size_t>(most / spansPerRequest, 1));
  recorded.reserve(requests * spansPerRequest);
}

void Executor::beginRecording() noexcept {
  recording = spansPerRequest != 0 && requestsBegun < options.profile &&
              recorded.size() + spansPerRequest <= recorded.capacity();
  ++requestsBegun;
  waiting = 0;
  lastTime = recording ? now() : 0;
}

/// What began at `begin` ends now, or when the span within it ended that was last.
void Executor::record(RunSpan::What what, size_t index, double begin, uint64_t received,
                      int64_t microBatch) noexcept {
  bool isLeaf = what == RunSpan::Task || what == RunSpan::Transfer;
  if (isLeaf) {
    device.finish(*work); // a device may run behind its host
    lastTime = now();
  }
  recorded.push_back({what, requestsBegun - 1, static_cast<uint32_t>(index),
                      static_cast<uint32_t>(microBatch), begin, lastTime,
                      isLeaf ? waiting : 0, received});
  if (isLeaf)
    waiting = 0;
}

void Executor::endRecording(double begin) noexcept {
  if (!recording)
    return;
  lastTime = now();
  record(RunSpan::Request, 0, begin);
}

/// The handle of a task that communicates; −1: of any other.
static int64_t handleOf(const TaskView &task) {
  if (const auto *wait = std::get_if<task::Wait>(&task.params))
    return static_cast<int64_t>(wait->handle);
  return isCollective(task.kind()) || task.handle != 0 ? static_cast<int64_t>(task.handle)
                                                       : -1;
}

RunProgram runtime::programOf(const TaskTable &table) {
  RunProgram program;
  program.name = table.programName();
  for (size_t i = 0; i < table.numTasks(); ++i) {
    const TaskView task = table.task(i);
    task::Work work = task::workOf(task.params, table.mesh());
    program.tasks.push_back({std::string(task.source), std::string(name(task.kind())),
                             work.flops, work.bytes, handleOf(task)});
  }
  for (const TransferView &transfer : table.transfers())
    program.transfers.emplace_back(transfer.name);
  for (const SegmentView &segment : table.segments())
    program.segments.emplace_back(segment.name);
  return program;
}
