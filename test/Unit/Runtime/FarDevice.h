//===- FarDevice.h - A device whose memory the host cannot touch *- C++ -*-===//
//
// What an accelerator is to the executor, made of threads: an address of the device is no
// address of the host (a host that uses one crashes), and a stream is a thread that does
// what it is given later, in order.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_RUNTIME_FARDEVICE_H
#define PARTITA_TEST_UNIT_RUNTIME_FARDEVICE_H

#include "partita/Runtime/Executor.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

namespace fardevice {
using namespace partita;
using namespace partita::runtime;

/// Addresses of processes end before 2^47; with this they are no addresses at all.
constexpr uintptr_t far = uintptr_t(1) << 46, behindHost = uintptr_t(1) << 47;

inline std::byte *toFar(std::byte *at) {
  return reinterpret_cast<std::byte *>(reinterpret_cast<uintptr_t>(at) + far);
}
inline bool isFar(const void *at) {
  return reinterpret_cast<uintptr_t>(at) >= behindHost;
}
/// Of an address of either.
inline void *toHost(const void *at) {
  auto bits = reinterpret_cast<uintptr_t>(at);
  return reinterpret_cast<void *>(isFar(at) ? bits - far : bits);
}

class FarDevice final : public Device {
public:
  FarDevice() : Device(/*sharesHost=*/false) {}

  struct Queue final : Stream {
    Queue() : thread([this] { work(); }) {}
    ~Queue() override {
      give({});
      thread.join();
    }
    void give(std::function<void()> task) {
      std::lock_guard guard(lock);
      tasks.push_back(std::move(task));
      ++given;
      changed.notify_all();
    }
    void finish() {
      std::unique_lock guard(lock);
      changed.wait(guard, [&] { return done == given; });
    }

  private:
    void work() {
      std::mt19937 random(7);
      for (;;) {
        std::function<void()> task;
        {
          std::unique_lock guard(lock);
          changed.wait(guard, [&] { return !tasks.empty(); });
          task = std::move(tasks.front());
          tasks.pop_front();
        }
        if (!task)
          return;
        if (random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        task();
        std::lock_guard guard(lock);
        ++done;
        changed.notify_all();
      }
    }
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    uint64_t given = 0, done = 0;
    std::thread thread;
  };

  struct Mark final : Event {
    std::mutex lock;
    std::condition_variable changed;
    uint64_t recorded = 0, come = 0;
  };

  Expected<Memory> allocate(Space space, uint64_t bytes) override {
    auto memory = hostMemory(bytes);
    if (!memory || !*memory || space == Space::Host)
      return memory;
    return Memory(toFar(memory->get()), [held = *memory](std::byte *) {});
  }
  Expected<std::unique_ptr<Stream>> stream() override {
    return std::make_unique<Queue>();
  }
  Expected<std::unique_ptr<Event>> event() override { return std::make_unique<Mark>(); }
  Expected<void *> kernel(const Stage &stage, uint32_t index) override {
    return reinterpret_cast<void *>(stage.kernel(index));
  }

  bool launch(Stream &stream, const KernelWork &work, std::span<void *const> buffers,
              std::span<const int64_t> scalars) noexcept override {
    ++launches;
    std::vector<int64_t> values(scalars.begin(), scalars.end());
    queue(stream).give([&stream, work, at = hostAddresses(buffers), values] {
      reinterpret_cast<partita_kernel_fn>(work.code)(at.data(), values.data(),
                                                     &stream.status, 0, work.units, 0);
    });
    if (work.checks)
      queue(stream).finish();
    return true;
  }
  bool call(Stream &stream, const EngineWork &work,
            std::span<void *const> operands) noexcept override {
    queue(stream).give([&work, at = hostAddresses(operands)] {
      work.call->run(*work.frame, at, work.weight.get());
    });
    return true;
  }
  bool rows(Stream &stream, const RowsWork &work, const void *source,
            void *target) noexcept override {
    queue(stream).give([work, from = toHost(source), to = toHost(target)] {
      Stream here;
      cpuDevice().rows(here, work, from, to);
    });
    return true;
  }
  bool copy(Stream &stream, void *to, const void *from,
            uint64_t bytes) noexcept override {
    queue(stream).finish();
    std::memcpy(toHost(to), toHost(from), bytes);
    return true;
  }
  bool record(Event &event, Stream &stream) noexcept override {
    auto &mark = static_cast<Mark &>(event);
    std::lock_guard guard(mark.lock);
    queue(stream).give([&mark, number = ++mark.recorded] {
      std::lock_guard guard(mark.lock);
      mark.come = number;
      mark.changed.notify_all();
    });
    return true;
  }
  bool await(Stream &stream, Event &event) noexcept override {
    ++awaited;
    auto &mark = static_cast<Mark &>(event);
    std::lock_guard guard(mark.lock);
    queue(stream).give([&mark, number = mark.recorded] {
      std::unique_lock guard(mark.lock);
      mark.changed.wait(guard, [&] { return mark.come >= number; });
    });
    return true;
  }
  bool finish(Stream &stream) noexcept override {
    queue(stream).finish();
    return true;
  }

  std::atomic<int> launches{0}, awaited{0};

private:
  static Queue &queue(Stream &stream) { return static_cast<Queue &>(stream); }
  static std::vector<void *> hostAddresses(std::span<void *const> from) {
    std::vector<void *> at;
    for (void *address : from)
      at.push_back(toHost(address));
    return at;
  }
};

} // namespace fardevice

#endif // PARTITA_TEST_UNIT_RUNTIME_FARDEVICE_H
