//===- Page.cpp - What a launcher sees of its ranks -----------------------===//
#include "Page.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

struct Page::Head {
  std::atomic<uint32_t> claimed{0}, length{0};
  std::atomic<int32_t> lostRank{-1};
  char text[8192];
};

static size_t roundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t Page::bytes(int64_t ranks) {
  auto n = static_cast<size_t>(ranks);
  return roundUp(sizeof(Head)) + n * sizeof(ProcessLife) + (n + 1) * sizeof(RankProgress);
}

Page::Head &Page::head() { return *static_cast<Head *>(data); }

ProcessLife &Page::process(int64_t index) {
  auto *first = static_cast<std::byte *>(data) + roundUp(sizeof(Head));
  return reinterpret_cast<ProcessLife *>(first)[index];
}

RankProgress *Page::progress() {
  return reinterpret_cast<RankProgress *>(&process(count));
}

/// `file` -1: anonymous.
Expected<std::unique_ptr<Page>> Page::map(int file, int64_t ranks, bool fresh) {
  void *data = ::mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE,
                      file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (data == MAP_FAILED)
    return makeError(std::string("cannot share memory: ") + std::strerror(errno));
  std::unique_ptr<Page> page(new Page(data, ranks));
  if (!fresh)
    return page;
  new (data) Head;
  new (&page->progress()[ranks]) RankProgress;
  for (int64_t r = 0; r < ranks; ++r) {
    new (&page->process(r)) ProcessLife;
    new (&page->progress()[r]) RankProgress;
  }
  return page;
}

Expected<std::unique_ptr<Page>> Page::anonymous(int64_t ranks) {
  return map(-1, ranks, true);
}

Expected<std::unique_ptr<Page>> Page::create(const std::string &path, int64_t ranks) {
  int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes(ranks))) != 0) {
    auto error = makeError("cannot create '" + path + "': " + std::strerror(errno));
    if (file >= 0)
      ::close(file);
    return error;
  }
  auto page = map(file, ranks, true);
  ::close(file);
  return page;
}

std::unique_ptr<Page> Page::open(const std::string &path, int64_t ranks) {
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0)
    return nullptr;
  struct stat info;
  // Touching a mapping past the end of its file would kill this process.
  bool fits =
      ::fstat(file, &info) == 0 && info.st_size == static_cast<off_t>(bytes(ranks));
  auto page = fits ? map(file, ranks, false) : nullptr;
  ::close(file);
  return page ? std::move(*page) : nullptr;
}

Page::~Page() { ::munmap(data, bytes(count)); }

void Page::setError(const std::string &message) {
  if (head().claimed.exchange(1) != 0)
    return;
  size_t length = std::min(message.size(), sizeof(Head::text));
  std::memcpy(head().text, message.data(), length);
  head().length.store(static_cast<uint32_t>(length));
}

std::atomic<int32_t> &Page::lostRank() { return head().lostRank; }

std::string Page::error() { return {head().text, head().length.load()}; }

//===----------------------------------------------------------------------===//
// Signs of life
//===----------------------------------------------------------------------===//

namespace {
struct Beating {
  std::shared_ptr<Page> page;
  int64_t process;
};
} // namespace

static void *beatForever(void *given) {
  std::unique_ptr<Beating> mine(static_cast<Beating *>(given));
  ProcessLife &life = mine->page->process(mine->process);
  for (;;) {
    ++life.heartbeats;
    ::usleep(100'000);
  }
}

Expected<void> runtime::startBeats(std::shared_ptr<Page> page, int64_t process) {
  page->process(process).pid.store(::getpid());
  auto beating = std::make_unique<Beating>(Beating{std::move(page), process});
  pthread_t thread;
  if (int code = ::pthread_create(&thread, nullptr, beatForever, beating.get()))
    return makeError(std::string("cannot start a thread: ") + std::strerror(code));
  (void)beating.release();
  ::pthread_detach(thread);
  return {};
}

double Pulse::silence(const ProcessLife &life) { return silence(life.heartbeats.load()); }

double Pulse::silence(uint64_t heartbeats) {
  auto time = Clock::now();
  seconds += std::min(std::chrono::duration<double>(time - looked).count(), 0.2);
  looked = time;
  if (heartbeats != last) {
    last = heartbeats;
    seconds = 0;
  }
  return seconds;
}

//===----------------------------------------------------------------------===//
// Sentences
//===----------------------------------------------------------------------===//

int runtime::likelyRank(Page &page) {
  int best = 0;
  auto key = [&](int r) {
    RankProgress &progress = page.progress()[r];
    uint32_t state = progress.state.load();
    bool busy = state == RankProgress::Running || state == RankProgress::Loading;
    return std::pair(!busy, progress.task.load());
  };
  for (int r = 1; r < page.ranks(); ++r)
    if (key(r) < key(best))
      best = r;
  return best;
}

std::string runtime::placeOf(const RunOptions &options, const Bundle &bundle, Page &page,
                             int rank) {
  // A run that evaluates has loaded all entries.
  const uint32_t at = page.progress()[page.ranks()].task.load();
  const bool isOfAll =
      !options.data.evaluation.files.empty() && at < bundle.entries.size();
  const std::string &name = isOfAll ? bundle.entries[at].name : options.entry;
  for (const BundleEntry &entry : bundle.entries)
    for (const BundleStage &from : entry.stages) {
      if (entry.name != name)
        continue;
      auto stage = Stage::load(options.bundle + "/" + from.file, from.hash);
      if (stage && (*stage)->table().placeOf(rank) >= 0)
        return describePlace(&(*stage)->table(), rank, page.progress()[rank]);
    }
  return describePlace(nullptr, rank, page.progress()[rank]);
}

std::string runtime::secondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", std::round(seconds * 10) / 10);
  return text;
}
