//===- Launch.h - Running a bundle from files -------------------*- C++ -*-===//
//
// What `partita run` and `partita-run` do, apart from reading the command line: start
// the ranks (local: a watched child process whose threads are the ranks; mpi: through
// mpirun, unless this process is a rank already), read inputs, run requests, write
// outputs. Never hangs and leaves no process behind.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_LAUNCH_H
#define PARTITA_RUNTIME_LAUNCH_H

#include "partita/Base/Bundle/BundleRun.h"
#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Base/Bundle/WeightOptions.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Runtime/DataOrder.h"
#include "partita/Runtime/NotFinite.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::runtime {

/// Generations of the states of a run on data, see docs/checkpoints.md.
struct CheckpointOptions {
  std::string folder;      ///< empty: none
  double everySeconds = 0; ///< between saves; 0: see DataOptions::saveEvery
  int64_t keep = 3;        ///< generations that stay
  /// Goes on behind the newest generation, if there is one; else one there is an error.
  bool resume = false;
  /// Names (docs/checkpoints.md) of differences that are let pass.
  std::vector<std::string> allowed;
  /// Where a run that begins takes its weights from (loadWeights); empty: as the bundle
  /// has them.
  std::string weightsFrom = {};
  bool stopsOnError = false; ///< a save that fails ends the run; the last one always does
  double grace = 25;         ///< seconds from a signal to the end
  /// How often in a row a run that lost a rank is started again, without a new generation
  /// in between. Absent: never, or thrice where the number of ranks may change.
  std::optional<int64_t> restarts;
};

/// Numbers of ranks with which a run may go on (docs/elastic.md).
struct ElasticRanks {
  int64_t least = 1, most = 1;
  bool operator==(const ElasticRanks &) const = default;
};
/// "2..8" or "4". An error names the text.
Expected<ElasticRanks> parseElastic(const std::string &text);

/// Loss of rows that are held out, while a step trains (docs/training.md).
struct EvaluationOptions {
  std::vector<std::string> files; ///< as DataOptions::files; empty: none
  int64_t every = 0;              ///< steps; 0: behind the last one only
  /// The generation with the least loss stays as best-NAME; empty: none does. Needs
  /// checkpoints.
  std::string best;
};

/// Requests on the rows of files, see docs/data.md.
struct DataOptions {
  /// Files as openTensor takes them, a tensor per input, or patterns of the shell for
  /// them; empty: none.
  std::vector<std::string> files;
  /// The run ends with whichever comes first; without both after one epoch.
  std::optional<int64_t> steps, epochs;
  std::optional<int64_t> batch; ///< what the entry must take
  uint64_t seed = 0;
  LastBatch last = LastBatch::Drop;
  std::string log; ///< a line of JSON per step; empty: none
  /// Port, or address and port, at which metrics are told while it runs; empty: nowhere.
  std::string metrics;
  int64_t saveEvery = 0; ///< steps between writing the states; 0: at the end only
  /// Steps that a rank may begin before the one before them is over on all ranks, and its
  /// outputs are told (docs/training-pipelines.md). Absent: 1 for a pipeline, else 0.
  std::optional<int64_t> ahead = {};
  EvaluationOptions evaluation;
  /// With these, `steps` and `epochs` are those of all runs on the folder together.
  CheckpointOptions checkpoints;
};

struct RunOptions {
  std::string bundle;
  std::string entry;              ///< empty: the one that takes the inputs
  bool pad = false;               ///< shorter inputs are filled with zeros, see Fit.h
  std::string transport = "auto"; ///< "local", "mpi"; "auto": mpi if started by mpirun
  /// File of hosts for mpirun, lines "NAME slots=N": ranks go onto slots in order. Empty:
  /// all ranks are on this host.
  std::string hostfile;
  /// The run goes on with as many ranks as there are places, in the largest world of the
  /// bundle that has so many. Absent: with those of the bundle.
  std::optional<ElasticRanks> elastic;
  /// Plans the bundle of an elastic run anew for so many ranks; gives the new bundle's
  /// folder, or says why that is not possible here. Null: worlds of the bundle alone.
  std::function<Expected<std::string>(int64_t ranks)> planWorld = {};
  std::vector<std::string> inputs; ///< "NAME=FILE.npy" or "NAME=FILE.pb"
  std::string inputsDir;           ///< input_K.pb, in the order of the inputs
  std::string outputsDir;          ///< output_K.pb; made if it does not exist
  bool npy = false;                ///< also write output_K.npy
  std::string stateDir;            ///< state.safetensors, read if there, and written
  /// rank-R.log of what each rank tells, and supervisor.log; made if it does not exist.
  std::string logDir;
  DataOptions data;
  int repeat = 1;
  int commThreads = 0;            ///< SessionOptions::commThreads of each process
  std::string mpiWindow = "auto"; ///< "auto", "on", "off", see MpiWindow; of mpi
  bool profile = false;           ///< record what ranks do
  bool findNan = false;           ///< with SessionOptions::findNan of:
  ReadPayload readPayload = {};
  double timeout = 60;             ///< seconds
  std::optional<int> threads = {}; ///< see SessionOptions
  WeightOptions weights = {};

  /// How to start this program again as an MPI rank: "partita" and "run", say, and the
  /// options of the command that are not among these.
  std::vector<std::string> self;
  /// Called when all is done and written, in the process that has the outputs. Its error
  /// is the run's.
  std::function<Expected<void>(const RunRecord &)> finished = {};
};

/// "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT" as address and port; without an address
/// that of this machine for itself alone. Names are no addresses.
Expected<std::pair<std::string, std::string>> parseAddress(const std::string &text);

/// Whether mpirun started this process; then its rank.
std::optional<int> mpiRank();

/// Receives lines for the user, without a newline. May be called from a child process.
using Print = std::function<void(std::string_view)>;

/// Exit status of a process that a signal has stopped in order, less the signal.
inline constexpr int signalStatus = 128;

/// Exit status of a run that lost a rank: nothing is wrong with the command.
inline constexpr int againStatus = 75;

/// How a run came to its end.
struct RunEnd {
  /// The signal behind whose step the run stopped and saved, or that asked for this
  /// before a rank was lost; 0: everything was done, unless a rank was lost.
  int signal = 0;
  /// Why nothing could be saved, or how a rank was lost; empty: neither.
  std::string problem = {};
  /// The process of a rank, or its host, is gone or stands still.
  bool isLost = false;
  /// The rank that was lost, where it is known; else -1.
  int lostRank = -1;
  /// The run stopped behind a step that is saved, since it may go on with more ranks.
  bool isGrowing = false;

  static RunEnd lost(std::string why, int signal = 0, int rank = -1) {
    return {signal, std::move(why), true, rank};
  }
};

/// An error is one sentence. Prints a line per request with its seconds, or of steps on
/// data at most one a second with their scalars, and the outputs' names and shapes.
Expected<RunEnd> runBundle(const RunOptions &options, const Print &print);

/// As runBundle of RunBundle.h, with the ranks as threads of a watched child process: if
/// that dies or stands still, the error names the rank and the node. The child is made by
/// fork(): not for a process in which another thread may hold a lock.
Expected<std::vector<HostTensor>>
runBundleWatched(const std::string &folder,
                 const std::map<std::string, HostTensor> &inputs,
                 std::map<std::string, HostTensor> &states, const BundleRun &how);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_LAUNCH_H
