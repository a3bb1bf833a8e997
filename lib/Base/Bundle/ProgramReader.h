//===- ProgramReader.h - A table as one program of several ------*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_PROGRAMREADER_H
#define PARTITA_LIB_BASE_BUNDLE_PROGRAMREADER_H

#include "RecordReader.h"

namespace partita {

/// Reads ranks, transfers and schedules; all else has been read. What is checked here is
/// what a rank needs to follow its schedule: that indices lead somewhere, and that it
/// waits for what it has started and nothing else. schedule::check looks at the rest, in
/// all programs together.
class TaskTable::ProgramReader : RecordReader {
public:
  ProgramReader(TaskTable &table, const fb::TaskTable &from)
      : RecordReader(table.words.size() * 8), table(table), from(from) {}

  Expected<void> run();

private:
  Expected<void> ranks();
  Expected<void> transfers();
  Expected<void> transfer(const fb::Transfer &t, const std::string &where);
  Expected<void> schedules();
  Expected<void> schedule(const fb::Schedule &s, const std::string &where);
  Expected<schedule::Entry> entry(const fb::Entry &e, const std::string &where);
  Expected<std::vector<schedule::Flight>>
  flights(const flatbuffers::Vector<const fb::Flight *> *list, const std::string &where);
  Expected<void> checkFlights(const schedule::Schedule &s,
                              const std::string &where) const;
  /// Every rank has one schedule.
  Expected<void> checkRanks() const;

  TaskTable &table;
  const fb::TaskTable &from;
};

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_PROGRAMREADER_H
