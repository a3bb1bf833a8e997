//===- DistDialect.td - Meshes, strategies and layouts in IR -*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_DIST_DISTDIALECT
#define PARTITA_DIALECTS_DIST_DISTDIALECT

include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::partita::dist";
  let summary = "What a plan says about a program: mesh, strategies, layouts";
  let description = [{
    Three attributes, written at stable points only; analyses keep the same facts in C++
    structures. All are text in the forms of partita/Base and partita/Rule, and are parsed
    and checked against the op they stand on.

    | attribute | stands on | example |
    |---|---|---|
    | `dist.mesh` | module | `"dp=2,tp=4"` |
    | `dist.strategy` | an op with a sharding rule | Strategy::str: one entry per factor |
    | `dist.layout` | function argument or result, local weight | Layout::str |

    An op without `dist.strategy` in a module with a mesh is replicated.
  }];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

#endif // PARTITA_DIALECTS_DIST_DISTDIALECT
