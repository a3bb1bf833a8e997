//===- SharedPlaces.h - Who touches what segments share ---------*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_SHAREDPLACES_H
#define PARTITA_LIB_BASE_BUNDLE_SHAREDPLACES_H

#include "partita/Base/Bundle/TaskTable.h"

namespace partita {

/// Checks that segments touch each other's memory as they say. A buffer that segments or
/// transfers name is *in use* from the first entry of a schedule that touches it to the
/// last: an input from the begin of a request, an output or state to its end. Meanwhile
/// no other such buffer lies in its place, in any slot, and a task of another entry
/// touches the place only if its segment names the buffer, in `reads` or `writes`. So
/// what the proof of schedules (schedule::check) says of buffers by their names holds of
/// their bytes: a slot that lies where another is used meanwhile, or scratch over a value
/// that a transfer sends, is an error, which names both.
///
/// The table has been read. One of one segment without transfers shares nothing.
Expected<void> checkSharedPlaces(const TaskTable &table);

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_SHAREDPLACES_H
