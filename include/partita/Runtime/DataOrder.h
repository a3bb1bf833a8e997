//===- DataOrder.h - Which rows of a data file come when --------*- C++ -*-===//
//
// The order is a function of the number of rows, the seed and the epoch alone, so that it
// is the same on every mesh, transport and machine. docs/data.md has it in six lines of
// Python.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_DATAORDER_H
#define PARTITA_RUNTIME_DATAORDER_H

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace partita::runtime {

/// 0 … rows - 1 in the order of an epoch: Fisher and Yates's shuffle, from the last place
/// on, with the numbers of SplitMix64.
std::vector<int64_t> shuffledRows(int64_t rows, uint64_t seed, uint64_t epoch);

/// What becomes of the rows behind the last whole batch of an epoch.
enum class LastBatch : uint8_t {
  Drop, ///< they are not used in this epoch
  Pad   ///< they are a batch, with the first rows of the epoch behind them
};

/// Where a batch begins: behind so many rows of an epoch, counted from 0.
struct DataCursor {
  int64_t epoch = 0, example = 0;
  auto operator<=>(const DataCursor &) const = default;
};

/// Batches of rows, epoch after epoch. With `Drop` there is at least one whole batch.
class DataOrder {
public:
  DataOrder(int64_t rows, int64_t batch, uint64_t seed, LastBatch last);

  int64_t stepsPerEpoch() const { return steps; }
  int64_t epochOf(int64_t step) const { return step / steps; }
  /// Where a step begins, of a run that has this batch from its first step on; steps
  /// count from 0 over all epochs.
  DataCursor cursorOf(int64_t step) const;
  /// The place itself, or the next epoch if there are no rows for a batch behind it.
  DataCursor at(DataCursor cursor) const;
  /// Where the batch behind the one at this place begins.
  DataCursor behind(DataCursor cursor) const;
  /// The rows of the batch at this place.
  std::shared_ptr<const std::vector<int64_t>> rowsAt(DataCursor cursor);
  std::shared_ptr<const std::vector<int64_t>> rowsOf(int64_t step) {
    return rowsAt(cursorOf(step));
  }

private:
  int64_t rows, batch, steps;
  LastBatch last;
  uint64_t seed;
  int64_t epoch = -1; ///< that `order` is of
  std::vector<int64_t> order;
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_DATAORDER_H
