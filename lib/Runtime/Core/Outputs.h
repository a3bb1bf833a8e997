//===- Outputs.h - Outputs of all ranks come together -----------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H
#define PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H

#include "Interface.h"

#include <atomic>
#include <functional>
#include <span>

namespace partita::runtime {

/// Writes the outputs of a request, or states, into the caller's tensors. Threads write
/// their parts themselves; processes send them to rank 0.
class Outputs {
public:
  /// `what`: "output", for messages. All tensors that may be asked for, by who has them.
  Outputs(const Stages &stages, std::string what, std::span<const TensorInfo> tensors,
          std::span<const Interface::Bound> givers, bool local);

  /// The part of one rank of tensor k; its error names it. Rank 0 of an MPI job returns
  /// when all parts are there. `to` is written on the root only.
  Expected<void> deliver(size_t k, Executor &executor, size_t stage, Transport &transport,
                         RankProgress &progress, std::byte *to);
  /// Of all tensors, at the end of a request.
  Expected<void> deliverAll(Executor &executor, size_t stage, Transport &transport,
                            RankProgress &progress, std::span<std::byte *const> to);
  // Parts of requests that follow each other are on their way while the ranks are at the
  // next request.

  /// Room for the parts of so many requests that `rank` sends, or as rank 0 gets.
  void reserve(size_t requests, int rank);
  /// Begins to bring the outputs of a request together, by Transport::isOver of `later`,
  /// a number below those reserved. Parts of this process's rank are taken at once.
  Expected<void> begin(size_t later, Executor &executor, size_t stage,
                       Transport &transport, RankProgress &progress,
                       std::span<std::byte *const> to);
  /// Writes what has come of such a request, once it is over, on the root.
  void take(size_t later, const Transport &transport, std::span<std::byte *const> to);
  void setAwaited(int rank) { from.store(rank); }

  /// The rank whose part is being received, or -1.
  int awaited() const { return from.load(); }

private:
  struct Part {
    int rank;
    SliceCopy slice;
  };
  bool gather(size_t output, Executor &executor, size_t stage, Transport &transport,
              RankProgress &progress, std::byte *to);
  bool receive(size_t output, const Part &part, Executor &executor, Transport &transport,
               std::byte *to);
  void step(RankProgress &progress, size_t stage, RankProgress::State state, int rank);
  /// Visits the parts of `rank`, of rank 0 all, in one order, slot by slot; ends where a
  /// visit is false.
  using PartVisit = std::function<bool(size_t output, const Part &part, uint32_t slot)>;
  bool eachPart(int rank, const PartVisit &visit) const;
  std::byte *slotOf(size_t output, uint32_t slot, std::byte *to) const;

  const Stages &stages;
  std::string what;
  std::span<const TensorInfo> tensors;
  std::span<const Interface::Bound> givers;
  bool local;
  std::vector<std::vector<Part>> parts;         ///< by tensor, with MPI
  std::vector<std::byte> staging;               ///< room for one part on rank 0
  std::vector<std::vector<std::byte>> onTheWay; ///< by number of the request
  std::atomic<int> from{-1};
  uint64_t sent = 0; ///< requests whose outputs went their way
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_OUTPUTS_H
