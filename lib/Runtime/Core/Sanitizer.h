//===- Sanitizer.h - What the address sanitizer is told ---------*- C++ -*-===//
//
// Buffers are parts of a few blocks, whose places the compiler has chosen. To the address
// sanitizer a block is one piece of memory: it is told here which bytes of it nobody may
// touch now. In other builds these functions do nothing.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_CORE_SANITIZER_H
#define PARTITA_LIB_RUNTIME_CORE_SANITIZER_H

#include <cstddef>
#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define PARTITA_ADDRESS_SANITIZER 1
#endif
#endif

namespace partita::runtime {

#ifdef PARTITA_ADDRESS_SANITIZER
inline constexpr bool checksAddresses = true;
inline void forbid(const void *at, uint64_t bytes) {
  __asan_poison_memory_region(at, bytes);
}
inline void allow(const void *at, uint64_t bytes) {
  __asan_unpoison_memory_region(at, bytes);
}
#else
inline constexpr bool checksAddresses = false;
inline void forbid(const void *, uint64_t) {}
inline void allow(const void *, uint64_t) {}
#endif

/// Forbidden bytes at both ends of a block.
inline constexpr uint64_t redZone = checksAddresses ? 4096 : 0;

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_SANITIZER_H
