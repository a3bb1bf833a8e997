//===- File.h - Reading, mapping and safely writing files -------*- C++ -*-===//
#ifndef PARTITA_BASE_FILES_FILE_H
#define PARTITA_BASE_FILES_FILE_H

#include "partita/Base/Error.h"
#include "partita/Base/Files/BlockList.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace partita {

/// The whole file as bytes; "-" is standard input.
Expected<std::string> readFile(const std::string &path);

/// Writes `bytes` to `path` through a temporary file beside it and a rename, so that a
/// reader never sees half a file. A link stays, and what it leads to is written. What is
/// no regular file (a device, a pipe, a descriptor of this process as /dev/stdout) is
/// written into; a pipe that nobody reads is an error.
Expected<void> writeFile(const std::string &path, std::string_view bytes);

/// Writes a new file, or over an old one, and brings it to the disk: not aside, for files
/// of a folder that is aside itself. `syncFolder` brings its name there.
Expected<void> writeSynced(const std::string &path, std::string_view bytes);
/// Brings the names of a folder to the disk: what was made, renamed and removed in it.
Expected<void> syncFolder(const std::string &path);

/// A read-only mapping of a file; unmapped when the last copy of the pointer goes.
class MappedFile {
public:
  /// Maps the whole file; "-" is standard input, which is read into memory.
  /// `followLinks` false refuses a symbolic link as the last
  /// component (used for external data, which must not leave the model's folder).
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string &path,
                                                          bool followLinks = true);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const std::byte> bytes() const { return {data, size}; }

private:
  MappedFile(const std::byte *data, size_t size) : data(data), size(size) {}
  const std::byte *data;
  size_t size;
  std::shared_ptr<const void> owner; ///< of memory that is no mapping
};

/// A file that is read piece by piece. Nothing of it is mapped but what `map` was asked
/// for: a page that was touched brings its neighbours into a mapping (up to 2 MiB of
/// them, as the system keeps the file), so what must not be there must not be mapped.
///
/// Where a list of its blocks is given, every listed block is checked once, by the first
/// who reads some of it; what is mapped is checked by `check`.
class InputFile {
public:
  static Expected<std::shared_ptr<const InputFile>> open(const std::string &path);
  /// `blocks` is about a file of this size. `hint`: see BlockCheck.
  static Expected<std::shared_ptr<const InputFile>>
  open(const std::string &path, BlockList blocks, std::string hint);
  ~InputFile();
  InputFile(const InputFile &) = delete;
  InputFile &operator=(const InputFile &) = delete;

  uint64_t size() const { return bytes; }
  /// Fills `into` from `offset` on; an error if the file ends before, or if a block is
  /// not as its list says.
  Expected<void> read(uint64_t offset, std::span<std::byte> into) const;
  /// Whether the next reads jump: the system then reads ahead of none of them.
  void expectJumps(bool jumps) const;
  /// Checks the blocks that have these bytes. `mapped`: where they are in memory already,
  /// so that they are not read again; null: read, and nothing else touches them.
  Expected<void> check(uint64_t offset, uint64_t count,
                       const std::byte *mapped = nullptr) const;
  /// Null where no list is given.
  const BlockCheck *blocks() const { return blockCheck.get(); }
  /// The bytes from `offset` on, in a read-only mapping of their pages alone, which goes
  /// with the last copy of the pointer. `count` is not 0 and within the file.
  Expected<std::shared_ptr<const std::byte>> map(uint64_t offset, uint64_t count) const;

private:
  InputFile(std::string path, int descriptor, uint64_t bytes)
      : path(std::move(path)), descriptor(descriptor), bytes(bytes) {}
  Expected<void> readNow(uint64_t offset, std::span<std::byte> into) const;
  Expected<void> readChecked(const BlockList::Block &block, uint64_t offset,
                             std::span<std::byte> into) const;
  std::string path;
  int descriptor;
  uint64_t bytes;
  std::unique_ptr<BlockCheck> blockCheck; ///< null: nothing is checked
};

} // namespace partita

#endif // PARTITA_BASE_FILES_FILE_H
