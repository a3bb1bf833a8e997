//===- Order.cpp - Buckets, starts and order of collectives ---------------===//
#include "partita/Comm/Order.h"

#include "Join.h"

#include <algorithm>
#include <deque>
#include <utility>

using namespace partita;
using namespace partita::buckets;

namespace {
/// Walks the program and writes its new order.
class Walk {
public:
  Walk(const std::vector<Op> &ops, const Options &options)
      : ops(ops), options(options), facts(ops, options.makesBuckets),
        gathers(ops, options), joined(join(ops, facts, gathers, options)),
        gathered(gathers.calls.size(), -1), buckets(assign(ops, facts, options)),
        isThere(ops.size(), false), hasCome(ops.size(), false), bucketOf(ops.size(), -1),
        putOff(ops.size(), -1), missing(buckets.size(), 0) {
    for (size_t b = 0; b < buckets.size(); ++b)
      for (int32_t member : buckets[b].members) {
        bucketOf[at(member)] = static_cast<int32_t>(b);
        ++missing[b];
        if (buckets[b].isPutOff)
          for (int32_t maker : facts.makers[at(member)])
            putOff[at(maker)] = static_cast<int32_t>(b);
      }
    began.resize(buckets.size(), false);
    for (size_t o = 0; o + 1 < ops.size(); ++o)
      if (isLateOnly(static_cast<int32_t>(o)))
        waiting.push_back(static_cast<int32_t>(o));
  }

  Order run() {
    for (int32_t op : joined.order)
      if (at(op) + 1 < ops.size())
        take(op);
    end();
    if (!ops.empty())
      give(static_cast<int32_t>(ops.size()) - 1);
    for (const Bucket &bucket : buckets)
      result.buckets.push_back(bucket.members);
    count();
    return std::move(result);
  }

private:
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  bool isReady(int32_t op) const {
    return std::ranges::all_of(ops[at(op)].reads,
                               [&](int32_t read) { return isThere[at(read)]; });
  }

  void give(int32_t op) {
    result.steps.push_back({Step::Kind::Run, op});
    isThere[at(op)] = true;
  }

  /// Makes the op's result be there, if it is or needs nothing but what updates start
  /// from: the number of the step, the rate, constants.
  bool bring(int32_t op) {
    const bool mayCome = ops[at(op)].phase == Phase::Update || ops[at(op)].reads.empty();
    if (isThere[at(op)] || !mayCome || waits(op))
      return isThere[at(op)];
    if (!std::ranges::all_of(ops[at(op)].reads,
                             [&](int32_t read) { return bring(read); }))
      return false;
    give(op);
    return true;
  }

  /// In `waiting` from the begin, as it may come before its place.
  bool isLateOnly(int32_t op) const {
    return facts.isLate[at(op)] && !facts.isMember[at(op)];
  }

  bool waits(int32_t op) const {
    return facts.isMember[at(op)] || facts.isLate[at(op)] || putOff[at(op)] >= 0 ||
           gathers.callOf[at(op)] >= 0;
  }

  /// The next op of the program.
  void take(int32_t op) {
    if (isThere[at(op)])
      return;
    if (const int32_t call = gathers.callOf[at(op)]; call >= 0)
      return takeWeights(call);
    if (waits(op)) {
      if (!isLateOnly(op))
        waiting.push_back(op);
      flush();
      return;
    }
    if (const std::vector<int32_t> &members = joined.members[at(op)]; !members.empty())
      return meet(members);
    makeReady(op);
    give(op);
  }

  /// Brings what an op reads that cannot wait.
  void makeReady(int32_t op) {
    while (!isReady(op) && advance()) {
    }
  }

  /// The weights of a layer are there; those of the next one are on their way.
  void takeWeights(int32_t call) {
    startWeights(call);
    result.steps.push_back({Step::Kind::Wait, gathered[at(call)]});
    for (int32_t member : gathers.calls[at(call)])
      isThere[at(member)] = true;
    if (options.maxInFlight > 0 && at(call) + 1 < gathers.calls.size())
      startWeights(call + 1);
  }

  void startWeights(int32_t call) {
    int32_t &bucket = gathered[at(call)];
    if (bucket >= 0)
      return;
    const std::vector<int32_t> &members = gathers.calls[at(call)];
    for (int32_t member : members)
      for (int32_t read : ops[at(member)].reads)
        provide(read);
    bucket = addStarted(members);
    result.steps.push_back({Step::Kind::Start, bucket});
  }

  /// Gives an op that follows from arguments alone, wherever it stands.
  void provide(int32_t op) {
    if (isThere[at(op)])
      return;
    for (int32_t read : ops[at(op)].reads)
      provide(read);
    give(op);
  }

  /// A bucket that is none of the reductions'.
  int32_t addStarted(const std::vector<int32_t> &members) {
    buckets.push_back({members});
    began.push_back(true), missing.push_back(0);
    return static_cast<int32_t>(buckets.size()) - 1;
  }

  /// A call of several members that is waited for at once.
  void meet(const std::vector<int32_t> &members) {
    for (int32_t member : members)
      makeReady(member);
    const int32_t bucket = addStarted(members);
    result.steps.push_back({Step::Kind::Start, bucket});
    result.steps.push_back({Step::Kind::Wait, bucket});
    result.met += static_cast<int32_t>(members.size());
    for (int32_t member : members)
      isThere[at(member)] = true;
  }

  /// Everything that waits and can go on, in its order.
  void flush() {
    for (bool changes = true; changes;) {
      changes = false;
      std::deque<int32_t> rest;
      for (int32_t op : std::exchange(waiting, {})) {
        const std::vector<int32_t> &reads = ops[at(op)].reads;
        bool goes = (putOff[at(op)] < 0 || othersBegan(putOff[at(op)])) &&
                    std::ranges::all_of(reads, [&](int32_t read) { return bring(read); });
        if (!goes) {
          rest.push_back(op);
          continue;
        }
        changes = true;
        if (facts.isMember[at(op)])
          arrive(op);
        else
          give(op);
      }
      rest.insert(rest.end(), waiting.begin(), waiting.end());
      waiting = std::move(rest);
    }
  }

  /// Whether all buckets that the makers of `bucket` stand behind have started.
  bool othersBegan(int32_t bucket) const {
    int32_t first = buckets[at(bucket)].members[0];
    for (size_t b = 0; b < buckets.size(); ++b) {
      int32_t other = buckets[b].members[0];
      if (!buckets[b].isPutOff && !began[b] &&
          ops[at(other)].call->key == ops[at(first)].call->key &&
          facts.depth[at(other)] == facts.depth[at(first)])
        return false;
    }
    return true;
  }

  void arrive(int32_t member) {
    hasCome[at(member)] = true;
    int32_t bucket = bucketOf[at(member)];
    if (--missing[at(bucket)] == 0)
      start(bucket);
  }

  void start(int32_t bucket) {
    began[at(bucket)] = true;
    result.steps.push_back({Step::Kind::Start, bucket});
    flying.push_back(bucket);
    while (static_cast<int32_t>(flying.size()) > options.maxInFlight)
      wait();
  }

  void wait() {
    int32_t bucket = flying.front();
    flying.pop_front();
    result.steps.push_back({Step::Kind::Wait, bucket});
    for (int32_t member : buckets[at(bucket)].members)
      isThere[at(member)] = true;
  }

  /// Brings what waits a step further. False: nothing is left to wait for.
  bool advance() {
    if (!flying.empty())
      wait();
    else if (!cut() && !release())
      return false;
    flush();
    return true;
  }

  /// Makers wait no longer for buckets of which no member comes before them.
  bool release() {
    bool isAny = std::ranges::any_of(putOff, [](int32_t bucket) { return bucket >= 0; });
    std::ranges::fill(putOff, -1);
    return isAny;
  }

  /// Starts the first bucket of which a member is ready with those that are; the others
  /// become one of their own.
  bool cut() {
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (began[b])
        continue;
      std::vector<int32_t> ready, rest;
      for (int32_t member : buckets[b].members)
        (hasCome[at(member)] ? ready : rest).push_back(member);
      if (ready.empty())
        continue;
      if (!rest.empty()) {
        for (int32_t member : rest)
          bucketOf[at(member)] = static_cast<int32_t>(buckets.size());
        missing.push_back(static_cast<int32_t>(rest.size()));
        began.push_back(false);
        buckets.push_back({rest, buckets[b].isPutOff});
        buckets[b].members = ready;
      }
      missing[b] = 0;
      start(static_cast<int32_t>(b));
      return true;
    }
    return false;
  }

  void end() {
    flush();
    while (advance()) {
    }
  }

  void count();

  const std::vector<Op> &ops;
  const Options &options;
  const Facts facts;
  const Gathers gathers;
  const Joined joined;
  std::vector<int32_t> gathered; ///< by call of `gathers` its bucket; −1: not started
  std::vector<Bucket> buckets;
  std::vector<bool> isThere;     ///< by op: what it gives is
  std::vector<bool> hasCome;     ///< by member: its source is there
  std::vector<int32_t> bucketOf; ///< by op
  std::vector<int32_t> putOff;   ///< by op the bucket whose maker it is; −1: none's
  std::vector<int32_t> missing;  ///< by bucket: members that have not come
  std::vector<bool> began;       ///< by bucket
  std::deque<int32_t> waiting;   ///< members, late ops, makers
  std::deque<int32_t> flying;    ///< buckets
  Order result;
};
} // namespace

/// Sums over the order.
void Walk::count() {
  size_t last = 0; // behind the last op of the backward pass
  for (size_t s = 0; s < result.steps.size(); ++s) {
    const Step &step = result.steps[s];
    if (step.kind != Step::Kind::Run || facts.isLate[at(step.number)])
      continue;
    const Op &op = ops[at(step.number)];
    result.calls += op.call ? 1 : 0;
    if (op.phase == Phase::Backward || op.phase == Phase::Weight)
      last = s;
  }
  int64_t inFlight = 0;
  for (size_t s = 0; s < result.steps.size(); ++s) {
    const auto [kind, number] = result.steps[s];
    if (kind == Step::Kind::Run)
      continue;
    for (int32_t member : buckets[at(number)].members) {
      const Op &op = ops[at(member)];
      inFlight += kind == Step::Kind::Start ? op.call->held : -op.call->held;
      if (kind == Step::Kind::Wait || op.phase != Phase::Weight)
        continue;
      result.gradientBytes += op.call->bytes;
      result.earlyBytes += s < last ? op.call->bytes : 0;
    }
    result.calls += kind == Step::Kind::Start;
    result.maxBytesInFlight = std::max(result.maxBytesInFlight, inFlight);
  }
}

Order buckets::orderOf(const std::vector<Op> &ops, const Options &options) {
  return Walk(ops, options).run();
}
