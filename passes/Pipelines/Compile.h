//===- Compile.h - From a model file to a bundle ----------------*- C++ -*-===//
//
// The one pipeline that `partita compile` runs, without a command line: other programs
// call it as they call a library. The level names are those of docs/architecture.md.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILE_H
#define PARTITA_PASSES_PIPELINES_COMPILE_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Error.h"
#include "partita/Base/Stop.h"
#include "partita/Onnx/Model.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace partita {

/// L0 imported (L1: and trained), L2 annotated, L3 partitioned, L4 scheduled, L5 device
/// code in a bundle.
enum class Level : uint8_t { L0 = 0, L2 = 2, L3 = 3, L4 = 4, L5 = 5 };

struct CompileOptions {
  /// Asks the compile to end, between two of its passes, or within the search of `plan`,
  /// with the error "cancelled"; files that it has begun are removed.
  StopFlag stop;
  std::string model;  ///< path of the ONNX file
  std::string output; ///< folder of the bundle; unused if the pipeline stops before L5
  /// Where the bundle is to stand in the end, for paths relative to it; empty: `output`.
  std::string place;
  bool force = false; ///< a bundle of that name is replaced, in one step
  /// "dp=2,tp=2"; empty: one rank. Of a pipeline one per group of ranks, "tp=2;tp=1", or
  /// one for all.
  std::string mesh;
  int stages = 1;       ///< of a pipeline (docs/stages.md), more by hints
  int groups = 0;       ///< of ranks, to which stages are dealt in turn; 0: one per stage
  int microBatches = 1; ///< slices of the batch that go through the stages
  /// In which order a group of several stages runs them: "interleaved" or "gpipe", see
  /// StageOrder; empty: interleaved.
  std::string schedule;
  std::string mode = "auto";
  std::string hints;       ///< path, or a rule (megatron, …); empty: none
  std::string hintsOutput; ///< receives the hints, those of a rule too; empty: none
  /// The module is this stage of a pipeline: hints that name nothing of it are for
  /// others, and a plan has a part for each.
  int stage = -1;
  std::string cluster;      ///< path of a cluster file, for mode auto; empty: this host
  int64_t firstDevice = -1; ///< of the part of the cluster that a stage is on
  std::string
      memory; ///< bytes that a device may use, e.g. "16GiB"; empty: see docs/search.md
  std::string plan; ///< path of a plan.json that replaces deciding; empty: none
  std::vector<std::string> shapes;    ///< NAME=1,128; see entriesOf
  std::vector<std::string> constants; ///< NAME=FILE: inputs bound at compile time
  /// INPUT=OUTPUT: inputs that are what the output of the request before was.
  std::vector<std::string> states;
  /// By state its layout (Layout::str), where another entry of the bundle has it already.
  std::map<std::string, std::string> stateLayouts;
  /// By node its stage, where another entry of the bundle is cut already.
  std::map<std::string, int32_t> stageOfNode;
  std::string train; ///< path of a specification (docs/training.md); empty: inference
  /// What the backward pass computes again beside what the specification says.
  std::optional<PlanRecompute> recompute;
  /// Micro-batches of a step, where the specification leaves them open: the batch of the
  /// model's shape is cut into so many. Absent: one.
  std::optional<int64_t> accumulation;
  /// Of a step of which something was chosen: what no plan is faster than, with any such
  /// choice or none.
  std::optional<double> lowerBoundSeconds;
  std::string explain; ///< node name or glob
  std::string dumpDir; ///< receives 00-imported.mlir, …; empty: none
  /// The level to begin from: L2, L3 and L4 are read from dumpDir, where an earlier run
  /// has written them and a person or a tool may have changed them since.
  Level from = Level::L0;
  /// External data is copied into the bundle; else the bundle refers to it.
  bool copyWeights = false;
  /// All of the external data is hashed, not a sample, and compared with the SHA-1 that
  /// the model may state.
  bool hashWeights = false;
  /// Folders that are searched for external data before the model's own.
  std::vector<std::string> dataFolders = {};
  std::string target = "cpu"; ///< or "plain": without an engine
  std::string targetCpu;      ///< LLVM name; empty: this host's
  bool allToAll = true;       ///< false: reshard by slices, gathers and reductions only
  int threads = 1;            ///< per rank; 0: this machine's cores divided by the ranks
  Level to = Level::L5;
  bool wide = false; ///< every float type as f64: for evaluation, never for a bundle
  /// Whether Scan, Loop and recurrent operators become loops; else, and where the body of
  /// one cannot be imported, their iterations stand one behind the other.
  bool keepLoops = true;
};

/// What a rank receives in all, and the largest sum of the buffers that one step of
/// communication reads and writes.
struct Communication {
  int64_t receivedBytes = 0, peakBytes = 0;
};

/// What a compile did, for the command's summary.
struct CompileReport {
  /// By the conversions of the plan, and by the ops of the program: equal, or the compile
  /// fails.
  Communication priced, emitted;
  std::vector<PlanCollective> collectives;
  std::vector<std::string> notes; ///< sentences for the user
  int64_t numOps = 0, numTasks = 0, numKernels = 0;
  /// Per rank: weights as stored, weights as repacked for engines, and everything else.
  int64_t weightBytesPerRank = 0, packedBytes = 0, arenaBytes = 0;
  int64_t stateBytes = 0;       ///< per rank
  int64_t neededBytes = 0;      ///< of these, on the rank that has most of them together
  std::optional<PlanWork> work; ///< from L2 on
  /// Of a searched plan: the bytes that a device may use, and those that were expected.
  std::optional<int64_t> memoryLimit;
  int64_t plannedMemory = 0;
  double seconds = 0;
  /// Seconds of each stage: import, strategies, partition, code.
  std::vector<std::pair<std::string, double>> stages;
};

/// Receives progress: one short line per stage as it begins.
using Progress = std::function<void(const std::string &)>;

/// Reads the model with the given shapes and constants; `weights` as in LoadOptions.
Expected<onnx_model::Model> readModel(const CompileOptions &options, bool weights);

Expected<CompileReport> compileModel(const CompileOptions &options,
                                     const Progress &progress);

/// "work per rank: at most 1.2 GFLOP, …", one line.
std::string workText(const PlanWork &work);

/// A table of the collectives: op, bytes per rank, axes, source node, and the sums.
std::string summaryText(const std::vector<PlanCollective> &collectives,
                        bool inFull = false);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILE_H
