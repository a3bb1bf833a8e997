//===- RunLogs.cpp - Files that tell of a run, one per rank ---------------===//
#include "RunLogs.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Units.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

RunLogs::~RunLogs() {
  for (int file : files)
    ::close(file);
}

Expected<void> RunLogs::add(const std::string &folder, const std::string &name) {
  std::string path = folder + "/" + name;
  // A file that nobody reads, as a pipe, must not make a run wait.
  int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0)
    return makeError("cannot write '" + path + "': " + std::strerror(errno));
  files.push_back(file);
  return {};
}

/// "pid 12 on 'host', bundle 'b', transport mpi".
static std::string startText(const RunOptions &options, std::string_view transport) {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return "starts: pid " + std::to_string(::getpid()) + " on '" + host + "', bundle '" +
         options.bundle + "', transport " + std::string(transport);
}

Expected<RunLogs> RunLogs::ofRanks(const RunOptions &options, TransportKind transport) {
  RunLogs logs;
  if (options.logDir.empty())
    return logs;
  if (auto ok = makeLogFolder(options); !ok)
    return tl::unexpected(ok.error());
  const bool isLocal = transport == TransportKind::Local;
  int64_t first = mpiRank().value_or(0), end = first + 1;
  if (isLocal) {
    auto bundle = readBundle(options.bundle);
    if (!bundle)
      return tl::unexpected(bundle.error());
    first = 0, end = bundle->numRanks();
  }
  for (int64_t rank = first; rank < end; ++rank)
    if (auto ok = logs.add(options.logDir, "rank-" + std::to_string(rank) + ".log"); !ok)
      return tl::unexpected(ok.error());
  logs.line(startText(options, isLocal ? "local" : "mpi"));
  return logs;
}

Expected<RunLogs> RunLogs::ofSupervisor(const RunOptions &options) {
  RunLogs logs;
  if (options.logDir.empty() || mpiRank())
    return logs;
  if (auto ok = makeLogFolder(options); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = logs.add(options.logDir, "supervisor.log"); !ok)
    return tl::unexpected(ok.error());
  return logs;
}

/// Writes "TIME text" and the end of the line, in one piece. The time is that of the
/// clock, to the millisecond.
static void write(int file, std::string_view text) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  char time[40];
  size_t length = std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &parts);
  length +=
      static_cast<size_t>(std::snprintf(time + length, sizeof(time) - length, ".%03dZ ",
                                        static_cast<int>(now.tv_nsec / 1'000'000)));
  iovec pieces[] = {{time, length},
                    {const_cast<char *>(text.data()), text.size()},
                    {const_cast<char *>("\n"), 1}};
  (void)!::writev(file, pieces, 3);
}

void RunLogs::line(std::string_view text) const {
  for (int file : files)
    write(file, text);
}

void RunLogs::printed(std::string_view text) const {
  if (!files.empty())
    write(files.front(), text);
}

void RunLogs::step(int64_t number, double seconds) {
  auto now = std::chrono::steady_clock::now();
  if (files.empty() || now - told < std::chrono::seconds(1))
    return;
  told = now;
  char text[80];
  int length = std::snprintf(text, sizeof(text), "step %lld is done, in %.6f s",
                             static_cast<long long>(number), seconds);
  line({text, static_cast<size_t>(length)});
}

void RunLogs::end(const Expected<RunEnd> &how) const {
  if (!how)
    line("ends: error: " + how.error().message);
  else if (how->isLost)
    line("ends: lost: " + how->problem);
  else if (how->signal != 0)
    line(std::string("ends: stopped by ") +
         (how->signal == SIGINT ? "SIGINT" : "SIGTERM") +
         (how->problem.empty() ? "" : ": " + how->problem));
  else
    line("ends: done");
}

Print RunLogs::alsoPrinting(const Print &print) const {
  if (files.empty())
    return print;
  return [this, print](std::string_view text) {
    printed(text);
    print(text);
  };
}
