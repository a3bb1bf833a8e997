//===- Reduction.td - Reductions, pooling, normalization ----*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_REDUCTION
#define PARTITA_DIALECTS_GRAPH_OPS_REDUCTION

include "dialects/Graph/GraphBase.td"

def Graph_ReduceOp : Graph_InferredOp<"reduce", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::reductionFacts(*this)";
  let summary = "Reduces `axes` by sum, max, min or prod";
  let description = [{
    A mean is a sum followed by a division by the (global) count, so that a shard of the
    reduced dim needs no special case.
  }];
  let arguments = (ins Graph_Tensor:$input, Graph_ReduceKindAttr:$kind,
                       DenseI64ArrayAttr:$axes,
                       DefaultValuedAttr<BoolAttr, "false">:$keep_dims);
}

// The steps of what works on rows are exp's 16 or so, and what three passes load, compute
// and store; they are of kernels on a CPU of 512 bits beside those of other functions.
def Graph_SoftmaxOp : Graph_InferredOp<"softmax", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::softmaxFacts(*this)";
  let summary = "exp(x - max) / sum(exp(x - max)) along an axis";
  let description = proof;
  let whole = "The axis: each element needs the maximum and the sum of its whole row, and a rule "
              "reduces what an op gives, not what it needs on the way. Written as reductions and elementwise ops, the "
              "program splits along it.";
  let arguments = (ins Graph_Tensor:$input, I64Attr:$axis);
  let onnx = "Softmax";
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 4); }
    static constexpr int64_t stepsPerElement = 30;
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(*this, stepsPerElement);
    }
  }];
}

def Graph_LogSoftmaxOp : Graph_InferredOp<"log_softmax", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::rowFacts(*this, getAxis())";
  let summary = "x - max - log(sum(exp(x - max))) along an axis";
  let description = proof;
  let whole = "The axis: each element needs the maximum and the sum of its whole row, and a rule "
              "reduces what an op gives, not what it needs on the way. Written as reductions and elementwise ops, the "
              "program splits along it.";
  let arguments = (ins Graph_Tensor:$input, I64Attr:$axis);
  let onnx = "LogSoftmax";
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 4); }
    static constexpr int64_t stepsPerElement = 32;
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(*this, stepsPerElement);
    }
  }];
}

def Graph_LayerNormOp : Graph_InferredOp<"layer_norm", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::rowFacts(*this, getAxis(), true)";
  let summary = "(x - mean) / sqrt(variance + epsilon) * scale + bias over the last dims";
  let description = [{
    Mean and variance are taken over dims [axis, rank); scale and bias broadcast to
    those dims.
  }] # proof;
  let whole = "The dims of a row: each element needs the moments of its whole row, and a rule "
              "reduces what an op gives, not what it needs on the way. Written as reductions and elementwise ops, the "
              "program splits along it.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$scale, Graph_Tensor:$bias,
                       I64Attr:$axis, F64Attr:$epsilon);
  let linear = [LinearSum<[1, 2]>, LinearMax<[2]>, LinearMin<[2]>];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 8); }
    static constexpr int64_t stepsPerElement = 12;
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(*this, stepsPerElement);
    }
  }];
}

def Graph_RmsNormOp : Graph_InferredOp<"rms_norm", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::rowFacts(*this, getAxis(), true)";
  let summary = "x / sqrt(mean(x²) + epsilon) * scale over the last dims";
  let description = proof;
  let whole = "The dims of a row: each element needs the mean square of its whole row, and a rule "
              "reduces what an op gives, not what it needs on the way. Written as reductions and elementwise ops, the "
              "program splits along it.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$scale, I64Attr:$axis,
                       F64Attr:$epsilon);
  let linear = [LinearSum<[1]>];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 5); }
    static constexpr int64_t stepsPerElement = 8;
    int64_t getKernelSteps() {
      return ::partita::detail::defaultFlops(*this, stepsPerElement);
    }
  }];
}

def Graph_PoolOp : Graph_InferredOp<"pool", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::image(::partita::kernels::OpFacts::engine(false), "
               "1, true)";
  let summary = "Maximum or average over windows of the spatial dims";
  let description = [{
    `kind` is max or average; for average, `count_padding` says whether padding counts
    in the divisor. `pads` as in conv, already including what ceil_mode adds.
  }];
  let arguments = (ins Graph_Tensor:$input, Graph_PoolKindAttr:$kind,
                       DenseI64ArrayAttr:$window,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads,
                       DefaultValuedAttr<BoolAttr, "false">:$count_padding);
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    ::mlir::Value rewriteForSplit(::mlir::OpBuilder &builder,
                                  const ::partita::Strategy &strategy);
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_MaxPoolOp : Graph_InferredOp<"max_pool", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "The largest element of each window, and which of the window it is";
  let description = [{
    `taps` counts the elements of a window row by row, those outside of the image too,
    which are the least number of the type. Of equal elements the first is taken, of NaNs
    the last. `pads` as in conv. The place of the element in the operand follows from the
    window's place and the tap, so that the op does not know where its rank is. A tap of
    a window of at most 128 elements is an i8, of larger ones an i32.

    Windows whose taps are not wanted are those of `graph.pool`.
  }];
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$window,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads);
  let results = (outs Graph_Tensor:$largest, Graph_Tensor:$taps);
  let elementType = [{ {::mlir::getElementTypeOrSelf(operands[0].getType()),
                        ::partita::graph::detail::tapType(context,
                                                          adaptor.getWindow())} }];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_MaxPoolBackwardOp : Graph_ShapedOp<"max_pool_backward",
                                              [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::graph::detail::maxPoolBackwardFacts(*this)";
  let summary = "Gradient of a maximum over windows by its operand";
  let description = [{
    Of the max_pool with these attributes whose operand has the shape given, whose second
    result is `taps`, and whose first result has the cotangent [N, C, positions…]. An
    element is the sum of the cotangents of the windows whose tap it is, in the order of
    the windows; zero where there is none. A window without a number above the least of
    the type names its first tap, which may lie outside and then gives to nobody. Of `pads`
    only the low ones count:

    ```mlir
    %g = graph.max_pool_backward %cotangent, %taps {window = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>}
         : (tensor<16x64x56x56xf32>, tensor<16x64x56x56xi8>) -> tensor<16x64x112x112xf32>
    ```
  }] # proof;
  let whole = "The place of an element modulo the stride, which says which windows it is "
              "in, as in conv_transpose. Nothing is lost by it: an element looks at its "
              "few windows alone, and batch, channels and groups of places split.";
  let arguments = (ins Graph_Tensor:$cotangent, Graph_Tensor:$taps,
                       DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$strides,
                       DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads);
  let linear = [LinearSum<[0]>];
  let hasVerifier = 1;
  let extraClassDeclaration = shaped # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_REDUCTION
