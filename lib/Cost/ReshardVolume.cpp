//===- ReshardVolume.cpp - What a reshard moves, without planning it ------===//
#include "partita/Cost/ReshardVolume.h"

#include "EvenRefine.h"

#include <algorithm>

using namespace partita;
using namespace partita::cost;

namespace {
/// Follows the planner's slices and reductions, and prices what is left to move.
class Volume {
public:
  Volume(const Mesh &mesh, const EvenRefinement &refinement);
  std::optional<int64_t> run();

private:
  bool reduces(int digit, int kind) const {
    return partial[digit] == kind && !kept[static_cast<size_t>(digit)];
  }
  bool ready(int digit, int kind) const {
    return kind == none ? partial[digit] == none && !bound[static_cast<size_t>(digit)]
                        : reduces(digit, kind);
  }
  int freePlace(int digit) const;
  void bind(int kind);
  void reduceKind(int kind);
  int64_t moved();
  int64_t lowerBound() const;

  const Mesh &mesh;
  const EvenRefinement &r;
  Row<int, EvenRefinement::mostAtoms> holds;    ///< digit of each atom now
  Row<int, EvenRefinement::mostDigits> partial; ///< kind of each digit now
  std::array<bool, EvenRefinement::mostDigits> kept{}, bound{};
  int64_t local;        ///< elements of a block now
  int64_t reduced = 0;  ///< elements received by reductions
  int64_t sources = 1;  ///< contributions to each reduced element
  int64_t staying = 1;  ///< positions along the partial axes that stay
  bool copies = false;  ///< an all-reduce was needed
  bool travels = false; ///< after reducing, a digit moves from atom to atom
};
} // namespace

/// Reductions nest with the first kind outermost: when a digit of one kind is reduced, no
/// digit of a later kind may stay.
Volume::Volume(const Mesh &mesh, const EvenRefinement &refinement)
    : mesh(mesh), r(refinement), local(refinement.sourceElements) {
  int outermost = 4;
  for (const EvenDigit &digit : r.digits)
    if (digit.sourcePartial != none && digit.sourcePartial != digit.targetPartial)
      outermost = std::min(outermost, digit.sourcePartial);
  for (int i = 0; i < r.digits.size(); ++i) {
    const EvenDigit &digit = r.digits[i];
    bool stays = digit.sourcePartial != none &&
                 digit.sourcePartial == digit.targetPartial &&
                 digit.sourcePartial <= outermost;
    kept[static_cast<size_t>(i)] = stays;
    partial.push(digit.sourcePartial);
    if (digit.sourcePartial != none)
      (stays ? staying : sources) *= digit.size;
  }
  for (const EvenAtom &atom : r.atoms) {
    holds.push(atom.source);
    if (atom.source != none)
      bound[static_cast<size_t>(atom.source)] = true;
  }
}

/// The local atom where the digit can be bound so that at most a permutation is left to
/// do: its target, or the end of the path of digits that must move on from there.
int Volume::freePlace(int digit) const {
  int atom = r.digits[digit].targetAtom;
  while (atom != none && holds[atom] != none)
    atom = r.digits[holds[atom]].targetAtom;
  return atom != none && r.atoms[atom].size == r.digits[digit].size ? atom : none;
}

/// Binds every digit that has a place and is replicated, or partial of `kind`. The
/// planner binds runs of digits at once; one by one moves as much, as each reduce-scatter
/// works on what the last one left: (1 − 1/c) + (1 − 1/d)/c is 1 − 1/(c·d). Nor does the
/// order matter, for a place ends the path of one digit only.
void Volume::bind(int kind) {
  for (int digit = 0; digit < r.digits.size(); ++digit) {
    if (!ready(digit, kind))
      continue;
    int atom = freePlace(digit);
    if (atom == none)
      continue;
    holds[atom] = digit;
    partial[digit] = none;
    bound[static_cast<size_t>(digit)] = true;
    local /= r.digits[digit].size;
    if (kind != none)
      reduced += (r.digits[digit].size - 1) * local;
  }
}

void Volume::reduceKind(int kind) {
  bind(kind);
  int64_t positions = 1;
  for (int digit = 0; digit < r.digits.size(); ++digit)
    if (reduces(digit, kind)) {
      positions *= r.digits[digit].size;
      partial[digit] = none;
    }
  if (positions == 1)
    return;
  copies = true;
  // 2·(positions−1)/positions of the block, rounded up, without leaving 64 bits.
  reduced += 2 * (positions - 1) * (local / positions) +
             (2 * (positions - 1) * (local % positions) + positions - 1) / positions;
}

/// The most elements that a rank lacks of its target block now.
int64_t Volume::moved() {
  int64_t held = r.targetElements;
  bool moves = false, conflict = false;
  for (int a = 0; a < r.atoms.size(); ++a) {
    int digit = holds[a], target = r.atoms[a].target;
    if (digit == none || digit == target)
      continue;
    moves = true;
    if (target == none)
      held /= r.atoms[a].size;
    else
      conflict = true;
    travels = travels || conflict || r.digits[digit].targetAtom != none;
  }
  return !moves ? 0 : r.targetElements - (conflict ? 0 : held);
}

/// The planner's lower bound with reductions: the larger of what a rank needs and the
/// mean over ranks of all contributions and copies.
int64_t Volume::lowerBound() const {
  int64_t ranks = mesh.numRanks() / staying;
  int64_t targetPartial = 1;
  for (const EvenDigit &digit : r.digits)
    if (digit.targetPartial != none)
      targetPartial *= digit.size;
  int64_t blocks = r.elements / r.targetElements;
  int64_t messages = sources + ranks / (targetPartial / staying) / blocks - 2;
  int64_t mean =
      r.elements / ranks * messages + (r.elements % ranks * messages + ranks - 1) / ranks;
  return std::max(r.targetElements, mean);
}

std::optional<int64_t> Volume::run() {
  bind(none);
  for (int kind = 3; kind >= 0; --kind)
    reduceKind(kind);
  int64_t total = reduced + moved();
  if (sources > 1 && (total > 2 * lowerBound() || (copies && travels)))
    return std::nullopt;
  return total;
}

std::optional<int64_t> partita::reshardVolume(const Mesh &mesh, const Layout &source,
                                              const Layout &target) {
  if (source == target)
    return 0;
  EvenRefinement refinement;
  if (!refineEven(mesh, source, target, refinement))
    return std::nullopt;
  return Volume(mesh, refinement).run();
}
