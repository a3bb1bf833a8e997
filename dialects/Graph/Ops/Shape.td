//===- Shape.td - Ops that move elements without computing --*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_SHAPE
#define PARTITA_DIALECTS_GRAPH_OPS_SHAPE

include "dialects/Graph/GraphBase.td"

// Reductions of every kind commute with moving whole elements.
defvar anyKind = [LinearSum<[0]>, LinearMax<[0]>, LinearMin<[0]>, LinearProd<[0]>];

def Graph_ReshapeOp : Graph_ShapedOp<"reshape", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::View, "
               "::partita::kernels::OpRole::Reshape, {})";
  let summary = "The same elements in row-major order, another shape";
  let description = proof;
  let whole = "Dims whose cut points do not nest, as those of 4x3 and of 3x4: elements 3, 6 "
              "and 9 cut the one, 4 and 8 the other, so that no block of the one dim is "
              "made of blocks of the other, and they have no loop in common.";
  let arguments = (ins Graph_Tensor:$input);
  let linear = anyKind;
  let hasFolder = 1;
}

def Graph_TransposeOp : Graph_InferredOp<"transpose", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::View, "
               "::partita::kernels::OpRole::Transpose, {getPermutation().vec()})";
  let summary = "Result dim i is operand dim permutation[i]";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let linear = anyKind;
  let extraClassDeclaration = inferred # "int getPropagationPriority() { return 0; }";
  let hasFolder = 1;
}

def Graph_BroadcastOp : Graph_ShapedOp<"broadcast", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::View, "
               "::partita::kernels::OpRole::Broadcast, {})";
  let summary = "Stretches dims of size 1 and adds leading dims, as numpy does";
  let arguments = (ins Graph_Tensor:$input);
  let linear = anyKind;
}

def Graph_SliceOp : Graph_ShapedOp<"slice", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::View, "
               "::partita::kernels::OpRole::Slice, {getStarts().vec(), getSteps().vec()})";
  let summary = "Elements starts[d] + i * steps[d] of every dim d";
  let description = [{
    Steps may be negative; every element named must exist. A dim that is one of k equal
    blocks stays shardable inside the block, so the three slices of a fused
    query-key-value projection keep the sharding of each third.
  }] # proof;
  let whole = "Which of equal blocks is kept: the result has one, and a split would leave "
              "the other ranks nothing. A dim that is cut otherwise: element i of the "
              "result is element start + i * step of the operand, in the block of another "
              "rank, so that the dims have no loop in common. A split would share no "
              "arithmetic, for there is none; it would be a redistribution, which the "
              "plan has around the op.";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$starts,
                       DenseI64ArrayAttr:$steps);
  let linear = anyKind;
  let extraClassDeclaration = shaped # [{
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_ConcatOp : Graph_InferredOp<"concat", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::joinFacts(*this)";
  let summary = "Joins the operands along an axis";
  let description = proof;
  let whole = "Of operands of equal length, the number of the operand: none of them has "
              "this loop, and a split would leave ranks without one. Of others, the joined "
              "dim: element i of an operand is behind those of the operands before, in "
              "the block of another rank, so that the dims have no loop in common. A split "
              "would share no arithmetic, for there is none; it would be a redistribution, "
              "which the plan has around the op.";
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, I64Attr:$axis);
  let extraClassDeclaration = inferred # "int getPropagationPriority() { return 0; }";
}

def Graph_PadOp : Graph_InferredOp<"pad", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::padFacts(*this)";
  let summary = "Adds `low` and `high` elements around every dim";
  let description = [{
    Mode `constant` fills with the scalar operand `value`; `edge` repeats the border,
    `reflect` mirrors without repeating it. Negative amounts cut.
  }] # proof;
  let whole = "A dim that is padded: element i of the operand is element i + low of the "
              "result, in the block of another rank, so that the dims have no loop in "
              "common. A split would share no arithmetic, for there is none; it would be a "
              "redistribution, which the plan has around the op. Zeros around what a "
              "convolution or a pool reads become its own pads, which are read through "
              "windows.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$value,
                       DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high,
                       DefaultValuedAttr<Graph_PadModeAttr,
                                         "::partita::graph::PadMode::Constant">:$mode);
}

def Graph_GatherOp : Graph_InferredOp<"gather", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "Takes the slices of `data` along `axis` that `indices` names";
  let description = [{
    Result shape: data[:axis] + indices + data[axis+1:]. Negative indices count from the
    end.

    Along `axis` the table may be split: the result is then a partial sum (of booleans a
    partial maximum), to which each rank contributes the rows of its block. `masked` is the
    form that one rank runs: an index that is not in its block, -1 after
    `comm.local_index`, gives zero.
  }] # proof;
  let whole = "The dim that is looked up in, for types that are only stored (f8, f4, i4 "
              "and less) and have no sum: a split lookup is a reduction over ranks.";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$indices, I64Attr:$axis,
                       UnitAttr:$masked);
  let linear = anyKind;
  // A garbage index would read outside the data.
  let extraClassDeclaration = inferred # [{
    /// It computes nothing, however large the table.
    int64_t getFlops() { return 0; }
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 1 ? std::optional(::partita::ReduceKind::Sum) : std::nullopt;
    }
  }];
}

def Graph_GatherNDOp : Graph_InferredOp<"gather_nd", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "Takes the slices of `data` that the last dim of `indices` addresses";
  let description = [{
    Result shape: indices[:-1] + data[batch_dims + indices.shape[-1]:]; of the first
    `batch_dims` dims data and indices have the same ones. Negative indices count from the
    end.

    Where `indices` addresses one dim, that may be split as that of `graph.gather`:
    `masked` is the form that one rank runs.
  }] # proof;
  let whole = "Where an index has several components, these and the dims that they address: "
              "a place in the block of a rank follows from all components together. "
              "Import makes these dims one, of which one component is a place, and that "
              "splits. The dim that is looked up in, for types that are only stored (f8, "
              "f4, i4 and less) and have no sum: a split lookup is a reduction over ranks.";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$indices,
                       DefaultValuedAttr<I64Attr, "0">:$batch_dims, UnitAttr:$masked);
  let linear = anyKind;
  // A garbage index would read outside the data.
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return 0; }
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 1 ? std::optional(::partita::ReduceKind::Sum) : std::nullopt;
    }
  }];
}

class Graph_CumulativeOp<string mnemonic, list<Trait> traits = []>
    : Graph_InferredOp<mnemonic, traits> {
  let kernel = "detail::rowFacts(*this, getAxis())";
  let arguments = (ins Graph_Tensor:$input, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$exclusive,
                       DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let description = [{
    `exclusive` leaves each element itself out, `reverse` runs from the end.
  }] # proof;
  let whole = "The axis: an element depends on all before it, so that a block needs the "
              "total of the blocks before. Import writes a long axis of few rows as groups, "
              "which split, and what is before each group.";
  let extraClassDeclaration = inferred # [{
    int64_t getKernelSteps() {
      return ::partita::graph::detail::runningSteps((*this)->getResult(0));
    }
  }];
}
def Graph_CumSumOp
    : Graph_CumulativeOp<"cumsum", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Running sum along an axis";
  let linear = [LinearSum<[0]>];
}
def Graph_CumProdOp
    : Graph_CumulativeOp<"cumprod", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Running product along an axis";
  let linear = [LinearProd<[0]>];
}

def Graph_ResizeOp : Graph_ShapedOp<"resize", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "Resamples spatial dims";
  let description = [{
    `mode` is nearest or linear; `coordinates` is ONNX's coordinate transformation
    (asymmetric, half_pixel, pytorch_half_pixel, align_corners), `rounding` ONNX's
    nearest_mode. `scales` per dim as the model gives them (result over operand size
    where it gives sizes).
  }] # proof;
  let whole = "A dim that is not repeated a whole number of times: which elements an element "
              "of the result reads, and at what weights, follows from its place, and the "
              "first of each rank's block stands otherwise between those of the operand, "
              "while all ranks run one program. A gather by places that are constants, "
              "weighted and summed, is the same and splits; so import writes the modes "
              "that this op does not have.";
  let arguments = (ins Graph_Tensor:$input, DenseF64ArrayAttr:$scales,
                       Graph_ResizeModeAttr:$mode, Graph_CoordinatesAttr:$coordinates,
                       Graph_RoundingAttr:$rounding);
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_SHAPE
