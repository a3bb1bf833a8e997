//===- SlotContents.cpp - What is in the slots of one rank ----------------===//
#include "SlotContents.h"

#include <algorithm>
#include <span>

using namespace partita;
using namespace partita::schedule;

SlotContents::SlotContents(const Pipeline &pipeline, size_t program)
    : pipeline(pipeline), program(pipeline.programs[program]),
      number(static_cast<int64_t>(program)) {
  const std::vector<Buffer> &buffers = this->program.buffers;
  firstSlot.push_back(0);
  for (const Buffer &buffer : buffers) {
    // More slots than micro-batches are never used.
    auto count = static_cast<size_t>(std::min(buffer.slots, pipeline.microBatches));
    firstSlot.push_back(slots.size() + count);
    for (size_t s = 0; s < count; ++s) {
      Slot &slot = slots.emplace_back();
      if (buffer.input || buffer.state)
        slot = {buffer.slots == 1 ? Slot::Shared : Slot::One, static_cast<int64_t>(s)};
    }
  }
  summing.resize(buffers.size());
  for (const Segment &segment : this->program.segments) {
    Touched &by = touched.emplace_back();
    by.reads.resize(buffers.size()), by.writes.resize(buffers.size());
    for (int64_t buffer : segment.reads)
      by.reads[static_cast<size_t>(buffer)] = true;
    for (int64_t buffer : segment.writes) {
      auto b = static_cast<size_t>(buffer);
      by.writes[b] = true;
      summing[b] += !segment.once && by.reads[b] && !buffers[b].state;
    }
  }
}

SlotContents::Slot &SlotContents::slotOf(int64_t buffer, int64_t microBatch) {
  auto b = static_cast<size_t>(buffer);
  return slots[firstSlot[b] + static_cast<size_t>(microBatch % program.buffers[b].slots)];
}

const std::string &SlotContents::nameOf(int64_t buffer) const {
  return program.buffers[static_cast<size_t>(buffer)].name;
}

std::string SlotContents::holds(const Slot &slot) const {
  switch (slot.kind) {
  case Slot::Empty:
    return "nothing";
  case Slot::One:
    return "micro-batch " + std::to_string(slot.microBatch);
  case Slot::Shared:
    return slot.sums == 0 ? "what all micro-batches share"
                          : "a sum of " + std::to_string(slot.sums) + " runs";
  case Slot::Summed:
    return "a sum of " + std::to_string(slot.sums) + " runs";
  }
  return "";
}

Expected<void> SlotContents::mayTouch(int64_t buffer, const Slot &slot,
                                      bool writes) const {
  if (slot.filling >= 0)
    return makeError("buffer " + nameOf(buffer) + " is being filled by transfer " +
                     pipeline.transfers[static_cast<size_t>(slot.filling)].name);
  if (writes && slot.reading != 0)
    return makeError("buffer " + nameOf(buffer) +
                     " is written while a transfer reads micro-batch " +
                     std::to_string(slot.microBatch) + " of it");
  return {};
}

bool SlotContents::isWhole(int64_t buffer, const Slot &slot) const {
  return slot.sums == summing[static_cast<size_t>(buffer)] * pipeline.microBatches;
}

Expected<void> SlotContents::reads(int64_t buffer, int64_t microBatch, bool once,
                                   bool sums) {
  Slot &slot = slotOf(buffer, microBatch);
  if (auto ok = mayTouch(buffer, slot, false); !ok)
    return ok;
  bool isOne = slot.kind == Slot::One && slot.microBatch == microBatch &&
               (!once || pipeline.microBatches == 1);
  bool isShared = slot.kind == Slot::Shared || slot.kind == Slot::Summed;
  if (isOne || (isShared && once && isWhole(buffer, slot)))
    return {};
  // Before the first addend and behind the last one every run reads the same.
  if (!once && (slot.kind == Slot::Shared || (slot.kind == Slot::Summed && sums)))
    return {};
  return makeError("buffer " + nameOf(buffer) + " is read" +
                   (once ? "" : " for micro-batch " + std::to_string(microBatch)) +
                   " and holds " + holds(slot));
}

/// What a state holds depends on who has touched it before.
Expected<void> SlotContents::touch(int64_t buffer, const Entry &entry, bool writes) {
  Slot &slot = slotOf(buffer, entry.microBatch);
  int64_t later = writes ? std::max(slot.readBy, slot.writtenBy) : slot.writtenBy;
  std::string what = "state " + nameOf(buffer) + " is " + (writes ? "written" : "read");
  if (later > entry.segment)
    return makeError(what + " after " +
                     program.segments[static_cast<size_t>(later)].name +
                     ", which the program lists later");
  if (slot.writtenBy == entry.segment && slot.writtenFor > entry.microBatch)
    return makeError(what + " after micro-batch " + std::to_string(slot.writtenFor));
  if (writes)
    slot.writtenBy = entry.segment, slot.writtenFor = entry.microBatch;
  else
    slot.readBy = std::max(slot.readBy, entry.segment);
  return {};
}

Expected<void> SlotContents::run(const Segment &segment, const Entry &entry) {
  int64_t m = entry.microBatch;
  if (!ran.emplace(entry.segment, m).second)
    return makeError("it has run before");
  const Touched &by = touched[static_cast<size_t>(entry.segment)];
  for (int64_t buffer : segment.reads)
    if (auto ok = reads(buffer, m, segment.once, by.writes[static_cast<size_t>(buffer)]);
        !ok)
      return ok;
  for (const auto *list : {&segment.reads, &segment.writes})
    for (int64_t buffer : *list)
      if (program.buffers[static_cast<size_t>(buffer)].state)
        if (auto ok = touch(buffer, entry, list == &segment.writes); !ok)
          return ok;
  for (int64_t buffer : segment.writes) {
    Slot &slot = slotOf(buffer, m);
    if (auto ok = mayTouch(buffer, slot, true); !ok)
      return ok;
    if (program.buffers[static_cast<size_t>(buffer)].state)
      continue; // it held something, and does so now
    bool isRead = by.reads[static_cast<size_t>(buffer)];
    if (segment.once)
      slot = {Slot::Shared, 0, isRead ? slot.sums : 0};
    else if (isRead && slot.kind != Slot::One)
      slot = {Slot::Summed, 0, slot.sums + 1};
    else if (slot.kind == Slot::Summed)
      return makeError("buffer " + nameOf(buffer) + " is overwritten and holds " +
                       holds(slot));
    else
      slot = {Slot::One, m};
  }
  return {};
}

Expected<void> SlotContents::start(Flight flight) {
  const Transfer &t = pipeline.transfers[static_cast<size_t>(flight.transfer)];
  std::string what = textOf(pipeline, flight);
  if (!started.insert(flight).second)
    return makeError(what + " is started twice");
  if (t.from == number) {
    Slot &slot = slotOf(t.fromBuffer, flight.microBatch);
    if (auto ok = reads(t.fromBuffer, flight.microBatch, t.once, false); !ok)
      return makeError(what + " is started: " + ok.error().message);
    ++slot.reading;
    return {};
  }
  Slot &slot = slotOf(t.toBuffer, flight.microBatch);
  if (auto ok = mayTouch(t.toBuffer, slot, true); !ok)
    return makeError(what + " is started: " + ok.error().message);
  if (slot.kind == Slot::Summed)
    return makeError(what + " overwrites buffer " + nameOf(t.toBuffer) +
                     ", which holds " + holds(slot));
  slot = {};
  slot.filling = flight.transfer;
  return {};
}

Expected<void> SlotContents::wait(Flight flight) {
  const Transfer &t = pipeline.transfers[static_cast<size_t>(flight.transfer)];
  if (!started.count(flight))
    return makeError("it waits for " + textOf(pipeline, flight) +
                     ", which it has not started");
  if (!waited.insert(flight).second)
    return makeError("it waits twice for " + textOf(pipeline, flight));
  if (t.from == number)
    --slotOf(t.fromBuffer, flight.microBatch).reading;
  else
    slotOf(t.toBuffer, flight.microBatch) = {t.once ? Slot::Shared : Slot::One,
                                             flight.microBatch};
  return {};
}

Expected<void> SlotContents::next(const Entry &entry) {
  for (Flight flight : entry.waits)
    if (auto ok = wait(flight); !ok)
      return ok;
  if (entry.segment >= 0)
    if (auto ok = run(program.segments[static_cast<size_t>(entry.segment)], entry); !ok)
      return ok;
  for (Flight flight : entry.starts)
    if (auto ok = start(flight); !ok)
      return ok;
  return {};
}

Expected<void> SlotContents::checkOutput(int64_t buffer) const {
  auto b = static_cast<size_t>(buffer);
  std::span list(slots.begin() + static_cast<ptrdiff_t>(firstSlot[b]),
                 slots.begin() + static_cast<ptrdiff_t>(firstSlot[b + 1]));
  for (size_t s = 0; s < list.size(); ++s) {
    const Slot &slot = list[s];
    bool isShared = slot.kind == Slot::Shared || slot.kind == Slot::Summed;
    bool ok = (isShared && isWhole(buffer, slot)) ||
              (slot.kind == Slot::One && slot.microBatch == static_cast<int64_t>(s) &&
               (list.size() > 1 || pipeline.microBatches == 1));
    if (!ok)
      return makeError("output " + nameOf(buffer) + ", slot " + std::to_string(s) +
                       ", holds " + holds(slot) + " at the end");
  }
  return {};
}

Expected<void> SlotContents::end() const {
  for (size_t s = 0; s < program.segments.size(); ++s) {
    const Segment &segment = program.segments[s];
    for (int64_t m = 0; m < (segment.once ? 1 : pipeline.microBatches); ++m)
      if (!ran.count({static_cast<int64_t>(s), m}))
        return makeError("segment " + segment.name + " does not run" +
                         (segment.once ? "" : " for micro-batch " + std::to_string(m)));
  }
  for (size_t i = 0; i < pipeline.transfers.size(); ++i) {
    const Transfer &t = pipeline.transfers[i];
    if (t.from != number && t.to != number)
      continue;
    for (int64_t m = 0; m < (t.once ? 1 : pipeline.microBatches); ++m)
      for (const auto *done : {&started, &waited})
        if (Flight flight{static_cast<int64_t>(i), m}; !done->count(flight))
          return makeError(textOf(pipeline, flight) + " is never " +
                           (done == &started ? "started" : "waited for"));
  }
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].output)
      if (auto ok = checkOutput(static_cast<int64_t>(b)); !ok)
        return ok;
  return {};
}
