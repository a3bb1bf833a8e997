// Gathers over a split table, compiled and run on their ranks, equal the evaluator: an uneven
// vocabulary, indices of both signs, sub-axes, two factors, given blocks, a dim in the
// middle, a result that is scattered, integer and half tables.
// RUN: partita-opt %s --partita-check-bundle -o /dev/null
// RUN: partita-opt %s --partita-check-bundle="threads=2 work-per-part=1" -o /dev/null

#mesh = #dist.mesh<dp=2,tp=4>
module attributes {dist.mesh = #mesh} {
  func.func @uneven(%i: tensor<24xi64>) -> tensor<24x3xf32> {
    %t = graph.weight "t" : tensor<50257x3xf32>
    %stride = graph.constant dense<16752> : tensor<24xi64>
    %size = graph.constant dense<50257> : tensor<24xi64>
    %0 = graph.mul %i, %stride {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<24xi64>, tensor<24xi64>) -> tensor<24xi64>
    %1 = graph.sub %0, %size {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<24xi64>, tensor<24xi64>) -> tensor<24xi64>
    %2 = graph.gather %t, %0 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {a: dp, b: {50257/50264: tp}}>} : (tensor<50257x3xf32>, tensor<24xi64>) -> tensor<24x3xf32>
    %3 = graph.gather %t, %1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {b: {50257/50264: tp, dp}}>} : (tensor<50257x3xf32>, tensor<24xi64>) -> tensor<24x3xf32>
    %4 = graph.tanh %2 {dist.strategy = #dist.strategy<#mesh, {a: {dp, tp}}>} : (tensor<24x3xf32>) -> tensor<24x3xf32>
    %5 = graph.add %4, %3 {dist.strategy = #dist.strategy<#mesh, {a: dp}>} : (tensor<24x3xf32>, tensor<24x3xf32>) -> tensor<24x3xf32>
    return %5 : tensor<24x3xf32>
  }
  func.func @given(%i: tensor<4x6xi64>) -> tensor<4x6x3xf32> {
    %t = graph.weight "g" : tensor<13x3xf32>
    %three = graph.constant dense<3> : tensor<4x6xi64>
    %nine = graph.constant dense<9> : tensor<4x6xi64>
    %0 = graph.mul %i, %three {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4x6xi64>, tensor<4x6xi64>) -> tensor<4x6xi64>
    %1 = graph.sub %0, %nine {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<4x6xi64>, tensor<4x6xi64>) -> tensor<4x6xi64>
    %2 = graph.gather %t, %1 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {c: {13=2+0+7+4: tp}}>} : (tensor<13x3xf32>, tensor<4x6xi64>) -> tensor<4x6x3xf32>
    return %2 : tensor<4x6x3xf32>
  }
  func.func @factors(%i: tensor<3x2xi32>) -> (tensor<5x3x2x2xi64>, tensor<3x2x4xf16>) {
    %t = graph.weight "t" : tensor<5x16x2xi64>
    %h = graph.weight "h" : tensor<7x4xf16>
    %stride = graph.constant dense<5> : tensor<3x2xi32>
    %last = graph.constant dense<7> : tensor<3x2xi32>
    %0 = graph.mul %i, %stride {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<3x2xi32>, tensor<3x2xi32>) -> tensor<3x2xi32>
    %1 = graph.gather %t, %0 {axis = 1 : i64, dist.strategy = #dist.strategy<#mesh, {d: {4: tp:(1)2}*{4: dp, tp:(2)2}}>} : (tensor<5x16x2xi64>, tensor<3x2xi32>) -> tensor<5x3x2x2xi64>
    %2 = graph.sub %i, %last {dist.strategy = #dist.strategy<#mesh, {}>} : (tensor<3x2xi32>, tensor<3x2xi32>) -> tensor<3x2xi32>
    %3 = graph.gather %h, %2 {axis = 0 : i64, dist.strategy = #dist.strategy<#mesh, {c: {7/8: dp, tp}}>} : (tensor<7x4xf16>, tensor<3x2xi32>) -> tensor<3x2x4xf16>
    return %1, %3 : tensor<5x3x2x2xi64>, tensor<3x2x4xf16>
  }
}
