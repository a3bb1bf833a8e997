//===- KernelPrice.h - What a plan takes by its kernels ---------*- C++ -*-===//
//
// A search prices ops one by one and pairs of them (Timing.h): a value that several ops
// read is written and read by each, though they may share a kernel. The price of a plan
// that is decided needs no such model. One rank's program is known (LocalProgram.h), and
// so are its kernels (partita/Kernels/Group.h):
//
//     kernel    the longer of its operations and its traffic, and a launch: what enters
//               is read once, what others read is written (groupSeconds)
//     call      as the search has it, and the operands of its post-ops
//     mask      of padding: written
//
//     gelu by tanh of 8,192 × 4,096 in bf16     by pairs    652 µs on an A100
//                                               by kernels   83
//
// Conversions are priced as by the search: alone, or beside kernels where the stack says
// so (KernelTimeline.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_KERNELPRICE_H
#define PARTITA_SEARCH_KERNELPRICE_H

#include "partita/Kernels/LocalProgram.h"
#include "partita/Kernels/Target.h"
#include "partita/Search/Model.h"

namespace partita::search {

/// Target that joins ops into kernels by the device's own rates: operations of its
/// pointwise rate, bytes of its memory, its launch. Functions of a product's result are
/// post-ops of its call, unless they are apart (MatmulModel::functionsApart). A stack
/// that is eager joins nothing.
kernels::Target kernelTarget(const Device &device, const Stack &stack = {});

/// Price of a decided program by its kernels.
PlanCost priceKernels(Timing &timing, const Decided &plan, const kernels::Target &target);

} // namespace partita::search

#endif // PARTITA_SEARCH_KERNELPRICE_H
