//===- GraphAttrs.td - Kinds and modes of graph ops ---------*- tablegen -*-===//
//
// Included by GraphBase.td, behind the dialect.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_GRAPH_GRAPHATTRS
#define PARTITA_DIALECTS_GRAPH_GRAPHATTRS

def Graph_ReduceKindAttr : AttrDef<Graph_Dialect, "ReduceKind"> {
  let mnemonic = "reduce";
  let summary = "How a reduction combines: #graph.reduce<sum>, max, min or prod";
  let parameters = (ins "::partita::ReduceKind":$value);
  let hasCustomAssemblyFormat = 1;
  let returnType = "::partita::ReduceKind";
  let convertFromStorage = "$_self.getValue()";
}

def Graph_EquationAttr : AttrDef<Graph_Dialect, "Equation"> {
  let mnemonic = "equation";
  let summary = "The loops of a sum of products, by name";
  let description = [{
    `#graph.equation<"b s k, k n -> b s n">`: see partita/Rule/Sharding/Equation.h.
  }];
  let parameters = (ins AttrParameter<"::partita::Equation", "",
                                      "const ::partita::Equation &">:$value);
  let hasCustomAssemblyFormat = 1;
  let returnType = "const ::partita::Equation &";
  let convertFromStorage = "$_self.getValue()";
}

def Graph_PayloadAttr : AttrDef<Graph_Dialect, "Payload"> {
  let mnemonic = "payload";
  let summary = "A scalar expression of the operands' elements";
  let description = [{
    `#graph.payload<"x * (1 - y * y)">`: see partita/Rule/Scalar/Payload.h.
  }];
  let parameters = (ins AttrParameter<"::partita::Payload", "",
                                      "const ::partita::Payload &">:$value);
  let hasCustomAssemblyFormat = 1;
  let returnType = "const ::partita::Payload &";
  let convertFromStorage = "$_self.getValue()";
}

class Graph_Enum<string name, string what, list<I32EnumCase> cases>
    : I32Enum<name, what, cases> {
  let cppNamespace = "::partita::graph";
}

class Graph_EnumAttr<Graph_Enum enum, string mnemonic>
    : EnumAttr<Graph_Dialect, enum, mnemonic> {
  let assemblyFormat = "`<` $value `>`";
}

def Graph_PoolKind
    : Graph_Enum<"PoolKind", "What a pool makes of its window",
                 [I32EnumCase<"Max", 0, "max">, I32EnumCase<"Average", 1, "average">]>;
def Graph_PoolKindAttr : Graph_EnumAttr<Graph_PoolKind, "pool">;

def Graph_PadMode
    : Graph_Enum<"PadMode", "The elements around a padded tensor",
                 [I32EnumCase<"Constant", 0, "constant">, I32EnumCase<"Edge", 1, "edge">,
                  I32EnumCase<"Reflect", 2, "reflect">]>;
def Graph_PadModeAttr : Graph_EnumAttr<Graph_PadMode, "pad">;

def Graph_ResizeMode
    : Graph_Enum<"ResizeMode", "How elements between those of the operand are found",
                 [I32EnumCase<"Nearest", 0, "nearest">,
                  I32EnumCase<"Linear", 1, "linear">]>;
def Graph_ResizeModeAttr : Graph_EnumAttr<Graph_ResizeMode, "resize">;

def Graph_Coordinates
    : Graph_Enum<"Coordinates", "ONNX's coordinate_transformation_mode",
                 [I32EnumCase<"Asymmetric", 0, "asymmetric">,
                  I32EnumCase<"HalfPixel", 1, "half_pixel">,
                  I32EnumCase<"PytorchHalfPixel", 2, "pytorch_half_pixel">,
                  I32EnumCase<"AlignCorners", 3, "align_corners">]>;
def Graph_CoordinatesAttr : Graph_EnumAttr<Graph_Coordinates, "coordinates">;

def Graph_Rounding
    : Graph_Enum<"Rounding", "ONNX's nearest_mode",
                 [I32EnumCase<"PreferFloor", 0, "round_prefer_floor">,
                  I32EnumCase<"PreferCeil", 1, "round_prefer_ceil">,
                  I32EnumCase<"Floor", 2, "floor">, I32EnumCase<"Ceil", 3, "ceil">]>;
def Graph_RoundingAttr : Graph_EnumAttr<Graph_Rounding, "rounding">;

#endif // PARTITA_DIALECTS_GRAPH_GRAPHATTRS
