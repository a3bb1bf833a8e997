//===- File.cpp - Reading, mapping and safely writing files ---------------===//
#include "partita/Base/Files/File.h"

#include "OpenFile.h"
#include "partita/Base/Files/Aside.h"

#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;

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

Expected<void> partita::writeFile(const std::string &path, std::string_view bytes) {
  auto aside = Aside::file(path);
  if (!aside)
    return tl::unexpected(aside.error());
  int fd = ::open(aside->path().c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return systemError("cannot write", path);
  bool written = writeAll(fd, bytes);
  int writeErrno = errno;
  if (::close(fd) != 0 && written) {
    written = false;
    writeErrno = errno;
  }
  if (written)
    return aside->commit();
  errno = writeErrno;
  return systemError("cannot write", path);
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
