//===- Stop.h - Asking long work to end -------------------------*- C++ -*-===//
#ifndef PARTITA_BASE_STOP_H
#define PARTITA_BASE_STOP_H

#include <algorithm>
#include <array>
#include <atomic>

namespace partita {

/// A flag that another thread raises to end work: an int of the caller that becomes
/// non-zero and outlives the work. Cheap to copy and to ask. The default is never raised.
class StopFlag {
public:
  StopFlag() = default;
  explicit StopFlag(const int *flag) : flags{flag, nullptr} {}

  bool isRaised() const {
    return std::ranges::any_of(flags, [](const int *flag) {
      // atomic_ref takes no const object in C++20; this one only reads.
      return flag && std::atomic_ref<int>(*const_cast<int *>(flag))
                             .load(std::memory_order_relaxed) != 0;
    });
  }

  /// Raised once one of the two is, each of which is of one int.
  friend StopFlag operator|(StopFlag a, StopFlag b) {
    a.flags[1] = b.flags[0];
    return a;
  }

private:
  std::array<const int *, 2> flags{};
};

} // namespace partita

#endif // PARTITA_BASE_STOP_H
