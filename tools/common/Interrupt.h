//===- Interrupt.h - What an interrupted command leaves ---------*- C++ -*-===//
#ifndef PARTITA_TOOLS_COMMON_INTERRUPT_H
#define PARTITA_TOOLS_COMMON_INTERRUPT_H

#include "partita/Base/Files/Aside.h"

#include <csignal>
#include <filesystem>
#include <pthread.h>
#include <string>
#include <unistd.h>

namespace partita {

/// While it lives, a signal that ends this process (SIGINT, SIGTERM, SIGHUP) first
/// removes what is being written aside, and a folder if one is given. Made before any
/// other thread, which then leaves these signals to it.
class RemovedOnInterrupt {
public:
  explicit RemovedOnInterrupt(std::string path = {}) : folder(std::move(path)) {
    sigemptyset(&ending);
    for (int signal : {SIGINT, SIGTERM, SIGHUP})
      sigaddset(&ending, signal);
    ::pthread_sigmask(SIG_BLOCK, &ending, &before);
    watching = ::pthread_create(&watcher, nullptr, watch, this) == 0;
    if (!watching)
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~RemovedOnInterrupt() {
    if (!watching)
      return;
    ::pthread_cancel(watcher);
    ::pthread_join(watcher, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  RemovedOnInterrupt(const RemovedOnInterrupt &) = delete;
  RemovedOnInterrupt &operator=(const RemovedOnInterrupt &) = delete;

private:
  static void *watch(void *given) {
    auto &self = *static_cast<RemovedOnInterrupt *>(given);
    int signal = 0;
    ::sigwait(&self.ending, &signal);
    // The command goes on meanwhile, and may put another file into the folder.
    std::error_code failed;
    for (int tries = 0; tries < 100; ++tries) {
      bool areGone = Aside::removeAll();
      if (!self.folder.empty())
        std::filesystem::remove_all(self.folder, failed);
      if (areGone && !failed)
        break;
    }
    ::signal(signal, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &self.ending, nullptr);
    ::kill(::getpid(), signal);
    return nullptr;
  }

  std::string folder;
  sigset_t ending, before;
  pthread_t watcher;
  bool watching = false;
};

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_INTERRUPT_H
