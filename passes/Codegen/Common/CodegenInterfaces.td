//===- CodegenInterfaces.td - How ops become tasks ---------*- tablegen -*-===//
//
// An op takes part in code generation by one of these interfaces, attached as external
// models beside each op family (Form*.cpp here, Lower*.cpp of a target). Ops with a
// scalar payload need none.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_CODEGENINTERFACES
#define PARTITA_PASSES_CODEGEN_COMMON_CODEGENINTERFACES

include "mlir/IR/OpBase.td"

def ViewOpInterface : OpInterface<"ViewOpInterface"> {
  let cppNamespace = "::partita::codegen";
  let description = [{ The result is another view of the first operand's buffer. }];
  let methods = [
    InterfaceMethod<"The result, given the operand; nothing if it needs a copy.",
      "std::optional<::partita::codegen::View>", "resultView",
      (ins "const ::partita::codegen::View &":$operand)>,
    InterfaceMethod<[{
      The operand, given the result: where a producer writes so that the result is
      `result`. Nothing if the operand has more elements or no such view.
    }], "std::optional<::partita::codegen::View>", "operandView",
      (ins "const ::partita::codegen::View &":$result), "", [{ return std::nullopt; }]>,
  ];
}

def TaskOpInterface : OpInterface<"TaskOpInterface"> {
  let cppNamespace = "::partita::codegen";
  let description = [{ Becomes tasks of its own: engine calls, collectives, copies. }];
  let methods = [
    InterfaceMethod<"Adds the tasks and says where the result lies.",
      "::llvm::LogicalResult", "formTasks", (ins "::partita::codegen::TaskFormer &":$former)>,
    InterfaceMethod<"Whether pointwise ops on the result can be part of the call.",
      "bool", "takesPostOps", (ins), "", [{ return false; }]>,
  ];
}

def RowOpInterface : OpInterface<"RowOpInterface"> {
  let cppNamespace = "::partita::codegen";
  let description = [{
    Mixes or reduces the elements of each row of its first operand, inside a kernel.
  }];
  let methods = [
    InterfaceMethod<"The dims of the first operand that make up a row.",
      "::llvm::SmallVector<int64_t>", "getRowDims">,
    InterfaceMethod<"Whether the result has one element per row.", "bool", "reducesRow",
      (ins), "", [{ return false; }]>,
    InterfaceMethod<"Whether reduced dims stay as dims of size 1.", "bool", "keepsDims",
      (ins), "", [{ return true; }]>,
    InterfaceMethod<"Rows of floats that the lowering keeps between its passes.",
      "int64_t", "numScratchRows", (ins), "", [{ return 0; }]>,
    InterfaceMethod<[{
      Whether an operand is read at places that the op computes, as those of an indexed op
      are, and not at the points of the row.
    }], "bool", "readsByPlace", (ins "unsigned":$operand), "", [{ return false; }]>,
    InterfaceMethod<"As of an indexed op.", "bool", "isChecked", (ins), "",
      [{ return false; }]>,
    InterfaceMethod<"As of an indexed op.", "void", "emitChecks",
      (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node), "",
      [{ return; }]>,
    InterfaceMethod<[{
      Whether the result is the first operand with some elements changed, so that where
      both lie in one place emitRow changes these and the others are not touched; see
      KernelEmitter::changesInPlace.
    }], "bool", "mayChangeInPlace", (ins), "", [{ return false; }]>,
    InterfaceMethod<[{
      Whether emitRow reduces by KernelEmitter::reduceRows alone, so that several
      neighbouring rows may be computed at once.
    }], "bool", "takesLanes", (ins), "", [{ return false; }]>,
    InterfaceMethod<"Emits the passes over the row; see KernelEmitter.", "void", "emitRow",
      (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node)>,
  ];
}

def IndexedOpInterface : OpInterface<"IndexedOpInterface"> {
  let cppNamespace = "::partita::codegen";
  let description = [{
    Each result element is computed from operand elements at computed places.
  }];
  let methods = [
    InterfaceMethod<"Numbers of the rank with which elements are computed.",
      "std::vector<::partita::RankValueSpec>", "getRankValues",
      (ins "const ::partita::Mesh &":$mesh), "", [{ return {}; }]>,
    InterfaceMethod<[{
      Whether operands from data can name places that are not there; emitChecks then looks
      at all of them, before any element is computed.
    }], "bool", "isChecked", (ins), "", [{ return false; }]>,
    InterfaceMethod<"Emits the checks; see KernelEmitter::checkIndices.", "void",
      "emitChecks", (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node), "",
      [{ return; }]>,
    InterfaceMethod<"The element at `index` of the result, in the compute type.",
      "::mlir::Value", "emitElement",
      (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node,
           "::llvm::ArrayRef<::mlir::Value>":$index)>,
  ];
}

#endif // PARTITA_PASSES_CODEGEN_COMMON_CODEGENINTERFACES
