//===- Payload.h - The scalar body of a structured op -----------*- C++ -*-===//
//
// A structured op computes each result element by one scalar expression of the operand
// elements at the same loop index. The expression is written once, as text, in the op's
// definition:
//
//     "x * 0.5 * (1 + erf(x * 0.7071067811865476))"
//
// and everything else is derived from the parsed form: the reference evaluator runs it,
// code generation emits it as arith and math ops, differentiation is symbolic.
//
// Operands are x, y, z, w, then x4, x5, …; other identifiers are float attributes of the
// op. Functions:
// exp log log1p sqrt erf tanh atan sin cos abs floor ceil round sign pow min max mod
// isnan select(c, a, b), and of integers bitand bitor bitxor shl shr. Comparisons and &&
// || ! give 0 or 1. Integer division truncates toward zero; shifts are of unsigned
// numbers and shift everything out from the width on; integer payloads may not use
// transcendental functions. bits(x) is x's bits in the result's type: a whole payload,
// which evaluate() does not know.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SCALAR_PAYLOAD_H
#define PARTITA_RULE_SCALAR_PAYLOAD_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace partita {

enum class ScalarOp : uint8_t {
  Operand,   ///< index
  Attribute, ///< name
  Constant,  ///< value
  Add,
  Sub,
  Mul,
  Div,
  Neg,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  Equal,
  NotEqual,
  And,
  Or,
  Not,
  Exp,
  Log,
  Log1p,
  Sqrt,
  Erf,
  Tanh,
  Atan,
  Sin,
  Cos,
  Abs,
  Floor,
  Ceil,
  Round,
  Sign,
  IsNaN,
  Pow,
  Min,
  Max,
  Mod,
  BitAnd,
  BitOr,
  BitXor,
  ShiftLeft,
  ShiftRight,
  Select,
  Bits, ///< of the operand as an element of the result's type; alone in its payload
};

/// One node of the expression; `args` index earlier nodes, so that evaluation is one
/// pass.
struct ScalarNode {
  ScalarOp op;
  std::vector<int32_t> args;
  int32_t operand = 0; ///< Operand: its index; Attribute: its place in attributeNames()
  double value = 0;
  std::string attribute;
  bool operator==(const ScalarNode &) const = default;
};

/// Ways to compute a power of a real number by a known exponent.
enum class PowerForm : uint8_t {
  Function, ///< a logarithm and a power of two
  Base,     ///< 1
  Square,   ///< 2
  Cube,     ///< 3: two products
  Root,     ///< 0.5
  Inverse,  ///< -1
};
/// Emission and price both ask; of an exponent of data it is Function.
PowerForm powerForm(std::optional<double> exponent);

/// A parsed payload: nodes in evaluation order, the last is the result.
class Payload {
public:
  static Expected<Payload> parse(std::string_view text);

  const std::vector<ScalarNode> &nodes() const { return list; }
  int32_t numOperands() const;
  /// Arithmetic operations per element, each function counted once.
  int64_t flops() const;
  /// Vector instructions per element: a function of real numbers counts as those of its
  /// polynomial in f32 (passes/Codegen/Emit/RealFunctions.h).
  int64_t steps() const;
  /// The same where operands are known numbers, which may make powers products
  /// (powerForm); `operands` has one entry per operand, nothing for one of data.
  int64_t steps(const std::vector<std::optional<double>> &operands) const;
  /// Whether the op maps booleans or compares: the result type is bool.
  bool resultIsBool() const;

  /// Evaluates one element. T is double, float or int64_t; `attributes` in the order of
  /// attributeNames(); `scratch` is reused between elements.
  template <typename T>
  T evaluate(const T *operands, const std::vector<T> &attributes,
             std::vector<T> &scratch) const;
  /// Names of the attributes, in the order `evaluate` expects their values.
  std::vector<std::string> attributeNames() const;

  /// The partial derivative by an operand, of the same operands and attributes. Where the
  /// function has a corner it is that of one side: max(x, y) is y where both are equal,
  /// so that of max(x, 0) is 0 at 0. Steps and comparisons have 0. The quotient rule
  /// divides what may have overflowed: 1 / (1 + exp(-x)) has NaN where exp(-x) is
  /// infinite.
  Payload derivative(int32_t operand) const;

  /// A text that is parsed to a payload of the same value.
  std::string str() const;

  /// What an operand or attribute is replaced by.
  using Leaf = std::variant<int32_t, double>; ///< an operand, or a number
  /// The payload with other leaves, simplified: operations on numbers are done, and those
  /// that change nothing (x * 1, x + 0, pow(x, 1), select(1, x, y)) are gone. A product
  /// with 0 is 0, as that of what does not depend is.
  Payload withLeaves(const std::vector<Leaf> &operands,
                     const std::vector<Leaf> &attributes = {}) const;
  /// The payload of payloads: operand i is what `operands[i]` gives, and the operands of
  /// these are those of the result. None has attributes. Simplified.
  Payload composed(const std::vector<Payload> &operands) const;
  /// The part that node number `node` of a payload without attributes computes.
  /// Simplified.
  Payload partAt(size_t node) const;
  /// x times this payload, whose operand i becomes operand i + 1.
  Payload timesCotangent() const;
  /// Operands that occur, ascending.
  std::vector<int32_t> operandsRead() const;
  /// Whether the form shows that the value is a factor times this operand, where the
  /// factor depends on the other operands alone.
  bool isLinearIn(int32_t operand) const;

  bool operator==(const Payload &other) const { return str() == other.str(); }

private:
  friend class PayloadParser;
  friend class Differentiator;
  friend class PayloadRewriter;
  std::vector<ScalarNode> list;
};

} // namespace partita

#endif // PARTITA_RULE_SCALAR_PAYLOAD_H
