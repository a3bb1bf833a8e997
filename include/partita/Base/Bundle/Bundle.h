//===- Bundle.h - The output folder of a compile ----------------*- C++ -*-===//
//
// A bundle is a folder:
//   bundle.json          what this header describes
//   plan.json            the plan, for reports; the runtime does not read it
//   stage-K.so           kernels and the task table of stage K
//   weights.safetensors  unless the weights stay in the model's external data files
//   weights-K.blocks     hashes of weight file K by blocks (Files/BlockList.h)
//   worlds/N/            the same for N ranks: a bundle that shares the weights
//
// A bundle is written aside (Files/Aside.h) and renamed at the end, so that a reader
// never sees half of one. The same compile writes the same bytes. docs/bundle-format.md
// says how the format came about.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_BUNDLE_H
#define PARTITA_BASE_BUNDLE_BUNDLE_H

#include "partita/Base/Error.h"
#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/Hash.h"
#include "partita/Base/Layout/Mesh.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// Of bundle.json; raised when an older reader could misread a newer file.
inline constexpr int64_t bundleFormat = 5;
/// The specification of a training step, in bundles that have one: what `verify` derives
/// the step from, wherever the bundle and the file that was given are.
inline constexpr const char *specificationFileName = "train.json";
/// Computation of the step of these bundles, with every default written out
/// (train::completeText): runs that go on compare it.
inline constexpr const char *completeSpecificationFileName = "train-complete.json";
/// Of this build of Partita.
std::string_view partitaVersion();
/// Path from a world's folder to the bundle that the world belongs to.
inline constexpr std::string_view sharedByWorlds = "../../";

/// A file that task tables refer to by its index: of the bundle, or of the model.
struct WeightFile {
  /// Path relative to the bundle; of a file of the model the absolute one at compile. A
  /// world's may begin with `sharedByWorlds`.
  std::string path;
  uint64_t size = 0;
  /// In the bundle, the list of blocks; of a file of the model it may be a sample.
  std::string blocks = {};

  // Members of a file of the model, its external data:
  std::string location = {}; ///< relative to the model's folder; empty: of the bundle
  std::string relative = {}; ///< where it was at compile, relative to the bundle
  /// Modification time in ns since the epoch, and inode. A file that has both, and the
  /// size, is not checked.
  int64_t modified = 0;
  uint64_t inode = 0;

  bool isOfModel() const { return !location.empty(); }
};

struct BundleStage {
  std::string file; ///< of its shared object, a relative path
  /// Predicted bytes per rank.
  uint64_t arenaBytes = 0, weightBytes = 0, packedBytes = 0;
  /// Of that file; made when the bundle is written.
  Hash128 hash = {};
};

/// Scalar outputs of a training step that are 1 where its loss or a gradient was not
/// finite, else 0. Empty: it has none.
struct StepFlags {
  std::string skipped; ///< the step has changed no state then
  std::string stop;    ///< the run is to stop behind such a step
  bool operator==(const StepFlags &) const = default;
};

/// One compiled form of the model: the same weights and states for other input shapes.
/// Its stages are programs that run together, each on ranks of its own.
struct BundleEntry {
  std::string name = "main";
  std::vector<BundleStage> stages;
  /// Inputs, outputs and states of which each micro-batch is a slice of the first dim.
  /// Others that have micro-batches have them as a dim before the others.
  std::vector<std::string> sliced = {};
  /// The outputs in the model's order; empty: that of the programs.
  std::vector<std::string> outputs = {};
  /// By input and output the names of the model's symbolic dims, "" for dims that have
  /// none: tensors of another entry, or shorter ones, differ in these alone.
  std::map<std::string, std::vector<std::string>> dims = {};
  /// Outputs of the programs that the model does not have: i64 scalars that say how long
  /// dims of outputs, which `dims` calls by the same name, are in a request.
  std::vector<std::string> sizes = {};
  StepFlags flags = {};
  /// The file that has this entry, which the runtime does not read. Older bundles have
  /// one for each entry.
  std::string plan = "plan.json";
};

/// The same entries for another number of ranks, as a bundle of its own inside of this
/// one (docs/elastic.md).
struct BundleWorld {
  int64_t ranks = 0;
  std::string path; ///< relative to the bundle
};

struct Bundle {
  std::string target = "cpu";
  std::string targetCpu; ///< LLVM's CPU name
  /// All that kernels may use of a CPU, by LLVM's names (CpuFeatures.h).
  std::vector<std::string> cpuFeatures;
  int64_t threads = 1; ///< per rank
  /// The type that the model computes in (Base/Compute.h).
  std::string compute = "f32";
  Mesh mesh; ///< of the ranks; with several programs each has its own, and this is empty
  int64_t ranks = 0; ///< with several programs their number, else 0
  std::vector<BundleEntry> entries;
  std::vector<WeightFile> weightFiles;
  std::string model; ///< file name of the source model, for messages
  /// The model's inputs in its order: where files are numbered, these are counted,
  /// although some may be bound at compile time. Empty: the entry's own.
  std::vector<std::string> inputs;
  /// In the order of the compile, none with as many ranks as this one or another.
  std::vector<BundleWorld> worlds = {};
  /// Set in a world of another bundle, whose weight files it may name.
  bool isWorld = false;

  int64_t numRanks() const { return ranks ? ranks : mesh.numRanks(); }
  /// The text of bundle.json.
  std::string json() const;
};

/// Reads and checks FOLDER/bundle.json: format, versions, paths that leave the folder.
Expected<Bundle> readBundle(const std::string &folder);

/// A bundle among those of several numbers of ranks.
struct World {
  int64_t ranks = 0;
  std::string folder;
  std::string mesh;
};
/// The worlds of a bundle, itself among them, by their number of ranks.
Expected<std::vector<World>> readWorlds(const std::string &folder);

/// The path of the plan of an entry (empty: the first). An error lists the entries.
Expected<std::string> planFile(const std::string &folder, const std::string &entry);

/// A reference to a file of the model from a bundle that is to be at `out`. `location`:
/// of the file, relative to the model's folder.
Expected<WeightFile> referTo(const std::string &path, const std::string &location,
                             const std::string &out);

/// The path from the root on; itself where it is relative and the working directory has
/// been removed.
std::string absolutePath(const std::string &path);

/// A path as seen from a folder, "../model.onnx"; both may be relative to the working
/// directory. Links are not followed.
std::string relativePath(const std::string &path, const std::string &folder);

/// Where a weight file is now.
struct FoundFile {
  std::string path;
  /// Whether size, time and inode are those of the compile.
  bool isSame = false;
};
/// Looks for a weight file: in `weightsDir` (empty: none is given), in the bundle, where
/// it was relative to the bundle, and where it was. A file of another size is an error,
/// unless one of the places behind has it; in `weightsDir` it is one at once.
Expected<FoundFile> findWeights(const std::string &folder, const WeightFile &file,
                                const std::string &weightsDir);
/// Folders that are searched for the external data of a bundle's model before the model's
/// own; the same as findWeights searches.
std::vector<std::string> dataFolders(const std::string &folder,
                                     const std::string &weightsDir);
/// The first that is there of what a plan names by its path at compile, and by the path
/// relative to the bundle: in the bundle, relative to it, and at the path itself. The
/// path itself if it is nowhere.
std::string findRecorded(const std::string &folder, const std::string &relative,
                         const std::string &path);

/// A bundle that is made by several steps, into `path()`, and then gets its name in one.
class BundlePlace {
public:
  /// In the place of the bundle `out`, with which it is swapped, so that there is always
  /// one of them under the name. An error if `out` is no bundle: nothing else is ever
  /// removed.
  static Expected<BundlePlace> replacing(const std::string &out);
  /// At `out`, where nothing is.
  static Expected<BundlePlace> fresh(const std::string &out);
  /// Where the new bundle is to be made.
  std::string path() const { return aside.path() + "/bundle"; }
  /// An error if something has come to a fresh place meanwhile.
  Expected<void> commit();

private:
  std::string out;
  bool replaces = false;
  Aside aside;
};

/// Creates a folder aside; `commit` renames it to OUT. Destroyed without commit, the
/// temporary folder is removed.
class BundleWriter {
public:
  /// An error if OUT exists or its parent cannot be written.
  static Expected<BundleWriter> create(const std::string &out);

  /// Where a file of the bundle is to be written.
  std::string path(std::string_view file) const {
    return aside.path() + "/" + std::string(file);
  }
  /// Writes bundle.json and renames the folder; an error leaves nothing behind.
  Expected<void> commit(Bundle bundle);

private:
  BundleWriter() = default;
  std::string out;
  Aside aside;
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_BUNDLE_H
