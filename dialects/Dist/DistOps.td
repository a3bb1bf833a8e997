//===- DistOps.td - Conversions in a planned program --------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_DIST_DISTOPS
#define PARTITA_DIALECTS_DIST_DISTOPS

include "dialects/Dist/DistBase.td"
include "dialects/Interfaces/OpInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Dist_Tensor : StaticShapeTensorOf<[AnyType]>;

/// A conversion of a planned program: global shapes, the type of its operand.
class Dist_ConversionOp<string mnemonic>
    : Op<Dist_Dialect, mnemonic, [NoMemoryEffect, SameOperandsAndResultType]> {
  let results = (outs Dist_Tensor:$result);
  let hasVerifier = 1;
}

def Dist_ReshardOp : Dist_ConversionOp<"reshard"> {
  let summary = "The same tensor in another layout";
  let description = [{
    Each conversion of a plan is an op at its place, and serves all users of its result.
    Of a weight or constant it means that the tensor is read so, each rank its slices,
    without communication; with partial axes, that one rank along them keeps what it reads
    and the others have the neutral element. Two conversions of one value
    that must stay apart (a weight gathered again for the backward pass) have different
    epochs.

    ```mlir
    %1 = dist.reshard %0 to <#mesh, [{8: tp}, {6} ]> : tensor<8x6xf32>
    %2 = dist.reshard %w to <#mesh, [{4}, {6} ]> epoch 1 : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins Dist_Tensor:$input, Dist_LayoutAttr:$layout,
                       DefaultValuedAttr<I64Attr, "0">:$epoch);
  let assemblyFormat =
      "$input `to` $layout (`epoch` $epoch^)? attr-dict `:` type($result)";
  let hasCanonicalizer = 1;
}

def Dist_WindowOp : Dist_ConversionOp<"window"> {
  let summary = "The elements that each rank's windows cover, from the ranks that hold them";
  let description = [{
    The operand of a convolution or pooling whose windows are split. The result is no
    layout of the tensor, as buffers overlap; it may be used only by an op whose strategy
    asks for exactly this buffer.

    ```mlir
    %1 = dist.window %0 to <#dist.layout<#mesh, [{1}, {4}, {8: sp}, {8} ]>,
                            dim 2 stride 1 kernel_extent 3 low 1, fill sum> : tensor<1x4x8x8xf32>
    ```
  }];
  let arguments = (ins Dist_Tensor:$input, Dist_WindowsAttr:$windows,
                       DefaultValuedAttr<I64Attr, "0">:$epoch);
  let assemblyFormat =
      "$input `to` $windows (`epoch` $epoch^)? attr-dict `:` type($result)";
}

def Dist_ManualOp : Op<Dist_Dialect, "manual",
                       [NoMemoryEffect, DeclareOpInterfaceMethods<ShardingRuleOpInterface>]> {
  let summary = "Communication of a graph that is written per rank";
  let description = [{
    What each rank has is taken as its part of a tensor in layout `from`; the result is the
    rank's part of that tensor in layout `to`. Types are local shapes, of dims that are
    divided evenly. Inside all loops are whole: there the program is that of one rank, and
    nothing else splits it. The tensor outside (below) is split as that of any op.

    `enter`: the operand is a tensor that all ranks have, the result local (`from` is
    whole). `leave`: the operand is local, the result one tensor (`to` is whole).
    docs/manual.md has the primitives, and which values may differ between ranks.

    `pieces`: no pair of layouts says what is sent, and `from` and `to` are the whole local
    tensors. Boxes of the operand become boxes of other ranks' results.

    ```mlir
    %1 = dist.manual %0 from <#mesh, [{8}, {6} ] partial sum {tp}> to <#mesh, [{8}, {6} ]>
        : tensor<8x6xf32> -> tensor<8x6xf32>
    %2 = dist.manual enter %w from <#mesh, [{4}, {6} ]> to <#mesh, [{4}, {6: tp} ]>
        : tensor<4x6xf32> -> tensor<4x3xf32>
    %3 = dist.manual %2 from <#mesh, [{4}, {3} ]> to <#mesh, [{4}, {3} ]>
           pieces <#mesh, 0 to 1 [0 to 0 of 4, 0 to 0 of 3]>
        : tensor<4x3xf32> -> tensor<4x3xf32>
    ```
  }];
  let arguments = (ins Dist_Tensor:$input, Dist_LayoutAttr:$from, Dist_LayoutAttr:$to,
                       UnitAttr:$enter, UnitAttr:$leave,
                       OptionalAttr<Dist_PiecesAttr>:$pieces);
  let results = (outs Dist_Tensor:$result);
  let assemblyFormat = "(`enter` $enter^)? (`leave` $leave^)? $input `from` $from `to` $to "
                       "(`pieces` $pieces^)? attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The exchange of the `pieces` that are named; the op has been verified.
    ::std::optional<::partita::Pieces> getExchange();
    /// Else the steps that lead from the one layout to the other.
    ::partita::Expected<::partita::ReshardPlan> getPlan();
    /// Only what is received costs.
    int64_t getFlops() { return 0; }
    ::llvm::StringRef getWhyWhole() {
      return "A graph that is written per rank says itself what each rank has.";
    }
  }];
}

#endif // PARTITA_DIALECTS_DIST_DISTOPS
