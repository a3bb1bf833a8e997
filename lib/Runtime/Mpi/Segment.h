//===- Segment.h - Memory of a process that others map ----------*- C++ -*-===//
//
// A file without a name (memfd) that grows: its owner maps each block when it is taken,
// the other processes of the host map all that it may ever become at once. So a block is
// there for all of them as soon as it is taken, without a word to anybody.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_MPI_SEGMENT_H
#define PARTITA_LIB_RUNTIME_MPI_SEGMENT_H

#include "partita/Base/Error.h"
#include "partita/Runtime/Device.h"

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <utility>

namespace partita::runtime {

class Segment : public std::enable_shared_from_this<Segment> {
public:
  /// `most`: bytes of addresses, of which memory is what is taken.
  static Expected<std::shared_ptr<Segment>> create(uint64_t most);
  ~Segment();
  Segment(const Segment &) = delete;

  /// Zero-filled pages, given back with their last user. All of them are there when it
  /// returns: a lack of memory is an error and no signal later. Null: no bytes.
  Expected<Memory> take(uint64_t bytes);
  /// A small piece, aligned to 64 bytes, that stays as long as the segment.
  Expected<std::byte *> takeSmall(uint64_t bytes);

  std::byte *begin() const { return base; }
  bool contains(const void *place) const {
    auto at = reinterpret_cast<uintptr_t>(place),
         first = reinterpret_cast<uintptr_t>(base);
    return at >= first && at - first < taken;
  }
  int file() const { return descriptor; }

private:
  Segment() = default;
  Expected<void> fill(uint64_t offset, uint64_t bytes);
  void giveBack(std::byte *place, uint64_t bytes) noexcept;

  int descriptor = -1;
  std::byte *base = nullptr; ///< of `most` bytes of addresses
  uint64_t most = 0, taken = 0;
  std::byte *pool = nullptr; ///< of small pieces, the newest one
  uint64_t poolBytes = 0, poolTaken = 0;
};

/// Another process's segment as this process sees it.
class MappedSegment {
public:
  /// `process` and `file` as that process knows them. An error says what the system does
  /// not let this process do.
  static Expected<MappedSegment> open(pid_t process, int file, uint64_t most);
  MappedSegment(MappedSegment &&other) noexcept;
  ~MappedSegment();
  std::byte *begin() const { return base; }
  /// Bytes that it had when it was mapped.
  uint64_t bytes() const { return size; }

private:
  MappedSegment(std::byte *base, uint64_t most, uint64_t size)
      : base(base), most(most), size(size) {}
  std::byte *base = nullptr;
  uint64_t most = 0, size = 0;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_MPI_SEGMENT_H
