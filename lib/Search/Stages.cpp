//===- Stages.cpp - Stages that are asked for -----------------------------===//
#include "CutPlaces.h"

#include "partita/Rule/Decide/ModuleNames.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

namespace {
/// Which stage globs want each op in.
class GlobStages {
public:
  GlobStages(const FlowGraph &graph, const std::string &where)
      : graph(graph), where(where), wanted(graph.ops.size(), -1),
        by(graph.ops.size(), nullptr) {}

  Expected<void> add(const std::string &glob, int32_t stage) {
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute || !isNamed(graph, op, glob))
        continue;
      found = true;
      if (wanted[i] >= 0 && wanted[i] != stage)
        return makeError(where + ": node '" + op.name + "' is to be in stage " +
                         std::to_string(wanted[i]) + " by '" + *by[i] +
                         "' and in stage " + std::to_string(stage) + " by '" + glob +
                         "'");
      wanted[i] = stage;
      by[i] = &glob;
    }
    if (!found)
      return makeError(where + ": no node and no module is named '" + glob + "'" +
                       nearMisses(graph, glob));
    return {};
  }

  void set(size_t op, int32_t stage) { wanted[op] = stage; }

  Expected<std::vector<int32_t>> assign() const {
    std::vector<int32_t> result(graph.ops.size(), -1);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute)
        continue;
      int32_t latest = 0;
      const FlowOp *from = nullptr;
      for (int32_t operand : op.operands) {
        int32_t producer = graph.values[static_cast<size_t>(operand)].producer;
        if (producer >= 0 && result[static_cast<size_t>(producer)] > latest) {
          latest = result[static_cast<size_t>(producer)];
          from = &graph.ops[static_cast<size_t>(producer)];
        }
      }
      if (wanted[i] >= 0 && wanted[i] < latest)
        return makeError(where + ": node '" + op.name + "' is to be in stage " +
                         std::to_string(wanted[i]) + " and reads '" + from->name +
                         "', which is in stage " + std::to_string(latest));
      result[i] = std::max(wanted[i], latest);
    }
    return result;
  }

private:
  const FlowGraph &graph;
  const std::string &where;
  std::vector<int32_t> wanted;
  std::vector<const std::string *> by; ///< the glob that wants it
};
} // namespace

static Expected<void> checkStates(const FlowGraph &graph,
                                  const std::vector<int32_t> &stages,
                                  const std::string &where) {
  for (const FlowOp &op : graph.ops) {
    if (op.kind != FlowKind::State)
      continue;
    std::set<int32_t> own = opsOfState(graph, op);
    for (int32_t user : own)
      if (stages[static_cast<size_t>(user)] != stages[static_cast<size_t>(*own.begin())])
        return makeError(
            where + ": state '" + op.name + "' is used by '" +
            graph.ops[static_cast<size_t>(*own.begin())].name + "' in stage " +
            std::to_string(stages[static_cast<size_t>(*own.begin())]) + " and by '" +
            graph.ops[static_cast<size_t>(user)].name + "' in stage " +
            std::to_string(stages[static_cast<size_t>(user)]) +
            "; a state lies in one stage");
  }
  return {};
}

Expected<std::vector<int32_t>>
search::stagesByGlob(const FlowGraph &graph,
                     const std::vector<std::pair<std::string, int32_t>> &globs,
                     const std::string &where) {
  GlobStages stages(graph, where);
  int32_t count = 1;
  for (const auto &[glob, stage] : globs) {
    if (auto ok = stages.add(glob, stage); !ok)
      return tl::unexpected(ok.error());
    count = std::max(count, stage + 1);
  }
  auto result = stages.assign();
  if (!result)
    return result;
  if (auto ok = checkStates(graph, *result, where); !ok)
    return tl::unexpected(ok.error());
  std::set<int32_t> used(result->begin(), result->end());
  for (int32_t stage = 0; stage < count; ++stage)
    if (!used.count(stage))
      return makeError(where + ": stage " + std::to_string(stage) + " has no node");
  return result;
}

Expected<std::vector<int32_t>>
search::stagesByName(const FlowGraph &graph,
                     const std::map<std::string, int32_t> &stageOfNode,
                     const std::string &where) {
  GlobStages stages(graph, where);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (auto known = stageOfNode.find(graph.ops[i].name);
        graph.ops[i].kind == FlowKind::Compute && known != stageOfNode.end())
      stages.set(i, known->second);
  auto result = stages.assign();
  if (!result)
    return result;
  if (auto ok = checkStates(graph, *result, where); !ok)
    return tl::unexpected(ok.error());
  return result;
}

/// Gives ops without a stage that of their first reader, or 0.
static void placeBeforeReaders(const FlowGraph &graph, std::vector<int32_t> &stages) {
  std::vector<int32_t> first(graph.ops.size(), -1); // by op the stage of a reader
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Compute)
      continue;
    if (stages[i] < 0)
      stages[i] = std::max(first[i], 0);
    for (int32_t operand : op.operands)
      if (int32_t maker = graph.values[static_cast<size_t>(operand)].producer; maker >= 0)
        if (int32_t &known = first[static_cast<size_t>(maker)];
            known < 0 || stages[i] < known)
          known = stages[i];
  }
}

std::vector<int32_t>
search::stagesBeside(const FlowGraph &graph,
                     const std::map<std::string, int32_t> &stageOfNode,
                     const std::map<std::string, int32_t> &stageOfState) {
  auto stageIn = [](const std::map<std::string, int32_t> &known,
                    const std::string &name) {
    auto found = known.find(name);
    return found == known.end() ? -1 : found->second;
  };
  std::vector<int32_t> stages(graph.ops.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Compute)
      continue;
    stages[i] = stageIn(stageOfNode, op.name);
    for (int32_t operand : op.operands) {
      const int32_t maker = graph.values[static_cast<size_t>(operand)].producer;
      if (maker < 0)
        continue;
      const FlowOp &from = graph.ops[static_cast<size_t>(maker)];
      stages[i] = std::max(stages[i], from.kind == FlowKind::State
                                          ? stageIn(stageOfState, from.name)
                                          : stages[static_cast<size_t>(maker)]);
    }
  }
  placeBeforeReaders(graph, stages);
  return stages;
}
