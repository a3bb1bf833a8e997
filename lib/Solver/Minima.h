//===- Minima.h - Least entries of rows and columns -------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_MINIMA_H
#define PARTITA_LIB_SOLVER_MINIMA_H

#include <cstddef>

namespace partita::solver {

/// least[s] = min over t of table[s][t] − given[t].
void leastOfRows(const double *table, const double *given, size_t rows, size_t columns,
                 double *least);

/// least[t] = min over s of table[s][t] − given[s].
void leastOfColumns(const double *table, const double *given, size_t rows, size_t columns,
                    double *least);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_MINIMA_H
