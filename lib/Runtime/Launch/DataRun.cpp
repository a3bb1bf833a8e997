//===- DataRun.cpp - Steps on the rows of a file --------------------------===//
#include "DataFeed.h"
#include "Metrics.h"

#include "partita/Runtime/StateFile.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

using Clock = std::chrono::steady_clock;

Expected<std::vector<double>> runtime::runOnData(RunParts &parts, int64_t &steps,
                                                 const Print &print) {
  Session &session = parts.session;
  const DataOptions &data = parts.options.data;
  auto feed = DataFeed::open(parts.options,
                             {session.info(), session.inputs(), session.outputs()});
  if (!feed)
    return tl::unexpected(feed.error());
  DataOrder order = feed->order(data);
  Metrics metrics(session.outputs(), feed->batch(), print);
  if (session.isRoot())
    if (auto ok = metrics.open(data.log, steps > 0); !ok)
      return tl::unexpected(ok.error());
  // What is read from files needs no address.
  std::vector<const std::byte *> from(session.inputs().size());
  std::vector<std::byte *> to;
  for (HostTensor &tensor : parts.outputs)
    to.push_back(tensor.bytes.data());
  std::vector<double> took;
  for (int64_t end = steps + *data.steps; steps < end;) {
    auto start = Clock::now();
    auto read = session.readInputs(feed->inputs(order.rowsOf(steps)));
    if (!read)
      return tl::unexpected(read.error());
    if (auto ok = session.run(from, to); !ok)
      return tl::unexpected(ok.error());
    took.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    int64_t epoch = order.epochOf(steps++) + 1;
    if (session.isRoot())
      if (auto ok = metrics.step(steps, epoch, took.back(), steps == end, parts.outputs);
          !ok)
        return tl::unexpected(ok.error());
    bool isDue = data.saveEvery > 0 && steps % data.saveEvery == 0;
    if (isDue && steps < end && !parts.states.empty())
      if (auto ok = saveStates(session, parts.states, steps); !ok)
        return tl::unexpected(ok.error());
  }
  if (auto ok = metrics.close(); !ok)
    return tl::unexpected(ok.error());
  return took;
}
