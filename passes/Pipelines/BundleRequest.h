//===- BundleRequest.h - What a bundle was compiled by ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_BUNDLEREQUEST_H
#define PARTITA_PASSES_PIPELINES_BUNDLEREQUEST_H

#include "passes/Pipelines/Request.h"

namespace partita {

struct BundleSource {
  std::string model;      ///< where the model is now; empty: as the plan says
  std::string entry;      ///< empty: the first
  std::string weightsDir; ///< is searched first for external data; empty: none
  /// The request of a pipeline has the plan, and no mesh, which the plan has.
  bool plansStages = false;
};

/// The request that compiles an entry of a bundle again, from the model and by the plan
/// that the bundle has. A bundle has no program of any level: it follows from these two.
///
/// The request of a pipeline has neither mesh nor plan, so that it names the model alone,
/// unless the source asks for them.
/// An error says which file is not there.
Expected<Request> requestOf(const std::string &bundle, const BundleSource &source);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_BUNDLEREQUEST_H
