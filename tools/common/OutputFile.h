//===- OutputFile.h - What cannot be written is known early -----*- C++ -*-===//
#ifndef PARTITA_TOOLS_COMMON_OUTPUTFILE_H
#define PARTITA_TOOLS_COMMON_OUTPUTFILE_H

#include "partita/Base/Error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace partita {

/// Makes the folder of a file that is written at the end of some work. An error if the
/// file could not be written there.
inline Expected<void> makeFolderOf(const std::string &path) {
  std::error_code code, absent;
  auto kind = std::filesystem::status(path, absent);
  if (std::filesystem::is_directory(kind))
    return makeError("cannot write '" + path + "': it is a folder");
  // A device or a pipe is written into, whoever may write its folder.
  if (std::filesystem::is_other(kind) && ::access(path.c_str(), W_OK) == 0)
    return {};
  // An error where the working directory has been removed.
  auto folder = std::filesystem::absolute(path, code).parent_path();
  if (!code)
    std::filesystem::create_directories(folder, code);
  if (code || ::access(folder.c_str(), W_OK) != 0)
    return makeError("cannot write '" + path +
                     "': " + (code ? code.message() : std::string(std::strerror(errno))));
  return {};
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_OUTPUTFILE_H
