//===- ReadParts.h - Slices of what was joined before -----------*- C++ -*-===//
#ifndef PARTITA_PASSES_SIMPLIFY_READPARTS_H
#define PARTITA_PASSES_SIMPLIFY_READPARTS_H

#include "mlir/IR/PatternMatch.h"

namespace partita {

/// slice(concat(a, b)) → slice(b), where the range lies in b: what is stacked and taken
/// apart again is never joined. Of a range in several parts each part is sliced and the
/// slices are joined, if nothing else reads the joined value, and at most half of it is
/// wanted: then the smaller copy pays. Reshapes between the two, such as those of a
/// stack, are of the parts then.
///
/// Half, as a state that rolls (docs/state.md) is a concatenation without its first row,
/// which code generation makes without moving the others.
void addReadParts(mlir::RewritePatternSet &patterns);

} // namespace partita

#endif // PARTITA_PASSES_SIMPLIFY_READPARTS_H
