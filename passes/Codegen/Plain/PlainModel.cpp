//===- PlainModel.cpp - The target plain ----------------------------------===//
#include "passes/Codegen/Plain/PlainModel.h"

#include "partita/Runtime/Plain.h"

using namespace partita;
using namespace partita::codegen;

PlainModel::PlainModel(CpuTarget code)
    : CpuModel(name, kernels::cpu, plain::loops(), std::move(code)) {}
