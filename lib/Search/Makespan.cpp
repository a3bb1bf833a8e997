//===- Makespan.cpp - Work on a device and its links, over time -----------===//
#include "partita/Search/Simulate.h"

#include <algorithm>
#include <array>
#include <limits>

using namespace partita;
using namespace partita::search;

double search::effectiveContention(double contention) {
  return std::clamp(contention, 1.0, 2.0);
}

namespace {
/// Work of one row, in its order.
struct Queue {
  std::vector<int32_t> work;
  size_t next = 0;
  int32_t head() const { return next < work.size() ? work[next] : none; }
  static constexpr int32_t none = std::numeric_limits<int32_t>::max();
};

/// Runs work as soon as what it needs is done and it is the first of its rows.
class Clock {
public:
  Clock(const std::vector<Work> &work, double contention)
      : work(work), slower(effectiveContention(contention)), missing(work.size()),
        users(work.size()) {
    for (size_t w = 0; w < work.size(); ++w) {
      for (int32_t before : work[w].after)
        users[at(before)].push_back(static_cast<int32_t>(w));
      missing[w] = work[w].after.size();
      for (size_t row = 0; row < rows.size(); ++row)
        if (isOn(work[w], row))
          rows[row].work.push_back(static_cast<int32_t>(w));
    }
  }

  double run() {
    for (size_t w = 0; w < work.size(); ++w)
      if (work[w].after.empty())
        freed.push_back(static_cast<int32_t>(w));
    double now = 0;
    for (begin(); !running.empty(); begin())
      now += pass();
    return now;
  }

private:
  static constexpr size_t kernels = 0, locals = 1, links = 2;
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  static bool isOn(const Work &it, size_t row) {
    switch (it.on) {
    case Work::On::Nothing:
      return false;
    case Work::On::Kernel:
      return row == kernels;
    case Work::On::Local:
      return row == locals;
    case Work::On::Links:
      return row >= links && (it.levels >> (row - links) & 1);
    }
    return false;
  }

  /// Begins all that can begin, first what is first in the program. What takes no time is
  /// done at once.
  void begin() {
    do {
      free();
      std::array<int32_t, links + Topology::maxLevels> heads;
      for (size_t row = 0; row < rows.size(); ++row)
        heads[row] = rows[row].head();
      std::sort(heads.begin(), heads.end());
      for (size_t i = 0; i < heads.size() && heads[i] != Queue::none; ++i)
        if (i == 0 || heads[i] != heads[i - 1])
          tryToBegin(heads[i]);
    } while (!freed.empty());
  }

  void tryToBegin(int32_t number) {
    const Work &it = work[at(number)];
    bool onDevice = it.on == Work::On::Kernel || it.on == Work::On::Local;
    if (missing[at(number)] > 0 || (onDevice && isDeviceBusy) ||
        (it.levels & busyLevels) != 0)
      return;
    for (size_t row = 0; row < rows.size(); ++row)
      if (isOn(it, row) && rows[row].head() != number)
        return;
    for (size_t row = 0; row < rows.size(); ++row)
      if (isOn(it, row))
        ++rows[row].next;
    isDeviceBusy |= onDevice;
    busyLevels |= it.levels;
    running.push_back({number, static_cast<double>(it.time)});
    if (it.time == 0)
      end(running.size() - 1);
  }

  /// Work on nothing begins when it is freed; others wait for their turn.
  void free() {
    while (!freed.empty()) {
      int32_t number = freed.back();
      freed.pop_back();
      const Work &it = work[at(number)];
      if (it.on != Work::On::Nothing)
        continue;
      running.push_back({number, static_cast<double>(it.time)});
      if (it.time == 0)
        end(running.size() - 1);
    }
  }

  /// To the next moment at which something ends.
  double pass() {
    double rate = isDeviceBusy && busyLevels != 0 ? 1 / slower : 1;
    auto rateOf = [&](const Running &it) {
      return work[at(it.number)].on == Work::On::Nothing ? 1 : rate;
    };
    double least = std::numeric_limits<double>::infinity();
    for (const Running &it : running)
      least = std::min(least, it.left / rateOf(it));
    for (size_t i = running.size(); i-- > 0;) {
      running[i].left -= least * rateOf(running[i]);
      // Less than rounding leaves.
      if (running[i].left < 1e-3)
        end(i);
    }
    return least;
  }

  void end(size_t place) {
    const int32_t number = running[place].number;
    running.erase(running.begin() + static_cast<int64_t>(place));
    const Work &it = work[at(number)];
    if (it.on == Work::On::Kernel || it.on == Work::On::Local)
      isDeviceBusy = false;
    busyLevels &= ~it.levels;
    for (int32_t user : users[at(number)])
      if (--missing[at(user)] == 0)
        freed.push_back(user);
    // Something may begin that waited for its turn only.
    if (it.on != Work::On::Nothing)
      freed.push_back(number);
  }

  struct Running {
    int32_t number;
    double left; ///< of its time alone
  };

  const std::vector<Work> &work;
  double slower;
  std::vector<size_t> missing; ///< per work, of what it needs
  std::vector<std::vector<int32_t>> users;
  std::array<Queue, links + Topology::maxLevels> rows;
  std::vector<Running> running;
  /// What may have become able to begin, or to let others begin.
  std::vector<int32_t> freed;
  bool isDeviceBusy = false;
  uint32_t busyLevels = 0;
};
} // namespace

double search::makespan(const std::vector<Work> &work, double contention) {
  return Clock(work, contention).run();
}
