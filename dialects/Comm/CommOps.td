//===- CommOps.td - What crosses devices --------------------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_COMM_COMMOPS
#define PARTITA_DIALECTS_COMM_COMMOPS

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Comm_Dialect : Dialect {
  let name = "comm";
  let cppNamespace = "::partita::comm";
  let summary = "Collectives on mesh axes, and the local steps that depend on a coordinate";
  let description = [{
    In a partitioned program every tensor is one rank's part, and only these ops look at
    other ranks or at the rank's own coordinates. They name mesh axes, never ranks, so one
    program serves all.

    Each op is one step of the reshard planner (partita/Base/Layout/Reshard.h) and carries that
    step's layouts: `from` is where the operand's elements live, `to` where the result's
    do. Types are local shapes of those layouts, which the verifier checks. `place` is
    [dim, factor, toDim, toFactor], the place the axes leave or enter; `received` the
    elements that one rank receives at most.

    A halo is the exception: its result is no layout of the tensor, but a buffer that
    overlaps with those of other ranks.

    An all-reduce over tp of a matrix whose layout is replicated afterwards has
    `axes = ["tp"]`, `kind = "sum"`, and layouts that differ in `partial sum {tp}` only.
  }];
}

def Comm_Tensor : StaticShapeTensorOf<[AnyType]>;

def CommOpInterface : OpInterface<"CommOpInterface"> {
  let cppNamespace = "::partita::comm";
  let description = [{ An op by which ranks receive from each other. }];
  let methods = [
    InterfaceMethod<"The axes over which it works.",
                    "::llvm::SmallVector<std::string>", "getAxisNames">,
    InterfaceMethod<"Elements that one rank receives, at most.", "int64_t",
                    "getReceivedElements", (ins), "", [{ return $_op.getReceived(); }]>,
  ];
}

def StepOpInterface : OpInterface<"StepOpInterface", [CommOpInterface]> {
  let cppNamespace = "::partita::comm";
  let description = [{ One step of a reshard plan. }];
  let methods = [
    InterfaceMethod<"The step this op performs.", "::partita::Step", "getStep",
                    (ins "const ::partita::Mesh &":$mesh)>,
  ];
  let verify = [{ return ::partita::comm::detail::verifyStep($_op); }];
}

/// Collectives are not Pure: merging or removing one on some ranks only would deadlock
/// the others. Inside one program that all ranks run, a rewrite is the same everywhere,
/// so equal collectives may merge and unused ones go.
class Comm_StepOp<string mnemonic, string stepKind, dag extra = (ins)>
    : Op<Comm_Dialect, mnemonic, [CommOpInterface, StepOpInterface, Pure]> {
  let arguments = !con((ins Comm_Tensor:$input, StrArrayAttr:$axes, StrAttr:$from,
                            StrAttr:$to, DenseI64ArrayAttr:$place, I64Attr:$received),
                       extra);
  let results = (outs Comm_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type($input, $result)";
  let extraClassDeclaration = [{
    static constexpr ::partita::StepKind kStep = ::partita::StepKind::}] # stepKind # [{;
    ::partita::Step getStep(const ::partita::Mesh &mesh) {
      return ::partita::comm::detail::stepOf(*this, kStep, mesh);
    }
    ::llvm::SmallVector<std::string> getAxisNames() {
      return ::partita::comm::detail::axisNames(getAxes());
    }
  }];
}

class Comm_ReducingOp<string mnemonic, string stepKind>
    : Comm_StepOp<mnemonic, stepKind, (ins StrAttr:$kind)>;

def Comm_AllReduceOp : Comm_ReducingOp<"all_reduce", "AllReduce"> {
  let summary = "Partial becomes replicated along the axes";
}
def Comm_ReduceScatterOp : Comm_ReducingOp<"reduce_scatter", "ReduceScatter"> {
  let summary = "Partial becomes sharded along the axes";
}
def Comm_ToPartialOp : Comm_ReducingOp<"to_partial", "ToPartial"> {
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

def Comm_HaloOp : Op<Comm_Dialect, "halo", [CommOpInterface, Pure]> {
  let summary = "The elements that a rank's windows cover, from whoever holds them";
  let description = [{
    `from` is where the operand's elements live. `positions` is a layout of the windows'
    positions: as one of the operand, but dim `dims[i]` counts windows, which begin
    `strides[i]` elements apart, cover `reach[i]` elements, and of which the first begins
    `low[i]` elements before the dim. A rank with B positions gets (B − 1) · stride + reach
    elements, beginning at those of its first position; where there are none (pads,
    padding), the neutral element of `kind`. See partita/Base/Layout/Halo.h.

    The rows of a convolution 3×3 with pads of 1, 8 rows on 2 ranks: each gets its 4 rows,
    one of the other rank, and a row of zeros.

    ```mlir
    %0 = comm.halo %x {from = "}] # "[{1}, {4}, {8: sp}, {8}]" # [{",
                       positions = "}] # "[{1}, {4}, {8: sp}, {8}]" # [{",
                       dims = array<i64: 2>, strides = array<i64: 1>,
                       reach = array<i64: 3>, low = array<i64: 1>,
                       kind = "sum", received = 32 : i64}
         : (tensor<1x4x4x8xf32>) -> tensor<1x4x6x8xf32>
    ```
  }];
  let arguments = (ins Comm_Tensor:$input, StrAttr:$from, StrAttr:$positions,
                       DenseI64ArrayAttr:$dims, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$reach, DenseI64ArrayAttr:$low, StrAttr:$kind,
                       I64Attr:$received);
  let results = (outs Comm_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type($input, $result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The halo in the terms of lib/; the op has been verified.
    ::partita::Halo getHalo(const ::partita::Mesh &mesh);
    ::llvm::SmallVector<std::string> getAxisNames();
  }];
}

def Comm_MaskOp : Op<Comm_Dialect, "mask", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "Overwrites the padding of `dims` with the neutral element of `kind`";
  let description = [{
    `layout` says which elements of the local tensor are padding on which rank. Ops that
    reduce over a padded dim need the padding neutral: 0 · NaN is NaN.
  }];
  let arguments = (ins Comm_Tensor:$input, StrAttr:$layout, DenseI64ArrayAttr:$dims,
                       StrAttr:$kind);
  let results = (outs Comm_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def Comm_LocalIndexOp : Op<Comm_Dialect, "local_index",
                           [Pure, AllTypesMatch<["indices", "result"]>]> {
  let summary = "Indices of a split dim become places in the rank's block";
  let description = [{
    `layout` is that of the dim, as of a tensor of one dim. The result is, per index of the
    whole dim, where the element lies in this rank's part, or -1 if another rank has it. Negative indices count from the end of the whole dim; one
    outside it is treated as `graph.gather` does.
  }];
  let arguments = (ins Comm_Tensor:$indices, StrAttr:$layout);
  let results = (outs Comm_Tensor:$result);
  let assemblyFormat = "$indices attr-dict `:` type($indices)";
  let hasVerifier = 1;
}

#endif // PARTITA_DIALECTS_COMM_COMMOPS
