//===- Shape.td - Ops that move elements without computing --*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_SHAPE
#define PARTITA_DIALECTS_GRAPH_OPS_SHAPE

include "dialects/Graph/GraphBase.td"

// Reductions of every kind commute with moving whole elements.
defvar anyKind = [LinearSum<[0]>, LinearMax<[0]>, LinearMin<[0]>, LinearProd<[0]>];

def Graph_ReshapeOp : Graph_ShapedOp<"reshape", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "The same elements in row-major order, another shape";
  let arguments = (ins Graph_Tensor:$input);
  let linear = anyKind;
  let hasFolder = 1;
}

def Graph_TransposeOp : Graph_InferredOp<"transpose", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Result dim i is operand dim permutation[i]";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let linear = anyKind;
  let extraClassDeclaration = inferred # "int getPropagationPriority() { return 0; }";
  let hasFolder = 1;
}

def Graph_BroadcastOp : Graph_ShapedOp<"broadcast", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Stretches dims of size 1 and adds leading dims, as numpy does";
  let arguments = (ins Graph_Tensor:$input);
  let linear = anyKind;
}

def Graph_SliceOp : Graph_ShapedOp<"slice", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Elements starts[d] + i * steps[d] of every dim d";
  let description = [{
    Steps may be negative; every element named must exist. A dim that is one of k equal
    blocks stays shardable inside the block, so the three slices of a fused
    query-key-value projection keep the sharding of each third.
  }];
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
  let summary = "Joins the operands along an axis";
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, I64Attr:$axis);
  let extraClassDeclaration = inferred # "int getPropagationPriority() { return 0; }";
}

def Graph_PadOp : Graph_InferredOp<"pad", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Adds `low` and `high` elements around every dim";
  let description = [{
    Mode `constant` fills with the scalar operand `value`; `edge` repeats the border,
    `reflect` mirrors without repeating it. Negative amounts cut.
  }];
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$value,
                       DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high,
                       DefaultValuedAttr<Graph_PadModeAttr,
                                         "::partita::graph::PadMode::Constant">:$mode);
}

def Graph_GatherOp : Graph_InferredOp<"gather", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Takes the slices of `data` along `axis` that `indices` names";
  let description = [{
    Result shape: data[:axis] + indices + data[axis+1:]. Negative indices count from the
    end.

    Along `axis` the table may be split: the result is then a partial sum, to which each
    rank contributes the rows of its block. `masked` is the form that one rank runs: an
    index that is not in its block, -1 after `comm.local_index`, gives zero.
  }];
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
  let summary = "Takes the slices of `data` that the last dim of `indices` addresses";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$indices,
                       DefaultValuedAttr<I64Attr, "0">:$batch_dims);
  let linear = anyKind;
  // A garbage index would read outside the data.
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return 0; }
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 1 ? std::optional(::partita::ReduceKind::Sum) : std::nullopt;
    }
  }];
}

class Graph_CumulativeOp<string mnemonic, list<Trait> traits = []>
    : Graph_InferredOp<mnemonic, traits> {
  let arguments = (ins Graph_Tensor:$input, I64Attr:$axis,
                       DefaultValuedAttr<BoolAttr, "false">:$exclusive,
                       DefaultValuedAttr<BoolAttr, "false">:$reverse);
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
  let summary = "Resamples spatial dims";
  let description = [{
    `mode` is nearest or linear; `coordinates` is ONNX's coordinate transformation
    (asymmetric, half_pixel, pytorch_half_pixel, align_corners), `rounding` ONNX's
    nearest_mode. `scales` per dim as the model gives them (result over operand size
    where it gives sizes).
  }];
  let arguments = (ins Graph_Tensor:$input, DenseF64ArrayAttr:$scales,
                       Graph_ResizeModeAttr:$mode, Graph_CoordinatesAttr:$coordinates,
                       Graph_RoundingAttr:$rounding);
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_SHAPE
