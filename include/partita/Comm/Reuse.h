//===- Reuse.h - Few distinct calls -----------------------------*- C++ -*-===//
//
// A transport prepares each distinct call once, with room for its messages, and each
// group of ranks has a communicator. Two calls are one where their members are alike one
// by one: kind, ranks, reduction, element type and shape. The reductions of twelve equal
// layers in calls of their own are one distinct call; six buckets of unequal members are
// six.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_REUSE_H
#define PARTITA_COMM_REUSE_H

#include "partita/Comm/Order.h"

#include <set>

namespace partita::buckets {

/// A function of a program, and by which rules it is ordered.
struct Ordered {
  std::vector<Op> ops;
  Options options;
};

/// Orders of functions, and the distinct calls of the whole program.
struct Orders {
  std::vector<Order> orders; ///< by function
  int64_t distinct = 0;

  int64_t gradientBytes() const;
  int64_t earlyBytes() const;
  int64_t calls() const;
};

/// The orders by the functions' own rules. `elsewhere`: forms (Op::form) of calls that
/// nobody orders.
Orders ordersOf(const std::vector<Ordered> &functions,
                const std::set<int32_t> &elsewhere);

/// The orders with at most `most` distinct calls: automatic buckets are fewer and larger,
/// or each collective is a call of its own, as those of equal layers are one distinct
/// call; small collectives meet or do not. Among these the most bytes of gradients start
/// early, and then calls are fewest. Where none has so few, the one with the fewest.
Orders ordersWithin(int64_t most, const std::vector<Ordered> &functions,
                    const std::set<int32_t> &elsewhere);

} // namespace partita::buckets

#endif // PARTITA_COMM_REUSE_H
