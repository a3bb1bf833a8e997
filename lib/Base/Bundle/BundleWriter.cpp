//===- BundleWriter.cpp - Writing a bundle aside --------------------------===//
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;

/// Without slashes at the end.
static std::string plainPath(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  return path;
}

std::string BundleWriter::temporaryOf(const std::string &out) {
  return plainPath(out) + ".tmp-" + std::to_string(::getpid());
}

//===-- A folder aside ----------------------------------------------------===//

/// Removes the folders OUT.tmp-* whose writers are gone: nobody holds their lock.
static void removeAbandoned(const std::string &out) {
  namespace fs = std::filesystem;
  fs::path path(out);
  fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::string prefix = path.filename().string() + ".tmp-";
  std::error_code ignored;
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) ||
        name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
      continue;
    int fd = ::open(it->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
      continue;
    std::error_code failed;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(it->path(), failed);
    ::close(fd);
  }
}

Expected<AsideFolder> AsideFolder::create(const std::string &out) {
  removeAbandoned(out);
  AsideFolder result;
  std::string folder = BundleWriter::temporaryOf(out);
  if (::mkdir(folder.c_str(), 0755) != 0)
    return makeError("cannot create output folder '" + out +
                     "': " + std::strerror(errno));
  result.folder = folder;
  result.lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Where files cannot be locked, no other process removes the folder either.
  if (result.lock >= 0)
    ::flock(result.lock, LOCK_EX | LOCK_NB);
  return result;
}

AsideFolder::AsideFolder(AsideFolder &&other) noexcept { *this = std::move(other); }

AsideFolder &AsideFolder::operator=(AsideFolder &&other) noexcept {
  std::swap(folder, other.folder);
  std::swap(lock, other.lock);
  return *this;
}

AsideFolder::~AsideFolder() {
  std::error_code ignored;
  if (!folder.empty())
    std::filesystem::remove_all(folder, ignored);
  if (lock >= 0)
    ::close(lock);
}

void AsideFolder::release() { folder.clear(); }

//===-- In the place of another -------------------------------------------===//

Expected<BundleReplacement> BundleReplacement::create(const std::string &out) {
  std::string path = plainPath(out);
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      ::stat((path + "/bundle.json").c_str(), &info) != 0)
    return makeError("'" + path + "' is not a bundle, so that it is not replaced");
  auto aside = AsideFolder::create(path);
  if (!aside)
    return tl::unexpected(aside.error());
  BundleReplacement result;
  result.out = path;
  result.aside = std::move(*aside);
  return result;
}

Expected<void> BundleReplacement::commit() {
  if (::renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, out.c_str(), RENAME_EXCHANGE) != 0)
    return makeError("cannot replace '" + out + "': " + std::strerror(errno));
  return {};
}

//===-- A new one ---------------------------------------------------------===//

Expected<BundleWriter> BundleWriter::create(const std::string &out) {
  BundleWriter writer;
  std::string path = plainPath(out);
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0)
    return makeError("output '" + path + "' exists already");
  auto aside = AsideFolder::create(path);
  if (!aside)
    return tl::unexpected(aside.error());
  writer.out = path;
  writer.aside = std::move(*aside);
  return writer;
}

Expected<void> BundleWriter::commit(Bundle bundle) {
  for (BundleEntry &entry : bundle.entries)
    for (BundleStage &stage : entry.stages) {
      auto library = MappedFile::open(path(stage.file));
      if (!library)
        return tl::unexpected(library.error());
      stage.fingerprint = fingerprint((*library)->bytes());
    }
  if (auto ok = writeFile(path("bundle.json"), bundle.json()); !ok)
    return ok;
  struct stat info;
  // rename() would replace an empty folder that appeared meanwhile.
  if (::lstat(out.c_str(), &info) == 0)
    return makeError("output '" + out + "' exists already");
  if (::rename(aside.path().c_str(), out.c_str()) != 0)
    return makeError("cannot create output folder '" + out +
                     "': " + std::strerror(errno));
  aside.release();
  return {};
}
