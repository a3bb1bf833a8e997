// graph.attention and its gradients are kernels with no buffer of queries times keys. With
// eight heads of keys or more, both gradients are one kernel; with fewer, two, whose units
// are blocks of queries and of keys. They compute what the ops do, whatever the threads.
// RUN: split-file %s %t
// RUN: partita-opt %t/heads.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=HEADS
// RUN: partita-opt %t/groups.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=GROUPS
// RUN: partita-opt %t/few.mlir --partita-lower-kernels=print=1 -o /dev/null | FileCheck %s --check-prefix=FEW
// RUN: partita-opt %t/heads.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/heads.mlir --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %t/groups.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/groups.mlir --partita-check-bundle="threads=3 work-per-part=1" -o /dev/null
// RUN: partita-opt %t/few.mlir --partita-check-bundle -o /dev/null
// RUN: partita-opt %t/nothing.mlir --partita-check-bundle -o /dev/null
// RUN: sed s/f32/f64/g %t/heads.mlir | partita-opt --partita-check-bundle -o /dev/null

// Causal by positions: what hides keys is the condition, and the derivative is a choice.
// HEADS:      kernel @kernel_0
// HEADS-NEXT:   domain [8, 24, 40, 150, 150] row dims 4 scratch {{[0-9]+}} attention scale 2.0{{.*}} of %[[L:[0-9]+]] in blocks of {{[0-9]+}} by 150 hidden unless %[[H:[0-9]+]]
// HEADS-DAG:    %[[L]] = "select(
// HEADS-DAG:    %[[H]] = "
// HEADS-COUNT-3: store attention
// HEADS:        domain [8, 24, 40, 150, 150] row dims 4 scratch {{[0-9]+}} attention's gradient by queries keys scale 2.0{{.*}} of %{{[0-9]+}} in blocks of 60 by 128 hidden unless
// HEADS-COUNT-3: store attention
// HEADS-NOT:  {{^}}kernel @

// GROUPS:     attention's gradient by queries scale
// GROUPS:     attention's gradient by keys scale
// GROUPS-NOT: task copy

// Shapes without loops are the ops that attention stands for.
// FEW-NOT: attention

//--- heads.mlir
func.func @main(%q: tensor<8x150x24xf32>, %k: tensor<8x150x24xf32>, %v: tensor<8x150x40xf32>, %dy: tensor<8x150x40xf32>,
                %i: tensor<150x1xi64>, %j: tensor<1x150xi64>)
    -> (tensor<8x150x40xf32>, tensor<8x150x24xf32>, tensor<8x150x24xf32>, tensor<8x150x40xf32>) {
  %y, %m, %s = graph.attention %q, %k, %v, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e30)">, scale = 0.2 : f64}
      : (tensor<8x150x24xf32>, tensor<8x150x24xf32>, tensor<8x150x40xf32>, tensor<150x1xi64>, tensor<1x150xi64>)
      -> (tensor<8x150x40xf32>, tensor<8x150xf32>, tensor<8x150xf32>)
  %g = graph.mul %dy, %y : (tensor<8x150x40xf32>, tensor<8x150x40xf32>) -> tensor<8x150x40xf32>
  %delta = graph.reduce %g {kind = #graph.reduce<sum>, axes = array<i64: 2>} : (tensor<8x150x40xf32>) -> tensor<8x150xf32>
  %dq = graph.attention_grad_query %q, %k, %v, %m, %s, %dy, %delta, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e30)">, scale = 0.2 : f64}
      : (tensor<8x150x24xf32>, tensor<8x150x24xf32>, tensor<8x150x40xf32>, tensor<8x150xf32>, tensor<8x150xf32>, tensor<8x150x40xf32>, tensor<8x150xf32>, tensor<150x1xi64>, tensor<1x150xi64>)
      -> tensor<8x150x24xf32>
  %dk, %dv = graph.attention_grad_keys %q, %k, %v, %m, %s, %dy, %delta, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e30)">, scale = 0.2 : f64}
      : (tensor<8x150x24xf32>, tensor<8x150x24xf32>, tensor<8x150x40xf32>, tensor<8x150xf32>, tensor<8x150xf32>, tensor<8x150x40xf32>, tensor<8x150xf32>, tensor<150x1xi64>, tensor<1x150xi64>)
      -> (tensor<8x150x24xf32>, tensor<8x150x40xf32>)
  return %y, %dq, %dk, %dv : tensor<8x150x40xf32>, tensor<8x150x24xf32>, tensor<8x150x24xf32>, tensor<8x150x40xf32>
}

//--- groups.mlir
func.func @main(%q: tensor<2x2x3x70x16xf32>, %k: tensor<2x2x1x300x16xf32>, %v: tensor<2x2x1x300x16xf32>, %dy: tensor<2x2x3x70x16xf32>,
                %mask: tensor<2x1x1x1x300xf32>, %bias: tensor<2x3x70x300xf32>)
    -> (tensor<2x2x3x70x16xf32>, tensor<2x2x3x70x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>) {
  %y, %m, %s = graph.attention %q, %k, %v, %mask, %bias {payload = #graph.payload<"tanh(x) + z + y">, scale = 1.0 : f64}
      : (tensor<2x2x3x70x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x1x1x1x300xf32>, tensor<2x3x70x300xf32>)
      -> (tensor<2x2x3x70x16xf32>, tensor<2x2x3x70xf32>, tensor<2x2x3x70xf32>)
  %g = graph.mul %dy, %y : (tensor<2x2x3x70x16xf32>, tensor<2x2x3x70x16xf32>) -> tensor<2x2x3x70x16xf32>
  %delta = graph.reduce %g {kind = #graph.reduce<sum>, axes = array<i64: 4>} : (tensor<2x2x3x70x16xf32>) -> tensor<2x2x3x70xf32>
  %dq = graph.attention_grad_query %q, %k, %v, %m, %s, %dy, %delta, %mask, %bias {payload = #graph.payload<"tanh(x) + z + y">, scale = 1.0 : f64}
      : (tensor<2x2x3x70x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x3x70xf32>, tensor<2x2x3x70xf32>, tensor<2x2x3x70x16xf32>, tensor<2x2x3x70xf32>, tensor<2x1x1x1x300xf32>, tensor<2x3x70x300xf32>)
      -> tensor<2x2x3x70x16xf32>
  %dk, %dv = graph.attention_grad_keys %q, %k, %v, %m, %s, %dy, %delta, %mask, %bias {payload = #graph.payload<"tanh(x) + z + y">, scale = 1.0 : f64}
      : (tensor<2x2x3x70x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x3x70xf32>, tensor<2x2x3x70xf32>, tensor<2x2x3x70x16xf32>, tensor<2x2x3x70xf32>, tensor<2x1x1x1x300xf32>, tensor<2x3x70x300xf32>)
      -> (tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>)
  return %y, %dq, %dk, %dv : tensor<2x2x3x70x16xf32>, tensor<2x2x3x70x16xf32>, tensor<2x2x1x300x16xf32>, tensor<2x2x1x300x16xf32>
}

//--- few.mlir
func.func @main(%q: tensor<3x1x4xf32>, %k: tensor<3x5x4xf32>, %v: tensor<3x5x1xf32>, %dy: tensor<3x1x1xf32>, %delta: tensor<3x1xf32>)
    -> (tensor<3x1x1xf32>, tensor<3x1x4xf32>, tensor<3x5x4xf32>, tensor<3x5x1xf32>) {
  %y, %m, %s = graph.attention %q, %k, %v {payload = #graph.payload<"x">, scale = 0.5 : f64}
      : (tensor<3x1x4xf32>, tensor<3x5x4xf32>, tensor<3x5x1xf32>) -> (tensor<3x1x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>)
  %dq = graph.attention_grad_query %q, %k, %v, %m, %s, %dy, %delta {payload = #graph.payload<"x">, scale = 0.5 : f64}
      : (tensor<3x1x4xf32>, tensor<3x5x4xf32>, tensor<3x5x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>, tensor<3x1x1xf32>, tensor<3x1xf32>) -> tensor<3x1x4xf32>
  %dk, %dv = graph.attention_grad_keys %q, %k, %v, %m, %s, %dy, %delta {payload = #graph.payload<"x">, scale = 0.5 : f64}
      : (tensor<3x1x4xf32>, tensor<3x5x4xf32>, tensor<3x5x1xf32>, tensor<3x1xf32>, tensor<3x1xf32>, tensor<3x1x1xf32>, tensor<3x1xf32>) -> (tensor<3x5x4xf32>, tensor<3x5x1xf32>)
  return %y, %dq, %dk, %dv : tensor<3x1x1xf32>, tensor<3x1x4xf32>, tensor<3x5x4xf32>, tensor<3x5x1xf32>
}

// Some rows see nothing, and are 0.
//--- nothing.mlir
func.func @main(%q: tensor<9x20x16xf32>, %k: tensor<9x7x16xf32>, %v: tensor<9x7x16xf32>, %dy: tensor<9x20x16xf32>, %delta: tensor<9x20xf32>,
                %i: tensor<20x1xi64>, %j: tensor<1x7xi64>)
    -> (tensor<9x20x16xf32>, tensor<9x20x16xf32>, tensor<9x7x16xf32>, tensor<9x7x16xf32>) {
  %y, %m, %s = graph.attention %q, %k, %v, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e999)">, scale = 1.0 : f64, zero_for_nan = true}
      : (tensor<9x20x16xf32>, tensor<9x7x16xf32>, tensor<9x7x16xf32>, tensor<20x1xi64>, tensor<1x7xi64>)
      -> (tensor<9x20x16xf32>, tensor<9x20xf32>, tensor<9x20xf32>)
  %dq = graph.attention_grad_query %q, %k, %v, %m, %s, %dy, %delta, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e999)">, scale = 1.0 : f64, zero_for_nan = true}
      : (tensor<9x20x16xf32>, tensor<9x7x16xf32>, tensor<9x7x16xf32>, tensor<9x20xf32>, tensor<9x20xf32>, tensor<9x20x16xf32>, tensor<9x20xf32>, tensor<20x1xi64>, tensor<1x7xi64>)
      -> tensor<9x20x16xf32>
  %dk, %dv = graph.attention_grad_keys %q, %k, %v, %m, %s, %dy, %delta, %i, %j {payload = #graph.payload<"select(z <= y, x, -1e999)">, scale = 1.0 : f64, zero_for_nan = true}
      : (tensor<9x20x16xf32>, tensor<9x7x16xf32>, tensor<9x7x16xf32>, tensor<9x20xf32>, tensor<9x20xf32>, tensor<9x20x16xf32>, tensor<9x20xf32>, tensor<20x1xi64>, tensor<1x7xi64>)
      -> (tensor<9x7x16xf32>, tensor<9x7x16xf32>)
  return %y, %dq, %dk, %dv : tensor<9x20x16xf32>, tensor<9x20x16xf32>, tensor<9x7x16xf32>, tensor<9x7x16xf32>
}
