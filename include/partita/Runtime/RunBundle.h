//===- RunBundle.h - A bundle's ranks as threads of this process *- C++ -*-===//
#ifndef PARTITA_RUNTIME_RUNBUNDLE_H
#define PARTITA_RUNTIME_RUNBUNDLE_H

#include "partita/Base/Bundle/BundleRun.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Runtime/Session.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace partita::runtime {

/// Loads an entry of the bundle and runs requests on the same global inputs, by name; the
/// outputs of the last, as long as they are. The states that `states` names are set
/// before each request; after the last it has all of them as they were left.
Expected<std::vector<HostTensor>>
runBundle(const std::string &folder, const std::map<std::string, HostTensor> &inputs,
          std::map<std::string, HostTensor> &states, const BundleRun &how);

/// The same by a session of `options`, which name the entry, the weights and the flag
/// that stops it.
Expected<std::vector<HostTensor>>
runSession(const std::string &folder, const SessionOptions &options,
           const std::map<std::string, HostTensor> &inputs,
           std::map<std::string, HostTensor> &states, int repeat,
           const std::function<void(double)> &timed);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_RUNBUNDLE_H
