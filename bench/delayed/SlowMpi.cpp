//===- SlowMpi.cpp - The MPI transport with slower calls ------------------===//
//
// Stands in the place of libpartita_mpi.so, which it uses. A collective is over no
// earlier than PARTITA_CALL_DELAY_MS milliseconds behind its start, and as long behind
// the end of the one that was started before it: links that are slow, and serve one call
// at a time.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Transport.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <thread>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

namespace {
class SlowTransport final : public Transport {
public:
  SlowTransport(std::unique_ptr<Transport> real, Clock::duration delay)
      : real(std::move(real)), delay(delay) {}

  int rank() const override { return real->rank(); }
  int size() const override { return real->size(); }
  Expected<int> prepare(const TaskTable &table, const TaskView &task) override {
    return real->prepare(table, task);
  }
  Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                int64_t microBatch) override {
    return real->prepareTransfer(table, transfer, microBatch);
  }
  bool needsWarmUp() const override { return real->needsWarmUp(); }
  Expected<Memory> memory(uint64_t bytes) override { return real->memory(bytes); }
  std::string problem() const override { return real->problem(); }

  bool start(int call, void *const *places, const int64_t *counts) noexcept override {
    last = std::max(last, Clock::now()) + delay;
    overAt[call] = last;
    return real->start(call, places, counts);
  }
  bool wait(int call) noexcept override {
    if (!real->wait(call))
      return false;
    while (Clock::now() < overAt[call]) {
      if (!real->progress())
        return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  bool progress() noexcept override { return real->progress(); }

  bool barrier() noexcept override { return real->barrier(); }
  bool maximum(std::span<int64_t> values) noexcept override {
    return real->maximum(values);
  }
  bool sendToRoot(const void *data, int64_t bytes) noexcept override {
    return real->sendToRoot(data, bytes);
  }
  bool receiveFrom(int from, void *data, int64_t bytes) noexcept override {
    return real->receiveFrom(from, data, bytes);
  }
  bool beginSendToRoot(const void *data, int64_t bytes, size_t later) noexcept override {
    return real->beginSendToRoot(data, bytes, later);
  }
  bool beginReceiveFrom(int from, void *data, int64_t bytes,
                        size_t later) noexcept override {
    return real->beginReceiveFrom(from, data, bytes, later);
  }
  bool beginMaximum(std::span<int64_t> values, size_t later) noexcept override {
    return real->beginMaximum(values, later);
  }
  bool isOver(size_t later, bool &over, int &awaited) noexcept override {
    return real->isOver(later, over, awaited);
  }
  void abort() noexcept override { real->abort(); }
  Expected<void> beginThread() override { return real->beginThread(); }
  uint64_t movedMeanwhile() const override { return real->movedMeanwhile(); }

private:
  std::unique_ptr<Transport> real;
  Clock::duration delay;
  Clock::time_point last;
  std::map<int, Clock::time_point> overAt; ///< by call
};
} // namespace

extern "C" const char partita_mpi_abi[] = PARTITA_TRANSPORT_ABI;

extern "C" Transport *partita_mpi_create(MpiWindow window, std::string *problem) {
  void *library = ::dlopen(PARTITA_REAL_MPI, RTLD_NOW | RTLD_GLOBAL);
  using Create = Transport *(*)(MpiWindow, std::string *);
  auto create = library ? reinterpret_cast<Create>(::dlsym(library, "partita_mpi_create"))
                        : nullptr;
  Transport *real = create ? create(window, problem) : nullptr;
  const char *text = std::getenv("PARTITA_CALL_DELAY_MS");
  const auto delay = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(text ? std::atof(text) : 0));
  return real ? new SlowTransport(std::unique_ptr<Transport>(real), delay) : nullptr;
}
