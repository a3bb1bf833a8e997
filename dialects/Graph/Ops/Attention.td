//===- Attention.td - Softmax between two products ----------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_ATTENTION
#define PARTITA_DIALECTS_GRAPH_OPS_ATTENTION

include "dialects/Graph/GraphBase.td"

/// Arguments that the op and its gradients have behind their tensors.
defvar attentionAttrs = (ins Variadic<Graph_Tensor>:$scored, Graph_PayloadAttr:$payload,
                             F64Attr:$scale,
                             DefaultValuedAttr<BoolAttr, "false">:$zero_for_nan);
def Graph_AttentionOp : Graph_InferredOp<"attention", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Attention)";
  let summary = "softmax(f(scale · q·kᵀ, …)) · v, and a maximum and a sum per row";
  let description = [{
    `q` is [outer…, queries, depth], `k` [outer…, keys, depth], `v` [outer…, keys, width].
    Outer dims of `k` and `v` may be 1 where those of `q` are not: a group of query heads
    reads one head of keys. The payload f makes a logit of the scaled score x and of the
    elements y, z, … of `scored`, which broadcast to [outer…, queries, keys]: masks,
    biases, positions, soft caps. Nothing of [queries, keys] need ever exist.

    ```mlir
    %y, %m, %s = graph.attention %q, %k, %v, %mask
        {payload = #graph.payload<"select(y, x, -1e999)">, scale = 0.125 : f64}
        : (tensor<2x12x128x64xf32>, tensor<2x12x128x64xf32>, tensor<2x12x128x64xf32>, tensor<128x128xi1>)
        -> (tensor<2x12x128x64xf32>, tensor<2x12x128xf32>, tensor<2x12x128xf32>)
    ```

    `largest` is the row's largest logit, `sum` the sum of exp(logit - largest), with 0 for
    a largest of -infinity; gradients compute weights from them again. Two numbers, not
    the logarithm of one: beside a mask of -3.4e38 the logarithm of the number of keys
    would be lost. Where the weights of a row are no numbers and `zero_for_nan` is said,
    they are 0.
  }] # proof;
  let whole = "Keys, because each query needs the maximum and the sum of its whole row of scores, "
              "and a rule reduces what an op gives, not what it needs on the way; and the size "
              "of a head, because scores are needed whole. Heads, batch and queries split.";
  let arguments = !con((ins Graph_Tensor:$q, Graph_Tensor:$k, Graph_Tensor:$v), attentionAttrs);
  let results = (outs Graph_Tensor:$output, Graph_Tensor:$largest, Graph_Tensor:$sum);
  let elementType = [{ {::mlir::getElementTypeOrSelf(operands[0].getType()),
                        ::partita::graph::detail::statisticType(operands[0].getType()),
                        ::partita::graph::detail::statisticType(operands[0].getType())} }];
  let hasVerifier = 1;
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    int64_t getKernelSteps();
  }];
}

class Graph_AttentionGradientOp<string mnemonic> : Graph_InferredOp<mnemonic> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Attention, "
               "::partita::kernels::OpRole::AttentionGradient, {})";
  let arguments = !con((ins Graph_Tensor:$q, Graph_Tensor:$k, Graph_Tensor:$v,
                            Graph_Tensor:$largest, Graph_Tensor:$sum,
                            Graph_Tensor:$cotangent, Graph_Tensor:$delta),
                       attentionAttrs);
  let hasVerifier = 1;
  code gradient = inferred # [{
    int64_t getFlops();
    int64_t getKernelSteps();
  }];
}

def Graph_AttentionGradQueryOp : Graph_AttentionGradientOp<"attention_grad_query"> {
  let summary = "Gradient of an attention by its queries";
  let description = [{
    Of an attention with these operands, row statistics and attributes. `cotangent` is
    that of its output; `delta` is the sum of cotangent · output over each row. With the
    weights P, computed again, and their cotangent dP = cotangent·vᵀ, it is
    scale · Σ over keys of P·(dP - delta)·f′ · k. Keys are summed, so they split:

    ```mlir
    %dq = graph.attention_grad_query %q, %k, %v, %m, %s, %dy, %delta, %mask
        {payload = #graph.payload<"select(y, x, -1e999)">, scale = 0.125 : f64} : …
    ```
  }] # proof;
  let whole = "The sizes of a head: scores, and the cotangents of weights, are needed whole. "
              "Heads, batch, queries and keys split.";
  let linear = [LinearSum<[5, 6]>, LinearSum<[2, 6]>];
  let extraClassDeclaration = gradient;
}

def Graph_AttentionGradKeysOp : Graph_AttentionGradientOp<"attention_grad_keys"> {
  let summary = "Gradients of an attention by its keys and values";
  let description = [{
    Operands are those of `graph.attention_grad_query`. Results are the gradient of `k`,
    scale · Σ over queries of P·(dP - delta)·f′ · q, and of `v`, Σ of P·cotangent; both
    are summed over the query heads of a group. An op apart from that of the queries: a
    loop of a rule is summed in all results or in none, and queries are summed here.
  }] # proof;
  let whole = "The sizes of a head: scores, and the cotangents of weights, are needed whole. "
              "Heads, batch, queries and keys split.";
  let results = (outs Graph_Tensor:$key_gradient, Graph_Tensor:$value_gradient);
  let elementType = [{ {::mlir::getElementTypeOrSelf(operands[0].getType()),
                        ::mlir::getElementTypeOrSelf(operands[0].getType())} }];
  let linear = [LinearSum<[5, 6]>];
  let extraClassDeclaration = gradient # [{
    /// Rows that no rank holds have a sum of 1: a weight is divided by it.
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 4 ? std::optional(::partita::ReduceKind::Prod) : std::nullopt;
    }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_ATTENTION
