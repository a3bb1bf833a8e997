//===- OneDnnModel.cpp - The target cpu -----------------------------------===//
#include "passes/Codegen/OneDnn/OneDnnModel.h"

#include "partita/Runtime/OneDnn.h"

using namespace partita;
using namespace partita::codegen;

OneDnnModel::OneDnnModel(CpuTarget code)
    : CpuModel(name, kernels::cpu, onednn::engineFor(code.required), code) {}
