//===- MetricsServer.h - A text that others may ask for ---------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_METRICSSERVER_H
#define PARTITA_LIB_RUNTIME_LAUNCH_METRICSSERVER_H

#include "partita/Base/Error.h"

#include <memory>
#include <string>

namespace partita::runtime {

/// Answers GET /metrics over HTTP, one request after the other, from a thread of its own.
/// A client that is slow is dropped within a second, and holds up nothing but others.
class MetricsServer {
public:
  /// Listens at an address as parseAddress takes it; port 0: at one that is free.
  static Expected<std::unique_ptr<MetricsServer>> start(const std::string &address);
  /// Ends the thread.
  ~MetricsServer();

  /// "127.0.0.1:9100".
  std::string address() const;
  /// The text from now on.
  void publish(std::string text);

private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_METRICSSERVER_H
