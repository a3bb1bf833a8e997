//===- BundleRun.h - How a bundle is run on tensors -------------*- C++ -*-===//
#ifndef PARTITA_BASE_BUNDLE_BUNDLERUN_H
#define PARTITA_BASE_BUNDLE_BUNDLERUN_H

#include "partita/Base/Bundle/WeightOptions.h"
#include "partita/Base/Stop.h"

#include <functional>
#include <string>

namespace partita {

struct BundleRun {
  std::string entry = {}; ///< empty: the first
  int repeat = 1;         ///< requests on the same inputs
  /// Receives the seconds of each request; null: nobody does.
  std::function<void(double)> timed = {};
  WeightOptions weights = {};
  /// Seconds without progress of a rank after which the run ends with an error.
  double timeout = 60;
  /// Once it is raised, the run ends with the error "cancelled".
  StopFlag stop = {};
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_BUNDLERUN_H
