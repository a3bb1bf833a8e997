//===- Verify.h - Checking a model's partitioning ---------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_VERIFY_H
#define PARTITA_PASSES_PIPELINES_VERIFY_H

#include "passes/Pipelines/Compile.h"
#include "passes/Pipelines/RunBundle.h"

namespace partita {

struct VerifyOptions {
  /// Folder with input_K.pb in the order of the model's inputs; empty: random inputs
  /// that reach what they index (passes/Reference/Inputs.h).
  std::string inputs;
  /// Folder with output_K.pb that the original must give too; empty: none.
  std::string expected;
  /// A bundle of the model, run on its ranks by `run` too; empty: none.
  std::string bundle;
  BundleRunner run = {};
  std::string entry; ///< of the bundle; empty: the first
  /// Folder for output_K.npy of the original with every float type as f64: what it gives
  /// but for rounding. If it is not empty, nothing else is done.
  std::string f64;
  /// Every float type of the model as f64, in both programs: what they differ by then is
  /// no rounding of narrower types.
  bool wide = false;
  /// Runs behind one another, each on other inputs and on the states that the one before
  /// left. More than one begin as a bundle does: with the model's weights, and zeros.
  int64_t steps = 1;
  double rtol = 1e-4, atol = 1e-5;
  /// Of a bundle, where its model is now; empty: in the bundle, or where it was compiled
  /// from, seen from the bundle or not.
  std::string model;
  /// Folder that is searched first for external data, and whether the bundle's weight
  /// files are checked.
  WeightOptions weights = {};
  /// Seconds. What the evaluator needs longer for is sampled, where there is a runner,
  /// and one step is asked for in the model's own types.
  double wholeWithin = 60;
  uint64_t seed = 1; ///< of the nodes that are drawn for a sample
  /// Hears of evaluations that take long; empty: nobody.
  Progress progress = {};
  /// Once it is raised, evaluating and running end with the error "cancelled".
  StopFlag stop = {};
};

/// Outcome of a comparison in which nothing differed.
struct Verified {
  std::vector<std::string> lines; ///< differences per output
  size_t numOutputs = 0;
  /// Outputs that had no element in any comparison, as the boxes of a detector that finds
  /// nothing: nothing is known of them.
  std::vector<size_t> unchecked;

  /// Nodes that the evaluator has computed of a model that was sampled.
  struct Sample {
    size_t nodes = 0, ofNodes = 0;
  };
  std::optional<Sample> sample = {};

  /// "checked: equal", or "sampled: equal, 12 of 340 nodes", where every output had
  /// elements; else which ones had none, too.
  std::string verdict() const;
};

/// Evaluates the imported program and the partitioned one, the latter on virtual ranks
/// with garbage in all padding, on the reference evaluator, and compares them with each
/// other and with the expected outputs. An error names the output and element.
///
/// A model for which that would take longer than `wholeWithin` is compiled twice, as
/// asked for and as one rank of the target `plain`, and the outputs of both are compared;
/// the evaluator computes nodes that are drawn (VerifySampled.h).
///
/// With several steps every one is compared; the lines are those of the last.
///
/// An f32 output of which an element misses rtol and atol is judged by its error against
/// the model in f64 (Tolerance::byErrors).
Expected<Verified> verifyModel(const Request &request, const VerifyOptions &options);

/// Evaluates the bundle's model with the bundle's plan as verifyModel does, and compares
/// a real run of the bundle with it.
Expected<Verified> verifyBundle(const std::string &bundle, VerifyOptions options);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_VERIFY_H
