//===- EvenRefine.cpp - Common refinement of two even layouts -------------===//
#include "EvenRefine.h"

#include <utility>

using namespace partita;
using namespace partita::cost;

namespace {
/// An axis reference at its place in a dim: it covers the strides (low, high].
struct Binding {
  AxisRef ref;
  int dim;
  int64_t high, low;
  bool inSource;
};

class Refiner {
public:
  explicit Refiner(EvenRefinement &result) : result(result) {}

  bool run(const Mesh &mesh, const Layout &source, const Layout &target) {
    dims = static_cast<int>(source.dims.size());
    axes = static_cast<int>(mesh.axes().size());
    if (dims > EvenRefinement::mostDims || axes > EvenRefinement::mostAxes)
      return false;
    return addLayout(source, true) && addLayout(target, false) && addPartials(source) &&
           addPartials(target) && close() && makeDigits() && makeAtoms() && bindAtoms() &&
           markPartials(source, target);
  }

private:
  using Cuts = Row<int64_t, EvenRefinement::mostCuts>;

  /// Strides of a dim, descending. False if there is no room or the cut breaks the chain
  /// of divisors.
  bool addDimCut(int dim, int64_t stride, bool &added) {
    Cuts &cuts = dimCuts[static_cast<size_t>(dim)];
    int at = 0;
    while (at < cuts.size() && cuts[at] > stride)
      ++at;
    if (at < cuts.size() && cuts[at] == stride)
      return true;
    if ((at > 0 && cuts[at - 1] % stride) || (at < cuts.size() && stride % cuts[at]))
      return false;
    added = true;
    return cuts.insert(at, stride);
  }

  /// Positions in an axis, ascending.
  bool addAxisCut(int axis, int64_t pre, bool &added) {
    Cuts &cuts = axisCuts[static_cast<size_t>(axis)];
    int at = 0;
    while (at < cuts.size() && cuts[at] < pre)
      ++at;
    if (at < cuts.size() && cuts[at] == pre)
      return true;
    if ((at > 0 && pre % cuts[at - 1]) || (at < cuts.size() && cuts[at] % pre))
      return false;
    added = true;
    return cuts.insert(at, pre);
  }

  bool addAxisCuts(const AxisRef &ref) {
    bool added = false;
    return ref.size == 1 || (addAxisCut(ref.axis, ref.pre, added) &&
                             addAxisCut(ref.axis, ref.pre * ref.size, added));
  }

  bool addFactor(int dim, const DimFactor &factor, int64_t &high, bool inSource) {
    if (factor.size != factor.padded || factor.size < 1 || !factor.blocks.empty())
      return false;
    bool added = false;
    int64_t below = high / factor.padded, local = factor.padded;
    for (const AxisRef &ref : factor.axes) {
      if (ref.size == 1)
        continue;
      int64_t low = high / ref.size;
      local /= ref.size;
      if (!bindings.push({ref, dim, high, low, inSource}) || !addAxisCuts(ref) ||
          !addDimCut(dim, low, added))
        return false;
      high = low;
    }
    high = below;
    (inSource ? result.sourceElements : result.targetElements) *= local;
    return addDimCut(dim, below, added);
  }

  bool addLayout(const Layout &layout, bool inSource) {
    for (int d = 0; d < dims; ++d) {
      const DimLayout &dim = layout.dims[static_cast<size_t>(d)];
      int64_t high = dim.padded();
      if (high < 1)
        return false;
      if (inSource)
        result.elements *= high;
      bool added = false;
      if (!addDimCut(d, high, added))
        return false;
      for (const DimFactor &factor : dim.factors)
        if (!addFactor(d, factor, high, inSource))
          return false;
    }
    return true;
  }

  bool addPartials(const Layout &layout) {
    for (const PartialAxes &entry : layout.partial)
      for (const AxisRef &ref : entry.axes)
        if (!addAxisCuts(ref))
          return false;
    return true;
  }

  /// A cut inside a bound axis cuts the dim there, and the other way round.
  bool close() {
    for (bool added = true; added;) {
      added = false;
      for (const Binding &b : bindings)
        if (!closeAxis(b, added) || !closeDim(b, added))
          return false;
    }
    return true;
  }

  bool closeAxis(const Binding &b, bool &added) {
    const Cuts &cuts = axisCuts[static_cast<size_t>(b.ref.axis)];
    for (int i = 0; i < cuts.size(); ++i)
      if (cuts[i] > b.ref.pre && cuts[i] < b.ref.pre * b.ref.size &&
          !addDimCut(b.dim, b.high / (cuts[i] / b.ref.pre), added))
        return false;
    return true;
  }

  bool closeDim(const Binding &b, bool &added) {
    const Cuts &cuts = dimCuts[static_cast<size_t>(b.dim)];
    for (int i = 0; i < cuts.size(); ++i)
      if (cuts[i] > b.low && cuts[i] < b.high &&
          !addAxisCut(b.ref.axis, b.ref.pre * (b.high / cuts[i]), added))
        return false;
    return true;
  }

  bool makeDigits() {
    for (int a = 0; a < axes; ++a) {
      const Cuts &cuts = axisCuts[static_cast<size_t>(a)];
      firstDigit[static_cast<size_t>(a)] = result.digits.size();
      for (int i = 1; i < cuts.size(); ++i)
        if (!result.digits.push({.size = cuts[i] / cuts[i - 1]}))
          return false;
    }
    return true;
  }

  bool makeAtoms() {
    for (int d = 0; d < dims; ++d) {
      const Cuts &cuts = dimCuts[static_cast<size_t>(d)];
      firstAtom[static_cast<size_t>(d)] = result.atoms.size();
      for (int i = 1; i < cuts.size(); ++i)
        if (!result.atoms.push(
                {.size = cuts[i - 1] / cuts[i], .high = cuts[i - 1], .dim = d}))
          return false;
    }
    return true;
  }

  /// Calls visit(digit) for every digit inside `ref`, major to minor.
  template <typename Visit> void forDigits(const AxisRef &ref, Visit visit) const {
    const Cuts &cuts = axisCuts[static_cast<size_t>(ref.axis)];
    for (int i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] >= ref.pre && cuts[i] < ref.pre * ref.size)
        visit(firstDigit[static_cast<size_t>(ref.axis)] + i);
  }

  bool bindAtoms() {
    bool fits = true;
    for (const Binding &b : bindings) {
      int atom = firstAtom[static_cast<size_t>(b.dim)];
      while (result.atoms[atom].high != b.high)
        ++atom;
      forDigits(b.ref, [&](int digit) {
        fits = fits && result.atoms[atom].size == result.digits[digit].size;
        if (b.inSource) {
          result.atoms[atom].source = digit;
        } else {
          result.atoms[atom].target = digit;
          result.digits[digit].targetAtom = atom;
        }
        ++atom;
      });
    }
    return fits;
  }

  bool markPartials(const Layout &source, const Layout &target) {
    for (const PartialAxes &entry : source.partial)
      for (const AxisRef &ref : entry.axes)
        forDigits(ref, [&](int digit) {
          result.digits[digit].sourcePartial = static_cast<int>(entry.kind);
        });
    for (const PartialAxes &entry : target.partial)
      for (const AxisRef &ref : entry.axes)
        forDigits(ref, [&](int digit) {
          result.digits[digit].targetPartial = static_cast<int>(entry.kind);
        });
    return true;
  }

  EvenRefinement &result;
  int dims = 0, axes = 0;
  std::array<Cuts, EvenRefinement::mostDims> dimCuts;
  std::array<Cuts, EvenRefinement::mostAxes> axisCuts;
  std::array<int, EvenRefinement::mostDims> firstAtom;
  std::array<int, EvenRefinement::mostAxes> firstDigit;
  Row<Binding, EvenRefinement::mostBindings> bindings;
};
} // namespace

bool cost::refineEven(const Mesh &mesh, const Layout &source, const Layout &target,
                      EvenRefinement &result) {
  return Refiner(result).run(mesh, source, target);
}
