//===- Interface.h - Inputs and outputs of a run's programs -----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_INTERFACE_H
#define PARTITA_LIB_RUNTIME_CORE_INTERFACE_H

#include "partita/Runtime/Session.h"

namespace partita::runtime {

/// The programs of a run, by number.
using Stages = std::vector<std::shared_ptr<const Stage>>;

/// Which program a rank of the run has; the stages belong together.
size_t stageOf(const Stages &stages, int rank);

/// The tensors of requests. Programs may take the same input; each output is of one.
struct Interface {
  struct Bound {
    size_t stage, tensor; ///< of Stages, of its table
    auto operator<=>(const Bound &) const = default;
  };
  std::vector<TensorInfo> inputs, outputs, states;
  /// How long dims of outputs are in a request, where that is data; i64 scalars.
  std::vector<TensorInfo> sizes;
  /// Per output and dim the size that it has, or -1.
  std::vector<std::vector<int>> sizeOf;
  std::vector<std::vector<Bound>> takers; ///< by input
  std::vector<Bound> givers;              ///< by output, then by size
  std::vector<Bound> keepers;             ///< by state

  /// Outputs and sizes, as the givers.
  std::vector<TensorInfo> given() const;

  /// By program, in the order of their tables.
  static Expected<Interface> of(const Stages &stages);
  /// As the bundle's entry shows them: micro-batches of sliced tensors along the first
  /// dim, outputs in the model's order, sizes apart from them. An error names a tensor
  /// that there is not.
  Expected<void> arrange(const BundleEntry &entry);
};

/// The states of the programs, and who holds them.
std::vector<HeldState> heldStates(const Stages &stages, const Interface &interface);
/// Hash of what states begin as that begin as weights: names, types, shapes, and the
/// first bytes of each.
Expected<Hash128> hashOrigins(const Stages &stages, const Interface &interface,
                              const WeightStore &weights);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_INTERFACE_H
