//===- Hints.h - What a user says about the plan ----------------*- C++ -*-===//
//
// The hints file (schema in docs/hints.md) read into plain structs, and resolved against
// a program into seeds for propagation. Nothing is ignored: an unknown name, a count that
// no node can do, an axis used twice is an error that names the node, dim and value.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_DECIDE_HINTS_H
#define PARTITA_RULE_DECIDE_HINTS_H

#include "partita/Base/Files/Json.h"
#include "partita/Rule/Sharding/Propagation.h"

#include <optional>
#include <string>
#include <vector>

namespace partita {

enum class ShardMode : uint8_t { Auto, DataParallel, SemiAuto };
std::string_view name(ShardMode mode);
std::optional<ShardMode> shardModeFromName(std::string_view name);

/// What is asked of one dim: left open, a number of shards, axes, or axes per dim factor.
struct DimHint {
  bool open = true;
  int64_t count = 0;             ///< > 0: a shard count, axes to be found
  std::vector<std::string> axes; ///< when count == 0 and factors is empty
  std::vector<int64_t> factors;  ///< written-out dim factors, major to minor
  std::vector<std::vector<std::string>> factorAxes;
  std::vector<int64_t> blocks; ///< beside `axes`: the length of every block
};
/// One entry per dim; nullopt leaves the whole tensor open.
using TensorHint = std::optional<std::vector<DimHint>>;

struct NodeHint {
  std::string glob;
  std::vector<TensorHint> in, out;
  int priority = 0;
  static constexpr int lastPriority = 1000;
};
struct NamedTensorHint {
  std::string glob;
  TensorHint dims;
  int priority = 0;
};
struct SubgraphHint {
  std::string glob;
  ShardMode mode;
};

struct Hints {
  std::vector<NodeHint> nodes;
  std::vector<NamedTensorHint> tensors;
  std::vector<SubgraphHint> subgraphs;
  std::string file; ///< for messages

  bool empty() const { return nodes.empty() && tensors.empty() && subgraphs.empty(); }
  static Expected<Hints> parse(const JsonValue &json);
};

/// Seeds for every hinted atom. Counts become axes so that one factor has the same axes
/// in every operand; among several ways the one with the lowest price, then mesh order.
///
/// What a node alone can do is accepted: where its neighbours cut a loop so that the hint
/// does not fit, or leave no room for padding, the loop is detached and `graph` finalized
/// anew. Errors are what the node cannot do: to split a loop that it needs whole, more
/// ways than it has elements, or unevenly where it is not major; one loop in two ways;
/// one axis twice.
Expected<std::vector<Seed>> resolveHints(FlowGraph &graph, const Hints &hints);

struct Decision {
  std::vector<Strategy> strategies;
  Propagated propagated;
  Price price;
  std::vector<std::string> notes; ///< one sentence each, for the user
};

/// Decides a strategy for every op by propagation.
///   SemiAuto      hints and propagation
///   DataParallel  the batch dim of every argument over all axes, or those that hints
///                 leave free in all that it reaches, then propagation
///   Auto          as SemiAuto; without hints lib/Search decides instead
/// What cannot be split stays replicated and is named in a note, as is a hint for an
/// input or a weight that nothing reads so. The graph is finalized; resolveHints may do
/// so anew.
Expected<Decision> decide(FlowGraph &graph, ShardMode mode, const Hints &hints);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_HINTS_H
