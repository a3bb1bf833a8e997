//===- OpInterfaces.td - What every shardable op states ----*- tablegen -*-===//
//
// An op of any dialect takes part in sharding, evaluation and lowering by stating these
// few facts about itself. There is no central switch over ops anywhere.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_INTERFACES_OPINTERFACES
#define PARTITA_DIALECTS_INTERFACES_OPINTERFACES

include "mlir/IR/OpBase.td"

def ShardingRuleOpInterface : OpInterface<"ShardingRuleOpInterface"> {
  let cppNamespace = "::partita";
  let description = [{
    The loop nest of the op: which factors make up each dim of each operand and result
    (see partita/Rule/Sharding/ShardingRule.h). The verifier checks that the rule's result shapes
    are the op's.
  }];
  let methods = [
    InterfaceMethod<[{
      The rule for the op's current operand shapes, or an error that says which operand
      or dim does not fit. What wants to know it asks `ruleOf` (RuleCache.h), which
      remembers.
    }], "::partita::Expected<::partita::ShardingRule>", "inferShardingRule">,
    InterfaceMethod<[{
      Builds the op that one rank runs: `operands` and `results` have local shapes.
      The default clones the op; ops whose attributes hold sizes or offsets adapt them.
      An operand of which a Window factor is split is the window buffer: its pads in that
      dim are elements.
    }], "::mlir::Operation *", "materializeLocal",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands,
           "::mlir::TypeRange":$results, "const ::partita::Strategy &":$strategy),
      /*methodBody=*/"", /*defaultImplementation=*/[{
        return ::partita::detail::cloneWithTypes($_op, builder, operands, results);
      }]>,
    InterfaceMethod<[{
      The reduction kind whose neutral element must stand in the padding of an operand,
      because the op acts on what it reads there (an index, a divisor) and not only
      computes with it. Padding of reduced dims is cleaned in any case.
    }], "std::optional<::partita::ReduceKind>", "getPaddingFill",
      (ins "unsigned":$operand), "", [{ return std::nullopt; }]>,
    InterfaceMethod<[{
      Where the local op of this strategy would compute something else than the op on
      whole tensors: builds, behind the op, global ops of which that is not true, and
      returns the value that takes the place of its result; it may change the op itself.
      What it builds are sources and elementwise ops on the result's dims. Null: the local
      op is exact.
    }], "::mlir::Value", "rewriteForSplit",
      (ins "::mlir::OpBuilder &":$builder, "const ::partita::Strategy &":$strategy), "",
      [{ return {}; }]>,
    InterfaceMethod<[{
      Why loops of kind Replicate cannot be split, in sentences for the user; empty where
      no rule of the op has one.
    }], "::llvm::StringRef", "getWhyWhole", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
      How freely shardings flow through the op: 0 for ops that only rename or combine
      elements in place (elementwise, reshape, transpose), 1 for contractions and the
      like, 2 for everything that mixes dims. Lower kinds propagate first.
    }], "int", "getPropagationPriority", (ins), "", [{ return 1; }]>,
    InterfaceMethod<[{
      Floating-point operations of the whole op at its current shapes.
    }], "int64_t", "getFlops", (ins), "", [{
        return ::partita::detail::defaultFlops($_op, /*perPoint=*/1);
      }]>,
    InterfaceMethod<[{
      Vector instructions per element times elements of a kernel that computes the op at
      its current shapes: as the operations, but a function of real numbers counts as its
      polynomial, and passes over a row as what they load and store.
    }], "int64_t", "getKernelSteps", (ins), "", [{ return $_op.getFlops(); }]>,
    InterfaceMethod<[{
      How code generation computes the op; `kernelFactsOf` adds what follows from its
      operations. The default: by tasks of its own.
    }], "::partita::kernels::OpFacts", "getKernelFacts", (ins), "", [{ return {}; }]>,
  ];
  let verify = [{ return ::partita::detail::verifyShardingRule($_op); }];
}

def CallingOpInterface : OpInterface<"CallingOpInterface"> {
  let cppNamespace = "::partita";
  let description = [{
    Runs functions of the module: a loop its body several times, a branch one of two. Its
    operands are their arguments, its results their results; a loop may take one row of an
    operand in each trip, and give one row of a result. What is carried from trip to trip,
    the first operands and results, goes in, around and out as one variable. The op has no
    rule: it is as its functions' ops are.
  }];
  let methods = [
    InterfaceMethod<"The functions; null where there is none of the name.",
      "::llvm::SmallVector<::mlir::Operation *>", "getCallees">,
    InterfaceMethod<"How often each runs; of a branch 1.", "int64_t", "getCallTrips",
      (ins), "", [{ return 1; }]>,
    InterfaceMethod<"The argument that an operand is, or -1: a condition.", "int",
      "getArgumentOf", (ins "unsigned":$operand), "",
      [{ return static_cast<int>(operand); }]>,
    InterfaceMethod<"Operands, and results, that are carried.", "unsigned",
      "getNumCarried", (ins), "", [{ return 0; }]>,
    InterfaceMethod<"Whether an operand has the rows of all trips.", "bool",
      "operandHasRows", (ins "unsigned":$operand), "", [{ return false; }]>,
    InterfaceMethod<"Whether a result has the rows of all trips.", "bool",
      "resultHasRows", (ins "unsigned":$result), "", [{ return false; }]>,
  ];
}

def EvaluateOpInterface : OpInterface<"EvaluateOpInterface"> {
  let cppNamespace = "::partita";
  let description = [{
    Runs the op on host tensors: the reference every other execution is compared with,
    and the constant folder. Written for obvious correctness; f16 and bf16 compute in
    double and round once.
  }];
  let methods = [
    InterfaceMethod<[{
      `operands` have the shapes of the op's operand types; fills one tensor per result.
    }], "::partita::Expected<std::vector<::partita::HostTensor>>", "evaluate",
      (ins "::llvm::ArrayRef<const ::partita::HostTensor *>":$operands)>,
  ];
}

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::partita";
  let description = [{
    States its gradient in ops: the step of reverse mode that goes backward through the
    op. A cotangent of a value is ∂loss/∂value, of the value's type.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds, behind what the op reads and gives, the cotangent of each operand whose
      `wanted` is set, from those of the results. Null is zero, of a result and of an
      operand. An error says what has no gradient.
    }], "::partita::Expected<std::vector<::mlir::Value>>", "gradients",
      (ins "::mlir::OpBuilder &":$builder,
           "::llvm::ArrayRef<::mlir::Value>":$cotangents,
           "const std::vector<bool> &":$wanted)>,
  ];
}

#endif // PARTITA_DIALECTS_INTERFACES_OPINTERFACES
