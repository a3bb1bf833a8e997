//===- TaskWork.h - What a task computes and moves --------------*- C++ -*-===//
#ifndef PARTITA_BASE_BUNDLE_TASKWORK_H
#define PARTITA_BASE_BUNDLE_TASKWORK_H

#include "partita/Base/Bundle/TaskTable.h"

namespace partita::task {

/// For profiles: the least that a run of a task has to do. Not what it does: a library
/// may compute with fewer multiplications, and what is in a cache is not read from
/// memory.
struct Work {
  double flops = 0; ///< a multiply-add counts two
  double bytes = 0; ///< of operands: each element that is read or written, once
};

/// Of products, convolutions and pooling by their shapes, of compiled kernels as the code
/// generator wrote it down, of copies their bytes. Nothing for what communicates, waits
/// or controls. The parameters have been checked (operandNeeds).
Work workOf(const Params &params, const Mesh &mesh);

} // namespace partita::task

#endif // PARTITA_BASE_BUNDLE_TASKWORK_H
