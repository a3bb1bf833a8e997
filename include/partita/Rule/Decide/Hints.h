//===- Hints.h - What a user says about the plan ----------------*- C++ -*-===//
//
// The hints file (schema in docs/hints.md) read into plain structs. Nothing is ignored:
// an unknown member is an error.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_DECIDE_HINTS_H
#define PARTITA_RULE_DECIDE_HINTS_H

#include "partita/Base/Files/Json.h"

#include <optional>
#include <string>
#include <vector>

namespace partita {

class FlowGraph;

/// Manual: of a graph that is written per rank, nothing is split but by its words.
enum class ShardMode : uint8_t { Auto, DataParallel, SemiAuto, Manual };
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
  bool operator==(const DimHint &) const = default;
};
/// One entry per dim; nullopt leaves the whole tensor open.
using TensorHint = std::optional<std::vector<DimHint>>;

struct NodeHint {
  std::string glob;
  std::vector<TensorHint> in, out;
  int priority = 0;
  static constexpr int lastPriority = 1000;
  /// Whether the same is asked, of whatever nodes.
  bool operator==(const NodeHint &other) const {
    return in == other.in && out == other.out && priority == other.priority;
  }
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

/// The nodes of a stage of a pipeline.
struct StageHint {
  std::string glob;
  int32_t stage = 0;
};

/// Weights that each rank keeps a part of, and that are gathered before they are read.
struct KeptHint {
  std::string glob;
  std::vector<std::string> axes; ///< the parts are of the first dim that divides
};

/// How the data of inputs or outputs are spread where they come from, or go to.
struct DatasetHint {
  enum Kind : uint8_t { Dims, FullBatch, DataParallel };
  std::string glob;
  Kind kind = Dims;
  std::vector<std::vector<std::string>> dims = {}; ///< of Dims: axes, major first
};

struct Hints {
  std::vector<NodeHint> nodes;
  std::vector<NamedTensorHint> tensors;
  std::vector<SubgraphHint> subgraphs;
  std::vector<StageHint> stages; ///< docs/stages.md
  std::vector<int64_t> groups;   ///< by stage the group of ranks that it is on
  std::vector<KeptHint> kept;
  std::vector<DatasetHint> dataset;
  std::string file;      ///< for messages
  bool areFound = false; ///< by a ready rule: the user has not written them

  bool empty() const {
    return nodes.empty() && tensors.empty() && subgraphs.empty() && kept.empty();
  }
  static Expected<Hints> parse(const JsonValue &json);
  /// The same as a hints file, one entry per line.
  std::string json() const;
};

/// Value of --hints: a rule, or a hints file that was read.
struct GivenHints {
  std::string text;
  std::optional<Hints> file = std::nullopt; ///< absent: `text` is a rule

  /// What they ask of a program. A rule looks for its blocks.
  Expected<Hints> on(const FlowGraph &graph) const;
};
/// The error for a name that is neither a rule nor a file lists the rules.
Expected<GivenHints> readHints(const std::string &text);

/// "h.*.mlp" for "h.12.mlp": what equal layers are called in hints. A name with
/// characters that globs know stands for itself.
std::string layerGlob(const std::string &name);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_HINTS_H
