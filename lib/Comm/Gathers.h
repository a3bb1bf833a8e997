//===- Gathers.h - Sharded weights come a layer ahead -----------*- C++ -*-===//
#ifndef PARTITA_LIB_COMM_GATHERS_H
#define PARTITA_LIB_COMM_GATHERS_H

#include "partita/Comm/Order.h"

namespace partita::buckets {

/// Gathers of sharded weights that are one call: those of a layer. A call starts where
/// the one before it is waited for, so that at most two layers' weights are whole.
struct Gathers {
  std::vector<std::vector<int32_t>> calls; ///< ops, in the order of the program
  std::vector<int32_t> callOf;             ///< by op; −1: it gathers no weight

  Gathers(const std::vector<Op> &ops, const Options &options);
};

} // namespace partita::buckets

#endif // PARTITA_LIB_COMM_GATHERS_H
