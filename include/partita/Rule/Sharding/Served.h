//===- Served.h - Services as plans write them ------------------*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_SERVED_H
#define PARTITA_RULE_SHARDING_SERVED_H

#include "partita/Rule/Sharding/ServeUses.h"

namespace partita {

/// A service as plans write it: users are found by what they want.
struct ServedEntry {
  std::optional<Layout> layout; ///< absent: windows
  /// Which of the distinct window buffers that users want, in the order of uses.
  int32_t window = 0;
  int32_t from = -1;                           ///< see ServedLayout
  std::optional<int64_t> epoch = std::nullopt; ///< absent: by giveEpochs
  /// Numbers of uses of the value, from 0; empty: those that want it and no
  /// entry names.
  std::vector<int32_t> users = {};
};
std::vector<ServedEntry> servedEntries(const FlowGraph &graph,
                                       const std::vector<Strategy> &strategies,
                                       int32_t value,
                                       const std::vector<ServedLayout> &served);
/// The same, with epochs and users said where serveBy would give others.
Expected<std::vector<ServedEntry>> exactEntries(const FlowGraph &graph,
                                                const std::vector<Strategy> &strategies,
                                                int32_t value,
                                                const std::vector<ServedLayout> &served);
/// The service of a value by these entries; users that want the value as it is produced
/// need none. Of equal entries the first user takes the first, the next op the next, and
/// those that are left the last. An error says which user is not served, or which entry
/// leads nowhere.
Expected<std::vector<ServedLayout>> serveBy(const FlowGraph &graph,
                                            const std::vector<Strategy> &strategies,
                                            int32_t value,
                                            const std::vector<ServedEntry> &entries);
/// "[{8: tp}, {6}]; [{8}, {6}] from 0; window 0 from 1; [{8}, {6}] epoch 1 for 2 3".
std::string servedText(const Mesh &mesh, const std::vector<ServedEntry> &entries);
Expected<std::vector<ServedEntry>> parseServed(std::string_view text, const Mesh &mesh);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_SERVED_H
