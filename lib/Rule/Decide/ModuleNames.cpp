//===- ModuleNames.cpp - Modules of the framework's model -----------------===//
#include "partita/Rule/Decide/ModuleNames.h"

#include "partita/Rule/Decide/Hints.h"

#include <algorithm>
#include <fnmatch.h>
#include <set>

using namespace partita;

bool partita::matchesGlob(const std::string &glob, const std::string &name) {
  return glob == name || ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

/// A path and those that it is below: "a.b.c", "a.b", "a".
template <typename Visit> static void forPathAndParents(std::string path, Visit visit) {
  while (!path.empty()) {
    visit(path);
    size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
}

std::map<std::string, std::vector<int32_t>> partita::moduleOps(const FlowGraph &graph) {
  std::map<std::string, std::vector<int32_t>> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    auto it = graph.modules.find(graph.ops[i].name);
    if (graph.ops[i].kind == FlowKind::Compute && it != graph.modules.end())
      forPathAndParents(it->second, [&](const std::string &path) {
        ops[path].push_back(static_cast<int32_t>(i));
      });
  }
  return ops;
}

bool partita::isNamed(const FlowGraph &graph, const FlowOp &op, const std::string &glob) {
  bool found = matchesGlob(glob, op.name);
  if (auto it = graph.modules.find(op.name); !found && it != graph.modules.end())
    forPathAndParents(it->second,
                      [&](const std::string &path) { found |= matchesGlob(glob, path); });
  return found;
}

//===-- Near misses -------------------------------------------------------===//

/// The least number of characters to insert, leave out or change in `glob`, of which a
/// star stands for anything, so that it matches `name`.
static size_t distance(const std::string &glob, const std::string &name) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t n = 0; n < row.size(); ++n)
    row[n] = n;
  for (char c : glob) {
    std::vector<size_t> next(row.size());
    next[0] = row[0] + (c != '*');
    for (size_t n = 1; n < row.size(); ++n)
      next[n] = c == '*' ? std::min(row[n], next[n - 1])
                         : std::min({row[n - 1] + (c != '?' && c != name[n - 1]),
                                     row[n] + 1, next[n - 1] + 1});
    row = std::move(next);
  }
  return row.back();
}

static std::set<std::string> allNames(const FlowGraph &graph) {
  std::set<std::string> names;
  for (const FlowOp &op : graph.ops)
    if (op.kind != FlowKind::Sink)
      names.insert(op.name);
  for (const FlowValue &value : graph.values) {
    names.insert(value.name);
    names.insert(value.otherNames.begin(), value.otherNames.end());
  }
  for (const auto &module : moduleOps(graph))
    names.insert(module.first);
  return names;
}

/// Of a glob that ends in the name of a parameter: what the module reads that is none.
static std::string whatModuleReads(const FlowGraph &graph, const std::string &glob) {
  size_t dot = glob.rfind('.');
  if (dot == std::string::npos || dot == 0)
    return "";
  std::string module = glob.substr(0, dot), parameter = glob.substr(dot + 1);
  if (parameter != "weight" && parameter != "bias")
    return "";
  for (const auto &[path, ops] : moduleOps(graph))
    if (matchesGlob(module, path))
      for (int32_t op : ops)
        for (int32_t value : graph.ops[op].operands)
          if (const FlowValue &it = graph.values[value];
              it.producer >= 0 && graph.ops[it.producer].kind == FlowKind::Source)
            return "; nodes under module '" + path + "' read weight '" + it.name + "'";
  return "";
}

std::string partita::nearMisses(const FlowGraph &graph, const std::string &glob) {
  constexpr size_t most = 3;
  std::vector<std::pair<size_t, std::string>> near;
  size_t literals = glob.size() - std::count(glob.begin(), glob.end(), '*');
  for (const std::string &name : allNames(graph))
    if (size_t d = distance(glob, name); d <= std::clamp<size_t>(literals / 4, 1, 3))
      near.emplace_back(d, name);
  std::sort(near.begin(), near.end());
  std::string text = whatModuleReads(graph, glob);
  // Of equal layers one is enough.
  std::set<std::string> layers;
  std::string told;
  for (const auto &[d, name] : near)
    if (layers.size() < most && layers.insert(layerGlob(name)).second)
      told += (told.empty() ? "'" : " or '") + name + "'";
  return text + (told.empty() ? "" : "; did you mean " + told + "?");
}
