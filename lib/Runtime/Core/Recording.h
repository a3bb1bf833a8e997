//===- Recording.h - What happened on all ranks -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_RECORDING_H
#define PARTITA_LIB_RUNTIME_CORE_RECORDING_H

#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/Transport.h"

namespace partita::runtime {

/// What the spans of this table's ranks stand for.
RunProgram programOf(const TaskTable &table);

/// Between processes: rank 0 gets everyone's spans, by rank; the others send theirs.
/// False if the transport failed.
bool exchangeSpans(Transport &transport, const std::vector<RunSpan> &mine,
                   std::vector<std::vector<RunSpan>> &all);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_RECORDING_H
