//===- Stop.h - Asking long work to end -------------------------*- C++ -*-===//
#ifndef PARTITA_BASE_STOP_H
#define PARTITA_BASE_STOP_H

#include <atomic>

namespace partita {

/// A flag that another thread raises to end work: an int of the caller that becomes
/// non-zero and outlives the work. Cheap to copy and to ask. The default is never raised.
class StopFlag {
public:
  StopFlag() = default;
  explicit StopFlag(const int *flag) : flag(flag) {}

  bool isRaised() const {
    // atomic_ref takes no const object in C++20; this one only reads.
    return flag && std::atomic_ref<int>(*const_cast<int *>(flag))
                           .load(std::memory_order_relaxed) != 0;
  }

private:
  const int *flag = nullptr;
};

} // namespace partita

#endif // PARTITA_BASE_STOP_H
