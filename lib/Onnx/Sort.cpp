//===- Sort.cpp - One definition per value, used after it is computed -----===//
#include "Internal.h"

#include <queue>
#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

static std::string describe(const Node &node) {
  return "node '" + node.name + "' (" + node.opType + ")";
}

/// Where a value comes from: a node's index, or -1 for inputs and initializers.
using Producers = std::unordered_map<std::string, int>;

static Expected<Producers> findProducers(const Graph &graph) {
  Producers producers;
  auto define = [&](const std::string &name, int index,
                    const std::string &what) -> Expected<void> {
    auto [it, isNew] = producers.emplace(name, index);
    if (isNew)
      return {};
    std::string first = it->second < 0 ? std::string("an input or initializer")
                                       : describe(graph.nodes[it->second]);
    return makeError("value '" + name + "' is defined twice, by " + first + " and by " +
                     what);
  };
  for (const ValueInfo &input : graph.inputs)
    if (auto ok = define(input.name, -1, "an input"); !ok)
      return tl::unexpected(ok.error());
  for (const Tensor &tensor : graph.initializers)
    if (auto ok = define(tensor.name, -1, "an initializer"); !ok)
      return tl::unexpected(ok.error());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const std::string &output : graph.nodes[i].outputs)
      if (!output.empty())
        if (auto ok = define(output, static_cast<int>(i), describe(graph.nodes[i])); !ok)
          return tl::unexpected(ok.error());
  return producers;
}

/// Marks the nodes that some output needs. Inputs that nothing defines are an error,
/// also of nodes that are not needed.
static Expected<std::vector<bool>> findNeeded(const Graph &graph,
                                              const Producers &producers) {
  for (const Node &node : graph.nodes)
    for (const std::string &input : node.inputs)
      if (!input.empty() && !producers.contains(input))
        return makeError(describe(node) + " uses '" + input + "', which nothing defines");
  std::vector<bool> needed(graph.nodes.size());
  std::vector<int> work;
  auto need = [&](const std::string &name) {
    if (name.empty())
      return;
    int index = producers.at(name);
    if (index >= 0 && !needed[index]) {
      needed[index] = true;
      work.push_back(index);
    }
  };
  for (const std::string &output : graph.outputs) {
    if (!producers.contains(output))
      return makeError("nothing defines the output '" + output + "'");
    need(output);
  }
  for (const auto &[initializer, value] : graph.updates) {
    if (!producers.contains(value))
      return makeError("nothing defines '" + value + "', which initializer '" +
                       initializer + "' becomes");
    need(value);
  }
  while (!work.empty()) {
    int index = work.back();
    work.pop_back();
    for (const std::string &input : graph.nodes[index].inputs)
      need(input);
  }
  return needed;
}

/// Walks back from a node that could not be sorted until one repeats: that one is on a
/// cycle, while others may only depend on one.
static tl::unexpected<Error> cycleError(const Graph &graph, const Producers &producers,
                                        const std::vector<bool> &stuck, int start) {
  std::vector<int> path;
  std::vector<bool> seen(graph.nodes.size());
  int at = start;
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    for (const std::string &input : graph.nodes[at].inputs)
      if (!input.empty())
        if (int from = producers.at(input); from >= 0 && stuck[from]) {
          at = from;
          break;
        }
  }
  std::string message = "the graph has a cycle: " + describe(graph.nodes[at]);
  auto first = std::find(path.begin(), path.end(), at);
  auto length = path.end() - first;
  if (length == 1)
    return makeError(message + " needs its own output");
  message += " needs the output of " + describe(graph.nodes[*(first + 1)]);
  return makeError(
      message + ", which needs the first's" +
      (length > 2 ? " through " + std::to_string(length - 2) + " more" : ""));
}

Expected<void> onnx_model::sortGraph(Graph &graph) {
  auto producers = findProducers(graph);
  if (!producers)
    return tl::unexpected(producers.error());
  auto needed = findNeeded(graph, *producers);
  if (!needed)
    return tl::unexpected(needed.error());

  size_t count = graph.nodes.size();
  std::vector<int> waiting(count);
  std::vector<std::vector<int>> users(count);
  std::vector<bool> stuck = *needed;
  // The lowest index first: a graph that is sorted keeps its order.
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (size_t i = 0; i < count; ++i) {
    if (!(*needed)[i])
      continue;
    for (const std::string &input : graph.nodes[i].inputs)
      if (!input.empty())
        if (int from = producers->at(input); from >= 0) {
          users[from].push_back(static_cast<int>(i));
          ++waiting[i];
        }
    if (waiting[i] == 0)
      ready.push(static_cast<int>(i));
  }
  std::vector<Node> sorted;
  while (!ready.empty()) {
    int index = ready.top();
    ready.pop();
    stuck[index] = false;
    for (int user : users[index])
      if (--waiting[user] == 0)
        ready.push(user);
    sorted.push_back(graph.nodes[index]);
  }
  for (size_t i = 0; i < count; ++i)
    if (stuck[i])
      return cycleError(graph, *producers, stuck, static_cast<int>(i));
  graph.nodes = std::move(sorted);

  std::unordered_set<std::string> used(graph.outputs.begin(), graph.outputs.end());
  for (const auto &[initializer, value] : graph.updates)
    used.insert({initializer, value});
  for (const Node &node : graph.nodes)
    used.insert(node.inputs.begin(), node.inputs.end());
  std::erase_if(graph.initializers,
                [&](const Tensor &tensor) { return !used.contains(tensor.name); });
  return {};
}
