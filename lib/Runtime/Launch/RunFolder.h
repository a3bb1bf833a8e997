//===- RunFolder.h - What a launcher keeps while ranks run ------*- C++ -*-===//
//
// A folder in memory with the page that ranks of this host share with their launcher.
// Open MPI's shared memory goes there too: ranks that are killed leave it behind. The
// launcher removes the folder. A launcher that was killed cannot, so the next one does:
// the launcher and its supervisor hold the lock of a file in it, which the system gives
// back with the last of them, in whichever namespace of processes they were.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_RUNFOLDER_H
#define PARTITA_LIB_RUNTIME_LAUNCH_RUNFOLDER_H

#include "Descriptor.h"
#include "Page.h"

namespace partita::runtime {

/// Folders for what lasts as long as a run, those in memory first.
std::vector<std::string> temporaryPlaces();

struct RunFolder {
  std::string folder, path; ///< path: of the page
  std::unique_ptr<Page> page;

  /// Makes the folder and removes those of this user's launchers that were killed.
  Expected<void> make(int64_t ranks);
  void remove();
  RunFolder() = default;
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;
  ~RunFolder() { remove(); }

private:
  FileDescriptor lock; ///< children that are forked share it
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_RUNFOLDER_H
