//===- Launches.h - Kernels and calls of a program --------------*- C++ -*-===//
#ifndef PARTITA_KERNELS_LAUNCHES_H
#define PARTITA_KERNELS_LAUNCHES_H

#include "partita/Kernels/Group.h"

namespace partita::kernels {

/// Kernels and engine calls that run one after the other, and the bytes that they store.
/// Communication and copies from one dense tensor to another are none of them.
struct Launches {
  int64_t kernels = 0, calls = 0, bytesWritten = 0;
  /// Kernels among them of attentions, and those that move elements and compute nothing.
  int64_t attentions = 0, copies = 0;

  /// Adds so many runs of what `more` has.
  void add(const Launches &more, int64_t times = 1) {
    kernels += times * more.kernels, calls += times * more.calls;
    bytesWritten += times * more.bytesWritten;
    attentions += times * more.attentions, copies += times * more.copies;
  }
};

/// Launches of one run of the program, by its groups, calls and copies (Places.h).
Launches launchesOf(const LocalProgram &program, const Grouping &grouping,
                    const Target &target);

} // namespace partita::kernels

#endif // PARTITA_KERNELS_LAUNCHES_H
