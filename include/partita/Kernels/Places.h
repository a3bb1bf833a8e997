//===- Places.h - In which order values lie, and what is copied -*- C++ -*-===//
//
// Follows a program in the order in which its tasks are formed: results get an order in
// memory that their kernel or call writes, views see it otherwise, and what a reader
// cannot take as it lies is copied first. The rules (View.h) are those by which tasks are
// formed; what is left out are places in states that move on, and results that a product
// writes transposed.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_PLACES_H
#define PARTITA_KERNELS_PLACES_H

#include "partita/Kernels/Group.h"

namespace partita::kernels {

/// A kernel that moves elements and computes nothing.
struct CopyKernel {
  int32_t op = -1;   ///< for which it runs
  int64_t bytes = 0; ///< that it stores
};

/// Kernels that copy, in the order of their ops. Copies from one dense tensor to another
/// are none: they need no kernel.
std::vector<CopyKernel> copiesOf(const LocalProgram &program, const Grouping &grouping,
                                 const Target &target);

} // namespace partita::kernels

#endif // PARTITA_KERNELS_PLACES_H
