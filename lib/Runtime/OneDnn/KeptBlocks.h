//===- KeptBlocks.h - Memory that an engine takes again and again -*- C++ -*-===//
//
// oneDNN builds its argument map inside every execute call, and some primitives take
// buffers there, and free both at its end. Blocks that a thread freed within a Scope are
// kept for it and handed out again, so that from the second call on nothing is allocated.
//
// Every block comes from the allocator that would have served the call. Whoever frees one
// without passing here (another library, another allocator's free) frees a block of that
// allocator. A table of all kept blocks tells what a pointer is, so neither the size nor
// the owner is guessed from an address.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_ONEDNN_KEPTBLOCKS_H
#define PARTITA_LIB_RUNTIME_ONEDNN_KEPTBLOCKS_H

#include <cstddef>

namespace partita::onednn::kept {

/// Blocks of the two never replace each other: an `operator new` that somebody replaced
/// need not be malloc.
enum Family : unsigned char { Malloc, New };

/// What serves a family: `allocate` may return null or throw, `release` takes its blocks.
struct Source {
  void *(*allocate)(size_t alignment, size_t bytes);
  void (*release)(void *block);
};
/// Once, before any other call.
void setSource(Family family, Source source);

/// A kept or a new block while this thread may keep blocks; null otherwise, and where
/// nothing more is to be kept: the caller then asks the allocator itself.
void *take(Family family, size_t alignment, size_t bytes);
/// True if the block is a kept one, which is free again now.
bool give(void *block);
/// Ends the keeping of a block that is freed or moved elsewhere. To be called for what an
/// allocator returned too: a block of that address must have been freed unseen.
void forget(void *block);

/// While one exists, its thread keeps blocks; with `parallel` also every thread that has
/// none of its own and never had, as a worker of OpenMP.
class Scope {
public:
  explicit Scope(bool parallel);
  ~Scope();
  Scope(const Scope &) = delete;
  Scope &operator=(const Scope &) = delete;

private:
  bool parallel;
};

} // namespace partita::onednn::kept

#endif // PARTITA_LIB_RUNTIME_ONEDNN_KEPTBLOCKS_H
