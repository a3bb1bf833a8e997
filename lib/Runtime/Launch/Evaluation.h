//===- Evaluation.h - Loss of rows that are held out ------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_EVALUATION_H
#define PARTITA_LIB_RUNTIME_LAUNCH_EVALUATION_H

#include "DataFeed.h"

namespace partita::runtime {

/// An error if the options ask for an evaluation that the bundle cannot make: it has no
/// entry for it, or the file is not what the entry takes. Nothing is loaded.
Expected<void> checkEvaluation(const RunOptions &options);

struct EvaluationEnd {
  double loss = 0; ///< of the root; without a meaning elsewhere, and where a signal is
  int signal = 0;  ///< that has asked the run to stop meanwhile, for all processes alike
};

/// The mean loss over the rows of a file, by the entry of the bundle that evaluates, on
/// the states as they are. All processes make the same calls.
class Evaluation {
public:
  /// For a session that has loaded all entries. `used`: see RunParts::entry.
  static Expected<Evaluation> open(Session &session, const RunOptions &options,
                                   RankProgress *used);

  /// Tells if it is due behind this step.
  bool isDue(int64_t step, bool isLast) const {
    return isLast || (options->every > 0 && step % options->every == 0);
  }
  /// Hash that tells other rows to evaluate on.
  const std::string &data() const { return hash; }
  /// Runs all rows; afterwards the session is about the entry that it was about before.
  Expected<EvaluationEnd> run();

private:
  Evaluation(Session &session, const RunOptions &options, RankProgress *used,
             size_t entry, DataFeed feed);
  Expected<void> runBatch(int64_t begin);

  Session *session;
  const RunOptions *given;
  const EvaluationOptions *options;
  RankProgress *used;
  size_t entry; ///< of the session
  DataFeed feed;
  std::string hash;
  // Buffers of a request.
  std::vector<float> weights; ///< by row
  std::vector<const std::byte *> from;
  std::vector<HostTensor> outputs;
  std::vector<std::byte *> to;
  // Sums of a run.
  double sum = 0, counted = 0;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_EVALUATION_H
