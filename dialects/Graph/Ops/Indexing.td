//===- Indexing.td - Operands that say where elements go ------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_INDEXING
#define PARTITA_DIALECTS_GRAPH_OPS_INDEXING

include "dialects/Graph/GraphBase.td"

/// Operand 1 holds indices: garbage among them would name elements that are not there.
class Graph_IndexedOp<string mnemonic>
    : Graph_InferredOp<mnemonic, [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  code indexed = inferred # [{
    int64_t getFlops() { return 0; }
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 1 ? std::optional(::partita::ReduceKind::Sum) : std::nullopt;
    }
  }];
  let extraClassDeclaration = indexed;
}

def Graph_GatherElementsOp : Graph_IndexedOp<"gather_elements"> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "result[i, j] = data[indices[i, j], j], with the lookup along `axis`";
  let description = [{
    `indices` has the result's shape; its other dims are at most as long as those of
    `data`. Negative indices count from the end. The looked-up dim may be split as that of
    `graph.gather`: the result is a partial sum then, and `masked` is the form that one
    rank runs.
  }] # proof;
  let whole = "A dim of which the indices reach only the beginning has two lengths, and "
              "the blocks of the one are not those of the other: import cuts the data to "
              "that beginning first. The dim that is looked up in, for types that are only "
              "stored (f8, f4, i4 and less) and have no sum: a split lookup is a "
              "reduction over ranks.";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$indices, I64Attr:$axis,
                       UnitAttr:$masked);
  let linear = [LinearSum<[0]>, LinearMax<[0]>, LinearMin<[0]>, LinearProd<[0]>];
}

def Graph_ScatterElementsOp : Graph_IndexedOp<"scatter_elements"> {
  let kernel = "detail::scatterFacts(*this)";
  let summary = "data with data[indices[i, j], j] replaced by, or combined with, updates[i, j]";
  let description = [{
    Along `axis` the places are those in `indices`; negative ones count from the end.
    With `kind` what is there and every update of the place are combined (a sum: order
    does not matter but for rounding); without, the last update of a place stays.

    The dim written to may be split: each rank writes what falls into its block
    (`masked`: an index of -1 falls into none). With a kind, so may the updates: the
    result is partial then, and so must be the data of a sum or product, or every rank
    would count it; a maximum or minimum may see the data once more.
  }] # proof;
  let whole = "Without a kind, the dim of the updates: which update of a place is the last "
              "follows from their order over all ranks, and a rank sees its own. A dim of "
              "which the updates reach only the beginning has two lengths, and the blocks "
              "of the one are not those of the other: import scatters into that beginning "
              "and puts the rest behind it.";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$indices, Graph_Tensor:$updates,
                       I64Attr:$axis, OptionalAttr<Graph_ReduceKindAttr>:$kind,
                       UnitAttr:$masked);
  let extraClassDeclaration = indexed # [{ int64_t getKernelSteps(); }];
}

def Graph_SortOp : Graph_InferredOp<"sort", [DeclareOpInterfaceMethods<DifferentiableOpInterface>]> {
  let kernel = "detail::rowFacts(*this, getAxis())";
  let summary = "The first `count` elements in order, along `axis`, and where they stood";
  let description = [{
    Of equal elements the one with the lower index comes first; a NaN is larger than every
    number. Both results have the operand's shape, with zeros after the first `count`;
    `indices` are i64.

    ```mlir
    %values, %indices = graph.sort %x {axis = 1, count = 3, descending = true}
        : (tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xi64>)
    ```
  }] # proof;
  let whole = "The axis: the place of an element depends on all others. The first few of a "
              "long axis are the first of the first of its groups: import writes that, and "
              "the groups split.";
  let arguments = (ins Graph_Tensor:$input, I64Attr:$axis, I64Attr:$count,
                       BoolAttr:$descending);
  let results = (outs Graph_Tensor:$sorted, Graph_Tensor:$indices);
  let elementType = [{ {::mlir::getElementTypeOrSelf(operands[0].getType()),
                        ::mlir::IntegerType::get(context, 64)} }];
  let extraClassDeclaration = inferred # [{ int64_t getKernelSteps(); }];
}

def Graph_FloatTensor : StaticShapeTensorOf<[AnyFloat]>;

def Graph_SuppressOp : Graph_InferredOp<"suppress"> {
  let kernel = "detail::suppressFacts()";
  let summary = "Of each batch and class the boxes that no better one overlaps, best first";
  let description = [{
    `scores` and `candidates` are [b, c, n], `boxes` [b, n, 4]: two opposite corners, or,
    with `centers`, center and size. From the highest score down (of equal ones the lower
    place first; a NaN is no candidate), a candidate is kept if its intersection with each
    box that is kept is at most `threshold` of their union; boxes without area overlap
    none. The result is [b, c, n], i64: the places of the first `most` that are kept, in
    their order, then -1.

    ```mlir
    %kept = graph.suppress %scores, %candidates, %boxes, %threshold {most = 100}
        : (tensor<1x3x80xf32>, tensor<1x3x80xi1>, tensor<1x80x4xf32>, tensor<f32>)
        -> tensor<1x3x80xi64>
    ```
  }] # proof;
  let whole = "The boxes: whether one is kept depends on all better ones. Batches and "
              "classes split.";
  let arguments = (ins Graph_FloatTensor:$scores, StaticShapeTensorOf<[I1]>:$candidates,
                       Graph_FloatTensor:$boxes, Graph_FloatTensor:$threshold,
                       I64Attr:$most, UnitAttr:$centers);
  let elementType = [{ ::mlir::IntegerType::get(context, 64) }];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    int64_t getKernelSteps();
  }];
}

def Graph_RealTensor : StaticShapeTensorOf<[F32, F64]>;
def Graph_PlacesTensor : StaticShapeTensorOf<[I32]>;

def Graph_TreesOp : Graph_InferredOp<"trees"> {
  let kernel = "detail::treesFacts(*this)";
  let summary = "What the leaf weighs to which each tree leads each row";
  let description = [{
    `rows` are [r, f], features of each row. A tree is a row of [t, n] tables: node `i`
    leads to node `children[i]` where the row's feature `features[i]` is at most
    `splits[i]`, and to the node behind that where it is more. Where the feature is NaN,
    that is the node behind, but `children[i]` if `features[i]` is ~feature, a negative
    number. From node 0 on `depth` steps are taken; a leaf leads to itself (by an infinite
    split and ~0). The result is [t, r, k]: `weights` [t, n, k] of the node that is
    reached. A sum over the trees is a reduction of it, in the same kernel.

    ```mlir
    %y = graph.trees %x, %features, %splits, %children, %weights {depth = 3}
        : (tensor<50x4xf32>, tensor<9x15xi32>, tensor<9x15xf32>, tensor<9x15xi32>,
           tensor<9x15x1xf32>) -> tensor<9x50x1xf32>
    %sum = graph.reduce %y {axes = [0], keep_dims = false, kind = sum} …
    ```

    Places are those of import, which are in the tables.
  }] # proof;
  let whole = "Features and nodes: which of them a row asks for follows from the nodes "
              "before. Rows, trees and weights split.";
  let arguments = (ins Graph_RealTensor:$rows, Graph_PlacesTensor:$features,
                       Graph_RealTensor:$splits, Graph_PlacesTensor:$children,
                       Graph_RealTensor:$weights, I64Attr:$depth);
  let linear = [LinearSum<[4]>, LinearMax<[4]>, LinearMin<[4]>, LinearProd<[4]>];
  let extraClassDeclaration = inferred # [{
    int64_t getFlops();
    int64_t getKernelSteps();
    /// Leaves of weight 0 fill up the trees.
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand == 1 || operand == 3 ? std::optional(::partita::ReduceKind::Sum)
                                          : std::nullopt;
    }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_INDEXING
