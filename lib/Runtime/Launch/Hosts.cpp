//===- Hosts.cpp - Ranks on other hosts -----------------------------------===//
#include "Hosts.h"

#include "partita/Base/Units.h"

#include "Internal.h"
#include "MpiRun.h"
#include "partita/Base/Files/File.h"

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <set>
#include <sstream>

using namespace partita;
using namespace partita::runtime;

/// The slots of a line's words behind the name; absent: they are no words of a hostfile.
static std::optional<int64_t> slotsOf(std::istringstream &words) {
  int64_t slots = 1;
  for (std::string word; words >> word;) {
    size_t begin = word.find('=') + 1;
    const char *end = word.data() + word.size();
    bool isSlots = word.starts_with("slots=") || word.starts_with("max_slots=");
    int64_t number = 0;
    auto [at, failed] = std::from_chars(word.data() + begin, end, number);
    if (!isSlots || failed != std::errc() || at != end || number < 1 || number > 65536)
      return std::nullopt;
    if (word.starts_with("slots="))
      slots = number;
  }
  return slots;
}

Expected<std::vector<HostSlots>> runtime::readHostfile(const std::string &path) {
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  std::istringstream lines(*text);
  std::vector<HostSlots> hosts;
  std::set<std::string> names;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name))
      continue;
    auto has = slotsOf(words);
    if (!has || name.find('=') != std::string::npos)
      return makeError("'" + path + "', line " + std::to_string(number) +
                       ": expected NAME slots=N, got '" + line + "'");
    if (!names.insert(name).second)
      return makeError("'" + path + "', line " + std::to_string(number) + ": host '" +
                       name + "' is there twice");
    hosts.push_back({name, *has});
  }
  return hosts;
}

Expected<void> runtime::checkHostfile(const std::string &path, int64_t ranks) {
  auto hosts = readHostfile(path);
  if (!hosts)
    return tl::unexpected(hosts.error());
  int64_t slots = 0;
  for (const HostSlots &host : *hosts)
    slots += host.slots;
  if (slots < ranks)
    return makeError(
        "'" + path + "' has " + countText(static_cast<size_t>(slots), "slot") + " on " +
        countText(hosts->size(), "host") + ", the bundle needs " + std::to_string(ranks));
  return {};
}

/// Text between `begin` and the first of `ends` behind `phrase`; empty: nothing.
static std::string_view behind(std::string_view text, std::string_view phrase,
                               std::string_view begin, std::string_view ends) {
  size_t at = text.find(phrase);
  at = at == std::string_view::npos ? at : text.find(begin, at + phrase.size());
  if (at == std::string_view::npos)
    return {};
  at += begin.size();
  return text.substr(at, text.find_first_of(ends, at) - at);
}

/// The first line that is neither a rank's mark nor in mpirun's frame: that of ssh.
static std::string firstWords(const std::string &text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && !line.starts_with("---");)
    if (!line.empty() && line[0] != '[' && !line.starts_with("partita"))
      return line.substr(0, line.find('\r'));
  return "the daemon there ended";
}

/// The host of which ssh says that its server has ended the session of mpirun's daemon;
/// empty: none.
static std::string_view closedSession(std::string_view text) {
  const std::string_view begin = "Connection to ";
  const size_t end = text.find(" closed by remote host");
  size_t at = end == std::string_view::npos ? end : text.rfind(begin, end);
  if (at == std::string_view::npos)
    return {};
  at += begin.size();
  const std::string_view host = text.substr(at, end - at);
  return host.find_first_of(" \n") == std::string_view::npos ? host : "";
}

std::optional<Expected<RunEnd>> runtime::endByMpirun(std::string_view text, int asked) {
  auto host = behind(text, "lost communication with a remote daemon", "on node ", " \n");
  if (text.find("Remote daemon") != std::string_view::npos)
    host = behind(text, "Remote daemon", "on node ", " \n");
  if (!host.empty())
    return RunEnd::lost("host '" + std::string(host) + "': the connection to it was lost",
                        asked);
  if (auto closed = closedSession(text); !closed.empty())
    return RunEnd::lost("host '" + std::string(closed) + "': its server of ssh is gone",
                        asked);
  for (std::string_view phrase :
       {"unable to reliably start one or more daemons", "died unexpectedly with status",
        "unexpectedly failed after launch"})
    if (text.find(phrase) != std::string_view::npos)
      return RunEnd::lost("mpirun has no daemon on one of the hosts: " +
                              firstWords(std::string(text)),
                          asked);
  auto signal =
      behind(text, "mpirun noticed that process rank", mpi::signalPhrase, ".\n");
  if (signal.empty())
    return std::nullopt;
  const std::string rank(behind(text, "mpirun noticed that process", "rank ", " "));
  std::string place = "rank " + rank;
  host = behind(text, "mpirun noticed that process rank", "on node ", " ");
  if (!host.empty())
    place += " on '" + std::string(host) + "'";
  const int number = std::atoi(std::string(signal).c_str());
  std::string why = place + ": the process was killed by signal " + std::string(signal);
  // The other end of a rank's pipe is the daemon of its host.
  if (number == SIGPIPE)
    return RunEnd::lost(why, asked);
  return endedBy(number, why, asked, std::atoi(rank.c_str()));
}
