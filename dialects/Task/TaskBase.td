//===- TaskBase.td - The task dialect, its attribute and type -*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_TASK_TASKBASE
#define PARTITA_DIALECTS_TASK_TASKBASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Task_Dialect : Dialect {
  let name = "task";
  let cppNamespace = "::partita::task_ir";
  let summary = "Who runs what when: programs, segments, transfers, schedules";
  let description = [{
    Level L4. A module holds *programs*, each run by ranks of its own, and *transfers*
    between them. A program holds functions of level L3, *segments* that call them on
    *buffers*, and *schedules* that say in which order a rank runs segments for
    micro-batches, and starts and waits for transfers. docs/schedule.md has the whole.

    ```mlir
    module attributes {task.micro_batches = 2 : i64} {
      task.program @first ranks [0, 1] attributes {dist.mesh = #mesh} {
        task.buffer @x slots 2 input "x" in #x : tensor<4x8xf32>
        task.buffer @h slots 2 in #h : tensor<4x4xf32>
        func.func @f(%x: …) -> … { … }
        task.segment @forward calls @f from [@x] to [@h]
        task.schedule {
          task.run @forward 0 start [@act 0]
          task.run @forward 1 start [@act 1]
          task.run wait [@act 0, @act 1]
        }
      }
      task.program @last ranks [2] … { … }
      task.transfer @act from @first::@h to @last::@h
    }
    ```
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

def Task_FlightAttr : AttrDef<Task_Dialect, "Flight"> {
  let mnemonic = "flight";
  let summary = "A transfer of one micro-batch";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$transfer, "int64_t":$microBatch);
  let assemblyFormat = "`<` $transfer `,` $microBatch `>`";
}
def Task_Flights : TypedArrayAttrBase<Task_FlightAttr, "transfers of micro-batches">;
/// Values as in partita::Space.
def Task_Space : I64EnumAttr<"Region", "Where a value lies", [
    I64EnumAttrCase<"Device", 0, "device">, I64EnumAttrCase<"Io", 3, "io">,
    I64EnumAttrCase<"Host", 4, "host">]> {
  let cppNamespace = "::partita::task_ir";
}

def Task_Symbols : TypedArrayAttrBase<FlatSymbolRefAttr, "symbols">;

def Task_HandleType : TypeDef<Task_Dialect, "Handle"> {
  let mnemonic = "handle";
  let summary = "A communication in flight that gives tensors";
  let parameters = (ins ArrayRefParameter<"::mlir::Type">:$tensors);
  let assemblyFormat = "`<` $tensors `>`";
  let genVerifyDecl = 1;
}

#endif // PARTITA_DIALECTS_TASK_TASKBASE
