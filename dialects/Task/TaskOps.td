//===- TaskOps.td - Programs, segments, transfers, schedules -*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_TASK_TASKOPS
#define PARTITA_DIALECTS_TASK_TASKOPS

include "dialects/Dist/DistBase.td"
include "dialects/Task/TaskBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Task_Op<string mnemonic, list<Trait> traits = []>
    : Op<Task_Dialect, mnemonic, traits>;

def Task_ProgramOp
    : Task_Op<"program", [Symbol, SymbolTable, IsolatedFromAbove, SingleBlock,
                          NoTerminator, HasParent<"::mlir::ModuleOp">]> {
  let summary = "What a set of ranks runs";
  let description = [{
    `ranks` are those of the run, by place in the mesh (`dist.mesh`). Programs share no
    ranks. Several pipeline stages on the same ranks are segments of one program.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$ranks);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `ranks` $ranks attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Task_BufferOp : Task_Op<"buffer", [Symbol, HasParent<"ProgramOp">]> {
  let summary = "A value that segments or transfers share";
  let description = [{
    One rank's part of a tensor in a layout, `slots` times: micro-batch m is in slot m mod
    slots. `input` and `output` bind a tensor of the request. With one slot it is for all
    micro-batches, else it has the micro-batches as a dim before the others.

    A `state` lasts from one request to the next. It has one place, is zero before the
    first request, or what the weight named by `init` is, and is read and written in the
    order in which the program lists its segments. `space` is where another buffer lies:
    `io` is memory that nothing else shares, `host` that of the device's host.

    ```mlir
    task.buffer @cache state "cache" in #l : tensor<1x64x8xf32>
    task.buffer @w state "w" init "encoder.weight" in #m : tensor<8x8xf32>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       DefaultValuedAttr<I64Attr, "1">:$slots,
                       OptionalAttr<StrAttr>:$input, OptionalAttr<StrAttr>:$output,
                       OptionalAttr<StrAttr>:$state, OptionalAttr<StrAttr>:$init,
                       OptionalAttr<Task_Space>:$space,
                       Dist_LayoutAttr:$layout, TypeAttrOf<AnyRankedTensor>:$type);
  let assemblyFormat = "$sym_name (`slots` $slots^)? (`input` $input^)? "
                       "(`output` $output^)? (`state` $state^)? (`init` $init^)? "
                       "(`space` $space^)? `in` $layout attr-dict `:` $type";
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::StringAttr":$name, "::mlir::IntegerAttr":$slots,
                                 "::mlir::StringAttr":$input, "::mlir::StringAttr":$output,
                                 "::partita::dist::LayoutAttr":$layout,
                                 "::mlir::TypeAttr":$type), [{
    build($_builder, $_state, name, slots, input, output, /*state=*/{}, /*init=*/{},
          /*space=*/{}, layout, type);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() {
      return ::llvm::cast<::mlir::RankedTensorType>(getType());
    }
  }];
}

def Task_SegmentOp
    : Task_Op<"segment", [Symbol, HasParent<"ProgramOp">,
                          DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A part of a program that runs for a micro-batch";
  let description = [{
    Calls a function on buffers. It runs once for every micro-batch, or `once` in a
    request, then with buffers of one slot. A buffer that is read and written is summed
    into over the micro-batches, if a segment that runs once has filled it before.

    With `if` it does nothing where that buffer, a bool that is the same on all ranks, is
    false. What it writes are states, or buffers that it reads as well: they keep what
    they hold.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$once,
                       OptionalAttr<FlatSymbolRefAttr>:$condition,
                       FlatSymbolRefAttr:$function, Task_Symbols:$reads,
                       Task_Symbols:$writes);
  let assemblyFormat =
      "$sym_name (`once` $once^)? (`if` $condition^)? `calls` $function "
      "`from` $reads `to` $writes attr-dict";
  let builders = [OpBuilder<(ins "::mlir::StringAttr":$name, "::mlir::UnitAttr":$once,
                                 "::mlir::FlatSymbolRefAttr":$function,
                                 "::mlir::ArrayAttr":$reads,
                                 "::mlir::ArrayAttr":$writes), [{
    build($_builder, $_state, name, once, /*condition=*/{}, function, reads, writes);
  }]>];
  let extraClassDeclaration = [{
    ::mlir::func::FuncOp callee();
  }];
}

def Task_TransferOp
    : Task_Op<"transfer", [Symbol, HasParent<"::mlir::ModuleOp">,
                           DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A tensor's way from a buffer of one program to one of another";
  let description = [{
    Meshes and layouts may differ; which rank sends what to whom follows from them. It
    happens for every micro-batch, or `once` in a request between buffers of one slot. Both
    ends start it and wait for it; the receiver says by its start that the slot is free.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$once, SymbolRefAttr:$source,
                       SymbolRefAttr:$target);
  let assemblyFormat =
      "$sym_name (`once` $once^)? `from` $source `to` $target attr-dict";
}

def Task_ScheduleOp
    : Task_Op<"schedule", [HasParent<"ProgramOp">, SingleBlock, NoTerminator,
                           NoRegionArguments]> {
  let summary = "What a rank does, entry by entry";
  let description = [{
    Of the ranks at these places of the program's mesh, or of all.
  }];
  let arguments = (ins OptionalAttr<DenseI64ArrayAttr>:$ranks);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "(`ranks` $ranks^)? attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Task_RunOp : Task_Op<"run", [HasParent<"ScheduleOp">,
                                 DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "An entry: waits, a segment for a micro-batch, starts";
  let arguments = (ins OptionalAttr<FlatSymbolRefAttr>:$segment,
                       DefaultValuedAttr<I64Attr, "0">:$micro_batch,
                       OptionalAttr<Task_Flights>:$waits,
                       OptionalAttr<Task_Flights>:$starts);
  let assemblyFormat = "($segment^ $micro_batch)? (`wait` custom<Flights>($waits)^)? "
                       "(`start` custom<Flights>($starts)^)? attr-dict";
}

def Task_StartOp : Task_Op<"start", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "A communication that goes on while others run";
  let description = [{
    Holds one op of `comm` that talks to other ranks, or a `task.move`, and gives a handle
    that exactly one `task.wait` in the same block takes. Or it holds a *bucket*: several
    all-reduces, reduce-scatters or all-gathers in one group and with one reduction, which
    become one call.

    ```mlir
    %h = task.start : !task.handle<tensor<8x6xf32>> {
      %0 = comm.all_reduce %x from … to … : (tensor<8x6xf32>) -> tensor<8x6xf32>
      task.yield %0 : tensor<8x6xf32>
    }
    …
    %y = task.wait %h : !task.handle<tensor<8x6xf32>> -> tensor<8x6xf32>
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Task_HandleType:$handle);
  let assemblyFormat = "`:` type($handle) attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The ops that communicate, one for each tensor.
    auto communications() { return getBody().front().without_terminator(); }
  }];
}

def Task_YieldOp : Task_Op<"yield", [Pure, Terminator, HasParent<"StartOp">]> {
  let summary = "What a communication gives";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "$values attr-dict `:` type($values)";
}

def Task_WaitOp : Task_Op<"wait", [NoMemoryEffect]> {
  let summary = "What a communication in flight gives, when it is over";
  let arguments = (ins Task_HandleType:$handle);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$handle attr-dict `:` type($handle) `->` type($results)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Inside functions
//===----------------------------------------------------------------------===//

def Task_RepeatOp
    : Task_Op<"repeat", [AttrSizedOperandSegments,
                         DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A function that runs again and again on its own results";
  let description = [{
    A loop of the task table: its tasks stand there once. The body's arguments are what is
    *carried* from trip to trip, one row of each *scanned* operand, and the operands that
    all trips share; its results are what is carried on, and one row of each further
    result. Rows are along a first dim of as many as there are trips, which is whole on
    every rank.

    ```mlir
    %last, %all = task.repeat @step trips 16 carried(%h) scanned(%x) with(%w)
        : (tensor<2x8xf32>, tensor<16x2x8xf32>, tensor<8x8xf32>)
        -> (tensor<2x8xf32>, tensor<16x2x8xf32>)
    ```
    With `count`, an integer that is the same on all ranks and computed before, it runs as
    often as that says, at most `trips` times, and then nothing but carried values comes
    out.
  }];
  let arguments = (ins FlatSymbolRefAttr:$body, I64Attr:$trips,
                       Optional<AnyRankedTensor>:$count,
                       Variadic<AnyRankedTensor>:$carried,
                       Variadic<AnyRankedTensor>:$scanned,
                       Variadic<AnyRankedTensor>:$shared);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat =
      "$body `trips` $trips (`count` $count^)? (`carried` `(` $carried^ `)`)? "
      "(`scanned` `(` $scanned^ `)`)? (`with` `(` $shared^ `)`)? attr-dict "
      "`:` functional-type(operands, results)";
  let extraClassDeclaration = [{ ::mlir::func::FuncOp callee(); }];
}

def Task_IfOp : Task_Op<"if", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "One of two functions, by a bool that is the same on all ranks";
  let description = [{
    Without `else` the first operands are the results where the bool is false.

    ```mlir
    %y = task.if %c then @f else @g(%x) : (tensor<i1>, tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$condition, FlatSymbolRefAttr:$then,
                       OptionalAttr<FlatSymbolRefAttr>:$otherwise,
                       Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$condition `then` $then (`else` $otherwise^)? `(` $inputs `)` "
                       "attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = [{
    ::mlir::func::FuncOp thenCallee();
    /// Null: the first operands.
    ::mlir::func::FuncOp elseCallee();
  }];
}

def Task_MoveOp : Task_Op<"move", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "A copy to another region of the rank's memory";
  let description = [{
    May be started and waited for as a communication is.

    ```mlir
    %h = task.start : !task.handle<tensor<8xf32>> {
      %1 = task.move %0 to host : tensor<8xf32>
      task.yield %1 : tensor<8xf32>
    }
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, Task_Space:$space);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `to` $space attr-dict `:` type($input)";
}

def Task_UpdateOp : Task_Op<"update", [Pure, AllTypesMatch<["target", "result"]>]> {
  let summary = "The target with some rows replaced, from a computed place on";
  let description = [{
    Along a dim that is whole on every rank. `at` is an integer that is the same on all
    ranks; rows that would leave the target end the run. Where the target is a state, or
    carried, and nothing reads it later, only the rows are written.

    ```mlir
    %1 = task.update %rows into %cache at %n along 1 in #l
        : tensor<1x1x8xf32>, tensor<1x64x8xf32>, tensor<i64>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$rows, AnyRankedTensor:$target,
                       AnyRankedTensor:$at, I64Attr:$dim, Dist_LayoutAttr:$layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$rows `into` $target `at` $at `along` $dim `in` $layout attr-dict "
                       "`:` type($rows) `,` type($target) `,` type($at)";
  let hasVerifier = 1;
}

def Task_KeepOp : Task_Op<"keep", [Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "The first rows of a tensor, as many as an integer says; zeros after them";
  let description = [{
    Along a dim that is whole on every rank. `count` is an integer from 0 to the dim's
    size, which another one ends the run.

    ```mlir
    %1 = task.keep %0 count %n along 0 in #l : tensor<16x8xf32>, tensor<i64>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$count, I64Attr:$dim,
                       Dist_LayoutAttr:$layout);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `count` $count `along` $dim `in` $layout attr-dict "
                       "`:` type($input) `,` type($count)";
  let hasVerifier = 1;
}

#endif // PARTITA_DIALECTS_TASK_TASKOPS
