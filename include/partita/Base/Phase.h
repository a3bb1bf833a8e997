//===- Phase.h - The parts of a training step -------------------*- C++ -*-===//
#ifndef PARTITA_BASE_PHASE_H
#define PARTITA_BASE_PHASE_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace partita {

/// The part of a training step that an op, a conversion or a task belongs to. A program
/// that does not train is all forward. *Backward*: cotangents of what ops read; *weight*:
/// gradients of parameters, and their sums over micro-batches; *update*: all that is done
/// with gradients, scaling them included.
enum class Phase : uint8_t { Forward, Backward, Weight, Update };

constexpr std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "weight", "update"};
  return names[static_cast<size_t>(phase)];
}

constexpr std::optional<Phase> phaseFromName(std::string_view text) {
  for (Phase phase : {Phase::Forward, Phase::Backward, Phase::Weight, Phase::Update})
    if (name(phase) == text)
      return phase;
  return std::nullopt;
}

/// Order of reading: a phase reads none of a larger number. Backward and weight lead to
/// each other in no order.
constexpr int orderOf(Phase phase) {
  return phase == Phase::Forward ? 0 : phase == Phase::Update ? 2 : 1;
}

} // namespace partita

#endif // PARTITA_BASE_PHASE_H
