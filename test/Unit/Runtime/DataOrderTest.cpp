//===- DataOrderTest.cpp - Which rows of a data file come when ------------===//
#include "partita/Runtime/DataOrder.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>

using namespace partita::runtime;

using Rows = std::vector<int64_t>;

TEST_CASE("data order: what docs/data.md computes") {
  // By the Python of that page.
  CHECK(shuffledRows(10, 0, 0) == Rows{4, 9, 2, 5, 1, 7, 6, 0, 3, 8});
  CHECK(shuffledRows(10, 7, 0) == Rows{0, 1, 2, 4, 9, 5, 8, 6, 3, 7});
  CHECK(shuffledRows(10, 7, 1) == Rows{0, 1, 7, 6, 9, 5, 2, 4, 8, 3});
  CHECK(shuffledRows(0, 7, 1).empty());
  CHECK(shuffledRows(1, 7, 1) == Rows{0});
}

TEST_CASE("data order: every place gets every row about as often") {
  constexpr int64_t rows = 8, epochs = 8000;
  int64_t counts[rows][rows] = {};
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    Rows order = shuffledRows(rows, 3, epoch);
    for (size_t i = 0; i < order.size(); ++i)
      ++counts[i][order[i]];
  }
  // 1000 each; the spread of a binomial is 30.
  for (const auto &place : counts)
    for (int64_t count : place)
      CHECK(std::abs(count - epochs / rows) < 150);
}

TEST_CASE("data order: an epoch's batches are its rows, without or with the last") {
  DataOrder drop(10, 4, 5, LastBatch::Drop), pad(10, 4, 5, LastBatch::Pad);
  CHECK(drop.stepsPerEpoch() == 2);
  CHECK(pad.stepsPerEpoch() == 3);
  CHECK(DataOrder(8, 4, 5, LastBatch::Pad).stepsPerEpoch() == 2);
  CHECK(drop.epochOf(3) == 1);
  Rows first = shuffledRows(10, 5, 0), second = shuffledRows(10, 5, 1);
  auto piece = [](const Rows &rows, size_t from) {
    return Rows(rows.begin() + from, rows.begin() + from + 4);
  };
  CHECK(*drop.rowsOf(0) == piece(first, 0));
  CHECK(*drop.rowsOf(1) == piece(first, 4));
  CHECK(*drop.rowsOf(2) == piece(second, 0));
  // A run that goes on somewhere has the same.
  CHECK(*DataOrder(10, 4, 5, LastBatch::Drop).rowsOf(3) == piece(second, 4));
  CHECK(*pad.rowsOf(2) == Rows{first[8], first[9], first[0], first[1]});
  CHECK(*pad.rowsOf(3) == piece(second, 0));
  // Fewer rows than a batch come several times.
  Rows few = shuffledRows(3, 5, 0);
  CHECK(*DataOrder(3, 4, 5, LastBatch::Pad).rowsOf(0) ==
        Rows{few[0], few[1], few[2], few[0]});
}

TEST_CASE(
    "data order: a run that goes on with another batch takes the rows that are left") {
  DataOrder threes(10, 3, 5, LastBatch::Drop), fours(10, 4, 5, LastBatch::Drop),
      padded(10, 4, 5, LastBatch::Pad);
  CHECK(threes.cursorOf(4) == DataCursor{1, 3});
  CHECK(threes.behind({1, 3}) == DataCursor{1, 6});
  CHECK(threes.behind({1, 6}) == DataCursor{2, 0});
  Rows second = shuffledRows(10, 5, 1);
  CHECK(*fours.rowsAt({1, 3}) == Rows{second[3], second[4], second[5], second[6]});
  // Three rows are left: a batch for the one, the next epoch for the others.
  CHECK(fours.at({1, 7}) == DataCursor{2, 0});
  CHECK(padded.at({1, 7}) == DataCursor{1, 7});
  CHECK(*padded.rowsAt({1, 7}) == Rows{second[7], second[8], second[9], second[0]});
  CHECK(padded.behind({1, 7}) == DataCursor{2, 0});
}
