//===- Order.h - Buckets, starts and order of collectives -------*- C++ -*-===//
//
// Decides, from a plain description of one rank's program, which collectives of a
// training step are one call, when each call starts, and where the ops stand that have to
// wait for it. docs/communication.md has the rules and an example.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_ORDER_H
#define PARTITA_COMM_ORDER_H

#include "partita/Base/Phase.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita::buckets {

enum class CallKind : uint8_t { AllReduce, AllGather, ReduceScatter };
inline constexpr size_t numCallKinds = 3;
/// "allreduce", "allgather", "reducescatter", as a training file has them.
const char *name(CallKind kind);

/// A collective that may be one call with others.
struct Call {
  CallKind kind = CallKind::AllReduce;
  /// Equal for those that may share a call: of one kind, group and reduction.
  int32_t key = 0;
  int64_t bytes = 0; ///< of the larger one of source and target
  int64_t held = 0;  ///< bytes of both, once where they are one place
  /// The trained parameter, in the model's order, whose gradient or values these are.
  int32_t parameter = -1;
  /// The number of the layer whose sharded weight is gathered, which nothing is computed
  /// for, or gets its part of a gradient. −1: neither.
  int32_t layer = -1;

  bool gathersWeight() const { return kind == CallKind::AllGather && layer >= 0; }
};

struct Op {
  /// Earlier ops whose results it reads, and those that it must stand behind.
  std::vector<int32_t> reads;
  Phase phase = Phase::Forward;
  std::optional<Call> call = {};
  /// Equal for communications that one prepared call may serve (Reuse.h): of one kind,
  /// group, reduction, element type and shape. −1: it is none.
  int32_t form = -1;
};

/// Rule by which calls of one kind, of gradients, updates and sharded weights, are a
/// bucket.
struct Fusion {
  enum class Mode : uint8_t {
    /// Cut by size, about `autoBuckets` of a step, the last one small; gathers of sharded
    /// weights and parts of their gradients are cut by layer.
    Auto,
    Size,  ///< in the order in which they are ready, up to `bytes`
    Index, ///< by parameter: a bucket ends before each number of `index`
    Alone  ///< every call is its own
  };
  Mode mode = Mode::Auto;
  int64_t bytes = 0;
  std::vector<int32_t> index = {}; ///< ascending
  /// By parameter the number of a group that is a bucket whatever the mode; −1: none.
  std::vector<int32_t> groups = {};
};

struct Options {
  Fusion fusion[numCallKinds] = {};
  /// Calls that may be in flight while a further one starts; 0: each is waited for where
  /// it starts. Beside them the weights of one layer are.
  int32_t maxInFlight = 2;
  int32_t autoBuckets = 6;
  /// No automatic bucket is smaller, but the last one of a step: below, a call takes as
  /// long as a shorter one.
  int64_t minBytes = 4 << 20;
  /// The share of the gradients' bytes that may be left for the last bucket, which
  /// nothing hides. Steps of fewer than `minSplit` bytes have one bucket.
  double lastShare = 0.08;
  int64_t minSplit = 64 << 10;
  /// Calls that are waited for where they start, as of the moments of norms, may be one
  /// of so many bytes; more take longer than the latency that is saved. 0: none is.
  int64_t joinBytes = 64 << 10;
  /// Ops that may stand before such a call for one more member of it: what they give is
  /// held from there on.
  int32_t maxHoisted = 16;
  /// Makes buckets of gradients' calls. A trip of a loop leaves such calls in their
  /// places, but for reduce-scatters of gradients of sharded weights.
  bool makesBuckets = true;
  /// Whether weight gradients may stand behind the start of a large bucket.
  bool movesWeights = true;
};

struct Step {
  enum class Kind : uint8_t { Run, Start, Wait } kind;
  int32_t number; ///< of the op, or of the bucket
  bool operator==(const Step &) const = default;
};

struct Order {
  /// Ops, in the order of the program; those that meet are waited for where they start.
  std::vector<std::vector<int32_t>> buckets;
  std::vector<Step> steps;   ///< every op that is in no bucket, every start and wait
  int64_t gradientBytes = 0; ///< of calls of phase weight
  /// Bytes among them that start before the last op of phase backward or weight.
  int64_t earlyBytes = 0;
  int64_t maxBytesInFlight = 0;
  int32_t calls = 0; ///< buckets and calls that are in none
  int32_t met = 0;   ///< collectives among them that meet in a call with others
};

/// The new order of a step; ops read only earlier ones, and the last op ends the program.
/// Ops of phases weight and update that read what a bucket gives are *late*: they stand
/// behind its wait, as early as they can. Others keep their order, but for products that
/// only gradients' calls read, where `movesWeights` lets them, and for few ops that stand
/// before a call of several small collectives, and for gathers of weights: those of a
/// layer are one call, which starts where the call before it is waited for.
Order orderOf(const std::vector<Op> &ops, const Options &options);

} // namespace partita::buckets

#endif // PARTITA_COMM_ORDER_H
