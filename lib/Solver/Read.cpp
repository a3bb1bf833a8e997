//===- Read.cpp - Reading problems from IOPDDL JSON files -----------------===//
#include "partita/Solver/Read.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/JsonStream.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <zlib.h>

using namespace partita;
using namespace partita::solver;

namespace {
using Lists = std::vector<std::vector<int64_t>>;

/// The members as they stand in the file, in whatever order they come.
struct Raw {
  std::optional<Lists> intervals, costs, usages, edgeNodes;
  std::optional<std::vector<CostTable>> edgeCosts;
  std::optional<int64_t> limit;
  std::vector<Class> classes;
  bool sawNodes = false, sawEdges = false;
};
} // namespace

/// Calls `read` for each element of the array that starts here.
template <typename Read> static Expected<void> readElements(JsonStream &json, Read read) {
  if (auto begun = json.beginArray(); !begun)
    return begun;
  for (;;) {
    Expected<bool> more = json.nextElement();
    if (!more)
      return tl::unexpected(more.error());
    if (!*more)
      return {};
    if (Expected<void> ok = read(); !ok)
      return ok;
  }
}

static Expected<void> readTables(JsonStream &json,
                                 std::optional<std::vector<CostTable>> &out) {
  out.emplace();
  TablePool tables;
  std::vector<int64_t> costs;
  return readElements(json, [&]() -> Expected<void> {
    costs.clear();
    if (auto ok = json.readIntegers(0, forbidden, costs); !ok)
      return ok;
    out->push_back(tables.add(std::move(costs)));
    return {};
  });
}

static Expected<void> readLists(JsonStream &json, int64_t high, int64_t length,
                                std::optional<Lists> &out) {
  out.emplace();
  return readElements(json, [&]() -> Expected<void> {
    std::vector<int64_t> &list = out->emplace_back();
    if (auto ok = json.readIntegers(0, high, list); !ok)
      return ok;
    if (length != 0 && static_cast<int64_t>(list.size()) != length)
      return json.error("expected " + std::to_string(length) + " integers, got " +
                        std::to_string(list.size()));
    list.shrink_to_fit();
    return {};
  });
}

/// Calls `read` for each member of the object that starts here; `read` gives false for a
/// name it does not know.
template <typename Fn>
static Expected<void> readMembers(JsonStream &json, const char *known, Fn read) {
  if (auto begun = json.beginObject(); !begun)
    return begun;
  std::string key;
  for (;;) {
    Expected<bool> more = json.nextMember(key);
    if (!more)
      return tl::unexpected(more.error());
    if (!*more)
      return {};
    Expected<bool> done = read(key);
    if (!done)
      return tl::unexpected(done.error());
    if (!*done)
      return json.error(std::string("unknown member; known are ") + known);
  }
}

static Expected<bool> known(Expected<void> result) {
  if (!result)
    return tl::unexpected(result.error());
  return true;
}

static Expected<void> readNodes(JsonStream &json, Raw &raw) {
  return readMembers(json, "intervals, costs, usages",
                     [&](const std::string &key) -> Expected<bool> {
                       if (key == "intervals")
                         return known(readLists(json, maxTime, 2, raw.intervals));
                       if (key == "costs")
                         return known(readLists(json, forbidden, 0, raw.costs));
                       if (key == "usages")
                         return known(readLists(json, maxBytes, 0, raw.usages));
                       return false;
                     });
}

static Expected<void> readEdges(JsonStream &json, Raw &raw) {
  return readMembers(json, "nodes, costs", [&](const std::string &key) -> Expected<bool> {
    if (key == "nodes")
      return known(readLists(json, UINT32_MAX, 2, raw.edgeNodes));
    if (key == "costs")
      return known(readTables(json, raw.edgeCosts));
    return false;
  });
}

static Expected<void> readClass(JsonStream &json, Class &tied) {
  std::optional<Lists> copies;
  auto read = [&](const std::string &key) -> Expected<bool> {
    if (key == "runs") {
      Expected<int64_t> runs = json.readInteger(1, UINT32_MAX);
      if (!runs)
        return tl::unexpected(runs.error());
      tied.runs = static_cast<uint32_t>(*runs);
      return true;
    }
    return key == "copies" ? known(readLists(json, UINT32_MAX, 0, copies)) : false;
  };
  if (auto done = readMembers(json, "copies, runs", read); !done)
    return done;
  if (!copies)
    return json.error("the member \"copies\" is missing");
  for (const std::vector<int64_t> &copy : *copies)
    tied.copies.emplace_back(copy.begin(), copy.end());
  return {};
}

static Expected<void> readClasses(JsonStream &json, std::vector<Class> &out) {
  return readElements(json, [&] { return readClass(json, out.emplace_back()); });
}

static Expected<bool> readProblemMember(JsonStream &json, const std::string &key,
                                        Raw &raw) {
  if (key == "name") {
    Expected<std::string> name = json.readString();
    if (!name)
      return tl::unexpected(name.error());
    return true;
  }
  if (key == "nodes") {
    raw.sawNodes = true;
    return known(readNodes(json, raw));
  }
  if (key == "edges") {
    raw.sawEdges = true;
    return known(readEdges(json, raw));
  }
  if (key == "usage_limit") {
    Expected<int64_t> limit = json.readInteger(1, maxBytes);
    if (!limit)
      return tl::unexpected(limit.error());
    raw.limit = *limit;
    return true;
  }
  if (key == "classes")
    return known(readClasses(json, raw.classes));
  return false;
}

/// Moves the lists into a problem; what does not fit together is an error of the file.
static Expected<Problem> assemble(Raw &raw, const std::string &file) {
  if (!raw.intervals || !raw.costs || !raw.usages)
    return makeError(file + ": problem/nodes: the member \"" +
                     (!raw.intervals ? "intervals"
                      : !raw.costs   ? "costs"
                                     : "usages") +
                     "\" is missing");
  if (raw.sawEdges && (!raw.edgeNodes || !raw.edgeCosts))
    return makeError(file + ": problem/edges: the member \"" +
                     (!raw.edgeNodes ? "nodes" : "costs") + "\" is missing");
  size_t count = raw.costs->size();
  auto sizes = [&](const char *what, size_t got, size_t expected) {
    return makeError(file + ": " + what + ": " + std::to_string(got) +
                     " entries, expected " + std::to_string(expected));
  };
  if (raw.intervals->size() != count)
    return sizes("problem/nodes/intervals", raw.intervals->size(), count);
  if (raw.usages->size() != count)
    return sizes("problem/nodes/usages", raw.usages->size(), count);
  if (raw.sawEdges && raw.edgeNodes->size() != raw.edgeCosts->size())
    return sizes("problem/edges/costs", raw.edgeCosts->size(), raw.edgeNodes->size());
  Problem problem;
  problem.memoryLimit = raw.limit;
  problem.classes = std::move(raw.classes);
  problem.variables.resize(count);
  for (size_t v = 0; v < count; ++v) {
    Variable &variable = problem.variables[v];
    variable.costs = std::move((*raw.costs)[v]);
    int64_t begin = (*raw.intervals)[v][0], end = (*raw.intervals)[v][1];
    variable.usages.push_back({begin, end, std::move((*raw.usages)[v])});
  }
  if (raw.sawEdges) {
    problem.edges.resize(raw.edgeNodes->size());
    for (size_t e = 0; e < problem.edges.size(); ++e) {
      problem.edges[e].first = static_cast<uint32_t>((*raw.edgeNodes)[e][0]);
      problem.edges[e].second = static_cast<uint32_t>((*raw.edgeNodes)[e][1]);
      problem.edges[e].costs = std::move((*raw.edgeCosts)[e]);
    }
  }
  if (auto ok = check(problem); !ok)
    return makeError(file + ": " + ok.error().message);
  return problem;
}

static Expected<Problem> readFrom(JsonStream::Source source, const std::string &file) {
  JsonStream json(std::move(source), file);
  Raw raw;
  bool sawProblem = false;
  auto readTop = [&](const std::string &key) -> Expected<bool> {
    if (key != "problem")
      return false;
    sawProblem = true;
    return known(readMembers(
        json, "name, nodes, edges, usage_limit, classes",
        [&](const std::string &k) { return readProblemMember(json, k, raw); }));
  };
  if (auto read = readMembers(json, "problem", readTop); !read)
    return tl::unexpected(read.error());
  if (auto end = json.finish(); !end)
    return tl::unexpected(end.error());
  if (!sawProblem)
    return makeError(file + ": the member \"problem\" is missing");
  if (!raw.sawNodes)
    return makeError(file + ": problem: the member \"nodes\" is missing");
  return assemble(raw, file);
}

Expected<Problem> solver::parseProblem(std::string_view text, const std::string &file) {
  size_t position = 0;
  auto source = [&](char *buffer, size_t size) -> Expected<size_t> {
    size_t n = std::min(size, text.size() - position);
    std::memcpy(buffer, text.data() + position, n);
    position += n;
    return n;
  };
  return readFrom(source, file);
}

Expected<Problem> solver::readProblem(const std::string &path) {
  bool isStandardInput = path == "-";
  // Opens the file as the rest of the project does, for its checks and its messages.
  if (!isStandardInput)
    if (auto file = MappedFile::open(path); !file)
      return tl::unexpected(file.error());
  // zlib reads a file without the gzip header as it stands.
  gzFile file =
      isStandardInput ? gzdopen(::dup(STDIN_FILENO), "rb") : gzopen(path.c_str(), "rbe");
  if (!file)
    return makeError("cannot open '" + path + "'");
  gzbuffer(file, 1 << 18);
  auto source = [&](char *buffer, size_t size) -> Expected<size_t> {
    int n = gzread(file, buffer, static_cast<unsigned>(size));
    int code = Z_OK;
    const char *what = gzerror(file, &code);
    if (n < 0 || (n == 0 && code == Z_BUF_ERROR))
      return makeError(path + ": the compressed data is damaged or cut short (" +
                       (code == Z_BUF_ERROR ? "unexpected end" : what) + ")");
    return static_cast<size_t>(n);
  };
  Expected<Problem> problem = readFrom(source, path);
  gzclose(file);
  return problem;
}
