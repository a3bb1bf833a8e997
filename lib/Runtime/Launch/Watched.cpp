//===- Watched.cpp - Local ranks in a watched process ---------------------===//
//
// The child runs the ranks as threads and watches for one that stands still; the parent
// watches the child, which may die or be stopped. They share one page with the progress
// of every rank, so that the parent can say where it happened.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"

#include "partita/Base/Bundle.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

namespace {

struct Page {
  std::atomic<uint32_t> errorLength{0};
  char error[8192];
  std::atomic<int32_t> crashedRank{-1};

  static size_t bytes(int64_t ranks) {
    return sizeof(Page) + sizeof(RankProgress) * static_cast<size_t>(ranks) + 64;
  }
  RankProgress *progress() {
    auto at = reinterpret_cast<uintptr_t>(this + 1);
    return reinterpret_cast<RankProgress *>((at + 63) / 64 * 64);
  }
};

struct Unmap {
  size_t size;
  void operator()(Page *page) const { ::munmap(page, size); }
};
using SharedPage = std::unique_ptr<Page, Unmap>;

} // namespace

static Expected<SharedPage> makePage(int64_t ranks) {
  void *data = ::mmap(nullptr, Page::bytes(ranks), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return makeError(std::string("cannot share memory: ") + std::strerror(errno));
  Page *page = new (data) Page;
  for (int64_t r = 0; r < ranks; ++r)
    new (&page->progress()[r]) RankProgress;
  return SharedPage(page, Unmap{Page::bytes(ranks)});
}

[[noreturn]] static void childMain(const RunOptions &options, Page &page, pid_t parent,
                                   const Print &print) {
  // No orphan, whatever happens to the parent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(1);
  auto ok = runRanks(options, TransportKind::Local, page.progress(), print);
  if (ok)
    ::_exit(0);
  size_t length = std::min(ok.error().message.size(), sizeof(page.error));
  std::memcpy(page.error, ok.error().message.data(), length);
  page.errorLength.store(static_cast<uint32_t>(length));
  // Threads may hang: no destructors.
  ::_exit(1);
}

/// The rank that was running when the process ended: one that worked, before one that
/// waited; the farthest behind.
static int likelyRank(RankProgress *progress, int64_t ranks) {
  int best = 0;
  auto key = [&](int r) {
    uint32_t state = progress[r].state.load();
    bool busy = state == RankProgress::Running || state == RankProgress::Loading;
    return std::pair(!busy, progress[r].task.load());
  };
  for (int r = 1; r < ranks; ++r)
    if (key(r) < key(best))
      best = r;
  return best;
}

/// Opens the stage only now, to name the node.
static std::string place(const RunOptions &options, const Bundle &bundle, int rank,
                         const RankProgress &progress) {
  std::shared_ptr<const Stage> stage;
  for (const BundleEntry &entry : bundle.entries)
    if (entry.name == options.entry)
      if (auto loaded = Stage::load(options.bundle + "/" + entry.stages[0].library))
        stage = *loaded;
  return describePlace(stage ? &stage->table() : nullptr, rank, progress);
}

namespace {

class Watcher {
public:
  Watcher(const RunOptions &options, const Bundle &bundle, Page &page, pid_t child)
      : options(options), bundle(bundle), page(page), child(child) {}

  Expected<void> watch() {
    for (;;) {
      int status = 0;
      pid_t got = ::waitpid(child, &status, WNOHANG);
      if (got == child)
        return result(status);
      if (got < 0 && errno != EINTR)
        return makeError("the process of the ranks was lost");
      if (standsStill()) {
        int rank = likelyRank(page.progress(), bundle.numRanks());
        ::kill(child, SIGKILL);
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
          ;
        return makeError(at(rank) + ": no progress for " +
                         std::to_string(static_cast<int64_t>(options.timeout)) + " s");
      }
      ::usleep(20'000);
    }
  }

private:
  std::string at(int rank) { return place(options, bundle, rank, page.progress()[rank]); }

  Expected<void> result(int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
      return {};
    if (uint32_t length = page.errorLength.load())
      return makeError(std::string(page.error, length));
    int rank = likelyRank(page.progress(), bundle.numRanks());
    if (WIFSIGNALED(status))
      return makeError(at(rank) + ": the process was killed by signal " +
                       std::to_string(WTERMSIG(status)) + " (" +
                       ::strsignal(WTERMSIG(status)) + ")");
    return makeError(at(rank) + ": the process ended with status " +
                     std::to_string(WEXITSTATUS(status)));
  }

  /// The child watches its ranks itself; this catches a child that is stopped whole.
  bool standsStill() {
    uint64_t sum = 0;
    bool idle = true;
    for (int64_t r = 0; r < bundle.numRanks(); ++r) {
      sum += page.progress()[r].beat.load();
      uint32_t state = page.progress()[r].state.load();
      idle &= state == RankProgress::Idle;
    }
    auto time = std::chrono::steady_clock::now();
    if (sum != lastSum || idle) {
      lastSum = sum;
      lastTime = time;
    }
    return std::chrono::duration<double>(time - lastTime).count() > options.timeout + 5;
  }

  const RunOptions &options;
  const Bundle &bundle;
  Page &page;
  pid_t child;
  uint64_t lastSum = 0;
  std::chrono::steady_clock::time_point lastTime = std::chrono::steady_clock::now();
};

} // namespace

Expected<void> runtime::runWatched(const RunOptions &options, const Print &print) {
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  auto page = makePage(bundle->numRanks());
  if (!page)
    return tl::unexpected(page.error());
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0)
    return makeError(std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0)
    childMain(options, **page, parent, print);
  return Watcher(options, *bundle, **page, child).watch();
}
