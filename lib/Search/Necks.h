//===- Necks.h - What can run beside what -----------------------*- C++ -*-===//
//
// A *neck* of a program is an op that every other op either comes before or behind, by
// the flow of data: the sums of a transformer's residual stream, each op of a chain.
// Nothing but conversions runs while it does. Between two necks that follow each other
// lies a *section*: its work begins when the first neck ends and ends before the second
// begins. So sections and necks follow each other in time, whatever the order in which a
// runtime does things, and
//
//     Alone      a neck; and the conversion of a value that one neck makes and the next
//                reads, where nothing else lies between the two
//     Between    other ops, and conversions of values that are made and read without a
//                neck between
//     Anywhere   conversions of values that are read behind a neck that they do not need,
//                and of what lies there from the beginning: arguments, weights, states
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_NECKS_H
#define PARTITA_LIB_SEARCH_NECKS_H

#include "partita/Rule/Sharding/Flow.h"

namespace partita::search {

enum class Place : uint8_t { Alone, Between, Anywhere };
inline constexpr size_t numPlaces = 3;

/// Where ops, and the conversions of their results, can run. Ops of loops are no necks.
struct Places {
  std::vector<Place> ops, values;
};
Places placesOf(const FlowGraph &graph);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_NECKS_H
