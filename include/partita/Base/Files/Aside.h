//===- Aside.h - Writing beside the place of a file or folder ---*- C++ -*-===//
//
// Files and folders are written beside their place, as PATH.tmp-NUMBER, and renamed when
// they are whole. The writer holds a lock (flock), so that whoever writes to the same
// place later knows what a killed process has left: nobody holds that lock. Numbers of
// processes would not say so, as other hosts and containers have the same.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_ASIDE_H
#define PARTITA_BASE_FILES_ASIDE_H

#include "partita/Base/Error.h"

#include <optional>
#include <string>

namespace partita {

/// Removes files and folders PATH.tmp-* whose lock nobody holds.
void removeAbandoned(const std::string &path);

/// A file or folder PATH.tmp- and 16 hexadecimal digits, drawn at random for this object,
/// which holds its lock. Removed with the object, unless it is renamed before.
class Aside {
public:
  /// Both remove what was abandoned, first. An error says that `path` cannot be written.
  /// A file is beside the place to which links lead; a device or a pipe is an error.
  static Expected<Aside> file(const std::string &path);
  static Expected<Aside> folder(const std::string &path);
  /// A folder whose digits are this number: several processes that agree on it write into
  /// one folder, of which the one with this object has the lock.
  static Expected<Aside> folder(const std::string &path, uint64_t number);
  /// The name of such a folder.
  static std::string nameOf(const std::string &path, uint64_t number);
  /// A number that no other process draws.
  static uint64_t draw();
  Aside() = default;
  Aside(Aside &&other) noexcept;
  Aside &operator=(Aside &&other) noexcept;
  ~Aside();

  const std::string &path() const { return name; }
  /// Renames the file or folder to PATH, in one step. A folder that is there stays, and
  /// is an error unless it is empty.
  Expected<void> commit();
  /// Renames the folder as commit does. A folder that is there goes with this object.
  /// PATH is missing for a moment if a file system cannot exchange names.
  Expected<void> commitReplacing();
  /// Leaves it where it is: somebody has renamed it.
  void release();
  /// Removes what objects of this process have beside any path: for a process that is
  /// about to end without its destructors, as no other thread can make, keep or remove
  /// anything aside from then on. By one thread. False if something is left: again.
  static bool removeAll();

private:
  static Expected<Aside> create(const std::string &path, bool isFolder,
                                std::optional<uint64_t> number = std::nullopt);
  std::string target, name;
  int lock = -1;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_ASIDE_H
