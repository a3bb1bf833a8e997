//===- ReshardRefine.cpp - Common refinement of two layouts ---------------===//
#include "ReshardRefine.h"

#include <algorithm>
#include <cassert>

using namespace partita;
using namespace partita::reshard;

namespace {
/// One axis reference at its place in a dim: it covers the strides (low, high].
struct Binding {
  AxisRef ref;
  int dim;
  int64_t high, low;
  bool inSource;
};

/// Collects the cuts of both layouts and closes them under "a cut inside a bound axis
/// cuts the dim there, and the other way round".
class Cutter {
public:
  Cutter(const Mesh &mesh, const Layout &source, const Layout &target, Refinement &result)
      : result(result), axisCuts(mesh.axes().size()), dimCuts(source.dims.size()) {
    result.badDim.assign(source.dims.size(), false);
    addLayout(source, true);
    addLayout(target, false);
    for (size_t d = 0; d < source.dims.size(); ++d)
      if (source.dims[d].padded() != target.dims[d].padded())
        setBad(d);
    badAxis.assign(mesh.axes().size(), false);
    for (const Binding &binding : bindings)
      addAxisCuts(binding.ref);
    for (const Layout *layout : {&source, &target})
      for (const PartialAxes &entry : layout->partial)
        for (const AxisRef &ref : entry.axes)
          addAxisCuts(ref);
    close();
    check(source, target);
  }

  Refinement &result;
  std::vector<Binding> bindings;
  std::vector<std::vector<int64_t>> axisCuts; ///< pre values, ascending, both ends
  std::vector<std::vector<int64_t>> dimCuts;  ///< strides, descending, both ends

private:
  void setBad(size_t dim) { result.badDim[dim] = result.anyBad = true; }

  void addLayout(const Layout &layout, bool inSource) {
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      int64_t high = layout.dims[d].padded();
      addDimCut(d, high);
      for (const DimFactor &factor : layout.dims[d].factors) {
        int64_t below = high / factor.padded;
        for (const AxisRef &ref : factor.axes) {
          if (ref.size == 1)
            continue;
          bindings.push_back({ref, static_cast<int>(d), high, high / ref.size, inSource});
          high /= ref.size;
          addDimCut(d, high);
        }
        // The boundary below an unsharded tail is a cut only if something bound follows;
        // adding it always would only make more atoms, not other plans.
        high = below;
        addDimCut(d, high);
      }
    }
  }

  bool addDimCut(size_t dim, int64_t stride) {
    std::vector<int64_t> &cuts = dimCuts[dim];
    auto it = std::lower_bound(cuts.begin(), cuts.end(), stride, std::greater<>());
    if (it != cuts.end() && *it == stride)
      return false;
    cuts.insert(it, stride);
    return true;
  }

  bool addAxisCut(int axis, int64_t pre) {
    std::vector<int64_t> &cuts = axisCuts[axis];
    auto it = std::lower_bound(cuts.begin(), cuts.end(), pre);
    if (it != cuts.end() && *it == pre)
      return false;
    cuts.insert(it, pre);
    return true;
  }

  void addAxisCuts(const AxisRef &ref) {
    if (ref.size == 1)
      return;
    addAxisCut(ref.axis, ref.pre);
    addAxisCut(ref.axis, ref.pre * ref.size);
  }

  void close() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Binding &b : bindings) {
        for (size_t i = 0; i < axisCuts[b.ref.axis].size(); ++i) {
          int64_t pre = axisCuts[b.ref.axis][i];
          if (pre <= b.ref.pre || pre >= b.ref.pre * b.ref.size)
            continue;
          if (pre % b.ref.pre || b.ref.size % (pre / b.ref.pre))
            badAxis[b.ref.axis] = true;
          else
            changed |= addDimCut(b.dim, b.high / (pre / b.ref.pre));
        }
        for (size_t i = 0; i < dimCuts[b.dim].size(); ++i) {
          int64_t stride = dimCuts[b.dim][i];
          if (stride <= b.low || stride >= b.high)
            continue;
          if (b.high % stride || stride % b.low)
            setBad(b.dim);
          else
            changed |= addAxisCut(b.ref.axis, b.ref.pre * (b.high / stride));
        }
      }
    }
  }

  /// Cuts must form divisibility chains; a bad axis makes every dim that uses it bad.
  void check(const Layout &source, const Layout &target) {
    for (size_t d = 0; d < dimCuts.size(); ++d)
      for (size_t i = 1; i < dimCuts[d].size(); ++i)
        if (dimCuts[d][i] == 0 || dimCuts[d][i - 1] % dimCuts[d][i])
          setBad(d);
    for (size_t a = 0; a < axisCuts.size(); ++a)
      for (size_t i = 1; i < axisCuts[a].size(); ++i)
        if (axisCuts[a][i] % axisCuts[a][i - 1])
          badAxis[a] = true;
    for (const Binding &binding : bindings)
      if (badAxis[binding.ref.axis])
        setBad(binding.dim);
    for (const Layout *layout : {&source, &target})
      for (const PartialAxes &entry : layout->partial)
        for (const AxisRef &ref : entry.axes)
          if (badAxis[ref.axis])
            result.partialConflict = true;
  }

  std::vector<bool> badAxis;
};
} // namespace

/// Calls visit(digit) for every digit inside `ref`, major to minor.
template <typename Visit>
static void forDigits(const Refinement &refinement, const AxisRef &ref, Visit visit) {
  for (size_t i = 0; i < refinement.digits.size(); ++i) {
    const AxisRef &digit = refinement.digits[i].ref;
    if (digit.axis == ref.axis && digit.pre >= ref.pre && digit.pre < ref.pre * ref.size)
      visit(static_cast<int>(i));
  }
}

static void bindAtoms(Refinement &result, const Binding &binding) {
  int atom = result.dimBegin[binding.dim];
  while (result.atoms[atom].stride * result.atoms[atom].size != binding.high)
    ++atom;
  forDigits(result, binding.ref, [&](int digit) {
    assert(result.atoms[atom].size == result.digits[digit].ref.size);
    if (binding.inSource) {
      result.atoms[atom].source = digit;
      result.digits[digit].sourceAtom = atom;
    } else {
      result.atoms[atom].target = digit;
      result.digits[digit].targetAtom = atom;
    }
    ++atom;
  });
}

Refinement reshard::refine(const Mesh &mesh, const Layout &source, const Layout &target) {
  Refinement result;
  Cutter cutter(mesh, source, target, result);
  if (!result.nested())
    return result;
  for (size_t a = 0; a < cutter.axisCuts.size(); ++a)
    for (size_t i = 1; i < cutter.axisCuts[a].size(); ++i) {
      int64_t low = cutter.axisCuts[a][i - 1], high = cutter.axisCuts[a][i];
      result.digits.push_back({.ref = {static_cast<int32_t>(a), low, high / low}});
    }
  for (size_t d = 0; d < source.dims.size(); ++d) {
    result.dimBegin.push_back(static_cast<int>(result.atoms.size()));
    result.size.push_back(source.dims[d].size());
    for (size_t i = 1; i < cutter.dimCuts[d].size(); ++i) {
      int64_t high = cutter.dimCuts[d][i - 1], low = cutter.dimCuts[d][i];
      result.atoms.push_back({.dim = static_cast<int>(d),
                              .size = high / low,
                              .stride = low,
                              .cutBelow = result.size[d] % low == 0});
    }
  }
  result.dimBegin.push_back(static_cast<int>(result.atoms.size()));
  for (const Binding &binding : cutter.bindings)
    bindAtoms(result, binding);
  for (const PartialAxes &entry : source.partial)
    for (const AxisRef &ref : entry.axes)
      forDigits(result, ref, [&](int digit) {
        result.digits[digit].sourcePartial = static_cast<int>(entry.kind);
      });
  for (const PartialAxes &entry : target.partial)
    for (const AxisRef &ref : entry.axes)
      forDigits(result, ref, [&](int digit) {
        result.digits[digit].targetPartial = static_cast<int>(entry.kind);
      });
  return result;
}

State reshard::sourceState(const Refinement &refinement) {
  State state;
  for (const Atom &atom : refinement.atoms)
    state.atom.push_back(atom.source);
  for (const Digit &digit : refinement.digits)
    state.partial.push_back(digit.sourcePartial);
  return state;
}

State reshard::targetState(const Refinement &refinement) {
  State state;
  for (const Atom &atom : refinement.atoms)
    state.atom.push_back(atom.target);
  for (const Digit &digit : refinement.digits)
    state.partial.push_back(digit.targetPartial);
  return state;
}

std::vector<int> reshard::commonFactors(const Refinement &refinement, const State &a,
                                        const State &b) {
  std::vector<int> factorOf(refinement.atoms.size());
  for (size_t d = 0; d + 1 < refinement.dimBegin.size(); ++d) {
    int factor = 0;
    // Whether every atom of the open factor is bound, so that the rank holds one index of
    // it and anything may follow; otherwise only local atoms may.
    bool boundA = true, boundB = true;
    for (int i = refinement.dimBegin[d]; i < refinement.dimBegin[d + 1]; ++i) {
      bool isBoundA = a.atom[i] != none, isBoundB = b.atom[i] != none;
      if ((!boundA && isBoundA) || (!boundB && isBoundB)) {
        if (!refinement.atoms[i - 1].cutBelow)
          return {};
        ++factor;
        boundA = boundB = true;
      }
      factorOf[i] = factor;
      boundA = boundA && isBoundA;
      boundB = boundB && isBoundB;
    }
  }
  return factorOf;
}

static void appendMerging(AxisList &axes, const AxisRef &ref) {
  if (!axes.empty() && axes.back().axis == ref.axis &&
      axes.back().pre * axes.back().size == ref.pre)
    axes.back().size *= ref.size;
  else
    axes.push_back(ref);
}

Layout reshard::layoutOf(const Refinement &refinement, const State &state,
                         const std::vector<int> &factorOf) {
  Layout layout;
  layout.dims.resize(refinement.size.size());
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    std::vector<DimFactor> &factors = layout.dims[d].factors;
    int begin = refinement.dimBegin[d], end = refinement.dimBegin[d + 1];
    for (int i = begin; i < end; ++i) {
      const Atom &atom = refinement.atoms[i];
      if (factorOf[i] == static_cast<int>(factors.size()))
        factors.emplace_back();
      DimFactor &factor = factors.back();
      factor.padded *= atom.size;
      // Every factor is even except the first, which has what is left of the true size.
      factor.size =
          factors.size() == 1 ? refinement.size[d] / atom.stride : factor.padded;
      if (state.atom[i] != none)
        appendMerging(factor.axes, refinement.digits[state.atom[i]].ref);
    }
    if (begin == end)
      factors.emplace_back();
  }
  for (int kind = 0; kind < 4; ++kind) {
    AxisList axes;
    for (size_t i = 0; i < state.partial.size(); ++i)
      if (state.partial[i] == kind)
        appendMerging(axes, refinement.digits[i].ref);
    if (!axes.empty())
      layout.partial.push_back({static_cast<ReduceKind>(kind), std::move(axes)});
  }
  return layout;
}
