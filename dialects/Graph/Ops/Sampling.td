//===- Sampling.td - Pictures read between their elements -----*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_SAMPLING
#define PARTITA_DIALECTS_GRAPH_OPS_SAMPLING

include "dialects/Graph/GraphBase.td"

def IfAverage : Condition<"!getLargest()">;

def Graph_RoiAlignOp : Graph_InferredOp<"roi_align"> {
  let kernel = "::partita::kernels::OpFacts::of(::partita::kernels::OpKind::Indexed)";
  let summary = "Regions of pictures as so many bins each, by samples about one element apart";
  let description = [{
    `data` [pictures, channels, rows, columns]; `boxes` [regions, 4], f32 or f64: where
    a region begins (row, column) and how long it is (rows, columns), in elements of its
    picture, which `pictures` [regions] names. Result: [regions, channels, bins…].

    Along a dim a region is divided into `bins`, a bin into the least number of equal
    steps of at most one element; there is a sample in the middle of each step. A region
    of no or negative length has none. A sample more than one element outside is zero.
    Others are interpolated between the nearest elements; those in front of the first
    element or behind the last have its value. A bin is the average of its samples, zero
    without any; with `largest` the maximum of what its samples are added up from. This is
    ONNX's RoiAlign with a sampling_ratio of 0.

    How many samples there are depends on the data, so this is an op and no formula. Only
    the samples that may be inside are visited: at most 2·n + 8 per bin and dim of n
    elements, however long the region is.

    The pictures may be split: the result is then a sum, to which each rank contributes
    the regions of its pictures. `masked` is the form that one rank runs: a region whose
    picture is not in its block, -1 after `comm.local_index`, gives zero.
  }] # proof;
  let whole = "Rows and columns, of the picture and of the bins: where a sample lies follows "
              "from its region and from the number of its bin, and it is between elements that "
              "two ranks could have, so that each rank would visit all samples for a part of "
              "them. The four numbers of a region are one thing. Pictures, channels and "
              "regions split.";
  let arguments = (ins Graph_Tensor:$data, Graph_Tensor:$boxes, Graph_Tensor:$pictures,
                       DenseI64ArrayAttr:$bins,
                       DefaultValuedAttr<BoolAttr, "false">:$largest, UnitAttr:$masked);
  let linear = [LinearSum<[0], [IfAverage]>];
  let extraClassDeclaration = inferred # [{
    /// Of regions half as long as the pictures.
    int64_t getFlops();
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
    /// Garbage would name pictures that are not there, and regions of any size.
    std::optional<::partita::ReduceKind> getPaddingFill(unsigned operand) {
      return operand != 0 ? std::optional(::partita::ReduceKind::Sum) : std::nullopt;
    }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_SAMPLING
