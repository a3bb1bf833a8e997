//===- Schedule.h - Schedules that are right without running ----*- C++ -*-===//
//
// A pipeline is a set of programs, each run by ranks of its own, and transfers between
// them. A program has segments, which run once for every micro-batch or once in a
// request, and buffers that segments and transfers share. Micro-batch m of a buffer is in
// slot m mod slots. Each rank of a program follows a schedule, entry by entry: it waits
// for transfers, runs a segment for a micro-batch, starts transfers. Both ends of a
// transfer start it and wait for it; the receiver says by its start that its slot is
// free.
//
// `check` shows for every timing of the ranks that
//   - every segment runs for every micro-batch, every transfer happens, once each;
//   - a reading finds the micro-batch that it asks for: nothing is overwritten before its
//     last reading, nothing is touched that a transfer fills or written that one reads,
//     and what is summed over the micro-batches is whole when it is read;
//   - all ranks of a program come to their collectives in one order;
//   - no rank waits for ever.
// What is in a slot follows from the order of one rank's entries alone. Waiting is for
// starts only, and a start is never taken back, so one run in which every rank goes as
// far as it can decides about all.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_SCHEDULE_H
#define PARTITA_BASE_BUNDLE_SCHEDULE_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace partita::schedule {

/// A transfer of one micro-batch.
struct Flight {
  int64_t transfer = 0; ///< of Pipeline::transfers
  int64_t microBatch = 0;
  auto operator<=>(const Flight &) const = default;
};

struct Entry {
  int64_t segment = -1;   ///< of Program::segments; -1: none
  int64_t microBatch = 0; ///< 0 for a segment that runs once
  std::vector<Flight> waits, starts;
};

struct Schedule {
  std::vector<int64_t> ranks; ///< places in the mesh; of the only schedule empty: all
  std::vector<Entry> entries;
};

/// What several segments, or a segment and a transfer, share.
struct Buffer {
  std::string name;
  int64_t slots = 1;
  /// Bound to a tensor of the request: with one slot it is for all micro-batches, else
  /// slot m is for micro-batch m.
  bool input = false, output = false;
  /// Lasts from one request to the next. Segments read and write it in the order in which
  /// the program lists them, one segment in the order of micro-batches.
  bool state = false;
};

struct Segment {
  std::string name;
  bool once = false; ///< in a request, with buffers of one slot; else per micro-batch
  bool communicates = false;
  /// Of Program::buffers. What it reads and writes is summed over the micro-batches if a
  /// segment that runs once, or an input, has filled it before.
  std::vector<int64_t> reads, writes;
  /// It may do nothing: what it writes are states, or buffers that it reads.
  bool mayBeSkipped = false;
};

struct Program {
  std::string name;
  int64_t numRanks = 1;
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<Schedule> schedules;
};

struct Transfer {
  std::string name;
  int64_t from = 0, fromBuffer = 0, to = 0, toBuffer = 0; ///< programs, their buffers
  bool once = false; ///< in a request, between buffers of one slot
};

struct Pipeline {
  int64_t microBatches = 1;
  std::vector<Program> programs;
  std::vector<Transfer> transfers;
};

/// Adds the waits and starts of transfers to schedules that say only which segment runs
/// for which micro-batch when: a sender starts behind the segment that fills the buffer
/// and waits before its slot is filled again, a receiver starts as soon as nothing reads
/// the slot any more and waits before the first reading. What comes before the first
/// entry or behind the last is in an entry of its own without a segment. Transfers that
/// an entry names already stay as they are. The result is to be checked: the order may
/// not allow what is wanted. Indices are in range.
void complete(Pipeline &pipeline);

/// Whether all numbers lead somewhere; the rest of the check takes that for granted.
Expected<void> checkRanges(const Pipeline &pipeline);

/// The first thing that is wrong, by names: "program first, entry 4 (backward of
/// micro-batch 1): …". All indices may be out of range.
Expected<void> check(const Pipeline &pipeline);

} // namespace partita::schedule

#endif // PARTITA_BASE_BUNDLE_SCHEDULE_H
