//===- Failure.h - What a session answers when ranks failed -----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_FAILURE_H
#define PARTITA_LIB_RUNTIME_CORE_FAILURE_H

#include "partita/Base/Error.h"

#include <string>

namespace partita::runtime {

/// The first failure is the answer; what merely follows from another rank's is not. A
/// session with a failure cannot be used again; one with a rank that hangs cannot be
/// joined either.
class Failure {
public:
  void add(const std::string &message, bool isConsequence) {
    if (first.empty() && !isConsequence)
      first = message;
    broken = true;
  }
  void hang(const std::string &message) {
    add(message, false);
    hung = true;
  }
  bool isBroken() const { return broken; }
  bool isHung() const { return hung; }
  const std::string &text() const { return first; }

  Expected<void> result() const {
    if (!broken)
      return {};
    return makeError(first.empty() ? "stopped because another rank failed" : first);
  }

private:
  std::string first;
  bool broken = false, hung = false;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_FAILURE_H
