//===- Kernel.h - The problem with the most promising choices ---*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_KERNEL_H
#define PARTITA_LIB_SOLVER_KERNEL_H

#include "Core.h"

namespace partita::solver {

/// A core whose variables keep a few of their choices each: those that cost least beside
/// the best replies of their neighbours, those that cost least beside an answer, and that
/// answer's own. An answer of it is one of the core, and where choices are many it is
/// found in a hundredth of the time.
class Kernel {
public:
  /// `answer` has a choice for every alive variable of the core and is one. At most
  /// `most` choices are kept for each of the two reasons.
  Kernel(Core &core, const std::vector<int> &answer, size_t most);

  /// The kernel, reduced; it may be changed further by what keeps its trail.
  Core &core() { return kernel; }
  /// The answer it was made from, in the kernel as it is now.
  std::vector<int> answer() const { return kernel.project(start, 0); }
  /// An answer of the kernel as it is now, in the core that it was made from.
  std::vector<int> expand(std::vector<int> choices) const;

private:
  std::vector<int> ids, start;
  Core kernel;
  size_t variables;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_KERNEL_H
