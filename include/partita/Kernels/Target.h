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

#include "partita/Kernels/OpFacts.h"

#include <cstddef>
#include <cstdint>

namespace partita::kernels {

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
  /// Post-ops of a call. More operands than this spill registers in every iteration.
  size_t maxPostOps = 4;
  /// Values that a kernel stores beside the results of its root. More streams than this
  /// leave the first-level cache's ways to one another.
  size_t maxKept = 6;
  /// Bit `post` of the functions that calls apply to results: cheap ones only. An
  /// engine's functions of real numbers are slower than a kernel over the result: gelu on
  /// 128×3072 took 0.7 ms as a post-op, 0.12 ms as a kernel.
  uint32_t posts = ~(1u << static_cast<unsigned>(Post::None));
  /// Whether attention is one kernel.
  bool streamsAttention = false;

  bool takes(Post post) const { return posts >> static_cast<unsigned>(post) & 1; }
};

/// Kernels of passes/Codegen/CPU, calls of oneDNN.
inline constexpr Target cpu = {.streamsAttention = true};
/// A target without kernels of attention.
inline constexpr Target plain = {};

} // namespace partita::kernels

#endif // PARTITA_KERNELS_TARGET_H
