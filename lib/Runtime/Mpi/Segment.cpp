//===- Segment.cpp - Memory of a process that others map ------------------===//
#include "Segment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// Since Linux 5.14, but not in every C library's header.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

using namespace partita;
using namespace partita::runtime;

static constexpr uint64_t page = 4096, huge = uint64_t(2) << 20;

static uint64_t upTo(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

static std::string reason(int code) { return std::strerror(code); }

Expected<std::shared_ptr<Segment>> Segment::create(uint64_t most) {
  std::shared_ptr<Segment> made(new Segment());
  made->most = most;
  made->descriptor = ::memfd_create("partita-window", MFD_CLOEXEC);
  if (made->descriptor < 0)
    return makeError("cannot make memory for other processes: " + reason(errno));
  // Places of huge pages in the file are places of huge pages here.
  void *block = ::mmap(nullptr, most + huge, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED)
    return makeError("cannot get " + std::to_string(most) +
                     " bytes of addresses: " + reason(errno));
  auto *first = static_cast<std::byte *>(block);
  const uint64_t skipped =
      upTo(reinterpret_cast<uintptr_t>(first), huge) - reinterpret_cast<uintptr_t>(first);
  if (skipped != 0)
    ::munmap(first, skipped);
  ::munmap(first + skipped + most, huge - skipped);
  made->base = first + skipped;
  return made;
}

Segment::~Segment() {
  if (base)
    ::munmap(base, most);
  if (descriptor >= 0)
    ::close(descriptor);
}

/// Makes the file long enough, and its new pages.
Expected<void> Segment::fill(uint64_t offset, uint64_t bytes) {
  const std::string what = "cannot allocate " + std::to_string(bytes) +
                           " bytes that ranks of this host share: ";
  const uint64_t end = offset + bytes;
  if (end > most)
    return makeError(what + "there are " + std::to_string(most) +
                     " bytes of addresses for them");
  // A file that grows beyond the limit would get a signal.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < end)
    return makeError(what + "files may have " + std::to_string(limit.rlim_cur) +
                     " bytes (ulimit -f)");
  if (::ftruncate(descriptor, static_cast<off_t>(end)) != 0)
    return makeError(what + reason(errno));
  std::byte *place = base + offset;
  if (::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor,
             static_cast<off_t>(offset)) == MAP_FAILED)
    return makeError(what + reason(errno));
  if (bytes >= huge)
    ::madvise(place, bytes, MADV_HUGEPAGE);
  if (::madvise(place, bytes, MADV_POPULATE_WRITE) == 0)
    return {};
  // Older systems do not know it, but can make the file's pages.
  if (errno == EINVAL && ::fallocate(descriptor, 0, static_cast<off_t>(offset),
                                     static_cast<off_t>(bytes)) == 0)
    return {};
  const int code = errno;
  giveBack(place, bytes);
  return makeError(what + reason(code));
}

Expected<Memory> Segment::take(uint64_t bytes) {
  if (bytes == 0)
    return Memory();
  const uint64_t all = upTo(bytes, page);
  const uint64_t offset = bytes >= huge ? upTo(taken, huge) : taken;
  if (auto ok = fill(offset, all); !ok)
    return tl::unexpected(ok.error());
  taken = offset + all;
  return Memory(base + offset, [mine = shared_from_this(), all](std::byte *at) {
    mine->giveBack(at, all);
  });
}

/// Pages go, addresses stay.
void Segment::giveBack(std::byte *place, uint64_t bytes) noexcept {
  ::mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  ::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(place - base), static_cast<off_t>(bytes));
}

Expected<std::byte *> Segment::takeSmall(uint64_t bytes) {
  constexpr uint64_t usual = 16 * page;
  bytes = upTo(bytes, 64);
  if (poolBytes - poolTaken < bytes) {
    const uint64_t size = upTo(std::max(bytes, usual), page);
    if (auto ok = fill(taken, size); !ok)
      return tl::unexpected(ok.error());
    pool = base + taken;
    taken += size;
    poolBytes = size, poolTaken = 0;
  }
  poolTaken += bytes;
  return pool + poolTaken - bytes;
}

Expected<MappedSegment> MappedSegment::open(pid_t process, int file, uint64_t most) {
  const std::string path =
      "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0)
    return makeError("cannot open " + path + ": " + reason(errno));
  // Another process's file of this number may be anything.
  struct stat found{};
  if (::fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode)) {
    ::close(descriptor);
    return makeError(path + " is not memory that a rank shares");
  }
  void *block = ::mmap(nullptr, most, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int code = errno;
  ::close(descriptor);
  if (block == MAP_FAILED)
    return makeError("cannot map " + std::to_string(most) + " bytes of " + path + ": " +
                     reason(code));
  // Its owner's to write into a core file.
  ::madvise(block, most, MADV_DONTDUMP);
  return MappedSegment(static_cast<std::byte *>(block), most,
                       static_cast<uint64_t>(found.st_size));
}

MappedSegment::MappedSegment(MappedSegment &&other) noexcept
    : base(std::exchange(other.base, nullptr)), most(other.most), size(other.size) {}

MappedSegment::~MappedSegment() {
  if (base)
    ::munmap(base, most);
}
