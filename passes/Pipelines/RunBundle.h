//===- RunBundle.h - Who runs a bundle for the compiler ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
#define PARTITA_PASSES_PIPELINES_RUNBUNDLE_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace partita {

/// Loads a bundle and runs `repeat` requests on the same global inputs; gives the outputs
/// of the last. `timed` receives the seconds of each request. The compiler does not link
/// the runtime: a tool that does passes `runtime::runBundle`.
using BundleRunner = std::function<Expected<std::vector<HostTensor>>(
    const std::string &folder, const std::vector<HostTensor> &inputs, int repeat,
    const std::function<void(double)> &timed)>;

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
