//===- MicroBatch.h - The program of a part of the batch --------*- C++ -*-===//
//
// A file says its program for a batch of one size, often in numbers: reshapes' shapes,
// slices' ends, constants as long as the batch. Import has read all of these by then, so
// that the batch is divided in the program: where it goes is followed from the first dims
// of what carries it, through the rules of the ops, and what scales with it is what the
// rules say of a part (docs/micro-batches.md).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_MICROBATCH_H
#define PARTITA_PASSES_PIPELINES_MICROBATCH_H

#include "passes/Pipelines/Compiler.h"

namespace partita {

/// Tensors with the batch as first dim: numbers of arguments and results of @main.
struct BatchInterface {
  std::vector<unsigned> arguments, results;
};

/// Makes the imported program of a compiler that of one of `parts` equal parts of the
/// batch: types, attributes that say sizes, and constants. It computes for these rows
/// what the whole program does. Nothing that is returned depends on the batch but
/// `batch.results`. Errors name what does not scale: a node in which rows meet, a
/// constant whose numbers differ from part to part, with the node that reads it.
Expected<void> takeMicroBatch(Compiler &compiler, const BatchInterface &batch,
                              int64_t parts);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_MICROBATCH_H
