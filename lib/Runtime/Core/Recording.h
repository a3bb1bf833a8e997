//===- Recording.h - What happened on all ranks -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_RECORDING_H
#define PARTITA_LIB_RUNTIME_CORE_RECORDING_H

#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/Transport.h"

namespace partita::runtime {

/// What the spans of this table's ranks stand for.
RunProgram programOf(const TaskTable &table);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_RECORDING_H
