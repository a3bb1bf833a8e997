//===- Aside.cpp - Writing beside the place of a file or folder -----------===//
#include "partita/Base/Files/Aside.h"

#include "OpenFile.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;

static constexpr std::string_view infix = ".tmp-";

namespace {
/// Names that objects of this process have now.
struct Names {
  std::mutex mutex;
  std::set<std::string> known;
};
} // namespace

/// Never destroyed: objects may end after it.
static Names &names() {
  static auto &all = *new Names();
  return all;
}

static void forget(const std::string &name) {
  std::lock_guard guard(names().mutex);
  names().known.erase(name);
}

bool Aside::removeAll() {
  // Not unlocked: a name that is made or kept from now on would be left.
  static bool isHeld = false;
  if (!isHeld)
    names().mutex.lock();
  isHeld = true;
  bool areGone = true;
  for (const std::string &name : names().known) {
    std::error_code failed;
    std::filesystem::remove_all(name, failed);
    areGone &= !failed;
  }
  return areGone;
}

uint64_t Aside::draw() {
  uint64_t drawn = 0;
  // Without a source of randomness the clock and the process are told apart by.
  if (::getentropy(&drawn, sizeof drawn) != 0) {
    static std::atomic<uint64_t> count = 0;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    drawn = (static_cast<uint64_t>(now.tv_sec) << 32) ^
            static_cast<uint64_t>(now.tv_nsec) ^
            (static_cast<uint64_t>(::getpid()) << 40) ^ (++count << 56);
  }
  return drawn;
}

std::string Aside::nameOf(const std::string &path, uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return path + std::string(infix) + text;
}

/// Whether the path still names what the descriptor is of.
static bool isStill(int fd, const std::string &path) {
  struct stat open, there;
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

void partita::removeAbandoned(const std::string &path) {
  namespace fs = std::filesystem;
  fs::path whole(path);
  fs::path parent = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  std::string prefix = whole.filename().string() + std::string(infix);
  std::error_code ignored;
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + 16 ||
        name.find_first_not_of("0123456789abcdef", prefix.size()) != std::string::npos)
      continue;
    // On some file systems only who may write can lock.
    constexpr int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = ::open(it->path().c_str(), O_RDWR | flags);
    if (fd < 0)
      fd = ::open(it->path().c_str(), O_RDONLY | flags);
    if (fd < 0)
      continue;
    std::error_code failed;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && isStill(fd, it->path().string()))
      fs::remove_all(it->path(), failed);
    ::close(fd);
  }
}

/// Creates a file or a folder aside, and opens it; −1 and errno: it cannot. Whoever
/// removes all names finds what was made by its name, which is known from then on.
static int makeAside(const std::string &name, bool isFolder) {
  std::lock_guard guard(names().mutex);
  int fd = -1;
  // Another process may take a folder for abandoned before it is opened.
  for (bool again = true; fd < 0 && again;) {
    if (isFolder && ::mkdir(name.c_str(), 0777) != 0 && errno != EEXIST)
      return -1;
    fd = isFolder ? ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                  : ::open(name.c_str(),
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    again = isFolder && errno == ENOENT;
  }
  if (fd >= 0)
    names().known.insert(name);
  return fd;
}

Expected<Aside> Aside::create(const std::string &path, bool isFolder,
                              std::optional<uint64_t> number) {
  removeAbandoned(path);
  Aside result;
  std::string name;
  // Another writer may take it for abandoned before it is locked, and remove it.
  for (int tries = 0; tries < 100; ++tries) {
    name = nameOf(path, number ? *number : draw());
    int fd = makeAside(name, isFolder);
    if (fd < 0)
      return systemError(isFolder ? "cannot create output folder" : "cannot write", path);
    // Where files cannot be locked, nobody else removes it either.
    bool isOurs = ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (isOurs && isStill(fd, name)) {
      result.target = path;
      result.name = name;
      result.lock = fd;
      return result;
    }
    forget(name);
    ::close(fd);
  }
  return makeError("cannot write '" + path + "': '" + name + "' is removed while it is " +
                   "written");
}

Expected<Aside> Aside::file(const std::string &path) {
  auto place = placeOf(path);
  if (!place)
    return tl::unexpected(place.error());
  if (place->descriptor >= 0 || place->isSpecial)
    return makeError("cannot write '" + path + "': it is not a regular file");
  return create(place->path, false);
}
Expected<Aside> Aside::folder(const std::string &path) { return create(path, true); }
Expected<Aside> Aside::folder(const std::string &path, uint64_t number) {
  return create(path, true, number);
}

Aside::Aside(Aside &&other) noexcept { *this = std::move(other); }

Aside &Aside::operator=(Aside &&other) noexcept {
  std::swap(target, other.target);
  std::swap(name, other.name);
  std::swap(lock, other.lock);
  return *this;
}

Aside::~Aside() {
  std::error_code ignored;
  if (!name.empty()) {
    std::filesystem::remove_all(name, ignored);
    forget(name);
  }
  if (lock >= 0)
    ::close(lock);
}

/// Renames a folder to the name of another one, which gets a name aside that was drawn.
static int replaceFolder(const std::string &name, const std::string &target) {
  if (::renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS)
    return -1;
  const std::string old = Aside::nameOf(target, Aside::draw());
  if (::rename(target.c_str(), old.c_str()) != 0 ||
      ::rename(name.c_str(), target.c_str()) != 0)
    return -1;
  return ::rename(old.c_str(), name.c_str());
}

Expected<void> Aside::commitReplacing() {
  struct stat info;
  if (::stat(target.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return commit();
  // The name aside is that of the old folder from now on.
  return replaceFolder(name, target) == 0 ? Expected<void>()
                                          : systemError("cannot write", target);
}

Expected<void> Aside::commit() {
  // Rights to read a file do not change because it is written.
  struct stat info;
  if (::stat(target.c_str(), &info) == 0 && S_ISREG(info.st_mode))
    ::fchmod(lock, info.st_mode & 0777);
  if (::rename(name.c_str(), target.c_str()) != 0)
    return systemError("cannot write", target);
  release();
  return {};
}

void Aside::release() {
  forget(name);
  name.clear();
}
