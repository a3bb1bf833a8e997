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

#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Base/Error.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita::runtime {

struct RunOptions {
  std::string bundle;
  std::string entry;               ///< empty: the one that takes the inputs
  bool pad = false;                ///< shorter inputs are filled with zeros, see Fit.h
  std::string transport = "auto";  ///< "local", "mpi"; "auto": mpi if started by mpirun
  std::vector<std::string> inputs; ///< "NAME=FILE.npy" or "NAME=FILE.pb"
  std::string inputsDir;           ///< input_K.pb, in the order of the inputs
  std::string outputsDir;          ///< output_K.pb; made if it does not exist
  bool npy = false;                ///< also write output_K.npy
  std::string stateDir;            ///< state.safetensors, read if there, and written
  int repeat = 1;
  bool profile = false;            ///< record what ranks do
  double timeout = 60;             ///< seconds
  std::optional<int> threads = {}; ///< see SessionOptions

  /// How to start this program again as an MPI rank: "partita" and "run", say, and the
  /// options of the command that are not among these.
  std::vector<std::string> self;
  /// Called when all is done and written, in the process that has the outputs. Its error
  /// is the run's.
  std::function<Expected<void>(const RunRecord &)> finished = {};
};

/// Receives lines for the user, without a newline. May be called from a child process.
using Print = std::function<void(std::string_view)>;

/// An error is one sentence. Prints a line per request with its seconds, and the outputs'
/// names and shapes.
Expected<void> runBundle(const RunOptions &options, const Print &print);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_LAUNCH_H
