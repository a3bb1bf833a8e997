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
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       DefaultValuedAttr<I64Attr, "1">:$slots,
                       OptionalAttr<StrAttr>:$input, OptionalAttr<StrAttr>:$output,
                       Dist_LayoutAttr:$layout, TypeAttrOf<AnyRankedTensor>:$type);
  let assemblyFormat = "$sym_name (`slots` $slots^)? (`input` $input^)? "
                       "(`output` $output^)? `in` $layout attr-dict `:` $type";
  let hasVerifier = 1;
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
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, UnitAttr:$once,
                       FlatSymbolRefAttr:$function, Task_Symbols:$reads,
                       Task_Symbols:$writes);
  let assemblyFormat =
      "$sym_name (`once` $once^)? `calls` $function `from` $reads `to` $writes attr-dict";
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
    Holds one op of `comm` that talks to other ranks, and gives a handle that exactly one
    `task.wait` in the same block takes.

    ```mlir
    %h = task.start : !task.handle<tensor<8x6xf32>> {
      %0 = comm.all_reduce %x from … to … : (tensor<8x6xf32>) -> tensor<8x6xf32>
      task.yield %0 : tensor<8x6xf32>
    }
    …
    %y = task.wait %h : !task.handle<tensor<8x6xf32>>
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Task_HandleType:$handle);
  let assemblyFormat = "`:` type($handle) attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The op that communicates.
    ::mlir::Operation *communication() { return &getBody().front().front(); }
  }];
}

def Task_YieldOp : Task_Op<"yield", [Pure, Terminator, HasParent<"StartOp">]> {
  let summary = "What a communication gives";
  let arguments = (ins AnyRankedTensor:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Task_WaitOp : Task_Op<"wait", [NoMemoryEffect]> {
  let summary = "What a communication in flight gives, when it is over";
  let arguments = (ins Task_HandleType:$handle);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$handle attr-dict `:` type($handle) `->` type($result)";
  let hasVerifier = 1;
}

#endif // PARTITA_DIALECTS_TASK_TASKOPS
