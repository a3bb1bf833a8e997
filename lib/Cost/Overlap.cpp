//===- Overlap.cpp - Communication beside compute -------------------------===//
#include "partita/Cost/Overlap.h"

#include <algorithm>
#include <cmath>

using namespace partita;

Overlap partita::overlapped(double compute, double communication, double contention) {
  double both =
      contention * std::min(compute, communication) + std::abs(compute - communication);
  double together = std::min(both, compute + communication);
  return {together, together - compute};
}
