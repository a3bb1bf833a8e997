// What cannot be run is named by program, entry, segment and micro-batch.
// RUN: partita-opt %s --split-input-file --verify-diagnostics --partita-verify-scheduled

#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
module attributes {task.micro_batches = 2 : i64} {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @x slots 2 input "x" in #l : tensor<4xf32>
    task.buffer @h slots 1 in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @forward calls @f from [@x] to [@h]
    task.schedule {
      task.run @forward 0 start [@t 0]
      task.run @forward 1 wait [@t 0] start [@t 1]
      task.run wait [@t 1]
    }
  }
  task.program @b ranks [1] attributes {dist.mesh = #mesh} {
    task.buffer @h slots 2 in #l : tensor<4xf32>
    task.buffer @y slots 2 output "y" in #l : tensor<4xf32>
    func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @last calls @g from [@h] to [@y]
    task.schedule {
      task.run start [@t 0, @t 1]
      task.run @last 0 wait [@t 0]
      task.run @last 1 wait [@t 1]
    }
  }
  task.transfer @t from @a::@h to @b::@h
}

// -----

#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
// expected-error @+1 {{the schedules cannot be run: program a, entry 1 (forward of micro-batch 1): buffer h is written while a transfer reads micro-batch 0 of it}}
module attributes {task.micro_batches = 2 : i64} {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @x slots 2 input "x" in #l : tensor<4xf32>
    task.buffer @h in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @forward calls @f from [@x] to [@h]
    task.schedule {
      task.run @forward 0 start [@t 0]
      task.run @forward 1 start [@t 1]
      task.run wait [@t 0, @t 1]
    }
  }
  task.program @b ranks [1] attributes {dist.mesh = #mesh} {
    task.buffer @h slots 2 in #l : tensor<4xf32>
    task.schedule {
      task.run start [@t 0, @t 1]
      task.run wait [@t 0, @t 1]
    }
  }
  task.transfer @t from @a::@h to @b::@h
}

// -----

#mesh = #dist.mesh<tp=2>
#p = #dist.layout<#mesh, [{4}] partial sum {tp}>
#l = #dist.layout<#mesh, [{4}]>
// expected-error @+1 {{program a: its ranks come to their collectives in different orders: 0 is first of micro-batch 0 on rank 0, second of micro-batch 0 on rank 1}}
module {
  task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    task.buffer @z output "z" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32> {dist.layout = #l}) -> (tensor<4xf32> {dist.layout = #l}) {
      %0 = comm.to_partial %x from <#mesh, [{4}]> to <#mesh, [{4}] partial sum {tp}> : (tensor<4xf32>) -> tensor<4xf32>
      %1 = comm.all_reduce %0 from <#mesh, [{4}] partial sum {tp}> to <#mesh, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
      return %1 : tensor<4xf32>
    }
    task.segment @first calls @f from [@x] to [@y]
    task.segment @second calls @f from [@x] to [@z]
    task.schedule ranks [0] {
      task.run @first 0
      task.run @second 0
    }
    task.schedule ranks [1] {
      task.run @second 0
      task.run @first 0
    }
  }
}

// -----

#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
// expected-error @+1 {{program a: segment forward does not run for micro-batch 0}}
module {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @forward calls @f from [@x] to [@y]
    task.schedule {
    }
  }
}

// -----

#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
module {
  // expected-note @+1 {{the other program}}
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.schedule {
    }
  }
  // expected-error @+1 {{names rank 0 of another program}}
  task.program @b ranks [0] attributes {dist.mesh = #mesh} {
    task.schedule {
    }
  }
}

// -----

#mesh = #dist.mesh<tp=2>
#l = #dist.layout<#mesh, [{4}]>
module {
  task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32> {dist.layout = #l}) -> (tensor<4xf32> {dist.layout = #l}) {
      %0 = comm.to_partial %x from <#mesh, [{4}]> to <#mesh, [{4}] partial sum {tp}> : (tensor<4xf32>) -> tensor<4xf32>
      // expected-error @+1 {{expected one wait for its handle, got 0}}
      %h = task.start : !task.handle<tensor<4xf32>> {
        %1 = comm.all_reduce %0 from <#mesh, [{4}] partial sum {tp}> to <#mesh, [{4}]> : (tensor<4xf32>) -> tensor<4xf32>
        task.yield %1 : tensor<4xf32>
      }
      return %x : tensor<4xf32>
    }
    task.segment @first calls @f from [@x] to [@y]
    task.schedule {
      task.run @first 0
    }
  }
}

// -----

// A function that runs itself has no end, as tasks.
#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
module {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      // expected-error @+1 {{runs @f, which does not come before @f}}
      %r = task.repeat @f trips 3 carried(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    task.segment @s calls @f from [@x] to [@y]
    task.schedule {
      task.run @s 0
    }
  }
}

// -----

// A body's layouts are those of its loop.
#mesh = #dist.mesh<tp=2>
#l = #dist.layout<#mesh, [{4}]>
module {
  task.program @a ranks [0, 1] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{8: tp}]>}) {
      return %x : tensor<4xf32>
    }
    // expected-note @+1 {{the value comes from here}}
    func.func @g(%x: tensor<4xf32> {dist.layout = #l}) -> (tensor<4xf32> {dist.layout = #l}) {
      // expected-error @+1 {{expected an operand in layout [{8: tp}], got layout [{4}]}}
      %r = task.repeat @f trips 3 carried(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32>
    }
    task.segment @s calls @g from [@x] to [@y]
    task.schedule {
      task.run @s 0
    }
  }
}

// -----

// What is skipped leaves its buffers as they are, so they must hold something.
#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
// expected-error @+1 {{program a: segment s may be skipped and writes buffer y, which it does not read}}
module {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @x input "x" in #l : tensor<4xf32>
    task.buffer @c input "c" in <#mesh, []> : tensor<i1>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @s once if @c calls @f from [@x] to [@y]
    task.schedule {
      task.run @s 0
    }
  }
}

// -----

#mesh = #dist.mesh<>
#l = #dist.layout<#mesh, [{4}]>
// expected-error @+1 {{program a, entry 1 (use): state w is read after update, which the program lists later}}
module {
  task.program @a ranks [0] attributes {dist.mesh = #mesh} {
    task.buffer @w state "w" in #l : tensor<4xf32>
    task.buffer @y output "y" in #l : tensor<4xf32>
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    task.segment @use once calls @f from [@w] to [@y]
    task.segment @update once calls @f from [@w] to [@w]
    task.schedule {
      task.run @update 0
      task.run @use 0
    }
  }
}

// -----

// expected-error @+1 {{task.sliced is a list of names, on the module}}
module attributes {task.sliced = 3 : i64} {
}
