//===- Repeats.h - Tables of values that may be computed again --*- C++ -*-===//
//
// The variable of a shared value has its states twice (RecomputeBound.h): as it is kept
// for the backward pass, and then as it is computed again for it. In the second half the
// op runs once more, the backward pass finds what it wants, and nothing is kept.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_REPEATS_H
#define PARTITA_LIB_SEARCH_REPEATS_H

#include "Tables.h"

namespace partita::search {

class Repeats {
public:
  explicit Repeats(const Timing &timing);

  /// The first op of the backward pass.
  const int32_t turn;
  /// The first op of the backward pass before which an op of the forward pass has to run,
  /// as it needs what that leads to; the number of ops if there is none. From there on
  /// what the op makes is alive up to its readers, or the op runs twice.
  int32_t neededAt(int32_t op) const { return needed[static_cast<size_t>(op)]; }
  bool isNeeded(int32_t op) const {
    return neededAt(op) < static_cast<int32_t>(needed.size());
  }
  /// What an op takes at least to run again: a product its least time, others nothing, as
  /// they may join a kernel that finds what they read. Where it makes of a value with no
  /// other reader another of as many bytes, point by point or as a view, what made that
  /// runs again, too: keeping it would be keeping this.
  Picos again(int32_t op,
              const std::vector<std::shared_ptr<const OpChoices>> &choices) const;
  /// Of an op with several results only the first of these pays for its second run.
  bool isFirstRepeated(const FlowOp &op, size_t result) const;

  /// Per state, kept and repeated; `again`: of the op.
  static std::vector<int64_t> times(const SharedTable &table, Picos again);
  /// [producer choice][state] for both halves.
  const solver::CostTable &producer(const solver::CostTable &table, size_t states);
  /// [state][user choice] for both halves.
  const solver::CostTable &user(const solver::CostTable &table, bool isBackward);

private:
  const Timing &timing;
  std::vector<int32_t> needed; ///< per op
  std::map<std::pair<const void *, int>, solver::CostTable> made;
};

/// The fewest bytes of any of the forms in which a value lies in each of its states.
std::vector<int64_t> leastBytes(const Timing &timing, const SharedTable &table,
                                int64_t elementBytes);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_REPEATS_H
