//===- Model.h - A program as a pairwise choice problem ---------*- C++ -*-===//
//
// Builds the solver's problem from a program, and reads a plan off an answer. Variables,
// edges and memory are described in docs/search.md.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_MODEL_H
#define PARTITA_SEARCH_MODEL_H

#include "partita/Base/Stop.h"
#include "partita/Rule/Sharding/ServeUses.h"
#include "partita/Search/Strategies.h"
#include "partita/Search/Timing.h"
#include "partita/Solver/Problem.h"

#include <array>
#include <memory>

namespace partita::search {

/// What an op can do. Equal ops share one.
struct OpChoices {
  std::vector<Strategy> strategies;
  std::vector<Picos> times;
  /// Form numbers, [operand][choice] and [result][choice].
  std::vector<std::vector<int32_t>> operands, results;
  size_t size() const { return strategies.size(); }
};

/// Where a value with users in several ops lies: as it was produced, and in the layouts
/// and window buffers that it is converted to.
struct ValueState {
  int32_t produced;            ///< form
  std::vector<int32_t> copies; ///< forms, at most ModelOptions::mostCopies
  /// Of a state of the program (FlowKind::State), under a memory limit: every user
  /// converts it by itself, before it runs, and gives up what it has read.
  bool isReadAnew = false;
};
/// The variable that chooses among the states.
struct SharedValue {
  int32_t value = -1;
  uint32_t variable = 0;
  std::shared_ptr<const std::vector<ValueState>> states;
  /// The ops that use it; the edges of the problem to them, from the first on.
  std::vector<int32_t> users = {};
  size_t edge = 0;
};

/// A source with users in several ops: a variable per form, absent or present.
struct SharedSource {
  int32_t value = -1;
  std::vector<int32_t> forms;
  std::vector<uint32_t> copies;
};

/// A large source with one user, under a memory limit: a variable for the form in which
/// it is kept. Where that is not what the user wants, it is converted before the user
/// runs.
struct HomeSource {
  int32_t value = -1;
  uint32_t variable = 0;
  size_t edge = 0; ///< of the problem, to the user
  std::vector<int32_t> forms;
};

/// What a decided program does.
struct Decided {
  /// Per op. A source has the strategy of the layout in which it is read, if it is one.
  std::vector<Strategy> strategies;
  /// Where users are not served as serveUses would.
  Servings servings;
};

struct Model {
  solver::Problem problem;
  std::vector<std::shared_ptr<const OpChoices>> choices; ///< per op; null for sources
  std::vector<int32_t> variables;                        ///< per op; -1 for sources
  std::vector<SharedValue> values;
  std::vector<SharedSource> sources;
  std::vector<HomeSource> homes;
  /// Values with one user, with the edge of the problem between it and the producer.
  std::vector<std::pair<int32_t, size_t>> directs;
  /// With `anyRecompute`, per op: it has its choices once as it is kept, then so often as
  /// it is computed again.
  std::vector<uint32_t> repeatedBlocks;
  int64_t fixedBytes = 0; ///< of sources too small to be looked at

  Decided decide(Timing &timing, const std::vector<uint32_t> &answer) const;
  /// The answer that stands for a plan; absent: the plan is outside of the space, which
  /// has no such strategy of an op or no such copies of a value.
  std::optional<std::vector<uint32_t>> answerOf(Timing &timing,
                                                const Decided &plan) const;
};

/// Kinds of rows, by the bytes that a model counts of values that several ops read: its
/// choices do not say who reads which copy.
enum class Rows {
  /// No plan takes more than its answer says: an answer that fits is a plan that fits.
  Most,
  /// No plan takes less: where no answer fits, no plan does.
  Least
};

struct ModelOptions {
  /// Bytes that one device may use; absent: memory is not modelled.
  std::optional<int64_t> memoryLimit;
  Pins pins;
  Rows rows = Rows::Most;
  /// Conversions of one value at most, where users in several ops share them.
  size_t mostCopies = 2;
  /// Sources of fewer bytes are counted whole, however they are read.
  int64_t smallSource = 4096;
  /// Sources of fewer bytes are not converted before they are used.
  int64_t leastGathered = 65536;
  /// Recompute of a training step is chosen, too (RecomputeBound.h). With least
  /// rows no step takes less time and memory than an answer says, and the timing is one
  /// with `anyRecompute`; with others prices and bytes are about those of the steps that
  /// answers stand for. Answers are no plans.
  bool anyRecompute = false;
  /// Lets ops through which all goes (a residual stream) run again, too: a larger
  /// problem. Least rows do not ask.
  bool repeatsNecks = false;
  /// Births of copies are chosen, too: else a copy is there from the first moment on at
  /// which anything may need it, which counts more bytes; with necks an estimate. Least
  /// rows do not ask.
  bool choosesBirths = true;
  /// Per op the only strategy that is looked at, but for arguments; null: any.
  const std::vector<Strategy> *given = nullptr;
  /// States of one value at most: beyond it a value has fewer copies, the cheapest.
  size_t mostStates = 1500;
  StopFlag stop; ///< once it is raised, building ends with the error "cancelled"
};

/// An error if pins leave an op no strategy.
Expected<Model> buildModel(Timing &timing, const ModelOptions &options);

/// The cheapest way from a value produced as `produced` to all of `forms` (distinct, none
/// of them the produced one, at most three): each straight from there or from another.
struct Service {
  struct Entry {
    int32_t form;
    int32_t from; ///< an earlier entry, or -1: the value as produced
  };
  bool possible = false;
  Picos time = 0;
  std::vector<Entry> entries;
};
Service bestService(Timing &timing, int32_t produced, const std::vector<int32_t> &forms,
                    int64_t elementBytes);
/// The same for one op that wants `forms` (distinct, the produced one may be among them):
/// a layout on the way to window buffers is tried too.
Service bestServiceOfOp(Timing &timing, int32_t produced,
                        const std::vector<int32_t> &forms, int64_t elementBytes);

/// What a plan takes, from its strategies and services alone: shares with the model only
/// the time of single ops and steps.
struct PlanCost {
  Picos compute = 0, conversions = 0;
  int64_t receivedBytes = 0, collectives = 0;
  int64_t peakBuffer = 0; ///< see partita::Price
  /// Time that a pass takes of the device and its links, and how many kernels, calls and
  /// steps of conversions its host starts.
  struct Pass {
    Picos device = 0;
    int64_t launches = 0;
    int64_t calls = 0; ///< of an engine, among the launches
  };
  /// Forward, with what is computed again; backward; update. Known of prices by kernels
  /// alone (KernelPrice.h).
  std::array<Pass, 3> passes = {};
  Picos waiting = 0; ///< of the device for its host, likewise
  int64_t tasks = 0; ///< kernels and calls, however often they run, likewise
  /// Time of both that runs beside the other, where the stack's communication is in
  /// flight meanwhile (KernelTimeline.h), and the calls that its steps are then.
  Picos hidden = 0;
  int64_t calls = 0;
  Picos total() const { return compute + conversions - hidden + waiting; }
};
PlanCost evaluate(Timing &timing, const Decided &plan);

/// What it costs, in all trips, that a conversion takes a value out of its kernel: 0
/// where none does.
Picos breakingTime(Timing &timing, const Decided &plan, int32_t value);

} // namespace partita::search

#endif // PARTITA_SEARCH_MODEL_H
