//===- MpiRun.cpp - Ranks started by mpirun -------------------------------===//
//
// Open MPI's mpirun can stand still for ever in its own clean-up after a job that did not
// end in order, and it outlives the program that started it. So three processes take
// part: this one waits for a supervisor, which starts mpirun, watches the ranks on a
// shared page, and ends mpirun when it does not end by itself or when this one is gone.
//
//===----------------------------------------------------------------------===//
#include "MpiRun.h"
#include "HostWatch.h"
#include "Page.h"
#include "Processes.h"
#include "RunFolder.h"
#include "RunLogs.h"
#include "StopSignal.h"
#include "partita/Runtime/Checkpoint.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

/// What mpirun gets to end the other ranks and itself, once the run is over.
static constexpr std::chrono::milliseconds grace{2000};
/// The same when the ranks have ended and why is known: time to remove its files.
static constexpr std::chrono::milliseconds shortGrace{300};
/// Asks a supervisor to stop the run behind a step that is saved, as it may go on with
/// more ranks. SIGTERM would be taken for the user's, whose second one ends a run at
/// once.
static constexpr int growSignal = SIGUSR1;
/// The time in which mpirun tells of a rank that has ended, if it is not held up.
static constexpr std::chrono::milliseconds mpirunTells{1500};
/// What mpirun gets at least to start the ranks and let them meet.
static constexpr double startSeconds = 60;

static void addCheckpointArguments(const CheckpointOptions &o,
                                   std::vector<std::string> &out) {
  if (o.folder.empty())
    return;
  out.insert(out.end(), {"--checkpoint-dir", o.folder, "--keep", std::to_string(o.keep),
                         "--on-save-error", o.stopsOnError ? "stop" : "continue",
                         "--grace", std::to_string(o.grace)});
  if (o.everySeconds > 0)
    out.insert(out.end(), {"--save-every", std::to_string(o.everySeconds) + "s"});
  if (!o.weightsFrom.empty())
    out.insert(out.end(), {"--weights-from", o.weightsFrom});
  if (o.resume)
    out.push_back("--resume");
  for (const std::string &name : o.allowed)
    out.insert(out.end(), {"--allow-change", name});
}

static void addDataArguments(const RunOptions &o, std::vector<std::string> &out) {
  if (o.data.files.empty())
    return;
  for (const std::string &file : o.data.files)
    out.insert(out.end(), {"--data", file});
  out.insert(out.end(), {"--seed", std::to_string(o.data.seed), "--last",
                         o.data.last == LastBatch::Pad ? "pad" : "drop"});
  if (o.data.steps)
    out.insert(out.end(), {"--steps", std::to_string(*o.data.steps)});
  if (o.data.epochs)
    out.insert(out.end(), {"--epochs", std::to_string(*o.data.epochs)});
  if (!o.data.log.empty())
    out.insert(out.end(), {"--log", o.data.log});
  if (!o.data.metrics.empty())
    out.insert(out.end(), {"--metrics", o.data.metrics});
  if (o.data.saveEvery > 0)
    out.insert(out.end(), {"--save-every", std::to_string(o.data.saveEvery)});
  if (o.data.ahead)
    out.insert(out.end(), {"--steps-ahead", std::to_string(*o.data.ahead)});
  const EvaluationOptions &evaluation = o.data.evaluation;
  for (const std::string &file : evaluation.files)
    out.insert(out.end(), {"--eval", file});
  if (evaluation.every > 0)
    out.insert(out.end(), {"--eval-every", std::to_string(evaluation.every)});
  if (!evaluation.best.empty())
    out.insert(out.end(), {"--keep-best", evaluation.best});
  addCheckpointArguments(o.data.checkpoints, out);
}

static std::vector<std::string> mpirunArguments(const RunOptions &o, int64_t ranks) {
  std::vector<std::string> out = {"mpirun", "-n", std::to_string(ranks), "--bind-to",
                                  "none"};
  if (o.hostfile.empty())
    out.push_back("--oversubscribe");
  else // rank by rank onto the slots of the first host, then of the next
    out.insert(out.end(),
               {"--hostfile", o.hostfile, "--map-by", "slot", "-x", mpi::hostsVariable});
  if (!o.hostfile.empty() && !o.data.checkpoints.folder.empty())
    out.insert(out.end(), {"-x", mpi::incarnationVariable});
  out.insert(out.end(), o.self.begin(), o.self.end());
  out.insert(out.end(),
             {o.bundle, "--transport", "mpi", "--entry", o.entry, "--repeat",
              std::to_string(o.repeat), "--timeout", std::to_string(o.timeout)});
  for (const std::string &input : o.inputs)
    out.insert(out.end(), {"--input", input});
  if (!o.inputsDir.empty())
    out.insert(out.end(), {"--inputs-dir", o.inputsDir});
  if (!o.outputsDir.empty())
    out.insert(out.end(), {"--outputs-dir", o.outputsDir});
  if (!o.logDir.empty())
    out.insert(out.end(), {"--log-dir", o.logDir});
  addDataArguments(o, out);
  if (o.commThreads > 0)
    out.insert(out.end(), {"--comm-threads", std::to_string(o.commThreads)});
  if (o.mpiWindow != "auto")
    out.insert(out.end(), {"--mpi-window", o.mpiWindow});
  if (o.findNan)
    out.push_back("--find-nan");
  if (o.pad)
    out.push_back("--pad");
  // With checkpoints it is where the ranks' own export reads from, and made there.
  if (!o.stateDir.empty() && o.data.checkpoints.folder.empty())
    out.insert(out.end(), {"--state-dir", o.stateDir});
  if (o.npy)
    out.push_back("--npy");
  if (!o.weights.folder.empty())
    out.insert(out.end(), {"--weights-dir", o.weights.folder});
  if (!o.weights.check)
    out.push_back("--no-check");
  if (o.threads)
    out.insert(out.end(), {"--threads", std::to_string(*o.threads)});
  return out;
}

/// Threads of a rank when all are on this machine.
static int threadsOf(const RunOptions &o, const Bundle &bundle) {
  auto compiled = static_cast<int>(bundle.threads);
  return o.threads == 0 ? std::min(compiled, threadsPerRank(bundle.numRanks()))
                        : o.threads.value_or(compiled);
}

static Expected<void> failed(const std::string &what) {
  return makeError(what + ": " + std::strerror(errno));
}

namespace {

/// Starts mpirun and stays with it to the end.
class Supervisor {
public:
  /// `stopping`: signals that ask for a checkpoint, which wait already; null: none do.
  Supervisor(const RunOptions &options, const Bundle &bundle, RunFolder &file,
             Page &answer, pid_t parent, const StopSignals *stopping, const Print &print)
      : options(options), bundle(bundle), file(file), answer(answer), print(print),
        pulses(bundle.numRanks()), ended(bundle.numRanks()), parent(parent),
        stopping(stopping) {}

  Expected<RunEnd> run() {
    auto opened = RunLogs::ofSupervisor(options);
    if (!opened)
      return tl::unexpected(opened.error());
    logs = std::move(*opened);
    if (auto ok = catchSignals(); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = watchHosts(); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = startMpirun(); !ok)
      return tl::unexpected(ok.error());
    logs.line("mpirun is pid " + std::to_string(mpirun));
    while (!mpirunEnded && Clock::now() < endBy)
      look();
    finish();
    if (hosts)
      hosts->awaitLeases();
    return result();
  }

private:
  Page &page() { return *file.page; }
  Expected<void> catchSignals();
  Expected<void> startMpirun();
  [[noreturn]] void becomeMpirun(int errors, pid_t parent);
  void setEnvironment();
  Expected<void> watchHosts();
  void look();
  void lookAtHosts();
  void readErrors();
  void readMarks();
  void readSignals();
  void watchRanks();
  void watchEnd(int rank);
  void finish();
  bool stop(int signal);
  void askToStop();
  Expected<RunEnd> result();
  Expected<RunEnd> remoteResult();
  Expected<RunEnd> endOfMpirun(int asked);
  int deadRank();
  /// The rank of the reason, else the one that mpirun tells of; -1: neither is known.
  int lostOrDead() {
    bool isTold = text.find(mpi::signalPhrase) != std::string::npos;
    return lostRank >= 0 || !isTold ? lostRank : deadRank();
  }
  /// Ranks may be on other hosts, where nobody sees the page.
  bool isRemote() const { return !options.hostfile.empty(); }
  /// The run is over, for this reason unless a better one is found in time.
  void over(const std::string &why = {}, bool lost = false, int rank = -1) {
    endBy = std::min(endBy, Clock::now() + grace);
    if (reason.empty())
      reason = why, isLost = lost, lostRank = rank;
  }
  bool all(auto &&holds) {
    for (int64_t r = 0; r < page().ranks(); ++r)
      if (!holds(page().process(r)))
        return false;
    return true;
  }
  /// Some rank started, and none is left.
  bool noneLeft() {
    bool started = false;
    for (int64_t r = 0; r < page().ranks(); ++r) {
      pid_t pid = page().process(r).pid.load();
      started |= pid != 0;
      if (pid != 0 && isAlive(pid))
        return false;
    }
    return started;
  }

  const RunOptions &options;
  const Bundle &bundle;
  RunFolder &file;
  Page &answer; ///< gets mpirun's pid
  const Print &print;
  std::unique_ptr<HostWatch> hosts; ///< null: all ranks are on this host
  std::vector<Pulse> pulses;
  std::vector<Clock::time_point> ended; ///< by rank, when it was first seen as a zombie
  pid_t parent;
  const StopSignals *stopping;
  StopRequest request;
  bool isGrowing = false; ///< the parent asks for a stop, of which there is no haste
  bool isAsked = false;   ///< rank 0 knows of either
  sigset_t before{};
  int signals = -1, errors = -1;
  pid_t mpirun = -1;
  bool mpirunEnded = false;
  int mpirunStatus = 0;
  std::string text;        ///< what mpirun and the ranks wrote to standard error
  size_t marked = 0;       ///< bytes of it in which marks have been looked for
  RunLogs logs;            ///< gets its lines
  int64_t ranksJoined = 0; ///< on any host, by their marks
  bool hasStopped = false; ///< some rank on any host, by its mark
  std::string reason;
  bool isLost = false;  ///< by that reason
  int lostRank = -1;    ///< likewise
  bool leaving = false; ///< nothing is left to wait for but mpirun itself
  Clock::time_point begin = Clock::now(), endBy = Clock::time_point::max();
};

} // namespace

/// From here on they are read from a descriptor, beside everything else.
Expected<void> Supervisor::catchSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, growSignal})
    sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, &before);
  signals = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return signals < 0 ? failed("cannot watch signals") : Expected<void>();
}

void Supervisor::becomeMpirun(int target, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent)
    ::_exit(1);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (stopping)
    stopping->restore();
  ::setpgid(0, 0);
  ::dup2(target, STDERR_FILENO);
  setEnvironment();
  std::vector<std::string> arguments = mpirunArguments(options, bundle.numRanks());
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  std::string line =
      std::string(mpi::marker) + "cannot start mpirun: " + std::strerror(errno) + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(127);
}

/// Sets variables of mpirun. What is on this host is of no use to ranks on others, to
/// which mpirun passes all of its own variables on.
void Supervisor::setEnvironment() {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  if (isRemote()) {
    ::unsetenv(mpi::pageVariable);
    ::setenv(mpi::hostsVariable, hosts->where().c_str(), 1);
    // A host without a sign of life for 20 s is gone, in place of 8 minutes.
    ::setenv("OMPI_MCA_oob_tcp_keepalive_time", "5", 0);
    ::setenv("OMPI_MCA_oob_tcp_keepalive_intvl", "5", 0);
    ::setenv("OMPI_MCA_oob_tcp_keepalive_probes", "3", 0);
    return;
  }
  ::setenv(mpi::pageVariable, file.path.c_str(), 1);
  ::unsetenv(mpi::hostsVariable);
  // Threads that wait for work must not take the cores of other ranks.
  if (threadsOf(options, bundle) > threadsPerRank(bundle.numRanks()))
    ::setenv("OMP_WAIT_POLICY", "passive", 0);
  // mpirun keeps its own files in TMPDIR or /tmp, which may not be writable.
  const char *own = std::getenv("TMPDIR");
  if (::access(own ? own : "/tmp", W_OK | X_OK) != 0)
    ::setenv("TMPDIR", file.folder.c_str(), 1);
  // Unless the user chose other places. At each of its ends mpirun looks at all that runs
  // have left in its usual one, those too that were killed: with thousands of them a rank
  // that is lost would be told of after a minute. Paths of sockets are short.
  ::setenv("OMPI_MCA_btl_vader_backing_directory", file.folder.c_str(), 0);
  if (file.folder.size() < 40)
    ::setenv("OMPI_MCA_orte_tmpdir_base", file.folder.c_str(), 0);
}

Expected<void> Supervisor::startMpirun() {
  int pipes[2];
  if (::pipe2(pipes, O_CLOEXEC) != 0)
    return failed("cannot start mpirun");
  ::fcntl(pipes[0], F_SETFL, O_NONBLOCK);
  pid_t parent = ::getpid();
  mpirun = ::fork();
  if (mpirun == 0)
    becomeMpirun(pipes[1], parent);
  answer.process(0).pid.store(mpirun);
  ::close(pipes[1]);
  errors = pipes[0];
  return mpirun < 0 ? failed("cannot start mpirun") : Expected<void>();
}

void Supervisor::look() {
  pollfd ready[] = {{signals, POLLIN, 0}, {errors, POLLIN, 0}};
  // Once mpirun has closed its standard error, that would be ready for ever.
  ::poll(ready, errors < 0 ? 1 : 2, 20);
  readErrors();
  readSignals();
  askToStop();
  lookAtHosts();
  if (::waitpid(mpirun, &mpirunStatus, WNOHANG) == mpirun)
    mpirunEnded = true;
  else
    watchRanks();
}

Expected<void> Supervisor::watchHosts() {
  if (!isRemote())
    return {};
  auto made = HostWatch::listen(options, bundle, [this](std::string_view text) {
    logs.line(text);
    print(text);
  });
  if (!made)
    return tl::unexpected(made.error());
  hosts = std::move(*made);
  return {};
}

/// A host that is lost is told of at once: an mpirun that has lost a daemon may take its
/// time, and has nothing to add unless the connection was closed.
void Supervisor::lookAtHosts() {
  if (!hosts)
    return;
  const bool isKnown = hosts->verdict().has_value();
  hosts->look();
  const auto &verdict = hosts->verdict();
  if (!verdict || isKnown)
    return;
  logs.line(verdict->text);
  if (verdict->isLost)
    print(verdict->text);
  over(verdict->text, verdict->isLost);
  if (verdict->isSure)
    endBy = std::min(endBy, Clock::now() + shortGrace);
}

void Supervisor::readErrors() {
  char buffer[4096];
  while (errors >= 0) {
    ssize_t n = ::read(errors, buffer, sizeof(buffer));
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR)
      continue;
    if (n == 0 || errno != EAGAIN) {
      ::close(errors);
      errors = -1;
    }
    break;
  }
  readMarks();
}

void Supervisor::readMarks() {
  for (size_t end; (end = text.find('\n', marked)) != std::string::npos;
       marked = end + 1) {
    std::string_view line(text.data() + marked, end - marked);
    logs.line(line);
    ranksJoined += line.find(mpi::joinedMarker) != std::string_view::npos;
    hasStopped |= line.find(mpi::stoppedMarker) != std::string_view::npos;
    for (std::string_view mark : {mpi::marker, mpi::lostMarker})
      if (size_t at = line.find(mark); at != std::string_view::npos) {
        const bool lost = mark == mpi::lostMarker;
        // A rank that waits for another one tells of itself.
        std::string still = hosts && lost ? hosts->stillRanks() : std::string();
        over(still.empty() ? std::string(line.substr(at + mark.size())) : still, lost);
      }
  }
}

/// Whoever wants this process to end, or the end of its parent, ends the job in order.
void Supervisor::readSignals() {
  signalfd_siginfo info;
  while (::read(signals, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD || stop(static_cast<int>(info.ssi_signo)))
      continue;
    ::kill(mpirun, SIGTERM);
    over(std::string("ended by ") + ::strsignal(static_cast<int>(info.ssi_signo)));
  }
}

/// Whether the signal is one behind which the ranks save. The end of the parent is none:
/// whoever starts the run again must not find it still writing.
bool Supervisor::stop(int signal) {
  if (signal == growSignal)
    return isGrowing = true;
  bool isStop = signal == SIGTERM || signal == SIGINT;
  if (!stopping || !isStop || ::getppid() != parent)
    return false;
  if (!request.take(signal, options.data.checkpoints.grace))
    return !request.mustEnd();
  endBy = std::min(endBy, request.endBy);
  return true;
}

/// mpirun, told to end, would leave the ranks a second. Rank 0 tells the others.
void Supervisor::askToStop() {
  if ((request.signal == 0 && !isGrowing) || isAsked)
    return;
  // The signal is passed on to all ranks; one that has not begun would die of it.
  if (isRemote() && ranksJoined == bundle.numRanks())
    isAsked = ::kill(mpirun, SIGUSR1) == 0;
  if (pid_t pid = page().process(0).pid.load(); pid != 0)
    isAsked = ::kill(pid, SIGUSR1) == 0;
}

void Supervisor::watchRanks() {
  if (noneLeft()) {
    over();
    bool explained = !reason.empty() || text.find(mpi::signalPhrase) != std::string::npos;
    if (explained && !leaving) {
      leaving = true;
      endBy = std::min(endBy, Clock::now() + shortGrace);
    }
  }
  if (endBy != Clock::time_point::max())
    return;
  double limit = std::max(startSeconds, options.timeout);
  bool late = std::chrono::duration<double>(Clock::now() - begin).count() > limit;
  if (isRemote()) {
    if (late && ranksJoined < bundle.numRanks())
      over(std::to_string(ranksJoined) + " of " + std::to_string(bundle.numRanks()) +
               " ranks joined the MPI job on the hosts of '" + options.hostfile +
               "' within " + secondsText(limit),
           /*lost=*/true);
    if (std::string still = hosts->stillRanks(options.timeout); !still.empty()) {
      logs.line(still);
      print(still); // ends the job behind the grace of the others
      over(still, /*lost=*/true);
    }
    return;
  }
  for (int64_t r = 0; r < page().ranks(); ++r) {
    ProcessLife &life = page().process(r);
    auto rank = static_cast<int>(r);
    std::string name = "rank " + std::to_string(r);
    if (life.pid.load() == 0) {
      if (late)
        return over(name + ": mpirun did not start it within " + secondsText(limit),
                    /*lost=*/true);
      continue;
    }
    if (late && page().progress()[r].state.load() == RankProgress::Joining)
      return over(name + ": did not join the MPI job within " + secondsText(limit),
                  /*lost=*/true, rank);
    if (life.end.load() == ProcessLife::Running &&
        pulses[static_cast<size_t>(r)].silence(life) > options.timeout + 1 &&
        isAlive(life.pid.load()))
      return over(placeOf(options, bundle, page(), rank) +
                      ": no sign of life of the process for " +
                      secondsText(options.timeout),
                  /*lost=*/true, rank);
    watchEnd(rank);
  }
}

/// Tells of a rank that ended without a word, where mpirun, which would, is busy with
/// something else for long.
void Supervisor::watchEnd(int rank) {
  ProcessLife &life = page().process(rank);
  Clock::time_point &since = ended[static_cast<size_t>(rank)];
  std::optional<int> status = life.end.load() == ProcessLife::Running
                                  ? statusOfZombie(life.pid.load())
                                  : std::nullopt;
  if (!status || !WIFSIGNALED(*status))
    return;
  if (since == Clock::time_point()) {
    since = Clock::now();
    return;
  }
  if (Clock::now() - since < mpirunTells)
    return;
  const int signal = WTERMSIG(*status);
  const std::string why = placeOf(options, bundle, page(), rank) +
                          ": the process was killed by signal " + std::to_string(signal) +
                          " (" + ::strsignal(signal) + ")";
  over(why, endedBy(signal, why).has_value(), rank);
}

/// Nothing is left behind: what mpirun did not end is ended here.
void Supervisor::finish() {
  if (!mpirunEnded) {
    ::kill(-mpirun, SIGKILL);
    while (::waitpid(mpirun, &mpirunStatus, 0) < 0 && errno == EINTR)
      ;
  }
  readErrors();
  ::kill(-mpirun, SIGKILL);
  // The ranks die with mpirun; a stopped one, or one that waits for mpirun at its own
  // end, only when told.
  for (int64_t r = 0; r < page().ranks(); ++r)
    if (pid_t pid = page().process(r).pid.load(); pid != 0 && isOfRun(pid, file.path))
      ::kill(pid, SIGKILL);
}

/// The rank whose end nobody asked for; -1: none is known.
int Supervisor::deadRank() {
  static constexpr std::string_view phrase = "process rank ";
  if (size_t at = text.find(phrase); at != std::string::npos)
    return std::atoi(text.c_str() + at + phrase.size());
  for (int64_t r = 0; r < page().ranks(); ++r) {
    ProcessLife &life = page().process(r);
    if (life.pid.load() != 0 && life.end.load() == ProcessLife::Running)
      return static_cast<int>(r);
  }
  return -1;
}

Expected<RunEnd> Supervisor::result() {
  auto allAre = [&](ProcessLife::End end) {
    return all([&](ProcessLife &life) { return life.end.load() == end; });
  };
  // What mpirun makes of a job that did its work does not matter.
  if (allAre(ProcessLife::Done))
    return RunEnd();
  if (allAre(ProcessLife::Stopped))
    return RunEnd{request.signal ? request.signal : SIGTERM};
  if (request.mustEnd())
    return RunEnd{request.signal, request.problem(options.data.checkpoints.grace)};
  if (isRemote())
    return remoteResult();
  isLost |= !all([](ProcessLife &life) { return life.end.load() != ProcessLife::Lost; });
  if (!reason.empty())
    return isLost ? Expected<RunEnd>(RunEnd::lost(reason, 0, lostOrDead()))
                  : makeError(reason);
  if (mpirunEnded && WIFEXITED(mpirunStatus) && WEXITSTATUS(mpirunStatus) == 0)
    return RunEnd();
  const bool isTold = text.find(mpi::signalPhrase) != std::string::npos;
  if (!isTold && mpirunEnded && WIFSIGNALED(mpirunStatus))
    return endOfMpirun(0);
  std::string why = "ended unexpectedly";
  int signal = SIGKILL; // hosts and links that are lost leave no signal
  if (size_t at = text.find(mpi::signalPhrase); at != std::string::npos) {
    at += mpi::signalPhrase.size();
    signal = std::atoi(text.c_str() + at);
    why = "was killed by signal " + text.substr(at, text.find_first_of(".\n", at) - at);
  }
  if (int rank = deadRank(); rank >= 0 && rank < page().ranks())
    return endedBy(signal,
                   placeOf(options, bundle, page(), rank) + ": the process " + why,
                   /*asked=*/0, rank);
  return makeError("mpirun failed: " + text.substr(0, 400));
}

/// mpirun itself was killed: no rank is at fault.
Expected<RunEnd> Supervisor::endOfMpirun(int asked) {
  const int signal = WIFSIGNALED(mpirunStatus) ? WTERMSIG(mpirunStatus) : SIGKILL;
  return endedBy(signal,
                 "mpirun was killed by signal " + std::to_string(signal) + " (" +
                     ::strsignal(signal) + ")",
                 asked);
}

/// A host that is gone takes connections of its ranks along, of which the other ranks
/// tell.
Expected<RunEnd> Supervisor::remoteResult() {
  int status = mpirunEnded && WIFEXITED(mpirunStatus) ? WEXITSTATUS(mpirunStatus) : -1;
  if (hosts->verdict() && hosts->verdict()->isSure)
    return isLost ? Expected<RunEnd>(RunEnd::lost(reason, request.signal))
                  : makeError(reason);
  if (status == 0)
    return hasStopped ? RunEnd{request.signal ? request.signal : SIGTERM} : RunEnd();
  if (auto end = endByMpirun(text, request.signal))
    return *end;
  if (!reason.empty())
    return isLost ? Expected<RunEnd>(RunEnd::lost(reason, request.signal))
                  : makeError(reason);
  // A rank that was told to end, as by the end of its pod.
  if (status == signalStatus + SIGTERM)
    return RunEnd::lost("a rank was ended by SIGTERM", request.signal);
  if (status < 0)
    return endOfMpirun(request.signal);
  return makeError("mpirun failed: " + text.substr(0, 400));
}

//===----------------------------------------------------------------------===//
// The process that the user started
//===----------------------------------------------------------------------===//

[[noreturn]] static void supervise(const RunOptions &options, const Bundle &bundle,
                                   RunFolder &file, Page &answer, pid_t parent,
                                   const StopSignals *stopping, const Print &print) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent)
    ::_exit(1);
  auto end = Supervisor(options, bundle, file, answer, parent, stopping, print).run();
  file.remove();
  if (!end || !end->problem.empty())
    answer.setError(end ? end->problem : end.error().message);
  if (end)
    answer.lostRank() = end->lostRank;
  ::_exit(!end               ? 1
          : end->isLost      ? againStatus
          : end->signal != 0 ? signalStatus + end->signal
                             : 0);
}

namespace {
/// How the supervisor ended.
struct ChildEnd {
  int status = 0;
  int asked = 0; ///< the last signal that was passed on meanwhile; 0: none came
  /// Set where it was told to stop, since the run may go on with more ranks.
  bool isGrowing = false;
};
} // namespace

static ChildEnd awaitChild(pid_t child, const StopSignals *stopping,
                           const std::function<bool()> &grows) {
  constexpr auto between = std::chrono::milliseconds(250);
  auto next = Clock::now() + between;
  ChildEnd end;
  for (;;) {
    pid_t got = ::waitpid(child, &end.status, stopping ? WNOHANG : 0);
    if (got == child || (got < 0 && errno != EINTR))
      return end;
    if (!stopping)
      continue;
    if (int signal = stopping->await(0.02))
      ::kill(child, end.asked = signal);
    if (!grows || end.isGrowing || end.asked != 0 || Clock::now() < next)
      continue;
    next = Clock::now() + between;
    if ((end.isGrowing = grows()))
      ::kill(child, growSignal);
  }
}

/// Ends what a supervisor that was killed has left: mpirun and the ranks of this host.
/// Ranks that go on would write into the folder from which the next run reads.
static void endOrphans(Page &page, pid_t mpirun) {
  if (mpirun > 0)
    ::kill(-mpirun, SIGKILL);
  const auto until = Clock::now() + grace;
  for (int64_t r = 0; r < page.ranks(); ++r) {
    pid_t pid = page.process(r).pid.load();
    if (pid == 0 || page.process(r).end.load() != ProcessLife::Running)
      continue;
    while (isAlive(pid) && ::kill(pid, SIGKILL) == 0 && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// The number of this start, for its ranks. They find out themselves whether a newer one
/// has the folder. A folder that is not there yet, or not on this host, is numbered by
/// rank 0.
static void setIncarnation(const std::string &folder) {
  ::unsetenv(mpi::incarnationVariable);
  std::error_code failed;
  if (!folder.empty() && std::filesystem::is_directory(folder, failed))
    ::setenv(mpi::incarnationVariable, incarnationText(nextIncarnation(folder)).c_str(),
             1);
}

static Expected<RunEnd> launch(const RunOptions &options, const Print &print,
                               const std::function<bool()> &grows) {
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  if (!options.hostfile.empty())
    if (auto ok = checkHostfile(options.hostfile, bundle->numRanks()); !ok)
      return tl::unexpected(ok.error());
  RunFolder file;
  if (auto ok = file.make(bundle->numRanks()); !ok)
    return tl::unexpected(ok.error());
  auto answer = Page::anonymous(1);
  if (!answer)
    return tl::unexpected(answer.error());
  setIncarnation(options.data.checkpoints.folder);
  std::optional<StopSignals> signals;
  if (!options.data.checkpoints.folder.empty())
    signals.emplace();
  const StopSignals *stopping = signals ? &*signals : nullptr;
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0)
    return tl::unexpected(failed("cannot start a process").error());
  if (child == 0)
    supervise(options, *bundle, file, **answer, parent, stopping, print);
  const auto [status, asked, isGrowing] = awaitChild(child, stopping, grows);
  if (WIFSIGNALED(status))
    endOrphans(*file.page, (*answer)->process(0).pid.load());
  std::string error = (*answer)->error();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return RunEnd();
  if (WIFEXITED(status) && WEXITSTATUS(status) == againStatus)
    return RunEnd::lost(error, asked, (*answer)->lostRank());
  if (WIFEXITED(status) && WEXITSTATUS(status) > signalStatus) {
    RunEnd end{WEXITSTATUS(status) - signalStatus, error};
    end.isGrowing = isGrowing && asked == 0;
    return end;
  }
  if (error.empty())
    return endedBy(WIFSIGNALED(status) ? WTERMSIG(status) : SIGABRT,
                   "the process that watches mpirun was lost", asked);
  return makeError(error);
}

Expected<RunEnd> runtime::runMpi(const RunOptions &options, const Print &print,
                                 const std::function<bool()> &grows) {
  if (auto rank = mpiRank())
    return runAsMpiRank(options, *rank, print);
  return launch(options, print, grows);
}
