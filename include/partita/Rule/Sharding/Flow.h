//===- Flow.h - A program as ops, values and loops --------------*- C++ -*-===//
//
// The IR-free view of a program on which strategies are decided: every op with its rule,
// every value with its producer and users. Function arguments, weights and constants are
// ops without operands (*sources*: they can be produced in any layout at no cost, each
// rank reads its slices), function results are ops without results (*sinks*).
//
// States. What one run leaves for the next (a cache, a trained weight) comes in by an op
// without operands and goes out by a sink. It stays where it lies between runs, so the
// two ops are *tied*: they have one layout, which nothing settles but hints, neighbours
// or a search. Users that want it otherwise are served from there, as those of any value.
//
// Atoms. A dim may be one factor for its producer and two for a user (rows = batch ·
// sequence). Cut points are therefore refined over the whole program until both ends of
// every value see the same pieces; such a piece of a factor is an *atom*. Where cut
// points of two ends do not nest, or one end is read through windows and cannot be cut,
// only what splits the major-most pieces of both alike flows across. The refinement is a
// least fixpoint, so the order of ops does not matter.
//
// Detached loops. What hints ask of one loop may not fit the pieces that its neighbours
// cut it into, or may need padding where they leave no room for it. Such a loop is taken
// out of the refinement: it is whole, or in pieces of its own, and linked to nothing. Its
// neighbours keep their layouts, and there is a reshard on every edge where they differ.
//
// Ties. The body of a loop is in the graph once. What goes into it and comes out of it
// are ops of one tensor: an end that gives it (no operands) or takes it (a sink). Ends
// that are one variable (what is carried from trip to trip: initial value, argument, what
// the body gives, result) are tied: they are cut alike, their atoms are linked, and they
// have one layout.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_FLOW_H
#define PARTITA_RULE_SHARDING_FLOW_H

#include "partita/Base/Layout/Reshard.h"
#include "partita/Base/Phase.h"
#include "partita/Kernels/OpFacts.h"
#include "partita/Rule/Sharding/ShardingRule.h"

#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// State: an argument that keeps its layout from run to run.
enum class FlowKind : uint8_t { Compute, Argument, Source, Sink, State };

struct FlowOp {
  std::string name; ///< for messages and hints: the ONNX node name
  FlowKind kind = FlowKind::Compute;
  ShardingRule rule;
  int priority = 1;  ///< propagation class, see ShardingRuleOpInterface
  int64_t flops = 0; ///< of the whole op
  /// Vector instructions per element of its kernel times elements, of the whole op: as
  /// flops, but each function of real numbers counts as its polynomial.
  int64_t steps = 0;
  std::vector<int32_t> operands, results; ///< value numbers
  /// Per operand, where the node of the model has its dims in another order: dim d there
  /// is dim operandOrder[operand][d] here. Empty, or an empty entry: as here.
  std::vector<std::vector<int32_t>> operandOrder = {};
  /// A transpose of the model that an operand stands for, by one of its names: dim d of
  /// its result is dim result[d] here, dim d of its input is dim input[d].
  struct Absorbed {
    std::string name;
    int32_t operand;
    std::vector<int32_t> result, input;
  };
  std::vector<Absorbed> absorbed = {};
  /// Of a Source that is one for several nodes: the names of those whose import made it.
  std::vector<std::string> madeFor = {};
  /// The other end of a state: of a State its sink, of a sink the State; −1: there is
  /// none.
  int32_t tied = -1;
  int64_t trips = 1; ///< how often a run of the program runs it
  /// An argument whose first dim is the batch of a training step, whose results are not
  /// made batch by batch; its micro-batches are the major piece of the dim.
  bool isBatch = false;
  /// A State that a training step learns: to the forward pass it is a weight.
  bool isParameter = false;
  /// An elementwise op that takes as long as a function of real numbers (exp, erf).
  bool isFunction = false;
  Phase phase = Phase::Forward;
  /// The op of the forward pass that such an op computes again; −1: none.
  int32_t repeats = -1;
  /// Facts by which a kernel computes the op.
  kernels::OpFacts facts = {};
  /// A Source whose elements are part of the program.
  bool isLiteral = false;
  /// The number that all elements of a Source are; such a Source takes no memory.
  std::optional<double> uniform = {};
  /// Why loops of kind Replicate are: sentences for the user, kept by the op's class.
  std::string_view whyWhole = {};

  bool isForward() const { return phase == Phase::Forward; }
  bool isUniform() const { return uniform.has_value(); }
  /// An argument, weight or constant that can be produced in any layout.
  bool isSource() const { return kind == FlowKind::Argument || kind == FlowKind::Source; }
};

struct FlowUse {
  int32_t op, operand;
  bool operator==(const FlowUse &) const = default;
};

struct FlowValue {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elementBytes = 4;
  int32_t producer = -1, result = 0;
  std::vector<FlowUse> uses;
  /// What hints may call it as well: the names of values that became this one.
  std::vector<std::string> otherNames = {};
  DType type = DType::F32; ///< for the time that ops take

  int64_t bytes() const;
};

/// A piece of one factor of one op. A Window factor is one piece: both sides of it are
/// split over the same axes, so that a split spatial dim goes on through convolutions.
struct Atom {
  int32_t op, factor;
  int64_t size; ///< for a Window factor the positions
  /// Whether every dim that any linked atom is part of has it as its major-most piece, so
  /// that it may be padded.
  bool canPad = false;
  /// Whether this atom or one it is linked to, however far, may not be split: the `3` of
  /// a fused query-key-value dim, whose thirds are sliced apart.
  bool refused = false;
  bool detached = false; ///< linked to nothing, see the head of this file
  /// Atoms of other ops that are the same piece of a value between them, or where
  /// `common` is given, the major-most pieces of a dim of the value that is cut
  /// differently on the two sides: axes that divide both sizes split them at the same
  /// places.
  struct Link {
    int32_t atom, value;
    int64_t common = 0; ///< the greatest common divisor of the sizes; 0: the same piece
    bool carries(const AxisList &axes) const {
      return common == 0 || common % product(axes) == 0;
    }
    bool operator==(const Link &) const = default;
  };
  std::vector<Link> links;
};

/// Ends that have one layout: ops of one tensor, without operands or without results.
struct FlowTie {
  struct Member {
    int32_t op;
    /// It has all rows of what the others have one of: a whole dim before theirs.
    bool hasRows = false;
  };
  std::vector<Member> members;
  /// What is run between the ends that go in and those that come out: ops from `begin` up
  /// to, not including, `end`.
  int32_t begin = 0, end = 0;
};

/// A loop that is taken out of the refinement.
struct DetachedLoop {
  int32_t op, factor;
  std::vector<int64_t> pieces = {}; ///< major to minor; empty: whole
};

class FlowGraph {
public:
  explicit FlowGraph(Mesh mesh) : mesh(std::move(mesh)) {}

  /// Adds a value of the given shape; its producer is set when an op lists it as result.
  int32_t addValue(std::string name, std::vector<int64_t> shape, int64_t elementBytes);
  /// Adds an op after all producers of its operands.
  int32_t addOp(FlowOp op);
  /// Makes a State and a sink of equal shape the ends of one state. Before finalize.
  void tie(int32_t state, int32_t sink);
  /// Refines factors to atoms and links them. Call after the last addOp, and again with
  /// other detached loops (each at most once) for other atoms: what refers to atoms by
  /// number is then void.
  void finalize(const std::vector<DetachedLoop> &detached = {});

  const Mesh mesh;
  /// What the planner may use for conversions: all prices are of what will be emitted.
  ReshardOptions reshard = {};
  /// Micro-batches of a training step of which what the backward pass reads is kept at
  /// once: more than one in a stage of a pipeline.
  int64_t keptMicroBatches = 1;
  std::vector<FlowOp> ops;
  std::vector<FlowValue> values;
  std::vector<FlowTie> ties;
  /// By the name of a node, the path of the module of the framework's model that it comes
  /// from, where it is known: "model.layers.0.self_attn.q_proj".
  std::map<std::string, std::string> modules;
  /// By the name of a node, the names of its inputs in its file's order, where its ops
  /// read them in another one.
  std::map<std::string, std::vector<std::string>> nodeInputs;

  // After finalize():
  std::vector<Atom> atoms;
  /// Atom numbers of (op, factor), major to minor.
  const std::vector<int32_t> &atomsOf(int32_t op, int32_t factor) const {
    return opAtoms[op][factor];
  }
  /// Atom numbers of one dim of an operand (or result) of an op, major to minor.
  std::vector<int32_t> dimAtoms(int32_t op, const std::vector<int32_t> &factors) const;
  /// The tensor of an end: of a tie's member.
  const TensorFactors &endFactors(int32_t op) const {
    const ShardingRule &rule = ops[op].rule;
    return rule.results.empty() ? rule.operands[0] : rule.results[0];
  }
  int32_t endValue(int32_t op) const {
    return ops[op].results.empty() ? ops[op].operands[0] : ops[op].results[0];
  }
  /// Every atom of an op.
  std::ranges::iota_view<int32_t, int32_t> allAtoms(int32_t op) const {
    return {firstAtom[op], firstAtom[op + 1]};
  }
  /// Elements of an atom in a dim of this operand of its op (-1: of a result).
  int64_t extent(const Atom &atom, int32_t operand) const {
    const Factor &factor = ops[atom.op].rule.factors[atom.factor];
    return factor.window() ? factor.extent(operand) : atom.size;
  }
  FactorKind kindOf(const Atom &atom) const {
    return ops[atom.op].rule.factors[atom.factor].kind();
  }

private:
  /// Links the atoms of all ends of one dim of a value.
  void linkDim(int32_t value, size_t dim);
  void linkTie(const FlowTie &tie);
  /// `set`s every atom that is the same piece as one that `holds`, however far.
  template <typename Holds, typename Set> void spread(Holds holds, Set set);

  std::vector<std::vector<std::vector<int32_t>>> opAtoms;
  std::vector<int32_t> firstAtom; ///< per op, and the end of the last
};

} // namespace partita

#endif // PARTITA_RULE_SHARDING_FLOW_H
