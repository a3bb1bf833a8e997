//===- CpuDevice.cpp - The processor as a device --------------------------===//
#include "Sanitizer.h"
#include "partita/Runtime/Executor.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

// Since Linux 5.14, but not in every C library's header.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

using namespace partita;
using namespace partita::runtime;

Expected<Memory> runtime::hostMemory(uint64_t bytes, bool isFilled) {
  if (bytes == 0)
    return Memory();
  const uint64_t all = bytes + 2 * redZone;
  void *block = ::mmap(nullptr, all, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED)
    return makeError("cannot allocate " + std::to_string(bytes) +
                     " bytes: " + std::strerror(errno));
  std::byte *data = static_cast<std::byte *>(block) + redZone;
  forbid(block, redZone);
  forbid(data + bytes, redZone);
  // A huge page lies in the block as a whole, or is none: no more memory than planned.
  if (isFilled && bytes >= (uint64_t(2) << 20))
    ::madvise(data, bytes, MADV_HUGEPAGE);
  if (!isFilled)
    ::madvise(data, bytes, MADV_NOHUGEPAGE);
  return Memory(data, [all](std::byte *at) {
    allow(at - redZone, all);
    ::munmap(at - redZone, all);
  });
}

template <typename Element>
static void fillElements(std::byte *target, int64_t bytes, uint64_t bits) {
  auto *first = reinterpret_cast<Element *>(target);
  std::fill_n(first, bytes / static_cast<int64_t>(sizeof(Element)),
              static_cast<Element>(bits));
}

/// Fills `bytes` with an element pattern of `width` bytes.
static void fillPattern(std::byte *target, int64_t bytes, uint64_t bits, int64_t width) {
  bool uniform = true;
  for (int64_t i = 1; i < width; ++i)
    uniform &= (bits >> (8 * i) & 0xff) == (bits & 0xff);
  if (uniform) {
    std::memset(target, static_cast<int>(bits & 0xff), static_cast<size_t>(bytes));
    return;
  }
  if (width == 2)
    fillElements<uint16_t>(target, bytes, bits);
  else if (width == 4)
    fillElements<uint32_t>(target, bytes, bits);
  else
    fillElements<uint64_t>(target, bytes, bits);
}

/// Rows from `begin` to before `end`.
static void runRows(const RowsWork &work, const std::byte *source, std::byte *target,
                    int64_t begin, int64_t end) {
  source += work.sourceShift + begin * work.skip;
  target += work.targetShift + begin * work.targetSkip;
  for (int64_t o = begin; o < end; ++o, source += work.skip, target += work.targetSkip) {
    if (source != target && work.from != 0)
      std::memmove(target, source, static_cast<size_t>(work.from));
    if (work.from < work.to)
      fillPattern(target + work.from, work.to - work.from, work.bits, work.width);
  }
}

namespace {
class CpuDevice final : public Device {
public:
  CpuDevice() : Device(/*sharesHost=*/true) {}

  Expected<Memory> allocate(Space space, uint64_t bytes) override {
    bool isFilled = space != Space::Weight;
    auto memory = hostMemory(bytes, isFilled);
    // So that the first request does not wait for the pages. Systems that cannot do it
    // are no error.
    if (memory && *memory && isFilled)
      ::madvise(memory->get(), bytes, MADV_POPULATE_WRITE);
    return memory;
  }
  Expected<std::unique_ptr<Stream>> stream() override {
    return std::make_unique<Stream>();
  }
  Expected<std::unique_ptr<Event>> event() override { return std::make_unique<Event>(); }
  Expected<void *> kernel(const Stage &stage, uint32_t index) override {
    return reinterpret_cast<void *>(stage.kernel(index));
  }

  bool launch(Stream &stream, const KernelWork &work, std::span<void *const> buffers,
              std::span<const int64_t> scalars) noexcept override {
    auto *function = reinterpret_cast<partita_kernel_fn>(work.code);
    runParts(work.parts, [&](int part) {
      function(buffers.data(), scalars.data(), &stream.status,
               partBegin(work.units, part, work.parts),
               partBegin(work.units, part + 1, work.parts), part);
    });
    return true;
  }
  bool call(Stream &, const EngineWork &work,
            std::span<void *const> operands) noexcept override {
    return work.call->run(*work.frame, operands, work.weight.get());
  }
  bool rows(Stream &, const RowsWork &work, const void *source,
            void *target) noexcept override {
    runParts(work.parts, [&](int part) {
      runRows(work, static_cast<const std::byte *>(source),
              static_cast<std::byte *>(target), partBegin(work.outer, part, work.parts),
              partBegin(work.outer, part + 1, work.parts));
    });
    return true;
  }
  bool copy(Stream &, void *to, const void *from, uint64_t bytes) noexcept override {
    std::memcpy(to, from, bytes);
    return true;
  }
  bool record(Event &, Stream &) noexcept override { return true; }
  bool await(Stream &, Event &) noexcept override { return true; }
  bool finish(Stream &) noexcept override { return true; }
};
} // namespace

Device &runtime::cpuDevice() {
  static CpuDevice only;
  return only;
}
