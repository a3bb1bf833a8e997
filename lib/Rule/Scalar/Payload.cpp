//===- Payload.cpp - Parsing and evaluating scalar payloads ---------------===//
#include "Words.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

using namespace partita;

namespace partita {
/// Recursive descent over the usual precedence levels.
class PayloadParser {
public:
  explicit PayloadParser(std::string_view text) : text(text) {}

  Expected<Payload> run() {
    std::optional<int32_t> root = binary(0);
    skip();
    if (root && at != text.size())
      fail("unexpected '" + std::string(text.substr(at, 1)) + "'");
    if (!problem.empty())
      return makeError("payload \"" + std::string(text) + "\": " + problem);
    // The root must be last: evaluation returns the last node.
    if (*root != static_cast<int32_t>(payload.list.size()) - 1)
      payload.list.push_back(payload.list[*root]);
    return std::move(payload);
  }

private:
  void skip() {
    while (at < text.size() && text[at] == ' ')
      ++at;
  }
  bool accept(std::string_view token) {
    skip();
    if (text.substr(at, token.size()) != token)
      return false;
    at += token.size();
    return true;
  }
  std::optional<int32_t> fail(std::string message) {
    if (problem.empty())
      problem = std::move(message);
    return std::nullopt;
  }
  /// What is written twice is one node.
  int32_t add(ScalarNode node) {
    auto known = std::find(payload.list.begin(), payload.list.end(), node);
    if (known == payload.list.end())
      payload.list.push_back(std::move(node)), known = payload.list.end() - 1;
    return static_cast<int32_t>(known - payload.list.begin());
  }

  std::optional<int32_t> binary(int level) {
    if (level == unaryLevel)
      return unary();
    std::optional<int32_t> left = binary(level + 1);
    while (left) {
      const BinaryWord *match = nullptr;
      for (const BinaryWord &info : binaryWords)
        if (info.level == level && accept(info.token)) {
          match = &info;
          break;
        }
      if (!match)
        return left;
      std::optional<int32_t> right = binary(level + 1);
      if (!right)
        return std::nullopt;
      left = add({match->op, {*left, *right}, 0, 0, {}});
    }
    return left;
  }

  std::optional<int32_t> unary() {
    if (accept("-")) {
      auto inner = unary();
      return inner ? std::optional(add({ScalarOp::Neg, {*inner}, 0, 0, {}})) : inner;
    }
    if (accept("!")) {
      auto inner = unary();
      return inner ? std::optional(add({ScalarOp::Not, {*inner}, 0, 0, {}})) : inner;
    }
    return primary();
  }

  std::optional<int32_t> primary() {
    skip();
    if (at == text.size())
      return fail("unexpected end");
    if (accept("(")) {
      auto inner = binary(0);
      return inner && !accept(")") ? fail("expected ')'") : inner;
    }
    char c = text[at];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') {
      std::string copy(text.substr(at));
      char *end = nullptr;
      double value = std::strtod(copy.c_str(), &end);
      at += static_cast<size_t>(end - copy.c_str());
      return add({ScalarOp::Constant, {}, 0, value, {}});
    }
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_')
      return identifier();
    return fail("unexpected '" + std::string(1, c) + "'");
  }

  std::optional<int32_t> identifier() {
    size_t begin = at;
    while (at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_'))
      ++at;
    std::string_view word = text.substr(begin, at - begin);
    if (accept("("))
      return call(word);
    if (auto i = operandNumber(word))
      return add({ScalarOp::Operand, {}, *i, 0, {}});
    return add({ScalarOp::Attribute, {}, attributeIndex(word), 0, std::string(word)});
  }

  /// x, y, z, w, x4, x5, …
  static std::optional<int32_t> operandNumber(std::string_view word) {
    constexpr std::string_view letters = "xyzw";
    if (size_t i = letters.find(word); word.size() == 1 && i != word.npos)
      return static_cast<int32_t>(i);
    int32_t number = 0;
    const char *end = word.data() + word.size();
    if (word.size() < 2 || word.size() > 4 || word[0] != 'x' ||
        std::from_chars(word.data() + 1, end, number).ptr != end || number < 4)
      return std::nullopt;
    return number;
  }

  /// Position of the attribute among the distinct ones, in order of appearance.
  int32_t attributeIndex(std::string_view word) const {
    std::vector<std::string> names = payload.attributeNames();
    auto it = std::find(names.begin(), names.end(), word);
    return static_cast<int32_t>(it - names.begin());
  }

  std::optional<int32_t> call(std::string_view word) {
    for (const FunctionWord &info : functionWords) {
      if (info.name != word)
        continue;
      std::vector<int32_t> args;
      for (size_t i = 0; i < info.arity; ++i) {
        if (i != 0 && !accept(","))
          return fail("'" + std::string(word) + "' takes " + std::to_string(info.arity) +
                      " arguments");
        auto arg = binary(0);
        if (!arg)
          return std::nullopt;
        args.push_back(*arg);
      }
      if (!accept(")"))
        return fail("expected ')' after the arguments of '" + std::string(word) + "'");
      return add({info.op, std::move(args), 0, 0, {}});
    }
    return fail("unknown function '" + std::string(word) + "'");
  }

  std::string_view text;
  size_t at = 0;
  std::string problem;
  Payload payload;
};
} // namespace partita

Expected<Payload> Payload::parse(std::string_view text) {
  return PayloadParser(text).run();
}

int32_t Payload::numOperands() const {
  int32_t count = 0;
  for (const ScalarNode &n : list)
    if (n.op == ScalarOp::Operand)
      count = std::max(count, n.operand + 1);
  return count;
}

int64_t Payload::flops() const {
  return std::count_if(list.begin(), list.end(),
                       [](const ScalarNode &n) { return n.op > ScalarOp::Constant; });
}

static int64_t stepsOf(ScalarOp op) {
  switch (op) {
  case ScalarOp::Operand:
  case ScalarOp::Attribute:
  case ScalarOp::Constant:
    return 0;
  case ScalarOp::Div:
  case ScalarOp::Sqrt: // one instruction, which takes that long
    return 6;
  case ScalarOp::Exp:
    return 16;
  case ScalarOp::Tanh:
  case ScalarOp::Atan:
    return 20;
  case ScalarOp::Erf:
    return 30;
  case ScalarOp::Log:
  case ScalarOp::Log1p:
    return 32;
  case ScalarOp::Sin:
  case ScalarOp::Cos: // reduced to a quarter of a turn without loss first
    return 120;
  case ScalarOp::Mod:
    return 10;
  default:
    return 1;
  }
}

PowerForm partita::powerForm(std::optional<double> exponent) {
  return exponent == 1     ? PowerForm::Base
         : exponent == 2   ? PowerForm::Square
         : exponent == 3   ? PowerForm::Cube
         : exponent == 0.5 ? PowerForm::Root
         : exponent == -1  ? PowerForm::Inverse
                           : PowerForm::Function;
}

static int64_t stepsOf(PowerForm form) {
  switch (form) {
  case PowerForm::Function:
    return 70;
  case PowerForm::Base:
    return 0;
  case PowerForm::Square:
    return 1;
  case PowerForm::Cube:
    return 2;
  case PowerForm::Root:
    return stepsOf(ScalarOp::Sqrt);
  case PowerForm::Inverse:
    return stepsOf(ScalarOp::Div);
  }
  return 0;
}

int64_t Payload::steps() const { return steps({}); }

int64_t Payload::steps(const std::vector<std::optional<double>> &operands) const {
  auto known = [&](int32_t place) -> std::optional<double> {
    const ScalarNode &n = list[static_cast<size_t>(place)];
    const auto operand = static_cast<size_t>(n.operand);
    if (n.op == ScalarOp::Operand && operand < operands.size())
      return operands[operand];
    return n.op == ScalarOp::Constant ? std::optional(n.value) : std::nullopt;
  };
  int64_t steps = 0;
  for (const ScalarNode &n : list)
    steps += n.op == ScalarOp::Pow ? stepsOf(powerForm(known(n.args[1]))) : stepsOf(n.op);
  return steps;
}

bool Payload::resultIsBool() const {
  ScalarOp op = list.back().op;
  return (op >= ScalarOp::Less && op <= ScalarOp::Not) || op == ScalarOp::IsNaN;
}

std::vector<std::string> Payload::attributeNames() const {
  std::vector<std::string> names;
  for (const ScalarNode &n : list)
    if (n.op == ScalarOp::Attribute &&
        std::find(names.begin(), names.end(), n.attribute) == names.end())
      names.push_back(n.attribute);
  return names;
}

/// NaN-propagating minimum and maximum, as ONNX and numpy have them.
template <typename T> static T propagatingMin(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
  return a < b ? a : b;
}
template <typename T> static T propagatingMax(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
  return a > b ? a : b;
}

static double power(double base, double exponent) { return std::pow(base, exponent); }

static int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (auto e = static_cast<uint64_t>(exponent); e != 0; e >>= 1, square *= square)
    if (e & 1)
      result *= square;
  return static_cast<int64_t>(result);
}

static int64_t bitwise(ScalarOp op, int64_t x, int64_t y) {
  auto a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  switch (op) {
  case ScalarOp::BitAnd:
    return x & y;
  case ScalarOp::BitOr:
    return x | y;
  case ScalarOp::BitXor:
    return x ^ y;
  case ScalarOp::ShiftLeft:
    return b > 63 ? 0 : static_cast<int64_t>(a << b);
  default:
    return b > 63 ? 0 : static_cast<int64_t>(a >> b);
  }
}

/// Integers wrap (unsigned arithmetic) and division by zero gives 0, so that no input of
/// a test can be undefined behaviour.
template <typename T> static T apply(ScalarOp op, T a, T b, T c) {
  constexpr bool isFloat = std::is_floating_point_v<T>;
  auto wrap = [](auto f, T a, T b) {
    if constexpr (isFloat)
      return f(a, b);
    else
      return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  };
  auto real = [](double value) { return static_cast<T>(value); };
  switch (op) {
  case ScalarOp::Add:
    return wrap([](auto x, auto y) { return x + y; }, a, b);
  case ScalarOp::Sub:
    return wrap([](auto x, auto y) { return x - y; }, a, b);
  case ScalarOp::Mul:
    return wrap([](auto x, auto y) { return x * y; }, a, b);
  case ScalarOp::Div:
    if constexpr (isFloat)
      return a / b;
    else
      return b == 0    ? 0
             : b == -1 ? wrap([](auto x, auto y) { return y - x; }, a, T(0))
                       : a / b;
  case ScalarOp::Mod:
    if constexpr (isFloat)
      return std::fmod(a, b);
    else if (b == 0 || b == -1)
      return 0;
    else
      return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
  case ScalarOp::Neg:
    return wrap([](auto x, auto y) { return y - x; }, a, T(0));
  case ScalarOp::Less:
    return a < b;
  case ScalarOp::LessEqual:
    return a <= b;
  case ScalarOp::Greater:
    return a > b;
  case ScalarOp::GreaterEqual:
    return a >= b;
  case ScalarOp::Equal:
    return a == b;
  case ScalarOp::NotEqual:
    return a != b;
  case ScalarOp::And:
    return a != 0 && b != 0;
  case ScalarOp::Or:
    return a != 0 || b != 0;
  case ScalarOp::Not:
    return a == 0;
  case ScalarOp::Exp:
    return real(std::exp(static_cast<double>(a)));
  case ScalarOp::Log:
    return real(std::log(static_cast<double>(a)));
  case ScalarOp::Log1p:
    return real(std::log1p(static_cast<double>(a)));
  case ScalarOp::Sqrt:
    return real(std::sqrt(static_cast<double>(a)));
  case ScalarOp::Erf:
    return real(std::erf(static_cast<double>(a)));
  case ScalarOp::Tanh:
    return real(std::tanh(static_cast<double>(a)));
  case ScalarOp::Atan:
    return real(std::atan(static_cast<double>(a)));
  case ScalarOp::Sin:
    return real(std::sin(static_cast<double>(a)));
  case ScalarOp::Cos:
    return real(std::cos(static_cast<double>(a)));
  case ScalarOp::Floor:
    return isFloat ? real(std::floor(static_cast<double>(a))) : a;
  case ScalarOp::Ceil:
    return isFloat ? real(std::ceil(static_cast<double>(a))) : a;
  case ScalarOp::Round:
    return isFloat ? real(std::nearbyint(static_cast<double>(a))) : a;
  case ScalarOp::Abs:
    return a < 0 ? apply<T>(ScalarOp::Neg, a, 0, 0) : a;
  case ScalarOp::Sign:
    return a > 0 ? 1 : a < 0 ? T(-1) : a;
  case ScalarOp::IsNaN:
    return a != a;
  case ScalarOp::Pow:
    return power(a, b);
  case ScalarOp::Min:
    return propagatingMin(a, b);
  case ScalarOp::Max:
    return propagatingMax(a, b);
  case ScalarOp::BitAnd:
  case ScalarOp::BitOr:
  case ScalarOp::BitXor:
  case ScalarOp::ShiftLeft:
  case ScalarOp::ShiftRight:
    return static_cast<T>(bitwise(op, static_cast<int64_t>(a), static_cast<int64_t>(b)));
  case ScalarOp::Select:
    return a != 0 ? b : c;
  case ScalarOp::Operand:
  case ScalarOp::Attribute:
  case ScalarOp::Constant:
  case ScalarOp::Bits:
    break;
  }
  return a;
}

template <typename T>
T Payload::evaluate(const T *operands, const std::vector<T> &attributes,
                    std::vector<T> &scratch) const {
  scratch.resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const ScalarNode &n = list[i];
    if (n.op == ScalarOp::Operand) {
      scratch[i] = operands[n.operand];
    } else if (n.op == ScalarOp::Constant) {
      scratch[i] = static_cast<T>(n.value);
    } else if (n.op == ScalarOp::Attribute) {
      scratch[i] = attributes[n.operand];
    } else {
      auto arg = [&](size_t k) { return k < n.args.size() ? scratch[n.args[k]] : T(0); };
      scratch[i] = apply<T>(n.op, arg(0), arg(1), arg(2));
    }
  }
  return scratch.back();
}

template double Payload::evaluate(const double *, const std::vector<double> &,
                                  std::vector<double> &) const;
template float Payload::evaluate(const float *, const std::vector<float> &,
                                 std::vector<float> &) const;
template int64_t Payload::evaluate(const int64_t *, const std::vector<int64_t> &,
                                   std::vector<int64_t> &) const;
