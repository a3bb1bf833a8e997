//===- KeepFewer.h - Boxes that nobody reads are not kept -------*- C++ -*-===//
#ifndef PARTITA_PASSES_SIMPLIFY_KEEPFEWER_H
#define PARTITA_PASSES_SIMPLIFY_KEEPFEWER_H

#include "mlir/IR/PatternMatch.h"

namespace partita {

/// suppress {most = 27000} → suppress {most = 300}, where only the first 300 boxes that
/// it keeps are read, and their number only as min(number, 300) or less: the best
/// detections of a picture, which detectors take behind the suppression. The result is
/// the same up to place 300, and the suppression ends once so many are kept. Readers are
/// followed out of a branch and through a mask of the places below the number.
void addKeepFewer(mlir::RewritePatternSet &patterns);

} // namespace partita

#endif // PARTITA_PASSES_SIMPLIFY_KEEPFEWER_H
