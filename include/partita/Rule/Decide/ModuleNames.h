//===- ModuleNames.h - Modules of the framework's model ---------*- C++ -*-===//
#ifndef PARTITA_RULE_DECIDE_MODULENAMES_H
#define PARTITA_RULE_DECIDE_MODULENAMES_H

#include "partita/Rule/Sharding/Flow.h"

#include <map>

namespace partita {

/// Whether a shell-style pattern, or the name itself, matches.
bool matchesGlob(const std::string &glob, const std::string &name);

/// The ops of every module, ascending, by its path. The ops of "model.layers.0.q_proj"
/// are ops of "model.layers.0" and of "model" as well.
std::map<std::string, std::vector<int32_t>> moduleOps(const FlowGraph &graph);

/// Whether `glob` means the op: by its name, or by a module that it is in.
bool isNamed(const FlowGraph &graph, const FlowOp &op, const std::string &glob);

/// What a user who wrote `glob`, which matches nothing, may have meant, as the rest of a
/// sentence: "; did you mean 'model.layers.*.q_proj' or …?", or "" where nothing is near.
/// For "*.q_proj.weight" also what the nodes of a module "*.q_proj" read.
std::string nearMisses(const FlowGraph &graph, const std::string &glob);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_MODULENAMES_H
