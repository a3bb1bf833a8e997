//===- Spec.h - What `--train` asks for -------------------------*- C++ -*-===//
//
// A training step is a model, a loss, an optimizer and how its parts are laid out. The
// file is JSON; docs/training.md lists every key. Names are those of the model's file,
// patterns those of hints.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TRAIN_SPEC_H
#define PARTITA_TRAIN_SPEC_H

#include "partita/Base/Compute.h"
#include "partita/Base/Error.h"
#include "partita/Comm/Order.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita::train {

enum class LossKind : uint8_t {
  SoftmaxCrossEntropy,
  Nll,
  Mse,
  L1,
  BceWithLogits,
  Output
};

struct Loss {
  LossKind kind = LossKind::SoftmaxCrossEntropy;
  /// The output that the loss is of; of kind Output the scalar that is the loss.
  std::string of;
  /// The new input that holds labels (classes) or targets (numbers).
  std::string labels;
  /// Of classes: the dim of `of` that holds them, from the end where negative. Needed
  /// where `of` has more than two dims.
  std::optional<int64_t> axis;
  std::optional<int64_t> ignoreIndex; ///< labels that do not count
  double labelSmoothing = 0;          ///< in [0, 1)
  bool mean = true;                   ///< over what counts; else the sum
};

enum class OptimizerKind : uint8_t { Sgd, Adam, AdamW, Lamb, Adagrad };

/// Defaults are PyTorch's; those of a kind are filled in by the reader.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::Sgd;
  double rate = 1e-3;
  double momentum = 0, dampening = 0; ///< of sgd
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999; ///< of adam, adamw, lamb
  double epsilon = 1e-8;
  double rateDecay = 0; ///< of adagrad
  double weightDecay = 0;
  std::vector<std::string> noDecay; ///< globs of parameters without decay
};

enum class ScheduleKind : uint8_t { Constant, Linear, Cosine, Step };

/// What the rate is multiplied by at step t = 1, 2, …: t / warmup up to the end of the
/// warm-up; behind it 1, or from 1 to `final` at `total` along a line or half a cosine,
/// or gamma to the number of whole `every` steps since.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  int64_t warmup = 0, total = 0, every = 0;
  double final = 0, gamma = 0.1;
};

/// Where the states, gradients and weights of replicated parameters lie
/// (docs/training.md).
struct OptimizerParallel {
  bool enable = false;
  int level = 1; ///< 1: states; 2: and gradients; 3: and weights
  bool accumulationShard = false;
  int64_t thresholdBytes = 64 * 1024; ///< smaller parameters stay whole
  int64_t shardSize = -1;             ///< ranks that share; -1: all that replicate
};

struct Recompute {
  std::vector<std::string> nodes; ///< globs
  /// What they name is one segment; else each node or module that one names.
  bool together = false;
  /// The named nodes are a segment per layer, by structure, instead (Train/Layers.h).
  bool byLayer = false;
  bool isChosen = false; ///< under a memory limit, and not written in the file
  /// What they make is computed again whatever reads it; else what others of the forward
  /// pass read is kept.
  bool exactly = false;
  bool modelParallelCommunication = true;
  bool optimizerParallelCommunication = false;
};

/// Collectives of gradients and of updates that are one call (docs/communication.md).
struct CommFusion {
  struct Kind {
    buckets::Fusion fusion; ///< without groups
    /// Globs of parameters, a list for each group. The first that names one has it.
    std::vector<std::vector<std::string>> groups = {};
  };
  Kind kinds[buckets::numCallKinds] = {}; ///< by buckets::CallKind

  /// Every collective is a call of its own.
  static CommFusion closed() {
    CommFusion fusion;
    for (Kind &kind : fusion.kinds)
      kind.fusion.mode = buckets::Fusion::Mode::Alone;
    return fusion;
  }
};

struct LossScale {
  double initial = 1;
  bool dynamic = false;
  int64_t growEvery = 2000;
};

/// A step whose loss or gradients are not finite is one like any other; says so; or says
/// so and changes no state.
enum class OnNan : uint8_t { GoOn, Stop, Skip };
/// Outputs by which a derived step says so: one that changes no state then, and others.
inline constexpr const char *skippedOutput = "skipped", *stopOutput = "not_finite";

struct Spec {
  /// The training step of this number that the model's file has, which is then all that
  /// there is to say.
  std::optional<int64_t> trainingInfo;
  Loss loss;
  /// Globs of what trains and, of that, what does not. Without the first every float
  /// initializer of at least one dim trains, but for running moments.
  std::vector<std::string> parameters, freeze;
  Optimizer optimizer;
  Schedule schedule;
  std::optional<double> clipNorm;
  bool gradientNorm = false; ///< it is an output without clipping too
  OnNan onNan = OnNan::GoOn;
  /// Micro-batches of a step. Where they are chosen for it, `accumulation` is 1 until
  /// they are, and the step is the same whatever is chosen.
  int64_t accumulation = 1;
  bool choosesAccumulation = false;
  bool sumGradients = false; ///< over accumulated micro-batches; else their mean
  Compute compute = Compute::F32;
  std::optional<LossScale> lossScale;
  uint64_t seed = 0;
  bool batchStatistics = true; ///< of BatchNormalization; else the running ones
  /// The bundle gets an entry that gives the loss alone (docs/training.md).
  bool evaluates = false;
  OptimizerParallel optimizerParallel;
  std::vector<Recompute> recompute;
  CommFusion commFusion;
  /// Where a step does not fit into memory, what it computes again is chosen for it.
  bool choosesRecompute = true;
};

/// An error names the file, the place in it, and what was expected there.
Expected<Spec> readSpec(const std::string &path);
/// The same of a text that is called `path`.
Expected<Spec> parseSpec(const std::string &text, const std::string &path);

/// Computation of the step, as JSON on one line with every default written out and
/// `"complete": true`: two files that differ in defaults alone give the same text.
/// Members that say how the step is planned are left out.
std::string completeText(const Spec &spec);

} // namespace partita::train

#endif // PARTITA_TRAIN_SPEC_H
