//===- File.cpp - Reading, mapping and safely writing files ---------------===//
#include "partita/Base/Files/File.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;

static tl::unexpected<Error> systemError(const std::string &what,
                                         const std::string &path) {
  return makeError(what + " '" + path + "': " + std::strerror(errno));
}

Expected<std::string> partita::readFile(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

std::string partita::fingerprint(std::span<const std::byte> bytes) {
  // A multiplication spreads every bit upwards, the shift back down; the size tells apart
  // what differs only in zeros at the end.
  uint64_t state = bytes.size() + 0x9e3779b97f4a7c15;
  auto take = [&](const std::byte *from, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, from, count);
    state = (state ^ word) * 0xff51afd7ed558ccd;
    state ^= state >> 32;
  };
  size_t whole = bytes.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8)
    take(bytes.data() + at, 8); // no call, as the count is known
  if (whole != bytes.size())
    take(bytes.data() + whole, bytes.size() - whole);
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(state));
  return text;
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
  std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return systemError("cannot write", path);
  bool written = writeAll(fd, bytes);
  int writeErrno = errno;
  if (::close(fd) != 0 && written) {
    written = false;
    writeErrno = errno;
  }
  if (written && ::rename(temporary.c_str(), path.c_str()) == 0)
    return {};
  if (!written)
    errno = writeErrno;
  auto error = systemError("cannot write", path);
  ::unlink(temporary.c_str());
  return error;
}

/// A descriptor of the regular file and its size. Not blocking: a pipe that nobody writes
/// to would hang here, before it is seen that it is no file. Regular files do not care.
static Expected<std::pair<int, uint64_t>> openRegular(const std::string &path,
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

Expected<std::shared_ptr<const InputFile>> InputFile::open(const std::string &path) {
  auto opened = openRegular(path, /*followLinks=*/true);
  if (!opened)
    return tl::unexpected(opened.error());
  return std::shared_ptr<const InputFile>(
      new InputFile(path, opened->first, opened->second));
}

InputFile::~InputFile() { ::close(descriptor); }

Expected<void> InputFile::read(uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    ssize_t n = ::pread(descriptor, into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return systemError("cannot read", path);
    if (n == 0)
      return makeError("'" + path + "' ends at byte " + std::to_string(offset) +
                       ", before what was to be read");
    into = into.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Expected<std::shared_ptr<const std::byte>> InputFile::map(uint64_t offset,
                                                          uint64_t count) const {
  constexpr uint64_t page = 4096;
  uint64_t first = offset / page * page, length = offset + count - first;
  void *data = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor,
                      static_cast<off_t>(first));
  if (data == MAP_FAILED)
    return systemError("cannot map", path);
  auto unmap = [length](void *mapped) { ::munmap(mapped, length); };
  std::shared_ptr<void> mapping(data, unmap);
  return std::shared_ptr<const std::byte>(mapping, static_cast<const std::byte *>(data) +
                                                       (offset - first));
}
