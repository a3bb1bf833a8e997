//===- BundleWriter.cpp - Writing a bundle aside --------------------------===//
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

using namespace partita;

/// Without slashes at the end.
static std::string plainPath(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  return path;
}

/// The path of what is not there yet, and a folder beside it.
static Expected<std::pair<std::string, Aside>> besideUnused(const std::string &out) {
  std::string path = plainPath(out);
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0)
    return makeError("output '" + path + "' exists already");
  return Aside::folder(path).map(
      [&](Aside aside) { return std::pair(path, std::move(aside)); });
}

//===-- By several steps --------------------------------------------------===//

Expected<BundlePlace> BundlePlace::replacing(const std::string &out) {
  std::string path = plainPath(out);
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      ::stat((path + "/bundle.json").c_str(), &info) != 0)
    return makeError("'" + path + "' is not a bundle, so that it is not replaced");
  auto aside = Aside::folder(path);
  if (!aside)
    return tl::unexpected(aside.error());
  BundlePlace result;
  result.out = path;
  result.replaces = true;
  result.aside = std::move(*aside);
  return result;
}

Expected<BundlePlace> BundlePlace::fresh(const std::string &out) {
  return besideUnused(out).map([](auto made) {
    BundlePlace result;
    std::tie(result.out, result.aside) = std::move(made);
    return result;
  });
}

Expected<void> BundlePlace::commit() {
  unsigned how = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, path().c_str(), AT_FDCWD, out.c_str(), how) == 0)
    return {};
  return makeError(std::string(replaces ? "cannot replace '" : "cannot create '") + out +
                   "': " + std::strerror(errno));
}

//===-- A new one ---------------------------------------------------------===//

Expected<BundleWriter> BundleWriter::create(const std::string &out) {
  return besideUnused(out).map([](auto made) {
    BundleWriter writer;
    std::tie(writer.out, writer.aside) = std::move(made);
    return writer;
  });
}

Expected<void> BundleWriter::commit(Bundle bundle) {
  for (BundleEntry &entry : bundle.entries)
    for (BundleStage &stage : entry.stages) {
      auto library = MappedFile::open(path(stage.file));
      if (!library)
        return tl::unexpected(library.error());
      stage.hash = hashOf((*library)->bytes());
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
