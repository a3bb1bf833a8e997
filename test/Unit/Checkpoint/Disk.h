//===- Disk.h - What a process asks of a file system ------------*- C++ -*-===//
//
// The executable's own open, write, fsync, rename and so on go first: what they are asked
// for below a folder is recorded, and may be refused. From the record follow the states
// in which a crash could leave the folder: what was not synced may be lost, or be there
// in part.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_CHECKPOINT_DISK_H
#define PARTITA_TEST_UNIT_CHECKPOINT_DISK_H

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace disk {

struct Operation {
  enum Kind : uint8_t { MakeFolder, Create, Write, SyncFile, SyncFolder, Rename, Remove };
  Kind kind;
  std::string path, to; ///< relative to the folder; "" is the folder itself
  std::string bytes;
};

/// From now on, operations below `folder` are recorded.
void record(const std::string &folder);
/// Operations since then; ends it.
std::vector<Operation> stop();
size_t count();
/// The operation of this number, counted from `record` on, fails with this errno; and all
/// behind it too.
void failFrom(size_t number, int error);

/// The folder at one moment, and what of it is on the disk.
class Model {
public:
  Model();
  void apply(const Operation &operation);

  /// How much of what is not on the disk a crash leaves.
  enum class Left : uint8_t { All, Nothing, Drawn };
  /// Makes a folder as a crash would leave it. `alone`: of what is not on the disk, the
  /// item of this number is the other way round.
  void materialize(const std::string &folder, Left left, std::mt19937 &random,
                   size_t alone = SIZE_MAX) const;
  /// Items that are not on the disk.
  size_t numPending() const;

private:
  struct Node {
    bool isFolder = false;
    std::string bytes, synced; ///< of a file
    std::map<std::string, int> names, syncedNames;
    /// Changes of names since the last sync: the name, and what it became (−1: nothing).
    std::vector<std::vector<std::pair<std::string, int>>> changes;
  };
  int find(const std::string &path) const;
  void change(const std::string &folder, std::vector<std::pair<std::string, int>> names);
  struct Choice;
  void write(int node, const std::string &path, Choice &choice) const;
  std::vector<Node> nodes; ///< 0 is the folder
};

} // namespace disk

#endif // PARTITA_TEST_UNIT_CHECKPOINT_DISK_H
