//===- Elementwise.td - Ops with a scalar payload -----------*- tablegen -*-===//
//
// The linear sets list every way in which reducing over ranks commutes with the op: a
// test shows that each holds and that no other does. Monotone functions of one operand
// commute with max and min. Ranks without elements hold the neutral element, so a set is
// listed only if it survives them: log and sqrt of -inf are NaN, softsign of both.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_ELEMENTWISE
#define PARTITA_DIALECTS_GRAPH_OPS_ELEMENTWISE

include "dialects/Graph/GraphBase.td"

defvar monotone = [LinearMax<[0]>, LinearMin<[0]>];
defvar monotoneInSecond = [LinearMax<[1]>, LinearMin<[1]>];

class Graph_UnaryOp<string mnemonic, string onnx, string text,
                    list<Linear> sets = monotone>
    : Graph_ElementwiseOp<mnemonic, onnx, text, sets> {
  let arguments = (ins Graph_Tensor:$input);
}

class Graph_BinaryOp<string mnemonic, string onnx, string text, list<Linear> sets>
    : Graph_ElementwiseOp<mnemonic, onnx, text, sets> {
  let arguments = (ins Graph_Tensor:$lhs, Graph_Tensor:$rhs);
}

class Graph_CompareOp<string mnemonic, string onnx, string text, list<Linear> sets>
    : Graph_BinaryOp<mnemonic, onnx, text, sets> {
  let elementType = [{ ::mlir::IntegerType::get(context, 1) }];
}

// Functions of one operand.
def Graph_ReluOp : Graph_UnaryOp<"relu", "Relu", "max(x, 0)"> {
  let gradient = "select(z > 0, x, 0)";
  let post = "Relu";
}
def Graph_SigmoidOp : Graph_UnaryOp<"sigmoid", "Sigmoid", "1 / (1 + exp(-x))"> {
  let gradient = "x * z * (1 - z)";
}
def Graph_TanhOp : Graph_UnaryOp<"tanh", "Tanh", "tanh(x)"> {
  let gradient = "x * (1 - z * z)";
}
def Graph_ErfOp : Graph_UnaryOp<"erf", "Erf", "erf(x)">;
def Graph_ExpOp : Graph_UnaryOp<"exp", "Exp", "exp(x)"> {
  let gradient = "x * z";
}
def Graph_LogOp : Graph_UnaryOp<"log", "Log", "log(x)", [LinearMin<[0]>]>;
def Graph_SqrtOp : Graph_UnaryOp<"sqrt", "Sqrt", "sqrt(x)", [LinearMin<[0]>]> {
  let gradient = "x / (2 * z)";
}
def Graph_FloorOp : Graph_UnaryOp<"floor", "Floor", "floor(x)">;
def Graph_CeilOp : Graph_UnaryOp<"ceil", "Ceil", "ceil(x)">;
def Graph_RoundOp : Graph_UnaryOp<"round", "Round", "round(x)"> {
  let post = "Round";
}
def Graph_SoftplusOp
    : Graph_UnaryOp<"softplus", "Softplus", "max(x, 0) + log(1 + exp(-abs(x)))"> {
  let gradient = "x / (1 + exp(-y))";
}
def Graph_NegOp : Graph_UnaryOp<"neg", "Neg", "-x", [LinearSum<[0]>]>;
def Graph_AbsOp : Graph_UnaryOp<"abs", "Abs", "abs(x)", [LinearProd<[0], [IfFloat]>]>;
def Graph_SignOp : Graph_UnaryOp<"sign", "Sign", "sign(x)",
                                !listconcat(monotone, [LinearProd<[0], [IfFloat]>])>;
def Graph_ReciprocalOp : Graph_UnaryOp<"reciprocal", "Reciprocal", "1 / x",
                                      [LinearProd<[0], [IfFloat]>]> {
  let gradient = "-x * z * z";
}
def Graph_SinOp : Graph_UnaryOp<"sin", "Sin", "sin(x)", []>;
def Graph_CosOp : Graph_UnaryOp<"cos", "Cos", "cos(x)", []>;
def Graph_TanOp : Graph_UnaryOp<"tan", "Tan", "sin(x) / cos(x)", []> {
  let gradient = "x * (1 + z * z)";
}
def Graph_AtanOp : Graph_UnaryOp<"atan", "Atan", "atan(x)">;
def Graph_AsinOp : Graph_UnaryOp<
    "asin", "Asin", "2 * atan(x / (1 + sqrt((1 - x) * (1 + x))))", []>;
def Graph_AcosOp
    : Graph_UnaryOp<"acos", "Acos", "2 * atan(sqrt((1 - x) / (1 + x)))", []>;
// Near 0, where a difference of exponentials or a logarithm of 1 + x loses digits, by the
// other functions; far out by halves and without squares, which overflow earlier.
def Graph_SinhOp : Graph_UnaryOp<
    "sinh", "Sinh",
    "select(abs(x) < 1, 2 * tanh(x / 2) / ((1 - tanh(x / 2)) * (1 + tanh(x / 2))), "
    "0.5 * exp(x / 2) * exp(x / 2) - 0.5 * exp(-x / 2) * exp(-x / 2))">;
def Graph_CoshOp : Graph_UnaryOp<
    "cosh", "Cosh",
    "0.5 * exp(x / 2) * exp(x / 2) + 0.5 * exp(-x / 2) * exp(-x / 2)", []>;
def Graph_AsinhOp : Graph_UnaryOp<
    "asinh", "Asinh",
    "sign(x) * select(abs(x) > 1000000000, log(abs(x)) + 0.6931471805599453, "
    "log1p(abs(x) + x * x / (1 + sqrt(x * x + 1))))">;
def Graph_AcoshOp : Graph_UnaryOp<
    "acosh", "Acosh",
    "select(x > 1000000000, log(x) + 0.6931471805599453, "
    "log1p(x - 1 + sqrt((x - 1) * (x + 1))))", [LinearMin<[0]>]>;
def Graph_AtanhOp : Graph_UnaryOp<"atanh", "Atanh", "0.5 * log1p(2 * x / (1 - x))", []>;
def Graph_HardSwishOp
    : Graph_UnaryOp<"hard_swish", "HardSwish", "x * max(0, min(1, x / 6 + 0.5))", []> {
  let post = "HardSwish";
}
def Graph_MishOp
    : Graph_UnaryOp<"mish", "Mish", "x * tanh(max(x, 0) + log(1 + exp(-abs(x))))", []>;
/// Which infinities count: 1 or 0.
def Graph_IsInfOp
    : Graph_ElementwiseOp<"isinf", "",
                          "x - x != 0 && x == x && select(x > 0, positive, negative) != 0",
                          []> {
  let arguments = (ins Graph_Tensor:$input, DefaultValuedAttr<F64Attr, "1.0">:$positive,
                       DefaultValuedAttr<F64Attr, "1.0">:$negative);
  let elementType = [{ ::mlir::IntegerType::get(context, 1) }];
}
def Graph_GeluOp : Graph_UnaryOp<
    "gelu", "", "x * 0.5 * (1 + erf(x * 0.7071067811865476))", []>;
def Graph_GeluTanhOp : Graph_UnaryOp<
    "gelu_tanh", "",
    "x * 0.5 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", []>;
def Graph_SoftsignOp : Graph_UnaryOp<"softsign", "Softsign", "x / (1 + abs(x))", []>;
def Graph_NotOp : Graph_UnaryOp<"not", "Not", "!x", []>;
def Graph_IsNaNOp : Graph_UnaryOp<"isnan", "IsNaN", "isnan(x)", []> {
  let role = "IsNaN";
  let elementType = [{ ::mlir::IntegerType::get(context, 1) }];
}

// Functions of one operand with parameters. ONNX's defaults are explicit here.
class Graph_ParameterOp<string mnemonic, string onnx, string text, dag parameters,
                        list<Linear> sets = [LinearMax<[0], [IfPositive<"Alpha">]>,
                                             LinearMin<[0], [IfPositive<"Alpha">]>]>
    : Graph_ElementwiseOp<mnemonic, onnx, text, sets> {
  let arguments = !con((ins Graph_Tensor:$input), parameters);
}
def Graph_LeakyReluOp
    : Graph_ParameterOp<"leaky_relu", "LeakyRelu", "select(x < 0, alpha * x, x)",
                        (ins DefaultValuedAttr<F64Attr, "0.01">:$alpha)> {
  let post = "Relu, getAlpha().convertToDouble()";
}
def Graph_EluOp : Graph_ParameterOp<"elu", "Elu", "select(x < 0, alpha * (exp(x) - 1), x)",
                                    (ins DefaultValuedAttr<F64Attr, "1.0">:$alpha)>;
def Graph_CeluOp
    : Graph_ParameterOp<"celu", "Celu", "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))",
                        (ins DefaultValuedAttr<F64Attr, "1.0">:$alpha), monotone>;
def Graph_SeluOp
    : Graph_ParameterOp<"selu", "Selu",
                        "gamma * select(x < 0, alpha * (exp(x) - 1), x)",
                        (ins DefaultValuedAttr<F64Attr, "1.67326319217681884765625">:$alpha,
                             DefaultValuedAttr<F64Attr, "1.05070102214813232421875">:$gamma),
                        [LinearMax<[0], [IfPositive<"Alpha">, IfPositive<"Gamma">]>,
                         LinearMin<[0], [IfPositive<"Alpha">, IfPositive<"Gamma">]>]>;
def Graph_ThresholdedReluOp
    : Graph_ParameterOp<"thresholded_relu", "ThresholdedRelu", "select(x > alpha, x, 0)",
                        (ins DefaultValuedAttr<F64Attr, "1.0">:$alpha)>;
def Graph_HardSigmoidOp
    : Graph_ParameterOp<"hard_sigmoid", "HardSigmoid", "max(0, min(1, alpha * x + beta))",
                        (ins DefaultValuedAttr<F64Attr, "0.2">:$alpha,
                             DefaultValuedAttr<F64Attr, "0.5">:$beta)> {
  let post = "HardSigmoid, getAlpha().convertToDouble(), getBeta().convertToDouble()";
}

// Arithmetic.
def Graph_AddOp : Graph_BinaryOp<"add", "Add", "x + y",
                                 [LinearSum<[0, 1]>, LinearMax<[0], [IfFloat]>,
                                  LinearMax<[1], [IfFloat]>, LinearMin<[0], [IfFloat]>,
                                  LinearMin<[1], [IfFloat]>]> {
  let post = "Add";
  let role = "Add";
  let hasFolder = 1;
}
def Graph_SubOp : Graph_BinaryOp<"sub", "Sub", "x - y",
                                 [LinearSum<[0, 1]>, LinearMax<[0], [IfFloat]>,
                                  LinearMin<[0], [IfFloat]>]> {
  let post = "Sub";
  let hasFolder = 1;
}
def Graph_MulOp : Graph_BinaryOp<"mul", "Mul", "x * y",
                                 [LinearSum<[0]>, LinearSum<[1]>, LinearProd<[0, 1]>]> {
  let post = "Mul";
  let role = "Mul";
  let hasFolder = 1;
}
// An integer divisor read from padding could be zero, which traps.
class Graph_DivisionOp<string mnemonic, string onnx, string text, list<Linear> sets>
    : Graph_BinaryOp<mnemonic, onnx, text, sets> {
  let extraClassDeclaration = elementwise # [{
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      bool isFloat = ::mlir::isa<::mlir::FloatType>(
          ::mlir::getElementTypeOrSelf(getResult().getType()));
      return operand == 1 && !isFloat ? std::optional(::partita::ReduceKind::Prod)
                                      : std::nullopt;
    }
  }];
}
def Graph_DivOp : Graph_DivisionOp<"div", "Div", "x / y",
                                   [LinearSum<[0], [IfFloat]>,
                                    LinearProd<[0, 1], [IfFloat]>]> {
  let role = "Div";
  let hasFolder = 1;
}
def Graph_ModOp : Graph_DivisionOp<"mod", "", "mod(x, y)", []>;
def Graph_PowOp : Graph_BinaryOp<"pow", "Pow", "pow(x, y)", []>;
def Graph_MaxOp : Graph_BinaryOp<"max", "", "max(x, y)",
                                 [LinearMax<[0]>, LinearMax<[1]>, LinearMax<[0, 1]>,
                                  LinearMin<[0]>, LinearMin<[1]>]> {
  let post = "Max";
}
def Graph_MinOp : Graph_BinaryOp<"min", "", "min(x, y)",
                                 [LinearMax<[0]>, LinearMax<[1]>, LinearMin<[0]>,
                                  LinearMin<[1]>, LinearMin<[0, 1]>]> {
  let post = "Min";
}
def Graph_PReluOp : Graph_BinaryOp<"prelu", "PRelu", "select(x < 0, x * y, x)", []>;

// Comparison and logic.
def Graph_EqualOp : Graph_CompareOp<"equal", "Equal", "x == y", []>;
def Graph_LessOp : Graph_CompareOp<"less", "Less", "x < y", monotoneInSecond>;
def Graph_LessEqualOp
    : Graph_CompareOp<"less_equal", "LessOrEqual", "x <= y", monotoneInSecond>;
def Graph_GreaterOp : Graph_CompareOp<"greater", "Greater", "x > y", monotone>;
def Graph_GreaterEqualOp
    : Graph_CompareOp<"greater_equal", "GreaterOrEqual", "x >= y", monotone>;
def Graph_AndOp : Graph_BinaryOp<"and", "And", "x && y",
                                 [LinearMax<[0]>, LinearMax<[1]>, LinearMin<[0]>,
                                  LinearMin<[1]>, LinearMin<[0, 1]>]>;
def Graph_OrOp : Graph_BinaryOp<"or", "Or", "x || y",
                                [LinearMax<[0]>, LinearMax<[1]>, LinearMax<[0, 1]>,
                                 LinearMin<[0]>, LinearMin<[1]>]>;
def Graph_XorOp : Graph_BinaryOp<"xor", "Xor", "x != y", []>;

// Bits of integers.
def Graph_BitAndOp : Graph_BinaryOp<"bit_and", "BitwiseAnd", "bitand(x, y)", []>;
def Graph_BitOrOp : Graph_BinaryOp<"bit_or", "BitwiseOr", "bitor(x, y)", []>;
def Graph_BitXorOp : Graph_BinaryOp<"bit_xor", "BitwiseXor", "bitxor(x, y)", []>;
def Graph_BitNotOp : Graph_UnaryOp<"bit_not", "BitwiseNot", "-1 - x", []>;
def Graph_ShiftLeftOp : Graph_BinaryOp<"shift_left", "", "shl(x, y)", []>;
def Graph_ShiftRightOp : Graph_BinaryOp<"shift_right", "", "shr(x, y)", []>;

def Graph_WhereOp : Graph_ElementwiseOp<
    "where", "Where", "select(x, y, z)",
    [LinearSum<[1, 2]>, LinearMax<[1]>, LinearMax<[2]>, LinearMax<[1, 2]>,
     LinearMin<[1]>, LinearMin<[2]>, LinearMin<[1, 2]>, LinearProd<[1, 2]>]> {
  let role = "Where";
  let arguments = (ins Graph_Tensor:$condition, Graph_Tensor:$then, Graph_Tensor:$other);
  let elementType = [{ ::mlir::getElementTypeOrSelf(operands[1].getType()) }];
}

def Graph_ClipOp : Graph_ElementwiseOp<
    "clip", "", "min(max(x, y), z)",
    [LinearMax<[0]>, LinearMax<[1]>, LinearMax<[2]>, LinearMax<[0, 1]>, LinearMin<[0]>,
     LinearMin<[1]>, LinearMin<[2]>, LinearMin<[0, 2]>, LinearMin<[1, 2]>]> {
  let summary = "Limits to [low, high]; high wins where they cross";
  let post = "Clip";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$low, Graph_Tensor:$high);
}

def Graph_CastOp : Graph_ElementwiseOp<
    "cast", "", "x",
    [LinearSum<[0], [IfAdditive]>, LinearProd<[0], [IfAdditive]>,
     LinearMax<[0], [IfMonotone]>, LinearMin<[0], [IfMonotone]>]> {
  let summary = "Converts the element type";
  let description = [{
    Float to integer truncates toward zero; to bool is `!= 0`. Conversions that keep
    the order commute with max and min (but an infinity, as ranks without elements hold,
    has no integer); those to wider floats, and to integers that wrap no later, with sums
    and products.
  }];
  let post = "Cast";
  let role = "Cast";
  let arguments = (ins Graph_Tensor:$input, TypeAttr:$to);
  let elementType = [{ Adaptor(operands, attributes, properties, regions).getTo() }];
}

def Graph_MapOp
    : Graph_Op<"map",
               [InferTypeOpInterface, PayloadOpInterface, DifferentiableOpInterface]> {
  let summary = "An elementwise op whose payload is its attribute";
  let description = [{
    Operands are x, y, z, w, x4, x5, … of the payload and broadcast; the result has the
    element type of the first. Gradients and optimizers are made of it: their formulas are
    not those of named ops.

    ```mlir
    %dx = graph.map %dy, %y {payload = #graph.payload<"x * (1 - y * y)">}
          : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    ```
    Sums pass through an operand in which the form of the payload shows that it is linear.
  }];
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, Graph_PayloadAttr:$payload);
  let kernel = "detail::pointwiseFacts(*this, ::partita::kernels::OpRole::Other, "
               "::partita::kernels::Post::None)";
  let hasVerifier = 1;
  let extraClassDeclaration = common # [{
    static constexpr ::llvm::StringLiteral payloadText() { return ""; }
    ::partita::Expected<::partita::ShardingRule> inferShardingRule() {
      return ::partita::graph::detail::withLinearSets(
          ::partita::broadcastRule(::partita::shapesOf((*this)->getOperands())),
          ::partita::graph::detail::linearSetsOf(getPayload()), *this);
    }
    int getPropagationPriority() { return 0; }
    int64_t getFlops() {
      return ::partita::detail::defaultFlops(*this, getPayload().flops());
    }
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(
          *this, ::partita::graph::detail::payloadSteps(*this));
    }
    ::partita::Expected<std::vector<::mlir::Value>>
    gradients(::mlir::OpBuilder &builder, ::llvm::ArrayRef<::mlir::Value> cotangents,
              const std::vector<bool> &wanted) {
      return ::partita::graph::detail::payloadGradients(*this, "", builder, cotangents,
                                                        wanted);
    }
    static ::llvm::LogicalResult inferReturnTypes(
        ::mlir::MLIRContext *context, std::optional<::mlir::Location> location,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr attributes,
        ::mlir::OpaqueProperties properties, ::mlir::RegionRange regions,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      if (operands.empty())
        return ::mlir::emitOptionalError(location, "'graph.map' op has no operands");
      return ::partita::graph::detail::inferTypes(
          location, getOperationName(),
          ::partita::broadcastRule(::partita::shapesOf(operands)),
          ::mlir::getElementTypeOrSelf(operands[0].getType()), types);
    }
  }];
  let extraClassDefinition = [{
    ::partita::Expected<std::vector<::partita::HostTensor>>
    $cppClass::evaluate(::llvm::ArrayRef<const ::partita::HostTensor *> operands) {
      return ::partita::graph::detail::evaluatePayload(*this, operands);
    }
  }];
}

def Graph_BitcastOp : Graph_ElementwiseOp<"bitcast", "", "bits(x)", []> {
  let summary = "The same bits as elements of another type of as many bits";
  let description = [{
    Nothing commutes with it, for it computes nothing. Code that has an f16 or a float of
    one byte in a register may have made a signaling NaN a quiet one.
  }];
  let arguments = (ins Graph_Tensor:$input, TypeAttr:$to);
  let elementType = [{ Adaptor(operands, attributes, properties, regions).getTo() }];
  let hasVerifier = 1;
  let extraClassDefinition = [{
    ::partita::Expected<std::vector<::partita::HostTensor>>
    $cppClass::evaluate(::llvm::ArrayRef<const ::partita::HostTensor *> operands) {
      return std::vector<::partita::HostTensor>{::partita::reference::bitcast(
          *operands[0], *::partita::dtypeOf(getTo()))};
    }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_ELEMENTWISE
