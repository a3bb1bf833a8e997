//===- Compare.h - What a plan's conversions cost ---------------*- C++ -*-===//
//
// The conversions of a plan that take longest, each beside the best plan without it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_COMPARE_H
#define PARTITA_SEARCH_COMPARE_H

#include "partita/Search/Memory.h"
#include "partita/Search/Search.h"

namespace partita::search {

/// A conversion of a plan.
struct Reshard {
  std::string value, node;            ///< a value, and who makes it
  std::string from, to;               ///< Layout::str
  int32_t fromForm = -1, toForm = -1; ///< of the timing
  int32_t number = -1;                ///< of the value
  Picos time = 0;
  int64_t receivedBytes = 0;
  int64_t lowerBoundBytes = 0; ///< see ReshardPlan; 0 for window buffers
  int64_t copies = 1;          ///< equal conversions of other values, in equal layers
};

/// The conversions that take longest in all, equal ones counted together, at most
/// `count`; of one value alone if `only` is its number.
std::vector<Reshard> costliestReshards(Timing &timing, const Decided &plan, size_t count,
                                       int32_t only = -1);

/// The best plan that does not make a conversion, neither of this value nor of others.
struct RunnerUp {
  Picos time = 0;
  Picos lowerBound = 0;
  /// How the value is converted there, "from … to …", if it is.
  std::vector<std::string> instead;
};
/// One per conversion, nothing where there is no such plan or none was found in a second.
/// `reshards` and `model` (modelOf) are of `timing`, the program the one that was
/// searched with `options`.
std::vector<std::optional<RunnerUp>> runnersUp(Timing &timing, const Model &model,
                                               const SearchOptions &options,
                                               const std::vector<Reshard> &reshards);

} // namespace partita::search

#endif // PARTITA_SEARCH_COMPARE_H
