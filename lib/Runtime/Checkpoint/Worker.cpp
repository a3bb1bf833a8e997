//===- Worker.cpp - A thread with one job at a time -----------------------===//
#include "Worker.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <utility>

using namespace partita;
using namespace partita::runtime;

struct Worker::Shared {
  std::mutex mutex;
  std::condition_variable wake, done;
  std::function<Expected<void>()> job;
  Expected<void> result;
  bool isBusy = false, isOver = false;
};

void *Worker::serve(void *given) {
  std::unique_ptr<std::shared_ptr<Shared>> own(
      static_cast<std::shared_ptr<Shared> *>(given));
  Shared &shared = **own;
  std::unique_lock guard(shared.mutex);
  for (;;) {
    shared.wake.wait(guard, [&] { return shared.job || shared.isOver; });
    if (!shared.job)
      return nullptr;
    auto job = std::exchange(shared.job, nullptr);
    guard.unlock();
    Expected<void> result = job();
    job = nullptr; // what it holds goes here, not with the lock
    guard.lock();
    shared.result = std::move(result);
    shared.isBusy = false;
    shared.done.notify_all();
  }
}

// Not by std::thread, which throws where the system has no more threads.
Expected<Worker> Worker::start() {
  auto shared = std::make_shared<Shared>();
  auto given = std::make_unique<std::shared_ptr<Shared>>(shared);
  pthread_t thread;
  if (int code = ::pthread_create(&thread, nullptr, serve, given.get()))
    return makeError(std::string("cannot start a thread: ") + std::strerror(code));
  (void)given.release();
  ::pthread_detach(thread);
  return Worker(std::move(shared));
}

Worker::~Worker() {
  if (!shared)
    return;
  std::lock_guard guard(shared->mutex);
  shared->isOver = true;
  shared->wake.notify_all();
}

void Worker::give(std::function<Expected<void>()> job) {
  std::lock_guard guard(shared->mutex);
  shared->job = std::move(job);
  shared->isBusy = true;
  shared->wake.notify_all();
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
