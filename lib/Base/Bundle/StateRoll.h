//===- StateRoll.h - States that roll, in a table that is read --*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_STATEROLL_H
#define PARTITA_LIB_BASE_BUNDLE_STATEROLL_H

#include "partita/Base/Bundle/TaskTable.h"

namespace partita {

/// Whether a tensor may roll as it says, and its buffer has the rows for it. The table
/// has its layouts and buffers; `where` names the tensor.
Expected<void> checkRoll(const TaskTable &table, const TensorView &t,
                         const std::string &where);

/// Whether an operand in this buffer is in its state wherever the base may be. True for
/// buffers of other states and spaces. The table has its tensors.
bool staysInRoll(const TaskTable &table, const BufferView &buffer);

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_STATEROLL_H
