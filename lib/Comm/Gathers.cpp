//===- Gathers.cpp - Sharded weights come a layer ahead -------------------===//
#include "Gathers.h"

#include "Assign.h"

using namespace partita;
using namespace partita::buckets;

namespace {
/// The call that is being filled while the program is read.
class Filler {
public:
  Filler(const std::vector<Op> &ops, const Options &options, Gathers &out)
      : ops(ops), options(options), out(out) {}

  void add(int32_t op) {
    if (out.calls.empty() || !mayFollow(op)) {
      out.calls.emplace_back();
      bytes = 0;
    }
    out.calls.back().push_back(op);
    out.callOf[static_cast<size_t>(op)] = static_cast<int32_t>(out.calls.size()) - 1;
    bytes += callOf(op).bytes;
  }

private:
  const Call &callOf(int32_t op) const { return *ops[static_cast<size_t>(op)].call; }

  /// Tells if the op is a member of the call of those before it.
  bool mayFollow(int32_t op) const {
    const int32_t last = out.calls.back().back();
    const Call &call = callOf(op), &before = callOf(last);
    if (call.key != before.key || out.calls.back().size() == mostMembers ||
        ops[static_cast<size_t>(op)].phase != ops[static_cast<size_t>(last)].phase)
      return false;
    const Fusion &fusion = options.fusion[static_cast<size_t>(call.kind)];
    const int32_t group = groupOf(fusion, call.parameter);
    if (const int32_t other = groupOf(fusion, before.parameter); group >= 0 || other >= 0)
      return group == other;
    if (fusion.mode == Fusion::Mode::Size)
      return bytes + call.bytes <= fusion.bytes;
    return fitsLayer(call, before, bytes, options);
  }

  const std::vector<Op> &ops;
  const Options &options;
  Gathers &out;
  int64_t bytes = 0; ///< of the call
};
} // namespace

Gathers::Gathers(const std::vector<Op> &ops, const Options &options)
    : callOf(ops.size(), -1) {
  Filler filler(ops, options, *this);
  for (size_t o = 0; o < ops.size(); ++o)
    if (const std::optional<Call> &call = ops[o].call;
        call && call->gathersWeight() &&
        options.fusion[static_cast<size_t>(call->kind)].mode != Fusion::Mode::Alone)
      filler.add(static_cast<int32_t>(o));
}
