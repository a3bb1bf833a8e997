//===- CommOps.td - What crosses devices --------------------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_COMM_COMMOPS
#define PARTITA_DIALECTS_COMM_COMMOPS

include "dialects/Dist/DistBase.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Comm_Dialect : Dialect {
  let name = "comm";
  let cppNamespace = "::partita::comm";
  let summary = "Collectives on mesh axes, and the local steps that depend on a coordinate";
  let description = [{
    In a partitioned program every tensor is one rank's part, and only these ops look at
    other ranks or at the rank's own coordinates. They name mesh axes, never ranks, so one
    program serves all.

    Most ops are one step of the reshard planner (partita/Base/Layout/Reshard.h): `from`
    is where the operand's elements live, `to` where the result's do. Everything else (the
    group, the place that axes leave or enter, the reduction, the volume) follows from the
    kind of the op and the two, and the verifier refuses an op that does not lead from the
    one to the other. Types are local shapes of the layouts.

    On tensors the ops have no memory effect, are not speculatable, and are the same on
    every rank: equal ones may merge and unused ones go, nothing moves out of a region.

    Each op also has a form on buffers, in which it writes `out` and has no result. One-shot
    bufferization leads from the first form to the second, in functions of any dialect:

    ```mlir
    comm.all_gather %x into %y from <#mesh, [{8: tp} ]> to <#mesh, [{8} ]>
        : (memref<4xf32>, memref<8xf32>) -> ()
    ```
  }];
  let dependentDialects = ["::partita::dist::DistDialect", "::mlir::arith::ArithDialect"];
  let hasConstantMaterializer = 1;
}

def Comm_Tensor : StaticShapeTensorOf<[AnyType]>;
def Comm_Buffer : StaticShapeMemRefOf<[AnyType]>;
def Comm_Operand : AnyTypeOf<[Comm_Tensor, Comm_Buffer]>;

/// An op in two forms: on tensors with a result, on buffers with `out`.
class Comm_Op<string mnemonic, list<Trait> traits = []>
    : Op<Comm_Dialect, mnemonic,
         !listconcat([DeclareOpInterfaceMethods<MemoryEffectsOpInterface>], traits)> {
  let results = (outs Optional<Comm_Tensor>:$result);
  let extraClassDefinition = [{
    void $cppClass::getEffects(
        ::llvm::SmallVectorImpl<::mlir::SideEffects::EffectInstance<
            ::mlir::MemoryEffects::Effect>> &effects) {
      ::partita::comm::detail::effectsOf(*this, effects);
    }
  }];
}

def CommOpInterface : OpInterface<"CommOpInterface"> {
  let cppNamespace = "::partita::comm";
  let description = [{ An op by which ranks receive from each other. }];
  let methods = [
    InterfaceMethod<"The axes over which it works.", "::partita::AxisList", "getAxes">,
    InterfaceMethod<"Elements that one rank receives, at most.", "int64_t",
                    "getReceivedElements">,
    InterfaceMethod<"The mesh of its ranks.", "const ::partita::Mesh &", "getDevices">,
  ];
}

def StepOpInterface : OpInterface<"StepOpInterface", [CommOpInterface]> {
  let cppNamespace = "::partita::comm";
  let description = [{ One step of a reshard plan. }];
  let methods = [
    InterfaceMethod<"The kind of step.", "::partita::StepKind", "getStepKind">,
    InterfaceMethod<"Where the operand's elements live.", "::partita::dist::LayoutAttr",
                    "getFrom">,
    InterfaceMethod<"Where the result's elements live.", "::partita::dist::LayoutAttr",
                    "getTo">,
    InterfaceMethod<"The step this op performs; the op has been verified.",
                    "::partita::Step", "getStep">,
    InterfaceMethod<"Whether one call does several such steps: see task.start.", "bool",
                    "mayShareCall", (ins), [{
      ::partita::StepKind kind = $_op.getStepKind();
      return kind == ::partita::StepKind::AllReduce ||
             kind == ::partita::StepKind::ReduceScatter ||
             kind == ::partita::StepKind::AllGather;
    }]>,
  ];
  let verify = [{ return ::partita::comm::detail::verifyStep($_op); }];
}

class Comm_StepOp<string mnemonic, string stepKind>
    : Comm_Op<mnemonic, [CommOpInterface, StepOpInterface]> {
  /// Steps of conversions of different epochs are never merged.
  let arguments = (ins Comm_Operand:$input, Optional<Comm_Buffer>:$out,
                       Dist_LayoutAttr:$from, Dist_LayoutAttr:$to,
                       DefaultValuedAttr<I64Attr, "0">:$epoch);
  let assemblyFormat = "$input (`into` $out^)? `from` $from `to` $to (`epoch` $epoch^)? "
                       "attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = [{
    static constexpr ::partita::StepKind kStep = ::partita::StepKind::}] # stepKind # [{;
    ::partita::StepKind getStepKind() { return kStep; }
    ::partita::Step getStep() { return ::partita::comm::detail::stepOf(*this); }
    ::partita::AxisList getAxes() { return getStep().axes; }
    int64_t getReceivedElements() { return getStep().receivedElements; }
    const ::partita::Mesh &getDevices() { return getFrom().devices(); }
  }];
}

def Comm_AllReduceOp : Comm_StepOp<"all_reduce", "AllReduce"> {
  let summary = "Partial becomes replicated along the axes";
  let description = [{
    ```mlir
    %1 = comm.all_reduce %0 from <#mesh, [{8}, {6} ] partial sum {tp}>
                            to <#mesh, [{8}, {6} ]> : (tensor<8x6xf32>) -> tensor<8x6xf32>
    ```
  }];
}
def Comm_ReduceScatterOp : Comm_StepOp<"reduce_scatter", "ReduceScatter"> {
  let summary = "Partial becomes sharded along the axes";
}
def Comm_ToPartialOp : Comm_StepOp<"to_partial", "ToPartial"> {
  let summary = "Replicated becomes partial: coordinate 0 keeps, others hold the neutral "
                "element; no communication";
}
def Comm_AllGatherOp : Comm_StepOp<"all_gather", "AllGather"> {
  let summary = "Sharded becomes replicated along the axes";
}
def Comm_SliceOp : Comm_StepOp<"slice", "Slice"> {
  let summary = "Replicated becomes sharded along the axes; no communication";
}
def Comm_AllToAllOp : Comm_StepOp<"all_to_all", "AllToAll"> {
  let summary = "The axes move from one dim to another";
}
def Comm_PermuteOp : Comm_StepOp<"permute", "Permute"> {
  let summary = "Whole parts change places";
}
def Comm_ExchangeOp : Comm_StepOp<"exchange", "Exchange"> {
  let summary = "Every rank fetches the elements it lacks from the nearest holder";
}
def Comm_RepadOp : Comm_StepOp<"repad", "Repad"> {
  let summary = "Changes the padded extent of an unsharded dim; no communication";
}

def Comm_HaloOp : Comm_Op<"halo", [CommOpInterface]> {
  let summary = "The elements that a rank's windows cover, from the ranks that hold them";
  let description = [{
    `from` is where the operand's elements live, `to` which buffers the ranks get; see
    `#dist.windows`. The rows of a convolution 3×3 with pads of 1, 8 rows on 2 ranks: each
    gets its 4 rows, one of the other rank, and a row of zeros.

    ```mlir
    %0 = comm.halo %x from <#mesh, [{1}, {4}, {8: sp}, {8} ]>
           to <#dist.layout<#mesh, [{1}, {4}, {8: sp}, {8} ]>,
               dim 2 stride 1 kernel_extent 3 low 1, fill sum>
         : (tensor<1x4x4x8xf32>) -> tensor<1x4x6x8xf32>
    ```
  }];
  let arguments = (ins Comm_Operand:$input, Optional<Comm_Buffer>:$out,
                       Dist_LayoutAttr:$from, Dist_WindowsAttr:$to);
  let assemblyFormat = "$input (`into` $out^)? `from` $from `to` $to attr-dict `:` "
                       "functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The halo in the terms of lib/.
    ::partita::Halo getHalo() { return getTo().from(getFrom().getLayout()); }
    ::partita::AxisList getAxes() { return getHalo().axes(getDevices()); }
    int64_t getReceivedElements() {
      return ::partita::haloElements(getDevices(), getHalo());
    }
    const ::partita::Mesh &getDevices() { return getFrom().devices(); }
  }];
}

def Comm_PiecesOp : Comm_Op<"pieces", [CommOpInterface]> {
  let summary = "Boxes of what ranks have become boxes of what other ranks get";
  let description = [{
    In a program that is written per rank, whose tensors are whole in the words of the
    layouts around. See `#dist.pieces`; elements that no piece fills are zero.

    ```mlir
    %1 = comm.pieces %0 by #dist.pieces<#mesh, 0 to 1 [0 to 0 of 8], 1 to 2 [0 to 0 of 8]>
        : (tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let arguments = (ins Comm_Operand:$input, Optional<Comm_Buffer>:$out,
                       Dist_PiecesAttr:$pieces);
  let assemblyFormat = "$input (`into` $out^)? `by` $pieces attr-dict `:` "
                       "functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The exchange in the terms of lib/.
    ::partita::Pieces getExchange();
    ::partita::AxisList getAxes() { return getExchange().axes(getDevices()); }
    int64_t getReceivedElements() { return ::partita::pieceElements(getExchange()); }
    const ::partita::Mesh &getDevices() { return getPieces().devices(); }
  }];
}

def Comm_MaskOp : Comm_Op<"mask"> {
  let summary = "Overwrites the padding of `dims` with the neutral element of `kind`";
  let description = [{
    `layout` says which elements of the local tensor are padding on which rank. Ops that
    reduce over a padded dim need the padding neutral: 0 · NaN is NaN.

    ```mlir
    %1 = comm.mask %0 dims [1] with <sum> in <#mesh, [{8}, {9/10: tp} ]>
         : (tensor<8x5xf32>) -> tensor<8x5xf32>
    ```
  }];
  let arguments = (ins Comm_Operand:$input, Optional<Comm_Buffer>:$out,
                       DenseI64ArrayAttr:$dims, Dist_KindAttr:$kind,
                       Dist_LayoutAttr:$layout);
  let assemblyFormat = "$input (`into` $out^)? `dims` $dims `with` $kind `in` $layout "
                       "attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Comm_LocalIndexOp : Comm_Op<"local_index"> {
  let summary = "Indices of a split dim become places in the rank's block";
  let description = [{
    `layout` is that of the dim, as of a tensor of one dim. The result is, per index of the
    whole dim, where the element lies in this rank's part, or -1 if another rank has it.
    Negative indices count from the end of the whole dim; one outside it is treated as
    `graph.gather` does.

    ```mlir
    %1 = comm.local_index %0 in <#mesh, [{50257/50258: tp} ]>
         : (tensor<8x128xi64>) -> tensor<8x128xi64>
    ```
  }];
  let arguments = (ins Comm_Operand:$indices, Optional<Comm_Buffer>:$out,
                       Dist_LayoutAttr:$layout);
  let assemblyFormat = "$indices (`into` $out^)? `in` $layout attr-dict `:` "
                       "functional-type(operands, results)";
  let hasVerifier = 1;
}

def Comm_ClaimOp : Op<Comm_Dialect, "claim", [NoMemoryEffect, SameOperandsAndResultType]> {
  let summary = "A rank's part of one tensor is taken as its part of another";
  let description = [{
    In the words of whoever wrote the program per rank (`dist.manual`): no rank does
    anything, and the local types are equal.

    ```mlir
    %1 = comm.claim %0 from <#mesh, [{8}, {6} ]> to <#mesh, [{8}, {6} ] partial sum {tp}>
         : tensor<8x6xf32>
    ```
  }];
  let arguments = (ins Comm_Tensor:$input, Dist_LayoutAttr:$from, Dist_LayoutAttr:$to);
  let results = (outs Comm_Tensor:$result);
  let assemblyFormat = "$input `from` $from `to` $to attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Comm_CoordinateOp : Op<Comm_Dialect, "coordinate", [NoMemoryEffect]> {
  let summary = "Which block of a dim the rank has";
  let description = [{
    `layout` is that of the dim, as of a tensor of one dim, in one piece. The result counts
    blocks, from 0, in the order of the dim: it is the rank's coordinate along the axes of
    the dim. Programs of other dialects compute offsets and bounds from it; the verifier of
    partitioned programs does not follow what depends on it.

    ```mlir
    %0 = comm.coordinate in <#mesh, [{8: dp, tp} ]>
    ```
  }];
  let arguments = (ins Dist_LayoutAttr:$layout);
  let results = (outs Index:$result);
  let assemblyFormat = "`in` $layout attr-dict";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif // PARTITA_DIALECTS_COMM_COMMOPS
