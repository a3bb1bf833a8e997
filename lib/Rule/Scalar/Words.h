//===- Words.h - How scalar operations are written --------------*- C++ -*-===//
#ifndef PARTITA_LIB_RULE_SCALAR_WORDS_H
#define PARTITA_LIB_RULE_SCALAR_WORDS_H

#include "partita/Rule/Scalar/Payload.h"

namespace partita {

struct FunctionWord {
  std::string_view name;
  ScalarOp op;
  size_t arity;
};

inline constexpr FunctionWord functionWords[] = {
    {"exp", ScalarOp::Exp, 1},        {"log", ScalarOp::Log, 1},
    {"sqrt", ScalarOp::Sqrt, 1},      {"erf", ScalarOp::Erf, 1},
    {"tanh", ScalarOp::Tanh, 1},      {"sin", ScalarOp::Sin, 1},
    {"cos", ScalarOp::Cos, 1},        {"abs", ScalarOp::Abs, 1},
    {"floor", ScalarOp::Floor, 1},    {"ceil", ScalarOp::Ceil, 1},
    {"round", ScalarOp::Round, 1},    {"sign", ScalarOp::Sign, 1},
    {"isnan", ScalarOp::IsNaN, 1},    {"pow", ScalarOp::Pow, 2},
    {"min", ScalarOp::Min, 2},        {"max", ScalarOp::Max, 2},
    {"mod", ScalarOp::Mod, 2},        {"select", ScalarOp::Select, 3},
    {"log1p", ScalarOp::Log1p, 1},    {"atan", ScalarOp::Atan, 1},
    {"bitand", ScalarOp::BitAnd, 2},  {"bitor", ScalarOp::BitOr, 2},
    {"bitxor", ScalarOp::BitXor, 2},  {"shl", ScalarOp::ShiftLeft, 2},
    {"shr", ScalarOp::ShiftRight, 2}, {"bits", ScalarOp::Bits, 1},
};

/// Operators between two values bind at `level`, the higher the closer; those of one
/// level from the left.
struct BinaryWord {
  std::string_view token;
  ScalarOp op;
  int level;
};

inline constexpr BinaryWord binaryWords[] = {
    {"||", ScalarOp::Or, 0},        {"&&", ScalarOp::And, 1},
    {"==", ScalarOp::Equal, 2},     {"!=", ScalarOp::NotEqual, 2},
    {"<=", ScalarOp::LessEqual, 3}, {">=", ScalarOp::GreaterEqual, 3},
    {"<", ScalarOp::Less, 3},       {">", ScalarOp::Greater, 3},
    {"+", ScalarOp::Add, 4},        {"-", ScalarOp::Sub, 4},
    {"*", ScalarOp::Mul, 5},        {"/", ScalarOp::Div, 5},
};
/// That of -x and !x.
inline constexpr int unaryLevel = 6;

} // namespace partita

#endif // PARTITA_LIB_RULE_SCALAR_WORDS_H
