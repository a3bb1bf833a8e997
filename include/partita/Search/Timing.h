//===- Timing.h - How long ops and conversions take -------------*- C++ -*-===//
//
// The terms of lib/Cost applied to a program: whole picoseconds, each term rounded once,
// so that sums are equal however they are added up.
//
// Fusion. An elementwise op that is the only user of a value shares a kernel with its
// producer; so does an op that works on rows (softmax) with the elementwise op before it.
// The value between them is *internal*: neither written nor read. Where a conversion
// stands between the two, it is written and read, and one more kernel starts: that is a
// cost of the edge. On a device whose products compute no functions
// (MatmulModel::functionsApart) these are kernels of their own behind a product and what
// joins it, and so are ops that work on rows. Ops that only rename dims (a row-major
// reshape) are *views* and take no time.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_TIMING_H
#define PARTITA_SEARCH_TIMING_H

#include "partita/Cost/Reshard.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <unordered_map>

#include <array>
#include <memory>

namespace partita::search {

class ConversionPlans;

using Picos = int64_t;

/// Rounded to the nearest; at most 10^17, about a day.
Picos picosOf(double seconds);

/// So many times; at most 10^17.
inline Picos repeated(Picos time, int64_t trips) {
  Picos all = 0;
  constexpr Picos most = 100'000'000'000'000'000;
  return __builtin_mul_overflow(time, trips, &all) || all > most ? most : all;
}

/// For how long something keeps each resource to itself. A collective holds the links of
/// every level that it uses from its beginning to its end.
struct Occupied {
  Picos time = 0;   ///< from begin to end, alone
  Picos device = 0; ///< of which kernels run
  std::array<Picos, Topology::maxLevels> links{};

  /// One after the other.
  Occupied &operator+=(const Occupied &other);
  Occupied repeated(int64_t trips) const;
};
/// A step or window: what is not the device's time is the links'.
Occupied occupiedBy(const StepPrice &price);
inline Occupied occupiedByKernel(Picos time) { return {time, time, {}}; }

/// What a user finds of a value: a layout, or the buffer of a halo whose `before` is not
/// looked at. Canonical.
struct Form {
  Layout layout; ///< of a halo the layout that holds each window's own elements
  std::optional<Halo> halo;
  bool operator==(const Form &) const = default;
};

/// Numbers of equal forms are equal.
class FormTable {
public:
  int32_t add(Form form);
  int32_t add(Layout layout) { return add(Form{std::move(layout), std::nullopt}); }
  const Form &operator[](int32_t form) const { return forms[static_cast<size_t>(form)]; }
  size_t size() const { return forms.size(); }

private:
  std::vector<Form> forms;
  std::unordered_multimap<size_t, int32_t> known;
};

struct Conversion {
  bool possible = false;
  Picos time = 0;
  int64_t receivedBytes = 0;
  int64_t peakBytes = 0; ///< most that is alive in it, source and target included
};

/// Times of one program on one placement; both must outlive it.
class Timing {
public:
  /// With `anyRecompute`, what ops of a training step take at least whatever is computed
  /// again (RecomputeBound.h): values that may be are neither written nor read.
  Timing(const FlowGraph &graph, const Placement &placement, bool anyRecompute = false);
  ~Timing();

  const FlowGraph &graph;
  const Placement &placement;
  FormTable forms;

  /// One op under a strategy, in all its trips: kernels, and masks of the padding of its
  /// operands.
  Picos op(int32_t op, const Strategy &strategy) const;
  /// The part of `op` in one trip that masks the padding of its operands.
  Picos masks(int32_t op, const Strategy &strategy) const;
  /// A product, convolution or attention in one trip, without masks.
  Picos call(int32_t op, const Strategy &strategy) const;
  /// Operations of the op on one rank in one trip, by the device's kind of rate.
  double operations(int32_t op, const Strategy &strategy) const;
  /// With `anyRecompute`, what it takes at least to run an op of the forward pass once
  /// more: it may join a kernel that finds what others of that pass have made.
  Picos again(int32_t op, const Strategy &strategy) const;

  Picos step(const Step &step, int64_t elementBytes) const;
  Picos window(const Halo &halo, int64_t elementBytes) const;

  /// From a layout (never a halo) to a form. Not possible: a halo whose partial axes are
  /// not those of the layout, or that must be read from its own positions' layout.
  const Conversion &convert(int32_t from, int32_t to, int64_t elementBytes);
  /// What one that is possible keeps busy.
  Occupied occupied(int32_t from, int32_t to, int64_t elementBytes) const;

  /// Every op has two moments: it runs, then what it made is converted.
  static int64_t runsAt(int32_t op) { return 2 * int64_t(op); }
  static int64_t convertsAt(int32_t op) { return 2 * int64_t(op) + 1; }
  /// The moment after the last at which an operand of the op is alive: that of the last
  /// op of its kernel, whose result is written while operands are read. A view reads
  /// nothing, its result stands for its operand; what the program gives stays. What a
  /// loop reads in each trip stays while it runs; what it carries becomes its own.
  int64_t doneAt(int32_t op) const;
  /// The moment from which on what the op makes has a place: when it runs, but rows that
  /// trips of a loop make one by one have theirs from its first trip on.
  int64_t bornAt(int32_t op) const { return runsAt(firstTrip[static_cast<size_t>(op)]); }
  int64_t moments() const { return 2 * static_cast<int64_t>(graph.ops.size()); }

  /// Whether the value stays inside a kernel if it is not converted.
  bool isInternal(int32_t value) const { return internal[static_cast<size_t>(value)]; }
  /// Whether the value has no bytes of its own if it is not converted: it stays inside a
  /// kernel, or a view of it has them, or it is a view of what stays alive anyway.
  bool hasNoBytes(int32_t value) const { return noBytes[static_cast<size_t>(value)]; }
  /// Whether the value, as it is produced, lies in the place of another one in any case:
  /// what a loop reads in each trip.
  bool liesElsewhere(int32_t value) const {
    return elsewhere[static_cast<size_t>(value)];
  }
  /// With `anyRecompute`, whether the forward pass makes the value and the backward pass
  /// reads it, so that it may be computed again instead of kept.
  bool mayBeRepeated(int32_t value) const {
    return !repeatable.empty() && repeatable[static_cast<size_t>(value)];
  }
  /// Whether a product makes or reads the value in the kernel of an attention, if it is
  /// not converted.
  bool isStreamed(int32_t value) const { return streamed[static_cast<size_t>(value)]; }
  /// Whether the op runs in the kernel of the producer of one of its operands.
  bool isJoined(int32_t op) const { return joined[static_cast<size_t>(op)]; }
  /// Tells if the op is a convolution, or a gradient of one, that Winograd's algorithm
  /// computes where the local sizes are worth it (Cost/Winograd.h): of f32, by its
  /// window; a transposed one only where its filter is no constant.
  bool mayBeWinograd(int32_t op) const;
  /// Tells if the filter of such an op is no constant, or is made: each run transforms
  /// it.
  bool transformsFilter(const FlowOp &op) const;
  /// How a value goes from the op that makes it to one that reads it, if nothing else
  /// does. What is made in the call of a product goes through memory if the user is a
  /// function or works on rows.
  struct Joining {
    bool isInternal = false;  ///< neither written nor read
    bool joinsKernel = false; ///< the user runs in the producer's kernel
    bool isOneKernel = false; ///< and neither is a view
  };
  Joining joining(int32_t from, int32_t to) const;
  /// Whether the op only renames dims.
  bool isView(int32_t op) const { return views[static_cast<size_t>(op)]; }
  /// Whether a user of the value finds it in memory only: it lasts from run to run, and
  /// what does so is more than the device's cache holds.
  bool isFar(int32_t value) const;
  /// What it costs an internal value to be converted, beyond the conversion.
  Picos breaking(int32_t value, int32_t from, int32_t to) const;

  /// Bytes of a rank's part. Of a halo its buffer.
  int64_t localBytes(int32_t form, int64_t elementBytes) const;

private:
  void findFusion(bool functionsApart);
  /// Marks what is between the two products of an attention that is one kernel.
  void findAttention();
  /// How the value goes to its user, if that is the only one.
  void joinUser(size_t value);
  void findRepeatable();
  /// Whether reading or writing the value takes no traffic.
  bool isFree(int32_t value) const { return isInternal(value) || mayBeRepeated(value); }
  /// Where what goes into loops and comes out of them lies, and how long.
  void followTies();
  bool isHeld(int32_t value) const;
  bool isLasting(const FlowValue &value) const;
  Picos matmul(const FlowOp &op, const Strategy &strategy) const;
  Picos stream(int32_t op, const Strategy &strategy, bool isAgain) const;
  Picos run(int32_t op, const Strategy &strategy, bool isAgain) const;
  Picos winograd(const FlowOp &op, const Strategy &strategy) const;
  /// The part of a product's call that makes its operands of one number.
  Picos fills(int32_t op, const Strategy &strategy) const;
  /// Adds the price of every step to `prices`, if that is given.
  Conversion plan(int32_t from, int32_t to, int64_t elementBytes,
                  std::vector<StepPrice> *prices = nullptr) const;

  std::unique_ptr<ConversionPlans> plans; ///< of layouts, by kind
  std::vector<bool> internal;             ///< per value
  std::vector<bool> noBytes;              ///< per value
  std::vector<bool> elsewhere;            ///< per value
  std::vector<bool> streamed;             ///< per value, made or read by a product
  std::vector<bool> repeatable;           ///< per value, with `anyRecompute`
  int32_t turn = 0;                       ///< with `anyRecompute`, see turnOf
  int64_t lasting = 0;                    ///< bytes of all sources and states
  std::vector<int64_t> sinkDone;          ///< per op the moment of doneAt, of sinks
  std::vector<int32_t> firstTrip;  ///< per op itself, or the first op of the loop's body
  std::vector<int32_t> kernelEnd;  ///< per op the last op of its kernel
  std::vector<bool> views, joined; ///< per op
  std::vector<bool> inCall;        ///< per op, where products compute no functions
  std::unordered_map<uint64_t, Conversion> conversions;
};

/// Whether the op is a sum of products of its first two operands: a contraction or a
/// convolution.
bool isMatmul(const FlowOp &op);

} // namespace partita::search

#endif // PARTITA_SEARCH_TIMING_H
