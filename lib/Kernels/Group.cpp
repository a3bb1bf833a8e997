//===- Group.cpp - Which ops share a kernel or an engine call -------------===//
#include "partita/Kernels/Group.h"

#include "Cost.h"
#include "PostOps.h"

#include <algorithm>
#include <utility>

using namespace partita;
using namespace partita::kernels;

using Shape = std::vector<int64_t>;

namespace {
/// Groups and kernels that read the results of an op.
struct Readers {
  std::vector<int32_t> groups; ///< at their points
  bool others = false;         ///< anybody else
};

/// Where an op is computed, and what all kernels that this concerns take then.
struct Place {
  std::vector<int32_t> groups; ///< none: of its own
  bool isKept = false;
  double steps = 0;
};

/// A group as it grows.
struct Growing {
  KernelCost cost;
  int numOps = 0;
};

class Grouper {
public:
  Grouper(const LocalProgram &program, const Target &target)
      : program(program), target(target), seen(program.values.size(), 0),
        inTree(program.ops.size(), 0) {}

  void findChains();
  void findGroups();

  Grouping result;

private:
  Readers readersOf(int32_t op) const;
  /// The op at which the first task is formed that reads results of `op` from memory, if
  /// it is not computed again in the kernels that read it; −1: unknown.
  int32_t firstReading(int32_t op, int32_t except) const;
  /// Why the kernel cannot compute the op and store it for others; empty: it can.
  std::string_view whyNotKept(int32_t op, int32_t group) const;
  bool hasElementsOf(int32_t op, const Group &group) const;
  /// Steps to move what `op` reads and nobody needs once it has run, if it runs in the
  /// kernel of `root` instead.
  double heldLonger(int32_t op, int32_t root) const;
  /// Whether the kernels of its users may all compute the op, and keep no more alive.
  bool mayRepeat(int32_t op, const Readers &readers) const;
  Place choosePlace(int32_t op, const Readers &readers, std::string_view &why) const;
  bool fits(int32_t op, int32_t group) const;
  KernelCost costWith(int32_t op, int32_t group) const;
  void join(int32_t op, int32_t group);
  void startGroup(int32_t op);

  /// A group in whose passes over the rows a reduction can be done, as it reads what they
  /// read, and nobody reads it before; −1: there is none.
  int32_t groupBeside(int32_t op) const;
  /// Large tensors that the kernel of a row op reads, if what only it reads joins it.
  std::vector<int32_t> farOperands(int32_t op) const;

  double moved(int32_t value) const { return movedSteps(program.value(value), target); }
  /// Tells if the tensor has left the caches when it is read.
  bool isFar(int32_t value) const {
    const LocalValue &it = program.value(value);
    return static_cast<double>(elementCount(it.shape)) *
               static_cast<double>(byteWidth(it.type)) >
           target.farTensor;
  }
  Group &groupOf(int32_t number) { return result.groups[static_cast<size_t>(number)]; }
  const Group &groupOf(int32_t number) const {
    return result.groups[static_cast<size_t>(number)];
  }
  const std::vector<int32_t> &groupsOf(int32_t op) const {
    return result.groupsOf[static_cast<size_t>(op)];
  }

  const LocalProgram &program;
  const Target &target;
  bool isStep = false; ///< of training: ops have phases
  std::vector<Growing> growing;
  // Numbers of the walk of heldLonger that has seen an op.
  mutable std::vector<uint32_t> seen, inTree;
  mutable uint32_t walk = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Tells whether calls that give such numbers have them in f32 before they are rounded
/// and stored, so that functions of them can join.
static bool sumsInF32(DType type) {
  return type == DType::F32 || type == DType::BF16 || type == DType::F16;
}

/// Tells whether functions of its sums, and casts, can join the op's call.
static bool requantizes(const LocalProgram &program, int32_t op, const Target &target) {
  return program.op(op).facts.requantizes && target.calls.requantizes &&
         program.result(op).type == DType::I32;
}

void Grouper::findChains() {
  result.callOf.assign(program.ops.size(), -1);
  result.chains.resize(program.ops.size());
  for (size_t o = 0; o < program.ops.size(); ++o) {
    const LocalOp &op = program.ops[o];
    auto number = static_cast<int32_t>(o);
    if (!op.facts.takesPostOps || op.attention != LocalOp::Attention::None)
      continue;
    if (sumsInF32(program.result(number).type))
      result.chains[o] = postChain(program, number, result.callOf, target);
    else if (requantizes(program, number, target))
      result.chains[o] = requantization(program, number, result.callOf, target);
    for (const PostStep &step : result.chains[o]) {
      result.callOf[static_cast<size_t>(step.op)] = number;
      for (int32_t merged : step.merged)
        result.callOf[static_cast<size_t>(merged)] = number;
    }
  }
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Whether the kernel so far runs over what is left of the op's rows, and may run over
/// the rows.
static bool growsTo(const LocalProgram &program, int32_t op, const Group &group) {
  return program.op(op).facts.reducesRow && group.rowDims.empty() &&
         program.result(op).shape == group.domain;
}

/// The points of the kernel once the op is in it.
static const Shape &domainWith(const LocalProgram &program, int32_t op,
                               const Group &group) {
  return program.op(op).facts.kind == OpKind::Row ? program.operand(op, 0).shape
                                                  : group.domain;
}

bool Grouper::fits(int32_t op, int32_t number) const {
  const LocalOp &it = program.op(op);
  const Group &group = groupOf(number);
  // Alone it touches what it changes, and no more.
  if (it.facts.mayChangeInPlace || program.op(group.root).facts.mayChangeInPlace)
    return false;
  if (it.results.size() != 1 ||
      growing[static_cast<size_t>(number)].numOps >= target.maxOps)
    return false;
  if (it.facts.kind != OpKind::Row)
    return program.result(op).shape == group.domain || it.facts.kind == OpKind::Pointwise;
  const Shape &input = program.operand(op, 0).shape;
  if ((it.facts.reducesRow && !it.facts.keepsDims) || elementCount(input) == 0)
    return false;
  return (input == group.domain &&
          (group.rowDims.empty() || group.rowDims == it.facts.rowDims)) ||
         growsTo(program, op, group);
}

KernelCost Grouper::costWith(int32_t op, int32_t number) const {
  KernelCost cost = growing[static_cast<size_t>(number)].cost;
  cost.add(op, pointsIn(domainWith(program, op, groupOf(number)), program, op));
  return cost;
}

void Grouper::join(int32_t op, int32_t number) {
  Group &group = groupOf(number);
  Growing &grows = growing[static_cast<size_t>(number)];
  if (const OpFacts &facts = program.op(op).facts; facts.kind == OpKind::Row) {
    group.domain = program.operand(op, 0).shape;
    group.rowDims = facts.rowDims;
  }
  grows.cost.add(op, pointsIn(group.domain, program, op));
  ++grows.numOps;
  result.groupsOf[static_cast<size_t>(op)].push_back(number);
}

Readers Grouper::readersOf(int32_t op) const {
  Readers readers;
  for (int32_t value : program.op(op).results)
    for (const LocalUse &use : program.value(value).uses) {
      if (groupsOf(use.op).empty() ||
          program.op(use.op).facts.readsByPlace(use.operand)) {
        readers.others = true;
        continue;
      }
      for (int32_t group : groupsOf(use.op))
        if (std::ranges::count(readers.groups, group) == 0)
          readers.groups.push_back(group);
    }
  return readers;
}

int32_t Grouper::firstReading(int32_t op, int32_t except) const {
  auto first = static_cast<int32_t>(program.ops.size());
  for (int32_t value : program.op(op).results)
    for (const LocalUse &use : program.value(value).uses) {
      const LocalOp &user = program.op(use.op);
      int32_t at = use.op;
      if (user.facts.kind == OpKind::View) {
        at = firstReading(use.op, -1);
      } else if (!groupsOf(use.op).empty()) {
        for (int32_t group : groupsOf(use.op))
          if (group != except || user.facts.readsByPlace(use.operand))
            first = std::min(first, groupOf(group).root);
        continue;
      } else if (!user.results.empty()) {
        at = result.formedAt(program, use.op);
      }
      if (at < 0)
        return at;
      first = std::min(first, at);
    }
  return first;
}

/// Stored numbers of fewer bits than kernels compute with are rounded: one that some
/// users find in memory and others in registers would be two numbers.
static bool isRoundedWhenStored(const LocalValue &value) {
  return isFloat(value.type) && byteWidth(value.type) < 4;
}

double Grouper::heldLonger(int32_t op, int32_t root) const {
  double held = 0;
  std::vector<int32_t> values = program.op(op).operands;
  ++walk;
  inTree[static_cast<size_t>(op)] = walk;
  while (!values.empty()) {
    const int32_t number = values.back();
    values.pop_back();
    const LocalValue &value = program.value(number);
    if (value.producer < 0 || value.isUniform() ||
        std::exchange(seen[static_cast<size_t>(number)], walk) == walk)
      continue;
    // It will be computed in the same kernel, or is no memory of its own.
    const LocalOp &from = program.op(value.producer);
    if (from.facts.kind == OpKind::View ||
        (value.uses.size() == 1 && from.facts.isFusable())) {
      inTree[static_cast<size_t>(value.producer)] = walk;
      values.insert(values.end(), from.operands.begin(), from.operands.end());
      continue;
    }
    bool isThere = std::ranges::any_of(value.uses, [&](const LocalUse &use) {
      const LocalOp &user = program.op(use.op);
      if (inTree[static_cast<size_t>(use.op)] == walk || user.facts.kind == OpKind::View)
        return false;
      return user.results.empty() || result.formedAt(program, use.op) >= root;
    });
    held += isThere ? 0 : moved(number);
  }
  return held;
}

/// Whether the kernel has a point for each element of the op, or a row.
bool Grouper::hasElementsOf(int32_t op, const Group &group) const {
  const OpFacts &facts = program.op(op).facts;
  const Shape &shape = program.result(op).shape;
  const Shape &domain = domainWith(program, op, group);
  Shape perRow = domain;
  for (int64_t d : facts.kind == OpKind::Row ? facts.rowDims : group.rowDims)
    perRow[static_cast<size_t>(d)] = 1;
  return (shape == domain || shape == perRow) && elementCount(domain) != 0;
}

std::string_view Grouper::whyNotKept(int32_t op, int32_t number) const {
  const Group &group = groupOf(number);
  const LocalOp &it = program.op(op), &root = program.op(group.root);
  if (isRoundedWhenStored(program.result(op)))
    return "what is stored of it is rounded";
  if (!fits(op, number))
    return "the kernel of its first user runs over other points or rows, or is long "
           "enough";
  // Parts of a training step are told apart in traces and memory.
  if (it.phase != root.phase)
    return "the kernel of its first user is of another part of the step";
  if (group.kept.size() >= target.maxKept)
    return "the kernel of its first user stores nothing else";
  if (!hasElementsOf(op, group))
    return "it has other elements than the kernel of its first user";
  if (firstReading(op, number) <= group.root)
    return "others read it before the kernel of its first user has run";
  // A step of training has its peak where activations or gradients wait.
  if (heldLonger(op, group.root) > (isStep ? 0 : moved(it.results[0])))
    return "what it reads would have to be kept longer";
  return "";
}

static bool isArgument(const LocalProgram &program, int32_t value) {
  int32_t producer = program.value(value).producer;
  while (producer >= 0 && program.op(producer).facts.kind == OpKind::View)
    producer = program.operand(producer, 0).producer;
  return producer < 0;
}

/// Bytes of operands that are small beside the other one.
static constexpr double smallShare = 1.0 / 64;

/// Computing it later, too, keeps no more alive than its result would. An argument may be
/// a state, in whose place another one is made once nobody reads it.
bool Grouper::mayRepeat(int32_t op, const Readers &readers) const {
  const LocalOp &it = program.op(op);
  if (it.facts.kind != OpKind::Pointwise || isRoundedWhenStored(program.result(op)))
    return false;
  double read = 0, largest = 0;
  for (int32_t operand : it.operands) {
    if (isArgument(program, operand))
      return false;
    double steps = program.value(operand).isUniform() ? 0 : moved(operand);
    read += steps;
    largest = std::max(largest, steps);
  }
  const double made = moved(it.results[0]);
  // A tensor that is changed by a number per channel or row is read instead of another of
  // its size, which is not made: also later, in the gradient.
  if (isFar(it.results[0]) && largest <= made && read <= made * (1 + smallShare))
    return true;
  // Parts of a step are told apart, unless each reads less so: a cast to a wider type.
  return 2 * read <= made ||
         (read <= made && std::ranges::all_of(readers.groups, [&](int32_t group) {
            return it.phase == program.op(groupOf(group).root).phase;
          }));
}

Place Grouper::choosePlace(int32_t op, const Readers &readers,
                           std::string_view &why) const {
  auto costOf = [&](int32_t group) -> const KernelCost & {
    return growing[static_cast<size_t>(group)].cost;
  };
  double before = 0;
  for (int32_t group : readers.groups)
    before += costOf(group).steps();
  // The kernels of its users load it, now.
  KernelCost own(program, target);
  own.add(op, pointsIn(program.result(op).shape, program, op));
  own.store(program.op(op).results[0]);
  Place best;
  best.steps = before + own.steps();
  bool fitsAll =
      std::ranges::all_of(readers.groups, [&](int32_t group) { return fits(op, group); });
  bool isOne = readers.groups.size() == 1;
  if (!fitsAll)
    why = "the kernel of its users runs over other points or rows, is long enough, or "
          "changes its operand in place";
  if (!readers.others && fitsAll && (isOne || mayRepeat(op, readers))) {
    double steps = 0;
    for (int32_t group : readers.groups)
      steps += costWith(op, group).steps();
    if (steps <= best.steps)
      best = {readers.groups, false, steps};
    else
      why = "computing it at each of their points takes longer than storing it";
  }
  if (isOne && !readers.others)
    return best;
  // The others find it once the first of these kernels has run.
  int32_t first = *std::ranges::min_element(
      readers.groups, {}, [&](int32_t group) { return groupOf(group).root; });
  if (std::string_view reason = whyNotKept(op, first); !reason.empty()) {
    if (best.groups.empty())
      why = reason;
    return best;
  }
  KernelCost cost = costWith(op, first);
  cost.store(program.op(op).results[0]);
  // The pass over a row that stores is another than the one that takes a sum of it.
  if (const Group &group = groupOf(first);
      !group.rowDims.empty() && program.op(op).facts.kind == OpKind::Pointwise)
    cost.repeat(op, pointsIn(group.domain, program, op));
  double steps = before - costOf(first).steps() + cost.steps();
  return steps <= best.steps ? Place{{first}, true, steps} : best;
}

std::vector<int32_t> Grouper::farOperands(int32_t op) const {
  std::vector<int32_t> values = {program.op(op).operands[0]}, far;
  ++walk;
  while (!values.empty()) {
    const int32_t number = values.back();
    values.pop_back();
    if (std::exchange(seen[static_cast<size_t>(number)], walk) == walk)
      continue;
    if (isFar(number))
      far.push_back(number);
    const LocalValue &value = program.value(number);
    if (value.producer >= 0 && value.uses.size() == 1 &&
        program.op(value.producer).facts.kind == OpKind::Pointwise) {
      const std::vector<int32_t> &more = program.op(value.producer).operands;
      values.insert(values.end(), more.begin(), more.end());
    }
  }
  return far;
}

int32_t Grouper::groupBeside(int32_t op) const {
  const LocalOp &it = program.op(op);
  if (it.facts.kind != OpKind::Row || !it.facts.reducesRow || it.results.size() != 1 ||
      isRoundedWhenStored(program.result(op)) || program.result(op).uses.empty())
    return -1;
  const std::vector<int32_t> far = farOperands(op);
  if (far.empty())
    return -1;
  const int32_t read = firstReading(op, -1);
  for (size_t g = 0; g < result.groups.size(); ++g) {
    const Group &group = result.groups[g];
    const LocalOp &root = program.op(group.root);
    if (read > group.root && root.phase == it.phase &&
        group.rowDims == it.facts.rowDims &&
        group.domain == program.operand(op, 0).shape &&
        group.kept.size() < target.maxKept && growing[g].numOps < target.maxOps &&
        std::ranges::any_of(
            far, [&](int32_t value) { return growing[g].cost.loads(value); }) &&
        heldLonger(op, group.root) == 0)
      return static_cast<int32_t>(g);
  }
  return -1;
}

void Grouper::startGroup(int32_t op) {
  auto number = static_cast<int32_t>(result.groups.size());
  result.groups.push_back({op, program.result(op).shape, {}});
  growing.push_back({KernelCost(program, target)});
  for (int32_t value : program.op(op).results)
    if (!program.value(value).uses.empty())
      growing.back().cost.store(value);
  join(op, number);
}

void Grouper::findGroups() {
  isStep = std::ranges::any_of(
      program.ops, [](const LocalOp &op) { return op.phase != Phase::Forward; });
  result.groupsOf.resize(program.ops.size());
  for (size_t o = program.ops.size(); o-- > 0;) {
    const LocalOp &op = program.ops[o];
    auto number = static_cast<int32_t>(o);
    if (!op.facts.isFusable() || result.callOf[o] >= 0 ||
        op.attention == LocalOp::Attention::Inside)
      continue;
    Readers readers = readersOf(number);
    std::string_view why;
    Place place;
    if (!readers.groups.empty() && op.results.size() == 1)
      place = choosePlace(number, readers, why);
    for (int32_t group : place.groups) {
      join(number, group);
      if (place.isKept) {
        groupOf(group).kept.push_back(op.results[0]);
        growing[static_cast<size_t>(group)].cost.store(op.results[0]);
      }
    }
    if (!place.groups.empty())
      continue;
    if (int32_t beside = groupBeside(number); beside >= 0) {
      join(number, beside);
      groupOf(beside).kept.push_back(op.results[0]);
      growing[static_cast<size_t>(beside)].cost.store(op.results[0]);
      continue;
    }
    if (!why.empty())
      result.apart.emplace_back(number, why);
    startGroup(number);
  }
}

Grouping kernels::group(const LocalProgram &program, const Target &target) {
  Grouper grouper(program, target);
  grouper.findChains();
  grouper.findGroups();
  return std::move(grouper.result);
}

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

int32_t Grouping::groupAt(int32_t op) const {
  const std::vector<int32_t> &its = groupsOf[static_cast<size_t>(op)];
  return !its.empty() && groups[static_cast<size_t>(its[0])].root == op ? its[0] : -1;
}

bool Grouping::isIn(int32_t op, int32_t group) const {
  return std::ranges::count(groupsOf[static_cast<size_t>(op)], group) != 0;
}

bool Grouping::isAbsorbed(const LocalProgram &program, int32_t op) const {
  auto number = static_cast<size_t>(op);
  return callOf[number] >= 0 ||
         program.ops[number].attention == LocalOp::Attention::Inside ||
         (!groupsOf[number].empty() && groupAt(op) < 0);
}

int32_t Grouping::lastOfCall(int32_t op) const {
  const std::vector<PostStep> &chain = chains[static_cast<size_t>(op)];
  return chain.empty() ? op : chain.back().op;
}

int32_t Grouping::formedAt(const LocalProgram &program, int32_t op) const {
  auto number = static_cast<size_t>(op);
  if (program.ops[number].attention == LocalOp::Attention::Inside)
    return -1;
  int32_t last = -1;
  for (int32_t group : groupsOf[number])
    last = std::max(last, groups[static_cast<size_t>(group)].root);
  return last >= 0 ? last : lastOfCall(callOf[number] >= 0 ? callOf[number] : op);
}
