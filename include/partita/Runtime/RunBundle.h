//===- RunBundle.h - A bundle's ranks as threads of this process *- C++ -*-===//
#ifndef PARTITA_RUNTIME_RUNBUNDLE_H
#define PARTITA_RUNTIME_RUNBUNDLE_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace partita::runtime {

/// Loads the bundle and runs `repeat` requests on the same global inputs; the outputs of
/// the last. `timed` receives the seconds of each request.
Expected<std::vector<HostTensor>> runBundle(const std::string &folder,
                                            const std::vector<HostTensor> &inputs,
                                            int repeat,
                                            const std::function<void(double)> &timed);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_RUNBUNDLE_H
