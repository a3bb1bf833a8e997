//===- Outputs.h - Outputs of all ranks come together -----------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H
#define PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H

#include "Interface.h"

#include <atomic>
#include <span>

namespace partita::runtime {

/// Writes the outputs of a request into the caller's tensors. Threads write their parts
/// themselves; processes send them to rank 0.
class Outputs {
public:
  Outputs(const Stages &stages, const Interface &interface, bool local);

  /// The part of one rank; its error names the output. Rank 0 of an MPI job returns when
  /// all parts are there. `to` is written on the root only.
  Expected<void> deliver(Executor &executor, size_t stage, Transport &transport,
                         RankProgress &progress, std::span<std::byte *const> to);
  /// The rank whose part is being received, or -1.
  int awaited() const { return from.load(); }

private:
  struct Part {
    int rank;
    SliceCopy slice;
  };
  bool gather(size_t output, Executor &executor, size_t stage, Transport &transport,
              RankProgress &progress, std::span<std::byte *const> to);
  bool receive(size_t output, const Part &part, Executor &executor, Transport &transport,
               std::byte *to);
  void step(RankProgress &progress, size_t stage, RankProgress::State state, int rank);

  const Stages &stages;
  const Interface &interface;
  bool local;
  std::vector<std::vector<Part>> parts; ///< by output, with MPI
  std::vector<std::byte> staging;       ///< room for one part on rank 0
  std::atomic<int> from{-1};
  uint64_t sent = 0; ///< requests whose outputs went their way
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H
