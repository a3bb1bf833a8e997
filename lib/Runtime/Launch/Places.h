//===- Places.h - Where ranks of an elastic run may be ----------*- C++ -*-===//
//
// A place is a slot of a host, or of this machine where no hosts are given. A place whose
// rank was lost is out until the run has saved a generation; a host that does not answer
// is out, with all of its places, until it does.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_PLACES_H
#define PARTITA_LIB_RUNTIME_LAUNCH_PLACES_H

#include "Hosts.h"

#include <chrono>
#include <map>
#include <set>
#include <sys/types.h>

namespace partita::runtime {

/// Asks a host whether it answers, by the command with which mpirun would start its
/// daemon there (OMPI_MCA_plm_rsh_agent, else ssh). Ends what it has started.
class Probe {
public:
  explicit Probe(const std::string &host);
  ~Probe();
  Probe(Probe &&other) noexcept;
  Probe &operator=(Probe &&) = delete;
  /// Absent: not known yet. A host that says nothing for some seconds does not answer.
  std::optional<bool> answer();
  /// Reads the last answer.
  bool isRefused() const { return known == false; }

private:
  pid_t child = -1;
  std::optional<bool> known;
  std::chrono::steady_clock::time_point begin;
};

class Places {
public:
  /// `count` slots of this machine, or those of a hostfile if one is given.
  static Expected<Places> of(const std::string &hostfile, int64_t count);

  /// Reads the hostfile anew and asks all hosts, which takes some seconds at most. For a
  /// moment at which no rank runs. A sentence where the file cannot be read any more and
  /// its hosts are those of before; an error where it never could.
  Expected<std::string> look();
  /// Places that a look and forgive() would give, without waiting, for a moment at which
  /// ranks run: hosts that are out, or new in the file, are asked from time to time.
  int64_t prospect();
  /// Places whose ranks were lost are tried again.
  void forgive() { lost.clear(); }

  int64_t usable() const;
  int64_t count() const;
  /// The rank of the last hosts() was lost; its place is out. -1: none is known.
  void lose(int rank);
  /// Hosts with slots for so many ranks, at most usable(); ranks go onto them in order.
  std::vector<HostSlots> hosts(int64_t ranks);
  /// "node-2, 1 slot of node-3" have no rank of the last hosts(); empty: there is none.
  std::string idle() const;
  bool areHosts() const { return !hostfile.empty(); }

private:
  struct Host {
    std::string name;
    int64_t slots = 0;
    bool answers = true;
  };
  const Host *find(const std::string &name) const;
  void askAgain();
  int64_t usableOf(const Host &host) const;

  std::string hostfile;
  std::vector<Host> all;
  std::map<std::string, int64_t> lost; ///< slots whose ranks were lost, by host
  std::vector<HostSlots> taken;        ///< by the last hosts()
  std::map<std::string, Probe> probes; ///< under way, or answered since the last look
  std::vector<HostSlots> current;      ///< in the file when it was last read
  std::chrono::steady_clock::time_point asked{};
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_PLACES_H
