//===- TaskPiecesTest.cpp - Exchanges by pieces in task tables ------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

using namespace partita;

/// A table with one exchange of [8, 32] on two ranks.
static std::string tableOf(const char *after, std::vector<fb::Piece> pieces,
                           std::vector<ExchangeRun> runs) {
  Mesh mesh = *Mesh::parse("dp=2");
  TaskTableBuilder builder{mesh};
  uint32_t x = builder.addBuffer(Space::Arena, 0, 4096);
  uint32_t y = builder.addBuffer(Space::Arena, 4096, 4096);
  builder.setMemory(8192, 0, 0);
  task::Exchange exchange;
  exchange.before = builder.addLayout(*Layout::parse("[{8}, {32}]", mesh));
  exchange.after = builder.addLayout(*Layout::parse(after, mesh));
  exchange.pieces = std::move(pieces);
  exchange.runs = std::move(runs);
  builder.addTask({.source = "n", .operands = {x, y}, .params = exchange});
  return builder.finish();
}

static Expected<TaskTable> read(const std::string &blob) {
  return TaskTable::read(std::as_bytes(std::span(blob.data(), blob.size())));
}

static const std::vector<ExchangeRun> rows{{0, 1, 8}, {0, 0, 32}, {0, 0, 8}, {0, 0, 32}};

TEST_CASE("an exchange by pieces is read as it was written") {
  auto table = read(tableOf("[{9}, {32}]", {{1, 0}, {0, 1}}, rows));
  REQUIRE(table);
  Pieces pieces = table->pieces(std::get<task::Exchange>(table->task(0).params));
  CHECK(pieces ==
        Pieces{{8, 32},
               {9, 32},
               {{1, 0, {{0, 1, 8}, {0, 0, 32}}}, {0, 1, {{0, 0, 8}, {0, 0, 32}}}}});
}

TEST_CASE("an exchange by pieces that do not fit is refused") {
  auto reason = [](const char *after, std::vector<fb::Piece> pieces,
                   std::vector<ExchangeRun> runs) {
    auto table = read(tableOf(after, std::move(pieces), std::move(runs)));
    return table ? std::string("none") : table.error().message;
  };
  const std::string at = "the task table is damaged: task 0 (n, exchange): ";
  CHECK(reason("[{9}, {32}]", {{0, 0}}, {{0, 1, 8}}) == at + "1 runs of 1 pieces");
  CHECK(reason("[{9}, {32}]", {}, {{0, 1, 8}}) == at + "1 runs of 0 pieces");
  for (const char *after : {"[{16: dp}, {32}]", "[{9/10}, {32}]"})
    CHECK(reason(after, {{0, 0}}, {{0, 0, 8}, {0, 0, 32}}) ==
          at + "a tensor that is exchanged by pieces is not whole");
  CHECK(reason("[{9}, {32}]", {{0, 2}}, {{0, 0, 8}, {0, 0, 32}}) ==
        at + "the piece from rank 0 to rank 2: the mesh has 2 ranks");
  CHECK(reason("[{9}, {32}]", {{0, 0}}, {{0, 2, 8}, {0, 0, 32}}) ==
        at + "the piece from rank 0 to rank 0: elements 0 to 2, 8 of them, are not in "
             "dim 0 of sizes 8 and 9");
  CHECK(reason("[{90}, {32}]", {{0, 0}}, {{0, 2, 8}, {0, 0, 32}}) ==
        at + "operand 1 has 4096 bytes, the call needs 11520");
}

TEST_CASE("a table with pieces whose bytes are changed is refused, or read") {
  const std::string blob = tableOf("[{9}, {32}]", {{1, 0}, {0, 1}}, rows);
  size_t refused = 0;
  for (size_t i = 0; i < blob.size(); ++i)
    for (int change : {0x01, 0x80, 0x7f, 0xff}) {
      std::string damaged = blob;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      auto table = read(damaged);
      refused += !table;
      if (!table)
        CHECK(!table.error().message.empty());
    }
  CHECK(refused > blob.size());
}
