//===- Worlds.h - One bundle for several numbers of ranks -------*- C++ -*-===//
//
// Kernels have local shapes, so a mesh has modules and task tables of its own. Weight
// files hold whole tensors and are shared. docs/elastic.md says what worlds are for.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_WORLDS_H
#define PARTITA_PASSES_PIPELINES_WORLDS_H

#include "passes/Pipelines/Compile.h"

namespace partita {

struct WorldReport {
  int64_t ranks = 0; ///< 0: of a compile that writes no bundle
  std::string mesh;
  CompileReport report;
};

/// Sentence about what a request asks for that has no meaning for several worlds; empty:
/// nothing, or it has one world.
std::string refusalOfWorlds(const Request &request);

/// Compiles the request, and again for each of its worlds: bundles inside of the first
/// one, under the name worlds/RANKS, which share those weight files that are equal. All
/// of them appear in one step. An error if two have the same number of ranks.
Expected<std::vector<WorldReport>>
compileWorlds(const Request &request, const Progress &progress, StopFlag stop = {});

/// Plans what a bundle was compiled from anew, for one axis of so many ranks, and writes
/// that bundle to `output`, in the place of one that is there. An error says which of
/// model, specification and external data is not here, or that the bundle is one of
/// several stages or entries, whose cut a person has chosen. `weightsDir`: is searched
/// first for external data.
Expected<void> planWorld(const std::string &bundle, int64_t ranks,
                         const std::string &output, const std::string &weightsDir,
                         const Progress &progress);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_WORLDS_H
