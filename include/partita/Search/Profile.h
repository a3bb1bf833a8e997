//===- Profile.h - Where a plan's time and memory go ------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_PROFILE_H
#define PARTITA_SEARCH_PROFILE_H

#include "partita/Search/Model.h"

#include <array>

namespace partita::search {

struct Profile {
  /// By what is done: matrix products, other kernels, each kind of conversion step,
  /// kernels that conversions part. The sum is PlanCost::total.
  std::vector<std::pair<std::string, Picos>> parts;
  /// Seconds for which the links of each level are busy.
  std::array<double, Topology::maxLevels> links{};
  /// Bytes of a device at every moment (Timing::moments), weights included.
  std::vector<int64_t> memory;
};

Profile profileOf(Timing &timing, const Decided &plan);

} // namespace partita::search

#endif // PARTITA_SEARCH_PROFILE_H
