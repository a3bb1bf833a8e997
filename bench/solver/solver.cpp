//===- solver.cpp - Tables of the solver's costs, bounds and times --------===//
//
//   bench-solver header                        the head of the table
//   bench-solver instances FOLDER [seconds…]   every *.json and *.json.gz in the folder
//   bench-solver blocks                        chains of 8, 64, 1,024 equal blocks
//   bench-solver runs                          stacks of 8, 96, 1,024 equal layers, tied
//   in
//                                              1, 2, 3 runs or not at all
//   bench-solver large SPEC SECONDS [WORK]     one generated problem, without the head.
//                                              With WORK it stops by that, whatever it
//                                              takes: on a machine that others use, the
//                                              work that an idle one does in SECONDS
//   bench-solver write SPEC FILE               the same as a problem file
//
// SPEC is KIND:NODES:CHOICES[:AXIS,AXIS…[:TIGHTNESS[:SEED]]] with KIND transformer, unet,
// graph, or dense (random tables, no axes).
//
// Prints Markdown tables; bench/solver/report writes all of them to docs/.
//
//===----------------------------------------------------------------------===//
#include "Generate.h"
#include "Model.h"

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

/// Solves and prints one line of the table.
static void row(const std::string &name, const Problem &problem, double limit,
                std::optional<int64_t> work = {}) {
  SolveOptions options;
  options.threads = 2;
  options.timeLimit = limit;
  options.workLimit = work;
  double first = -1;
  options.progress = [&](const Progress &p) {
    if (p.cost && first < 0)
      first = p.seconds;
  };
  Solution s = *solve(problem, options);
  if (!s.choices.empty() && first < 0)
    first = s.seconds;
  std::printf("| %s | %g | %s | %s | %s | %s | %.2f | %.2f | %.2f |\n", name.c_str(),
              limit, s.choices.empty() ? "-" : toString(s.cost).c_str(),
              toString(s.lowerBound).c_str(), gap(s).c_str(),
              s.status == Status::Optimal ? "yes" : "no", first, s.seconds, peakGib());
  std::fprintf(stderr, "%s: work %lld\n", name.c_str(), static_cast<long long>(s.work));
  std::fflush(stdout);
}

static void header() {
  std::printf(
      "| problem | limit s | cost | lower bound | gap | proved | first answer s | "
      "seconds | peak GiB so far |\n|---|---|---|---|---|---|---|---|---|\n");
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
      std::string name = file.filename();
      row(name.substr(0, name.find('.')), *problem, limit);
    }
  }
  return 0;
}

/// Chains of equal blocks: with live sets that overlap from block to block, and with
/// blocks that only meet in one result.
static int blocks() {
  header();
  for (int count : {8, 64, 1024})
    row(std::to_string(count) + " blocks of 32 x 8, overlapping",
        bench::Layered(count, 32, 8, 0).make(), 60);
  for (int length : {16, 20})
    for (int count : {8, 64, 1024})
      row(std::to_string(count) + " blocks of " + std::to_string(length) + " x 8",
          bench::Chain(count, length, 8).make(), 60);
  return 0;
}

static int runs() {
  header();
  for (int copies : {8, 96, 1024})
    for (int runs : {1, 2, 3, copies})
      row(std::to_string(copies) + " layers of 12 x 8, " +
              (runs == copies ? "not tied"
                              : std::to_string(runs) + (runs == 1 ? " run" : " runs")),
          bench::Stack(copies, 12, 8, runs, 0.6).make(), 30);
  return 0;
}

/// Writes a problem whose variables have one usage each as the reader takes it.
static int write(const Problem &problem, const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "w");
  if (!file) {
    std::fprintf(stderr, "bench-solver: error: cannot write '%s'\n", path.c_str());
    return 1;
  }
  auto list = [&](const char *name, size_t count, auto value) {
    std::fprintf(file, "%s [", name);
    for (size_t i = 0; i < count; ++i)
      std::fprintf(file, i == 0 ? "%s" : ", %s", value(i).c_str());
    std::fprintf(file, "]");
  };
  auto text = [](const std::vector<int64_t> &values) {
    std::string result = "[";
    for (int64_t v : values)
      result += (result.size() == 1 ? "" : ", ") + std::to_string(v);
    return result + "]";
  };
  const auto &variables = problem.variables;
  const auto &edges = problem.edges;
  std::fprintf(file, "{\"problem\": {\"nodes\": {");
  list("\"intervals\":", variables.size(), [&](size_t v) {
    return text({variables[v].usages[0].begin, variables[v].usages[0].end});
  });
  list(", \"costs\":", variables.size(),
       [&](size_t v) { return text(variables[v].costs); });
  list(", \"usages\":", variables.size(), [&](size_t v) {
    const CostTable &bytes = variables[v].usages[0].bytes;
    return text({bytes.begin(), bytes.end()});
  });
  std::fprintf(file, "}, \"edges\": {");
  list("\"nodes\":", edges.size(),
       [&](size_t e) { return text({edges[e].first, edges[e].second}); });
  list(", \"costs\":", edges.size(),
       [&](size_t e) { return text({edges[e].costs.begin(), edges[e].costs.end()}); });
  std::fprintf(file, "}, \"usage_limit\": %lld}}\n",
               static_cast<long long>(problem.memoryLimit.value_or(maxBytes)));
  return std::fclose(file) == 0 ? 0 : 1;
}

/// KIND:NODES:CHOICES:AXIS,AXIS,…:TIGHTNESS:SEED, or dense:NODES:CHOICES for tables of
/// random costs.
static Problem generate(const std::string &text) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  parts.resize(6);
  bench::ModelSpec spec;
  spec.nodes = std::max(16, std::atoi(parts[1].c_str()));
  spec.choices = std::max(2, std::atoi(parts[2].c_str()));
  if (parts[0] == "dense")
    return bench::Layered(std::max(1, spec.nodes / 64), 64, spec.choices, 1).make();
  spec.kind = parts[0] == "unet"    ? bench::ModelKind::UNet
              : parts[0] == "graph" ? bench::ModelKind::Graph
                                    : bench::ModelKind::Transformer;
  if (!parts[3].empty()) {
    spec.mesh = {0};
    for (char c : parts[3])
      if (c == ',')
        spec.mesh.push_back(0);
      else
        spec.mesh.back() = spec.mesh.back() * 10 + (c - '0');
  }
  if (!parts[4].empty())
    spec.tightness = std::atof(parts[4].c_str());
  if (!parts[5].empty())
    spec.seed = std::strtoull(parts[5].c_str(), nullptr, 10);
  return bench::Model(spec).make();
}

static int large(const std::string &spec, double limit, std::optional<int64_t> work) {
  Problem problem = generate(spec);
  size_t entries = 0, widest = 0;
  for (const Edge &e : problem.edges)
    entries += e.costs.size();
  for (const Variable &v : problem.variables)
    widest = std::max(widest, v.costs.size());
  char size[160];
  std::snprintf(size, sizeof size,
                "`%s`: %zu nodes, %zu edges, up to %zu choices, %.0f M costs",
                spec.c_str(), problem.variables.size(), problem.edges.size(), widest,
                static_cast<double>(entries) / 1e6);
  row(size, problem, limit, work);
  return 0;
}

int main(int argc, char **argv) {
  if (argc >= 3 && std::strcmp(argv[1], "instances") == 0) {
    std::vector<double> limits;
    for (int i = 3; i < argc; ++i)
      limits.push_back(std::atof(argv[i]));
    return instances(argv[2], limits.empty() ? std::vector<double>{5, 30} : limits);
  }
  if (argc == 2 && std::strcmp(argv[1], "header") == 0) {
    header();
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "blocks") == 0)
    return blocks();
  if (argc == 2 && std::strcmp(argv[1], "runs") == 0)
    return runs();
  if ((argc == 4 || argc == 5) && std::strcmp(argv[1], "large") == 0)
    return large(argv[2], std::atof(argv[3]),
                 argc == 5 ? std::optional(std::atoll(argv[4])) : std::nullopt);
  if (argc == 4 && std::strcmp(argv[1], "write") == 0)
    return write(generate(argv[2]), argv[3]);
  std::fprintf(stderr, "usage: bench-solver header | instances FOLDER [seconds...] | "
                       "blocks | runs | large SPEC SECONDS [WORK] | write SPEC FILE\n");
  return 2;
}
