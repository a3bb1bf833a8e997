//===- Attention.cpp - Finding softmax between two products ---------------===//
#include "partita/Kernels/Attention.h"

#include <algorithm>

using namespace partita;
using namespace partita::kernels;

using Dims = std::vector<std::vector<int32_t>>;

//===----------------------------------------------------------------------===//
// Places of operands
//===----------------------------------------------------------------------===//

namespace {
/// Loops of a product at the extents of its operands.
struct Loops {
  Dims operands[2], result; ///< loops of each dim, major to minor
  std::vector<int64_t> sizes;
};
} // namespace

static Dims dimsOf(const std::vector<int64_t> &numbers) {
  Dims dims;
  bool isOpen = false;
  for (int64_t number : numbers) {
    if (!isOpen)
      dims.emplace_back();
    isOpen = number >= 0;
    if (isOpen)
      dims.back().push_back(static_cast<int32_t>(number));
  }
  return dims;
}

/// Gives a loop its size where the others of a dim have theirs.
static void bindSizes(const Dims &dims, const Shape &shape, std::vector<int64_t> &sizes) {
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t rest = shape[d];
    int32_t open = -1, count = 0;
    for (int32_t loop : dims[d]) {
      int64_t &size = sizes[static_cast<size_t>(loop)];
      if (size == 0)
        open = loop, ++count;
      else
        rest /= size;
    }
    if (count == 1)
      sizes[static_cast<size_t>(open)] = rest;
  }
}

static Loops loopsOf(const LocalProgram &program, int32_t number) {
  const LocalOp &op = program.op(number);
  Loops loops;
  int64_t count = 0;
  for (const std::vector<int64_t> &numbers : op.facts.numbers)
    for (int64_t loop : numbers)
      count = std::max(count, loop + 1);
  loops.sizes.assign(static_cast<size_t>(count), 0);
  for (size_t i : {0, 1})
    loops.operands[i] = dimsOf(op.facts.numbers[i]);
  loops.result = dimsOf(op.facts.numbers[2]);
  for (int64_t round = 0; round < count; ++round) {
    for (size_t i : {0, 1})
      bindSizes(loops.operands[i], program.operand(number, i).shape, loops.sizes);
    bindSizes(loops.result, program.result(number).shape, loops.sizes);
  }
  return loops;
}

/// Loops of one tensor that another lacks; size 1 does not count.
static std::vector<int32_t> missing(const Loops &loops, const Dims &of,
                                    const Dims &from) {
  std::vector<int32_t> found;
  for (const auto &dim : of)
    for (int32_t loop : dim)
      if (loops.sizes[static_cast<size_t>(loop)] != 1 &&
          std::ranges::none_of(
              from, [&](const auto &d) { return std::ranges::count(d, loop) != 0; }))
        found.push_back(loop);
  return found;
}

/// The dims of a tensor with these loops, as another one moves along them.
static std::vector<Parts> along(const Loops &loops, const Dims &dims,
                                const std::vector<Parts> &partsOf) {
  std::vector<Parts> result;
  for (const auto &dim : dims) {
    Parts parts;
    for (int32_t loop : dim) {
      const auto l = static_cast<size_t>(loop);
      if (partsOf[l].empty())
        parts.push_back({loops.sizes[l], 0});
      parts.append(partsOf[l].begin(), partsOf[l].end());
    }
    result.push_back(simplified(std::move(parts)));
  }
  return result;
}

static Parts standing(int64_t size) { return size == 1 ? Parts() : Parts{{size, 0}}; }

Shape Attention::domain(const LocalProgram &program) const {
  const Loops first = loopsOf(program, scores), second = loopsOf(program, output);
  auto depth = missing(first, first.operands[0], first.result);
  auto width = missing(second, second.operands[1 - weightsOperand],
                       second.operands[weightsOperand]);
  Shape shape{first.sizes[static_cast<size_t>(depth[0])],
              second.sizes[static_cast<size_t>(width[0])]};
  const Shape &rest = program.value(begin).shape;
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

std::optional<View> Attention::inDomain(const LocalProgram &program, Part part,
                                        const View &view) const {
  const bool isFirst = part == Query || part == Key;
  const Loops loops = loopsOf(program, isFirst ? scores : output);
  const Dims &weights = isFirst ? loops.result : loops.operands[weightsOperand];
  const Dims &own = isFirst ? loops.operands[(part == Query) == queriesAreLeft ? 0 : 1]
                    : part == Output ? loops.result
                                     : loops.operands[1 - weightsOperand];
  auto partsOf = partsOfLoops(own, loops.sizes, view);
  auto inner = missing(loops, own, weights);
  if (!partsOf || inner.size() != 1)
    return std::nullopt;
  std::optional<View> seen = View{view.offset, along(loops, weights, *partsOf)};
  if (isFirst) {
    for (int32_t op : before)
      if (seen)
        seen = viewOfResult(program.op(op).facts, *seen, program.result(op).shape);
  } else {
    for (size_t i = behind.size(); i-- > 0 && seen;)
      seen = viewOfOperand(program.op(behind[i]).facts, *seen,
                           program.operand(behind[i], 0).shape);
  }
  if (!seen)
    return std::nullopt;
  const Shape shape = domain(program);
  std::vector<Parts> dims{standing(shape[0]), standing(shape[1])};
  dims[isFirst ? 0 : 1] = simplified((*partsOf)[static_cast<size_t>(inner[0])]);
  dims.insert(dims.end(), seen->dims.begin(), seen->dims.end());
  return View{seen->offset, std::move(dims)};
}

static bool stands(const Parts &parts) {
  return std::ranges::all_of(parts, [](const Part &p) { return p.stride == 0; });
}
static bool isOneLoop(const Parts &parts) {
  return parts.size() == 1 && parts[0].stride != 0;
}

/// Tells whether the operands, were they dense, move along the dims as those of attention
/// do.
static bool fits(const LocalProgram &program, const Attention &a) {
  const Loops first = loopsOf(program, a.scores), second = loopsOf(program, a.output);
  const Dims &weights = second.operands[a.weightsOperand];
  for (size_t side : {0, 1})
    if (missing(first, first.operands[side], first.result).size() != 1)
      return false;
  if (missing(second, second.operands[1 - a.weightsOperand], weights).size() != 1 ||
      missing(second, weights, second.result).size() != 1)
    return false;
  auto seen = [&](Attention::Part part, int32_t value) {
    return a.inDomain(program, part, View::dense(program.value(value).shape));
  };
  auto q = seen(Attention::Query, a.q), k = seen(Attention::Key, a.k);
  auto v = seen(Attention::Values, a.v);
  auto out = seen(Attention::Output, program.op(a.output).results[0]);
  if (!q || !k || !v || !out)
    return false;
  const size_t keys = q->dims.size() - 1, queries = keys - 1;
  bool isOutputWhole = true; // each element is of one row
  for (size_t d = 2; d < queries; ++d)
    isOutputWhole &=
        std::ranges::none_of(out->dims[d], [](const Part &p) { return p.stride == 0; });
  return isOutputWhole && isOneLoop(q->dims[0]) && isOneLoop(k->dims[0]) &&
         isOneLoop(v->dims[1]) && isOneLoop(out->dims[1]) &&
         isOneLoop(q->dims[queries]) && stands(q->dims[keys]) &&
         stands(k->dims[queries]) && isOneLoop(k->dims[keys]) &&
         stands(v->dims[queries]) && isOneLoop(v->dims[keys]) &&
         isOneLoop(out->dims[queries]) && stands(out->dims[keys]);
}

//===----------------------------------------------------------------------===//
// Finding
//===----------------------------------------------------------------------===//

namespace {
/// Follows one contraction to a softmax and on to another.
class Finder {
public:
  Finder(const LocalProgram &program, int32_t scores, const Target &target)
      : program(program), target(target) {
    a.scores = scores;
  }

  /// Tells whether it is attention. If not, `why` is set where it only just is not.
  bool find() { return followScores() && followWeights() && takeOperands() && measure(); }

  Attention a;
  std::string why;

private:
  bool followScores();
  bool takeStep(int32_t user, int32_t value, bool &isLinear);
  bool followWeights();
  bool takeOperands();
  bool measure();
  void takeMask(int32_t value);

  const OpFacts &facts(int32_t op) const { return program.op(op).facts; }
  bool isFloatCast(int32_t op) const {
    return facts(op).role == OpRole::Cast && isFloat(program.operand(op, 0).type) &&
           isFloat(program.result(op).type);
  }
  bool isReordered(int32_t op) const {
    return facts(op).role == OpRole::Reshape || facts(op).role == OpRole::Transpose;
  }
  int32_t userOf(int32_t value, const char *what);
  std::optional<double> factorOf(int32_t op, int32_t value) const;
  int32_t choiceOfZero(int32_t value, int32_t &test) const;
  int32_t uncast(int32_t value, std::vector<int32_t> &casts) const;
  int32_t unscaled(int32_t value);
  void take(int32_t op) {
    if (std::ranges::count(a.chain, op) == 0)
      a.chain.push_back(op);
  }

  const LocalProgram &program;
  const Target &target;
};
} // namespace

/// The op that reads the value, if it is one; otherwise the way goes on by one that may
/// lead to the softmax, to say why this is none. −1: nobody.
int32_t Finder::userOf(int32_t value, const char *what) {
  const std::vector<LocalUse> &uses = program.value(value).uses;
  if (uses.size() == 1)
    return uses[0].op;
  why = std::string("something else reads the ") + what;
  for (size_t i = uses.size(); i-- > 0;) {
    const OpFacts &user = facts(uses[i].op);
    if (user.role == OpRole::Softmax || user.role == OpRole::Contract ||
        user.kind == OpKind::View ||
        (user.kind == OpKind::Pointwise && user.role != OpRole::IsNaN))
      return uses[i].op;
  }
  return -1;
}

/// The factor by which the op multiplies its operand `value`, if that is all it does.
std::optional<double> Finder::factorOf(int32_t number, int32_t value) const {
  const LocalOp &op = program.op(number);
  const bool isDivision = op.facts.role == OpRole::Div;
  const LocalValue &from = program.value(value);
  if ((!isDivision && op.facts.role != OpRole::Mul) ||
      program.result(number).shape != from.shape ||
      program.result(number).type != from.type)
    return std::nullopt;
  const bool isLeft = op.operands[0] == value;
  const std::optional<double> factor = program.operand(number, isLeft ? 1 : 0).uniform;
  if (!factor || (isDivision && !isLeft))
    return std::nullopt;
  return isDivision ? 1 / *factor : *factor;
}

/// Takes an op between the scores and the softmax; false if it is none of an attention.
bool Finder::takeStep(int32_t user, int32_t value, bool &isLinear) {
  const LocalOp &op = program.op(user);
  if (isReordered(user) && isLinear) {
    a.before.push_back(user);
  } else if (std::optional<double> factor = factorOf(user, value);
             isLinear && (factor || isFloatCast(user))) {
    a.scale *= factor.value_or(1);
  } else {
    isLinear = false;
    if (op.facts.kind != OpKind::Pointwise || op.results.size() != 1 ||
        program.result(user).shape != program.value(value).shape)
      return false;
    if (std::ranges::count(op.operands, value) != 1)
      why = "an op takes the scores twice";
    a.pointwise.push_back(user);
  }
  take(user);
  return true;
}

bool Finder::followScores() {
  int32_t value = program.op(a.scores).results[0];
  take(a.scores);
  bool isLinear = true;
  for (int32_t user; (user = userOf(value, "scores")) >= 0;) {
    if (isLinear)
      a.begin = value;
    if (facts(user).role == OpRole::Softmax) {
      const auto rank = static_cast<int64_t>(program.value(value).shape.size());
      a.softmax = user;
      take(user);
      if (rank < 2 || facts(user).rowDims[0] != rank - 1)
        why = "the softmax is not along the last dim";
      return true;
    }
    if (!takeStep(user, value, isLinear))
      return false;
    value = program.op(user).results[0];
  }
  return false;
}

/// where(isnan(x), 0, x), whose users are all that x has; −1: there is none.
int32_t Finder::choiceOfZero(int32_t value, int32_t &test) const {
  int32_t choice = -1;
  const std::vector<LocalUse> &uses = program.value(value).uses;
  for (const LocalUse &use : uses)
    (facts(use.op).role == OpRole::IsNaN ? test : choice) = use.op;
  if (test < 0 || choice < 0 || facts(choice).role != OpRole::Where || uses.size() != 2 ||
      program.result(test).uses.size() != 1)
    return -1;
  const std::vector<int32_t> &operands = program.op(choice).operands;
  const std::optional<double> otherwise = program.value(operands[1]).uniform;
  return operands[0] == program.op(test).results[0] && operands[2] == value &&
                 otherwise && *otherwise == 0
             ? choice
             : -1;
}

bool Finder::followWeights() {
  int32_t value = program.op(a.softmax).results[0];
  for (;;) {
    int32_t test = -1, user = a.zeroForNaN ? -1 : choiceOfZero(value, test);
    if (user >= 0) {
      a.zeroForNaN = true;
      take(test);
    } else {
      user = userOf(value, "weights");
      if (user < 0)
        return false;
      if (facts(user).role == OpRole::Contract) {
        const std::vector<int32_t> &operands = program.op(user).operands;
        a.output = user;
        a.weightsOperand = operands[0] == value ? 0 : 1;
        return operands[0] != operands[1];
      }
      if (isReordered(user))
        a.behind.push_back(user);
      else if (!isFloatCast(user))
        return false;
    }
    take(user);
    value = program.op(user).results[0];
  }
}

/// The operand of casts between floats that nobody else reads, and these casts.
int32_t Finder::uncast(int32_t value, std::vector<int32_t> &casts) const {
  for (int32_t op; (op = program.value(value).producer) >= 0 &&
                   program.value(value).uses.size() == 1 && isFloatCast(op);) {
    casts.push_back(op);
    value = program.op(op).operands[0];
  }
  return value;
}

/// The operand of products with uniform constants that nobody else reads, with the casts
/// around them: the kernel computes in f32.
int32_t Finder::unscaled(int32_t value) {
  for (;;) {
    std::vector<int32_t> casts;
    const int32_t product = uncast(value, casts), op = program.value(product).producer;
    if (op < 0 || program.value(product).uses.size() != 1 ||
        (facts(op).role != OpRole::Mul && facts(op).role != OpRole::Div))
      return value;
    std::optional<double> factor;
    int32_t inner = -1;
    for (int32_t operand : program.op(op).operands)
      if (!factor && (factor = factorOf(op, operand)))
        inner = operand;
    if (!factor)
      return value;
    a.scale *= *factor;
    casts.push_back(op);
    value = uncast(inner, casts);
    for (int32_t taken : casts)
      take(taken);
  }
}

bool Finder::takeOperands() {
  if (!why.empty())
    return false;
  const std::vector<int32_t> &operands = program.op(a.scores).operands;
  a.queriesAreLeft = true;
  a.v = program.op(a.output).operands[1 - a.weightsOperand];
  a.q = operands[0], a.k = operands[1];
  if (!fits(program, a)) {
    a.queriesAreLeft = false;
    std::swap(a.q, a.k);
    if (!fits(program, a)) {
      why = "the dims of its products are not those of attention";
      return false;
    }
  }
  for (int32_t value : {a.q, a.k, a.v, program.op(a.output).results[0],
                        program.op(a.softmax).operands[0]})
    if (DType type = program.value(value).type;
        type != DType::F32 && type != DType::BF16 && type != DType::F16) {
      why = "its operands are neither f32, bf16 nor f16";
      return false;
    }
  a.q = unscaled(a.q);
  a.k = unscaled(a.k);
  for (int32_t op : a.pointwise)
    for (int32_t operand : program.op(op).operands)
      if (operand != a.begin &&
          std::ranges::count(a.pointwise, program.value(operand).producer) == 0)
        takeMask(operand);
  return true;
}

/// A few plain operations a point, on values that are not of each point.
void Finder::takeMask(int32_t value) {
  const LocalValue &it = program.value(value);
  const Shape &shape = it.shape, &whole = program.value(a.begin).shape;
  if (it.producer < 0 || shape.size() < 2 || it.isUniform())
    return;
  const LocalOp &op = program.op(it.producer);
  if (op.facts.kind != OpKind::Pointwise || op.results.size() != 1 || !op.facts.isCheap ||
      shape.back() != whole.back() ||
      shape[shape.size() - 2] != whole[whole.size() - 2] ||
      std::ranges::count(a.own, it.producer) != 0)
    return;
  a.own.push_back(it.producer);
  for (int32_t operand : op.operands)
    takeMask(operand);
}

bool Finder::measure() {
  const Shape domain = a.domain(program);
  if (std::max(domain[0], domain[1]) > target.widestHead) {
    why = "its heads have more than " + std::to_string(target.widestHead) + " elements";
    return false;
  }
  const Shape &shape = program.value(a.begin).shape;
  if (shape[shape.size() - 2] >= target.fewestQueries &&
      shape.back() >= target.fewestKeys)
    return true;
  why = "it has few queries or keys, which the engine's products serve faster";
  return false;
}

Attentions kernels::takeAttentions(LocalProgram &program, const Target &target) {
  using enum LocalOp::Attention;
  Attentions found;
  if (!target.streamsAttention)
    return found;
  auto mark = [&](int32_t op) -> LocalOp::Attention & {
    return program.ops[static_cast<size_t>(op)].attention;
  };
  std::vector<bool> own(program.ops.size(), false);
  for (size_t o = 0; o < program.ops.size(); ++o) {
    if (program.ops[o].facts.role != OpRole::Contract)
      continue;
    Finder finder(program, static_cast<int32_t>(o), target);
    if (finder.find()) {
      for (int32_t op : finder.a.own)
        own[static_cast<size_t>(op)] = true;
      for (int32_t op : finder.a.chain)
        mark(op) = Inside;
      found.byRoot.try_emplace(finder.a.output, std::move(finder.a));
    } else if (finder.a.output >= 0 && !finder.why.empty()) {
      found.apart.emplace_back(finder.a.softmax, finder.why);
    }
  }
  // Ops that compute masks for attentions alone are not computed by themselves.
  for (size_t o = program.ops.size(); o-- > 0;)
    if (own[o] &&
        std::ranges::all_of(program.result(static_cast<int32_t>(o)).uses,
                            [&](const LocalUse &use) { return mark(use.op) == Inside; }))
      program.ops[o].attention = Inside;
  // Values that others read too are in memory.
  for (auto &[root, attention] : found.byRoot) {
    std::erase_if(attention.own, [&](int32_t op) { return mark(op) != Inside; });
    if (mark(root) == None)
      mark(root) = Root;
  }
  return found;
}
