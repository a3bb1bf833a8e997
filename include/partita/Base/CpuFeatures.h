//===- CpuFeatures.h - What code needs of a CPU -----------------*- C++ -*-===//
//
// A bundle lists by LLVM's names all that its kernels may use of a CPU. The runtime,
// which has no LLVM, knows for each name how a CPU and its operating system tell that
// they have it. Names that only tune code, as "slow-lea", are no such features.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_CPUFEATURES_H
#define PARTITA_BASE_CPUFEATURES_H

#include "partita/Base/Error.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// All names that this build knows; none but on x86.
std::vector<std::string_view> knownCpuFeatures();

/// Whether this host has a feature of that name.
bool hasCpuFeature(std::string_view name);

/// An error, half a sentence, about the first of the features that is missing or that
/// this build does not know. `has`: another host's, for tests; null: this host's.
Expected<void>
checkCpuFeatures(const std::vector<std::string> &features,
                 const std::function<bool(std::string_view)> &has = nullptr);

} // namespace partita

#endif // PARTITA_BASE_CPUFEATURES_H
