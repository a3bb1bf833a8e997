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
  ];
}

def RowOpInterface : OpInterface<"RowOpInterface"> {
  let cppNamespace = "::partita::codegen";
  let description = [{
    Mixes or reduces the elements of each row of its first operand, inside a kernel. The
    op's kernel facts say which dims a row has. Where mayChangeInPlace and both lie in one
    place, emitRow changes the elements in question and does not touch the others; see
    KernelEmitter::changesInPlace.
  }];
  let methods = [
    InterfaceMethod<"Rows of floats that the lowering keeps between its passes.",
      "int64_t", "numScratchRows", (ins), "", [{ return 0; }]>,
    InterfaceMethod<"As of an indexed op.", "bool", "isChecked", (ins), "",
      [{ return false; }]>,
    InterfaceMethod<"As of an indexed op.", "void", "emitChecks",
      (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node), "",
      [{ return; }]>,
    InterfaceMethod<[{
      Whether emitRow reduces by KernelEmitter::reduceRows alone, or changes a row in its
      place by KernelEmitter::eachRow, so that several neighbouring rows may be computed
      at once.
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
    InterfaceMethod<[{
      How many elements of a row a CPU computes at once by emitElements, where each takes
      many steps that wait for one another: the steps of one fill the waits of the others.
    }], "int64_t", "getElementsAtOnce", (ins), "", [{ return 1; }]>,
    InterfaceMethod<"The elements at so many indices, or fewer.",
      "::llvm::SmallVector<::mlir::Value>", "emitElements",
      (ins "::partita::codegen::KernelEmitter &":$emitter, "int":$node,
           "::llvm::ArrayRef<::llvm::SmallVector<::mlir::Value>>":$indices), "", [{
        llvm_unreachable("elements of this op are computed one by one");
      }]>,
  ];
}

#endif // PARTITA_PASSES_CODEGEN_COMMON_CODEGENINTERFACES
