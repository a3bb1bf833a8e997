//===- Pipelines.h - Known schedules of a training step ---------*- C++ -*-===//
//
// Stage s of S has: zero (once), forward, backward, weights (per micro-batch), update
// (once). Program p of P holds the stages s with s mod P = p.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_BASE_PIPELINES_H
#define PARTITA_TEST_UNIT_BASE_PIPELINES_H

#include "partita/Base/Bundle/Schedule.h"

#include <algorithm>
#include <string>
#include <vector>

namespace pipelines {
using namespace partita;
using namespace partita::schedule;

enum class Kind { AllForward, OneForwardOneBackward, Interleaved, ZeroBubble };
inline const char *nameOf(Kind kind) {
  const char *const names[] = {"all forward, all backward", "1F1B", "interleaved",
                               "zero bubble"};
  return names[static_cast<size_t>(kind)];
}

struct Shape {
  Kind kind;
  int64_t programs, perProgram, microBatches, ranks;
};

enum Part { Zero, Forward, Backward, Weights, Update, NumParts };
struct Step {
  Part part;
  int64_t chunk; ///< of the program's stages
  int64_t microBatch;
};

/// The order of the parts on program `p`.
inline std::vector<Step> orderOf(const Shape &s, int64_t p) {
  int64_t P = s.programs, V = s.perProgram, M = s.microBatches, total = M * V;
  auto forward = [&](int64_t k) {
    int64_t m = k / (P * V) * P + k % P;
    return V == 1 ? Step{Forward, 0, k} : Step{Forward, k / P % V, m};
  };
  auto backward = [&](int64_t k) {
    Step step = forward(k);
    return Step{Backward, V - 1 - step.chunk, step.microBatch};
  };
  int64_t warm = V > 1 ? (P - p - 1) * 2 + (V - 1) * P : P - 1 - p;
  if (s.kind == Kind::AllForward)
    warm = total;
  warm = std::min(warm, total);
  // A zero-bubble schedule puts off the gradients of weights.
  size_t late = s.kind == Kind::ZeroBubble ? static_cast<size_t>(p) : 0;
  std::vector<Step> order, owed;
  for (int64_t v = 0; v < V; ++v)
    order.push_back({Zero, v, 0});
  for (int64_t k = 0; k < warm; ++k)
    order.push_back(forward(k));
  for (int64_t k = 0; k < total; ++k) {
    if (warm + k < total)
      order.push_back(forward(warm + k));
    Step step = backward(k);
    order.push_back(step);
    owed.push_back({Weights, step.chunk, step.microBatch});
    for (; owed.size() > late; owed.erase(owed.begin()))
      order.push_back(owed.front());
  }
  order.insert(order.end(), owed.begin(), owed.end());
  for (int64_t v = 0; v < V; ++v)
    order.push_back({Update, v, 0});
  return order;
}

/// Buffers of a stage, in the order of their numbers.
enum Value { In, Kept, Out, GradOut, GradKept, GradIn, Sum, New, NumValues };

inline void addStage(Program &program, int64_t stage, int64_t stages,
                     int64_t microBatches) {
  std::string n = std::to_string(stage);
  auto base = static_cast<int64_t>(program.buffers.size());
  for (const char *name :
       {"in", "kept", "out", "gradOut", "gradKept", "gradIn", "sum", "new"})
    program.buffers.push_back({name + n, microBatches});
  auto at = [&](Value v) -> Buffer & {
    return program.buffers[static_cast<size_t>(base + v)];
  };
  at(Sum).slots = at(New).slots = 1;
  at(New).output = true;
  at(In).input = stage == 0;
  at(GradOut).input = stage == stages - 1; // the labels
  at(Out).output = stage == stages - 1;
  auto add = [&](const char *name, bool once, std::vector<int64_t> reads,
                 std::vector<int64_t> writes) {
    for (auto *list : {&reads, &writes})
      for (int64_t &value : *list)
        value += base;
    program.segments.push_back({name + n, once, !once, reads, writes});
  };
  add("zero", true, {}, {Sum});
  add("forward", false, {In}, {Kept, Out});
  add("backward", false, {Kept, GradOut}, {GradKept, GradIn});
  add("weights", false, {Kept, GradKept, Sum}, {Sum});
  add("update", true, {Sum}, {New});
}

/// Which segments run when; transfers are still to be completed.
inline Pipeline ordered(const Shape &s) {
  Pipeline p;
  p.microBatches = s.microBatches;
  int64_t stages = s.programs * s.perProgram;
  for (int64_t i = 0; i < s.programs; ++i) {
    Program &program = p.programs.emplace_back();
    program.name = "p" + std::to_string(i);
    program.numRanks = s.ranks;
    for (int64_t v = 0; v < s.perProgram; ++v)
      addStage(program, v * s.programs + i, stages, s.microBatches);
    Schedule schedule;
    for (Step step : orderOf(s, i))
      schedule.entries.push_back(
          {step.chunk * NumParts + step.part, step.microBatch, {}, {}});
    for (int64_t r = 0; r < s.ranks; ++r) {
      schedule.ranks = {r};
      program.schedules.push_back(schedule);
    }
  }
  auto buffer = [&](int64_t stage, Value v) {
    return stage / s.programs * NumValues + v;
  };
  for (int64_t k = 0; k + 1 < stages; ++k) {
    int64_t a = k % s.programs, b = (k + 1) % s.programs;
    std::string n = std::to_string(k);
    p.transfers.push_back({"act" + n, a, buffer(k, Out), b, buffer(k + 1, In)});
    p.transfers.push_back({"grad" + n, b, buffer(k + 1, GradIn), a, buffer(k, GradOut)});
  }
  return p;
}

/// A whole schedule, with as few slots as its order allows.
inline Pipeline make(const Shape &s) {
  Pipeline best = ordered(s);
  auto completed = [](Pipeline p) {
    complete(p);
    return p;
  };
  for (Program &program : best.programs)
    for (Buffer &buffer : program.buffers)
      while (buffer.slots > 1 && !buffer.input && !buffer.output) {
        --buffer.slots;
        if (check(completed(best)))
          continue;
        ++buffer.slots;
        break;
      }
  return completed(best);
}

} // namespace pipelines

#endif // PARTITA_TEST_UNIT_BASE_PIPELINES_H
