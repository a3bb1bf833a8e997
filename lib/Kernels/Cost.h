//===- Cost.h - What a kernel takes -----------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_KERNELS_COST_H
#define PARTITA_LIB_KERNELS_COST_H

#include "partita/Kernels/LocalProgram.h"
#include "partita/Kernels/Target.h"

#include <algorithm>

namespace partita::kernels {

/// Steps (Target.h) to move a value once.
double movedSteps(const LocalValue &value, const Target &target);

/// How often the op is computed in a kernel over `domain`: row ops at each of its points;
/// others again along the dims behind the last one that the op has, not along others.
///   [128, 1] over [128, 768]: 128         [768] over [128, 768]: 98,304
int64_t pointsIn(const std::vector<int64_t> &domain, const LocalProgram &program,
                 int32_t op);

/// What a kernel takes. Ops are added users first.
class KernelCost {
public:
  KernelCost(const LocalProgram &program, const Target &target)
      : program(&program), target(&target) {}

  /// The op is computed at so many points.
  void add(int32_t op, int64_t points);
  /// Adds an op that the kernel computes once more.
  void repeat(int32_t op, int64_t points);
  /// A result is stored: somebody reads it from memory.
  void store(int32_t value) { stored += movedSteps(program->value(value), *target); }
  /// Says whether the kernel so far reads the value.
  bool loads(int32_t value) const {
    return std::ranges::any_of(loaded,
                               [&](const auto &entry) { return entry.first == value; });
  }
  double steps() const;

private:
  const LocalProgram *program;
  const Target *target;
  double operations = 0, stored = 0;
  std::vector<std::pair<int32_t, double>> loaded; ///< steps by value
};

} // namespace partita::kernels

#endif // PARTITA_LIB_KERNELS_COST_H
