//===- MarkStates.h - Inputs that are what the outputs were -----*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_MARKSTATES_H
#define PARTITA_PASSES_IMPORT_MARKSTATES_H

#include "partita/Base/Error.h"
#include "partita/Onnx/Model.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace partita {

/// Makes states (`dist.state`) of inputs of `@main` that are the outputs of the run
/// before. A binding is "INPUT=OUTPUT"; stars in the input's name stand for the same in
/// the output's: "past_key_values.*=present.*". The state is called after the input.
/// Where the output is a Concat of the input and more rows, its last rows, as many as the
/// input has, are what the next run gets.
///
/// An error names the binding and what is wrong: no such input or output, unequal types,
/// an end that is a state already.
Expected<void> markStates(mlir::ModuleOp module,
                          const std::vector<std::string> &bindings);

/// Makes states by the bindings that are given and by those of the model's property
/// (onnx_model::statesKey); an error of the latter names the file.
Expected<void> markModelStates(mlir::ModuleOp module,
                               const std::vector<std::string> &given,
                               const onnx_model::Model &model);

} // namespace partita

#endif // PARTITA_PASSES_IMPORT_MARKSTATES_H
