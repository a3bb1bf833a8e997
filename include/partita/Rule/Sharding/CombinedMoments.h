//===- CombinedMoments.h - Mean and variance by one collective --*- C++ -*-===//
//
// Moments of a norm whose elements several ranks hold, by those of each rank's own: with
// mₖ and Qₖ, mean and sum of squared deviations of n elements each, the mean is Σ mₖ / p
// and the sum Σ Qₖ + n · Σ (mₖ − mean)² (T. Chan, G. Golub, R. LeVeque, "Updating
// Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). Both are
// gathered in one call, where the mean of all and then the squares about it are two.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_COMBINEDMOMENTS_H
#define PARTITA_RULE_SHARDING_COMBINEDMOMENTS_H

#include "partita/Base/Layout/Layout.h"

#include <optional>
#include <vector>

namespace partita {

/// Groups into which ranks split what moments are of.
struct MomentGroups {
  Layout tensor;               ///< of the elements
  std::vector<int64_t> axes;   ///< dims that are reduced, ascending
  std::vector<int64_t> groups; ///< per dim of the tensor; 1: it is not reduced, or whole

  /// Absent: the groups are not equal.
  static std::optional<MomentGroups> of(const Layout &tensor, std::vector<int64_t> axes);

  int64_t count() const; ///< of groups in all
  /// Elements that a mean or variance is of.
  int64_t elements() const;
  /// Bytes of both moments of all groups. `moments`: elements of a mean.
  int64_t gatheredBytes(int64_t moments, int64_t elementBytes) const;
};

/// An op of the program that combines moments; layouts have global shapes.
struct MomentOp {
  enum class Kind : uint8_t { Reshape, Sum, Divide, Multiply, Add, Subtract, Gather };
  Kind kind = Kind::Reshape;
  /// Numbers of earlier ops; −1: the tensor. Divide, and Multiply of one operand, are by
  /// `number`; Gather is a conversion of layouts.
  std::vector<int32_t> operands;
  Layout layout; ///< of the result
  double number = 0;
  std::vector<int64_t> axes = {}; ///< of a Sum, whose dims stay with size 1
};

struct MomentProgram {
  std::vector<MomentOp> ops;
  int32_t mean = -1, variance = -1; ///< ops that make them
};

/// `moment`: the layout of mean and variance.
MomentProgram combinedMoments(const MomentGroups &groups, const Layout &moment);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_COMBINEDMOMENTS_H
