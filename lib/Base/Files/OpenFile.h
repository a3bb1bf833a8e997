//===- OpenFile.h - Opening files for reading -------------------*- C++ -*-===//
//
// Private to this folder.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_BASE_FILES_OPENFILE_H
#define PARTITA_LIB_BASE_FILES_OPENFILE_H

#include "partita/Base/Error.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace partita {

/// "cannot open 'w.bin': Permission denied", by errno.
inline tl::unexpected<Error> systemError(const std::string &what,
                                         const std::string &path) {
  return makeError(what + " '" + path + "': " + std::strerror(errno));
}

/// A descriptor of the regular file and its size.
Expected<std::pair<int, uint64_t>> openRegular(const std::string &path, bool followLinks);

/// Where a path leads that is to be written.
struct Place {
  std::string path;       ///< behind links, the last of which may lead to nothing
  int descriptor = -1;    ///< of this process, if the path is /dev/stdout or the like
  bool isSpecial = false; ///< a device, a pipe or a socket
};
Expected<Place> placeOf(const std::string &path);

} // namespace partita

#endif // PARTITA_LIB_BASE_FILES_OPENFILE_H
