//===- MpiRank.cpp - What a process does that mpirun started --------------===//
#include "HostAgent.h"
#include "MpiRun.h"
#include "Page.h"
#include "StopSignal.h"

#include <csignal>
#include <cstdlib>
#include <memory>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

/// Where this process says how it ended; null without a launcher on this host.
static ProcessLife *ownLife;

/// mpirun sends SIGTERM to the ranks that it ends because of another one.
static void onTerminate(int) {
  if (ownLife)
    ownLife->end.store(ProcessLife::Terminated);
  ::_exit(143);
}

/// Writes a line to standard error, in one piece.
static void writeError(std::string_view mark, const std::string &text) {
  std::string line = std::string(mark) + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

/// The launcher's page, if there is one; from then on this process is seen to live.
static std::shared_ptr<Page> openPage(const RunOptions &options, int rank) {
  const char *path = std::getenv(mpi::pageVariable);
  auto bundle = readBundle(options.bundle);
  if (!path || !bundle || rank >= bundle->numRanks())
    return nullptr;
  std::shared_ptr<Page> page = Page::open(path, bundle->numRanks());
  if (!page)
    return nullptr;
  ownLife = &page->process(rank);
  page->progress()[rank].state.store(RankProgress::Joining);
  // Without heartbeats the launcher sees nothing of this process, which does no harm.
  return startBeats(page, rank) ? page : nullptr;
}

namespace {
struct Joining {
  std::shared_ptr<Page> page;
  int rank;
};
} // namespace

static void *tellJoined(void *given) {
  std::unique_ptr<Joining> mine(static_cast<Joining *>(given));
  while (mine->page->progress()[mine->rank].state.load() == RankProgress::Joining)
    ::usleep(20'000);
  writeError(mpi::joinedMarker, "");
  return nullptr;
}

/// A page that nobody else sees. Once the rank on it has joined the job, a launcher on
/// another host is told. Null where that cannot be.
static std::shared_ptr<Page> tellHost(const RunOptions &options, int rank) {
  auto bundle = readBundle(options.bundle);
  if (!bundle || rank >= bundle->numRanks())
    return nullptr;
  auto page = Page::anonymous(bundle->numRanks());
  if (!page)
    return nullptr;
  auto joining = std::make_unique<Joining>(Joining{std::move(*page), rank});
  std::shared_ptr<Page> shared = joining->page;
  shared->progress()[rank].state.store(RankProgress::Joining);
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, tellJoined, joining.get()) != 0)
    return nullptr;
  (void)joining.release();
  ::pthread_detach(thread);
  return shared;
}

Expected<RunEnd> runtime::runAsMpiRank(const RunOptions &options, int rank,
                                       const Print &print) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Launchers end a job by SIGTERM with little time; this one asks for a checkpoint, from
  // when the process is seen on the page.
  if (!options.data.checkpoints.folder.empty())
    keepStopSignals({SIGUSR1});
  std::shared_ptr<Page> page = openPage(options, rank);
  struct sigaction action{};
  action.sa_handler = onTerminate;
  ::sigaction(SIGTERM, &action, nullptr);
  const bool isTold = std::getenv(mpi::hostsVariable) != nullptr;
  if (isTold) {
    joinHost(options, rank);
    page = tellHost(options, rank);
  }
  auto ok =
      runRanks(options, TransportKind::Mpi, page ? page->progress() : nullptr, print);
  bool isLost = ok && ok->isLost;
  if (ownLife)
    ownLife->end.store(!ok               ? ProcessLife::Error
                       : isLost          ? ProcessLife::Lost
                       : ok->signal != 0 ? ProcessLife::Stopped
                                         : ProcessLife::Done);
  if (isTold && ok && ok->signal != 0)
    writeError(mpi::stoppedMarker, "");
  // Under the launcher the job has done what it was asked for.
  if (ok && !isLost)
    return ownLife || isTold ? RunEnd() : *ok;
  // An error that every rank has is printed once: the others give rank 0 a head start,
  // after which mpirun ends them.
  if (rank != 0)
    ::usleep(300'000);
  if (isLost)
    writeError(mpi::lostMarker, ok->problem);
  else
    writeError(mpi::marker, ok.error().message);
  // Without leaving MPI in order, which would wait for the others.
  ::_exit(isLost ? againStatus : 1);
}
