//===- CompareLocal.h - One rank's program, as expected and as it is -*- C++ -*-===//
//
// search::localProgram against what the code generator sees of the partitioned program.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_PLANFIGURES_COMPARELOCAL_H
#define PARTITA_TEST_PLANFIGURES_COMPARELOCAL_H

#include "partita/Search/LocalProgram.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita {

/// Ops that differ between what is expected and the partitioned function and those that
/// it runs. With `print`, the first few are told.
int64_t opsUnlike(const std::vector<search::LocalFunction> &expected,
                  mlir::func::FuncOp function, bool print);

} // namespace partita

#endif // PARTITA_TEST_PLANFIGURES_COMPARELOCAL_H
