//===- PostOps.h - Pointwise ops that a call applies ------------*- C++ -*-===//
#ifndef PARTITA_LIB_KERNELS_POSTOPS_H
#define PARTITA_LIB_KERNELS_POSTOPS_H

#include "partita/Kernels/Group.h"

namespace partita::kernels {

/// `op` as a post-op on `value`, one of its operands, or nothing if the target's calls do
/// not apply it.
std::optional<PostStep> postStepOf(const LocalProgram &program, int32_t op, int32_t value,
                                   const Target &target);

/// The post-ops behind a call that takes some, up to the first op that is none, each the
/// only user of the one before.
std::vector<PostStep> postChain(const LocalProgram &program, int32_t engine,
                                const std::vector<int32_t> &callOf, const Target &target);

/// Steps, likewise, behind a call that sums products of 8-bit integers in i32. Each step
/// has the type of its number, so that none stands for two ops that round; a cast to 8
/// bits, of a number that has been clipped to them, is the last.
std::vector<PostStep> requantization(const LocalProgram &program, int32_t engine,
                                     const std::vector<int32_t> &callOf,
                                     const Target &target);

} // namespace partita::kernels

#endif // PARTITA_LIB_KERNELS_POSTOPS_H
