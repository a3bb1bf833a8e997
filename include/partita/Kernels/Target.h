//===- Target.h - What kernels and calls of a target are like ---*- C++ -*-===//
//
// Constants of a kind of machine, never of one machine that was measured: the same input
// gives the same kernels everywhere. Which ops share a kernel is decided by what their
// kernels would take together and apart. A kernel takes the longer of its operations and
// its traffic, and a launch:
//
//     steps = launch + max(Σ operations · points, Σ bytes · (1 or farByte))
//
// in *steps*: what one vector operation takes for one element, 0.03 ns on a core of 3 GHz
// with two operations of eight elements a cycle. Each tensor that enters or leaves the
// kernel moves once. One that no cache keeps until it is read (farTensor) comes from
// memory.
//
//     softmax of 128 × 768, times exp(scale)    together: 16 · 98,304 steps more
//                                               apart:    16,000 for a launch, 16 · 768,
//                                                         and two small tensors
//
// The figures decide between ways to do the same; that they are within a factor of two
// of a machine's own is enough.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_TARGET_H
#define PARTITA_KERNELS_TARGET_H

#include "partita/Abi/TaskTable.h"
#include "partita/Kernels/OpFacts.h"

#include <cstddef>
#include <cstdint>

namespace partita::kernels {

/// Abilities of engine calls beside their product, convolution or pool.
struct CallAbilities {
  /// Whether a call takes several post-ops of one kind. oneDNN 2.6's depthwise
  /// convolution applies the first parameters of a pointwise kind to all of that kind.
  bool repeatsPosts = false;
  /// Whether operands of a product's post-ops may vary along any dims; else along all or
  /// along the columns. oneDNN's products crash on others.
  bool broadcastsPosts = false;
  /// Whether a convolution may add to what lies in the place of its result.
  bool addsToResult = true;
  /// Whether weights may be packed once, in a form that calls read faster.
  bool packsWeights = true;
  /// Set if a convolution of 8-bit integers applies functions to its sums, and casts.
  bool requantizes = true;
};

/// Which images calls read and write.
struct Images {
  /// The order in memory in which calls need no copies (partita_format).
  int64_t format = PARTITA_FORMAT_CHANNELS_LAST;
  const char *name = "channels last"; ///< of copies into it, in profiles
  /// Images with no more channels, which fill no vector, are read row-major as well.
  int64_t fewChannels = 4;
};

/// Into what a kernel is divided, so that threads compute it apart.
struct Division {
  /// Enough units that the threads of any machine get about equally many.
  int64_t units = 64;
  /// A chunk of the innermost dim is a multiple of this: whole vectors, whole cache
  /// lines.
  int64_t chunk = 64;
  /// Rows that are computed together where the neighbours of their elements are in the
  /// next row. Two cache lines of f32: enough accumulators to add without waiting for the
  /// sum before, few enough that the channels of a small layer are work for two threads.
  int64_t lanes = 32;
};

struct Target {
  /// Steps of a launch: half a microsecond, in which a task is looked up, a team is woken
  /// and meets.
  double launchSteps = 16'000;
  /// Steps of a byte from memory, where one from the caches takes one step.
  double farByte = 3;
  /// Bytes of a tensor that has left the caches when it is read.
  double farTensor = 2 << 20;
  /// Ops of a kernel. Longer kernels gain nothing and compile slowly.
  int maxOps = 64;
  /// Post-ops of a call, or operands of those of a call that requantizes. More operands
  /// than this spill registers in every iteration.
  size_t maxPostOps = 4;
  /// Values that a kernel stores beside the results of its root. More streams than this
  /// leave the first-level cache's ways to one another.
  size_t maxKept = 6;
  /// Bit `post` of the functions that calls apply to results: cheap ones only. An
  /// engine's functions of real numbers are slower than a kernel over the result: gelu on
  /// 128×3072 took 0.7 ms as a post-op, 0.12 ms as a kernel.
  uint32_t posts = ~(1u << static_cast<unsigned>(Post::None));
  CallAbilities calls = {};
  Images images = {};
  Division division = {};
  /// Says that kernels copy what its readers cannot take as it lies (Places.h); set for
  /// targets that code is generated for.
  bool copiesOrders = true;
  /// Whether attention is one kernel, from so many queries and keys on. With fewer
  /// queries the vectors of a block of keys are transposed for too few rows; with scores
  /// this small, they stay in a cache, and larger products are faster.
  bool streamsAttention = false;
  int64_t fewestQueries = 16, fewestKeys = 16;
  /// Says whether the gradients of attention are kernels, too, where attention is one.
  bool streamsGradients = true;
  /// Heads of keys from which on one kernel computes all gradients: the threads of most
  /// machines have about as much each. A matter of shape alone, for the order of sums is
  /// that of the kernel.
  int64_t fewestGradientHeads = 8;
  /// The largest head, of queries or values, of such a kernel.
  int64_t widestHead = INT64_MAX;

  bool takes(Post post) const { return posts >> static_cast<unsigned>(post) & 1; }
};

/// Kernels of passes/Codegen/CPU, calls of oneDNN.
inline constexpr Target cpu = {.streamsAttention = true};
/// A target without kernels of attention.
inline constexpr Target plain = {};

} // namespace partita::kernels

#endif // PARTITA_KERNELS_TARGET_H
