//===- File.cpp - Reading, mapping and safely writing files ---------------===//
#include "partita/Base/Files/File.h"

#include "OpenFile.h"
#include "partita/Base/Files/Aside.h"

#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;
namespace fs = std::filesystem;

Expected<std::string> partita::readFile(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

static bool writeAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

/// Writes all to the descriptor, and closes it. `path` is for the error.
static Expected<void> writeAndClose(int fd, const std::string &path,
                                    std::string_view bytes) {
  if (fd < 0)
    return systemError("cannot write", path);
  bool written = writeAll(fd, bytes);
  int writeErrno = errno;
  if (::close(fd) != 0 && written) {
    written = false;
    writeErrno = errno;
  }
  errno = writeErrno;
  return written ? Expected<void>() : systemError("cannot write", path);
}

/// The number of a path in /proc/self/fd, -1 for other paths.
static int descriptorAt(const fs::path &path) {
  std::error_code ignored;
  std::string folder = fs::canonical(path.parent_path(), ignored).string();
  std::string name = path.filename().string();
  int number = -1;
  auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
  bool isOwn = folder == "/proc/" + std::to_string(::getpid()) + "/fd";
  return isOwn && failed == std::errc() && end == name.data() + name.size() ? number : -1;
}

Expected<Place> partita::placeOf(const std::string &path) {
  constexpr int mostLinks = 40; // as the system
  fs::path at = path;
  for (int links = 0; links < mostLinks; ++links) {
    if (int descriptor = descriptorAt(at); descriptor >= 0)
      return Place{at.string(), descriptor};
    std::error_code failed;
    fs::path target = fs::read_symlink(at, failed);
    if (failed) { // no link
      struct stat info;
      bool isThere = ::stat(at.c_str(), &info) == 0;
      return Place{at.string(), -1,
                   isThere && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)};
    }
    at = at.parent_path() / target;
  }
  errno = ELOOP;
  return systemError("cannot write", path);
}

/// A descriptor of what is no regular file. Opening a pipe waits for no reader.
static int openSpecial(const Place &place) {
  if (place.descriptor >= 0)
    return ::fcntl(place.descriptor, F_DUPFD_CLOEXEC, 0);
  int fd = ::open(place.path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0)
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

Expected<void> partita::writeFile(const std::string &path, std::string_view bytes) {
  auto place = placeOf(path);
  if (!place)
    return tl::unexpected(place.error());
  if (place->descriptor >= 0 || place->isSpecial)
    return writeAndClose(openSpecial(*place), path, bytes);
  auto aside = Aside::file(path);
  if (!aside)
    return tl::unexpected(aside.error());
  int fd = ::open(aside->path().c_str(), O_WRONLY | O_CLOEXEC);
  auto ok = writeAndClose(fd, path, bytes);
  return ok ? aside->commit() : ok;
}

/// Syncs and closes; the first thing that fails is the error.
static Expected<void> syncAndClose(int fd, const std::string &path, bool written) {
  int failure = written && ::fsync(fd) == 0 ? 0 : errno;
  if (::close(fd) != 0 && failure == 0)
    failure = errno;
  errno = failure;
  return failure == 0 ? Expected<void>() : systemError("cannot write", path);
}

Expected<void> partita::writeSynced(const std::string &path, std::string_view bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return systemError("cannot write", path);
  return syncAndClose(fd, path, writeAll(fd, bytes));
}

Expected<void> partita::syncFolder(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return systemError("cannot open", path);
  return syncAndClose(fd, path, true);
}

/// Not blocking: a pipe that nobody writes to would hang here, before it is seen that it
/// is no file. Regular files do not care.
Expected<std::pair<int, uint64_t>> partita::openRegular(const std::string &path,
                                                        bool followLinks) {
  int fd = ::open(path.c_str(),
                  O_RDONLY | O_CLOEXEC | O_NONBLOCK | (followLinks ? 0 : O_NOFOLLOW));
  if (fd < 0)
    return systemError("cannot open", path);
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return makeError("'" + path + "' is not a regular file");
  }
  return std::pair(fd, static_cast<uint64_t>(info.st_size));
}

/// All of standard input, in memory of its own. It can be read once, so that it is kept:
/// a model is read again where a plan is searched anew.
static Expected<std::shared_ptr<const std::string>> standardInput() {
  static std::mutex mutex;
  static std::shared_ptr<const std::string> known;
  std::lock_guard lock(mutex);
  if (known)
    return known;
  auto text = std::make_shared<std::string>();
  for (char buffer[1 << 16];;) {
    ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return systemError("cannot read", "-");
    if (n == 0)
      break;
    text->append(buffer, static_cast<size_t>(n));
  }
  known = std::move(text);
  return known;
}

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path,
                                                             bool followLinks) {
  if (path == "-") {
    auto text = standardInput();
    if (!text)
      return tl::unexpected(text.error());
    auto *bytes = reinterpret_cast<const std::byte *>((*text)->data());
    std::shared_ptr<MappedFile> file(new MappedFile(bytes, (*text)->size()));
    file->owner = std::move(*text);
    return file;
  }
  auto opened = openRegular(path, followLinks);
  if (!opened)
    return tl::unexpected(opened.error());
  auto [fd, size] = *opened;
  void *data = nullptr;
  if (size != 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      ::close(fd);
      return systemError("cannot map", path);
    }
  }
  ::close(fd);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const std::byte *>(data), size));
}

MappedFile::~MappedFile() {
  if (size != 0 && !owner)
    ::munmap(const_cast<std::byte *>(data), size);
}
