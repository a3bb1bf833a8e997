//===- Assign.cpp - Which collectives are one call ------------------------===//
#include "Assign.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::buckets;

const char *buckets::name(CallKind kind) {
  const char *const names[] = {"allreduce", "allgather", "reducescatter"};
  return names[static_cast<size_t>(kind)];
}

static bool isOfGradients(Phase phase) {
  return phase == Phase::Weight || phase == Phase::Update;
}

/// Tells if a call of a trip is in a bucket: a part of the gradient of a sharded weight.
/// Only so few layers' gradients are whole. Others wait where they start.
static bool isShardOfGradient(const Op &op) {
  return op.phase == Phase::Weight && op.call->kind == CallKind::ReduceScatter &&
         op.call->layer >= 0;
}

/// By op, whether nothing but the end of the program and ops that may wait read it.
static std::vector<bool> areReadLate(const std::vector<Op> &ops) {
  std::vector<bool> result(ops.size(), true);
  for (size_t o = 0; o + 1 < ops.size(); ++o)
    if (!isOfGradients(ops[o].phase))
      for (int32_t read : ops[o].reads)
        result[static_cast<size_t>(read)] = false;
  return result;
}

Facts::Facts(const std::vector<Op> &ops, bool makesBuckets)
    : isMember(ops.size(), false), isLate(ops.size(), false), depth(ops.size(), 0) {
  const std::vector<bool> readLate = areReadLate(ops);
  for (size_t o = 0; o + 1 < ops.size(); ++o) {
    const Op &op = ops[o];
    bool readsMember = false;
    for (int32_t read : op.reads) {
      auto r = static_cast<size_t>(read);
      depth[o] = std::max(depth[o], depth[r]);
      readsMember |= isMember[r] || isLate[r];
    }
    // A metric's sum goes with the first gradients.
    isMember[o] = op.call && (makesBuckets ? isOfGradients(op.phase) || readLate[o]
                                           : isShardOfGradient(op));
    isLate[o] = readsMember && isOfGradients(op.phase);
    depth[o] += isMember[o];
  }
  findMakers(ops);
}

/// From the last op to the first: a maker is read by one member and its makers alone.
void Facts::findMakers(const std::vector<Op> &ops) {
  constexpr int32_t nobody = -1, several = -2;
  makers.resize(ops.size());
  std::vector<int32_t> needs(ops.size(), nobody); // by op the member that needs it
  for (size_t o = ops.size(); o-- > 0;) {
    bool isMaker =
        ops[o].phase == Phase::Weight && !ops[o].call && !isLate[o] && needs[o] >= 0;
    if (isMaker)
      makers[static_cast<size_t>(needs[o])].insert(
          makers[static_cast<size_t>(needs[o])].begin(), static_cast<int32_t>(o));
    int32_t reader = isMember[o] ? static_cast<int32_t>(o) : isMaker ? needs[o] : several;
    for (int32_t read : ops[o].reads) {
      int32_t &known = needs[static_cast<size_t>(read)];
      known = known == nobody || known == reader ? reader : several;
    }
  }
}

int32_t buckets::groupOf(const Fusion &fusion, int32_t parameter) {
  if (parameter < 0)
    return -1;
  auto p = static_cast<size_t>(parameter);
  if (p < fusion.groups.size() && fusion.groups[p] >= 0)
    return fusion.groups[p];
  if (fusion.mode != Fusion::Mode::Index)
    return -1;
  auto end = std::ranges::upper_bound(fusion.index, parameter);
  // Numbers go on behind those that the file names.
  return static_cast<int32_t>(fusion.groups.size()) +
         static_cast<int32_t>(end - fusion.index.begin());
}

bool buckets::fitsLayer(const Call &call, const Call &last, int64_t bytes,
                        const Options &options) {
  return call.layer == last.layer || bytes < options.joinBytes;
}

namespace {
/// The members that may be in one bucket, on their way there.
class Cutter {
public:
  Cutter(const std::vector<Op> &ops, const Options &options, const Facts &facts,
         std::vector<Bucket> &out)
      : ops(ops), options(options), facts(facts), out(out) {}

  /// Members of one key and depth, in the order of the program.
  void cut(const std::vector<int32_t> &members) {
    const Fusion &fusion = options.fusion[static_cast<size_t>(callOf(members[0]).kind)];
    std::map<int32_t, std::vector<int32_t>> groups;
    std::vector<int32_t> rest;
    for (int32_t member : members) {
      int32_t group = groupOf(fusion, callOf(member).parameter);
      (group < 0 ? rest : groups[group]).push_back(member);
    }
    for (auto &[number, group] : groups)
      add(group);
    if (rest.empty())
      return;
    if (fusion.mode == Fusion::Mode::Auto)
      cutEvenly(rest);
    else
      cutBySize(rest, fusion.mode == Fusion::Mode::Size ? fusion.bytes : 0);
  }

private:
  const Call &callOf(int32_t op) const { return *ops[static_cast<size_t>(op)].call; }

  void add(const std::vector<int32_t> &bucket, bool isPutOff = false) {
    for (size_t first = 0; first < bucket.size(); first += mostMembers)
      out.push_back({{bucket.begin() + static_cast<std::ptrdiff_t>(first),
                      bucket.begin() + static_cast<std::ptrdiff_t>(
                                           std::min(first + mostMembers, bucket.size()))},
                     isPutOff});
  }

  /// A bucket takes members, in their order, as long as `fits(member, last, bytes)`: the
  /// next one, the one before it, bytes so far.
  template <typename Fits> void cutWhere(const std::vector<int32_t> &members, Fits fits) {
    std::vector<int32_t> bucket;
    int64_t bytes = 0;
    for (int32_t member : members) {
      if (!bucket.empty() && !fits(callOf(member), callOf(bucket.back()), bytes)) {
        add(bucket);
        bucket.clear(), bytes = 0;
      }
      bucket.push_back(member), bytes += callOf(member).bytes;
    }
    add(bucket);
  }

  /// A member that is larger than the limit is alone.
  void cutBySize(const std::vector<int32_t> &members, int64_t limit) {
    cutWhere(members, [&](const Call &call, const Call &, int64_t bytes) {
      return bytes + call.bytes <= limit;
    });
  }

  /// Gradients of few layers are whole at a time.
  void cutByLayer(const std::vector<int32_t> &members) {
    cutWhere(members, [&](const Call &call, const Call &last, int64_t bytes) {
      return fitsLayer(call, last, bytes, options);
    });
  }

  /// Few buckets, of which the last is small, or one for each layer.
  void cutEvenly(const std::vector<int32_t> &members) {
    int64_t total = 0;
    for (int32_t member : members)
      total += callOf(member).bytes;
    const int64_t limit = std::max(options.minBytes, total / options.autoBuckets);
    if (total < options.minSplit)
      return cutBySize(members, limit);
    double left = options.lastShare * double(total);
    // A last member that is too large is overtaken by those before it.
    const bool overtakes = double(callOf(members.back()).bytes) > left;
    const bool isLayered = callOf(members.front()).layer >= 0;
    std::vector<int32_t> body, last;
    for (size_t i = members.size(); i-- > 0;) {
      auto bytes = double(callOf(members[i]).bytes);
      bool mayBeLast =
          overtakes ? options.movesWeights && i + 1 < members.size() && isMade(members[i])
                    : !isLayered && last.size() + i + 1 == members.size();
      bool isLast = mayBeLast && bytes <= left;
      (isLast ? last : body).insert((isLast ? last : body).begin(), members[i]);
      // Activations of no earlier layer wait for the end.
      left -= isLast || mayBeLast ? bytes : 0;
    }
    if (isLayered)
      cutByLayer(body);
    else
      cutBySize(body, limit);
    add(last, overtakes);
  }

  /// Whether the member's source is made by products that may be put off.
  bool isMade(int32_t member) const {
    const auto &makers = facts.makers[static_cast<size_t>(member)];
    return std::ranges::all_of(ops[static_cast<size_t>(member)].reads, [&](int32_t read) {
      return std::ranges::binary_search(makers, read);
    });
  }

  const std::vector<Op> &ops;
  const Options &options;
  const Facts &facts;
  std::vector<Bucket> &out;
};
} // namespace

std::vector<Bucket> buckets::assign(const std::vector<Op> &ops, const Facts &facts,
                                    const Options &options) {
  std::map<std::tuple<int32_t, int32_t>, std::vector<int32_t>> classes;
  for (size_t o = 0; o < ops.size(); ++o)
    if (facts.isMember[o])
      classes[{facts.depth[o], ops[o].call->key}].push_back(static_cast<int32_t>(o));
  std::vector<Bucket> buckets;
  Cutter cutter(ops, options, facts, buckets);
  for (const auto &[key, members] : classes)
    cutter.cut(members);
  std::ranges::sort(buckets, {},
                    [](const Bucket &bucket) { return bucket.members.front(); });
  return buckets;
}
