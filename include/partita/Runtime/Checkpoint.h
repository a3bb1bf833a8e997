//===- Checkpoint.h - Generations of a run's states as files ----*- C++ -*-===//
//
// A checkpoint folder D has a folder per generation, D/step-N:
//   part-R.safetensors  what rank R wrote: pieces of states
//   part-R.blocks       hashes of that file by blocks (Files/BlockList.h)
//   manifest.blocks     the same of the manifest
//   manifest.json       what this header calls a Manifest; written last
// A generation is written aside and gets its name when all of it is on the disk.
// docs/checkpoints.md says in which order, and what a crash can leave.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_CHECKPOINT_H
#define PARTITA_RUNTIME_CHECKPOINT_H

#include "partita/Base/Error.h"
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/StoredTensor.h"
#include "partita/Runtime/DataOrder.h"
#include "partita/Runtime/StateParts.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace partita::runtime {

/// Format of manifest.json; raised when an older reader could misread a newer file.
inline constexpr int64_t checkpointFormat = 1;

/// The runs of all elements.
Runs wholeRuns(const std::vector<int64_t> &shape);
/// Extents of a dense tensor that has these runs and nothing else.
std::vector<int64_t> extentsOf(const Runs &runs);

/// A tensor of a part file.
struct Piece {
  size_t state = 0; ///< index
  uint32_t slot = 0;
  std::string tensor; ///< its name in the file
  Runs runs;          ///< by dim of the state; `local`: in the piece
  /// From the rank's tensor: by dim the runs of the piece (`global`) there (`local`).
  Runs fromLocal;
  std::vector<int64_t> localShape;
};

/// Which pieces each of the ranks writes, by rank. Of elements that several ranks hold
/// each writes a share, cut along a dim, such that all write about equal bytes. A
/// function of its arguments alone.
std::vector<std::vector<Piece>> piecesOf(const std::vector<HeldState> &states, int ranks);

//===----------------------------------------------------------------------===//
// The manifest
//===----------------------------------------------------------------------===//

/// Beginnings of a run, as far as its losses depend on them.
struct RunIdentity {
  uint64_t seed = 0;
  int64_t batch = 0; ///< examples of a step
  bool padsLast = false;
  int64_t rows = 0;          ///< examples of the data
  std::string data;          ///< hash of a sample of the data
  std::string model;         ///< hash of what the states begin as
  std::string plan;          ///< hash of the plan; it may differ
  std::string specification; ///< text of the file; empty: there is none
  std::string modelFile;     ///< absolute path at that time; empty: not known
};

/// A change that was allowed when the run went on.
struct AllowedChange {
  int64_t step = 0;
  std::string name, was, is;
};

/// The least loss of an evaluation so far, and behind which step it was.
struct BestStep {
  std::string name; ///< generation "best-NAME"
  int64_t step = 0;
  double loss = 0;
  std::string data; ///< tells the rows that were evaluated on
};

struct Manifest {
  struct Part {
    std::string file;
    uint64_t bytes = 0;
  };
  struct SavedPiece {
    size_t part = 0; ///< index
    std::string tensor;
    Runs runs;
  };
  struct State {
    std::string name;
    DType type = DType::F32;
    std::vector<int64_t> shape;
    bool isWeight = false;
    std::vector<SavedPiece> pieces = {};
  };
  int64_t format = checkpointFormat; ///< of another one only this is known
  int64_t step = 0;
  DataCursor cursor;
  RunIdentity run;
  /// Number of the run that wrote it; all files of a generation have the same.
  std::string incarnation;
  std::vector<AllowedChange> changes = {};
  std::optional<BestStep> best = {}; ///< absent: none is kept
  bool owesEvaluation = false;       ///< the step's was due, and a signal has left it out
  std::vector<Part> parts = {};
  std::vector<State> states = {};

  const State *find(std::string_view name) const;
  std::string json() const;
};

/// The parts and states of a generation in which rank r writes `pieces[r]`; sizes of
/// files are not set.
void describe(Manifest &manifest, const std::vector<HeldState> &states,
              const std::vector<std::vector<Piece>> &pieces);

/// "part-3.safetensors", and its list of blocks.
std::string partFile(size_t part);
std::string partBlocks(size_t part);

//===----------------------------------------------------------------------===//
// Generations
//===----------------------------------------------------------------------===//

struct Generation {
  int64_t step = 0;
  std::string path;
};
/// Generations that have a name in the folder, the newest first; none where there is no
/// folder. An error if the folder cannot be read, or is a generation itself.
Expected<std::vector<Generation>> generationsOf(const std::string &folder);

/// D/step-N.
std::string generationPath(const std::string &folder, int64_t step);
/// D/best-NAME, which is no generation of generationsOf.
std::string bestPath(const std::string &folder, const std::string &name);
/// Gives a generation another name, `path`, in the place of the one that has it: a folder
/// of links to its files, or of copies where there are no links.
Expected<void> nameGeneration(const std::string &generation, const std::string &path);

/// Reads and checks the manifest of a generation: its hash, and that the pieces of each
/// state have as many elements as the state. Of another format only that is known.
Expected<Manifest> readManifest(const std::string &generation);
/// An error if the manifest is of another format than this version reads.
Expected<void> checkFormat(const std::string &generation, const Manifest &manifest);
/// Compares the sizes of all parts. Their bytes are checked by whoever reads them.
Expected<void> checkParts(const std::string &generation, const Manifest &manifest);

/// The states of a generation, for the ranks of a process, which may read at once.
class GenerationReader {
public:
  GenerationReader(std::string path, Manifest manifest)
      : path(std::move(path)), saved(std::move(manifest)) {}
  const Manifest &manifest() const { return saved; }
  /// Reads elements of a state, those of `runs`, to where `local` is in a dense tensor of
  /// this shape; the rest of it stays. Only they are read, and, to check them, the blocks
  /// of which they are. The bytes that were asked for.
  Expected<uint64_t> read(const Manifest::State &state, const Runs &runs,
                          const std::vector<int64_t> &localShape, std::byte *local);
  /// Bytes that were hashed so far.
  uint64_t checkedBytes() const;

private:
  struct Part {
    std::shared_ptr<const InputFile> file;
    std::map<std::string, StoredTensor, std::less<>> tensors;
  };
  Expected<const Part *> open(size_t index);
  std::string path;
  Manifest saved;
  mutable std::mutex mutex; ///< of `parts`
  std::map<size_t, Part> parts;
};

/// Writes the states of a generation as whole tensors into one safetensors file, aside
/// and then renamed: a file as --state-dir has it (StateFile.h). `path` is a generation,
/// or a folder of them, of which the newest whole one is taken; `tell` gets a sentence
/// for each that is damaged. The manifest of the one that was taken.
Expected<Manifest> writeWholeStates(const std::string &path, const std::string &file,
                                    const std::function<void(std::string_view)> &tell);

/// Writes one part of a generation into its folder and brings it to the disk; `bytes` has
/// the pieces one behind the other, each at a multiple of 64. `written` counts up.
Expected<void> writePart(const std::string &folder, size_t part,
                         const std::string &incarnation, int64_t step,
                         const std::vector<HeldState> &states,
                         const std::vector<Piece> &pieces, const std::byte *bytes,
                         std::atomic<uint64_t> &written);
/// Where a piece begins behind one that ends there.
inline uint64_t pieceBegin(uint64_t end) { return (end + 63) / 64 * 64; }
uint64_t bytesOf(const Piece &piece, const std::vector<HeldState> &states);

/// A start of a run on a folder: a number that grows from start to start, in its upper
/// half, and is drawn in its lower one, so that no two starts have the same.
uint64_t nextIncarnation(const std::string &folder);
/// 16 hexadecimal digits, and the number of such a text.
std::string incarnationText(uint64_t number);
std::optional<uint64_t> parseIncarnation(std::string_view text);
/// Takes the folder for a start, so that older ones can publish nothing. An error if a
/// newer one has it, or has been given the name. A folder that cannot be written is none:
/// the saves tell.
Expected<void> takeFolder(const std::string &folder, uint64_t number);
/// An error if a newer start has the folder.
Expected<void> checkIncarnation(const std::string &folder, uint64_t number);
/// The file by which a folder names the start that has it.
std::string incarnationPath(const std::string &folder, uint64_t number);

/// Gives a generation its name: writes the manifest when all parts are there, syncs the
/// folder, renames it, and removes generations but the newest `keep` up to this one.
/// An error if a newer incarnation than the manifest's has the folder. `aside` is
/// consumed. `alsoAs`: a path that names the generation too, from before
/// others are removed (nameGeneration); empty: none does.
Expected<void> publish(Aside aside, const std::string &folder, Manifest manifest,
                       int64_t keep, const std::string &alsoAs = {});

/// Removes what killed writers left in the folder. By the one process that has its lock.
void removeAbandonedGenerations(const std::string &folder);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_CHECKPOINT_H
