//===- NotFinite.h - Where a number that is not finite came from -*- C++ -*-===//
#ifndef PARTITA_RUNTIME_NOTFINITE_H
#define PARTITA_RUNTIME_NOTFINITE_H

#include "partita/Base/DType.h"

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

namespace partita::runtime {

/// A scalar expression of operands, which are exact in f64.
using PayloadFunction = std::function<double(const std::vector<double> &operands)>;
/// Reads the text of a payload (partita/Rule/Scalar/Payload.h, which the runtime does not
/// see) with the values of its attributes, to be computed in F32, F64 or I64. A null
/// function: it cannot be computed so.
using ReadPayload = std::function<PayloadFunction(
    const std::string &text, const std::vector<double> &attributes, DType type)>;

/// Finding of a rank in a request of which a result, or what it has sent, is not finite.
struct FoundNan {
  /// The surest first.
  enum Origin : uint8_t {
    Made,         ///< a node made it of finite operands
    Infinite,     ///< a node made a NaN of infinities
    Read,         ///< a node is the first that reads a NaN
    ReadInfinite, ///< or an infinity, as masks have them
    Received,     ///< it came from another rank
    None,
  };
  Origin origin = None;
  int64_t order = 0; ///< in the request: smaller is earlier, on any rank
  int rank = 0;
  std::string text = {}; ///< a sentence without the step
  /// Set if a result is not finite: an infinity that is sent may be a mask's.
  bool isOfResult = false;

  bool operator<(const FoundNan &other) const {
    return std::tie(origin, order, rank) <
           std::tie(other.origin, other.order, other.rank);
  }
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_NOTFINITE_H
