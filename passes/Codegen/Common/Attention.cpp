//===- Attention.cpp - Finding softmax between two products ---------------===//
#include "passes/Codegen/Common/Attention.h"

#include "passes/Codegen/Common/Fusion.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/MatMulLoops.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Where operands lie
//===----------------------------------------------------------------------===//

/// Factors of one tensor that another lacks; size 1 does not count.
static SmallVector<int32_t> missing(const ShardingRule &rule, const TensorFactors &of,
                                    const TensorFactors &from) {
  SmallVector<int32_t> found;
  for (const auto &dim : of)
    for (int32_t f : dim)
      if (rule.factors[static_cast<size_t>(f)].size != 1 &&
          llvm::none_of(from, [&](const auto &d) { return llvm::is_contained(d, f); }))
        found.push_back(f);
  return found;
}

/// The dims of a tensor with these factors, as another one moves along them.
static std::vector<Parts> along(const ShardingRule &rule, const TensorFactors &dims,
                                const std::vector<Parts> &partsOf) {
  std::vector<Parts> result;
  for (const auto &dim : dims) {
    Parts parts;
    for (int32_t f : dim) {
      const Parts &own = partsOf[static_cast<size_t>(f)];
      if (own.empty())
        parts.push_back({rule.factors[static_cast<size_t>(f)].size, 0});
      parts.append(own.begin(), own.end());
    }
    result.push_back(simplified(std::move(parts)));
  }
  return result;
}

static Parts standing(int64_t size) { return size == 1 ? Parts() : Parts{{size, 0}}; }

static int64_t sizeOfFactor(const RuleRef &facts, int32_t factor) {
  return facts->rule->factors[static_cast<size_t>(factor)].size;
}

Shape Attention::domain() const {
  RuleRef first = ruleOf(scores), second = ruleOf(output);
  const ShardingRule &rule = *first->rule;
  auto depth = missing(rule, rule.operands[0], rule.results[0]);
  auto width = missing(*second->rule, second->rule->operands[1 - weightsOperand],
                       second->rule->operands[weightsOperand]);
  Shape shape{sizeOfFactor(first, depth[0]), sizeOfFactor(second, width[0])};
  llvm::append_range(shape, shapeOf(begin));
  return shape;
}

std::optional<View> Attention::inDomain(Part part, const View &view) const {
  bool isFirst = part == Query || part == Key;
  RuleRef facts = ruleOf(isFirst ? scores : output);
  const ShardingRule &rule = *facts->rule;
  const TensorFactors &weights =
      isFirst ? rule.results[0] : rule.operands[weightsOperand];
  const TensorFactors &own =
      isFirst          ? rule.operands[(part == Query) == queriesAreLeft ? 0 : 1]
      : part == Output ? rule.results[0]
                       : rule.operands[1 - weightsOperand];
  auto partsOf = partsOfFactors(rule, own, view);
  auto inner = missing(rule, own, weights);
  if (!partsOf || inner.size() != 1)
    return std::nullopt;
  std::optional<View> seen = View{view.offset, along(rule, weights, *partsOf)};
  if (isFirst) {
    for (Operation *op : before)
      if (seen)
        seen = cast<ViewOpInterface>(op).resultView(*seen);
  } else {
    for (Operation *op : llvm::reverse(behind))
      if (seen)
        seen = cast<ViewOpInterface>(op).operandView(*seen);
  }
  if (!seen)
    return std::nullopt;
  Shape shape = domain();
  std::vector<Parts> dims{standing(shape[0]), standing(shape[1])};
  dims[isFirst ? 0 : 1] = simplified((*partsOf)[static_cast<size_t>(inner[0])]);
  dims.insert(dims.end(), seen->dims.begin(), seen->dims.end());
  return View{seen->offset, std::move(dims)};
}

static bool stands(const Parts &parts) {
  return llvm::all_of(parts, [](const Part &p) { return p.stride == 0; });
}
static bool isOneLoop(const Parts &parts) {
  return parts.size() == 1 && parts[0].stride != 0;
}

/// Whether the operands, were they dense, move along the dims as those of attention do.
static bool fits(const Attention &a) {
  RuleRef first = ruleOf(a.scores), second = ruleOf(a.output);
  const ShardingRule &rule = *first->rule, &other = *second->rule;
  const TensorFactors &weights = other.operands[a.weightsOperand];
  for (size_t side : {0, 1})
    if (missing(rule, rule.operands[side], rule.results[0]).size() != 1)
      return false;
  if (missing(other, other.operands[1 - a.weightsOperand], weights).size() != 1 ||
      missing(other, weights, other.results[0]).size() != 1)
    return false;
  auto seen = [&](Attention::Part part, Value value) {
    return a.inDomain(part, View::dense(shapeOf(value)));
  };
  auto q = seen(Attention::Query, a.q), k = seen(Attention::Key, a.k);
  auto v = seen(Attention::Values, a.v);
  auto out = seen(Attention::Output, a.output->getResult(0));
  if (!q || !k || !v || !out)
    return false;
  size_t keys = q->dims.size() - 1, queries = keys - 1;
  bool isOutputWhole = true; // each element is of one row
  for (size_t d = 2; d < queries; ++d)
    isOutputWhole &=
        llvm::none_of(out->dims[d], [](const Part &p) { return p.stride == 0; });
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

static bool isFloatCast(Operation *op) {
  return isa<graph::CastOp>(op) &&
         isa<FloatType>(getElementTypeOrSelf(op->getOperand(0).getType())) &&
         isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType()));
}

/// By what `op` multiplies its operand `value`, if that is all it does.
static std::optional<double> factorOf(Operation *op, Value value) {
  if (!isa<graph::MulOp, graph::DivOp>(op) ||
      op->getResult(0).getType() != value.getType())
    return std::nullopt;
  bool isLeft = op->getOperand(0) == value;
  Value other = op->getOperand(isLeft ? 1 : 0);
  if (!uniformOf(other) || (isa<graph::DivOp>(op) && !isLeft))
    return std::nullopt;
  double number = *uniformOf(other);
  return isa<graph::DivOp>(op) ? 1 / number : number;
}

static bool isView(Operation *op) {
  return isa<graph::ReshapeOp, graph::TransposeOp>(op);
}

namespace {
/// Follows one contraction to a softmax and on to another.
class Finder {
public:
  Finder(graph::ContractOp scores, const kernels::Target &target) : target(target) {
    a.scores = scores;
  }

  /// Whether it is attention. If not, `why` is set where it only just is not.
  bool find() { return followScores() && followWeights() && takeOperands() && measure(); }

  Attention a;
  std::string why;

private:
  bool followScores();
  bool followWeights();
  bool takeOperands();
  bool measure();
  void takeMask(Value value);

  void take(Operation *op) { a.chain.insert(op); }
  /// What reads the value, if it is one op; otherwise the way goes on by one that may
  /// lead to the softmax, to say why this is none.
  Operation *userOf(Value value, const char *what) {
    if (value.hasOneUse())
      return *value.user_begin();
    why = std::string("something else reads the ") + what;
    for (Operation *user : value.getUsers())
      if (isa<graph::SoftmaxOp, graph::ContractOp, PayloadOpInterface, ViewOpInterface>(
              user) &&
          !isa<graph::IsNaNOp>(user))
        return user;
    return nullptr;
  }

  const kernels::Target &target;
};
} // namespace

bool Finder::followScores() {
  Value value = a.scores->getResult(0);
  take(a.scores);
  bool isLinear = true;
  for (Operation *user; (user = userOf(value, "scores"));) {
    if (isLinear)
      a.begin = value;
    if (auto softmax = dyn_cast<graph::SoftmaxOp>(user)) {
      auto rank = static_cast<int64_t>(shapeOf(value).size());
      a.softmax = softmax;
      take(user);
      auto axis = static_cast<int64_t>(softmax.getAxis());
      if (rank < 2 || (axis != -1 && axis != rank - 1))
        why = "the softmax is not along the last dim";
      return true;
    }
    if (isView(user) && isLinear) {
      a.before.push_back(user);
    } else if (std::optional<double> factor = factorOf(user, value);
               isLinear && (factor || isFloatCast(user))) {
      a.scale *= factor.value_or(1);
    } else {
      isLinear = false;
      if (!isa<PayloadOpInterface>(user) || user->getNumResults() != 1 ||
          shapeOf(user->getResult(0)) != shapeOf(value) || user == a.scores)
        return false;
      if (llvm::count(user->getOperands(), value) != 1)
        why = "an op takes the scores twice";
      a.pointwise.push_back(user);
    }
    take(user);
    value = user->getResult(0);
  }
  return false;
}

/// where(isnan(x), 0, x), whose users are all that x has.
static Operation *zeroForNaN(Value x, Operation *&test) {
  test = nullptr;
  Operation *choice = nullptr;
  for (Operation *user : x.getUsers())
    (isa<graph::IsNaNOp>(user) ? test : choice) = user;
  if (!test || !choice || !isa<graph::WhereOp>(choice) ||
      !test->getResult(0).hasOneUse() || llvm::range_size(x.getUses()) != 2 ||
      choice->getOperand(0) != test->getResult(0) || choice->getOperand(2) != x ||
      !uniformOf(choice->getOperand(1)) || *uniformOf(choice->getOperand(1)) != 0)
    return nullptr;
  return choice;
}

bool Finder::followWeights() {
  Value value = a.softmax->getResult(0);
  for (;;) {
    Operation *test = nullptr, *user = nullptr;
    if (Operation *choice = a.zeroForNaN ? nullptr : zeroForNaN(value, test)) {
      a.zeroForNaN = true;
      take(test);
      user = choice;
    } else {
      user = userOf(value, "weights");
      if (!user)
        return false;
      if (auto contract = dyn_cast<graph::ContractOp>(user)) {
        a.output = contract;
        a.weightsOperand = contract.getLhs() == value ? 0 : 1;
        return contract.getLhs() != contract.getRhs();
      }
      if (isView(user))
        a.behind.push_back(user);
      else if (!isFloatCast(user))
        return false;
    }
    take(user);
    value = user->getResult(0);
  }
}

/// The operand of casts between floats that nobody else reads, and these casts.
static Value uncast(Value value, SmallVector<Operation *> &casts) {
  for (Operation *op;
       (op = value.getDefiningOp()) && op->hasOneUse() && isFloatCast(op);) {
    casts.push_back(op);
    value = op->getOperand(0);
  }
  return value;
}

/// The operand of products with uniform constants that nobody else reads, with the casts
/// around them: the kernel computes in f32.
static Value unscaled(Value value, double &scale, SetVector<Operation *> &chain) {
  for (;;) {
    SmallVector<Operation *> casts;
    Value product = uncast(value, casts);
    Operation *op = product.getDefiningOp();
    if (!op || !op->hasOneUse())
      break;
    std::optional<double> factor;
    Value inner;
    if (isa<graph::MulOp, graph::DivOp>(op))
      for (Value operand : op->getOperands())
        if (!factor && (factor = factorOf(op, operand)))
          inner = operand;
    if (!factor)
      break;
    scale *= *factor;
    chain.insert(casts.begin(), casts.end());
    chain.insert(op);
    casts.clear();
    value = uncast(inner, casts);
    chain.insert(casts.begin(), casts.end());
  }
  return value;
}

bool Finder::takeOperands() {
  if (!why.empty())
    return false;
  a.queriesAreLeft = true;
  a.v = a.output->getOperand(1 - a.weightsOperand);
  a.q = a.scores.getLhs(), a.k = a.scores.getRhs();
  if (!fits(a)) {
    a.queriesAreLeft = false;
    std::swap(a.q, a.k);
    if (!fits(a)) {
      why = "the dims of its products are not those of attention";
      return false;
    }
  }
  Value values[] = {a.q, a.k, a.v, a.output.getResult(), a.softmax.getOperand()};
  for (Value operand : values) {
    Type type = getElementTypeOrSelf(operand.getType());
    if (!type.isF32() && !type.isBF16() && !type.isF16()) {
      why = "its operands are neither f32, bf16 nor f16";
      return false;
    }
  }
  a.q = unscaled(a.q, a.scale, a.chain);
  a.k = unscaled(a.k, a.scale, a.chain);
  for (Operation *op : a.pointwise)
    for (Value operand : op->getOperands())
      if (Operation *from = operand.getDefiningOp();
          operand != a.begin && !llvm::is_contained(a.pointwise, from))
        takeMask(operand);
  return true;
}

/// A few plain operations a point, on values that are not of each point.
static bool isCheap(Operation *op) {
  auto payload = dyn_cast<PayloadOpInterface>(op);
  if (!payload || op->getNumResults() != 1 || payload.getPayload().flops() > 4)
    return false;
  return llvm::none_of(payload.getPayload().nodes(), [](const ScalarNode &n) {
    return (n.op >= ScalarOp::Exp && n.op <= ScalarOp::Cos) || n.op == ScalarOp::Div ||
           n.op == ScalarOp::Pow || n.op == ScalarOp::Mod;
  });
}

void Finder::takeMask(Value value) {
  Operation *op = value.getDefiningOp();
  Shape shape = shapeOf(value), whole = shapeOf(a.begin);
  if (!op || shape.size() < 2 || uniformOf(value) || !isCheap(op) ||
      shape.back() != whole.back() ||
      shape[shape.size() - 2] != whole[whole.size() - 2] || !a.own.insert(op))
    return;
  for (Value operand : op->getOperands())
    takeMask(operand);
}

bool Finder::measure() {
  Shape domain = a.domain();
  if (std::max(domain[0], domain[1]) > target.widestHead) {
    why = "its heads have more than " + std::to_string(target.widestHead) + " elements";
    return false;
  }
  Shape shape = shapeOf(a.begin);
  if (shape[shape.size() - 2] >= target.fewestQueries &&
      shape.back() >= target.fewestKeys)
    return true;
  why = "it has few queries or keys, which the engine's products serve faster";
  return false;
}

Attentions codegen::findAttentions(func::FuncOp function, const kernels::Target &target) {
  Attentions found;
  DenseSet<Operation *> own;
  for (Operation &op : function.front().without_terminator()) {
    auto scores = dyn_cast<graph::ContractOp>(op);
    if (!scores)
      continue;
    Finder finder(scores, target);
    if (finder.find()) {
      own.insert(finder.a.own.begin(), finder.a.own.end());
      found.absorbed.insert(finder.a.chain.begin(), finder.a.chain.end());
      Operation *root = finder.a.output;
      found.byRoot.try_emplace(root, std::move(finder.a));
    } else if (finder.a.output && !finder.why.empty()) {
      found.apart.emplace_back(finder.a.softmax, finder.why);
    }
  }
  // What computes masks for attentions alone is not computed by itself.
  for (Operation &op : llvm::reverse(function.front().without_terminator()))
    if (own.contains(&op) && llvm::all_of(op.getUsers(), [&](Operation *user) {
          return found.absorbed.contains(user);
        }))
      found.absorbed.insert(&op);
  // What others read too is in memory.
  for (auto &entry : found.byRoot)
    entry.second.own.remove_if(
        [&](Operation *op) { return !found.absorbed.contains(op); });
  return found;
}
