//===- GraphBase.td - The graph dialect and its op families -*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_GRAPHBASE
#define PARTITA_DIALECTS_GRAPH_GRAPHBASE

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/Graph/Linear.td"
include "dialects/Interfaces/OpInterfaces.td"

def Graph_Dialect : Dialect {
  let name = "graph";
  let cppNamespace = "::partita::graph";
  let summary = "Single-device tensor programs with static shapes";
  let description = [{
    What a model computes, before anything is said about devices: value semantics,
    static shapes, one op per mathematical idea. Weights are never in the IR: a
    `graph.weight` names a tensor of the model's files.

    Every op states its loop structure once (ShardingRuleOpInterface) and how it is
    evaluated (EvaluateOpInterface); structured ops add one scalar payload, from which
    evaluation, code and derivatives follow. See docs/adding-an-op.md.
  }];
  let useDefaultAttributePrinterParser = 1;
}

include "dialects/Graph/GraphAttrs.td"

def Graph_Tensor : StaticShapeTensorOf<[AnyType]>;

def PayloadOpInterface : OpInterface<"PayloadOpInterface"> {
  let cppNamespace = "::partita";
  let description = [{ An elementwise op with a scalar payload. }];
  let methods = [
    StaticInterfaceMethod<"The payload's text.", "::llvm::StringRef", "payloadText">,
    InterfaceMethod<"The parsed payload, shared by all ops of the class.",
      "const ::partita::Payload &", "getPayload", (ins), "", [{
        static const ::partita::Payload payload =
            *::partita::Payload::parse(ConcreteOp::payloadText());
        return payload;
      }]>,
    InterfaceMethod<"Values of the payload's attributes, in the order it expects them.",
      "std::vector<double>", "getPayloadAttributes", (ins), "", [{
        return ::partita::graph::detail::payloadAttributes($_op, $_op.getPayload());
      }]>,
  ];
}

/// Every op of the dialect: pure, with a rule and an evaluation.
class Graph_Op<string mnemonic, list<Trait> traits = []>
    : Op<Graph_Dialect, mnemonic,
         !listconcat([Pure, ShardingRuleOpInterface, EvaluateOpInterface], traits)> {
  /// The ONNX operator that maps to this op one to one ("" if import does more).
  string onnx = "";
  /// The linear sets. What depends on the number of operands or on an attribute's value
  /// the op adds in its rule.
  list<Linear> linear = [];

  /// Of an op that has loops of kind Replicate, for which shapes and why: what mathematics
  /// or one program for all ranks rules out, and what there is instead. Users read it in
  /// the op's description (`proof`) and in what --explain says. A test asks for it wherever a
  /// rule has such a loop.
  string whole = "";
  /// Facts by which a kernel computes the op: a kernels::OpFacts.
  code kernel = "{}";
  code proof = "\n    *Needed whole.* " # whole # "\n";

  /// An op whose results come from one pass over its operands has several.
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";

  code common = [{
    static constexpr ::llvm::StringLiteral onnxName() { return "}] # onnx # [{"; }
    ::llvm::StringRef getWhyWhole() { return "}] # whole # [{"; }
    ::partita::kernels::OpFacts getKernelFacts() { return }] # kernel # [{; }
    std::vector<::partita::LinearSet> linearSets() {
      std::vector<::partita::LinearSet> sets;
      }] # !foldl("", linear, text, set, text # set.add) # [{
      return sets;
    }
    ::partita::Expected<std::vector<::partita::HostTensor>>
    evaluate(::llvm::ArrayRef<const ::partita::HostTensor *> operands);
  }];
}

/// An op whose result type follows from operands and attributes: it defines
/// `static Expected<ShardingRule> ruleFor(const std::vector<Shape> &, Adaptor)`.
class Graph_InferredOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([InferTypeOpInterface], traits)> {
  /// Element type of the result, or a list in braces with that of each; `operands` and
  /// `adaptor` are in scope.
  code elementType = [{ ::mlir::getElementTypeOrSelf(operands[0].getType()) }];

  code inferred = common # [{
    static ::partita::Expected<::partita::ShardingRule>
    ruleFor(const std::vector<::partita::Shape> &shapes, Adaptor adaptor);
    ::partita::Expected<::partita::ShardingRule> inferShardingRule() {
      return ::partita::graph::detail::withLinearSets(
          ruleFor(::partita::shapesOf((*this)->getOperands()),
                  Adaptor((*this)->getOperands(), *this)),
          linearSets(), *this);
    }
    static ::llvm::LogicalResult inferReturnTypes(
        ::mlir::MLIRContext *context, std::optional<::mlir::Location> location,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr attributes,
        ::mlir::OpaqueProperties properties, ::mlir::RegionRange regions,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      Adaptor adaptor(operands, attributes, properties, regions);
      return ::partita::graph::detail::inferTypes(
          location, getOperationName(), ruleFor(::partita::shapesOf(operands), adaptor),
          }] # elementType # [{, types);
    }
  }];
  let extraClassDeclaration = inferred;
}

/// An op whose result shape is part of the program (reshape, slice): it defines
/// `Expected<ShardingRule> ruleWithResult()`.
class Graph_ShapedOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, traits> {
  code shaped = common # [{
    ::partita::Expected<::partita::ShardingRule> ruleWithResult();
    ::partita::Expected<::partita::ShardingRule> inferShardingRule() {
      return ::partita::graph::detail::withLinearSets(ruleWithResult(), linearSets(),
                                                       *this);
    }
    int getPropagationPriority() { return 0; }
  }];
  let extraClassDeclaration = shaped;
}

/// One result element per loop point, by a scalar payload (partita/Rule/Scalar/Payload.h).
///
/// The gradient follows from the payload's derivatives. Of an op of one operand it may be
/// said by `gradient` instead, a payload of the cotangent x, the operand y and the result
/// z: what the op has computed is not computed again, and nothing overflows on the way.
class Graph_ElementwiseOp<string mnemonic, string onnxName, string text, list<Linear> sets>
    : Graph_Op<mnemonic,
               [InferTypeOpInterface, PayloadOpInterface, DifferentiableOpInterface]> {
  string gradient = "";
  /// The function that engines may apply to what they have computed, and its parameters.
  code post = "None";
  /// The op as attentions know it (kernels::OpRole).
  code role = "Other";
  let kernel = "detail::pointwiseFacts(*this, ::partita::kernels::OpRole::" # role #
               ", ::partita::kernels::Post::" # post # ")";
  let onnx = onnxName;
  let linear = sets;
  code elementType = [{ ::mlir::getElementTypeOrSelf(operands[0].getType()) }];

  code elementwise = common # [{
    static constexpr ::llvm::StringLiteral payloadText() { return "}] # text # [{"; }
    ::partita::Expected<::partita::ShardingRule> inferShardingRule() {
      return ::partita::graph::detail::withLinearSets(
          ::partita::broadcastRule(::partita::shapesOf((*this)->getOperands())),
          linearSets(), *this);
    }
    int getPropagationPriority() { return 0; }
    ::partita::Expected<std::vector<::mlir::Value>>
    gradients(::mlir::OpBuilder &builder, ::llvm::ArrayRef<::mlir::Value> cotangents,
              const std::vector<bool> &wanted) {
      return ::partita::graph::detail::payloadGradients(*this, "}] # gradient # [{",
                                                        builder, cotangents, wanted);
    }
    int64_t getFlops() {
      return ::partita::detail::defaultFlops(*this, getPayload().flops());
    }
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(
          *this, ::partita::graph::detail::payloadSteps(*this));
    }
    static ::llvm::LogicalResult inferReturnTypes(
        ::mlir::MLIRContext *context, std::optional<::mlir::Location> location,
        ::mlir::ValueRange operands, ::mlir::DictionaryAttr attributes,
        ::mlir::OpaqueProperties properties, ::mlir::RegionRange regions,
        ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      return ::partita::graph::detail::inferTypes(
          location, getOperationName(),
          ::partita::broadcastRule(::partita::shapesOf(operands)),
          }] # elementType # [{, types);
    }
  }];
  let extraClassDeclaration = elementwise;
  let extraClassDefinition = [{
    ::partita::Expected<std::vector<::partita::HostTensor>>
    $cppClass::evaluate(::llvm::ArrayRef<const ::partita::HostTensor *> operands) {
      return ::partita::graph::detail::evaluatePayload(*this, operands);
    }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_GRAPHBASE
