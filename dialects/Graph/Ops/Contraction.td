//===- Contraction.td - Sums of products --------------------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION
#define PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION

include "dialects/Graph/GraphBase.td"

/// Element type of the results of ops with the attribute `sums`.
defvar sumType = [{
  adaptor.getSums() ? ::mlir::Type(*adaptor.getSums())
                    : ::mlir::getElementTypeOrSelf(operands[0].getType()) }];

def Graph_ContractOp : Graph_InferredOp<"contract", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::contractFacts(*this)";
  let summary = "Sum of products by an einsum-like equation";
  let description = [{
    Matrix multiplication in every form that exporters write it, transposed, batched or
    broadcast, is one op whose rule is its attribute:

    ```mlir
    %y = graph.contract %x, %w {equation = #graph.equation<"b s k, k n -> b s n">}
         : (tensor<2x12x64xf32>, tensor<64x192xf32>) -> tensor<2x12x192xf32>
    ```

    Products of 8-bit integers, signed or not, are summed in the type that `sums` says:

    ```mlir
    %y = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">, sums = i32}
         : (tensor<128x64xui8>, tensor<64x192xi8>) -> tensor<128x192xi32>
    ```
  }];
  let arguments = (ins Graph_Tensor:$lhs, Graph_Tensor:$rhs, Graph_EquationAttr:$equation,
                       OptionalAttr<TypeAttrOf<I32>>:$sums);
  let linear = [LinearSum<[0]>, LinearSum<[1]>];
  let elementType = sumType;
  let hasVerifier = 1;
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 2); }
  }];
}

/// Rows of a product of few bits are not rounded.
def IfExactRows : Condition<"!roundsRows()">;

def Graph_ContractBlocksOp : Graph_InferredOp<"contract_blocks"> {
  let kernel = "::partita::kernels::OpFacts::engine(false, false, roundsRows())";
  let summary = "Product with a matrix of 4-bit numbers in scaled blocks";
  let description = [{
    The matrix [n, k] has numbers q from 0 to 15, two in a byte. Each block of a column's
    summands has a scale and a zero point, 8 where there are no `zeros`:

        y[…, n] = Σ_k x[…, k] · (q[n, k] − zeros[k / block, n]) · scales[k / block, n]

    ```mlir
    %y = graph.contract_blocks %x, %w, %s {block = 32}
         : (tensor<1x128x2048xf32>, tensor<5632x64x16xui8>, tensor<64x5632xf32>)
         -> tensor<1x128x5632xf32>
    ```

    `weight` [n, blocks, block / 2] is what ONNX Runtime's MatMulNBits reads: of two numbers
    in a byte the first is in the low half. A rank's summands are whole blocks, which have
    their bytes, scales and zero points with them.

    `accuracy_level` is ONNX Runtime's: 4 permits rows of 8 bits. Then each block of a row
    is rounded first: to whole steps of a 127th of the block's largest magnitude, halves to
    the even one. Blocks below 2⁻¹⁰⁰ are 0. All other levels (0: none is stated) are f32.
  }] # proof;
  let whole = "The elements of a block: they share a scale, and two of them a byte. Blocks "
              "and columns split.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$weight, Graph_Tensor:$scales,
                       Optional<Graph_Tensor>:$zeros, I64Attr:$block,
                       DefaultValuedAttr<I64Attr, "0">:$accuracy_level);
  let linear = [LinearSum<[0], [IfExactRows]>, LinearSum<[2]>];
  let hasVerifier = 1;
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    bool roundsRows() { return getAccuracyLevel() == 4; }
  }];
}

def Graph_ConvOp : Graph_InferredOp<"conv", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::image(::partita::kernels::OpFacts::engine(true, true), "
               "1, true)";
  let summary = "Convolution of [N, C, spatial…] by [O, C/group, kernel…]";
  let description = [{
    `pads` holds the low pads of every spatial dim, then the high ones; they may be
    negative. An optional bias [O] is added. Products of 8-bit integers are summed in the
    type that `sums` says, without a bias.
  }] # proof;
  let whole = "The kernel's dims: the taps of each rank would meet the input at a shift of its "
              "own, and all ranks run one program. Nothing is lost by it: a tap is "
              "multiplied once per position and channel, and those loops split.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$filter,
                       Optional<Graph_Tensor>:$bias,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads, DefaultValuedAttr<I64Attr, "1">:$group,
                       OptionalAttr<TypeAttrOf<I32>>:$sums);
  let elementType = sumType;
  let hasVerifier = 1;
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_ConvTransposeOp : Graph_InferredOp<"conv_transpose", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::image(::partita::kernels::OpFacts::engine(false), "
               "1, true)";
  let summary = "Transposed convolution of [N, C, spatial…] by [C, O/group, kernel…]";
  let description = [{
    `pads` cut the result, the low ones of every spatial dim first; `output_padding` adds
    to its high end. An optional bias [O] is added.
  }] # proof;
  let whole = "The kernel's dims, and the place of a position modulo the stride, which says "
              "which taps it has: the taps of each rank would meet the input at a shift of "
              "its own, and all ranks run one program. Nothing is lost by it: a tap is "
              "multiplied once per element of the input and channel of the result, and "
              "those loops split.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$filter,
                       Optional<Graph_Tensor>:$bias,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads, DenseI64ArrayAttr:$output_padding,
                       DefaultValuedAttr<I64Attr, "1">:$group);
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_ConvBackwardFilterOp : Graph_ShapedOp<"conv_backward_filter", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::image(::partita::kernels::OpFacts::engine(false), "
               "3, false)";
  let summary = "Gradient of a convolution by its filter [O, C/group, kernel…]";
  let description = [{
    Of the convolution of `input` [N, C, spatial…] with these attributes whose result, a
    filter of the result's shape given, has the cotangent [N, O, positions…]. Batch and
    positions are summed; along the positions the input is read through windows and the
    cotangent is not:

    ```mlir
    %w = graph.conv_backward_filter %x, %g {strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>}
         : (tensor<16x64x56x56xf32>, tensor<16x128x28x28xf32>) -> tensor<128x64x3x3xf32>
    ```

    Of a transposed convolution the two change places: its result's cotangent is the
    input, its operand the cotangent.
  }] # proof;
  let whole = "The kernel's dims: the taps of each rank would meet the input at a shift of its "
              "own, and all ranks run one program. Nothing is lost by it: a tap is "
              "multiplied once per position and channel, and those loops split.";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$cotangent,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads, DefaultValuedAttr<I64Attr, "1">:$group);
  let linear = [LinearSum<[0]>, LinearSum<[1]>];
  let extraClassDeclaration = shaped # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION
