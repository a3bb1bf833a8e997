//===- StateParts.h - Which rank holds what of a state ----------*- C++ -*-===//
#ifndef PARTITA_RUNTIME_STATEPARTS_H
#define PARTITA_RUNTIME_STATEPARTS_H

#include "partita/Base/DType.h"
#include "partita/Base/Layout/Layout.h"

#include <cstdint>
#include <string>
#include <vector>

namespace partita::runtime {

/// Elements of a tensor that a dense part of it has: by dim of the tensor the runs, by
/// ascending place in the part (`local`).
using Runs = std::vector<std::vector<DimRun>>;

/// A slot of a state as one rank holds it.
struct StatePart {
  int rank = 0; ///< of the run
  uint32_t slot = 0;
  /// Parts of one slot that have one number hold the same elements.
  int64_t block = 0;
  Runs runs;                       ///< by dim of the whole state
  std::vector<int64_t> localShape; ///< of the rank's dense tensor, with padding
};

/// A state of a run, and who holds it.
struct HeldState {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
  bool isWeight = false; ///< it begins as a weight of the model
  std::vector<StatePart> parts = {};
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_STATEPARTS_H
