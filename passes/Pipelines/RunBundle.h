//===- RunBundle.h - A bundle's ranks as threads of this process *- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
#define PARTITA_PASSES_PIPELINES_RUNBUNDLE_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace partita {

/// Loads the bundle and runs `repeat` requests on the same global inputs; the outputs of
/// the last. `timed` receives the seconds of each request.
Expected<std::vector<HostTensor>>
runBundleHere(const std::string &folder, const std::vector<HostTensor> &inputs,
              int repeat = 1, const std::function<void(double)> &timed = {});

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
