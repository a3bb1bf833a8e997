//===- SafeTensors.h - Weight files -----------------------------*- C++ -*-===//
//
// A safetensors file is an 8-byte little-endian header length, a JSON header
// {name: {dtype, shape, data_offsets}}, and one buffer. Tensors are mapped, not read:
// the reader hands out places in the file.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_SAFETENSORS_H
#define PARTITA_BASE_FILES_SAFETENSORS_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Base/Files/File.h"

#include <functional>
#include <string>
#include <vector>

namespace partita {

struct SafeTensorEntry {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
  uint64_t offset = 0; ///< of the first byte, from the start of the *file*
  uint64_t bytes = 0;
};

struct SafeTensorsFile {
  std::shared_ptr<const MappedFile> file;
  std::vector<SafeTensorEntry> tensors; ///< by ascending offset
  std::vector<std::pair<std::string, std::string>> metadata;

  /// Null if there is no tensor of that name.
  const SafeTensorEntry *find(std::string_view name) const;
  std::span<const std::byte> bytes(const SafeTensorEntry &entry) const {
    return file->bytes().subspan(entry.offset, entry.bytes);
  }
};

/// Maps the file and checks its header: sizes match shapes, ranges lie in the file and
/// do not overlap.
Expected<SafeTensorsFile> readSafeTensors(const std::string &path);

/// Writes tensors one after the other without holding them in memory. Each tensor's
/// file offset is a multiple of 64, so that a mapping of it can be used in place (the
/// gaps are filled by tensors named "__pad__N", which the format demands and readers of
/// other projects ignore as unused weights).
class SafeTensorsWriter {
public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  /// Declares a tensor; returns nothing, all offsets are fixed by `begin`.
  void declare(std::string name, DType type, std::vector<int64_t> shape);
  /// Creates the file and writes the header; the entries have their final offsets.
  Expected<std::vector<SafeTensorEntry>> begin(const std::string &path,
                                               const Metadata &metadata = {});
  /// The bytes of the next tensor, in order of declaration.
  Expected<void> append(std::span<const std::byte> bytes);
  /// Brings what was appended so far to the disk.
  Expected<void> sync();
  /// Closes the file; an error if a tensor is missing or the disk is full. Gives the
  /// hashes of what was written.
  Expected<BlockList> finish();

  SafeTensorsWriter() = default;
  SafeTensorsWriter(const SafeTensorsWriter &) = delete;
  SafeTensorsWriter &operator=(const SafeTensorsWriter &) = delete;
  ~SafeTensorsWriter();

private:
  Expected<void> write(const void *data, size_t size);
  Expected<void> writeNow(const char *data, size_t size);
  Expected<void> flush();

  /// A system call per bias would cost more than its bytes.
  static constexpr size_t pendingLimit = 1 << 16;
  std::string pending; ///< at most pendingLimit bytes, not yet in the file

  std::string path;
  int fd = -1;
  BlockHasher hasher;
  std::vector<SafeTensorEntry> entries;
  size_t next = 0;
  uint64_t position = 0;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_SAFETENSORS_H
