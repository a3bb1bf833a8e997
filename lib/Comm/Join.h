//===- Join.h - Small collectives that meet in one call ---------*- C++ -*-===//
#ifndef PARTITA_LIB_COMM_JOIN_H
#define PARTITA_LIB_COMM_JOIN_H

#include "Assign.h"
#include "Gathers.h"

namespace partita::buckets {

/// Calls that the program waits for where they start, as of the moments of a norm.
struct Joined {
  /// All ops but the members of a call that are not its first; behind what all members of
  /// a call read stands its first one.
  std::vector<int32_t> order;
  /// Members of the call that an op begins, by op; empty: it begins none of several.
  std::vector<std::vector<int32_t>> members;
};

/// Joins small calls of one key and phase, where nothing of a later one's way from the
/// first one on reads what that one gives: sums for the gradient of a norm and of the one
/// beside it on a shortcut. The ops of that way, few of them, stand before the call then.
Joined join(const std::vector<Op> &ops, const Facts &facts, const Gathers &gathers,
            const Options &options);

} // namespace partita::buckets

#endif // PARTITA_LIB_COMM_JOIN_H
