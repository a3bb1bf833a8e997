//===- InputFile.cpp - Reading a file piece by piece, and checking it -----===//
#include "partita/Base/Files/File.h"

#include "OpenFile.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace partita;

Expected<std::shared_ptr<const InputFile>> InputFile::open(const std::string &path) {
  auto opened = openRegular(path, /*followLinks=*/true);
  if (!opened)
    return tl::unexpected(opened.error());
  return std::shared_ptr<const InputFile>(
      new InputFile(path, opened->first, opened->second));
}

Expected<std::shared_ptr<const InputFile>>
InputFile::open(const std::string &path, BlockList blocks, std::string hint) {
  auto opened = openRegular(path, /*followLinks=*/true);
  if (!opened)
    return tl::unexpected(opened.error());
  std::shared_ptr<InputFile> file(new InputFile(path, opened->first, opened->second));
  if (file->bytes != blocks.fileBytes)
    return makeError("'" + path + "' has " + std::to_string(file->bytes) +
                     " bytes, its list of blocks is of a file of " +
                     std::to_string(blocks.fileBytes) + hint);
  file->blockCheck =
      std::make_unique<BlockCheck>(std::move(blocks), path, std::move(hint));
  return file;
}

InputFile::~InputFile() { ::close(descriptor); }

void InputFile::expectJumps(bool jumps) const {
  ::posix_fadvise(descriptor, 0, 0, jumps ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

Expected<void> InputFile::readNow(uint64_t offset, std::span<std::byte> into) const {
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

namespace {
/// Adds the time of its life to what checking took.
class Timed {
public:
  explicit Timed(BlockCheck &check) : check(check) {}
  ~Timed() { check.spent(std::chrono::duration<double>(Clock::now() - begin).count()); }

private:
  using Clock = std::chrono::steady_clock;
  BlockCheck &check;
  Clock::time_point begin = Clock::now();
};
} // namespace

/// Reads a part of a block and checks the block. One that is read whole is hashed where
/// it is wanted, while it is in the cache; of another one all of it is read aside.
Expected<void> InputFile::readChecked(const BlockList::Block &block, uint64_t offset,
                                      std::span<std::byte> into) const {
  uint64_t begin = block.index * BlockList::blockBytes;
  size_t whole = blockCheck->list().bytesOf(block.index);
  if (into.size() == whole) {
    if (auto ok = readNow(offset, into); !ok)
      return ok;
    Timed timed(*blockCheck);
    return blockCheck->compare(block, hashOf(into));
  }
  Timed timed(*blockCheck);
  // Pieces that stay in the cache while they are hashed.
  constexpr size_t pieceBytes = 256 << 10;
  std::vector<std::byte> aside(std::min(pieceBytes, whole));
  Hasher hasher;
  for (size_t at = 0; at < whole; at += aside.size()) {
    std::span piece(aside.data(), std::min(aside.size(), whole - at));
    if (auto ok = readNow(begin + at, piece); !ok)
      return ok;
    hasher.add(piece);
    uint64_t first = std::max(offset, begin + at);
    uint64_t end = std::min(offset + into.size(), begin + at + piece.size());
    if (first < end)
      std::memcpy(into.data() + (first - offset), piece.data() + (first - begin - at),
                  end - first);
  }
  return blockCheck->compare(block, hasher.hash());
}

Expected<void> InputFile::read(uint64_t offset, std::span<std::byte> into) const {
  if (!blockCheck)
    return readNow(offset, into);
  while (!into.empty()) {
    uint64_t index = offset / BlockList::blockBytes;
    uint64_t left = (index + 1) * BlockList::blockBytes - offset;
    auto part = into.first(std::min<uint64_t>(into.size(), left));
    const BlockList::Block *block = blockCheck->take(index);
    auto ok = block ? readChecked(*block, offset, part) : readNow(offset, part);
    if (!ok)
      return ok;
    into = into.subspan(part.size());
    offset += part.size();
  }
  return {};
}

Expected<void> InputFile::check(uint64_t offset, uint64_t count,
                                const std::byte *mapped) const {
  if (!blockCheck || count == 0)
    return {};
  constexpr uint64_t size = BlockList::blockBytes;
  for (uint64_t index = offset / size; index <= (offset + count - 1) / size; ++index) {
    const BlockList::Block *block = blockCheck->take(index);
    if (!block)
      continue;
    uint64_t begin = index * size, bytesOf = blockCheck->list().bytesOf(index);
    bool isMapped = mapped && begin >= offset && begin + bytesOf <= offset + count;
    Expected<void> ok;
    if (isMapped) {
      Timed timed(*blockCheck);
      ok = blockCheck->compare(*block, hashOf({mapped + (begin - offset), bytesOf}));
    } else {
      ok = readChecked(*block, begin, {});
    }
    if (!ok)
      return ok;
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
