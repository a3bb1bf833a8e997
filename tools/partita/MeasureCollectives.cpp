//===- MeasureCollectives.cpp - Collectives on a transport ----------------===//
#include "Measure.h"

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/Transport.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

using namespace partita;
using runtime::LocalTeam;
using runtime::Transport;

/// Other programs take a core for some milliseconds: what is measured comes round again.
static constexpr int passes = 5;
static constexpr int64_t sizes[] = {4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};

namespace {
/// One collective of every kind and size, f32, among all ranks.
struct Collectives {
  std::vector<CollectiveSample> samples; ///< seconds 0
  Expected<TaskTable> table = makeError("empty");

  explicit Collectives(int ranks) {
    Mesh mesh = *Mesh::create({{"r", ranks}});
    TaskTableBuilder builder(mesh);
    builder.setMemory(2 * mostBytes(ranks), 0, 0);
    uint32_t x = builder.addBuffer(Space::Arena, 0, mostBytes(ranks));
    uint32_t y = builder.addBuffer(Space::Arena, mostBytes(ranks), mostBytes(ranks));
    auto add = [&](Collective kind, double bytes, task::Params params) {
      builder.addTask({.operands = {x, y}, .params = std::move(params)});
      samples.push_back({kind, bytes, 0});
    };
    for (int64_t bytes : sizes) {
      int64_t part = std::max<int64_t>(64, bytes / 4 / ranks / 64 * 64);
      int64_t all = part * ranks;
      auto whole = static_cast<double>(4 * all);
      task::AllReduce reduce;
      reduce.count = all, reduce.group = mesh.all();
      add(Collective::AllReduce, whole, reduce);
      task::AllGather gather;
      gather.outer = 1, gather.block = part, gather.group = mesh.all();
      add(Collective::AllGather, whole, gather);
      task::ReduceScatter scatter;
      scatter.outer = 1, scatter.block = part, scatter.group = mesh.all();
      add(Collective::ReduceScatter, whole, scatter);
      // Rows of 256 bytes, as activations have them or longer.
      task::AllToAll exchange;
      exchange.split_first = true;
      exchange.outer = exchange.middle = exchange.join = 1;
      exchange.inner = std::min<int64_t>(part, 64);
      exchange.split = part / exchange.inner, exchange.group = mesh.all();
      add(Collective::AllToAll, whole, exchange);
    }
    std::string blob = builder.finish();
    table = TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
  }

  static uint64_t mostBytes(int ranks) {
    return static_cast<uint64_t>(
        std::max<int64_t>(sizes[std::size(sizes) - 1], 256 * ranks));
  }
};
} // namespace

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Less than three quarters of the values: other programs disturb some rounds, and the
/// least is of ranks that happened to arrive together.
static double quartile(std::vector<double> values) {
  auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// On every rank; only rank 0 writes to `samples`. A collective comes behind work that
/// writes what it sends, as in a program: its data is in the caches of other cores, and
/// ranks are not there at one time. Its time is that of both less that of the work alone;
/// the clock stops when all ranks are done.
static Expected<void> measureOn(Transport &transport, const TaskTable &table,
                                std::vector<CollectiveSample> &samples, int ranks) {
  size_t count = Collectives::mostBytes(ranks) / 4;
  auto memory = callMemory(transport, runtime::cpuDevice(), Space::Arena, 2 * count * 4);
  if (!memory)
    return tl::unexpected(memory.error());
  std::span x(reinterpret_cast<float *>(memory->get()), count);
  float *y = x.data() + count;
  std::ranges::fill(x, 1e-6F);
  const size_t numTasks = table.numTasks();
  std::vector<int> prepared;
  for (size_t i = 0; i < numTasks; ++i) {
    auto call = transport.prepare(table, table.task(i));
    if (!call)
      return tl::unexpected(call.error());
    prepared.push_back(*call);
  }
  std::vector<std::vector<double>> bothOf(numTasks), aloneOf(numTasks);
  for (size_t n = 0; n < passes * numTasks; ++n) {
    size_t i = n % numTasks;
    // Enough of the small ones for the clock, and as long as a larger one takes.
    bool isSmall = samples[i].bytes <= (64 << 10);
    int calls = isSmall ? 20 : 1, rounds = isSmall ? 40 : 5;
    auto sent = static_cast<size_t>(samples[i].bytes / 4);
    std::vector<double> &both = bothOf[i], &alone = aloneOf[i];
    // One after the other: work behind a collective finds its data in other caches, which
    // is part of what the collective costs.
    for (bool communicates : {true, false})
      for (int round = 0; round < rounds; ++round) {
        transport.barrier();
        double start = now();
        for (int c = 0; c < calls; ++c) {
          for (float &value : x.first(sent))
            value = -value;
          if (communicates && !transport.run(prepared[i], x.data(), y))
            return makeError("calibrate: a collective failed");
        }
        transport.barrier();
        (communicates ? both : alone).push_back((now() - start) / calls);
      }
  }
  if (transport.rank() == 0)
    for (size_t i = 0; i < numTasks; ++i)
      samples[i].seconds = std::max(1e-8, quartile(bothOf[i]) - quartile(aloneOf[i]));
  return {};
}

Expected<std::vector<CollectiveSample>> partita::measureLocalCollectives(int ranks) {
  Collectives what(ranks);
  if (!what.table)
    return tl::unexpected(what.table.error());
  LocalTeam team(ranks);
  std::vector<Expected<void>> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto &result = results[static_cast<size_t>(rank)];
      result = measureOn(*team.connect(rank), *what.table, what.samples, ranks);
      if (!result)
        team.abort();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const Expected<void> &result : results)
    if (!result)
      return tl::unexpected(result.error());
  return what.samples;
}

Expected<std::vector<CollectiveSample>> partita::measureMpiCollectives() {
  auto transport = runtime::connectMpi();
  if (!transport)
    return tl::unexpected(transport.error());
  int ranks = (*transport)->size();
  Collectives what(ranks);
  if (!what.table)
    return tl::unexpected(what.table.error());
  auto ok = measureOn(**transport, *what.table, what.samples, ranks);
  if (!ok)
    return tl::unexpected(ok.error());
  return what.samples;
}
