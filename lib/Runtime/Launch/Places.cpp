//===- Places.cpp - Where ranks of an elastic run may be ------------------===//
#include "Places.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

/// A host that has not answered for so long does not.
static constexpr std::chrono::seconds patience{5};
/// Between two rounds in which hosts that are out are asked.
static constexpr std::chrono::seconds betweenRounds{5};

//===----------------------------------------------------------------------===//
// Asking a host
//===----------------------------------------------------------------------===//

/// mpirun starts ranks on its own host without a daemon.
static bool isThisHost(const std::string &name) {
  char own[256] = {};
  ::gethostname(own, sizeof(own) - 1);
  const std::string host = own;
  return name == "localhost" || name == "127.0.0.1" || name == host ||
         name == host.substr(0, host.find('.'));
}

/// Slurm's own starter reaches hosts of an allocation, whether they have sshd or not.
static bool isAskable(const std::string &name) {
  return !isThisHost(name) && !std::getenv("SLURM_JOB_ID");
}

static std::vector<std::string> wordsOf(const char *variable) {
  std::istringstream text(std::getenv(variable) ? std::getenv(variable) : "");
  std::vector<std::string> words;
  for (std::string word; text >> word && word != ":";)
    words.push_back(word);
  return words;
}

static std::vector<std::string> commandOf(const std::string &host) {
  std::vector<std::string> words = wordsOf("OMPI_MCA_plm_rsh_agent");
  if (words.empty())
    words = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=4"};
  for (std::string &word : wordsOf("OMPI_MCA_plm_rsh_args"))
    words.push_back(std::move(word));
  words.push_back(host);
  words.emplace_back("true");
  return words;
}

Probe::Probe(const std::string &host) : begin(Clock::now()) {
  if (!isAskable(host)) {
    known = true;
    return;
  }
  std::vector<std::string> words = commandOf(host);
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  child = ::fork();
  if (child == 0) {
    // A launcher that is killed leaves nobody who would end this process.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
      ::_exit(1);
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    int null = ::open("/dev/null", O_RDWR);
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::dup2(null, stream);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (child < 0)
    known = false;
}

Probe::Probe(Probe &&other) noexcept
    : child(std::exchange(other.child, -1)), known(other.known), begin(other.begin) {}

Probe::~Probe() {
  if (child <= 0)
    return;
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR)
    ;
}

std::optional<bool> Probe::answer() {
  int status = 0;
  if (known)
    return known;
  if (::waitpid(child, &status, WNOHANG) == child) {
    child = -1;
    known = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  } else if (Clock::now() - begin > patience) {
    known = false;
  }
  return known;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Expected<Places> Places::of(const std::string &hostfile, int64_t count) {
  Places places;
  places.hostfile = hostfile;
  if (hostfile.empty())
    places.all = {{"", count}};
  return places;
}

const Places::Host *Places::find(const std::string &name) const {
  auto it = std::ranges::find(all, name, &Host::name);
  return it == all.end() ? nullptr : &*it;
}

Expected<std::string> Places::look() {
  if (hostfile.empty())
    return "";
  probes.clear();
  auto hosts = readHostfile(hostfile);
  if (!hosts && all.empty())
    return tl::unexpected(hosts.error());
  if (hosts)
    current = std::move(*hosts);
  all.clear();
  for (const HostSlots &host : current) {
    all.push_back({host.name, host.slots, false});
    probes.emplace(host.name, Probe(host.name));
  }
  for (bool waits = true; waits;) {
    waits = false;
    for (Host &host : all) {
      auto answer = probes.at(host.name).answer();
      host.answers = answer.value_or(false);
      waits |= !answer;
    }
    if (waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  probes.clear();
  asked = Clock::now();
  return hosts ? "" : hosts.error().message + "; its hosts are taken to be as before";
}

/// Begins to ask hosts that had no answer for us, unless that was done just now.
void Places::askAgain() {
  if (hostfile.empty() || Clock::now() - asked < betweenRounds)
    return;
  asked = Clock::now();
  auto hosts = readHostfile(hostfile);
  if (!hosts) // it is being written
    return;
  current = std::move(*hosts);
  std::erase_if(probes, [](const auto &it) { return it.second.isRefused(); });
  for (const HostSlots &host : current)
    if (const Host *known = find(host.name); !known || !known->answers)
      if (!probes.contains(host.name))
        probes.emplace(host.name, Probe(host.name));
}

int64_t Places::prospect() {
  if (hostfile.empty())
    return count();
  askAgain();
  int64_t sum = 0;
  for (const HostSlots &host : current) {
    const Host *known = find(host.name);
    auto probe = probes.find(host.name);
    bool answers = probe != probes.end() && probe->second.answer() == true;
    sum += (known && known->answers) || answers ? host.slots : 0;
  }
  return sum;
}

int64_t Places::usableOf(const Host &host) const {
  auto out = lost.find(host.name);
  int64_t slots = host.slots - (out == lost.end() ? 0 : out->second);
  return host.answers ? std::max<int64_t>(slots, 0) : 0;
}

int64_t Places::usable() const {
  int64_t sum = 0;
  for (const Host &host : all)
    sum += usableOf(host);
  return sum;
}

int64_t Places::count() const {
  int64_t sum = 0;
  for (const Host &host : all)
    sum += host.slots;
  return sum;
}

void Places::lose(int rank) {
  for (const HostSlots &host : taken) {
    if (rank >= 0 && rank < host.slots)
      ++lost[host.name];
    rank -= static_cast<int>(host.slots);
  }
}

std::vector<HostSlots> Places::hosts(int64_t ranks) {
  taken.clear();
  for (const Host &host : all) {
    int64_t slots = std::min(usableOf(host), ranks);
    if (slots > 0)
      taken.push_back({host.name, slots});
    ranks -= slots;
  }
  return taken;
}

std::string Places::idle() const {
  std::string text;
  for (const Host &host : all) {
    auto has = std::ranges::find(taken, host.name, &HostSlots::name);
    int64_t free = host.slots - (has == taken.end() ? 0 : has->slots);
    if (free == 0)
      continue;
    const std::string slots = std::to_string(free) + (free == 1 ? " place" : " places");
    text += (text.empty() ? "" : ", ") +
            (host.name.empty() ? slots
                               : slots + " of '" + host.name + "'" +
                                     (host.answers ? "" : ", which does not answer"));
  }
  return text;
}
