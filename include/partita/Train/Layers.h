//===- Layers.h - The layers of a program by their structure ----*- C++ -*-===//
//
// A stack of layers is a row of ops that repeats: the op p places on is of the same kind,
// for at least two times p places. Where a layer begins is not said by that, as any place
// of the row can be the first. It is taken to begin where the least goes on from before
// it: between two transformer layers that is the residual stream alone.
//
//     kinds     e  n q s o a n u d a  n q s o a n u d a  n h
//     crossing  -  1 2 …
//     layers    -  0 0 0 0 0 0 0 0 0  1 1 1 1 1 1 1 1 1  - -
//
// Layers go by the order of the program, which has the layers of a file one behind the
// other. The search follows the data flow instead (lib/Search/Successors.h), as it needs
// pairs of ops and not where a layer ends.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TRAIN_LAYERS_H
#define PARTITA_TRAIN_LAYERS_H

#include <cstdint>
#include <span>
#include <vector>

namespace partita::train {

/// Per place of a program the number of its layer, ascending over all stacks, or -1.
/// `kinds`: equal ones are copies of each other. `crossing`: bytes that are made before a
/// place and read there or behind it.
std::vector<int32_t> layersOf(std::span<const size_t> kinds,
                              std::span<const int64_t> crossing);

} // namespace partita::train

#endif // PARTITA_TRAIN_LAYERS_H
