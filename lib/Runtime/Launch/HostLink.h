//===- HostLink.h - Lines between a launcher and agents on hosts -*- C++ -*-===//
//
// An agent sends "agent TOKEN RANK VERSION HASH FREE" once (the first rank of its host,
// the hash of bundle.json, free bytes of memory), "beat TIME CLOCK" four times a second,
// behind it "still RANK SECONDS" for each rank whose process gives no sign of life,
// "folder TEXT" when the folder of checkpoints changes (no text: it can be written), and
// "bye" when its ranks have ended. A rank sends "pulse RANK" to its agent as often, which
// answers with the end of the lease. The launcher sends "lease TIME", which answers a
// beat, and "more", which only asks for an acknowledgement. TIME is of the agent's clock.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_HOSTLINK_H
#define PARTITA_LIB_RUNTIME_LAUNCH_HOSTLINK_H

#include "Descriptor.h"

#include <chrono>
#include <optional>
#include <string>

namespace partita::runtime {

namespace link {
/// Time between two beats.
inline constexpr std::chrono::milliseconds beat{250};
/// Time from a beat that was answered to the end of ranks that hear nothing more; and
/// from the last line of an agent to the loss of its host.
inline constexpr std::chrono::milliseconds lease{3000};
/// Time from a pulse of a rank behind which its process stands still.
inline constexpr std::chrono::milliseconds still{2000};
} // namespace link

/// A connection that carries lines and never waits.
class LineSocket {
public:
  LineSocket() = default;
  explicit LineSocket(FileDescriptor socket);
  int get() const { return socket.get(); }
  bool isOpen() const { return socket.get() >= 0; }
  void close() { socket.close(); }
  /// Leaves a line out where the other end takes nothing: it is late by then.
  void send(const std::string &line);
  /// Reads what is there. False once the other end is closed.
  bool read();
  /// The next whole line that was read.
  std::optional<std::string> take();

private:
  FileDescriptor socket;
  std::string text;
};

/// Milliseconds since 1970.
int64_t wallClock();

/// The hash of bundle.json, which names the hashes of its modules; "none" where it cannot
/// be read.
std::string bundleHash(const std::string &bundle);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_HOSTLINK_H
