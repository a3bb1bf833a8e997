//===- DataOrder.cpp - Which rows of a data file come when ----------------===//
#include "partita/Runtime/DataOrder.h"

#include <numeric>
#include <utility>

using namespace partita;
using namespace partita::runtime;

/// The output function of SplitMix64 (Steele, Lea, Flood 2014).
static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::vector<int64_t> runtime::shuffledRows(int64_t rows, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  uint64_t state = mix(mix(seed) + epoch);
  for (size_t i = order.size(); i-- > 1;) {
    state += 0x9e3779b97f4a7c15;
    // The upper half of the product is below i + 1.
    auto product = static_cast<unsigned __int128>(mix(state)) * (i + 1);
    std::swap(order[i], order[static_cast<size_t>(product >> 64)]);
  }
  return order;
}

DataOrder::DataOrder(int64_t rows, int64_t batch, uint64_t seed, LastBatch last)
    : rows(rows), batch(batch), steps(rows / batch), last(last), seed(seed) {
  if (last == LastBatch::Pad && rows % batch != 0)
    ++steps;
}

DataCursor DataOrder::cursorOf(int64_t step) const {
  return {epochOf(step), step % steps * batch};
}

DataCursor DataOrder::at(DataCursor cursor) const {
  int64_t left = rows - cursor.example;
  bool hasBatch = left >= (last == LastBatch::Pad ? 1 : batch);
  return hasBatch ? cursor : DataCursor{cursor.epoch + 1, 0};
}

DataCursor DataOrder::behind(DataCursor cursor) const {
  return at({cursor.epoch, cursor.example + batch});
}

std::shared_ptr<const std::vector<int64_t>> DataOrder::rowsAt(DataCursor cursor) {
  if (cursor.epoch != epoch) {
    epoch = cursor.epoch;
    order = shuffledRows(rows, seed, static_cast<uint64_t>(epoch));
  }
  auto result = std::make_shared<std::vector<int64_t>>();
  for (int64_t i = cursor.example; i < cursor.example + batch; ++i)
    result->push_back(order[static_cast<size_t>(i % rows)]);
  return result;
}
