//===- Selection.cpp - The first of many by a pass over all ---------------===//
#include "partita/Kernels/Selection.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::kernels;

bool Selection::pays() const {
  constexpr int64_t fewShare = 4;
  return count > 0 && count <= extent / fewShare && block + room() <= extent;
}

int64_t Selection::room() const {
  constexpr int64_t fewWaiting = 64;
  return count + std::max(count, fewWaiting);
}

/// A sample of which fewer than four are wanted on average gives a bound that says
/// little. A sample that is large enough takes less than what it leaves out as long as it
/// has no more than eight entries per one that is wanted: that many are found by the way
/// without a bound.
Selection::Sample Selection::sample() const {
  constexpr int64_t least = 256, wanted = 24, fewest = 4, share = 4, most = 8;
  int64_t size = std::clamp(wanted * extent / count, least, std::max(least, count));
  if (size * count < fewest * extent)
    size = (fewest * extent + count - 1) / count;
  if (count <= block || size > extent / share || size > std::max(least, most * count))
    return {};
  const double mean = static_cast<double>(count) * static_cast<double>(size) /
                      static_cast<double>(extent);
  return {size, static_cast<int64_t>(std::ceil(mean + 3 * std::sqrt(mean))) + 1};
}

/// An entry, without a sample, is within the bound if it is among the best of those up to
/// it.
double Selection::found() const {
  const auto all = static_cast<double>(extent), some = static_cast<double>(count);
  if (const Sample by = sample(); by.size != 0)
    return all * static_cast<double>(by.rank) / static_cast<double>(by.size);
  const double begin = std::max(some, static_cast<double>(block));
  return begin + some * std::log(all / begin);
}
