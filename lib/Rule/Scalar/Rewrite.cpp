//===- Rewrite.cpp - Payloads made of payloads ----------------------------===//
#include "Words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>

using namespace partita;

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static std::string numberText(double value) {
  char text[32];
  for (int digits = 6; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  // The language has no names for these; 1e999 is read as an infinity.
  if (std::isinf(value))
    return value > 0 ? "1e999" : "-1e999";
  return std::isnan(value) ? "(0 / 0)" : text;
}

static std::string operandText(int32_t operand) {
  constexpr std::string_view letters = "xyzw";
  return operand < 4 ? std::string(1, letters[static_cast<size_t>(operand)])
                     : "x" + std::to_string(operand);
}

namespace {
/// A text and how close its outermost operator binds.
struct Written {
  std::string text;
  int level;
};
} // namespace

static constexpr int leafLevel = unaryLevel + 1;

static std::string bracketed(const Written &part, int level) {
  return part.level < level ? "(" + part.text + ")" : part.text;
}

static Written write(const ScalarNode &n, const std::vector<Written> &parts) {
  auto part = [&](size_t i) -> const Written & {
    return parts[static_cast<size_t>(n.args[i])];
  };
  if (n.op == ScalarOp::Operand)
    return {operandText(n.operand), leafLevel};
  if (n.op == ScalarOp::Attribute)
    return {n.attribute, leafLevel};
  if (n.op == ScalarOp::Constant)
    return {numberText(n.value), std::signbit(n.value) ? unaryLevel : leafLevel};
  if (n.op == ScalarOp::Neg || n.op == ScalarOp::Not)
    return {(n.op == ScalarOp::Neg ? "-" : "!") + bracketed(part(0), unaryLevel),
            unaryLevel};
  for (const BinaryWord &word : binaryWords)
    if (word.op == n.op)
      return {bracketed(part(0), word.level) + " " + std::string(word.token) + " " +
                  bracketed(part(1), word.level + 1),
              word.level};
  for (const FunctionWord &word : functionWords) {
    if (word.op != n.op)
      continue;
    std::string text = std::string(word.name) + "(";
    for (size_t i = 0; i < n.args.size(); ++i)
      text += (i == 0 ? "" : ", ") + part(i).text;
    return {text + ")", leafLevel};
  }
  return {"", leafLevel};
}

std::string Payload::str() const {
  std::vector<Written> parts;
  for (const ScalarNode &n : list)
    parts.push_back(write(n, parts));
  return parts.empty() ? "" : parts.back().text;
}

//===----------------------------------------------------------------------===//
// Leaves and simplification
//===----------------------------------------------------------------------===//

namespace partita {
/// Builds a payload node by node, each simplified.
class PayloadRewriter {
public:
  int32_t leaf(const Payload::Leaf &leaf) {
    if (const double *value = std::get_if<double>(&leaf))
      return number(*value);
    return make({ScalarOp::Operand, {}, std::get<int32_t>(leaf), 0, {}});
  }
  int32_t number(double value) { return make({ScalarOp::Constant, {}, 0, value, {}}); }
  int32_t add(ScalarOp op, std::vector<int32_t> args) {
    if (auto same = simplified(op, args))
      return *same;
    return make({op, std::move(args), 0, 0, {}});
  }
  /// The copy of each node, where `leafOf` tells what stands for an operand or attribute.
  using LeafOf = std::function<int32_t(const ScalarNode &)>;
  std::vector<int32_t> copy(const std::vector<ScalarNode> &nodes, const LeafOf &leafOf);
  /// The same, with other leaves.
  std::vector<int32_t> copy(const std::vector<ScalarNode> &nodes,
                            const std::vector<Payload::Leaf> &operands,
                            const std::vector<Payload::Leaf> &attributes);
  Payload done(int32_t root);

private:
  int32_t make(ScalarNode node) {
    auto known = std::find(made.list.begin(), made.list.end(), node);
    if (known == made.list.end())
      made.list.push_back(std::move(node)), known = made.list.end() - 1;
    return static_cast<int32_t>(known - made.list.begin());
  }
  std::optional<double> valueOf(int32_t node) const {
    const ScalarNode &n = made.list[static_cast<size_t>(node)];
    return n.op == ScalarOp::Constant ? std::optional(n.value) : std::nullopt;
  }
  bool is(int32_t node, double value) const { return valueOf(node) == value; }
  std::optional<int32_t> folded(ScalarOp op, const std::vector<int32_t> &args);
  std::optional<int32_t> simplified(ScalarOp op, const std::vector<int32_t> &args);

  Payload made;
};
} // namespace partita

/// Of numbers the number.
std::optional<int32_t> PayloadRewriter::folded(ScalarOp op,
                                               const std::vector<int32_t> &args) {
  Payload one;
  for (int32_t arg : args) {
    if (!valueOf(arg))
      return std::nullopt;
    one.list.push_back(made.list[static_cast<size_t>(arg)]);
  }
  if (args.empty() || op == ScalarOp::Bits)
    return std::nullopt;
  std::vector<int32_t> places;
  for (size_t i = 0; i < args.size(); ++i)
    places.push_back(static_cast<int32_t>(i));
  one.list.push_back({op, places, 0, 0, {}});
  std::vector<double> scratch;
  return number(one.evaluate<double>(nullptr, {}, scratch));
}

std::optional<int32_t> PayloadRewriter::simplified(ScalarOp op,
                                                   const std::vector<int32_t> &args) {
  if (auto value = folded(op, args))
    return value;
  switch (op) {
  case ScalarOp::Add:
    return is(args[0], 0)   ? std::optional(args[1])
           : is(args[1], 0) ? std::optional(args[0])
                            : std::nullopt;
  case ScalarOp::Sub:
    return is(args[1], 0) ? std::optional(args[0]) : std::nullopt;
  case ScalarOp::Mul:
    for (size_t i : {0, 1}) {
      if (is(args[i], 1))
        return args[1 - i];
      if (is(args[i], 0))
        return args[i];
      if (is(args[i], -1))
        return add(ScalarOp::Neg, {args[1 - i]});
    }
    return std::nullopt;
  case ScalarOp::Div:
    return is(args[1], 1) || is(args[0], 0) ? std::optional(args[0]) : std::nullopt;
  case ScalarOp::Neg: {
    const ScalarNode &inner = made.list[static_cast<size_t>(args[0])];
    return inner.op == ScalarOp::Neg ? std::optional(inner.args[0]) : std::nullopt;
  }
  case ScalarOp::Pow:
    return is(args[1], 1)   ? std::optional(args[0])
           : is(args[1], 0) ? std::optional(number(1))
                            : std::nullopt;
  case ScalarOp::Select:
    if (auto condition = valueOf(args[0]))
      return *condition != 0 ? args[1] : args[2];
    return args[1] == args[2] ? std::optional(args[1]) : std::nullopt;
  default:
    return std::nullopt;
  }
}

/// What the root needs, in order; the root is last.
Payload PayloadRewriter::done(int32_t root) {
  std::vector<bool> needed(made.list.size(), false);
  needed[static_cast<size_t>(root)] = true;
  for (size_t i = made.list.size(); i-- > 0;)
    for (int32_t arg : made.list[i].args)
      if (needed[i])
        needed[static_cast<size_t>(arg)] = true;
  Payload result;
  std::vector<int32_t> places(made.list.size(), -1);
  for (size_t i = 0; i <= static_cast<size_t>(root); ++i) {
    if (!needed[i])
      continue;
    ScalarNode node = made.list[i];
    for (int32_t &arg : node.args)
      arg = places[static_cast<size_t>(arg)];
    places[i] = static_cast<int32_t>(result.list.size());
    result.list.push_back(std::move(node));
  }
  return result;
}

std::vector<int32_t> PayloadRewriter::copy(const std::vector<ScalarNode> &nodes,
                                           const std::vector<Payload::Leaf> &operands,
                                           const std::vector<Payload::Leaf> &attributes) {
  return copy(nodes, [&](const ScalarNode &n) {
    auto place = static_cast<size_t>(n.operand);
    return leaf(n.op == ScalarOp::Operand ? operands[place] : attributes[place]);
  });
}

std::vector<int32_t> PayloadRewriter::copy(const std::vector<ScalarNode> &nodes,
                                           const LeafOf &leafOf) {
  std::vector<int32_t> copies;
  for (const ScalarNode &n : nodes) {
    if (n.op == ScalarOp::Operand || n.op == ScalarOp::Attribute)
      copies.push_back(leafOf(n));
    else if (n.op == ScalarOp::Constant)
      copies.push_back(number(n.value));
    else {
      std::vector<int32_t> args;
      for (int32_t arg : n.args)
        args.push_back(copies[static_cast<size_t>(arg)]);
      copies.push_back(add(n.op, std::move(args)));
    }
  }
  return copies;
}

Payload Payload::withLeaves(const std::vector<Leaf> &operands,
                            const std::vector<Leaf> &attributes) const {
  PayloadRewriter rewriter;
  return rewriter.done(rewriter.copy(list, operands, attributes).back());
}

Payload Payload::composed(const std::vector<Payload> &operands) const {
  PayloadRewriter rewriter;
  std::vector<int32_t> roots;
  for (const Payload &operand : operands)
    roots.push_back(
        rewriter
            .copy(operand.list,
                  [&](const ScalarNode &n) { return rewriter.leaf(n.operand); })
            .back());
  auto copies = rewriter.copy(
      list, [&](const ScalarNode &n) { return roots[static_cast<size_t>(n.operand)]; });
  return rewriter.done(copies.back());
}

Payload Payload::partAt(size_t node) const {
  PayloadRewriter rewriter;
  auto copies =
      rewriter.copy(list, [&](const ScalarNode &n) { return rewriter.leaf(n.operand); });
  return rewriter.done(copies[node]);
}

/// A choice between a number and 0 becomes the choice between x times it and 0: where the
/// derivative is 0, so is the product, whatever x is.
Payload Payload::timesCotangent() const {
  PayloadRewriter rewriter;
  int32_t x = rewriter.leaf(0);
  std::vector<Leaf> operands;
  for (int32_t i = 0; i < numOperands(); ++i)
    operands.emplace_back(i + 1);
  std::vector<int32_t> made = rewriter.copy(list, operands, {});
  const ScalarNode &root = list.back();
  auto times = [&](int32_t factor) { return rewriter.add(ScalarOp::Mul, {x, factor}); };
  if (root.op != ScalarOp::Select)
    return rewriter.done(times(made.back()));
  auto arg = [&](size_t i) { return made[static_cast<size_t>(root.args[i])]; };
  int32_t yes = times(arg(1)), no = times(arg(2));
  return rewriter.done(rewriter.add(ScalarOp::Select, {arg(0), yes, no}));
}

std::vector<int32_t> Payload::operandsRead() const {
  std::vector<int32_t> found;
  for (const ScalarNode &n : list)
    if (n.op == ScalarOp::Operand)
      found.push_back(n.operand);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

//===----------------------------------------------------------------------===//
// Linearity
//===----------------------------------------------------------------------===//

namespace {
enum class Degree : uint8_t { Zero, Free, Linear, Other }; // 0; without the operand; …
} // namespace

static bool isHomogeneous(Degree d) { return d == Degree::Zero || d == Degree::Linear; }

static Degree degreeOf(const ScalarNode &n, int32_t operand,
                       const std::vector<Degree> &degrees) {
  auto at = [&](size_t i) { return degrees[static_cast<size_t>(n.args[i])]; };
  auto isFree = [&](size_t i) { return at(i) == Degree::Zero || at(i) == Degree::Free; };
  auto linearIf = [](bool holds) { return holds ? Degree::Linear : Degree::Other; };
  if (n.op == ScalarOp::Operand)
    return n.operand == operand ? Degree::Linear : Degree::Free;
  if (n.op == ScalarOp::Constant)
    return n.value == 0 ? Degree::Zero : Degree::Free;
  bool allFree = true;
  for (size_t i = 0; i < n.args.size(); ++i)
    allFree &= isFree(i);
  if (allFree)
    return Degree::Free;
  switch (n.op) {
  case ScalarOp::Neg:
    return at(0);
  case ScalarOp::Add:
  case ScalarOp::Sub:
    return linearIf(isHomogeneous(at(0)) && isHomogeneous(at(1)));
  case ScalarOp::Mul:
    return linearIf((at(0) == Degree::Linear && isFree(1)) ||
                    (at(1) == Degree::Linear && isFree(0)));
  case ScalarOp::Div:
    return linearIf(at(0) == Degree::Linear && isFree(1));
  case ScalarOp::Select:
    return linearIf(isFree(0) && isHomogeneous(at(1)) && isHomogeneous(at(2)));
  default:
    return Degree::Other;
  }
}

bool Payload::isLinearIn(int32_t operand) const {
  std::vector<Degree> degrees;
  for (const ScalarNode &n : list)
    degrees.push_back(degreeOf(n, operand, degrees));
  return degrees.back() == Degree::Linear;
}
