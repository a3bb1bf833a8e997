//===- Control.td - Functions that run several times, or perhaps -*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_OPS_CONTROL
#define PARTITA_DIALECTS_GRAPH_OPS_CONTROL

include "dialects/Graph/GraphBase.td"
include "mlir/IR/SymbolInterfaces.td"

/// Runs functions of the module, which are private. What the ops of these functions need
/// of sharding follows from the ops themselves: see docs/regions.md.
class Graph_CallOp<string mnemonic, list<Trait> traits = []>
    : Op<Graph_Dialect, mnemonic,
         !listconcat([Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>], traits)>;

def Graph_RepeatOp : Graph_CallOp<"repeat", [
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<CallingOpInterface,
                              ["getCallTrips", "getNumCarried", "operandHasRows",
                               "resultHasRows"]>]> {
  let summary = "A function that runs again and again on its own results";
  let description = [{
    The body's arguments are what is *carried* from trip to trip, one row of each *scanned*
    operand, and the operands that all trips share; its results are what is carried on, and
    one row of each further result. Rows are along a first dim of as many as there are
    trips.

    ```mlir
    func.func private @step(%h: tensor<2x8xf32>, %x: tensor<2x8xf32>)
        -> (tensor<2x8xf32>, tensor<2x8xf32>) { … }
    %last, %all = graph.repeat @step trips 16 carried(%h) scanned(%x)
        : (tensor<2x8xf32>, tensor<16x2x8xf32>) -> (tensor<2x8xf32>, tensor<16x2x8xf32>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$body, I64Attr:$trips,
                       Variadic<Graph_Tensor>:$carried, Variadic<Graph_Tensor>:$scanned,
                       Variadic<Graph_Tensor>:$shared);
  let results = (outs Variadic<Graph_Tensor>:$results);
  let assemblyFormat = "$body `trips` $trips (`carried` `(` $carried^ `)`)? "
                       "(`scanned` `(` $scanned^ `)`)? (`with` `(` $shared^ `)`)? "
                       "attr-dict `:` functional-type(operands, results)";
}

def Graph_IfOp : Graph_CallOp<"if", [
    DeclareOpInterfaceMethods<CallingOpInterface, ["getArgumentOf"]>]> {
  let summary = "One of two functions, by a bool";
  let description = [{
    Both have the same arguments and results. The bool is whole on every rank, so that all
    run the same one.

    ```mlir
    %y = graph.if %c then @f else @g(%x) : (tensor<i1>, tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let arguments = (ins Graph_Tensor:$condition, FlatSymbolRefAttr:$then,
                       FlatSymbolRefAttr:$otherwise, Variadic<Graph_Tensor>:$inputs);
  let results = (outs Variadic<Graph_Tensor>:$results);
  let assemblyFormat = "$condition `then` $then `else` $otherwise `(` $inputs `)` "
                       "attr-dict `:` functional-type(operands, results)";
}

def Graph_GradientOp : Op<Graph_Dialect, "gradient",
    [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Derivatives of what a function gives";
  let description = [{
    Runs nothing: `--partita-expand-gradients` replaces it by the function's ops and their
    derivatives. The function is private and has one result; of its sum there is one
    derivative in each of the first operands, as many as there are results.

    ```mlir
    func.func private @f(%x: tensor<2x3xf32>, %z: tensor<3xf32>) -> tensor<2x3xf32> { … }
    %dx = graph.gradient @f(%x, %z)
        : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$of, Variadic<Graph_Tensor>:$inputs);
  let results = (outs Variadic<Graph_Tensor>:$results);
  let assemblyFormat = "$of `(` $inputs `)` attr-dict `:` functional-type(operands, results)";
}

#endif // PARTITA_DIALECTS_GRAPH_OPS_CONTROL
