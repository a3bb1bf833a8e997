//===- StateCopies.h - States copied while requests run ---------*- C++ -*-===//
#ifndef PARTITA_RUNTIME_STATECOPIES_H
#define PARTITA_RUNTIME_STATECOPIES_H

#include "partita/Runtime/Device.h"

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace partita::runtime {

/// A copy of one state of a rank, which is made once, by whoever comes first: a thread
/// that copies all states, or the rank when it is about to write this one.
class StateCopy {
public:
  /// `place` is kept until the copy is made.
  StateCopy(Memory place, std::function<void()> make)
      : place(std::move(place)), copy(std::move(make)) {}
  /// Returns when the copy is made.
  void make();
  /// Returns when the copy is made, for the rank that is about to write the state.
  void await();
  /// Seconds that the rank has spent in `await`.
  double waited() const { return seconds.load(std::memory_order_relaxed); }

private:
  enum Stage : uint32_t { Open, UnderWay, Made };
  std::atomic<uint32_t> stage{Open};
  std::atomic<double> seconds{0};
  Memory place;
  std::function<void()> copy;
};

/// Copies of the states of a process's ranks.
class StateCopies {
public:
  /// `order`: copies of smaller numbers are made first.
  void add(int rank, uint32_t order, std::shared_ptr<StateCopy> copy);
  /// Makes all that are not made.
  void make() const;
  /// Seconds that the rank has waited which has waited most.
  double waited() const;

private:
  struct Entry {
    int rank;
    uint32_t order;
    std::shared_ptr<StateCopy> copy;
  };
  std::vector<Entry> entries; ///< by order
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_STATECOPIES_H
