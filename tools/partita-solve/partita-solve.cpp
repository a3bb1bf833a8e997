//===- partita-solve.cpp - Solve a choice problem from a file -------------===//
#include "common/CommandLine.h"
#include "partita/Solver/Read.h"
#include "partita/Solver/Solve.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <unistd.h>

using namespace partita;
using namespace partita::solver;

static void print(const Solution &solution) {
  std::string text = "{\"solution\": [";
  for (size_t v = 0; v < solution.choices.size(); ++v)
    text += (v == 0 ? "" : ", ") + std::to_string(solution.choices[v]);
  text += "], \"cost\": " + toString(solution.cost) +
          ", \"lower_bound\": " + toString(solution.lowerBound) +
          ", \"proved\": " + (solution.status == Status::Optimal ? "true" : "false");
  std::printf("%s, \"seconds\": %.3f, \"work\": %lld}\n", text.c_str(), solution.seconds,
              static_cast<long long>(solution.work));
}

/// One line per second.
static void showProgress(const Progress &progress) {
  static double last = -1;
  if (progress.seconds < last + 1)
    return;
  last = progress.seconds;
  std::string cost = progress.cost ? std::to_string(*progress.cost) : "none yet";
  cost = cost.substr(0, cost.find('.'));
  std::fprintf(stderr, "%6.1f s  best %s  bound %.0f\n", progress.seconds, cost.c_str(),
               progress.lowerBound);
}

int main(int argc, char **argv) {
  CLI::App app("Solves a pairwise choice problem under a memory limit: prints the best "
               "answer found and a lower bound on every answer (docs/solver.md).",
               "partita-solve");
  app.footer("Examples:\n  partita-solve problem.json.gz\n"
             "  partita-solve problem.json --time-limit 5 --threads 2\n"
             "  partita-solve problem.json --work 100000     the same on any machine");
  std::string file;
  SolveOptions options;
  options.threads = 2;
  int64_t work = 0;
  app.add_option("FILE", file,
                 "Problem in IOPDDL JSON, plain or gzip; - is standard input")
      ->required();
  auto *limit =
      app.add_option("--time-limit", options.timeLimit,
                     "Seconds, reading included, until the best answer so far is printed")
          ->check(CLI::Range(0.001, 1e6))
          ->capture_default_str();
  auto *units = app.add_option("--work", work, "Work units instead of a time limit")
                    ->check(CLI::Range(int64_t(1), int64_t(1) << 40))
                    ->excludes(limit);
  app.add_option("--threads", options.threads, "Threads to use")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.set_version_flag("--version", "partita-solve " PARTITA_VERSION);
  if (auto done = parse(app, argc, argv))
    return *done;
  if (units->count() != 0)
    options.workLimit = work;
  if (isatty(STDERR_FILENO))
    options.progress = showProgress;
  auto begin = std::chrono::steady_clock::now();
  Expected<Problem> problem = readProblem(file);
  if (!problem)
    return fail(problem.error().message);
  // Reading a large file is part of the time that the user gives.
  std::chrono::duration<double> reading = std::chrono::steady_clock::now() - begin;
  options.timeLimit =
      std::max(options.timeLimit - reading.count(), 0.1 * options.timeLimit);
  Expected<Solution> solution = solve(*problem, options);
  if (!solution)
    return fail(file + ": " + solution.error().message);
  if (solution->status == Status::Infeasible || solution->status == Status::Unknown)
    return fail(file + ": " + solution->reason);
  print(*solution);
  // Giving gigabytes of tables back one by one takes seconds, and nobody needs them.
  _exit(finish(0));
}
