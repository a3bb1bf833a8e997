//===- Compiler.h - The stages behind compile and verify --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILER_H
#define PARTITA_PASSES_PIPELINES_COMPILER_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Kernels/Launches.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Price.h"
#include "passes/Import/Import.h"
#include "passes/Pipelines/Compile.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <compare>
#include <map>
#include <memory>

namespace partita::codegen {
class TargetModel;
}

namespace partita::onnx_model {
struct StagedModels;
}

namespace partita {

struct Unconverted;

/// A program at L1: a model, or its training step, of which nothing is chosen yet.
struct Program {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  WeightTable weights;
  /// The model's inputs in its order, those bound at compile time among them.
  std::vector<std::string> inputNames;
  /// Names of the model's symbolic dims by input and output, "" for other dims.
  std::map<std::string, std::vector<std::string>> dims;
  std::vector<std::string> sizes; ///< names of dims whose sizes are data
  StepFlags flags;                ///< of a training step that is derived
  /// Rows of a training step whose number of micro-batches is chosen.
  std::optional<int64_t> rows;

  Program clone() const;
};

/// Models and steps that a command, or an entry of several, has read and derived. Tries
/// of one request share them.
class Sources {
public:
  struct Form {
    bool wide = false; ///< every float type as f64: for evaluation, never for a bundle
    /// Whether Scan, Loop and recurrent operators become loops; else, and where the body
    /// of one cannot be imported, their iterations stand one behind the other.
    bool keepLoops = true;
    /// Set if pairs of QuantizeLinear and DequantizeLinear stay around products of real
    /// numbers, as the file has them: to compare other programs with.
    bool keepPairs = false;
    auto operator<=>(const Form &) const = default;
  };

  /// `weights`: see LoadOptions::weights.
  explicit Sources(bool weights);

  /// The model of a request, with what a training step of the file begins with: one for
  /// each list of shapes, and each way to read it.
  Expected<std::shared_ptr<const onnx_model::Model>> read(const Request &request,
                                                          Form form);

  /// The files of a request's ranks, which are those of a pipeline's stages; `meshes` and
  /// `ranks` as for mergeStages.
  Expected<onnx_model::StagedModels>
  readStages(const Request &request, Form form, const std::vector<Mesh> &meshes,
             const std::vector<std::vector<int64_t>> &ranks) const;

  /// Context of every module, which is dropped before the context.
  mlir::MLIRContext context;
  /// Training steps by their number of micro-batches, with what was remarked of them.
  /// Kept if somebody tries several choices of one step.
  struct Step {
    Program program;
    std::vector<std::string> notes;
  };
  std::map<int64_t, Step> steps;
  bool keepsSteps = false;

private:
  bool weights;
  std::map<std::pair<std::string, Form>, std::shared_ptr<const onnx_model::Model>> known;
};

struct CommunicationOrder;

/// A request on its way: of one entry, stage or try, with what earlier ones say. Copies
/// share the sources.
struct Job {
  Job(Request request, Progress progress, StopFlag stop = {})
      : request(std::move(request)), progress(std::move(progress)), stop(stop) {
    beginSources();
  }

  Request request;
  Feedback feedback = {};
  Progress progress;
  /// Asks the job to end, between two passes or within a search.
  StopFlag stop;
  std::shared_ptr<Sources> sources;
  Sources::Form form = {};
  /// The module is this stage of a pipeline: hints that name nothing of it are for
  /// others, and a plan has a part for each; −1: it is a whole program.
  int stage = -1;

  /// Begins sources of another entry, whose compiler lives beside those of earlier
  /// entries and hears its own diagnostics.
  void beginSources() {
    sources = std::make_shared<Sources>(request.levels.to == Level::L5);
  }

  /// The same as a try up to a level, which writes and tells nothing.
  Job upTo(Level level) const;
};

/// Imports a model that was read for a job. Where a loop cannot stay one, `model` becomes
/// that with its loops unrolled. `unsupported` and `training` as for importModel; null:
/// not asked for.
Expected<ImportedModel> importLooped(const Job &job,
                                     std::shared_ptr<const onnx_model::Model> &model,
                                     std::vector<UnsupportedNode> *unsupported,
                                     const TrainingImport *training);

/// One compile, stage by stage. Each stage works on `module` and returns the first
/// diagnostic as an error; remarks are collected in the report's notes.
class Compiler : public Program {
public:
  /// The job must outlive the compiler. Diagnostics go to the compiler that was made last
  /// of those with the same sources.
  explicit Compiler(const Job &job);
  ~Compiler();

  /// L0 and L1: reads, imports and simplifies the model, derives the training step, and
  /// marks what is computed again.
  Expected<void> import();
  /// The last part of it for a program that does not train, which a definition is
  /// without: products of what pairs of QuantizeLinear and DequantizeLinear give, on
  /// bytes.
  Expected<void> setAccuracy();
  Expected<void> quantize();
  /// L2: decides strategies.
  Expected<void> annotate();
  /// The first half of it: strategies stand on ops, conversions are no ops yet.
  Expected<void> decide();
  /// L2 without marks: what the backward pass computes again is there twice.
  Expected<void> completeConversions();
  /// L3: one rank's program.
  Expected<void> partition();
  /// L4: who runs what when.
  Expected<void> schedule();
  /// Buckets of a step's collectives as `plan` says; absent: there are to be none.
  std::optional<CommunicationOrder> communication() const;
  /// L5: the bundle.
  Expected<void> emit();
  /// One of these, which takes its time in the report; none if the request ends before
  /// its level.
  Expected<void> timed(Level level, const char *name, Expected<void> (Compiler::*step)());
  /// States on a decided module what was decided beside ops, values and ends.
  Expected<void> stateFacts();
  /// Fills `plan` from a planned program, or one that is decided, whose facts then are
  /// those of the plan.
  Expected<void> recordPlan();
  /// plan.json beside the levels.
  Expected<void> dumpPlan();

  mlir::MLIRContext &context; ///< of the job's sources
  CompileReport report;
  Feedback next; ///< states after annotate(), stages of a pipeline: for other entries
  Plan plan;     ///< filled by annotate() and partition()
  Price price;   ///< of the plan, before it is partitioned
  /// Runs on the imported model before a training step is derived of it; empty: nothing.
  std::function<Expected<void>()> onImported;
  /// The module is a stage's step: partition() cuts it into segments (partita-cut-step),
  /// with gradients of weights apart or not.
  bool cutsStep = false, partsWeights = false;
  bool isQuantized = false; ///< quantize() has changed the program

  /// Runs what `add` adds, then writes the module as `dump`, unless that is empty.
  Expected<void> runPasses(const std::string &dump,
                           const std::function<void(mlir::OpPassManager &)> &add);

  /// What a diagnostic said before `error` came of it, or that.
  Error firstError(Error other) const { return error.message.empty() ? other : error; }

private:
  Expected<void> derive();
  Expected<void> narrow();
  Expected<void> markChosen();
  /// Writes the module beside the levels, unless nothing is written there.
  Expected<void> dump(const std::string &name);
  Expected<PlanStage> stageOf(Unconverted decided);
  Expected<void> divide();
  Expected<void> cutStep();
  Expected<void> keepStates();
  void recordStates();
  /// Replaces the module by what an earlier run has written for a level, and verifies it.
  Expected<void> readLevel(const std::string &dump,
                           const std::function<void(mlir::PassManager &)> &verifiers);
  Expected<void> checkPrice();
  Expected<void> splitCollectives();
  void summarize();

  const Job &job;
  const Request &request; ///< of it
  mlir::DiagnosticEngine::HandlerID handler;
  Error error; ///< the first that a diagnostic told of; no message: none
};

/// A compile of one entry, up to the level that is asked for, but no bundle.
class EntryCompiler {
public:
  virtual ~EntryCompiler() = default;
  virtual Expected<void> run() = 0;
  /// What has the product.
  virtual Compiler &compiler() = 0;
};
/// A bad output is known before the work, not after it: an error if the bundle that a
/// request names cannot be made.
Expected<void> checkOutput(const Request &request);

/// Compiler of one program, which keeps the job; CompileStages.h has that of a pipeline.
std::unique_ptr<EntryCompiler> straightCompiler(const Job &job);

/// Writes one bundle of what compilers have at L4 (or, of one function, at L3), an entry
/// each, for `target`; null: that which the request names. The first's report gets the
/// figures.
using NamedCompiler = std::pair<std::string, Compiler *>;
Expected<void> emitEntries(const std::vector<NamedCompiler> &compilers,
                           const Request &request,
                           const codegen::TargetModel *target = nullptr);

/// What the program of a compile at L4 needs (CompileReport::neededBytes); no code is
/// made.
struct ProgramNeeds {
  int64_t bytes = 0;
  PlanMemory memory; ///< of the first program of a pipeline
  int64_t numTasks = 0;
  int64_t numKernels = 0;     ///< different ones
  kernels::Launches launches; ///< of a request
};
Expected<ProgramNeeds> measureProgram(Compiler &compiler, const Request &request);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILER_H
