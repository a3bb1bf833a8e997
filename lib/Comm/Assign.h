//===- Assign.h - Which collectives are one call ----------------*- C++ -*-===//
#ifndef PARTITA_LIB_COMM_ASSIGN_H
#define PARTITA_LIB_COMM_ASSIGN_H

#include "partita/Comm/Order.h"

namespace partita::buckets {

/// Facts of ops that the order follows from.
struct Facts {
  /// By op: it is in a bucket, or reads what one gives and may wait for it.
  std::vector<bool> isMember, isLate;
  /// By op, the most members on a way that leads to it: those of one bucket have the
  /// same.
  std::vector<int32_t> depth;
  /// By member the ops of phase weight that nothing but it needs, ascending: with its
  /// source's among them they may stand anywhere before it.
  std::vector<std::vector<int32_t>> makers;

  Facts(const std::vector<Op> &ops, bool makesBuckets);

private:
  void findMakers(const std::vector<Op> &ops);
};

/// The bucket that a rule says for a parameter, whatever is near it; −1: none.
int32_t groupOf(const Fusion &fusion, int32_t parameter);
/// Tells if a call of so many bytes, whose last member is `last`, takes one more: of the
/// same layer, or as a layer of few bytes takes as long as one of somewhat more.
bool fitsLayer(const Call &call, const Call &last, int64_t bytes, const Options &options);
/// More items than a call may have are several calls.
inline constexpr size_t mostMembers = 1024;

struct Bucket {
  std::vector<int32_t> members; ///< in the order of the program
  /// The makers of its members stand behind the starts of all other buckets of its key
  /// and depth.
  bool isPutOff = false;
};

/// The buckets, by the first member.
std::vector<Bucket> assign(const std::vector<Op> &ops, const Facts &facts,
                           const Options &options);

} // namespace partita::buckets

#endif // PARTITA_LIB_COMM_ASSIGN_H
