//===- Linear.td - Reductions that an op commutes with ------*- tablegen -*-===//
//
// A linear set is a list of operands and a kind of reduction. Reducing the op's results
// over ranks equals the op of the reduced operands where the operands of the set are
// partial together and the others are not. `add` has LinearSum<[0, 1]>, and its float form
// LinearMax<[0], [IfFloat]>: integers wrap, so that a sum may be below its parts. A
// test shows for every op that each of its sets holds and that no other does.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_GRAPH_LINEAR
#define PARTITA_DIALECTS_GRAPH_LINEAR

/// When a set holds: C++ in a method of the op.
class Condition<string expression> {
  string holds = expression;
}

def IfFloat : Condition<"::mlir::isa<::mlir::FloatType>("
                        "::mlir::getElementTypeOrSelf(getResult().getType()))">;
/// The op is a cast that commutes with sums and products.
def IfAdditive : Condition<"::partita::graph::detail::isAdditiveCast(*this)">;
/// The op is a cast that keeps the order.
def IfMonotone : Condition<"::partita::graph::detail::isMonotoneCast(*this)">;
/// The F64 attribute, as in its accessor, is above zero: IfPositive<"Alpha">.
class IfPositive<string attribute>
    : Condition<"get" # attribute # "().convertToDouble() > 0">;

class Linear<string kind, list<int> operands, list<Condition> conditions> {
  code add = "if (" # !foldl("true", conditions, text, c, text # " && " # c.holds) #
             ") sets.push_back({::partita::ReduceKind::" # kind # ", {" #
             !interleave(operands, ", ") # "}}); ";
}
class LinearSum<list<int> operands, list<Condition> conditions = []>
    : Linear<"Sum", operands, conditions>;
class LinearMax<list<int> operands, list<Condition> conditions = []>
    : Linear<"Max", operands, conditions>;
class LinearMin<list<int> operands, list<Condition> conditions = []>
    : Linear<"Min", operands, conditions>;
class LinearProd<list<int> operands, list<Condition> conditions = []>
    : Linear<"Prod", operands, conditions>;

#endif // PARTITA_DIALECTS_GRAPH_LINEAR
