//===- Internal.h - Parts of the launcher -----------------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_INTERNAL_H
#define PARTITA_LIB_RUNTIME_LAUNCH_INTERNAL_H

#include "partita/Runtime/Fit.h"
#include "partita/Runtime/Launch.h"
#include "partita/Runtime/Session.h"

#include <chrono>

namespace partita::runtime {

/// The name of the entry that takes the inputs that the options name, unless they name
/// the entry. An error lists the entries that there are.
Expected<std::string> entryFor(const RunOptions &options);

/// Inputs in the files that the options name, in the entry's order and checked against
/// it. With `pad` what is shorter is filled; `extents` are what it was.
Expected<std::vector<StoredTensor>>
openInputs(const RunOptions &options, const EntryInterface &entry, Extents &extents);
/// The files of an entry's inputs that the options name by --input or --inputs-dir, else
/// "".
Expected<std::vector<std::string>> pathsOf(const RunOptions &options,
                                           const std::vector<TensorInfo> &expected);
/// An error if a file's tensor is not of the input's type, or of this shape.
Expected<void> checkTensor(const TensorInfo &info, const StoredTensor &tensor,
                           const std::vector<int64_t> &shape, const std::string &path);
/// "[2, 3]".
std::string shapeText(const std::vector<int64_t> &shape);

/// Says before a run, which may be long, why its outputs could not be written after it.
Expected<void> checkOutputs(const RunOptions &options);
/// Makes the folder of logs unless it is there. An error if it cannot be written into.
Expected<void> makeLogFolder(const RunOptions &options);
/// Writes output_K.pb (and .npy) into the outputs folder.
Expected<void> writeOutputs(const RunOptions &options,
                            const std::vector<TensorInfo> &infos,
                            const std::vector<HostTensor> &outputs);

/// The file of the states; empty: none is asked for. Makes its folder on the root. An
/// error if the bundle has no states.
Expected<std::string> openStateDir(const RunOptions &options, const Session &session);

class RunLogs;

/// What requests of a session are made with.
struct RunParts {
  Session &session;
  const RunOptions &options;
  std::string states;               ///< a file; empty: none
  std::vector<HostTensor> &outputs; ///< of the last request, on the root
  RunLogs &logs;                    ///< of the ranks of this process
  RankProgress *entry = nullptr; ///< its task tells the entry in use; null: nobody asks
};
/// Result of steps on data.
struct DataSteps {
  std::vector<double> seconds; ///< of each
  int signal = 0;              ///< see RunEnd
};
/// An error that names the first op of the last request, called `request`, that made a
/// number which is not finite, where the options ask for it and a result is not. A call
/// of all processes.
Expected<void> checkFinite(Session &session, const RunOptions &options,
                           const std::string &request);
/// The steps of the options on their data, each on its own rows. `steps` are behind the
/// states already; it counts on.
Expected<DataSteps> runOnData(RunParts &parts, int64_t &steps, const Print &print);

/// Everything one process does: load, read, run, write. `progress` may be null.
Expected<RunEnd> runRanks(const RunOptions &options, TransportKind transport,
                          RankProgress *progress, const Print &print);

/// Work of a watched process, whose error is that of the run. `progress` is by rank.
using WatchedMain = std::function<Expected<RunEnd>(RankProgress *progress)>;
/// Runs `main` in a child process that is watched. `options` say which bundle and entry
/// the ranks run, and the timeout.
Expected<RunEnd> watch(const RunOptions &options, const WatchedMain &main);

/// End of a run in which the process of a rank (-1: it is not known which) was ended by
/// this signal: an error where the process itself was the cause, by what it computed or
/// wrote, else a loss. `asked`: the signal that had asked the run to stop; 0: none.
Expected<RunEnd> endedBy(int signal, const std::string &message, int asked = 0,
                         int rank = -1);

/// Tries of a run that loses ranks: at most so many in a row without a new generation in
/// between, behind pauses that grow. The only place where this is decided.
class Restarts {
public:
  Restarts(std::string folder, int64_t most);
  /// A run begins.
  void begin();
  /// The run that had begun was lost. Prints a line, waits, and is true; or says that it
  /// is to end, and how, in `end`: that was often enough, or SIGTERM or SIGINT came.
  bool again(RunEnd &end, const Print &print);
  /// Nothing could begin, as `end` says: likewise.
  bool wait(RunEnd &end, const Print &print);

private:
  double nextPause();
  const std::string folder;
  const int64_t most;
  int64_t tries = 0, newest;
  std::chrono::steady_clock::time_point began;
};

/// Step of the newest generation of a folder that has a name; -1: none.
int64_t newestStep(const std::string &folder);

/// Makes the run, and again from the newest generation as often as the options allow
/// where a rank is lost and nobody has asked the run to stop; then `options` resume. A
/// line is printed for each loss.
Expected<RunEnd> runAgain(RunOptions &options, const Print &print,
                          const std::function<Expected<RunEnd>()> &run);

/// Makes the run on as many ranks as there are places, and again with fewer or more where
/// places are lost or come back.
Expected<RunEnd> runElastic(RunOptions options, const Print &print);

/// The ranks as threads of a watched child process, and the ranks under mpirun. `grows`
/// is asked some times a second: once it is true, the run stops behind a step that is
/// saved.
Expected<RunEnd> runWatched(const RunOptions &options, const Print &print);
Expected<RunEnd> runMpi(const RunOptions &options, const Print &print,
                        const std::function<bool()> &grows = {});

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_INTERNAL_H
