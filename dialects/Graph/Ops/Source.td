//===- Source.td - Where values come from -------------------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_SOURCE
#define PARTITA_DIALECTS_GRAPH_OPS_SOURCE

include "dialects/Graph/GraphBase.td"

def Graph_ConstantOp : Graph_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>]> {
  let summary = "A small or uniform tensor known at compile time";
  let description = [{
    Large tensors are weights. A uniform tensor of any size is a splat.
  }];
  let arguments = (ins ElementsAttr:$value);
  let assemblyFormat = "attr-dict $value";
  let hasFolder = 1;
  let extraClassDeclaration = common # [{
    ::partita::Expected<::partita::ShardingRule> inferShardingRule();
    int getPropagationPriority() { return 0; }
    int64_t getFlops() { return 0; }
    ::mlir::Operation *materializeLocal(::mlir::OpBuilder &builder,
                                        ::mlir::ValueRange operands,
                                        ::mlir::TypeRange results,
                                        const ::partita::Strategy &strategy);
  }];
  let results = (outs Graph_Tensor:$result);
  let builders = [OpBuilder<(ins "::mlir::ElementsAttr":$value), [{
    build($_builder, $_state, value.getType(), value);
  }]>];
}

def Graph_WeightOp : Graph_Op<"weight"> {
  let summary = "A tensor of the model's files, by name";
  let description = [{
    The bytes stay in the files; each rank maps the slices of its layout. A weight is
    loaded, not computed: asking for it in several layouts costs memory, not
    communication.
  }];
  let arguments = (ins StrAttr:$name);
  let assemblyFormat = "$name attr-dict `:` type($result)";
  let extraClassDeclaration = common # [{
    ::partita::Expected<::partita::ShardingRule> inferShardingRule();
    int getPropagationPriority() { return 0; }
    int64_t getFlops() { return 0; }
  }];
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_SOURCE
