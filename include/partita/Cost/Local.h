//===- Local.h - Passes over local memory: masks and copies -----*- C++ -*-===//
//
// At streaming speed, in a kernel of their own. A
// mask that is fused into its neighbour costs nothing and is not priced at all.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_LOCAL_H
#define PARTITA_COST_LOCAL_H

#include "partita/Cost/Compute.h"

namespace partita {

/// Making a dense copy of `bytes`.
inline double copySeconds(const Device &device, double bytes) {
  return groupSeconds(device, 2 * bytes);
}

/// Writing a neutral value over the padding of a local block in place: `padding` bytes
/// are written, nothing is read.
inline double maskSeconds(const Device &device, double padding) {
  return padding == 0 ? 0 : groupSeconds(device, padding);
}

} // namespace partita

#endif // PARTITA_COST_LOCAL_H
