//===- EmitBundle.h - From a partitioned module to a bundle -----*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_BUNDLE_EMITBUNDLE_H
#define PARTITA_PASSES_CODEGEN_BUNDLE_EMITBUNDLE_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "passes/Codegen/Common/Memory.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace partita::codegen {

/// Where the bytes of a weight are.
struct WeightData {
  DType type = DType::F32; ///< of the bytes: a narrower program has them rounded
  std::vector<int64_t> shape;
  /// The bundle refers to this place; the file must stay. Empty: `bytes` are copied into
  /// the bundle.
  std::string file;
  std::string location; ///< of the file, relative to the model's folder
  uint64_t fileOffset = 0;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner; ///< keeps `bytes` alive
};
/// The global tensor of a graph.weight, by name.
using WeightSource = std::function<Expected<WeightData>(const std::string &)>;

/// What a bundle runs for one set of input shapes.
struct EmitEntry {
  std::string name = "main";
  /// Of level L4, which has passed its gate, or with one partitioned function (L3), which
  /// runs once. Weights of one name may differ between entries (what importing folds).
  mlir::ModuleOp module;
  WeightSource weights;
  /// By input and output the names of the model's symbolic dims, "" for others.
  std::map<std::string, std::vector<std::string>> dims = {};
  /// Outputs of the programs that are sizes of such dims, see BundleEntry.
  std::vector<std::string> sizes = {};
  StepFlags flags = {};
};

struct EmitOptions {
  std::string out;   ///< folder, which does not exist yet
  std::string place; ///< where it is to stand in the end; empty: `out`
  int threads = 1;   ///< per rank; 0: this machine's cores divided by the ranks
  int64_t workPerPart = 10'000; ///< see codegen::TeamPlan
  std::string compute = "f32";  ///< see Bundle
  std::string model;            ///< file name of the source model, for messages
  /// The model's inputs in its order, those bound at compile time among them; empty: the
  /// program's.
  std::vector<std::string> inputs;
  /// Files that are referred to are hashed whole; else a sample of their blocks.
  bool hashWeights = false;
  std::string function = "main"; ///< of entries that are of L3
  /// The text of plan.json, given by entry what each program needs; null: none.
  std::function<std::string(const std::vector<std::vector<PlanMemory>> &)> plan = nullptr;
  /// Texts that are part of the bundle as they are, by the name of their file.
  std::map<std::string, std::string> texts = {};
  /// Folder that receives what lies in each arena, arena-0.json, …, and the kernels as
  /// LLVM IR, stage-0.ll, …; empty: none.
  std::string dumpDir;
};

/// What was predicted, per rank, at most. `weightBytes`: all weights as they are stored.
struct EmitReport {
  uint64_t arenaBytes = 0, arenaLowerBound = 0, weightBytes = 0, packedBytes = 0,
           stateBytes = 0;
  /// Arena, weights and states of the rank that has most of them together.
  uint64_t neededBytes = 0;
  size_t numTasks = 0, numKernels = 0;
  kernels::Launches launches;     ///< of all programs together
  std::vector<PlanMemory> memory; ///< by program
  /// Nodes that might be faster, and why they are not: see codegen::Program.
  std::vector<std::pair<std::string, std::string>> notes;
  /// Nodes whose code is slow: see slowNodes. Nothing where no code is made.
  std::vector<std::pair<std::string, std::string>> slow;
};

/// Writes a bundle of entries, which are for one mesh, or for pipelines of equal numbers
/// of ranks, for any target. Their states of one name are one. Errors of a program are
/// also reported at the op. Equal input gives equal bytes; after an error nothing is
/// left.
Expected<EmitReport> emitBundle(std::span<const EmitEntry> entries,
                                const TargetModel &target, const EmitOptions &options);

/// What each program of an entry would need. No code is made and nothing is written.
Expected<EmitReport> measureEntry(const EmitEntry &entry, const TargetModel &target,
                                  const EmitOptions &options);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_BUNDLE_EMITBUNDLE_H
