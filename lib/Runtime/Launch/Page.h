//===- Page.h - What a launcher sees of its ranks ---------------*- C++ -*-===//
//
// Memory that a launcher shares with the processes it starts: whether each is alive and
// how it ended, and where every rank stands, so that the launcher can end a run that a
// process left without a word, and say at which rank and node it happened.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_PAGE_H
#define PARTITA_LIB_RUNTIME_LAUNCH_PAGE_H

#include "Internal.h"

#include "partita/Base/Bundle/Bundle.h"

#include <chrono>
#include <memory>
#include <sys/types.h>

namespace partita::runtime {

/// One started process. A process that was never seen has pid 0.
struct alignas(64) ProcessLife {
  /// Stopped: by a signal, behind a step that is saved. Lost: a rank made no progress.
  enum End : uint32_t { Running, Done, Error, Terminated, Stopped, Lost };
  std::atomic<int32_t> pid{0};
  std::atomic<uint32_t> end{Running};
  std::atomic<uint64_t> heartbeats{0}; ///< grows while the process gets to run
};

/// `local` has one process, with MPI each rank is one; progress is by rank always.
class Page {
public:
  /// Shared with the children of this process.
  static Expected<std::unique_ptr<Page>> anonymous(int64_t ranks);
  /// Shared through a new file.
  static Expected<std::unique_ptr<Page>> create(const std::string &path, int64_t ranks);
  /// The file that a launcher made; null where there is none of that size, as on
  /// another host.
  static std::unique_ptr<Page> open(const std::string &path, int64_t ranks);
  ~Page();
  Page(const Page &) = delete;
  Page &operator=(const Page &) = delete;

  int64_t ranks() const { return count; }
  ProcessLife &process(int64_t index);
  /// By rank; behind the last one, as a task, the place of the entry that requests are
  /// for among those that were loaded.
  RankProgress *progress();
  /// The sentence of a process that failed; the first one stays.
  void setError(const std::string &message);
  std::string error();
  /// The rank that a run has lost; -1: none is known.
  std::atomic<int32_t> &lostRank();

private:
  struct Head;
  Page(void *data, int64_t ranks) : data(data), count(ranks) {}
  static size_t bytes(int64_t ranks);
  static Expected<std::unique_ptr<Page>> map(int file, int64_t ranks, bool fresh);
  Head &head();
  void *data;
  int64_t count;
};

/// Shows on the page that this process lives: a thread that counts up ten times a
/// second until the process ends.
Expected<void> startBeats(std::shared_ptr<Page> page, int64_t process);

/// Sees whether a process still has a heartbeat.
class Pulse {
public:
  /// Seconds since `life` was last seen to change, to be asked several times a second.
  /// A time in which the caller itself stood still does not count: a run that was
  /// stopped and continued as a whole goes on.
  double silence(const ProcessLife &life);
  /// The same of any count.
  double silence(uint64_t heartbeats);

private:
  using Clock = std::chrono::steady_clock;
  uint64_t last = 0;
  double seconds = 0;
  Clock::time_point looked = Clock::now();
};

/// The rank that was running when its process ended: one that worked, before one that
/// waited; the farthest behind.
int likelyRank(Page &page);

/// "rank 2, node 'fc1' (matmul)". Opens the stage only now, to name the node.
std::string placeOf(const RunOptions &options, const Bundle &bundle, Page &page,
                    int rank);

/// "3 s", "0.5 s".
std::string secondsText(double seconds);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_PAGE_H
