//===- HostWatch.h - How a launcher sees other hosts ------------*- C++ -*-===//
//
// The launcher's side of the agents of HostAgent.h: which hosts are there, what differs
// on them, and which are lost, told apart by what their kernel still does. A host that is
// slow is not lost.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_HOSTWATCH_H
#define PARTITA_LIB_RUNTIME_LAUNCH_HOSTWATCH_H

#include "HostLink.h"
#include "Places.h"

#include "partita/Base/Bundle/Bundle.h"

#include <map>

namespace partita::runtime {

class HostWatch {
public:
  /// Waits for the agents of the hosts of a run. `print` gets a line for all that is
  /// worth one and does not end the run.
  static Expected<std::unique_ptr<HostWatch>> listen(const RunOptions &options,
                                                     const Bundle &bundle, Print print);
  /// Address at which agents find this launcher: a secret, the port and addresses.
  const std::string &where() const { return place; }

  /// Hears what has come, answers it, and looks who is silent. To be called several times
  /// a second; never waits.
  void look();

  /// Reason why the run cannot go on. `isSure`: mpirun has no better words for it.
  struct Verdict {
    std::string text;
    bool isLost = false, isSure = false;
  };
  const std::optional<Verdict> &verdict() const { return reached; }
  /// Names the ranks whose processes stand still for so many seconds, or at all where no
  /// number is given, as the agents of their hosts last said; empty: none does.
  std::string stillRanks(double least = 0) const;
  /// Waits until ranks of hosts that are lost have ended by themselves.
  void awaitLeases() const;

private:
  using Clock = std::chrono::steady_clock;
  struct Host {
    std::string name;
    int64_t first = 0, ranks = 0;
    LineSocket agent;
    enum State : uint8_t { Unheard, Heard, Gone } state = Unheard;
    Clock::time_point heard, answered, asked; ///< asked: for an acknowledgement
    double silence = 0;                       ///< seconds of this process
    double leastTrip = 1;                     ///< seconds there and back that were seen
    double slowSince = -1;                    ///< seconds behind the begin; −1: it is not
    bool isSlow = false, isClockTold = false, isUnheardTold = false;
    std::string difference;      ///< from what the launcher has
    std::map<int, double> still; ///< seconds of silence, by rank, as of the last beat
    std::optional<Probe> probe;
  };
  explicit HostWatch(Print print) : print(std::move(print)) {}
  Expected<void> open();
  void accept();
  void introduce(LineSocket socket);
  void meet(Host &host, std::istringstream &words);
  void hear(Host &host);
  void take(Host &host, const std::string &line);
  void judge(Host &host, double passed);
  void judgeLink(Host &host);
  void judgeUnheard(Host &host);
  void judgeDifferences();
  void lose(const std::string &text, bool isSure);
  std::string silent() const;
  double since(Clock::time_point time) const {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  Print print;
  std::string token, place, version, hash, bundlePath, folder;
  uint64_t rankBytes = 0; ///< of memory, at most
  FileDescriptor listener;
  std::vector<Host> hosts;
  std::vector<LineSocket> strangers; ///< have not said yet who they are
  std::optional<Verdict> reached;
  Clock::time_point begin = Clock::now(), looked = Clock::now(), lastMet{};
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_HOSTWATCH_H
