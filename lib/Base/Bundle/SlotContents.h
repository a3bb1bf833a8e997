//===- SlotContents.h - What is in the slots of one rank --------*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_SLOTCONTENTS_H
#define PARTITA_LIB_BASE_BUNDLE_SLOTCONTENTS_H

#include "partita/Base/Bundle/Schedule.h"

#include <map>
#include <set>

namespace partita::schedule {

/// "transfer act of micro-batch 3", "forward of micro-batch 3"; indices are in range.
std::string textOf(const Pipeline &pipeline, Flight flight);
std::string textOf(const Program &program, const Entry &entry);

/// Follows one schedule of a program, entry by entry; indices are in range.
class SlotContents {
public:
  SlotContents(const Pipeline &pipeline, size_t program);

  /// What is wrong with the next entry.
  Expected<void> next(const Entry &entry);
  /// What is missing at the end.
  Expected<void> end() const;

private:
  /// What a slot holds.
  struct Slot {
    enum Kind : uint8_t {
      Empty,
      One,    ///< micro-batch `microBatch`
      Shared, ///< the same for all
      Summed  ///< so far by `sums` segment runs
    } kind = Empty;
    int64_t microBatch = 0, sums = 0;
    int64_t filling = -1; ///< transfer in flight that fills it
    int reading = 0;      ///< transfers in flight that read it
    /// Of a state: the last of the segments that have done so, as they are listed.
    int64_t readBy = -1, writtenBy = -1;
    int64_t writtenFor = -1; ///< micro-batch
  };

  /// What a segment reads and writes, by buffer.
  struct Touched {
    std::vector<bool> reads, writes;
  };

  Slot &slotOf(int64_t buffer, int64_t microBatch);
  const std::string &nameOf(int64_t buffer) const;
  std::string holds(const Slot &slot) const;
  Expected<void> mayTouch(int64_t buffer, const Slot &slot, bool writes) const;
  Expected<void> reads(int64_t buffer, int64_t microBatch, bool once, bool sums);
  Expected<void> touch(int64_t buffer, const Entry &entry, bool writes);
  Expected<void> run(const Segment &segment, const Entry &entry);
  Expected<void> start(Flight flight);
  Expected<void> wait(Flight flight);
  /// Whether every segment that sums into the buffer has run for every micro-batch.
  bool isWhole(int64_t buffer, const Slot &slot) const;
  Expected<void> checkOutput(int64_t buffer) const;

  const Pipeline &pipeline;
  const Program &program;
  int64_t number;
  std::vector<Slot> slots;                   ///< those of buffer 0, of buffer 1, …
  std::vector<size_t> firstSlot;             ///< by buffer, and behind the last
  std::vector<Touched> touched;              ///< by segment
  std::vector<int64_t> summing;              ///< by buffer: segments
  std::set<std::pair<int64_t, int64_t>> ran; ///< segment, micro-batch
  std::set<Flight> started, waited;
};

} // namespace partita::schedule

#endif // PARTITA_LIB_BASE_BUNDLE_SLOTCONTENTS_H
