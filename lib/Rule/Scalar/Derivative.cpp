//===- Derivative.cpp - Symbolic derivatives of payloads ------------------===//
#include "partita/Rule/Scalar/Payload.h"

#include <cmath>
#include <numbers>
#include <optional>

using namespace partita;

namespace partita {
/// Writes behind the payload's own nodes those of the derivative of each. A node whose
/// derivative is 0 has none, and so nothing is written for it.
class Differentiator {
public:
  Differentiator(const Payload &payload, int32_t operand) : operand(operand) {
    made.list = payload.list;
  }

  Payload run() {
    size_t count = made.list.size();
    std::vector<Part> parts;
    for (size_t i = 0; i < count; ++i) {
      const ScalarNode node = made.list[i];
      parts.push_back(of(node, static_cast<int32_t>(i), parts));
    }
    return compacted(parts.back() ? *parts.back() : number(0));
  }

private:
  using Part = std::optional<int32_t>; ///< a node; none: 0

  int32_t add(ScalarOp op, std::vector<int32_t> args) {
    made.list.push_back({op, std::move(args), 0, 0, {}});
    return static_cast<int32_t>(made.list.size()) - 1;
  }
  int32_t number(double value) {
    made.list.push_back({ScalarOp::Constant, {}, 0, value, {}});
    return static_cast<int32_t>(made.list.size()) - 1;
  }
  int32_t mul(int32_t a, int32_t b) {
    if (isNumber(a, 1))
      return b;
    return isNumber(b, 1) ? a : add(ScalarOp::Mul, {a, b});
  }
  int32_t div(int32_t a, int32_t b) { return add(ScalarOp::Div, {a, b}); }
  int32_t neg(int32_t a) { return add(ScalarOp::Neg, {a}); }
  Part sum(Part a, Part b) { return a && b ? add(ScalarOp::Add, {*a, *b}) : a ? a : b; }
  bool isNumber(int32_t node, double value) const {
    const ScalarNode &n = made.list[static_cast<size_t>(node)];
    return n.op == ScalarOp::Constant && n.value == value;
  }
  int32_t orZero(Part part) { return part ? *part : number(0); }
  Part chosen(int32_t condition, Part yes, Part no) {
    if (!yes && !no)
      return std::nullopt;
    return add(ScalarOp::Select, {condition, orZero(yes), orZero(no)});
  }

  Part of(const ScalarNode &n, int32_t at, const std::vector<Part> &parts);
  Part ofFunction(ScalarOp op, int32_t x, int32_t y, int32_t dx);
  Part ofPair(ScalarOp op, int32_t a, int32_t b, int32_t y, Part da, Part db);
  Payload compacted(int32_t root) const;

  int32_t operand;
  Payload made;
};
} // namespace partita

/// y = op(x), by dx.
Differentiator::Part Differentiator::ofFunction(ScalarOp op, int32_t x, int32_t y,
                                                int32_t dx) {
  switch (op) {
  case ScalarOp::Neg:
    return neg(dx);
  case ScalarOp::Exp:
    return mul(y, dx);
  case ScalarOp::Log:
    return div(dx, x);
  case ScalarOp::Log1p:
    return div(dx, add(ScalarOp::Add, {x, number(1)}));
  case ScalarOp::Sqrt:
    return div(dx, mul(number(2), y));
  case ScalarOp::Erf: {
    int32_t bell = add(ScalarOp::Exp, {neg(mul(x, x))});
    return mul(mul(number(2 * std::numbers::inv_sqrtpi), bell), dx);
  }
  case ScalarOp::Tanh:
    return mul(add(ScalarOp::Sub, {number(1), mul(y, y)}), dx);
  case ScalarOp::Atan:
    return div(dx, add(ScalarOp::Add, {mul(x, x), number(1)}));
  case ScalarOp::Sin:
    return mul(add(ScalarOp::Cos, {x}), dx);
  case ScalarOp::Cos:
    return neg(mul(add(ScalarOp::Sin, {x}), dx));
  case ScalarOp::Abs:
    return mul(add(ScalarOp::Sign, {x}), dx);
  default: // steps, conditions, bits
    return std::nullopt;
  }
}

/// y = op(a, b).
Differentiator::Part Differentiator::ofPair(ScalarOp op, int32_t a, int32_t b, int32_t y,
                                            Part da, Part db) {
  switch (op) {
  case ScalarOp::Add:
    return sum(da, db);
  case ScalarOp::Sub:
    return sum(da, db ? Part(neg(*db)) : db);
  case ScalarOp::Mul:
    return sum(da ? Part(mul(*da, b)) : da, db ? Part(mul(a, *db)) : db);
  case ScalarOp::Div: {
    Part top = db ? sum(da, neg(mul(y, *db))) : da;
    return div(*top, b);
  }
  case ScalarOp::Mod: // a − b·n, where n is constant but for its steps
    if (!db)
      return da;
    return sum(da, neg(mul(div(add(ScalarOp::Sub, {a, y}), b), *db)));
  case ScalarOp::Min:
    return chosen(add(ScalarOp::Less, {a, b}), da, db);
  case ScalarOp::Max:
    return chosen(add(ScalarOp::Greater, {a, b}), da, db);
  case ScalarOp::Pow: {
    Part byBase, byExponent;
    if (da) {
      int32_t less = add(ScalarOp::Sub, {b, number(1)});
      byBase = mul(mul(b, add(ScalarOp::Pow, {a, less})), *da);
    }
    if (db) { // 0 to a positive power is 0, whatever the power
      int32_t isPositive = add(ScalarOp::Greater, {a, number(0)});
      int32_t part = mul(mul(y, add(ScalarOp::Log, {a})), *db);
      byExponent = chosen(isPositive, part, std::nullopt);
    }
    return sum(byBase, byExponent);
  }
  default: // comparisons, conditions, bits
    return std::nullopt;
  }
}

Differentiator::Part Differentiator::of(const ScalarNode &n, int32_t at,
                                        const std::vector<Part> &parts) {
  auto part = [&](size_t i) { return parts[static_cast<size_t>(n.args[i])]; };
  if (n.op == ScalarOp::Operand)
    return n.operand == operand ? Part(number(1)) : std::nullopt;
  if (n.op == ScalarOp::Select)
    return chosen(n.args[0], part(1), part(2));
  if (n.args.size() == 1 && part(0))
    return ofFunction(n.op, n.args[0], at, *part(0));
  if (n.args.size() == 2 && (part(0) || part(1)))
    return ofPair(n.op, n.args[0], n.args[1], at, part(0), part(1));
  return std::nullopt;
}

/// What `root` needs, in the same order, with attributes numbered anew.
Payload Differentiator::compacted(int32_t root) const {
  std::vector<bool> needed(made.list.size(), false);
  needed[static_cast<size_t>(root)] = true;
  for (size_t i = made.list.size(); i-- > 0;)
    for (int32_t arg : made.list[i].args)
      if (needed[i])
        needed[static_cast<size_t>(arg)] = true;
  Payload result;
  std::vector<int32_t> places(made.list.size(), -1);
  for (size_t i = 0; i < made.list.size(); ++i) {
    if (!needed[i])
      continue;
    ScalarNode node = made.list[i];
    for (int32_t &arg : node.args)
      arg = places[static_cast<size_t>(arg)];
    places[i] = static_cast<int32_t>(result.list.size());
    result.list.push_back(std::move(node));
  }
  if (places[static_cast<size_t>(root)] + 1 != static_cast<int32_t>(result.list.size()))
    result.list.push_back(
        result.list[static_cast<size_t>(places[static_cast<size_t>(root)])]);
  std::vector<std::string> names = result.attributeNames();
  for (ScalarNode &node : result.list)
    for (size_t i = 0; i < names.size(); ++i)
      if (node.op == ScalarOp::Attribute && node.attribute == names[i])
        node.operand = static_cast<int32_t>(i);
  return result;
}

Payload Payload::derivative(int32_t operand) const {
  return Differentiator(*this, operand).run();
}
