//===- LayersTest.cpp - Layers found by structure -------------------------===//
#include "partita/Train/Layers.h"

#include <catch2/catch.hpp>

#include <string>

using namespace partita::train;

/// Layers of a program with a letter per op and the tens of bytes that cross before it.
static std::string layers(const std::string &kinds, const std::string &crossing) {
  std::vector<size_t> numbers(kinds.begin(), kinds.end());
  std::vector<int64_t> bytes;
  for (char digit : crossing)
    bytes.push_back(10 * (digit - '0'));
  std::string text;
  for (int32_t layer : layersOf(numbers, bytes))
    text += layer < 0 ? '-' : static_cast<char>('0' + layer);
  return text;
}

TEST_CASE("layers: a row of ops that repeats, cut where the least crosses") {
  //             e n q s a u d a n q s a u d a h
  CHECK(layers("enqsaudanqsaudah", "0122212112221211") == "-00000001111111-");
  // The stack of equal kinds begins in what is before the layers: an addition.
  CHECK(layers("eanqsaudanqsaudah", "00122212212221221") == "--00000001111111-");
}

TEST_CASE("layers: several stacks are numbered through, and one op may be a layer") {
  CHECK(layers("xababababycdecdecde", "0121212112122122122") == "-00112233-444555666");
  CHECK(layers("xaaay", "01111") == "-012-");
}

TEST_CASE("layers: where nothing repeats there is none") {
  CHECK(layers("abcdef", "011111") == "------");
  CHECK(layers("", "") == "");
}
