//===- Bell.h - Sleeping until somebody rings -------------------*- C++ -*-===//
#ifndef PARTITA_RUNTIME_BELL_H
#define PARTITA_RUNTIME_BELL_H

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace partita::runtime {

/// Bell that a rank sleeps on, or threads that move data meanwhile. May lie in memory
/// that processes share.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};
  uint32_t scope = FUTEX_PRIVATE_FLAG; ///< 0: processes share it

  /// Nobody sleeps longer than this: an abort rings no bell.
  static constexpr long longest = 50'000'000; // ns
  /// Sleep of those who have other work to look at, which rings no bell.
  static constexpr long nap = 50'000; // ns

  void ring() noexcept {
    rings.fetch_add(1);
    if (asleep.load() != 0)
      ::syscall(SYS_futex, &rings, FUTEX_WAKE | scope, INT_MAX, nullptr, nullptr, 0);
  }
  /// Sleeps until it rings, for `most` nanoseconds at most, unless it has since `seen`
  /// was read or `isOver` is true.
  template <typename IsOver>
  void sleep(uint32_t seen, IsOver isOver, long most = longest) {
    timespec slice{0, most};
    asleep.fetch_add(1);
    if (!isOver())
      ::syscall(SYS_futex, &rings, FUTEX_WAIT | scope, seen, &slice, nullptr, 0);
    asleep.fetch_sub(1);
  }
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_BELL_H
