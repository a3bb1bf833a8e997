//===- Contraction.td - Sums of products --------------------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION
#define PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION

include "dialects/Graph/GraphBase.td"

def Graph_ContractOp : Graph_InferredOp<"contract", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Sum of products by an einsum-like equation";
  let description = [{
    Matrix multiplication in every form that exporters write it, transposed, batched or
    broadcast, is one op whose rule is its attribute:

    ```mlir
    %y = graph.contract %x, %w {equation = #graph.equation<"b s k, k n -> b s n">}
         : (tensor<2x12x64xf32>, tensor<64x192xf32>) -> tensor<2x12x192xf32>
    ```
  }];
  let arguments = (ins Graph_Tensor:$lhs, Graph_Tensor:$rhs, Graph_EquationAttr:$equation);
  let linear = [LinearSum<[0]>, LinearSum<[1]>];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops() { return ::partita::detail::defaultFlops(*this, 2); }
  }];
}

def Graph_ConvOp : Graph_InferredOp<"conv", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Convolution of [N, C, spatial…] by [O, C/group, kernel…]";
  let description = [{
    `pads` holds the low pads of every spatial dim, then the high ones; they may be
    negative. An optional bias [O] is added.
  }];
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$filter,
                       Optional<Graph_Tensor>:$bias,
                       DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations,
                       DenseI64ArrayAttr:$pads, DefaultValuedAttr<I64Attr, "1">:$group);
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
}

def Graph_ConvTransposeOp : Graph_InferredOp<"conv_transpose", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let summary = "Transposed convolution of [N, C, spatial…] by [C, O/group, kernel…]";
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

#endif // PARTITA_DIALECTS_GRAPH_OPS_CONTRACTION
