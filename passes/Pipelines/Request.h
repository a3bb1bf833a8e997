//===- Request.h - What a person asks of the compiler -----------*- C++ -*-===//
//
// A request is read once, where it comes in (tools/common/Options.h): no pass parses a
// text of it. What the compiler tells itself from one entry, stage or try to the next is
// Feedback, which nobody writes.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_REQUEST_H
#define PARTITA_PASSES_PIPELINES_REQUEST_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Compute.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Comm/StepText.h"
#include "partita/Onnx/Load.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Topology/Topology.h"
#include "partita/Train/Spec.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace partita {

/// L0 imported (L1: and trained), L2 annotated, L3 partitioned, L4 scheduled, L5 device
/// code in a bundle.
enum class Level : uint8_t { L0 = 0, L2 = 2, L3 = 3, L4 = 4, L5 = 5 };

struct ModelSource {
  std::string file; ///< the ONNX file
  /// Files of all ranks but the first, of which `file` is, in their order; empty: one
  /// file is for all ranks.
  std::vector<std::string> others = {};
  std::vector<onnx_model::ShapeBinding> shapes; ///< of several entries: see entriesOf
  std::vector<onnx_model::ConstBinding> constants = {};
  /// INPUT=OUTPUT: inputs that are what the output of the request before was.
  std::vector<std::string> states = {};
  /// Folders that are searched for external data before the model's own.
  std::vector<std::string> dataFolders = {};
};

/// A specification of a training step (docs/training.md).
struct Training {
  std::string file, text;
  train::Spec spec;
};

struct Cut;
/// The name of a schedule, or a file of a step's whose name ends with ".csv".
Expected<void> readSchedule(const std::string &text, Cut &cut);

/// Of a pipeline (docs/stages.md).
struct Cut {
  int64_t stages = 1;       ///< more by hints
  int64_t groups = 0;       ///< of ranks, to which stages are dealt in turn; 0: one each
  int64_t microBatches = 1; ///< slices of the batch that go through the stages
  /// Absent: interleaved where groups have several stages, else 1f1b. A pipeline of
  /// inference knows interleaved and gpipe.
  std::optional<StepSchedule> schedule = std::nullopt;
  /// The schedule of a training step that a file has (StepText.h), instead of `schedule`.
  std::optional<PipelineStep> order = std::nullopt;
};

struct Target {
  std::string name = "cpu"; ///< or "plain": without an engine
  std::string cpu = {};     ///< LLVM's name; empty: this host's
  int64_t threads = 1;      ///< per rank; 0: this machine's cores divided by the ranks
};

struct Emission {
  std::string output; ///< folder of the bundle; unused if a compile stops before L5
  /// Where the bundle is to stand in the end, for paths relative to it; empty: `output`.
  std::string place = {};
  bool force = false; ///< a bundle of that name is replaced, in one step
  /// External data is copied into the bundle; else the bundle refers to it.
  bool copyWeights = false;
  /// All of the external data is hashed, not a sample, and compared with the SHA-1 that
  /// the model may state.
  bool hashWeights = false;
};

struct Levels {
  /// L2, L3 and L4 are read from `dump`, where an earlier run has written them and a
  /// person or a tool may have changed them since.
  Level from = Level::L0;
  Level to = Level::L5;
  std::string dump = {}; ///< folder that receives 00-imported.mlir, …; empty: none
};

struct Told {
  std::string explain; ///< node name or glob; empty: none
  std::string hints;   ///< file that receives the hints, those of a rule too; empty: none
};

struct Request {
  ModelSource model = {};
  /// One per group of ranks, or one for all; none: one rank, or for a search over meshes
  /// those of the cluster.
  std::vector<Mesh> meshes = {};
  /// The same for other numbers of ranks, each of which gets a world of the bundle
  /// (Worlds.h).
  std::vector<std::vector<Mesh>> worlds = {};
  ShardMode mode = ShardMode::Auto;
  std::optional<GivenHints> hints = {};
  std::optional<Plan> plan = {}; ///< replaces deciding
  Machine machine = {};
  std::optional<Training> train = {}; ///< absent: inference
  /// The program is the entry of this training step that gives the loss alone.
  bool evaluates = false;
  /// The type that the model computes in, unless it trains: a specification has its own.
  /// Absent: that of the plan, else f32.
  std::optional<Compute> compute = {};
  std::vector<std::string> keepF32 = {}; ///< nodes, or globs, that do so in f32
  /// How exact products with weights of 4 bits are (docs/few-bits.md). Absent: as the
  /// plan says, else the model.
  std::optional<int64_t> accuracyLevel = {};
  /// Collectives of a step that may be in flight where another starts. Absent: as the
  /// plan says, else those of buckets::Options.
  std::optional<int64_t> commInFlight = {};
  static constexpr int64_t mostInFlight = 1024;
  /// Distinct communication calls, and groups of ranks, that a program may have at most;
  /// 0: any number. Absent: as the plan says, else any.
  std::optional<int64_t> commReuse = {};
  static constexpr int64_t mostReuse = 1 << 20;
  /// Collectives over several levels of the cluster work within a unit, then across; so
  /// do those of a plan that says so.
  bool hierarchical = false;
  bool allToAll = true; ///< false: reshard by slices, gathers and reductions only
  Cut cut = {};
  Target target = {};
  Emission emission = {};
  Levels levels = {};
  Told told = {};

  /// Of a program that is no pipeline.
  Mesh mesh() const { return meshes.empty() ? Mesh() : meshes.front(); }
};

/// The type that the program of a request computes in.
Compute computeOf(const Request &request);
/// The nodes that compute in f32 all the same: those of the request, else of its plan.
std::vector<std::string> keptOf(const Request &request);
/// The level of all products with weights of 4 bits; absent: as the model says.
std::optional<int64_t> accuracyLevelOf(const Request &request);
/// An error names both of two things that say the type, or the level, and differ, or what
/// no target has.
Expected<void> checkCompute(const Request &request);

/// Rules by which collectives become calls: what the request says beside `known`, the
/// plan that it follows or goes on from; null: none. An error names both where they
/// differ, or that levels have no cluster.
Expected<PlanCalls> callsOf(const Request &request, const PlanFacts *known);
/// The levels of links as a topology of devices without any rates.
Topology topologyOf(const PlanLinks &links);
/// The inverse.
PlanLinks linksOf(const Topology &topology);

/// Of an earlier entry, stage or try; never written by a person.
struct Feedback {
  /// Where a state lies, by name.
  struct Home {
    Mesh mesh;
    Layout layout;
    int32_t stage = 0; ///< of a pipeline
  };
  std::map<std::string, Home> states;
  std::map<std::string, int32_t> stages; ///< by node
  std::vector<int64_t> groups;           ///< of ranks, by stage
  std::vector<Mesh> meshes;              ///< one for all groups, or by group
  /// What the backward pass computes again beside what the specification says.
  std::optional<PlanRecompute> recompute;
  /// Of a step, where the specification leaves them open: the batch of the model's shape
  /// is cut into so many. Absent: one.
  std::optional<int64_t> microBatches;
  /// Collectives of a step become buckets, which takes memory: not where that is short.
  bool makesBuckets = true;
  /// Of a step of which something was chosen: what no plan is faster than, with any such
  /// choice or none.
  std::optional<PlanCertificate::Bound> bound;
};

/// An error names the file, the place in it, and what was expected there.
Expected<Training> readTraining(const std::string &file);

/// "tp=2", or one per group of ranks: "tp=2;tp=1".
Expected<std::vector<Mesh>> readMeshes(const std::string &text);
/// The inverse.
std::string str(const std::vector<Mesh> &meshes);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_REQUEST_H
