//===- allreduce.cpp - Transports against each other and Open MPI ---------===//
//
//   bench-allreduce [RANKS]
// All-reduces f32 sums of several sizes with the ranks as threads, then starts mpirun
// with itself to time them as processes of this machine: with memory that they share,
// with messages, and by MPI_Allreduce. Prints all four. Each figure is the median of the
// calls, of the slowest rank.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>

using namespace partita;
using namespace partita::runtime;

static constexpr int64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 32 << 20};
static constexpr int64_t most = 32 << 20;
static constexpr int rounds = 15;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

static double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}

/// Calls for one figure: enough of the small ones for the clock.
static int callsFor(int64_t bytes) { return bytes <= (64 << 10) ? 50 : 1; }

/// Seconds of a call between barriers.
static double timeCalls(int64_t bytes, const std::function<void()> &barrier,
                        const std::function<void()> &call) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    barrier();
    double start = now();
    for (int c = 0; c < callsFor(bytes); ++c)
      call();
    barrier();
    times.push_back((now() - start) / callsFor(bytes));
  }
  return median(times);
}

static TaskTable makeTable(const Mesh &mesh) {
  TaskTableBuilder builder(mesh);
  builder.setMemory(2 * most, 0, 0);
  uint32_t x = builder.addBuffer(Space::Arena, 0, most);
  uint32_t y = builder.addBuffer(Space::Arena, most, most);
  for (int64_t bytes : sizes) {
    task::AllReduce p;
    p.count = bytes / 4, p.group = mesh.all();
    builder.addTask({.operands = {x, y}, .params = p});
  }
  std::string blob = builder.finish();
  return *TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
}

/// Seconds per call by size, not in place and in place.
using Figures = std::vector<double>;

static Figures timeTransport(Transport &transport) {
  Mesh mesh = *Mesh::create({{"r", transport.size()}});
  TaskTable table = makeTable(mesh);
  Memory memory = *callMemory(transport, cpuDevice(), Space::Arena, 2 * most);
  std::span x(reinterpret_cast<float *>(memory.get()), most / 4);
  std::ranges::fill(x, 1e-6F);
  Figures result;
  for (bool inPlace : {false, true})
    for (size_t k = 0; k < std::size(sizes); ++k) {
      int call = *transport.prepare(table, table.task(k));
      float *target = inPlace ? x.data() : x.data() + most / 4;
      result.push_back(timeCalls(
          sizes[k], [&] { transport.barrier(); },
          [&] { transport.run(call, x.data(), target); }));
    }
  return result;
}

static Figures timeLocal(int ranks) {
  LocalTeam team(ranks);
  Figures result;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto transport = team.connect(r);
      Figures mine = timeTransport(*transport);
      if (r == 0)
        result = std::move(mine);
    });
  for (std::thread &thread : threads)
    thread.join();
  return result;
}

static Figures timeOpenMpi() {
  MPI_Init(nullptr, nullptr);
  std::vector<float> x(most / 4, 1e-6F), y(most / 4);
  Figures result;
  for (bool inPlace : {false, true})
    for (int64_t bytes : sizes)
      result.push_back(timeCalls(
          bytes, [] { MPI_Barrier(MPI_COMM_WORLD); },
          [&] {
            MPI_Allreduce(inPlace ? MPI_IN_PLACE : x.data(),
                          inPlace ? x.data() : y.data(), static_cast<int>(bytes / 4),
                          MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
          }));
  return result;
}

/// Runs as a process of an MPI job: rank 0 prints a line per figure. `way`: of
/// connectMpi, or "mpi".
static int rankMain(const std::string &way) {
  Figures result;
  std::unique_ptr<Transport> transport;
  if (way == "mpi") {
    result = timeOpenMpi();
  } else {
    auto made = connectMpi(parseMpiWindow(way).value_or(MpiWindow::Auto));
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return 1;
    }
    transport = std::move(*made);
    result = timeTransport(*transport);
  }
  if (std::strcmp(std::getenv("OMPI_COMM_WORLD_RANK"), "0") == 0)
    for (double seconds : result)
      std::printf("%.9f\n", seconds);
  std::fflush(stdout);
  if (way == "mpi")
    MPI_Finalize();
  return 0;
}

static Figures timeProcesses(int ranks, const std::string &way, const char *self) {
  std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n " +
      std::to_string(ranks) + " --oversubscribe --bind-to none " + self + " " + way;
  Figures result;
  FILE *pipe = ::popen(command.c_str(), "r");
  double seconds;
  while (pipe && std::fscanf(pipe, "%lf", &seconds) == 1)
    result.push_back(seconds);
  if (pipe)
    ::pclose(pipe);
  result.resize(2 * std::size(sizes));
  return result;
}

int main(int argc, char **argv) {
  if (std::getenv("OMPI_COMM_WORLD_RANK"))
    return rankMain(argc > 1 ? argv[1] : "auto");
  int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::printf("all-reduce, f32 sum, %d ranks, milliseconds (median of %d)\n", ranks,
              rounds);
  Figures local = timeLocal(ranks), window = timeProcesses(ranks, "on", argv[0]),
          messages = timeProcesses(ranks, "off", argv[0]),
          mpi = timeProcesses(ranks, "mpi", argv[0]);
  for (size_t at = 0; at < local.size(); ++at)
    std::printf("%-12s %6lld KiB  local %9.4f  window %9.4f  messages %9.4f  Open MPI "
                "%9.4f\n",
                at < std::size(sizes) ? "out of place" : "in place",
                static_cast<long long>(sizes[at % std::size(sizes)] >> 10),
                local[at] * 1e3, window[at] * 1e3, messages[at] * 1e3, mpi[at] * 1e3);
}
