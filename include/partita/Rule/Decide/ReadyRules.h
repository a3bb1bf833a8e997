//===- ReadyRules.h - Hints found by the structure of a model ---*- C++ -*-===//
//
// The usual ways to split a transformer, without a name of it. What is looked for are
// *blocks*: a product with weights (the *row* product) whose summed loop can be followed
// back, through ops that do not mix it, to the columns of other products with weights
// (the *column* products), and on the way either
//   attention   is the batch loop of a product of two activations (the scores), or
//   an MLP      passes an activation function.
// Split along that loop, the column products need nothing from other ranks, and the row
// product makes partial sums: one reduction per block. The loop of an attention block is
// the heads: its width, which the scores sum over, is left whole.
//
//   x → q, k, v ( d, h·w ) → scores (b h s t) → softmax → context (b h s w) → out (h·w,
//   d) x → up ( d, f ) → gelu → down ( f, d )
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_DECIDE_READYRULES_H
#define PARTITA_RULE_DECIDE_READYRULES_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Sharding/Flow.h"

#include <set>

namespace partita {

/// Columns and rows of a model that belong together.
struct Block {
  bool isAttention = false;
  int32_t row = -1;          ///< the row product
  int32_t operand = -1;      ///< of it, the one that is no weight
  std::set<int32_t> columns; ///< the column products
  /// The atoms of the summed dim, major to minor, and which of them may be split.
  std::vector<int32_t> atoms;
  std::vector<bool> usable;
  /// Of an attention block, the products of activations on the way.
  std::set<int32_t> scores;
};

/// A dim of a product's weight that is a loop of its own.
struct WeightLoop {
  int32_t op = -1;
  int32_t operand = -1; ///< the weight
  size_t dim = 0;       ///< of it
};

/// The product that makes the logits of a vocabulary: the last one with weights, in no
/// block, with more columns than it sums over, all of which may be split: nobody on the
/// way to an output needs them whole, as a softmax does. At most one per output.
std::vector<WeightLoop> findHeads(const FlowGraph &graph,
                                  const std::vector<Block> &blocks);

/// Products with a weight for each of several experts: a loop that weight, activations
/// and result have.
std::vector<WeightLoop> findExperts(const FlowGraph &graph);

/// Every block, in the order of the program. `graph` is finalized.
std::vector<Block> findBlocks(const FlowGraph &graph);

/// Whether `text`, the value of --hints, is a rule and no file: megatron, megatron-sp,
/// megatron-ep or fsdp, with an axis behind a colon.
bool isReadyRule(std::string_view text);

/// The axis that megatron, megatron-sp or megatron-ep splits by: the one behind the
/// colon, else tp, else the last one of the mesh.
Expected<AxisList> readyAxis(const Mesh &mesh, std::string_view text);

/// The hints of a rule for this model and mesh.
///   megatron     every block over the axis (default: tp, else the last axis), and the
///                vocabulary of the head
///   megatron-sp  the same, and between blocks the positions of the sequence over it
///   megatron-ep  as megatron, but whole experts over the axis
///   fsdp         the batch over all axes; every weight kept in as many parts, gathered
///                before it is read
/// Errors say what the model lacks: no block, fewer heads or experts than ranks, no
/// expert, no batch dim.
Expected<Hints> readyHints(const FlowGraph &graph, std::string_view text);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_READYRULES_H
