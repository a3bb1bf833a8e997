//===- CheckpointSession.h - Saving and loading a session -------*- C++ -*-===//
//
// Generations (Checkpoint.h) of the states of a session. All processes of an MPI job make
// the same calls; what one of them finds wrong all of them return. docs/checkpoints.md
// has the protocol.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_CHECKPOINTSESSION_H
#define PARTITA_RUNTIME_CHECKPOINTSESSION_H

#include "partita/Runtime/Checkpoint.h"
#include "partita/Runtime/Session.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace partita::runtime {

/// The text of the first process, by rank, whose text is not empty; cut at 2000
/// characters. Empty: none has any.
Expected<std::string> agreeOnText(Session &session, std::string text);

/// A folder of generations that one run may write: the root has its lock.
class CheckpointFolder {
public:
  /// Makes the folder if it is not there, and removes what killed writers left in it.
  /// Waits up to `patience` for a run that is about to end; an error if another one has
  /// it, or a newer incarnation. `incarnation`: the number of this start, as its launcher
  /// has it; 0: the root makes one. An error, too, if a process finds another folder at
  /// the path than the root.
  static Expected<CheckpointFolder>
  open(Session &session, std::string path, uint64_t incarnation = 0,
       std::chrono::milliseconds patience = std::chrono::seconds(10));
  CheckpointFolder(CheckpointFolder &&other) noexcept;
  ~CheckpointFolder();

  const std::string &path() const { return folder; }
  /// An error if the path leads to another folder by now, as when a disk is gone: what is
  /// written there would be lost. For the root.
  Expected<void> check() const;
  /// The incarnation; generations have it as text.
  uint64_t number() const { return incarnation; }

private:
  explicit CheckpointFolder(std::string path) : folder(std::move(path)) {}
  Expected<void> lockIt(std::chrono::milliseconds patience);
  Expected<void> take(uint64_t given);
  Expected<void> checkShared(Session &session) const;
  std::string folder;
  uint64_t incarnation = 0;
  int lock = -1;
};

/// A generation that was loaded.
struct Restored {
  Manifest manifest;
  std::string path;
  uint64_t bytes = 0;     ///< of states, read by all ranks
  uint64_t mostBytes = 0; ///< by the rank that read most
};

/// Loads the newest whole generation of a folder into the states, whatever plan, number
/// of ranks and transport wrote it. `tell` gets a sentence for each that is damaged, on
/// the root. `fits` (on the root) may refuse a manifest; that is an error. Absent if the
/// folder has none; an error if it has some and none is whole. `explain` (on the root)
/// says why a generation has other states than the session; "": it does not know.
Expected<std::optional<Restored>>
restoreNewest(Session &session, const std::string &folder,
              const std::function<void(std::string_view)> &tell,
              const std::function<Expected<void>(const Restored &)> &fits,
              const std::function<std::string(const Manifest &)> &explain = {});

/// Sets the states that begin as weights of the model from a safetensors file, or from
/// the newest whole generation of a folder or the generation itself; the others stay. A
/// weight that is not there, or of another type or shape, is an error. `tell`: see
/// restoreNewest.
Expected<void> loadWeights(Session &session, const std::string &path,
                           const std::function<void(std::string_view)> &tell);

/// Writes generations of a session's states from a thread of its own, while requests run.
/// A save goes through two phases: every process writes its parts, then the root
/// publishes them. Processes go on to the next phase in `exchange`, all at once.
class CheckpointSaver {
public:
  struct Options {
    int64_t keep = 3;    ///< generations that stay, at least 1
    double timeout = 60; ///< seconds without progress of the disk
  };
  /// Makes the buffers for snapshots of what the ranks of this process write. The folder
  /// outlives the saver.
  static Expected<std::unique_ptr<CheckpointSaver>>
  create(Session &session, const CheckpointFolder &folder, const Options &options);
  ~CheckpointSaver();

  /// Bytes of the buffers of this process.
  uint64_t bufferBytes() const;

  /// Begins to copy the states, as the last request left them, and to write the copy.
  /// Requests may follow at once: what writes a state waits for its copy. First waits for
  /// the save before this one. `head` (of the root) has step, cursor, run and changes.
  /// `alsoAs`: see publish.
  /// `log`: a file that is synced before the generation has its name; −1: none. Where the
  /// save cannot begin, that is a failure (see takeFailure), no error.
  Expected<void> save(Manifest head, int log, std::string alsoAs = {});
  /// Whether a save is under way, for all processes alike.
  bool isSaving() const;
  /// To be called now and then, as behind each step: goes on with the save under way.
  /// Each of `votes` becomes the largest of all processes.
  Expected<void> exchange(std::span<int64_t> votes);
  /// Waits for the save under way.
  Expected<void> finish();

  /// The sentence of a save that failed since the last call.
  std::optional<std::string> takeFailure();
  /// Tells if a save that had a second name failed since the last call.
  bool takeLostName();
  /// The step of the newest generation that this saver has published; −1: none.
  int64_t savedStep() const;
  /// Generations so far, and seconds that the caller, and then the rank of this process
  /// that waited most, waited for them.
  struct Cost {
    int64_t saves = 0;
    double seconds = 0, mostSeconds = 0;
  };
  Cost cost() const;

private:
  struct State;
  explicit CheckpointSaver(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_CHECKPOINTSESSION_H
