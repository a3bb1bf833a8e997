//===- Minima.cpp - Least entries of rows and columns ---------------------===//
#include "Minima.h"

#include "Core.h"

using namespace partita;
using namespace partita::solver;

// Wider vectors where the machine has them; the sums are the same either way, because
// minimum and subtraction do not depend on the order.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define PARTITA_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PARTITA_WIDE
#endif

/// Entries that are looked at side by side.
static constexpr size_t lanes = 8;

/// min over t of row[t] − given[t].
[[gnu::always_inline]] inline double leastOfRow(const double *row, const double *given,
                                                size_t size) {
  if (size < lanes) {
    double least = infinite;
    for (size_t t = 0; t < size; ++t) {
      double c = row[t] - given[t];
      least = c < least ? c : least;
    }
    return least;
  }
  double least[lanes];
  for (double &l : least)
    l = infinite;
  auto look = [&](size_t t) {
    for (size_t j = 0; j < lanes; ++j) {
      double c = row[t + j] - given[t + j];
      least[j] = c < least[j] ? c : least[j];
    }
  };
  for (size_t t = 0; t + lanes <= size; t += lanes)
    look(t);
  // Some are looked at twice, which changes no minimum.
  if (size % lanes != 0)
    look(size - lanes);
  for (size_t width = lanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j)
      least[j] = least[j + width] < least[j] ? least[j + width] : least[j];
  return least[0];
}

PARTITA_WIDE void solver::leastOfRows(const double *table, const double *given,
                                      size_t rows, size_t columns,
                                      double *__restrict least) {
  for (size_t s = 0; s < rows; ++s)
    least[s] = leastOfRow(table + s * columns, given, columns);
}

PARTITA_WIDE void solver::leastOfColumns(const double *table, const double *given,
                                         size_t rows, size_t columns,
                                         double *__restrict least) {
  // Narrow tables stay in the nearest cache, so that columns can be walked down one
  // group after the other with the minima in registers.
  static constexpr size_t narrow = 64;
  if (columns < lanes || columns > narrow) {
    for (size_t t = 0; t < columns; ++t)
      least[t] = infinite;
    for (size_t s = 0; s < rows; ++s) {
      const double *row = table + s * columns;
      double g = given[s];
      for (size_t t = 0; t < columns; ++t) {
        double c = row[t] - g;
        least[t] = c < least[t] ? c : least[t];
      }
    }
    return;
  }
  auto look = [&](size_t t) {
    double group[lanes];
    for (double &l : group)
      l = infinite;
    for (size_t s = 0; s < rows; ++s)
      for (size_t j = 0; j < lanes; ++j) {
        double c = table[s * columns + t + j] - given[s];
        group[j] = c < group[j] ? c : group[j];
      }
    for (size_t j = 0; j < lanes; ++j)
      least[t + j] = group[j];
  };
  for (size_t t = 0; t + lanes <= columns; t += lanes)
    look(t);
  if (columns % lanes != 0)
    look(columns - lanes);
}
