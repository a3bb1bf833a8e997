//===- Experts.h - Experts that tokens choose -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_EXPERTS_H
#define PARTITA_PASSES_IMPORT_EXPERTS_H

#include "passes/Import/Importer.h"

namespace partita::import {

/// MoE and QMoE of com.microsoft.
void addExperts(HandlerTable &table);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_EXPERTS_H
