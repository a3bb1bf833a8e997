//===- SharedPlacesTest.cpp - Who touches what segments share -------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

#include <span>

using namespace partita;

TEST_CASE("segments touch what others use only where they name it") {
  // A value of two micro-batches in two slots, made by one segment and read by another;
  // between them runs a segment with an operand at `place` of 64 bytes.
  auto reason = [](uint64_t place, bool names, uint64_t read = 256) {
    TaskTableBuilder builder{Mesh()};
    const uint32_t value = builder.addBuffer(Space::Arena, 0, 64, 64, 2);
    const uint32_t own = builder.addBuffer(Space::Arena, place, 64);
    const uint32_t out = builder.addBuffer(Space::Arena, read, 64);
    builder.setMemory(512, 0, 0);
    builder.setProgram({"p", 2, {0}});
    task::Fill fill;
    fill.count = 16;
    auto segment = [&](const char *name, uint32_t operand, std::vector<uint32_t> reads,
                       std::vector<uint32_t> writes) {
      builder.addSegment({name, false, std::move(reads), std::move(writes)});
      builder.addTask({.source = "t", .operands = {operand}, .params = fill});
    };
    segment("make", value, {}, {value});
    segment("other", own, {},
            names ? std::vector<uint32_t>{own} : std::vector<uint32_t>{});
    segment("use", out, {value}, {});
    std::vector<schedule::Entry> entries;
    for (int64_t s = 0; s < 3; ++s)
      for (int64_t m = 0; m < 2; ++m)
        entries.push_back({s, m, {}, {}});
    builder.addSchedule({{}, entries});
    const std::string blob = builder.finish();
    auto table = TaskTable::read(std::as_bytes(std::span(blob)));
    return table ? std::string("none") : table.error().message;
  };
  const std::string refused =
      "the task table is damaged: task 1 (t) of segment 'other' touches the place of "
      "buffer 0, which the segment does not name and others use before and behind it";
  CHECK(reason(128, false) == "none");
  CHECK(reason(0, false) == refused);
  CHECK(reason(64, false) == refused); // the second slot
  CHECK(
      reason(64, true) ==
      "the task table is damaged: buffers 0 and 1, which segments share, lie in the same "
      "place and are in use at the same time");
  // Entries from the second on find the value: its last reader may use its place.
  CHECK(reason(128, false, 0) == "none");
}
