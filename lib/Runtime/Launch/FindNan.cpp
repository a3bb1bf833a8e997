//===- FindNan.cpp - Ranks agree on who made a NaN ------------------------===//
#include "Internal.h"

#include "partita/Runtime/CheckpointSession.h"

using namespace partita;
using namespace partita::runtime;

/// The earliest that any rank found; on every process.
static Expected<FoundNan> earliestOf(Session &session) {
  FoundNan own = session.notFinite().value_or(FoundNan());
  FoundNan best;
  int64_t isBad[] = {own.isOfResult};
  if (auto ok = session.agree(isBad); !ok)
    return tl::unexpected(ok.error());
  if (isBad[0] == 0)
    return best;
  best.isOfResult = true;
  // Members one after the other, among the ranks that have the best so far.
  bool isIn = true;
  int64_t members[] = {own.origin, own.order, own.rank};
  int64_t agreed[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    int64_t least[] = {isIn ? -members[i] : INT64_MIN};
    if (auto ok = session.agree(least); !ok)
      return tl::unexpected(ok.error());
    agreed[i] = -least[0];
    isIn = isIn && members[i] == agreed[i];
    if (agreed[0] == FoundNan::None)
      return best;
  }
  auto text = agreeOnText(session, isIn ? own.text : std::string());
  if (!text)
    return tl::unexpected(text.error());
  best = {static_cast<FoundNan::Origin>(agreed[0]), agreed[1],
          static_cast<int>(agreed[2]), std::move(*text), true};
  return best;
}

Expected<void> runtime::checkFinite(Session &session, const RunOptions &options,
                                    const std::string &request) {
  if (!options.findNan)
    return {};
  auto found = earliestOf(session);
  if (!found)
    return tl::unexpected(found.error());
  if (!found->isOfResult)
    return {};
  if (found->origin == FoundNan::None)
    return makeError(request +
                     " has a result that is not finite, and no node is known that "
                     "made it so");
  return makeError(request + ", " + found->text);
}
