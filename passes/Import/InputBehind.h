//===- InputBehind.h - What an import cannot know ---------------*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_INPUTBEHIND_H
#define PARTITA_PASSES_IMPORT_INPUTBEHIND_H

#include "mlir/IR/Value.h"

#include <string>

namespace partita::import {

/// The model's input of real numbers, as a picture, that a value is computed from, if no
/// integers are among what it is computed from: nobody would bind it, as the program
/// would be that of one picture. Else "".
std::string pictureBehind(mlir::Value value);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_INPUTBEHIND_H
