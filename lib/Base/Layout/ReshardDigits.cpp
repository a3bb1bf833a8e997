//===- ReshardDigits.cpp - Moving digits between atoms --------------------===//
//
// The planner for layouts whose cuts nest: slices, reductions, permutes,
// all-to-alls and gathers on the common refinement.
//
//===----------------------------------------------------------------------===//
#include "ReshardRefine.h"

#include <algorithm>
#include <cassert>

using namespace partita;
using namespace partita::reshard;

namespace {
/// Plans between two layouts whose cuts nest, by moving digits between atoms.
class DigitPlanner {
public:
  DigitPlanner(const Mesh &mesh, const Refinement &refinement, const Layout &source,
               const Layout &target, const ReshardOptions &options)
      : mesh(mesh), r(refinement), options(options), last(source), target(target),
        current(sourceState(refinement)), goal(targetState(refinement)) {}

  /// The plan, or nothing where the uneven part of a dim does not allow these steps.
  std::optional<ReshardPlan> run();

private:
  using Moves = std::vector<std::pair<int, int>>; ///< (digit, atom), by atom

  bool apply(StepKind kind, State next, const std::vector<int> &digits, int atom = none,
             int toAtom = none, ReduceKind reduce = ReduceKind::Sum);
  void place(Step &step, const std::vector<int> &factorOf, int atom, int toAtom) const;

  void markKeptPartials();
  bool reduced(int digit) const { return current.partial[digit] != none && !kept[digit]; }
  bool replicated(int digit) const {
    return current.partial[digit] == none && holder(digit) == none;
  }
  int holder(int digit) const;
  int freePlace(int digit) const;

  bool bind(StepKind kind, int partialKind);
  void reduceAll();
  bool permute();
  State permuted() const;
  void exchangeDims();
  void gatherAll();
  bool gatherRun(int first, int end);
  bool mustFree(int atom) const;
  void makePartial();
  bool directIsCheaper(size_t firstStep) const;
  Layout goalWithoutNewPartials() const;

  const Mesh &mesh;
  const Refinement &r;
  const ReshardOptions &options;
  Layout last; ///< layout after the steps so far
  const Layout &target;
  State current, goal;
  std::vector<bool> kept; ///< per digit: partial in source and target and staying so
  ReshardPlan plan;
};
} // namespace

/// Which atom the digit is bound to now.
int DigitPlanner::holder(int digit) const {
  auto it = std::find(current.atom.begin(), current.atom.end(), digit);
  return it == current.atom.end() ? none : static_cast<int>(it - current.atom.begin());
}

void DigitPlanner::place(Step &step, const std::vector<int> &factorOf, int atom,
                         int toAtom) const {
  if (atom != none) {
    step.dim = r.atoms[atom].dim;
    step.factor = factorOf[atom];
  }
  if (toAtom != none) {
    step.toDim = r.atoms[toAtom].dim;
    step.toFactor = factorOf[toAtom];
  }
}

/// Appends the step current → next, after a View if the factors must be cut otherwise;
/// false, with nothing changed, if no factor structure can write both states.
bool DigitPlanner::apply(StepKind kind, State next, const std::vector<int> &digits,
                         int atom, int toAtom, ReduceKind reduce) {
  std::vector<int> factorOf = commonFactors(r, current, next);
  if (factorOf.empty() && !r.atoms.empty())
    return false;
  Step step = makeStep(kind, layoutOf(r, current, factorOf), layoutOf(r, next, factorOf));
  step.reduce = reduce;
  for (int digit : digits)
    step.axes.push_back(r.digits[digit].ref);
  step.axes = canonical(step.axes);
  place(step, factorOf, atom, toAtom);
  step.receivedElements =
      elementsReceived(kind, step.before.localElements(), product(step.axes));
  appendView(plan, last, step.before);
  last = step.after;
  append(plan, std::move(step));
  current = std::move(next);
  return true;
}

/// Reductions nest with the first kind outermost: when a digit of one kind is reduced, no
/// digit of a later kind may stay.
void DigitPlanner::markKeptPartials() {
  int outermost = 4;
  for (const Digit &digit : r.digits)
    if (digit.sourcePartial != none && digit.sourcePartial != digit.targetPartial)
      outermost = std::min(outermost, digit.sourcePartial);
  for (const Digit &digit : r.digits)
    kept.push_back(digit.sourcePartial != none &&
                   digit.sourcePartial == digit.targetPartial &&
                   digit.sourcePartial <= outermost);
}

/// The local atom where a replicated or partial digit can be bound so that at most a
/// permutation is left to do: its target, or the end of the path of digits that must move
/// on from there. None if there is no such atom, or if it may not be bound yet.
int DigitPlanner::freePlace(int digit) const {
  int atom = r.digits[digit].targetAtom;
  while (atom != none && current.atom[atom] != none)
    atom = options.allToAll ? r.digits[current.atom[atom]].targetAtom : none;
  if (atom == none || r.atoms[atom].size != r.digits[digit].ref.size)
    return none;
  // In the uneven part of a dim only the minor end can be bound.
  bool first = atom == r.dimBegin[r.atoms[atom].dim];
  if (!first && !r.atoms[atom - 1].cutBelow && current.atom[atom - 1] == none)
    return none;
  return atom;
}

/// Slices (partialKind none) or reduce-scatters one run of digits onto neighbouring
/// atoms. False if there is nothing left to do.
bool DigitPlanner::bind(StepKind kind, int partialKind) {
  for (size_t i = 0; i < r.digits.size(); ++i) {
    int digit = static_cast<int>(i);
    auto ready = [&](int other) {
      return partialKind == none
                 ? replicated(other)
                 : reduced(other) && current.partial[other] == partialKind;
    };
    if (!ready(digit))
      continue;
    int atom = freePlace(digit);
    if (atom == none)
      continue;
    State next = current;
    std::vector<int> digits;
    // Extend the run downwards while the digits have their targets there.
    int at = atom;
    for (int moving = digit; moving != none;) {
      next.atom[at] = moving;
      next.partial[moving] = none;
      digits.push_back(moving);
      ++at;
      bool more = at < r.dimBegin[r.atoms[atom].dim + 1] && current.atom[at] == none &&
                  goal.atom[at] != none && ready(goal.atom[at]);
      moving = more ? goal.atom[at] : none;
    }
    // Begin with the major-most digit of a run: skip this one if its upper neighbour
    // will bring it along.
    if (atom > r.dimBegin[r.atoms[atom].dim] && goal.atom[atom] == digit &&
        current.atom[atom - 1] == none && goal.atom[atom - 1] != none &&
        ready(goal.atom[atom - 1]) && freePlace(goal.atom[atom - 1]) == atom - 1)
      continue;
    ReduceKind reduce = static_cast<ReduceKind>(partialKind == none ? 0 : partialKind);
    if (apply(kind, std::move(next), digits, atom, none, reduce))
      return true;
  }
  return false;
}

/// Reduces what must be reduced, innermost kind first: by reduce-scatter where the digit
/// has a place, the rest of the kind by one all-reduce.
void DigitPlanner::reduceAll() {
  for (int kind = 3; kind >= 0; --kind) {
    while (bind(StepKind::ReduceScatter, kind))
      while (bind(StepKind::Slice, none))
        continue;
    State next = current;
    std::vector<int> digits;
    for (size_t i = 0; i < r.digits.size(); ++i)
      if (current.partial[i] == kind && !kept[i]) {
        digits.push_back(static_cast<int>(i));
        next.partial[i] = none;
      }
    if (!digits.empty())
      apply(StepKind::AllReduce, std::move(next), digits, none, none,
            static_cast<ReduceKind>(kind));
  }
}

/// The state in which every atom that is bound now and in the goal has its goal digit,
/// and the digits that will be gathered stand where they are to be gathered.
State DigitPlanner::permuted() const {
  State next = current;
  for (size_t a = 0; a < next.atom.size(); ++a) {
    int digit = current.atom[a];
    if (digit == none || goal.atom[a] != none)
      continue;
    // A path that begins at an atom which becomes local. If it ends at an atom that is
    // local now, it is left to all-to-alls.
    std::vector<int> path{static_cast<int>(a)};
    int at = r.digits[digit].targetAtom;
    for (; at != none && current.atom[at] != none;
         at = r.digits[current.atom[at]].targetAtom)
      path.push_back(at);
    if (at != none) {
      for (int atom : path)
        next.atom[atom] = current.atom[atom];
      continue;
    }
    next.atom[a] = current.atom[path.back()];
    for (size_t i = 1; i < path.size(); ++i)
      next.atom[path[i]] = goal.atom[path[i]];
  }
  // Paths that begin with a replicated digit, and cycles.
  auto startsFromLocal = [&](int atom) {
    // Whether walking backwards from `atom` reaches an atom that becomes local.
    int at = atom;
    do {
      if (goal.atom[at] == none)
        return true;
      at = holder(goal.atom[at]);
    } while (at != none && at != atom);
    return false;
  };
  for (size_t a = 0; a < next.atom.size(); ++a)
    if (current.atom[a] != none && goal.atom[a] != none &&
        current.atom[a] != goal.atom[a] && current.partial[goal.atom[a]] == none &&
        !startsFromLocal(static_cast<int>(a)))
      next.atom[a] = goal.atom[a];
  return next;
}

bool DigitPlanner::permute() {
  State next = permuted();
  if (next == current)
    return false;
  std::vector<int> digits;
  int atom = none;
  for (size_t a = 0; a < next.atom.size(); ++a)
    if (next.atom[a] != current.atom[a]) {
      atom = atom == none ? static_cast<int>(a) : atom;
      digits.push_back(current.atom[a]);
    }
  return apply(StepKind::Permute, std::move(next), digits, atom);
}

/// All-to-alls, each over the longest run of digits that move together; in any order that
/// the uneven parts allow.
void DigitPlanner::exchangeDims() {
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t a = 0; a < current.atom.size() && !progress; ++a) {
      int digit = current.atom[a];
      if (digit == none || goal.atom[a] == digit)
        continue;
      int to = r.digits[digit].targetAtom;
      if (to == none || current.atom[to] != none)
        continue;
      State next = current;
      std::vector<int> digits;
      int from = static_cast<int>(a), at = to;
      while (true) {
        digits.push_back(current.atom[from]);
        next.atom[at] = current.atom[from];
        next.atom[from] = none;
        ++from, ++at;
        bool more = from < r.dimBegin[r.atoms[a].dim + 1] &&
                    at < r.dimBegin[r.atoms[to].dim + 1] && current.atom[from] != none &&
                    current.atom[at] == none && next.atom[at] == none &&
                    goal.atom[at] == current.atom[from];
        if (!more)
          break;
      }
      progress =
          apply(StepKind::AllToAll, std::move(next), digits, static_cast<int>(a), to);
    }
  }
}

/// Whether the atom has to be gathered: it is bound otherwise than in the goal, or it
/// stands in the uneven part of a dim below one that has to be.
bool DigitPlanner::mustFree(int atom) const {
  if (current.atom[atom] == none)
    return false;
  if (current.atom[atom] != goal.atom[atom])
    return true;
  return atom > r.dimBegin[r.atoms[atom].dim] && !r.atoms[atom - 1].cutBelow &&
         mustFree(atom - 1);
}

bool DigitPlanner::gatherRun(int first, int end) {
  State next = current;
  std::vector<int> digits;
  for (int i = first; i < end; ++i) {
    digits.push_back(current.atom[i]);
    next.atom[i] = none;
  }
  return apply(StepKind::AllGather, std::move(next), digits, first);
}

void DigitPlanner::gatherAll() {
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t d = r.dimBegin.size() - 1; d-- > 0 && !progress;)
      for (int a = r.dimBegin[d]; a < r.dimBegin[d + 1] && !progress; ++a) {
        int end = a;
        while (end < r.dimBegin[d + 1] && mustFree(end))
          ++end;
        progress = end > a && gatherRun(a, end);
      }
  }
}

/// Partial digits of the goal that are replicated now, outermost kind first: a later kind
/// then keeps what is there on its own first rank.
void DigitPlanner::makePartial() {
  for (int kind = 0; kind < 4; ++kind) {
    State next = current;
    std::vector<int> digits;
    for (size_t i = 0; i < r.digits.size(); ++i)
      if (goal.partial[i] == kind && current.partial[i] == none) {
        next.partial[i] = kind;
        digits.push_back(static_cast<int>(i));
      }
    if (!digits.empty())
      apply(StepKind::ToPartial, std::move(next), digits, none, none,
            static_cast<ReduceKind>(kind));
  }
}

Layout DigitPlanner::goalWithoutNewPartials() const {
  Layout layout = target;
  State state = goal;
  for (size_t i = 0; i < r.digits.size(); ++i)
    if (!kept[i])
      state.partial[i] = none;
  layout.partial = layoutOf(r, state, commonFactors(r, state, state)).partial;
  return layout;
}

/// Whether one direct exchange moves less than the steps from `firstStep` on. Compared
/// with padding on both sides first, as collectives on whole blocks are preferred; but
/// not at twice the price.
bool DigitPlanner::directIsCheaper(size_t firstStep) const {
  int64_t moved = 0;
  for (size_t i = firstStep; i < plan.steps.size(); ++i)
    moved += plan.steps[i].receivedElements;
  if (moved == 0)
    return false;
  const Layout &before = plan.steps[firstStep].before;
  Layout evenBefore = before, evenAfter = goalWithoutNewPartials();
  bool uneven = false;
  for (Layout *layout : {&evenBefore, &evenAfter})
    for (DimLayout &dim : layout->dims) {
      uneven |= dim.factors[0].size != dim.factors[0].padded;
      dim.factors[0].size = dim.factors[0].padded;
    }
  if (moved > exchangeElements(mesh, evenBefore, evenAfter))
    return true;
  return uneven && moved > 2 * exchangeElements(mesh, before, goalWithoutNewPartials());
}

std::optional<ReshardPlan> DigitPlanner::run() {
  markKeptPartials();
  while (bind(StepKind::Slice, none))
    continue;
  reduceAll();
  size_t steps = plan.steps.size();
  State middle = current;
  Layout middleLayout = last;
  if (options.allToAll) {
    permute();
    exchangeDims();
  }
  gatherAll();
  while (bind(StepKind::Slice, none))
    continue;
  bool arrived = current.atom == goal.atom;
  if (!arrived && !options.allToAll)
    return std::nullopt;
  if (options.allToAll && (!arrived || directIsCheaper(steps))) {
    ReshardPlan shorter;
    for (size_t i = 0; i < steps; ++i)
      append(shorter, std::move(plan.steps[i]));
    plan = std::move(shorter);
    Layout after = goalWithoutNewPartials();
    appendExchange(plan, mesh, middleLayout, after);
    last = after;
    current.atom = goal.atom;
    current.partial = middle.partial;
  }
  makePartial();
  appendView(plan, last, target);
  return std::move(plan);
}

std::optional<ReshardPlan> reshard::planDigits(const Mesh &mesh,
                                               const Refinement &refinement,
                                               const Layout &source, const Layout &target,
                                               const ReshardOptions &options) {
  return DigitPlanner(mesh, refinement, source, target, options).run();
}
