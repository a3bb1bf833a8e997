//===- solver.cpp - Tables of the solver's costs, bounds and times --------===//
//
//   bench-solver instances FOLDER [seconds…]   every *.json and *.json.gz in the folder
//   bench-solver blocks                        chains of 8, 64, 1,024 equal blocks
//   bench-solver large NODES CHOICES SECONDS   one generated problem of that size
//
// Prints Markdown tables; docs/solver.md holds the last ones.
//
//===----------------------------------------------------------------------===//
#include "Generate.h"

#include "partita/Solver/Read.h"
#include "partita/Solver/Solve.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/resource.h>

using namespace partita;
using namespace partita::solver;

static double peakGib() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

static std::string gap(const Solution &s) {
  if (s.choices.empty() || s.cost == 0)
    return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f%%",
                100 * static_cast<double>(s.cost - s.lowerBound) /
                    static_cast<double>(s.cost));
  return text;
}

static void row(const std::string &name, double limit, const Solution &s) {
  std::printf("| %s | %g | %s | %s | %s | %s | %.2f | %.2f |\n", name.c_str(), limit,
              s.choices.empty() ? "-" : toString(s.cost).c_str(),
              toString(s.lowerBound).c_str(), gap(s).c_str(),
              s.status == Status::Optimal ? "yes" : "no", s.seconds, peakGib());
  std::fflush(stdout);
}

static void header() {
  std::printf("| problem | limit s | cost | lower bound | gap | proved | seconds | "
              "peak GiB so far |\n|---|---|---|---|---|---|---|---|\n");
}

static int instances(const char *folder, const std::vector<double> &limits) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    if (name.ends_with(".json") || name.ends_with(".json.gz"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  header();
  for (const auto &file : files) {
    Expected<Problem> problem = readProblem(file);
    if (!problem) {
      std::fprintf(stderr, "bench-solver: error: %s\n", problem.error().message.c_str());
      return 1;
    }
    for (double limit : limits) {
      SolveOptions options;
      options.threads = 2;
      options.timeLimit = limit;
      std::string name = file.filename();
      row(name.substr(0, name.find('.')), limit, *solve(*problem, options));
    }
  }
  return 0;
}

static int blocks() {
  header();
  for (int count : {8, 64, 1024}) {
    Problem problem = bench::Layered(count, 32, 8, 0).make();
    SolveOptions options;
    options.threads = 2;
    row(std::to_string(count) + " blocks", options.timeLimit, *solve(problem, options));
  }
  return 0;
}

static int large(int nodes, int choices, double limit) {
  Problem problem = bench::Layered(std::max(1, nodes / 64), 64, choices, 1).make();
  SolveOptions options;
  options.threads = 2;
  options.timeLimit = limit;
  options.progress = [](const Progress &p) {
    std::fprintf(stderr, "%6.1f s  best %.0f  bound %.0f\n", p.seconds,
                 p.cost.value_or(-1), p.lowerBound);
  };
  header();
  row(std::to_string(problem.variables.size()) + " x " + std::to_string(choices), limit,
      *solve(problem, options));
  return 0;
}

int main(int argc, char **argv) {
  if (argc >= 3 && std::strcmp(argv[1], "instances") == 0) {
    std::vector<double> limits;
    for (int i = 3; i < argc; ++i)
      limits.push_back(std::atof(argv[i]));
    return instances(argv[2], limits.empty() ? std::vector<double>{5, 30} : limits);
  }
  if (argc == 2 && std::strcmp(argv[1], "blocks") == 0)
    return blocks();
  if (argc == 5 && std::strcmp(argv[1], "large") == 0)
    return large(std::atoi(argv[2]), std::atoi(argv[3]), std::atof(argv[4]));
  std::fprintf(stderr, "usage: bench-solver instances FOLDER [seconds...] | blocks | "
                       "large NODES CHOICES SECONDS\n");
  return 2;
}
