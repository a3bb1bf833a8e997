//===- Overlap.cpp - Work of a device at the same time --------------------===//
#include "partita/Cost/Overlap.h"

#include <algorithm>
#include <limits>

using namespace partita;

double partita::secondsTogether(const std::array<double, numResources> &alone,
                                const Contention &contention) {
  std::array<double, numResources> left = alone, speed = {};
  double now = 0;
  for (;;) {
    double all = 0;
    for (size_t r = 0; r < numResources; ++r) {
      double slower = 1;
      for (size_t s = 0; s < numResources; ++s)
        if (s != r && left[s] > 0)
          slower += contention.of(static_cast<Resource>(r), static_cast<Resource>(s)) - 1;
      speed[r] = left[r] > 0 ? 1 / slower : 0;
      all += speed[r];
    }
    if (all == 0)
      return now;
    double step = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < numResources; ++r) {
      speed[r] /= std::min(all, 1.0);
      if (speed[r] > 0)
        step = std::min(step, left[r] / speed[r]);
    }
    now += step;
    for (size_t r = 0; r < numResources; ++r) {
      left[r] -= speed[r] * step;
      if (left[r] <= 1e-12 * alone[r]) // rounding
        left[r] = 0;
    }
  }
}

Overlap partita::overlapped(double compute, double communication, double contention) {
  const double together =
      secondsTogether({compute, communication, 0, 0}, Contention(contention));
  return {together, together - compute};
}
