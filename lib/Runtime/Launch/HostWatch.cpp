//===- HostWatch.cpp - How a launcher sees other hosts --------------------===//
#include "HostWatch.h"

#include "Hosts.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sstream>
#include <sys/random.h>
#include <sys/socket.h>
#include <thread>

using namespace partita;
using namespace partita::runtime;

/// Seconds of silence behind which a host is lost.
static const double silenceLimit = std::chrono::duration<double>(link::lease).count();
/// Seconds behind which a host that has not been heard at all is told of.
static constexpr double unheardLimit = 4;
/// Seconds of difference of two clocks that are worth a line.
static constexpr double clockLimit = 2;
/// Seconds of a round trip that is slow, if it lasts that long.
static constexpr double slowTrip = 0.1, slowFor = 1;

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

/// Addresses of this host by which others may reach it, as numbers.
static std::vector<std::string> ownAddresses() {
  std::vector<std::string> found, loopback;
  ifaddrs *list = nullptr;
  if (::getifaddrs(&list) != 0)
    return found;
  for (ifaddrs *it = list; it; it = it->ifa_next) {
    if (!it->ifa_addr || !(it->ifa_flags & IFF_UP))
      continue;
    char text[INET6_ADDRSTRLEN] = "";
    const int family = it->ifa_addr->sa_family;
    if (family == AF_INET)
      ::inet_ntop(family, &reinterpret_cast<sockaddr_in *>(it->ifa_addr)->sin_addr, text,
                  sizeof(text));
    const auto *six = reinterpret_cast<sockaddr_in6 *>(it->ifa_addr);
    if (family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
      ::inet_ntop(family, &six->sin6_addr, text, sizeof(text));
    if (*text)
      (it->ifa_flags & IFF_LOOPBACK ? loopback : found).emplace_back(text);
  }
  ::freeifaddrs(list);
  // Last: on another host they are that host's own.
  found.insert(found.end(), loopback.begin(), loopback.end());
  return found;
}

/// A port of both families, or of IPv4 alone on a host without IPv6.
static FileDescriptor openPort() {
  for (int family : {AF_INET6, AF_INET}) {
    FileDescriptor socket(
        ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int off = 0;
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET6)
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    const socklen_t size =
        family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(socket.get(), reinterpret_cast<sockaddr *>(&address), size) == 0 &&
        ::listen(socket.get(), 1024) == 0)
      return socket;
  }
  return FileDescriptor();
}

Expected<void> HostWatch::open() {
  uint64_t drawn[2] = {};
  listener = openPort();
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (listener.get() < 0 || ::getentropy(drawn, sizeof(drawn)) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return makeError(std::string("cannot listen for agents of hosts: ") +
                     std::strerror(errno));
  // Both families have the port at the same place.
  const int port = ntohs(reinterpret_cast<sockaddr_in &>(address).sin_port);
  token = formatted("%016llx%016llx", static_cast<unsigned long long>(drawn[0]),
                    static_cast<unsigned long long>(drawn[1]));
  place = token + "," + std::to_string(port);
  for (const std::string &own : ownAddresses())
    place += "," + own;
  return {};
}

/// Predicted bytes of the rank with most.
static uint64_t bytesOfRank(const Bundle &bundle, const std::string &entry) {
  uint64_t most = 0;
  for (const BundleEntry &it : bundle.entries)
    for (const BundleStage &stage : it.stages)
      if (it.name == entry)
        most = std::max(most, stage.arenaBytes + stage.weightBytes + stage.packedBytes);
  return most;
}

Expected<std::unique_ptr<HostWatch>>
HostWatch::listen(const RunOptions &options, const Bundle &bundle, Print print) {
  auto slots = readHostfile(options.hostfile);
  if (!slots)
    return tl::unexpected(slots.error());
  std::unique_ptr<HostWatch> watch(new HostWatch(std::move(print)));
  if (auto ok = watch->open(); !ok)
    return tl::unexpected(ok.error());
  watch->version = partitaVersion();
  watch->hash = bundleHash(options.bundle);
  watch->bundlePath = options.bundle;
  watch->folder = options.data.checkpoints.folder;
  watch->rankBytes = bytesOfRank(bundle, options.entry);
  // Ranks go onto the slots of the first host, then of the next.
  int64_t next = 0;
  for (const HostSlots &it : *slots) {
    Host host;
    host.name = it.name, host.first = next;
    host.ranks = std::min(it.slots, bundle.numRanks() - next);
    next += host.ranks;
    if (host.ranks > 0)
      watch->hosts.push_back(std::move(host));
  }
  return watch;
}

//===----------------------------------------------------------------------===//
// Hearing
//===----------------------------------------------------------------------===//

void HostWatch::accept() {
  for (;;) {
    FileDescriptor client(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.get() < 0)
      break;
    constexpr size_t most = 1024; // a host has one agent
    if (strangers.size() < most)
      strangers.emplace_back(std::move(client));
  }
  auto waiting = std::move(strangers);
  strangers.clear();
  for (LineSocket &it : waiting)
    introduce(std::move(it));
}

/// Sends away who does not know the token.
void HostWatch::introduce(LineSocket socket) {
  const bool isThere = socket.read();
  auto line = socket.take();
  if (!line) {
    if (isThere)
      strangers.push_back(std::move(socket));
    return;
  }
  std::istringstream words(*line);
  std::string kind, secret;
  int64_t first = -1;
  words >> kind >> secret >> first;
  auto host = std::ranges::find(hosts, first, &Host::first);
  if (kind != "agent" || secret != token || host == hosts.end() ||
      host->state != Host::Unheard)
    return;
  host->agent = std::move(socket);
  meet(*host, words);
}

void HostWatch::meet(Host &host, std::istringstream &words) {
  std::string itsVersion, itsHash;
  uint64_t free = 0;
  words >> itsVersion >> itsHash >> free;
  host.state = Host::Heard;
  host.heard = host.answered = lastMet = Clock::now();
  host.probe.reset();
  const std::string at = "host '" + host.name + "': ";
  if (itsVersion != version)
    host.difference = at + "has Partita " + itsVersion + ", this host has " + version;
  else if (itsHash == "none")
    host.difference = at + "the bundle '" + bundlePath + "' is not there";
  else if (itsHash != hash)
    host.difference = at + "'" + bundlePath + "' is another bundle there (hash " +
                      itsHash + ") than on this host (" + hash + ")";
  const uint64_t needed = rankBytes * static_cast<uint64_t>(host.ranks);
  if (free != 0 && free < needed)
    print(at + bytesText(static_cast<double>(free)) +
          " of memory are free there, its ranks need " +
          bytesText(static_cast<double>(needed)));
}

void HostWatch::take(Host &host, const std::string &line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  host.heard = Clock::now();
  host.silence = 0;
  if (kind == "beat") {
    host.still.clear();
    std::string time;
    int64_t clock = 0;
    words >> time >> clock;
    // Nobody has a lease any more once the run is to end.
    if (!reached) {
      host.agent.send("lease " + time);
      host.answered = Clock::now();
    }
    const double ahead = static_cast<double>(clock - wallClock()) * 1e-3;
    // A line that was long under way makes a clock seem late.
    if (std::abs(ahead) > clockLimit + silenceLimit * (ahead < 0) && !host.isClockTold) {
      host.isClockTold = true;
      print("host '" + host.name + "': its clock is " +
            formatted("%.0f s %s this host's", std::abs(ahead),
                      ahead > 0 ? "ahead of" : "behind"));
    }
  } else if (kind == "still") {
    int rank = 0;
    double silence = 0;
    if (words >> rank >> silence)
      host.still[rank] = silence;
  } else if (kind == "folder") {
    const std::string problem = line.size() > 7 ? line.substr(7) : "";
    print("host '" + host.name + "': the folder '" + folder + "' " +
          (problem.empty() ? "can be written again"
                           : "cannot be written there: " + problem));
  } else if (kind == "bye") {
    host.state = Host::Gone;
    host.still.clear();
    host.answered = Clock::time_point(); // its ranks have ended
    host.agent.close();
  }
}

void HostWatch::hear(Host &host) {
  const bool isThere = host.agent.read();
  while (auto line = host.agent.take())
    take(host, *line);
  if (isThere || host.state != Host::Heard)
    return;
  host.state = Host::Gone;
  host.still.clear();
  host.agent.close();
  lose("host '" + host.name + "': its agent is gone", /*isSure=*/false);
}

//===----------------------------------------------------------------------===//
// Judging
//===----------------------------------------------------------------------===//

void HostWatch::lose(const std::string &text, bool isSure) {
  if (!reached)
    reached = Verdict{text, /*isLost=*/true, isSure};
}

static std::optional<tcp_info> infoOf(const LineSocket &socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return ::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0
             ? std::optional(info)
             : std::nullopt;
}

/// Names all that are silent by now: where a switch or this host's own link fails, they
/// are several.
std::string HostWatch::silent() const {
  std::string text;
  const double also = silenceLimit - 1;
  for (const Host &host : hosts) {
    if (host.state != Host::Heard || host.silence < also)
      continue;
    auto info = infoOf(host.agent);
    // Its kernel answers by itself, also for programs that stand still.
    const bool isAnswering = info && info->tcpi_last_ack_recv < 1000;
    text += (text.empty() ? "" : "; ") + ("host '" + host.name + "': ") +
            (isAnswering ? formatted("it stands still: it receives, and nothing has run "
                                     "there for %.0f s",
                                     host.silence)
                         : formatted("nothing has come from it for %.0f s: its link is "
                                     "cut, or it is off",
                                     host.silence));
  }
  return text;
}

std::string HostWatch::stillRanks(double least) const {
  std::string text;
  for (const Host &host : hosts)
    for (const auto &[rank, silence] : host.still)
      if (silence >= least)
        text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) +
                " on host '" + host.name +
                formatted("': no sign of life of the process for %.0f s", silence);
  return text;
}

void HostWatch::judge(Host &host, double passed) {
  if (host.state == Host::Unheard)
    return judgeUnheard(host);
  if (host.state != Host::Heard)
    return;
  host.silence += passed;
  if (host.silence > 1 && Clock::now() - host.asked > link::beat) {
    host.asked = Clock::now();
    host.agent.send("more");
  }
  if (host.silence >= silenceLimit)
    lose(silent(), /*isSure=*/true);
  judgeLink(host);
}

/// A link on which lines are long under way is told of once.
void HostWatch::judgeLink(Host &host) {
  auto info = infoOf(host.agent);
  const double trip = info ? info->tcpi_rtt * 1e-6 : 0;
  if (trip > 0)
    host.leastTrip = std::min(host.leastTrip, trip);
  const double usual = host.leastTrip;
  if (trip < slowTrip || trip < 5 * usual) {
    host.slowSince = -1;
    host.isSlow = host.isSlow && trip > slowTrip / 2;
    return;
  }
  const double now = since(begin);
  if (host.slowSince < 0)
    host.slowSince = now;
  if (host.isSlow || now - host.slowSince < slowFor)
    return;
  host.isSlow = true;
  print("host '" + host.name +
        formatted("': its link is slow: %.0f ms there and back, %.1f ms without load",
                  trip * 1e3, usual * 1e3));
}

/// Asks a host itself while mpirun starts its daemons; later its agent is late.
void HostWatch::judgeUnheard(Host &host) {
  if (host.isUnheardTold)
    return;
  if (!host.probe && since(begin) > 1)
    host.probe.emplace(host.name);
  auto answer = host.probe ? host.probe->answer() : std::optional<bool>();
  const bool areOthersHere = lastMet != Clock::time_point();
  std::string why;
  if (answer == false)
    why = " does not answer (it cannot be asked by ssh)";
  else if (!answer && since(begin) > unheardLimit)
    why = formatted(" has not answered for %.0f s (asked by ssh)", since(begin));
  else if (answer && areOthersHere && since(lastMet) > unheardLimit)
    why = ": its agent says nothing; what is lost there is told of by other ranks alone";
  if (why.empty())
    return;
  host.isUnheardTold = true;
  print("host '" + host.name + "'" + why);
}

/// Hosts have a moment to come, so that one sentence names all that differ.
void HostWatch::judgeDifferences() {
  std::string text;
  bool areAllHere = true;
  for (const Host &host : hosts) {
    areAllHere &= host.state != Host::Unheard;
    if (!host.difference.empty())
      text += (text.empty() ? "" : "; ") + host.difference;
  }
  if (!text.empty() && !reached && (areAllHere || since(lastMet) > 1))
    reached = Verdict{text, /*isLost=*/false, /*isSure=*/true};
}

void HostWatch::look() {
  // A time in which this process itself stood still does not count.
  const double passed = std::min(since(looked), 0.2);
  looked = Clock::now();
  accept();
  for (Host &host : hosts)
    if (host.state == Host::Heard)
      hear(host);
  if (reached)
    return;
  for (Host &host : hosts)
    judge(host, passed);
  judgeDifferences();
}

void HostWatch::awaitLeases() const {
  if (!reached || !reached->isLost)
    return;
  for (const Host &host : hosts)
    if (host.state == Host::Gone || host.silence > 1)
      std::this_thread::sleep_until(host.answered + link::lease);
}
