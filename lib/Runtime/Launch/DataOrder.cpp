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
    : rows(rows), batch(batch), steps(rows / batch), seed(seed) {
  if (last == LastBatch::Pad && rows % batch != 0)
    ++steps;
}

std::shared_ptr<const std::vector<int64_t>> DataOrder::rowsOf(int64_t step) {
  if (epochOf(step) != epoch) {
    epoch = epochOf(step);
    order = shuffledRows(rows, seed, static_cast<uint64_t>(epoch));
  }
  auto result = std::make_shared<std::vector<int64_t>>();
  int64_t first = step % steps * batch;
  for (int64_t i = first; i < first + batch; ++i)
    result->push_back(order[static_cast<size_t>(i % rows)]);
  return result;
}
