//===- RunBundle.h - Who runs a bundle for the compiler ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
#define PARTITA_PASSES_PIPELINES_RUNBUNDLE_H

#include "partita/Base/Bundle/BundleRun.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace partita {

/// Loads an entry of a bundle and runs requests on the same global inputs, by name; gives
/// the outputs of the last. The states that `states` names are set before each request;
/// after the last it has all of them as they were left. The compiler does not link the
/// runtime: a tool that does passes `runtime::runBundle`.
using BundleRunner = std::function<Expected<std::vector<HostTensor>>(
    const std::string &folder, const std::map<std::string, HostTensor> &inputs,
    std::map<std::string, HostTensor> &states, const BundleRun &how)>;

/// Runs the bundle of a function on its arguments, states among them, and gives its
/// results, with what becomes of states.
Expected<std::vector<HostTensor>> runBundleOf(mlir::func::FuncOp function,
                                              const BundleRunner &run,
                                              const std::string &folder,
                                              const std::vector<HostTensor> &arguments,
                                              const BundleRun &how);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RUNBUNDLE_H
