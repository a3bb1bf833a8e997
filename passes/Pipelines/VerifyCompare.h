//===- VerifyCompare.h - Which differences are rounding ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_VERIFYCOMPARE_H
#define PARTITA_PASSES_PIPELINES_VERIFYCOMPARE_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace partita {

/// How far the elements of one tensor are from those of another.
struct Distance {
  double largest = 0, rms = 0;
  double scale = 0; ///< root mean square of what is compared with

  std::string str() const;
};

Distance distance(const HostTensor &actual, const HostTensor &expected);

/// The tensor with its floats as f64, unless they are of a byte, which is storage.
HostTensor toF64(const HostTensor &tensor);

/// Largest relative error of one rounding to the type, 2⁻²⁴ of f32; 0 of a type that is
/// no float or is storage only.
double unitRoundoff(DType type);

struct Tolerance {
  double rtol = 1e-4, atol = 1e-5;
  /// Tells whether an f32 tensor of which an element misses both is right all the same if
  /// its root mean square and largest error against f64 are at most 3 times those of what
  /// it is compared with: sums in another order round otherwise. The root mean square of
  /// the other's error is at most 30 times its own: another model's outputs are no
  /// roundings.
  bool byErrors = true;
};

/// Compares two tensors and adds lines that say how far they are from each other; an
/// error names `where` and an element. `truth` gives the tensor in f64 and is asked at
/// most once.
Expected<void> compareOne(const std::string &where, const HostTensor &actual,
                          const HostTensor &expected, const Tolerance &tolerance,
                          const std::function<Expected<HostTensor>()> &truth,
                          std::vector<std::string> &lines);

/// Moves a thousandth of the bytes of a tensor to a neighbour, at least one; other
/// tensors stay as they are.
void moveToNeighbours(HostTensor &tensor);

/// Judges what a program on bytes gives in place of real numbers between pairs
/// (formIntegers). Its errors against f64 may be 3 times those of the definition in f32,
/// and twice what a thousandth of bytes at a neighbour do to the output (`moved`).
/// Returns a line of figures, with the share of integers that differ from the
/// definition's.
Expected<std::string> judgeBytes(const HostTensor &actual, const HostTensor &definition,
                                 const HostTensor &truth, const HostTensor &moved);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_VERIFYCOMPARE_H
