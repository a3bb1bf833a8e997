//===- MpiRun.cpp - Ranks started by mpirun -------------------------------===//
#include "Internal.h"

#include "partita/Base/Bundle.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

/// Marks the one sentence that a rank leaves for the user among what mpirun writes.
static constexpr std::string_view marker = "partita: ";

//===----------------------------------------------------------------------===//
// As a rank
//===----------------------------------------------------------------------===//

/// Path of the file in which this rank says how it ended; set by the launcher.
static char endFile[512];

/// mpirun sends SIGTERM to the ranks that it ends because of another one.
static void onTerminate(int) {
  if (endFile[0]) {
    int fd = ::open(endFile, O_WRONLY | O_CREAT, 0600);
    if (fd >= 0)
      ::close(fd);
  }
  ::_exit(143);
}

static void noteEndings(int rank) {
  if (const char *folder = std::getenv("PARTITA_RUN_DIR"))
    std::snprintf(endFile, sizeof(endFile), "%s/end-%d", folder, rank);
  struct sigaction action{};
  action.sa_handler = onTerminate;
  ::sigaction(SIGTERM, &action, nullptr);
}

static Expected<void> runAsRank(const RunOptions &options, int rank, const Print &print) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  noteEndings(rank);
  // The table has the rank count of the bundle; progress is by rank of the bundle.
  auto ok = runRanks(options, TransportKind::Mpi, nullptr, print);
  if (ok)
    return {};
  // An error that every rank has is printed once: the others give rank 0 a head start,
  // after which mpirun ends them.
  if (rank != 0)
    ::usleep(300'000);
  std::string line = std::string(marker) + ok.error().message + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  // Without leaving MPI in order, which would wait for the others.
  ::_exit(1);
}

//===----------------------------------------------------------------------===//
// As the launcher
//===----------------------------------------------------------------------===//

static std::vector<std::string> rankArguments(const RunOptions &o) {
  std::vector<std::string> out = o.self;
  out.insert(out.end(),
             {o.bundle, "--transport", "mpi", "--entry", o.entry, "--repeat",
              std::to_string(o.repeat), "--timeout", std::to_string(o.timeout)});
  for (const std::string &input : o.inputs)
    out.insert(out.end(), {"--input", input});
  if (!o.inputsDir.empty())
    out.insert(out.end(), {"--inputs-dir", o.inputsDir});
  if (!o.outputsDir.empty())
    out.insert(out.end(), {"--outputs-dir", o.outputsDir});
  if (o.npy)
    out.push_back("--npy");
  if (o.profile)
    out.push_back("--profile");
  if (o.threads > 0)
    out.insert(out.end(), {"--threads", std::to_string(o.threads)});
  return out;
}

namespace {

/// A folder for the ranks' end notes; goes with its files.
class RunFolder {
public:
  RunFolder() {
    char name[] = "/tmp/partita-run-XXXXXX";
    if (const char *made = ::mkdtemp(name))
      path = made;
  }
  ~RunFolder() {
    for (int r = 0; r < ranks; ++r)
      ::unlink((path + "/end-" + std::to_string(r)).c_str());
    if (!path.empty())
      ::rmdir(path.c_str());
  }
  bool ended(int rank) const {
    struct stat info;
    return ::stat((path + "/end-" + std::to_string(rank)).c_str(), &info) == 0;
  }
  std::string path;
  int ranks = 0;
};

/// mpirun with its standard error in a pipe.
struct Child {
  pid_t pid = -1;
  int errors = -1;
};

} // namespace

static Expected<Child> startMpirun(const std::vector<std::string> &arguments,
                                   const std::string &folder) {
  int pipes[2];
  if (::pipe2(pipes, O_CLOEXEC) != 0)
    return makeError(std::string("cannot start mpirun: ") + std::strerror(errno));
  std::vector<char *> argv;
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent)
      ::_exit(1);
    ::setpgid(0, 0);
    ::dup2(pipes[1], STDERR_FILENO);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    ::setenv("PARTITA_RUN_DIR", folder.c_str(), 1);
    ::execvp(argv[0], argv.data());
    std::string line =
        std::string(marker) + "cannot start mpirun: " + std::strerror(errno) + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(127);
  }
  ::close(pipes[1]);
  if (child < 0) {
    ::close(pipes[0]);
    return makeError(std::string("cannot start mpirun: ") + std::strerror(errno));
  }
  return Child{child, pipes[0]};
}

/// Reads mpirun's standard error until it ends.
static std::string drain(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return text;
}

/// The marked sentence, or what mpirun itself says about the rank that died.
static std::string explain(const std::string &text, const RunFolder &folder) {
  size_t at = text.find(marker);
  if (at != std::string::npos) {
    at += marker.size();
    return text.substr(at, text.find('\n', at) - at);
  }
  int dead = -1;
  for (int r = 0; r < folder.ranks; ++r)
    if (!folder.ended(r) && (dead < 0 || r < dead))
      dead = r;
  static constexpr std::string_view phrase = "process rank ";
  if (size_t rank = text.find(phrase); rank != std::string::npos)
    dead = std::atoi(text.c_str() + rank + phrase.size());
  std::string why = "ended unexpectedly";
  if (size_t signal = text.find("exited on signal "); signal != std::string::npos)
    why = "was killed by signal " +
          text.substr(signal + 17, text.find_first_of(".\n", signal) - signal - 17);
  if (dead >= 0)
    return "rank " + std::to_string(dead) + ": the process " + why;
  return "mpirun failed: " + text.substr(0, 400);
}

static Expected<void> launch(const RunOptions &options) {
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  RunFolder folder;
  folder.ranks = static_cast<int>(bundle->numRanks());
  if (folder.path.empty())
    return makeError(std::string("cannot create a temporary folder: ") +
                     std::strerror(errno));
  std::vector<std::string> arguments = {
      "mpirun",          "-n",        std::to_string(folder.ranks),
      "--oversubscribe", "--bind-to", "none"};
  for (std::string &argument : rankArguments(options))
    arguments.push_back(std::move(argument));
  auto child = startMpirun(arguments, folder.path);
  if (!child)
    return tl::unexpected(child.error());
  std::string text = drain(child->errors);
  int status = 0;
  while (::waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
    ;
  // Whatever mpirun may have left in its group.
  ::kill(-child->pid, SIGKILL);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  return makeError(explain(text, folder));
}

Expected<void> runtime::runMpi(const RunOptions &options, const Print &print) {
  if (auto rank = mpiRank())
    return runAsRank(options, *rank, print);
  return launch(options);
}
