//===- Worker.cpp - One job at a time beside the caller -------------------===//
#include "Worker.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

using namespace partita;
using namespace partita::runtime;

struct Worker::Shared {
  std::mutex mutex;
  std::condition_variable done;
  Expected<void> result;
  bool isBusy = false;
};

namespace {
struct Start {
  std::function<Expected<void>()> job;
  std::function<void(Expected<void>)> finish;
};
} // namespace

Worker::Worker() : shared(std::make_shared<Shared>()) {}
Worker::~Worker() = default;

void *Worker::serve(void *given) {
  std::unique_ptr<Start> start(static_cast<Start *>(given));
  Expected<void> result = start->job();
  start->job = nullptr; // what it holds goes before the job counts as done
  start->finish(std::move(result));
  return nullptr;
}

// Not by std::thread, which throws where the system has no more threads. A thread per
// job, as one that has stepped back may not come forward again.
void Worker::give(std::function<Expected<void>()> job) {
  auto finish = [shared = shared](Expected<void> result) {
    std::lock_guard guard(shared->mutex);
    shared->result = std::move(result);
    shared->isBusy = false;
    shared->done.notify_all();
  };
  auto start = std::make_unique<Start>(Start{std::move(job), finish});
  {
    std::lock_guard guard(shared->mutex);
    shared->isBusy = true;
  }
  pthread_t thread;
  if (int code = ::pthread_create(&thread, nullptr, serve, start.get()))
    return finish(
        makeError(std::string("cannot start a thread: ") + std::strerror(code)));
  (void)start.release();
  ::pthread_detach(thread);
}

void Worker::stepBack() {
  // Linux gives a thread that is seven steps nicer than another one a fifth of what that
  // one gets, where both want a processor. The number is that of the thread. A failure
  // leaves things as they are.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 7);
}

bool Worker::isBusy() const {
  std::lock_guard guard(shared->mutex);
  return shared->isBusy;
}

void Worker::waitFor(double seconds) const {
  std::unique_lock guard(shared->mutex);
  shared->done.wait_for(guard, std::chrono::duration<double>(seconds),
                        [&] { return !shared->isBusy; });
}

Expected<void> Worker::takeResult() {
  std::lock_guard guard(shared->mutex);
  return std::exchange(shared->result, Expected<void>());
}
