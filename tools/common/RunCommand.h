//===- RunCommand.h - Command line of `run` ---------------------*- C++ -*-===//
//
// Shared by `partita run` and `partita-run`.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMMON_RUNCOMMAND_H
#define PARTITA_TOOLS_COMMON_RUNCOMMAND_H

#include "common/CommandLine.h"
#include "common/OutputFile.h"
#include "common/ReadPayload.h"
#include "partita/Base/Files/File.h"
#include "partita/Report/RunReport.h"
#include "partita/Runtime/Launch.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <unistd.h>

namespace partita {

struct RunCommandLine {
  runtime::RunOptions run;
  bool profile = false, json = false;
  std::string trace; ///< a file; empty: none
  /// What else is done when all is written, in the process that has the outputs.
  std::function<Expected<void>()> then = {};
};

/// Reads "40", "30s" or "10min" as steps or seconds between saves; empty: done.
inline std::string readSaveEvery(const std::string &text, runtime::DataOptions &data) {
  double number = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = unit == "min" ? 60 : 1;
  bool isSteps = unit.empty(), isTime = unit == "s" || unit == "min";
  constexpr double most = 1e15;
  if (failed != std::errc() || !(isSteps || isTime) || !(number > 0 && number < most) ||
      (isSteps && number != std::floor(number)))
    return "expected a number of steps, or of seconds or minutes as in 30s and 10min, "
           "got '" +
           text + "'";
  data.saveEvery = isSteps ? static_cast<int64_t>(number) : 0;
  data.checkpoints.everySeconds = isTime ? number * scale : 0;
  return {};
}

/// Adds an option that is one of some words.
template <typename T>
CLI::Option *addChoice(CLI::App &command, const std::string &name, T &value,
                       std::map<std::string, T> words, const std::string &description) {
  std::string list;
  for (const auto &[word, meaning] : words)
    list += (list.empty() ? "" : "|") + word;
  return command
      .add_option_function<std::string>(
          name,
          [name, &value, words, list](const std::string &given) {
            auto found = words.find(given);
            if (found == words.end())
              throw CLI::ValidationError(name,
                                         "expected " + list + ", got '" + given + "'");
            value = found->second;
          },
          description)
      ->type_name(list);
}

/// Adds options that say what a run goes on with, and how it may end.
inline void addResumeOptions(CLI::App &command, CLI::Option *folder,
                             runtime::CheckpointOptions &options) {
  command
      .add_flag("--resume", options.resume,
                "Go on behind the newest whole generation, or begin where there is none")
      ->needs(folder);
  command
      .add_option(
          "--weights-from", options.weightsFrom,
          "Begin with the weights of this checkpoint folder, generation or "
          "FILE.safetensors; all else begins as in the bundle. A run that goes on "
          "does not look at it")
      ->check(CLI::ExistingPath)
      ->needs(folder);
  command
      .add_option("--allow-change", options.allowed,
                  "What may differ from the run that is gone on with: seed, data, batch, "
                  "optimizer, schedule (with commas between)")
      ->delimiter(',')
      ->check(CLI::IsMember({"seed", "data", "batch", "optimizer", "schedule"}))
      ->allow_extra_args(false)
      ->needs(folder);
  command
      .add_option("--restarts", options.restarts,
                  "Where a rank is lost, start again from the newest generation, at most "
                  "so often in a row without a new one (default: 0, with --elastic 3)")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 31, "COUNT"))
      ->needs(folder);
  addChoice(command, "--on-save-error", options.stopsOnError,
            {{"continue", false}, {"stop", true}},
            "Where a generation cannot be written: continue (default), or stop")
      ->needs(folder);
  command
      .add_option("--grace", options.grace,
                  "Seconds from SIGTERM or SIGINT, behind which a generation is written, "
                  "to the end")
      ->check([](const std::string &text) {
        double seconds = -1;
        const bool isNumber = CLI::detail::lexical_cast(text, seconds);
        return isNumber && seconds >= 0 && seconds <= 1e9 // a NaN is neither
                   ? std::string()
                   : "expected a number of seconds from 0 to 1e9, got '" + text + "'";
      })
      ->capture_default_str()
      ->needs(folder);
}

/// Adds the options of checkpoints (docs/checkpoints.md).
inline void addCheckpointOptions(CLI::App &command, CLI::Option *file,
                                 runtime::DataOptions &data) {
  runtime::CheckpointOptions &options = data.checkpoints;
  CLI::Option *folder =
      command
          .add_option("--checkpoint-dir", options.folder,
                      "Write generations of the states into this folder; --steps and "
                      "--epochs are then those of all runs on it together "
                      "(docs/checkpoints.md)")
          ->check([](const std::string &name) {
            return name.empty() ? std::string("the folder has no name") : std::string();
          })
          ->needs(file)
          ->excludes("--state-dir");
  command
      .add_option_function<std::string>(
          "--save-every",
          [&data, &command](const std::string &text) {
            bool hasFolder = !data.checkpoints.folder.empty();
            if (std::string wrong = readSaveEvery(text, data); !wrong.empty())
              throw CLI::ValidationError("--save-every", wrong);
            if (data.checkpoints.everySeconds > 0 && !hasFolder)
              throw CLI::ValidationError("--save-every", "a time needs --checkpoint-dir");
            if (!hasFolder && command.count("--state-dir") == 0)
              throw CLI::ValidationError("--save-every",
                                         "needs --checkpoint-dir or --state-dir");
          },
          "Write the states after every N steps too, or with --checkpoint-dir every Ns "
          "or Nmin")
      ->type_name("N|Ns|Nmin")
      ->needs(file);
  command.add_option("--keep", options.keep, "Generations that stay")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 53, "POSITIVE"))
      ->capture_default_str()
      ->needs(folder);
  addResumeOptions(command, folder, options);
}

/// Says why a generation cannot have this name; empty: it can.
inline std::string refusalOfName(const std::string &name) {
  auto isLetter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
           c == '.';
  };
  // Names of what is written aside have a ".tmp-".
  if (!name.empty() && std::ranges::all_of(name, isLetter) &&
      name.find(".tmp-") == std::string::npos)
    return {};
  return "'" + name +
         "' is no name for best-NAME: expected letters, digits, '-', '_' and '.'";
}

/// Adds the options of evaluation while training (docs/training.md).
inline void addEvaluationOptions(CLI::App &command, CLI::Option *data,
                                 runtime::EvaluationOptions &options) {
  CLI::Option *file =
      command
          .add_option("--eval", options.files,
                      "Tell the mean loss over the rows of this .npz or .safetensors "
                      "file, or of several as with --data, which are held out, of a "
                      "bundle whose training file says \"evaluate\" (docs/training.md)")
          ->allow_extra_args(false)
          ->type_name("FILE|PATTERN")
          ->check([](const std::string &name) {
            return name.empty() ? std::string("the file has no name") : std::string();
          })
          ->needs(data);
  command
      .add_option("--eval-every", options.every,
                  "Do so behind every N-th step too, not the last one alone")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 53, "POSITIVE"))
      ->needs(file);
  command
      .add_option("--keep-best", options.best,
                  "Keep the generation with the least such loss as best-NAME of the "
                  "checkpoint folder")
      ->type_name("NAME")
      ->check(refusalOfName)
      ->needs(file)
      ->needs("--checkpoint-dir");
}

/// Those of `run` on a data file (docs/data.md).
inline void addDataOptions(CLI::App &command, runtime::DataOptions &data) {
  CLI::Option *file =
      command
          .add_option(
              "--data", data.files,
              "Run on rows of this .npz or .safetensors file, a tensor per input, "
              "shuffled in each epoch; several files by a pattern in quotes, or again "
              "(docs/data.md)")
          ->allow_extra_args(false)
          ->type_name("FILE|PATTERN")
          ->check([](const std::string &name) {
            return name.empty() ? std::string("the file has no name") : std::string();
          });
  CLI::Range positive(int64_t(1), int64_t(1) << 53, "POSITIVE");
  command.add_option("--steps", data.steps, "Steps to run (default: one epoch)")
      ->check(positive)
      ->needs(file);
  command
      .add_option("--epochs", data.epochs,
                  "Epochs to run, or fewer if --steps ends the run before")
      ->check(positive)
      ->needs(file);
  command
      .add_option("--steps-ahead", data.ahead,
                  "Steps that a rank may begin before the one before them is over on all "
                  "ranks (default: 1 for a pipeline, else 0; docs/training-pipelines.md)")
      ->check(CLI::Range(int64_t(0), int64_t(8), "0..8"))
      ->needs(file);
  command
      .add_option("--batch", data.batch,
                  "Rows per step; takes the entry of the bundle with this batch")
      ->check(positive)
      ->needs(file);
  command.add_option("--seed", data.seed, "Seed of the order of rows")
      ->check([](const std::string &text) {
        uint64_t seed = 0;
        const char *end = text.data() + text.size();
        auto [at, failed] = std::from_chars(text.data(), end, seed);
        const bool isPlain = text.size() == 1 || !text.starts_with('0'); // none is octal
        return at == end && failed == std::errc() && isPlain
                   ? std::string()
                   : "expected a whole number from 0 to 18446744073709551615, got '" +
                         text + "'";
      })
      ->capture_default_str()
      ->needs(file);
  addChoice(
      command, "--last", data.last,
      {{"drop", runtime::LastBatch::Drop}, {"pad", runtime::LastBatch::Pad}},
      "Last rows of an epoch, if they are less than a batch: drop (default), or pad "
      "with the epoch's first rows")
      ->needs(file);
  command
      .add_option("--log", data.log,
                  "Write a line of JSON per step: step, epoch, scalar outputs, seconds, "
                  "samples and tokens per second, memory")
      ->type_name("FILE.jsonl")
      ->needs(file);
  command
      .add_option(
          "--metrics", data.metrics,
          "Tell the same over HTTP in Prometheus' text form, at this port of this "
          "machine alone, or at ADDRESS:PORT")
      ->type_name("PORT|ADDRESS:PORT")
      ->check([](const std::string &where) {
        auto parsed = runtime::parseAddress(where);
        return parsed ? std::string() : parsed.error().message;
      })
      ->needs(file);
  addCheckpointOptions(command, file, data);
  addEvaluationOptions(command, file, data.evaluation);
}

inline void addElastic(CLI::App &command, runtime::RunOptions &options) {
  command
      .add_option_function<std::string>(
          "--elastic",
          [&options](const std::string &text) {
            auto ranks = runtime::parseElastic(text);
            if (!ranks)
              throw CLI::ValidationError("--elastic", ranks.error().message);
            options.elastic = *ranks;
          },
          "Go on with fewer ranks where some are lost, and with more where places come "
          "back, as the worlds of the bundle have them (docs/elastic.md)")
      ->type_name("LEAST..MOST")
      ->needs("--checkpoint-dir");
}

/// Adds the options of `run` to a command that users start as `program`.
inline void addRunOptions(CLI::App &command, const std::string &program,
                          RunCommandLine &line) {
  runtime::RunOptions &options = line.run;
  command.footer(
      "Examples:\n  " + program + " bundle --input x=x.npy --outputs-dir out\n  " +
      program + " bundle --inputs-dir test_data_set_0 --repeat 10 --profile\n  " +
      program + " bundle --inputs-dir test_data_set_0 --trace trace.json\n  " + program +
      " bundle --inputs-dir test_data_set_0 --transport mpi\n  " + program +
      " bundle --data train.npz --steps 100 --log metrics.jsonl\n"
      "  mpirun -n 4 partita-run bundle --inputs-dir test_data_set_0");
  // A script's unset variable must not be taken for an option that was not given.
  auto named = [](const std::string &folder) {
    return folder.empty() ? std::string("the folder has no name") : std::string();
  };
  command.add_option("bundle", options.bundle, "The folder that `partita compile` wrote")
      ->required();
  command
      .add_option("--transport", options.transport,
                  "How ranks talk: local (threads), mpi, or auto (mpi under mpirun)")
      ->capture_default_str();
  command
      .add_option(
          "--hostfile", options.hostfile,
          "Ranks on several hosts, over MPI: lines NAME slots=N, onto which ranks "
          "go in order (docs/deploy.md)")
      ->check(CLI::ExistingFile);
  command
      .add_option("--input", options.inputs,
                  "NAME=FILE: an input from FILE.npy, FILE.npz:NAME, "
                  "FILE.safetensors:NAME or FILE.pb (repeatable)")
      ->allow_extra_args(false);
  command
      .add_option("--inputs-dir", options.inputsDir,
                  "Read input_K.pb from this folder, in the order of the inputs")
      ->check(named);
  CLI::Option *outputs = command
                             .add_option("--outputs-dir", options.outputsDir,
                                         "Write output_K.pb into this folder")
                             ->check(named);
  command.add_flag("--npy", options.npy, "Write output_K.npy too")->needs(outputs);
  command
      .add_option(
          "--state-dir", options.stateDir,
          "Read the states from this folder's state.safetensors if it is there, and "
          "write them back at the end; any bundle with these states reads it")
      ->check(named);
  command
      .add_option("--log-dir", options.logDir,
                  "Write what each rank tells into this folder's rank-R.log, and what "
                  "the process "
                  "tells that watches the ranks into supervisor.log")
      ->check(named);
  addDataOptions(command, options.data);
  addElastic(command, options);
  command.add_option("--repeat", options.repeat, "Run this many requests, timing each")
      ->capture_default_str();
  command.add_flag("--profile", line.profile,
                   "Print seconds, waiting and bytes received per source node");
  command.add_flag("--find-nan", options.findNan,
                   "Where a result is NaN or infinite, end with the name of the first "
                   "node that made such a number (slow; docs/runtime.md)");
  command
      .add_option("--trace", line.trace,
                  "Write what each rank did when, for https://ui.perfetto.dev")
      ->type_name("FILE.json")
      ->check([](const std::string &file) {
        return file.empty() ? std::string("the file has no name") : std::string();
      });
  command.add_flag("--json", line.json, "Write a JSON document in place of text");
  command
      .add_option("--timeout", options.timeout,
                  "Give up on a rank without progress for this many seconds")
      ->check([](const std::string &text) {
        double seconds = 0;
        const bool isNumber = CLI::detail::lexical_cast(text, seconds);
        return isNumber && seconds > 0 // a NaN is not
                   ? std::string()
                   : "expected a number of seconds above 0, got '" + text + "'";
      })
      ->capture_default_str();
  command
      .add_option("--threads", options.threads,
                  "Threads per rank: as the bundle was compiled (default), or fewer; 0: "
                  "the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  command
      .add_option("--comm-threads", options.commThreads,
                  "Threads of each process beside its ranks that move data of started "
                  "collectives; with MPI at most one (docs/communication.md)")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      .add_option("--mpi-window", options.mpiWindow,
                  "Memory that ranks of one host share under MPI: on, off (messages), or "
                  "auto: on where the system allows it (docs/runtime.md)")
      ->type_name("auto|on|off")
      ->capture_default_str();
  addWeightsDir(command, options.weights.folder);
  addNoCheck(command, options.weights.check);
  command.add_option("--entry", options.entry,
                     "Which entry point of the bundle (default: the one that takes "
                     "inputs of these shapes)");
  command.add_flag("--pad", options.pad,
                   "Fill inputs that are shorter than an entry's with zeros along "
                   "symbolic dims, and cut the outputs (docs/entries.md)");
}

/// What is printed and written when a run is over. Its own process knows whether that
/// went well: with several, it is another one than the user started.
inline Expected<void> reportRun(const RunCommandLine &line, const RunRecord &record) {
  if (!line.trace.empty())
    if (auto ok = writeFile(line.trace, report::traceJson(record)); !ok)
      return ok;
  std::string text;
  if (line.json)
    text = report::runJson(record);
  else if (line.profile)
    text = report::profileText(record);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
    return {};
  return makeError(std::string("cannot write to standard output: ") +
                   std::strerror(errno));
}

/// Runs and reports; `words` is how this program is started for `run`, e.g. {"run"}.
/// Returns the exit status.
inline int runCommand(RunCommandLine &line, std::vector<std::string> words = {}) {
  runtime::RunOptions &options = line.run;
  char path[PATH_MAX] = {};
  if (::readlink("/proc/self/exe", path, sizeof(path) - 1) <= 0)
    std::snprintf(path, sizeof(path), "partita-run");
  options.self = {path};
  options.self.insert(options.self.end(), words.begin(), words.end());
  if (line.profile)
    options.self.emplace_back("--profile");
  if (line.json)
    options.self.emplace_back("--json");
  if (!line.trace.empty()) {
    options.self.insert(options.self.end(), {"--trace", line.trace});
    if (auto ok = makeFolderOf(line.trace); !ok)
      return fail(ok.error().message);
  }
  options.profile = line.profile || !line.trace.empty();
  options.readPayload = readPayload;
  options.finished = [&](const RunRecord &record) {
    auto ok = line.then ? line.then() : Expected<void>();
    return ok ? reportRun(line, record) : ok;
  };
  auto print = [&](std::string_view text) {
    if (line.json)
      return;
    std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
    std::fflush(stdout);
  };
  auto end = runtime::runBundle(options, print);
  if (!end)
    return fail(end.error().message);
  if (end->isLost)
    return fail(end->problem, runtime::againStatus);
  if (end->signal == 0)
    return 0;
  const int status = runtime::signalStatus + end->signal;
  if (!end->problem.empty())
    return fail(end->problem, status);
  std::fprintf(stderr, "note: stopped by %s; --resume goes on\n",
               end->signal == SIGINT ? "SIGINT" : "SIGTERM");
  return status;
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_RUNCOMMAND_H
