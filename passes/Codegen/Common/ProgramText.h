//===- ProgramText.h - Kernels and programs as text -------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_PROGRAMTEXT_H
#define PARTITA_PASSES_CODEGEN_COMMON_PROGRAMTEXT_H

#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

/// Every kernel, tensor and task, for people and tests.
std::string programText(const Program &program);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_PROGRAMTEXT_H
