//===- Team.cpp - The threads of a rank -----------------------------------===//
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <dlfcn.h>
#include <sched.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define PARTITA_TSAN(CALL) CALL
#endif
#endif
// The OpenMP runtime was not built for the thread sanitizer, which therefore does not see
// that a team begins behind its caller and ends before it.
#ifndef PARTITA_TSAN
#define PARTITA_TSAN(CALL)
#endif

using namespace partita;

namespace {
/// The entry points of the OpenMP runtime that are needed here. GOMP_parallel is what
/// GCC's `#pragma omp parallel` calls; LLVM's runtime has it too.
struct OpenMp {
  void (*setNumThreads)(int) = find<void (*)(int)>("omp_set_num_threads");
  int (*maxThreads)() = find<int (*)()>("omp_get_max_threads");
  int (*threadNumber)() = find<int (*)()>("omp_get_thread_num");
  int (*numThreads)() = find<int (*)()>("omp_get_num_threads");
  using Region = void (*)(void *);
  void (*parallel)(Region, void *, unsigned, unsigned) =
      find<void (*)(Region, void *, unsigned, unsigned)>("GOMP_parallel");

  bool isThere() const {
    return setNumThreads && maxThreads && threadNumber && numThreads && parallel;
  }

  template <typename Function> static Function find(const char *name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }
  static const OpenMp &get() {
    static const OpenMp found;
    return found;
  }
};

struct Parts {
  int count;
  runtime::PartFunction function;
  void *data;
};
} // namespace

void runtime::setTeamSize(int threads) {
  if (OpenMp::get().isThere())
    OpenMp::get().setNumThreads(std::max(threads, 1));
}

int runtime::teamSize() {
  return OpenMp::get().isThere() ? std::max(OpenMp::get().maxThreads(), 1) : 1;
}

int runtime::threadsPerRank(int64_t ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int64_t cores = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                      ? static_cast<int64_t>(CPU_COUNT(&allowed))
                      : 1;
  return static_cast<int>(std::max<int64_t>(1, cores / std::max<int64_t>(1, ranks)));
}

/// A team may be smaller than asked for; every part is run all the same.
static void runMine(void *data) {
  PARTITA_TSAN(__tsan_acquire(data));
  const Parts &parts = *static_cast<const Parts *>(data);
  const OpenMp &openMp = OpenMp::get();
  for (int part = openMp.threadNumber(); part < parts.count; part += openMp.numThreads())
    parts.function(parts.data, part);
  PARTITA_TSAN(__tsan_release(data));
}

void runtime::runParts(int parts, PartFunction function, void *data) noexcept {
  if (parts <= 1 || teamSize() == 1) {
    for (int part = 0; part < parts; ++part)
      function(data, part);
    return;
  }
  // Always the whole team: threads that a smaller region does not need would end, and
  // have to be started again for the next one.
  Parts all{parts, function, data};
  PARTITA_TSAN(__tsan_release(&all));
  OpenMp::get().parallel(runMine, &all, 0, 0);
  PARTITA_TSAN(__tsan_acquire(&all));
}
