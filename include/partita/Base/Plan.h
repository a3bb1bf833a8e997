//===- Plan.h - Everything that was decided, as a file ----------*- C++ -*-===//
//
// plan.json says how a model is spread: per stage the mesh and, for every op in program
// order, its strategy, and the layouts of arguments and results. It is written into every
// bundle, read by reports and by verification, and accepted by a later compile
// (`--plan FILE`) instead of deciding anew.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_PLAN_H
#define PARTITA_BASE_PLAN_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace partita {

/// Of plan.json; raised when an older reader could misread a newer file.
inline constexpr int64_t planFormat = 1;

struct PlanNode {
  std::string name;     ///< the ONNX node it came from
  std::string op;       ///< e.g. "graph.contract"
  std::string strategy; ///< Strategy::str
};
struct PlanTensor {
  std::string name, layout; ///< Layout::str
};
struct PlanCollective {
  std::string op, axes, node;
  int64_t bytes = 0; ///< that one rank receives, at most
};

struct PlanStage {
  std::string mesh;            ///< Mesh::str
  std::vector<PlanNode> nodes; ///< in program order
  std::vector<PlanTensor> arguments, results;
  std::vector<PlanCollective> collectives;
};

struct Plan {
  std::string model;               ///< absolute path of the ONNX file
  std::vector<std::string> shapes; ///< NAME=1,128 as given
  std::string mode;
  std::vector<std::string> notes; ///< what the user was told
  std::vector<PlanStage> stages;

  std::string json() const;
};

/// Reads and checks a plan; the error names the file and the place in it.
Expected<Plan> readPlan(const std::string &path);

} // namespace partita

#endif // PARTITA_BASE_PLAN_H
