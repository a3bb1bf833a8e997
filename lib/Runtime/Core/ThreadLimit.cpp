//===- ThreadLimit.cpp - How many threads a process may have --------------===//
#include "ThreadLimit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

/// The number that a file begins with. Nothing where there is no file, or the word "max".
static std::optional<int64_t> numberIn(const std::string &path) {
  std::string text;
  std::ifstream(path) >> text;
  int64_t number = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() ? std::optional(number) : std::nullopt;
}

/// Soft limit of a resource, where there is one.
static std::optional<int64_t> limitOf(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

/// The limit of the group of processes that has this one, as far as a member sees it.
static std::optional<int64_t> limitOfGroup() {
  std::ifstream groups("/proc/self/cgroup");
  std::optional<int64_t> least;
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::"))
      continue;
    for (const std::string &folder : {line.substr(3), std::string()})
      if (auto number = numberIn("/sys/fs/cgroup" + folder + "/pids.max"))
        least = std::min(least.value_or(*number), *number);
  }
  return least;
}

static int64_t stackBytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (::pthread_attr_init(&attributes) != 0)
    return 1;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return static_cast<int64_t>(std::max<size_t>(bytes, 1));
}

ThreadLimit runtime::threadLimit() {
  ThreadLimit limit;
  auto add = [&](std::optional<int64_t> threads, const char *source) {
    if (threads && *threads < limit.threads)
      limit = {*threads, source};
  };
  if (::geteuid() != 0) // the system does not hold it against root
    add(limitOf(RLIMIT_NPROC), "ulimit -u");
  add(limitOfGroup(), "pids.max of the control group");
  add(numberIn("/proc/sys/kernel/threads-max"), "kernel.threads-max");
  add(numberIn("/proc/sys/kernel/pid_max"), "kernel.pid_max");
  // A stack and its guard.
  if (auto mappings = numberIn("/proc/sys/vm/max_map_count"))
    add(*mappings / 2, "vm.max_map_count, of which a thread takes two");
  if (auto bytes = limitOf(RLIMIT_AS))
    add(*bytes / stackBytes(), "ulimit -v, by the size of stacks");
  return limit;
}
