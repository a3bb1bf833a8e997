//===- HostAgent.cpp - What keeps ranks of a host to their launcher -------===//
#include "HostAgent.h"

#include "HostLink.h"
#include "MpiRun.h"
#include "partita/Base/Bundle/Bundle.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

/// Lease of a host whose agent cannot reach the launcher: there is none.
static constexpr int64_t forever = INT64_MAX;

/// Nanoseconds since the host was started, with the time in which it slept: a lease ends
/// in that time, too.
static int64_t hostTime() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Calls `serve(given)` from a thread; false: there is none.
static bool startThread(void *(*serve)(void *), void *given) {
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, serve, given) != 0)
    return false;
  ::pthread_detach(thread);
  return true;
}

/// An address without a file, of one run and host.
static std::pair<sockaddr_un, socklen_t> localAddress(const std::string &token,
                                                      int first) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "partita-agent-" + token + "-" + std::to_string(first);
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 1));
  return {address,
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

//===----------------------------------------------------------------------===//
// The folder of checkpoints
//===----------------------------------------------------------------------===//

namespace {
/// Looks once a second whether a folder can be written. A thread of its own, since a file
/// system that is gone may answer never.
class FolderWatch {
public:
  explicit FolderWatch(std::string folder) : folder(std::move(folder)) {}
  void start() {
    if (!folder.empty())
      (void)startThread(&FolderWatch::serve, this);
  }
  /// "": it can be written, or is to be made yet.
  std::string problem() {
    std::lock_guard guard(mutex);
    constexpr std::chrono::seconds patience{3};
    return isAsking && Clock::now() - asked > patience ? "it does not answer" : found;
  }

private:
  static void *serve(void *given) {
    for (auto &self = *static_cast<FolderWatch *>(given);; ::sleep(1))
      self.look();
  }
  void look() {
    {
      std::lock_guard guard(mutex);
      isAsking = true, asked = Clock::now();
    }
    struct statvfs info{};
    int error = ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
    if (error == 0 && ::statvfs(folder.c_str(), &info) == 0 && (info.f_flag & ST_RDONLY))
      error = EROFS;
    std::lock_guard guard(mutex);
    isAsking = false;
    found = error == 0 || error == ENOENT ? "" : std::strerror(error);
  }

  const std::string folder;
  std::mutex mutex;
  std::string found;
  bool isAsking = false;
  Clock::time_point asked;
};

//===----------------------------------------------------------------------===//
// The agent
//===----------------------------------------------------------------------===//

class Agent {
public:
  Agent(const RunOptions &options, std::string token, int first, FileDescriptor listener)
      : bundle(options.bundle), token(std::move(token)), first(first),
        listener(std::move(listener)), folder(options.data.checkpoints.folder) {}
  /// `where`: the port, then addresses, of the launcher.
  [[noreturn]] void run(const std::vector<std::string> &where);

private:
  bool reach(const std::vector<std::string> &where);
  bool reach(const std::string &address, const std::string &port);
  std::string hello() const;
  void beat();
  void wait();
  void tellStill();
  bool readLauncher();
  void takeRanks();
  struct Rank {
    LineSocket socket;
    int number = -1; ///< known once it has been heard
    Clock::time_point heard = Clock::now();
  };
  bool hear(Rank &rank);
  void tell(Rank &rank) const { rank.socket.send(std::to_string(leaseEnd)); }

  const std::string bundle, token;
  const int first;
  FileDescriptor listener;
  FolderWatch folder;
  LineSocket launcher;
  std::vector<Rank> ranks;
  bool hadRanks = false;
  int64_t leaseEnd = forever;
  std::string told; ///< of the folder
  Clock::time_point next = Clock::now();
};
} // namespace

static uint64_t freeMemory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  for (uint64_t kibibytes = 0; file >> word;)
    if (word == "MemAvailable:" && file >> kibibytes)
      return kibibytes << 10;
  return 0;
}

std::string Agent::hello() const {
  std::ostringstream text;
  text << "agent " << token << ' ' << first << ' ' << partitaVersion() << ' '
       << bundleHash(bundle) << ' ' << freeMemory();
  return text.str();
}

/// Connects, and has the first lease from whoever is there: the same address may be
/// another machine's on another host.
bool Agent::reach(const std::string &address, const std::string &port) {
  constexpr int patience = 2000; // ms, of the connection and of the answer
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(address.c_str(), port.c_str(), &wanted, &found) != 0)
    return false;
  FileDescriptor socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::connect(socket.get(), found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  pollfd writes{socket.get(), POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof(error);
  if (::poll(&writes, 1, patience) <= 0 ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
    return false;
  launcher = LineSocket(std::move(socket));
  launcher.send(hello());
  next = Clock::now();
  beat();
  pollfd reads{launcher.get(), POLLIN, 0};
  ::poll(&reads, 1, patience);
  return readLauncher() && leaseEnd != forever;
}

bool Agent::reach(const std::vector<std::string> &where) {
  for (size_t k = 1; k < where.size(); ++k)
    if (reach(where[k], where[0]))
      return true;
  return false;
}

void Agent::beat() {
  if (Clock::now() < next)
    return;
  next = Clock::now() + link::beat;
  launcher.send("beat " + std::to_string(hostTime()) + " " + std::to_string(wallClock()));
  tellStill();
  if (std::string problem = folder.problem(); problem != told)
    launcher.send("folder " + (told = problem));
}

void Agent::tellStill() {
  for (const Rank &rank : ranks)
    if (const auto silence = Clock::now() - rank.heard;
        rank.number >= 0 && silence > link::still)
      launcher.send("still " + std::to_string(rank.number) + " " +
                    std::to_string(std::chrono::duration<double>(silence).count()));
}

/// The lease is counted from when its beat was sent, so that the launcher, which has
/// answered later, knows when it has ended, however long lines were under way.
bool Agent::readLauncher() {
  const bool isThere = launcher.read();
  constexpr std::string_view word = "lease ";
  while (auto line = launcher.take()) {
    if (!line->starts_with(word))
      continue;
    const int64_t sent = std::atoll(line->c_str() + word.size());
    const int64_t end = sent + std::chrono::nanoseconds(link::lease).count();
    leaseEnd = leaseEnd == forever ? end : std::max(leaseEnd, end);
    for (Rank &rank : ranks)
      tell(rank);
  }
  return isThere;
}

/// False once the process of the rank has ended.
bool Agent::hear(Rank &rank) {
  const bool isThere = rank.socket.read();
  constexpr std::string_view word = "pulse ";
  while (auto line = rank.socket.take())
    if (line->starts_with(word)) {
      rank.number = std::atoi(line->c_str() + word.size());
      rank.heard = Clock::now();
    }
  return isThere;
}

void Agent::takeRanks() {
  for (;;) {
    FileDescriptor rank(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (rank.get() < 0)
      break;
    ranks.push_back({LineSocket(std::move(rank))});
    tell(ranks.back());
    hadRanks = true;
  }
  std::erase_if(ranks, [this](Rank &rank) { return !hear(rank); });
}

void Agent::wait() {
  std::vector<pollfd> waits = {{launcher.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
  for (Rank &rank : ranks)
    waits.push_back({rank.socket.get(), POLLIN, 0});
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
  ::poll(waits.data(), waits.size(), std::max(static_cast<int>(left.count()), 1));
}

void Agent::run(const std::vector<std::string> &where) {
  folder.start();
  if (!reach(where)) {
    // Ranks go on without a lease, and the launcher sees losses as their neighbours do.
    leaseEnd = forever;
    for (auto until = Clock::now() + std::chrono::seconds(5); Clock::now() < until;) {
      takeRanks();
      ::usleep(50'000);
    }
    ::_exit(0);
  }
  while (hostTime() < leaseEnd) {
    takeRanks(); // before it is told who is silent: this process may have stood still
    beat();
    wait();
    if (!readLauncher())
      ::_exit(0);
    if (!hadRanks || !ranks.empty())
      continue;
    launcher.send("bye");
    ::_exit(0);
  }
  ::_exit(0);
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

namespace {
/// The side of a rank.
struct Leased {
  std::string token;
  int first, rank;
};
} // namespace

/// The agent of this host; not open: it is not there in time.
static LineSocket connectToAgent(const Leased &own) {
  const auto [address, size] = localAddress(own.token, own.first);
  for (auto until = Clock::now() + std::chrono::seconds(5); Clock::now() < until;) {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), size) == 0)
      return LineSocket(std::move(socket));
    ::usleep(20'000);
  }
  return {};
}

/// Ends the process, whatever its other threads do, once its lease is over.
static void *keepLease(void *given) {
  std::unique_ptr<Leased> own(static_cast<Leased *>(given));
  LineSocket agent = connectToAgent(*own);
  int64_t end = forever;
  auto next = Clock::now();
  while (agent.isOpen() || end != forever) {
    if (agent.isOpen() && Clock::now() >= next) {
      agent.send("pulse " + std::to_string(own->rank));
      next = Clock::now() + link::beat;
    }
    pollfd waits{agent.get(), POLLIN, 0};
    ::poll(&waits, agent.isOpen() ? 1 : 0, 100);
    if (agent.isOpen() && !agent.read())
      agent.close();
    while (auto line = agent.take())
      end = std::atoll(line->c_str());
    if (hostTime() > end)
      break;
  }
  if (end == forever)
    return nullptr;
  const std::string line = std::string(mpi::lostMarker) + "rank " +
                           std::to_string(own->rank) +
                           ": its host has heard nothing of the run's start for 3 s\n";
  ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  ::kill(::getpid(), SIGKILL);
  return nullptr;
}

static int numberOf(const char *variable) {
  const char *text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

/// Makes the process one of its own, which mpirun knows nothing of.
[[noreturn]] static void becomeAgent(const RunOptions &options, const Leased &own,
                                     const std::vector<std::string> &words,
                                     FileDescriptor listener) {
  ::setpgid(0, 0); // mpirun ends the group of a rank
  ::prctl(PR_SET_NAME, "partita-agent");
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})
    ::signal(signal, SIG_IGN);
  // Whoever reads the output of the rank must not wait for this process.
  int null = ::open("/dev/null", O_RDWR);
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::dup2(null, stream);
  const int kept = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 3);
  ::dup2(kept, 3);
  ::close_range(4, ~0U, 0);
  Agent(options, own.token, own.first, FileDescriptor(3))
      .run({words.begin() + 1, words.end()});
}

void runtime::joinHost(const RunOptions &options, int rank) {
  const char *text = std::getenv(mpi::hostsVariable);
  std::istringstream list(text ? text : "");
  std::vector<std::string> words; // the token, the port, addresses
  for (std::string word; std::getline(list, word, ',');)
    words.push_back(word);
  if (words.size() < 3)
    return;
  const int first = rank - numberOf("OMPI_COMM_WORLD_LOCAL_RANK");
  auto own = std::make_unique<Leased>(Leased{words[0], first, rank});
  if (first == rank) {
    const auto [address, size] = localAddress(own->token, first);
    FileDescriptor listener(
        ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::bind(listener.get(), reinterpret_cast<const sockaddr *>(&address), size) != 0 ||
        ::listen(listener.get(), 1024) != 0)
      return;
    const pid_t child = ::fork();
    if (child == 0)
      becomeAgent(options, *own, words, std::move(listener));
    if (child < 0)
      return;
  }
  if (startThread(keepLease, own.get()))
    (void)own.release();
}
