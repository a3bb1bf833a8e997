//===- Timing.cpp - How long conversions take, what is fused --------------===//
#include "partita/Search/Timing.h"

#include "Conversions.h"
#include "partita/Cost/Compute.h"
#include "partita/Search/Memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace partita;
using namespace partita::search;

Picos search::picosOf(double seconds) {
  return static_cast<Picos>(std::llround(std::min(seconds * 1e12, 1e17)));
}

/// Whether it is there before a run of the program begins, and is read again in the next.
bool Timing::isLasting(const FlowValue &value) const {
  if (value.producer < 0)
    return false;
  const FlowOp &producer = graph.ops[static_cast<size_t>(value.producer)];
  return producer.kind == FlowKind::State ||
         (producer.kind == FlowKind::Source && !producer.isUniform());
}

bool Timing::isFar(int32_t value) const {
  return lasting > placement.topology().device.cache &&
         isLasting(graph.values[static_cast<size_t>(value)]);
}

Timing::Timing(const FlowGraph &graph, const Placement &placement, bool anyRecompute)
    : graph(graph), placement(placement),
      plans(std::make_unique<ConversionPlans>(placement, graph.reshard)) {
  // What is computed again elsewhere may leave a kernel of its own behind.
  findFusion(!anyRecompute && placement.topology().device.matmul.functionsApart);
  if (anyRecompute)
    findRepeatable();
  followTies();
  for (const FlowValue &value : graph.values)
    if (isLasting(value))
      lasting += value.bytes();
}

Timing::~Timing() = default;

Picos Timing::step(const Step &step, int64_t elementBytes) const {
  return picosOf(priceStep(placement, step, elementBytes).price.seconds);
}

Picos Timing::window(const Halo &halo, int64_t elementBytes) const {
  return picosOf(priceWindow(placement, halo, elementBytes).price.seconds);
}

int64_t Timing::localBytes(int32_t form, int64_t elementBytes) const {
  const Form &it = forms[form];
  return (it.halo ? elementCount(it.halo->shape()) : it.layout.localElements()) *
         elementBytes;
}

Occupied &Occupied::operator+=(const Occupied &other) {
  time += other.time;
  device += other.device;
  for (size_t l = 0; l < links.size(); ++l)
    links[l] += other.links[l];
  return *this;
}

Occupied Occupied::repeated(int64_t trips) const {
  Occupied all{search::repeated(time, trips), search::repeated(device, trips), {}};
  for (size_t l = 0; l < links.size(); ++l)
    all.links[l] = search::repeated(links[l], trips);
  return all;
}

Occupied search::occupiedBy(const StepPrice &price) {
  Occupied result{picosOf(price.price.seconds), picosOf(price.price.device), {}};
  result.device = std::min(result.device, result.time);
  for (size_t l = 0; l < result.links.size(); ++l)
    if (price.price.links[l] > 0)
      result.links[l] = result.time - result.device;
  return result;
}

Occupied Timing::occupied(int32_t from, int32_t to, int64_t elementBytes) const {
  std::vector<StepPrice> prices;
  if (from != to)
    plan(from, to, elementBytes, &prices);
  Occupied result;
  for (const StepPrice &price : prices)
    result += occupiedBy(price);
  return result;
}

Conversion Timing::plan(int32_t from, int32_t to, int64_t elementBytes,
                        std::vector<StepPrice> *prices) const {
  const Layout &source = forms[from].layout;
  const Form &target = forms[to];
  Conversion result;
  if (target.halo) {
    if (source.partial != target.halo->positions.partial ||
        (!graph.reshard.allToAll && source != target.layout))
      return result;
    Halo halo = *target.halo;
    halo.before = source;
    result.possible = true;
    StepPrice price = priceWindow(placement, halo, elementBytes);
    result.time = picosOf(price.price.seconds);
    if (prices)
      prices->push_back(price);
    result.receivedBytes = static_cast<int64_t>(price.receivedBytes);
    result.peakBytes =
        (source.localElements() + elementCount(halo.shape())) * elementBytes;
    return result;
  }
  ConversionPlans::Plan steps = plans->plan(source, target.layout);
  result.possible = steps.possible;
  for (const StepShape &it : steps.steps) {
    StepPrice price = priceShape(placement.topology(), it, elementBytes);
    result.time += picosOf(price.price.seconds);
    if (prices)
      prices->push_back(std::move(price));
  }
  result.receivedBytes = steps.receivedElements * elementBytes;
  result.peakBytes = steps.peakElements * elementBytes;
  return result;
}

const Conversion &Timing::convert(int32_t from, int32_t to, int64_t elementBytes) {
  uint64_t key =
      (static_cast<uint64_t>(from) * 0x1000000 + static_cast<uint64_t>(to)) * 16 +
      static_cast<uint64_t>(elementBytes);
  auto found = conversions.find(key);
  if (found == conversions.end())
    found = conversions
                .emplace(key, from == to ? Conversion{true, 0, 0, 0}
                                         : plan(from, to, elementBytes))
                .first;
  return found->second;
}

int64_t Timing::doneAt(int32_t op) const {
  if (graph.ops[static_cast<size_t>(op)].kind == FlowKind::Sink)
    return sinkDone[static_cast<size_t>(op)];
  return isView(op) ? runsAt(op) : convertsAt(kernelEnd[static_cast<size_t>(op)]);
}

Picos Timing::breaking(int32_t value, int32_t from, int32_t to) const {
  const FlowValue &it = graph.values[static_cast<size_t>(value)];
  if (from == to || !isInternal(value) || isView(it.producer) || isView(it.uses[0].op))
    return 0;
  // One that is computed again elsewhere has two readers, and is in no kernel; and where
  // functions are kernels of their own a value may be internal to a bound alone.
  const bool isOfBound = !repeatable.empty();
  if (isOfBound && (isForwardOp(graph, it.producer, turn) ||
                    placement.topology().device.matmul.functionsApart))
    return 0;
  const Device &device = placement.topology().device;
  auto bytes = static_cast<double>(localBytes(from, it.elementBytes) +
                                   localBytes(to, it.elementBytes));
  return picosOf(streamSeconds(device, bytes) + device.launch);
}

/// Whether operand and result have the same loops in the same order: a reshape.
static bool onlyRenames(const FlowOp &op) {
  if (op.operands.size() != 1 || op.results.size() != 1 || op.priority != 0)
    return false;
  auto loops = [](const TensorFactors &tensor) {
    std::vector<int32_t> all;
    for (const auto &dim : tensor)
      all.insert(all.end(), dim.begin(), dim.end());
    return all;
  };
  // Elementwise ops rename nothing: each dim is one loop on both sides.
  return op.rule.operands[0] != op.rule.results[0] &&
         loops(op.rule.operands[0]) == loops(op.rule.results[0]);
}

/// Whether the op is a product, or joins the call of the one that makes its operand, if
/// products compute no functions: the arithmetic behind it, and views on the way.
static bool isInCall(const Timing &timing, int32_t number,
                     const std::vector<bool> &calls) {
  const FlowOp &op = timing.graph.ops[static_cast<size_t>(number)];
  if (op.kind != FlowKind::Compute || isMatmul(op))
    return op.kind == FlowKind::Compute;
  if (op.isFunction || (op.priority != 0 && !timing.isView(number)))
    return false;
  return std::ranges::any_of(op.operands, [&](int32_t operand) {
    int32_t producer = timing.graph.values[static_cast<size_t>(operand)].producer;
    return timing.isInternal(operand) && producer >= 0 &&
           calls[static_cast<size_t>(producer)];
  });
}

void Timing::findFusion(bool functionsApart) {
  internal.assign(graph.values.size(), false);
  views.assign(graph.ops.size(), false);
  joined.assign(graph.ops.size(), false);
  noBytes.assign(graph.values.size(), false);
  for (size_t o = 0; o < graph.ops.size(); ++o)
    kernelEnd.push_back(static_cast<int32_t>(o));
  for (size_t o = 0; o < graph.ops.size(); ++o)
    views[o] = graph.ops[o].kind == FlowKind::Compute && onlyRenames(graph.ops[o]);
  inCall.assign(graph.ops.size(), false);
  // In the order of the ops that make them: what an op joins is known before its users.
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    inCall[o] = functionsApart && isInCall(*this, static_cast<int32_t>(o), inCall);
    for (int32_t result : graph.ops[o].results)
      joinUser(static_cast<size_t>(result));
  }
  findAttention();
  for (size_t o = graph.ops.size(); o-- > 0;)
    kernelEnd[o] = kernelEnd[static_cast<size_t>(kernelEnd[o])];
}

Timing::Joining Timing::joining(int32_t from, int32_t to) const {
  const FlowOp &producer = graph.ops[static_cast<size_t>(from)],
               &user = graph.ops[static_cast<size_t>(to)];
  if (producer.kind != FlowKind::Compute || user.kind != FlowKind::Compute)
    return {};
  bool intoPointwise = user.priority == 0;
  bool intoRows = producer.priority == 0 && !isMatmul(user) &&
                  user.facts.kind != kernels::OpKind::Attention;
  bool isApart = inCall[static_cast<size_t>(from)] && !isView(to) &&
                 (intoPointwise ? user.isFunction : !isMatmul(user));
  bool joins = !isApart && (intoPointwise || intoRows);
  return {!isApart && (isView(from) || isView(to) || joins), !isView(from) && joins,
          !isView(from) && !isView(to) && joins};
}

void Timing::joinUser(size_t v) {
  const FlowValue &value = graph.values[v];
  if (value.uses.size() != 1)
    return;
  auto from = static_cast<size_t>(value.producer);
  auto to = static_cast<size_t>(value.uses[0].op);
  const FlowOp &producer = graph.ops[from];
  if (producer.kind != FlowKind::Compute || graph.ops[to].kind != FlowKind::Compute)
    return;
  const Joining how = joining(value.producer, value.uses[0].op);
  internal[v] = how.isInternal;
  joined[to] = joined[to] || how.joinsKernel;
  if (how.isOneKernel)
    kernelEnd[from] = static_cast<int32_t>(to);
  noBytes[v] =
      how.isOneKernel || views[to] || (views[from] && isHeld(producer.operands[0]));
}

/// Without the users that compute it again a value may have one user, and share a kernel
/// with it; so may what is computed again, with its reader. Operands are alive at least
/// until the op itself is done.
void Timing::findRepeatable() {
  std::iota(kernelEnd.begin(), kernelEnd.end(), 0);
  turn = turnOf(graph);
  repeatable.assign(graph.values.size(), false);
  for (int32_t op = 0; op < turn; ++op) {
    if (!isForwardOp(graph, op, turn))
      continue;
    for (int32_t value : graph.ops[static_cast<size_t>(op)].results) {
      const auto &uses = graph.values[static_cast<size_t>(value)].uses;
      if (std::ranges::none_of(uses, [&](const FlowUse &use) {
            return isReadByBackward(graph, use, turn);
          }))
        continue;
      repeatable[static_cast<size_t>(value)] = true;
      for (const FlowUse &use : uses)
        joined[static_cast<size_t>(use.op)] = true;
    }
  }
}

void Timing::followTies() {
  elsewhere.assign(graph.values.size(), false);
  sinkDone.assign(graph.ops.size(), moments());
  for (size_t op = 0; op < graph.ops.size(); ++op)
    firstTrip.push_back(static_cast<int32_t>(op));
  for (const FlowTie &tie : graph.ties) {
    auto first = tie.members.front().op, last = tie.members.back().op;
    bool goesIn = first < tie.begin, comesOut = last >= tie.end;
    bool isCarried = goesIn && comesOut;
    for (const FlowTie::Member &member : tie.members) {
      auto op = static_cast<size_t>(member.op);
      bool isInside = member.op >= tie.begin && member.op < tie.end;
      if (graph.ops[op].kind != FlowKind::Sink) {
        if (isInside && !isCarried)
          elsewhere[static_cast<size_t>(graph.ops[op].results[0])] = true;
        if (!isInside && member.hasRows)
          firstTrip[op] = tie.begin;
        continue;
      }
      // An argument that is carried takes over what goes in; the result, what trips give.
      if (isInside)
        sinkDone[op] = runsAt(last);
      else
        sinkDone[op] = runsAt(isCarried ? tie.members[1].op : tie.end);
    }
  }
}

/// Whether the value is alive whatever a view of it does: others read it, or it is there
/// all the time.
bool Timing::isHeld(int32_t value) const {
  const FlowValue &it = graph.values[static_cast<size_t>(value)];
  return it.uses.size() > 1 ||
         graph.ops[static_cast<size_t>(it.producer)].kind == FlowKind::Source;
}
