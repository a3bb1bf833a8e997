//===- DistBase.td - The dist dialect and its attributes ----*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_DIST_DISTBASE
#define PARTITA_DIALECTS_DIST_DISTBASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::partita::dist";
  let summary = "What a plan says about a program: mesh, strategies, layouts, conversions";
  let description = [{
    Passes read and write these attributes; within a pass the same facts are C++
    structures. Each attribute is parsed once, into the structs of partita/Base and
    partita/Rule, and verified when it is made.

    | attribute | is on | value |
    |---|---|---|
    | `dist.mesh` | module | `#dist.mesh<dp=2, tp=4>` |
    | `dist.strategy` | an op with a sharding rule | `#dist.strategy<#mesh, {m: dp}>` |
    | `dist.rule` | the same op in one rank's program | `#dist.rule<"m k, k n -> m n …">` |
    | `dist.layout` | function argument or result, local weight or constant | `#dist.layout<#mesh, [{8: dp} ]>` |
    | `dist.state` | function argument or result | `#dist.state<"cache">` |
    | `dist.phase` | an op of a training step | `#dist.phase<weight>` |
    | `dist.recompute` | a forward op that the backward pass computes again | `#dist.recompute<before first>` |
    | `dist.no_all_to_all` | module | unit: conversions by slices, gathers and reductions |

    A layout or strategy contains its mesh; files name the mesh once, as an alias.
    Conversions are ops: `dist.reshard` and `dist.window`.
    They have no memory effect and are not speculatable: equal ones (operand, layout and
    epoch) merge, unused ones go, nothing moves out of a region. docs/plan-ir.md has the
    levels and their gates.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    void registerAttributes();

    /// Whether a strategy is known to fit a rule that lives as long as the context, so
    /// that what is verified between passes is checked once.
    bool isKnownToFit(::mlir::Attribute strategy, const ::partita::ShardingRule &rule) {
      std::lock_guard lock(fittingMutex);
      return fitting.contains({strategy.getAsOpaquePointer(), &rule});
    }
    void rememberToFit(::mlir::Attribute strategy, const ::partita::ShardingRule &rule) {
      std::lock_guard lock(fittingMutex);
      fitting.insert({strategy.getAsOpaquePointer(), &rule});
    }

  private:
    std::mutex fittingMutex;
    ::llvm::DenseSet<std::pair<const void *, const void *>> fitting;

  public:
  }];
}

class Dist_Attr<string className, string attrMnemonic>
    : AttrDef<Dist_Dialect, className> {
  let mnemonic = attrMnemonic;
  let hasCustomAssemblyFormat = 1;
}

/// A parameter that is a plain struct of lib/: handed out by reference.
class Dist_Struct<string type> : AttrParameter<type, "", "const " # type # " &">;

def Dist_MeshAttr : Dist_Attr<"Mesh", "mesh"> {
  let summary = "Named axes of devices";
  let description = [{ `#dist.mesh<dp=2, tp=4>`; `#dist.mesh<>` is one rank. }];
  let parameters = (ins Dist_Struct<"::partita::Mesh">:$mesh);
}

def Dist_LayoutAttr : Dist_Attr<"Layout", "layout"> {
  let summary = "Where each element of a tensor lives";
  let description = [{
    The mesh, then the text of partita/Base/Layout/Layout.h:
    `#dist.layout<#mesh, [{8: dp}, {3}*{256: tp} ] partial sum {sp}>`.
  }];
  let parameters = (ins "::partita::dist::MeshAttr":$mesh,
                        Dist_Struct<"::partita::Layout">:$layout);
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    const ::partita::Mesh &devices() const { return getMesh().getMesh(); }
    std::string str() const { return getLayout().str(devices()); }
    /// The same layout in the form in which equal placements are equal.
    LayoutAttr canonical() const;
  }];
}

def Dist_StrategyAttr : Dist_Attr<"Strategy", "strategy"> {
  let summary = "The axes of an op's loops, by name";
  let description = [{
    The mesh, then the text of NamedStrategy in partita/Rule/Sharding/ShardingRule.h:
    `#dist.strategy<#mesh, {m: dp, k: {9/10: tp}} pass sum(0, 1) {sp}>`. Loops that are
    not named are whole.
  }];
  let parameters = (ins "::partita::dist::MeshAttr":$mesh,
                        Dist_Struct<"::partita::NamedStrategy">:$strategy);
  let extraClassDeclaration = [{
    const ::partita::Mesh &devices() const { return getMesh().getMesh(); }
    std::string str() const { return getStrategy().str(devices()); }
    /// The strategy for a rule, checked against it.
    ::partita::Expected<::partita::Strategy>
    resolve(const ::partita::ShardingRule &rule) const;
  }];
}

def Dist_RuleAttr : Dist_Attr<"Rule", "rule"> {
  let summary = "The sharding rule of an op before it became one rank's";
  let description = [{
    The text of ShardingRule::str in quotes. Shapes of one rank do not tell it any more:
    a loop of 4 that 4 ranks share has one iteration on each.
  }];
  let parameters = (ins Dist_Struct<"::partita::ShardingRule">:$rule);
}

def Dist_KindAttr : Dist_Attr<"Kind", "kind"> {
  let summary = "A kind of reduction: sum, max, min or prod";
  let parameters = (ins "::partita::ReduceKind":$value);
}

def Dist_PhaseAttr : Dist_Attr<"Phase", "phase"> {
  let summary = "The part of a training step: forward, backward, weight or update";
  let parameters = (ins "::partita::Phase":$value);
}

def Dist_RecomputeAttr : Dist_Attr<"Recompute", "recompute"> {
  let summary = "A forward op that the backward pass computes again";
  let description = [{
    Ops that are not of the forward pass read a copy of the op, which stands before the
    first of them and has the strategy of the op: of what the op reads, too, where that is
    marked. At L1 it may say what is asked of conversions, which there are none of yet:
    `keep communication`, the copy's readers have what the forward pass received;
    `gather again`, a weight that lies in parts is gathered anew for the copy.

    ```mlir
    %h = graph.gelu %x {dist.recompute = #dist.recompute<before first>}
    %d = graph.map %dy, %h {dist.phase = #dist.phase<backward>}
    ```
    becomes, by `partita-recompute`,
    ```mlir
    %h = graph.gelu %x
    %h2 = graph.gelu %x {dist.phase = #dist.phase<backward>}
    %d = graph.map %dy, %h2 {dist.phase = #dist.phase<backward>}
    ```
  }];
  let parameters = (ins "bool":$keepsCommunication, "bool":$gathersAgain);
}

def Dist_StateAttr : AttrDef<Dist_Dialect, "State"> {
  let mnemonic = "state";
  let summary = "A tensor that lasts from one run to the next";
  let description = [{
    On an argument: what the run before has left; on a result: what this one leaves. Both
    ends of one name have one type and one layout. A state without a result is only read,
    one without an argument only written. Before the first run it is zero, or what the
    weight named by `from` is.

    ```mlir
    func.func @main(%w: tensor<8x8xf32> {dist.state = #dist.state<"w" from "fc.weight">})
        -> (tensor<8x8xf32> {dist.state = #dist.state<"w">})
    ```
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
                        OptionalParameter<"::mlir::StringAttr">:$init);
  let assemblyFormat = "`<` $name (`from` $init^)? `>`";
}

def Dist_WindowsAttr : Dist_Attr<"Windows", "windows"> {
  let summary = "Window buffers: which elements the windows of a rank cover";
  let description = [{
    The layout of the windows' positions: as one of the operand, but dims that are read
    through windows count windows. Then each such dim: windows begin `stride` elements
    apart and cover `kernel_extent` elements, the first begins `low` elements before the dim. A
    rank with B positions has (B − 1) · stride + kernel_extent elements, from those of its first
    position on. Elements that the tensor does not have (pads, padding) are the neutral
    element of `fill`. See partita/Base/Layout/Halo.h.

        #dist.windows<#dist.layout<#mesh, [{1}, {4}, {8: sp}, {8} ]>,
                      dim 2 stride 1 kernel_extent 3 low 1, fill sum>
  }];
  let parameters = (ins "::partita::dist::LayoutAttr":$positions,
                        Dist_Struct<"std::vector<::partita::HaloWindow>">:$windows,
                        "::partita::ReduceKind":$fill);
  let extraClassDeclaration = [{
    const ::partita::Mesh &devices() const { return getPositions().devices(); }
    /// The exchange that fills the buffers from a tensor in layout `before`.
    ::partita::Halo from(const ::partita::Layout &before) const;
    static WindowsAttr of(::partita::dist::MeshAttr mesh, const ::partita::Halo &halo);
  }];
}

def Dist_PiecesAttr : Dist_Attr<"Pieces", "pieces"> {
  let summary = "Which boxes of what ranks have become boxes of what ranks get";
  let description = [{
    Pieces, each with the rank that has it, the rank that gets it, and per dim the first
    element there, the first element here, and their number. They are in the order of
    receivers, then of senders; see partita/Base/Layout/Pieces.h. A row of 6 elements goes
    one rank further, and the last rank's goes nowhere:

        #dist.pieces<#mesh, 0 to 1 [0 to 0 of 1, 0 to 0 of 6], 1 to 2 [0 to 0 of 1, 0 to 0 of 6]>
  }];
  let parameters = (ins "::partita::dist::MeshAttr":$mesh,
                        Dist_Struct<"std::vector<::partita::Piece>">:$list);
  let extraClassDeclaration = [{
    const ::partita::Mesh &devices() const { return getMesh().getMesh(); }
    /// The exchange between tensors of these shapes.
    ::partita::Pieces between(::llvm::ArrayRef<int64_t> before,
                              ::llvm::ArrayRef<int64_t> after) const;
  }];
}

#endif // PARTITA_DIALECTS_DIST_DISTBASE
