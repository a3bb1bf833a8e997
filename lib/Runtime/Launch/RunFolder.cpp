//===- RunFolder.cpp - What a launcher keeps while ranks run --------------===//
#include "RunFolder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>

using namespace partita;
using namespace partita::runtime;
namespace fs = std::filesystem;

static constexpr std::string_view prefix = "partita-run-";
static constexpr const char *lockName = "owner";

std::vector<std::string> runtime::temporaryPlaces() {
  std::vector<std::string> places = {"/dev/shm"};
  if (const char *own = std::getenv("TMPDIR"); own && *own)
    places.emplace_back(own);
  places.emplace_back("/tmp");
  return places;
}

static Expected<std::string> temporaryFolder() {
  std::string tried;
  for (const std::string &place : temporaryPlaces()) {
    std::string name = place + "/" + std::string(prefix) + "XXXXXX";
    if (::mkdtemp(name.data()))
      return name;
    tried += (tried.empty() ? "'" : ", '") + place + "': " + std::strerror(errno);
  }
  return makeError("cannot create a temporary folder in " + tried +
                   "; TMPDIR may name a folder that can be written");
}

/// The lock of a new folder. Its file gets the name by which others look for it once it
/// is locked, so that nobody finds it free before.
static FileDescriptor lockFolder(const std::string &folder) {
  const std::string name = folder + "/" + lockName, aside = name + ".new";
  FileDescriptor file(::open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  bool isLocked = file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                  ::rename(aside.c_str(), name.c_str()) == 0;
  if (!isLocked) // nobody will remove the folder but this process
    file.close();
  return file;
}

/// Removes a folder if it is this user's, and nobody holds its lock any more.
static void removeIfAbandoned(const std::string &folder) {
  struct stat info;
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid())
    return;
  const std::string name = folder + "/" + lockName;
  FileDescriptor file(::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  std::error_code ignored;
  if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
    fs::remove_all(folder, ignored);
}

static void removeAbandonedFolders() {
  for (const std::string &place : temporaryPlaces()) {
    std::error_code failed;
    for (fs::directory_iterator it(place, failed), end; !failed && it != end;
         it.increment(failed))
      if (it->path().filename().string().starts_with(prefix))
        removeIfAbandoned(it->path().string());
  }
}

Expected<void> RunFolder::make(int64_t ranks) {
  removeAbandonedFolders();
  auto temporary = temporaryFolder();
  if (!temporary)
    return tl::unexpected(temporary.error());
  folder = *temporary;
  lock = lockFolder(folder);
  path = folder + "/page";
  auto made = Page::create(path, ranks);
  if (!made)
    return tl::unexpected(made.error());
  page = std::move(*made);
  return {};
}

void RunFolder::remove() {
  std::error_code ignored;
  if (!folder.empty())
    fs::remove_all(folder, ignored);
}
