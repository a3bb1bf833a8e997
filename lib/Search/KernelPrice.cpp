//===- KernelPrice.cpp - What a plan takes by its kernels -----------------===//
#include "partita/Search/KernelPrice.h"

#include "partita/Cost/Compute.h"
#include "partita/Kernels/Group.h"
#include "partita/Search/LocalProgram.h"

#include <algorithm>
#include <set>

using namespace partita;
using namespace partita::search;
using kernels::LocalOp;
using kernels::LocalValue;
using kernels::OpKind;

kernels::Target search::kernelTarget(const Device &device) {
  const double rate = device.pointwiseRate();
  const double memory = device.memoryBandwidth * device.memoryEfficiency;
  kernels::Target target;
  target.launchSteps = device.launch * rate;
  target.farByte = rate / memory;
  target.farTensor = static_cast<double>(device.cache);
  if (device.matmul.functionsApart)
    target.posts = 0;
  return target;
}

namespace {
/// Kernels and calls of one function of a rank's program.
class FunctionPrice {
public:
  FunctionPrice(const Timing &timing, const Decided &plan, const LocalFunction &function,
                const kernels::Target &target)
      : timing(timing), plan(plan), function(function), program(function.program),
        grouping(kernels::group(program, target)),
        device(timing.placement.topology().device) {
    for (size_t g = 0; g < grouping.groups.size(); ++g)
      addGroup(static_cast<int32_t>(g));
    for (size_t o = 0; o < program.ops.size(); ++o)
      addOp(static_cast<int32_t>(o));
  }

  double seconds = 0; ///< of one trip
  int64_t launches = 0;

private:
  void addGroup(int32_t number);
  void addOp(int32_t number);
  double bytesOf(int32_t value) const {
    const LocalValue &it = program.value(value);
    return static_cast<double>(elementCount(it.shape) * byteWidth(it.type));
  }
  bool isFar(int32_t value) const {
    const int32_t flow = function.flowValues[static_cast<size_t>(value)];
    return flow >= 0 && timing.isFar(flow);
  }
  void addKernel(double bytes, double operations, double far) {
    seconds += groupSeconds(device, bytes, operations, far);
    ++launches;
  }

  const Timing &timing;
  const Decided &plan;
  const LocalFunction &function;
  const kernels::LocalProgram &program;
  kernels::Grouping grouping;
  const Device &device;
};
} // namespace

void FunctionPrice::addGroup(int32_t number) {
  const kernels::Group &group = grouping.groups[static_cast<size_t>(number)];
  const auto points = static_cast<double>(elementCount(group.domain));
  if (points == 0)
    return;
  double operations = 0, bytes = 0, far = 0;
  std::set<int32_t> loaded;
  for (size_t o = 0; o < program.ops.size(); ++o) {
    if (!grouping.isIn(static_cast<int32_t>(o), number))
      continue;
    const LocalOp &op = program.ops[o];
    operations += op.facts.steps * points;
    for (int32_t value : op.operands) {
      const LocalValue &it = program.value(value);
      if (it.isUniform() || (it.producer >= 0 && grouping.isIn(it.producer, number)) ||
          !loaded.insert(value).second)
        continue;
      double moved = bytesOf(value);
      if (op.facts.kind == OpKind::Indexed) // a table is read where it is looked up
        moved = std::min(moved, points * static_cast<double>(byteWidth(it.type)));
      bytes += moved;
      far += isFar(value) ? moved : 0;
    }
  }
  for (int32_t value : program.op(group.root).results)
    bytes += program.value(value).uses.empty() ? 0 : bytesOf(value);
  for (int32_t value : group.kept)
    bytes += bytesOf(value);
  // A device that says no rate has that of the arithmetic, which traffic hides.
  addKernel(bytes, device.pointwise > 0 ? operations : 0, far);
}

void FunctionPrice::addOp(int32_t number) {
  const LocalOp &op = program.op(number);
  const auto at = static_cast<size_t>(number);
  const int32_t flow = function.flowOps[at];
  if (!function.isOwn[at])
    return;
  const Strategy &strategy = plan.strategies[static_cast<size_t>(flow)];
  seconds += static_cast<double>(timing.masks(flow, strategy)) * 1e-12;
  if (op.facts.isFusable() || op.facts.kind == OpKind::View)
    return;
  if (op.facts.kind == OpKind::Engine || op.facts.kind == OpKind::Attention) {
    seconds += static_cast<double>(timing.call(flow, strategy)) * 1e-12;
    for (const kernels::PostStep &post : grouping.chains[at])
      if (post.operand >= 0)
        seconds += streamSeconds(device, bytesOf(post.operand),
                                 isFar(post.operand) ? bytesOf(post.operand) : 0);
    ++launches;
    return;
  }
  double written = 0, read = 0, far = 0;
  for (int32_t value : op.results)
    written += bytesOf(value);
  for (int32_t value : op.operands) {
    const double moved = std::min(bytesOf(value), written);
    read += moved;
    far += isFar(value) ? moved : 0;
  }
  addKernel(read + written, 0, far);
}

PlanCost search::priceKernels(Timing &timing, const Decided &plan,
                              const kernels::Target &target) {
  PlanCost cost = priceConversions(timing, plan);
  for (const LocalFunction &function : localProgram(timing.graph, plan)) {
    const FunctionPrice price(timing, plan, function, target);
    cost.compute += repeated(picosOf(price.seconds), function.trips);
    cost.launches += repeated(price.launches, function.trips);
  }
  cost.host = repeated(picosOf(timing.placement.topology().stack.launch), cost.launches);
  return cost;
}
