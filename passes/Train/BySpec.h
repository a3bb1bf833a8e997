//===- BySpec.h - A program made of @main by a specification ----*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_BYSPEC_H
#define PARTITA_PASSES_TRAIN_BYSPEC_H

#include "partita/Train/Spec.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <optional>

namespace partita::train {

/// Makes something of `@main` by a specification: `given`, or that of the file `path`.
/// `ofFile`: the end of the sentence that refuses a step of the model's file
/// ("training_info").
/// Failures are errors on `@main`, or on the module if there is none.
mlir::LogicalResult
bySpec(mlir::ModuleOp module, const std::optional<Spec> &given, const std::string &path,
       const std::string &ofFile,
       const std::function<Expected<void>(mlir::func::FuncOp, Spec &)> &derive);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_BYSPEC_H
