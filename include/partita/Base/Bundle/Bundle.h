//===- Bundle.h - The output folder of a compile ----------------*- C++ -*-===//
//
// A bundle is a folder:
//   bundle.json          what this header describes
//   plan.json            the plan, for reports; the runtime does not read it
//   stage-K.so           kernels and the task table of stage K
//   weights.safetensors  unless the weights stay in the model's external data files
//
// It is written aside (OUT.tmp-PID) and renamed at the end, so that a reader never sees
// half of one. The same compile writes the same bytes.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_BUNDLE_H
#define PARTITA_BASE_BUNDLE_BUNDLE_H

#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// Of bundle.json; raised when an older reader could misread a newer file.
inline constexpr int64_t bundleFormat = 3;
/// Of this build of Partita.
std::string_view partitaVersion();

/// A file that task tables refer to by its index.
struct WeightFile {
  std::string path; ///< relative to the bundle, or absolute
  uint64_t size = 0;
  /// Modification time in ns since the epoch, 0 when not recorded. Absolute files are
  /// checked against size and time at load.
  int64_t modified = 0;
};

struct BundleStage {
  std::string file; ///< of its shared object, a relative path
  /// Predicted bytes per rank.
  uint64_t arenaBytes = 0, weightBytes = 0, packedBytes = 0;
  /// Of that file; made when the bundle is written.
  std::string fingerprint = {};
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
  std::string plan = "plan.json"; ///< of this entry; the runtime does not read it
};

struct Bundle {
  std::string target = "cpu";
  std::string targetCpu;                ///< LLVM's CPU name
  std::vector<std::string> cpuFeatures; ///< what the kernels need, e.g. "avx2"
  int64_t threads = 1;                  ///< per rank
  Mesh mesh; ///< of the ranks; with several programs each has its own, and this is empty
  int64_t ranks = 0; ///< with several programs their number, else 0
  std::vector<BundleEntry> entries;
  std::vector<WeightFile> weightFiles;
  std::string model; ///< file name of the source model, for messages
  /// The model's inputs in its order: where files are numbered, these are counted,
  /// although some may be bound at compile time. Empty: the entry's own.
  std::vector<std::string> inputs;

  int64_t numRanks() const { return ranks ? ranks : mesh.numRanks(); }
  /// The text of bundle.json.
  std::string json() const;
};

/// Reads and checks FOLDER/bundle.json: format, versions, paths that leave the folder.
Expected<Bundle> readBundle(const std::string &folder);

/// The path of the plan of an entry (empty: the first). An error lists the entries.
Expected<std::string> planFile(const std::string &folder, const std::string &entry);

/// Size and modification time of a file, for a reference to the model's own data.
Expected<WeightFile> referTo(const std::string &path);
/// The path of a weight file, after checking that it is the file the bundle was compiled
/// from.
Expected<std::string> checkedPath(const std::string &folder, const WeightFile &file);

/// The first of `features` that this host's CPU lacks, or empty. Names as in LLVM; a
/// name unknown to this function counts as present.
std::string missingCpuFeature(const std::vector<std::string> &features);

/// A folder OUT.tmp-PID beside OUT, to write into what is to become OUT. Removed with the
/// object. While it is there this process holds a lock on it, so that the next one knows
/// those of processes that were killed: it removes them.
class AsideFolder {
public:
  static Expected<AsideFolder> create(const std::string &out);
  AsideFolder() = default;
  AsideFolder(AsideFolder &&other) noexcept;
  AsideFolder &operator=(AsideFolder &&other) noexcept;
  ~AsideFolder();

  const std::string &path() const { return folder; }
  /// It has another name now.
  void release();

private:
  std::string folder;
  int lock = -1;
};

/// A bundle that takes the place of another: written into `path()`, then swapped with it
/// in one step, so that there is always one of them under the name.
class BundleReplacement {
public:
  /// An error if `out` is there and is no bundle: nothing else is ever removed.
  static Expected<BundleReplacement> create(const std::string &out);
  /// Where the new bundle is to be made.
  std::string path() const { return aside.path() + "/bundle"; }
  Expected<void> commit();

private:
  std::string out;
  AsideFolder aside;
};

/// Creates OUT.tmp-PID; `commit` renames it to OUT. Destroyed without commit, the
/// temporary folder is removed.
class BundleWriter {
public:
  /// The folder that this process writes aside for OUT.
  static std::string temporaryOf(const std::string &out);
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
  AsideFolder aside;
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_BUNDLE_H
