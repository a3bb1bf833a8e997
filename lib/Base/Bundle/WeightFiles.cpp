//===- WeightFiles.cpp - Where the files of a bundle's weights are --------===//
#include "partita/Base/Bundle/Bundle.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>

using namespace partita;
namespace fs = std::filesystem;

static int64_t modifiedTime(const struct stat &info) {
  return info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec;
}

std::string partita::absolutePath(const std::string &path) {
  std::error_code failed;
  fs::path whole = fs::absolute(path, failed);
  return failed ? path : whole.string();
}

/// Absolute path without "." and "..".
static fs::path normalPath(const std::string &path) {
  fs::path whole = fs::path(absolutePath(path.empty() ? "." : path)).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path(); // "folder/"
}

std::string partita::relativePath(const std::string &path, const std::string &folder) {
  return normalPath(path).lexically_relative(normalPath(folder)).string();
}

Expected<WeightFile> partita::referTo(const std::string &path,
                                      const std::string &location,
                                      const std::string &out) {
  fs::path absolute = normalPath(path);
  struct stat info;
  if (::stat(absolute.c_str(), &info) != 0)
    return makeError("cannot open '" + path + "': " + std::strerror(errno));
  WeightFile file;
  file.path = absolute.string();
  file.size = static_cast<uint64_t>(info.st_size);
  file.location = location;
  file.relative = relativePath(path, out);
  file.modified = modifiedTime(info);
  file.inode = info.st_ino;
  return file;
}

static std::string sizeError(const std::string &path, uint64_t has,
                             const WeightFile &file) {
  return "weight file '" + path + "' has " + std::to_string(has) +
         " bytes, the bundle was compiled with " + std::to_string(file.size);
}

Expected<FoundFile> partita::findWeights(const std::string &folder,
                                         const WeightFile &file,
                                         const std::string &weightsDir) {
  struct stat info;
  std::string name = fs::path(file.location).filename().string();
  std::vector<std::string> places;
  if (!file.isOfModel()) {
    places = {folder + "/" + file.path};
  } else {
    if (!weightsDir.empty())
      places = {weightsDir + "/" + file.location, weightsDir + "/" + name};
    places.insert(places.end(), {folder + "/" + file.location, folder + "/" + name,
                                 folder + "/" + file.relative, file.path});
  }
  std::string wrong;
  int reason = ENOENT;
  for (const std::string &path : places) {
    if (::stat(path.c_str(), &info) != 0) {
      reason = errno;
      continue;
    }
    auto size = static_cast<uint64_t>(info.st_size);
    if (size == file.size && S_ISREG(info.st_mode))
      return FoundFile{path, file.isOfModel() && file.modified == modifiedTime(info) &&
                                 file.inode == info.st_ino};
    if (wrong.empty())
      wrong = S_ISREG(info.st_mode) ? sizeError(path, size, file)
                                    : "weight file '" + path + "' is not a regular file";
    // A user who names a folder means that one.
    if (!weightsDir.empty() && path.starts_with(weightsDir + "/"))
      break;
  }
  if (!wrong.empty())
    return makeError(wrong);
  if (!file.isOfModel())
    return makeError("cannot open weight file '" + places[0] +
                     "': " + std::strerror(reason));
  return makeError("weight file '" + file.location + "' is neither in " +
                   (weightsDir.empty() ? "" : "'" + weightsDir + "', ") + "the bundle '" +
                   folder + "', nor at '" + file.relative + "' from there, nor at '" +
                   file.path + "'; --weights-dir says where it is");
}

std::vector<std::string> partita::dataFolders(const std::string &folder,
                                              const std::string &weightsDir) {
  std::vector<std::string> folders;
  if (!weightsDir.empty())
    folders.push_back(weightsDir);
  folders.push_back(folder);
  return folders;
}

std::string partita::findRecorded(const std::string &folder, const std::string &relative,
                                  const std::string &path) {
  std::error_code ignored;
  for (const std::string &place : {folder + "/" + fs::path(path).filename().string(),
                                   relative.empty() ? path : folder + "/" + relative})
    if (fs::is_regular_file(place, ignored))
      return place;
  return path;
}
