//===- MpiRank.cpp - What a process does that mpirun started --------------===//
#include "MpiRun.h"
#include "Page.h"
#include "StopSignal.h"

#include <csignal>
#include <cstdlib>
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
  auto ok =
      runRanks(options, TransportKind::Mpi, page ? page->progress() : nullptr, print);
  bool isLost = ok && ok->isLost;
  if (ownLife)
    ownLife->end.store(!ok               ? ProcessLife::Error
                       : isLost          ? ProcessLife::Lost
                       : ok->signal != 0 ? ProcessLife::Stopped
                                         : ProcessLife::Done);
  // Under the launcher the job has done what it was asked for.
  if (ok && !isLost)
    return ownLife ? RunEnd() : *ok;
  // An error that every rank has is printed once: the others give rank 0 a head start,
  // after which mpirun ends them.
  if (rank != 0)
    ::usleep(300'000);
  std::string line =
      std::string(mpi::marker) + (isLost ? ok->problem : ok.error().message) + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  // Without leaving MPI in order, which would wait for the others.
  ::_exit(isLost ? againStatus : 1);
}
