//===- FormAttention.cpp - Attention as one op, before its gradient -------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/RuleCache.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Train/Differentiate.h"

#include "llvm/ADT/DenseSet.h"

#include <map>

namespace partita {
#define GEN_PASS_DEF_FORMATTENTIONPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

//===----------------------------------------------------------------------===//
// The payload between product and softmax
//===----------------------------------------------------------------------===//

static Type elementOf(Value value) { return getElementTypeOrSelf(value.getType()); }

static Payload numberPayload(double value) {
  return Payload::parse("x")->withLeaves({value});
}
static Payload operandPayload(size_t number) {
  return Payload::parse("x")->withLeaves({static_cast<int32_t>(number)});
}

namespace {
/// A payload of the score, operand 0, and of tensors that broadcast to the scores.
class Between {
public:
  /// The op, one with a payload, follows `value`, what there is so far.
  void add(PayloadOpInterface op, Value value);
  Payload payload = operandPayload(0);
  std::vector<Value> operands; ///< 1, 2, …
  double scale = 1;

private:
  Payload operandOf(Value value, const Shape &scores);
  size_t numberOf(Value value) {
    size_t number = llvm::find(operands, value) - operands.begin();
    if (number == operands.size())
      operands.push_back(value);
    return number + 1;
  }
};
} // namespace

/// The number by which the op multiplies its operand `value`, if that is all it does.
static std::optional<double> factorOf(Operation *op, Value value) {
  if (!isa<MulOp, DivOp>(op))
    return std::nullopt;
  const bool isLeft = op->getOperand(0) == value;
  std::optional<double> number = uniformOf(op->getOperand(isLeft ? 1 : 0));
  if (!number || (isa<DivOp>(op) && (!isLeft || *number == 0)))
    return std::nullopt;
  return isa<DivOp>(op) ? 1 / *number : *number;
}

/// The payload with numbers in the place of its attributes.
static Payload withNumbers(PayloadOpInterface op) {
  std::vector<Payload::Leaf> leaves, numbers;
  for (int32_t i = 0; i < op.getPayload().numOperands(); ++i)
    leaves.emplace_back(i);
  for (double number : op.getPayloadAttributes())
    numbers.emplace_back(number);
  return op.getPayload().withLeaves(leaves, numbers);
}

void Between::add(PayloadOpInterface op, Value value) {
  const ScalarNode &root = payload.nodes().back();
  if (std::optional<double> factor = factorOf(op, value);
      factor && root.op == ScalarOp::Operand && root.operand == 0) {
    scale *= *factor;
    return;
  }
  std::vector<Payload> arguments;
  for (Value operand : op->getOperands())
    arguments.push_back(operand == value ? payload : operandOf(operand, shapeOf(value)));
  payload = withNumbers(op).composed(arguments);
}

/// Numbers that f32 has, all of them: what is compared in f32 is then compared as the
/// integers are.
static bool isExact(Value value) {
  if (!isa<IntegerType>(elementOf(value)))
    return false;
  if (elementOf(value).isInteger(1))
    return true;
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements =
      constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : nullptr;
  return elements && llvm::all_of(elements.getValues<APInt>(), [](const APInt &number) {
           return number.isSignedIntN(25);
         });
}

/// A mask that a comparison of positions makes, one for each pair of query and key, is
/// made in the payload: a row of positions is read instead.
Payload Between::operandOf(Value value, const Shape &scores) {
  if (std::optional<double> number = uniformOf(value))
    return numberPayload(*number);
  auto op = value.getDefiningOp<PayloadOpInterface>();
  Shape shape = shapeOf(value);
  const bool isTable = shape.size() >= 2 && shape.back() == scores.back() &&
                       shape[shape.size() - 2] == scores[scores.size() - 2];
  const bool isLogic = op && op->getNumResults() == 1 && op.getPayload().resultIsBool() &&
                       op.getPayload().flops() <= 4 &&
                       llvm::all_of(op->getOperands(), [](Value operand) {
                         return isExact(operand) || uniformOf(operand);
                       });
  if (!isTable || !isLogic)
    return operandPayload(numberOf(value));
  std::vector<Payload> arguments;
  for (Value operand : op->getOperands())
    arguments.push_back(operandOf(operand, scores));
  return withNumbers(op).composed(arguments);
}

//===----------------------------------------------------------------------===//
// Finding
//===----------------------------------------------------------------------===//

namespace {
/// Places of the loops of a tensor: of each dim its loop, -1 for a dim of size 1 without.
using Loops = SmallVector<int32_t>;

/// Follows one product to a softmax and on to another.
class Finder {
public:
  Finder(ContractOp scores, const llvm::DenseSet<Value> &trained)
      : scores(scores), trained(trained) {}

  /// True if it is attention. `why` says of `softmax` why it only just is not.
  bool find();
  /// Builds the op in front of the second product, and replaces that.
  void form();

  ContractOp scores, output;
  SoftmaxOp softmax;
  std::string why;
  SmallVector<Operation *> swallowed; ///< in front of the second product

private:
  bool followScores();
  bool followWeights();
  bool checkOperands();
  bool takeScores();
  bool takeValues();
  Operation *userOf(Value value, const char *what);
  void fail(const std::string &reason) {
    if (why.empty())
      why = reason;
  }

  const llvm::DenseSet<Value> &trained;
  Between between;
  bool zeroForNaN = false;
  size_t weightsOperand = 0; ///< of the second product
  // Operands of the op, their loops in order: outer, queries or keys, depth or width.
  Value q, k, v;
  Loops ofQ, ofK, ofV, ofOutput; ///< dims of the operands in the op's order, -1: size 1
};
} // namespace

/// The reader of the value, if it is one op; otherwise the way goes on by one that may
/// lead to the softmax, to say why this is none.
Operation *Finder::userOf(Value value, const char *what) {
  if (value.hasOneUse())
    return *value.user_begin();
  fail(std::string("something else reads the ") + what);
  for (Operation *user : value.getUsers())
    if (isa<SoftmaxOp, ContractOp, PayloadOpInterface>(user) && !isa<IsNaNOp>(user))
      return user;
  return nullptr;
}

/// True for a cast between f32 and a narrower type. What stands between the products is
/// computed in f32 by the op, and rounded where its result is.
static bool changesWidth(Operation *op) {
  auto cast = dyn_cast<CastOp>(op);
  auto isNarrow = [](Type type) { return type.isBF16() || type.isF16(); };
  return cast && ((isNarrow(elementOf(op->getOperand(0))) && cast.getTo().isF32()) ||
                  (elementOf(op->getOperand(0)).isF32() && isNarrow(cast.getTo())));
}

bool Finder::followScores() {
  Value value = scores.getResult();
  swallowed.push_back(scores);
  while (Operation *user = userOf(value, "scores")) {
    if (auto found = dyn_cast<SoftmaxOp>(user)) {
      softmax = found;
      swallowed.push_back(user);
      auto rank = static_cast<int64_t>(shapeOf(value).size());
      auto axis = static_cast<int64_t>(found.getAxis());
      if (rank < 2 || (axis != -1 && axis != rank - 1))
        fail("the softmax is not along the last dim");
      return true;
    }
    if (changesWidth(user)) {
      // No part of the payload.
    } else if (isa<ReshapeOp, TransposeOp, CastOp>(user)) {
      fail("a " + user->getName().stripDialect().str() +
           " stands between the product and it");
    } else if (auto op = dyn_cast<PayloadOpInterface>(user);
               !op || user->getNumResults() != 1 ||
               user->getResult(0).getType() != value.getType()) {
      return false;
    } else if (llvm::count(user->getOperands(), value) != 1) {
      fail("an op takes the scores twice");
    } else if (why.empty()) {
      between.add(op, value);
    }
    swallowed.push_back(user);
    value = user->getResult(0);
  }
  return false;
}

/// where(isnan(x), 0, x), whose users are all that x has.
static Operation *zeroForNaNOf(Value x, Operation *&test) {
  test = nullptr;
  Operation *choice = nullptr;
  for (Operation *user : x.getUsers())
    (isa<IsNaNOp>(user) ? test : choice) = user;
  if (!test || !choice || !isa<WhereOp>(choice) || !test->getResult(0).hasOneUse() ||
      llvm::range_size(x.getUses()) != 2 || choice->getOperand(0) != test->getResult(0) ||
      choice->getOperand(2) != x || uniformOf(choice->getOperand(1)) != 0)
    return nullptr;
  return choice;
}

bool Finder::followWeights() {
  Value value = softmax.getResult();
  Operation *test = nullptr;
  if (Operation *choice = zeroForNaNOf(value, test)) {
    zeroForNaN = true;
    swallowed.append({test, choice});
    value = choice->getResult(0);
  }
  if (value.hasOneUse() && changesWidth(*value.user_begin())) {
    swallowed.push_back(*value.user_begin());
    value = swallowed.back()->getResult(0);
  }
  Operation *user = userOf(value, "weights");
  if (!user)
    return false;
  if (auto contract = dyn_cast<ContractOp>(user)) {
    output = contract;
    weightsOperand = contract.getLhs() == value ? 0 : 1;
    return contract.getLhs() != contract.getRhs();
  }
  // Another op and a product: dropout, a sink, a gate.
  for (Operation *next = user; next && next->getNumResults() == 1;) {
    if (auto contract = dyn_cast<ContractOp>(next)) {
      output = contract;
      fail("'" + dist::nodeName(user) + "' (" + user->getName().getStringRef().str() +
           ") stands behind it");
      return true;
    }
    Value result = next->getResult(0);
    next = isa<PayloadOpInterface, ReshapeOp, TransposeOp, CastOp>(next) &&
                   result.hasOneUse()
               ? *result.user_begin()
               : nullptr;
  }
  return false;
}

/// The loop of each dim, -1 for one of size 1; nothing where a dim has several.
static std::optional<Loops> loopsOf(const ShardingRule &rule,
                                    const TensorFactors &tensor) {
  Loops loops;
  for (const auto &dim : tensor) {
    if (dim.size() > 1)
      return std::nullopt;
    bool isOne = dim.empty() || rule.factors[static_cast<size_t>(dim[0])].size == 1;
    loops.push_back(isOne ? -1 : dim[0]);
  }
  return loops;
}

/// Loops of `tensor` that none of the others has.
static Loops loopsOnlyIn(const Loops &tensor, ArrayRef<const Loops *> others) {
  Loops found;
  for (int32_t loop : tensor)
    if (loop >= 0 && llvm::none_of(others, [&](const Loops *other) {
          return llvm::is_contained(*other, loop);
        }))
      found.push_back(loop);
  return found;
}

/// Loops of q and k: in the scores, and which one is summed.
bool Finder::takeScores() {
  RuleRef facts = ruleOf(scores);
  const ShardingRule &rule = *facts->rule;
  auto left = loopsOf(rule, rule.operands[0]), right = loopsOf(rule, rule.operands[1]);
  auto out = loopsOf(rule, rule.results[0]);
  if (!left || !right || !out || out->size() < 2)
    return false;
  q = scores.getLhs(), k = scores.getRhs();
  if (!llvm::is_contained(*right, out->back()))
    std::swap(q, k), std::swap(left, right);
  int32_t keys = out->back(), queries = (*out)[out->size() - 2];
  Loops summed;
  for (int32_t loop : *left)
    if (loop >= 0 && llvm::is_contained(*right, loop) && !llvm::is_contained(*out, loop))
      summed.push_back(loop);
  if (keys < 0 || queries < 0 || summed.size() != 1 || llvm::is_contained(*left, keys) ||
      llvm::is_contained(*right, queries) ||
      !loopsOnlyIn(*left, {&*right, &*out}).empty() ||
      !loopsOnlyIn(*right, {&*left, &*out}).empty() ||
      loopsOnlyIn(*right, {&*left}) != Loops{keys})
    return false;
  for (int32_t loop : ArrayRef(*out).drop_back(2)) {
    ofQ.push_back(loop);
    ofK.push_back(loop >= 0 && llvm::is_contained(*right, loop) ? loop : -1);
  }
  ofQ.append({queries, summed[0]}), ofK.append({keys, summed[0]});
  auto placed = [](Loops &wanted, const Loops &there) {
    for (int32_t &loop : wanted)
      loop =
          loop < 0 ? -1 : static_cast<int32_t>(llvm::find(there, loop) - there.begin());
  };
  placed(ofQ, *left), placed(ofK, *right);
  return true;
}

/// Likewise those of v and the result, by the dims of the weights.
bool Finder::takeValues() {
  RuleRef facts = ruleOf(output);
  const ShardingRule &rule = *facts->rule;
  auto weights = loopsOf(rule, rule.operands[weightsOperand]);
  auto values = loopsOf(rule, rule.operands[1 - weightsOperand]);
  auto out = loopsOf(rule, rule.results[0]);
  if (!weights || !values || !out)
    return false;
  v = output->getOperand(static_cast<unsigned>(1 - weightsOperand));
  int32_t keys = weights->back(), queries = (*weights)[weights->size() - 2];
  Loops width = loopsOnlyIn(*values, {&*weights});
  if (keys < 0 || queries < 0 || width.size() != 1 ||
      !llvm::is_contained(*values, keys) || llvm::is_contained(*values, queries) ||
      llvm::is_contained(*out, keys))
    return false;
  auto placeIn = [](const Loops &tensor, int32_t loop) {
    return loop < 0 ? -1
                    : static_cast<int32_t>(llvm::find(tensor, loop) - tensor.begin());
  };
  Loops wanted(weights->begin(), weights->end() - 2);
  for (auto [d, loop] : llvm::enumerate(wanted)) {
    bool has = loop >= 0 && llvm::is_contained(*values, loop);
    // Keys and values are shared by the same heads.
    if (has != (ofK[d] >= 0) || (loop >= 0 && !llvm::is_contained(*out, loop)))
      return false;
    ofV.push_back(has ? placeIn(*values, loop) : -1);
  }
  ofV.append({placeIn(*values, keys), placeIn(*values, width[0])});
  wanted.append({queries, width[0]});
  for (int32_t loop : *out)
    ofOutput.push_back(placeIn(wanted, loop));
  return llvm::is_contained(*out, queries) && llvm::is_contained(*out, width[0]);
}

/// True if zeros in the place of operands, which padding has, may make a number infinite
/// or none.
static bool minds(const Payload &payload) {
  std::vector<bool> depends; // on operands other than the score
  for (const ScalarNode &n : payload.nodes()) {
    bool any = n.op == ScalarOp::Operand && n.operand != 0;
    for (int32_t arg : n.args)
      any |= depends[static_cast<size_t>(arg)];
    depends.push_back(any);
    if (any &&
        (n.op == ScalarOp::Div || n.op == ScalarOp::Mod || n.op == ScalarOp::Pow ||
         n.op == ScalarOp::Log || n.op == ScalarOp::Log1p || n.op == ScalarOp::Sqrt))
      return true;
  }
  return false;
}

bool Finder::checkOperands() {
  Type type = elementOf(q);
  if (!isa<FloatType>(type) || type.getIntOrFloatBitWidth() < 16)
    fail("its operands are no floats of 16 bits or more");
  if (elementOf(k) != type || elementOf(v) != type || elementOf(output) != type)
    fail("its products are of different types");
  Shape scored = shapeOf(scores.getResult());
  for (Value operand : between.operands) {
    if (trained.contains(operand))
      fail("what is added to or multiplied with its scores trains");
    Shape shape = shapeOf(operand);
    if (shape.size() > scored.size())
      fail("a mask has more dims than its scores");
  }
  if (minds(between.payload))
    fail("what is between divides by, or takes a root or logarithm of, an operand");
  if (between.operands.size() > 900)
    fail("more operands follow than a payload has names for");
  return why.empty();
}

bool Finder::find() {
  if (!followScores() || !followWeights())
    return false;
  if (why.empty() && (!takeScores() || !takeValues()))
    fail("the dims of its products are not those of attention");
  return why.empty() && checkOperands();
}

/// The tensor with these of its dims in order, -1 being a new dim of size 1. Dims of size
/// 1 that are not named go.
static Value arranged(Formula &f, Value value, ArrayRef<int32_t> dims) {
  Shape shape = f.shape(value), target;
  std::vector<int64_t> permutation;
  for (int32_t d : dims) {
    target.push_back(d < 0 ? 1 : shape[static_cast<size_t>(d)]);
    if (d >= 0)
      permutation.push_back(d);
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (!llvm::is_contained(dims, static_cast<int32_t>(d)))
      permutation.push_back(static_cast<int64_t>(d));
  if (!llvm::is_sorted(permutation))
    value = f.transpose(value, permutation);
  return f.reshape(value, target);
}

void Finder::form() {
  OpBuilder builder(output);
  Operation *before = output->getPrevNode();
  Formula f(builder, NameLoc::get(builder.getStringAttr(dist::nodeName(output))));
  Values operands{arranged(f, q, ofQ), arranged(f, k, ofK), arranged(f, v, ofV)};
  operands.insert(operands.end(), between.operands.begin(), between.operands.end());
  Values made =
      f.ops("attention", 3, operands,
            {f.attr("payload", PayloadAttr::get(builder.getContext(), between.payload)),
             f.attr("scale", builder.getF64FloatAttr(between.scale)),
             f.attr("zero_for_nan", builder.getBoolAttr(zeroForNaN))});
  Value result = arranged(f, made[0], ofOutput);
  if (f.failed())
    llvm_unreachable("attention of checked operands");
  for (Operation *op = output->getPrevNode(); op != before; op = op->getPrevNode())
    copyStepMarks(output, op);
  auto named = cast<OpResult>(result);
  for (auto [i, name] : llvm::enumerate(valueNames(output->getOpResult(0))))
    i == 0 ? setValueName(named, name) : addValueName(named, name);
  output.getResult().replaceAllUsesWith(result);
  output.erase();
  for (Operation *op : llvm::reverse(swallowed))
    if (op->use_empty())
      op->erase();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Values that depend on parameters.
static llvm::DenseSet<Value> trainedValues(func::FuncOp main) {
  llvm::DenseSet<Value> trained;
  for (BlockArgument argument : main.getArguments())
    if (dist::argumentState(main, argument.getArgNumber()) && isReal(argument))
      trained.insert(argument);
  for (Operation &op : main.front())
    if (llvm::any_of(op.getOperands(),
                     [&](Value operand) { return trained.contains(operand); }))
      for (Value result : op.getResults())
        if (isReal(result))
          trained.insert(result);
  return trained;
}

namespace {
struct FormAttentionPass : partita::impl::FormAttentionPassBase<FormAttentionPass> {
  using FormAttentionPassBase::FormAttentionPassBase;
  explicit FormAttentionPass(const NamedApart &named) {
    nodes = named.nodes;
    inner = named.inner;
    parts = named.parts;
    byStages = named.byStages;
  }

  void runOnOperation() override {
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    if (!main)
      return;
    modules = getOperation()->getAttrOfType<DictionaryAttr>(modulePathsAttr);
    llvm::DenseSet<Value> trained = trainedValues(main);
    SmallVector<ContractOp> products(main.getOps<ContractOp>());
    // A softmax apart, by the reason.
    std::map<std::string, SmallVector<Operation *>> notes;
    llvm::DenseSet<Operation *> gone;
    for (ContractOp product : products) {
      if (gone.contains(product))
        continue;
      Finder finder(product, trained);
      bool found = finder.find();
      if (found && isNamed(finder))
        finder.why = "hints or recompute name a part of it";
      else if (found && byStages && isCut(finder))
        finder.why = "it is in several stages";
      if (found && finder.why.empty()) {
        gone.insert(finder.output);
        finder.form();
      } else if (finder.output && !finder.why.empty()) {
        notes[finder.why].push_back(finder.softmax);
      }
    }
    for (auto &[why, softmaxes] : notes)
      softmaxes.front()->emitRemark("softmax '")
          << dist::nodeName(softmaxes.front()) << "'"
          << (softmaxes.size() == 1
                  ? ""
                  : " and " + std::to_string(softmaxes.size() - 1) + " more")
          << ": its attention is two products, with a tensor of queries × keys: " << why;
  }

private:
  static bool isCut(const Finder &finder) {
    ContractOp output = finder.output;
    return llvm::any_of(finder.swallowed, [&](Operation *op) {
      return op->getAttr(stageAttr) != output->getAttr(stageAttr);
    });
  }

  bool isNamed(const Finder &finder) const {
    auto matches = [&](const std::string &glob, Operation *op) {
      std::string name = dist::nodeName(op);
      if (matchesGlob(glob, name))
        return true;
      // Transposes that the product has taken over.
      if (auto transposes = op->getAttrOfType<ArrayAttr>("graph.absorbed"))
        for (auto it : transposes.getAsRange<DictionaryAttr>())
          if (matchesGlob(glob, it.getAs<StringAttr>("name").str()))
            return true;
      auto path = modules ? modules.getAs<StringAttr>(name) : StringAttr();
      return path && matchesGlob(glob, path.str());
    };
    auto isInner = [&](const std::string &glob) {
      return llvm::any_of(finder.swallowed, [&](Operation *op) {
        return matches(glob, op) ||
               llvm::any_of(valueNames(op->getOpResult(0)), [&](StringRef name) {
                 return matchesGlob(glob, name.str());
               });
      });
    };
    Operation *output = finder.output;
    return llvm::any_of(
               nodes,
               [&](const std::string &g) { return isInner(g) || matches(g, output); }) ||
           llvm::any_of(inner, isInner) || llvm::any_of(parts, [&](const std::string &g) {
             return isInner(g) && !matches(g, output);
           });
  }

  DictionaryAttr modules;
};
} // namespace

std::unique_ptr<Pass> partita::createFormAttentionPass(const NamedApart &named) {
  return std::make_unique<FormAttentionPass>(named);
}
