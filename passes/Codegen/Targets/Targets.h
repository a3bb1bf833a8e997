//===- Targets.h - The targets that there are -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_TARGETS_TARGETS_H
#define PARTITA_PASSES_CODEGEN_TARGETS_TARGETS_H

#include "passes/Codegen/Common/TargetModel.h"

#include <memory>
#include <string>
#include <string_view>

namespace partita::codegen {

/// `cpu` (OneDnnModel.h) or `plain` (PlainModel.h), with code for the CPU of LLVM's name;
/// empty or "native": this host's.
Expected<std::unique_ptr<TargetModel>> targetNamed(std::string_view name,
                                                   const std::string &cpu = "");

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_TARGETS_TARGETS_H
