//===- Join.cpp - Small collectives that meet in one call -----------------===//
#include "Join.h"

#include <algorithm>

using namespace partita;
using namespace partita::buckets;

namespace {
class Joiner {
public:
  Joiner(const std::vector<Op> &ops, const Facts &facts, const Gathers &gathers,
         const Options &options)
      : ops(ops), facts(facts), gathers(gathers), options(options),
        isGiven(ops.size(), false) {
    result.members.resize(ops.size());
    for (size_t o = 0; o < ops.size(); ++o)
      if (mayJoin(o))
        calls.push_back(static_cast<int32_t>(o));
  }

  Joined run() {
    for (size_t o = 0; o < ops.size(); ++o) {
      const auto op = static_cast<int32_t>(o);
      if (isGiven[o])
        continue;
      if (mayJoin(o))
        gather(op);
      give(op);
    }
    return std::move(result);
  }

private:
  static size_t at(int32_t number) { return static_cast<size_t>(number); }

  /// Collectives of arguments alone, as of sharded weights, may stand anywhere: how long
  /// their results are held is not decided here.
  bool mayJoin(size_t o) const {
    const Op &op = ops[o];
    return op.call && !facts.isMember[o] && gathers.callOf[o] < 0 && !op.reads.empty() &&
           op.call->bytes <= options.joinBytes &&
           options.fusion[static_cast<size_t>(op.call->kind)].mode != Fusion::Mode::Alone;
  }

  void give(int32_t op) {
    isGiven[at(op)] = true;
    result.order.push_back(op);
  }

  /// Finds the members of a call that this op begins.
  void gather(int32_t first) {
    const Op &op = ops[at(first)];
    int64_t bytes = op.call->bytes;
    std::vector<int32_t> group{first};
    for (auto it = std::ranges::upper_bound(calls, first); it != calls.end(); ++it) {
      const Op &other = ops[at(*it)];
      if (isGiven[at(*it)] || other.call->key != op.call->key ||
          other.phase != op.phase || bytes + other.call->bytes > options.joinBytes)
        continue;
      std::vector<int32_t> way;
      if (!findWay(*it, op.phase, way))
        continue;
      std::ranges::sort(way);
      for (int32_t maker : way)
        give(maker);
      bytes += other.call->bytes;
      group.push_back(*it);
    }
    for (int32_t member : group)
      isGiven[at(member)] = true;
    if (group.size() > 1)
      result.members[at(first)] = std::move(group);
  }

  /// The ops that are not given yet and that the call needs. False: too many, or such as
  /// may not come before the call that is being gathered.
  bool findWay(int32_t call, Phase phase, std::vector<int32_t> &way) const {
    std::vector<int32_t> next{call};
    while (!next.empty()) {
      const int32_t reader = next.back();
      next.pop_back();
      for (int32_t read : ops[at(reader)].reads) {
        if (isGiven[at(read)] || std::ranges::find(way, read) != way.end())
          continue;
        const Op &op = ops[at(read)];
        if (op.call || op.phase != phase || facts.isLate[at(read)] ||
            std::ssize(way) == options.maxHoisted)
          return false;
        way.push_back(read);
        next.push_back(read);
      }
    }
    return true;
  }

  const std::vector<Op> &ops;
  const Facts &facts;
  const Gathers &gathers;
  const Options &options;
  std::vector<int32_t> calls; ///< that may join
  std::vector<bool> isGiven;  ///< by op
  Joined result;
};
} // namespace

Joined buckets::join(const std::vector<Op> &ops, const Facts &facts,
                     const Gathers &gathers, const Options &options) {
  return Joiner(ops, facts, gathers, options).run();
}
