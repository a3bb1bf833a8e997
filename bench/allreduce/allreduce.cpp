//===- allreduce.cpp - The thread transport against Open MPI --------------===//
//
//   bench-allreduce [RANKS]
// All-reduces f32 sums of several sizes with the ranks as threads, then starts mpirun
// with itself to time MPI_Allreduce on as many processes of this machine, and prints
// both and their ratio. Each figure is the median of the calls, of the slowest rank.
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
#include <string>
#include <thread>

using namespace partita;
using namespace partita::runtime;

static constexpr int64_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
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

static TaskTable makeTable(const Mesh &mesh) {
  TaskTableBuilder builder(mesh);
  builder.setMemory(2 * sizes[4], 0, 0);
  uint32_t x = builder.addBuffer(Space::Arena, 0, sizes[4]);
  uint32_t y = builder.addBuffer(Space::Arena, sizes[4], sizes[4]);
  for (int64_t bytes : sizes) {
    task::AllReduce p;
    p.count = bytes / 4, p.group = mesh.all();
    builder.addTask({.operands = {x, y}, .params = p});
  }
  std::string blob = builder.finish();
  return *TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
}

/// Seconds per call by size, in place or not.
static std::vector<double> timeLocal(int ranks, bool inPlace) {
  Mesh mesh = *Mesh::create({{"r", ranks}});
  TaskTable table = makeTable(mesh);
  LocalTeam team(ranks);
  std::vector<double> result(std::size(sizes));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      auto transport = team.connect(r);
      std::vector<float> x(sizes[4] / 4, 1e-6f), y(sizes[4] / 4);
      for (size_t k = 0; k < std::size(sizes); ++k) {
        int handle = *transport->prepare(table, table.task(k));
        void *target = inPlace ? x.data() : y.data();
        std::vector<double> times;
        for (int i = 0; i < rounds; ++i) {
          transport->barrier();
          double start = now();
          for (int c = 0; c < callsFor(sizes[k]); ++c)
            transport->run(handle, x.data(), target);
          transport->barrier();
          times.push_back((now() - start) / callsFor(sizes[k]));
        }
        if (r == 0)
          result[k] = median(times);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  return result;
}

/// As a process of the MPI job: prints "bytes inPlace seconds" lines on rank 0.
static int mpiMain() {
  MPI_Init(nullptr, nullptr);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> x(sizes[4] / 4, 1e-6f), y(sizes[4] / 4);
  for (int inPlace : {0, 1})
    for (int64_t bytes : sizes) {
      std::vector<double> times;
      for (int i = 0; i < rounds; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = now();
        for (int c = 0; c < callsFor(bytes); ++c)
          MPI_Allreduce(inPlace ? MPI_IN_PLACE : x.data(), inPlace ? x.data() : y.data(),
                        static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        times.push_back((now() - start) / callsFor(bytes));
      }
      if (rank == 0)
        std::printf("%lld %d %.9f\n", static_cast<long long>(bytes), inPlace,
                    median(times));
    }
  MPI_Finalize();
  return 0;
}

static std::vector<double> timeMpi(int ranks, bool inPlace, const char *self) {
  std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n " +
      std::to_string(ranks) + " --oversubscribe " + self;
  std::vector<double> result(std::size(sizes));
  FILE *pipe = ::popen(command.c_str(), "r");
  long long bytes;
  int place;
  double seconds;
  while (pipe && std::fscanf(pipe, "%lld %d %lf", &bytes, &place, &seconds) == 3)
    for (size_t k = 0; k < std::size(sizes); ++k)
      if (sizes[k] == bytes && place == inPlace)
        result[k] = seconds;
  if (pipe)
    ::pclose(pipe);
  return result;
}

int main(int argc, char **argv) {
  if (std::getenv("OMPI_COMM_WORLD_RANK"))
    return mpiMain();
  int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::printf("all-reduce, f32 sum, %d ranks, milliseconds (median of %d)\n", ranks,
              rounds);
  for (bool inPlace : {false, true}) {
    auto local = timeLocal(ranks, inPlace);
    auto mpi = timeMpi(ranks, inPlace, argv[0]);
    for (size_t k = 0; k < std::size(sizes); ++k)
      std::printf("%-12s %6lld KiB  local %9.4f  Open MPI %9.4f  ratio %.2f\n",
                  inPlace ? "in place" : "out of place",
                  static_cast<long long>(sizes[k] >> 10), local[k] * 1e3, mpi[k] * 1e3,
                  mpi[k] / local[k]);
  }
}
