//===- StateWrites.cpp - What a request writes into states ----------------===//
#include "dialects/Interfaces/OpInterfaces.h"
#include "partita/Base/Bundle/TaskWork.h"
#include "partita/Topology/Presets.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Memory.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Elements that a task other than a kernel writes there; nothing: all of the place.
static std::optional<int64_t> elementsOf(const task::Params &params) {
  if (auto *p = std::get_if<task::MatMul>(&params)) {
    int64_t count = p->m * p->n;
    for (const task::BatchDim &dim : p->batch)
      count *= dim.c == 0 ? 1 : dim.size;
    return count;
  }
  if (auto *p = std::get_if<task::BlockMatMul>(&params))
    return p->m * p->n;
  if (auto *p = std::get_if<task::Copy>(&params))
    return p->count; // 0 of one in place
  if (auto *p = std::get_if<task::Update>(&params))
    return p->outer * p->count * p->inner;
  if (auto *p = std::get_if<task::Rows>(&params))
    return p->count * p->inner;
  return std::nullopt;
}

/// Elements that a kernel stores by an output: one for each point, or row; of rows that
/// it changes in place as many as there are updates, the last operand.
static int64_t storesOf(const KernelSpec &spec, const KernelOperand &output) {
  if (spec.changesInPlace(output.node)) {
    Operation *op = spec.nodes[static_cast<size_t>(output.node)].op;
    return elementCount(shapeOf(op->getOperands().back()));
  }
  int64_t count = 1;
  for (size_t d = 0; d < spec.domain.size(); ++d)
    count *= (output.perRow && d >= spec.numOuter()) ||
                     (spec.attention && output.strides[d] == 0)
                 ? 1
                 : spec.domain[d];
  return count;
}

static bool isInState(const Program &program, const Place &place) {
  return program.storages[static_cast<size_t>(place.storage)].space == Space::State;
}

/// Bytes that a task stores in places that `counts` accepts.
static int64_t writtenBy(const Program &program, const Task &task,
                         llvm::function_ref<bool(const Place &)> counts) {
  auto widthAt = [&](const Place &place) {
    return static_cast<int64_t>(
        byteWidth(program.storages[static_cast<size_t>(place.storage)].type));
  };
  if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
    const KernelSpec &spec = program.kernels[kernel->kernel];
    int64_t bytes = 0;
    for (size_t o = 0; o < spec.outputs.size(); ++o)
      if (const Place &to = task.operands[spec.operands.size() + o];
          to.storage >= 0 && counts(to))
        bytes += storesOf(spec, spec.outputs[o]) * widthAt(to);
    return bytes;
  }
  if (size_t items = task::numItems(task.params); items > 0) {
    int64_t bytes = 0;
    for (size_t i = 0; i < items; ++i)
      if (const Place &to = task.operands[2 * i + 1]; to.storage >= 0 && counts(to))
        bytes += static_cast<int64_t>(to.bytes);
    return bytes;
  }
  if (task.kind() == TaskKind::Wait || task.kind() == TaskKind::Repeat ||
      task.kind() == TaskKind::Skip || resultOperand(task.kind()) >= task.operands.size())
    return 0;
  const Place &to = task.operands[resultOperand(task.kind())];
  if (to.storage < 0 || !counts(to))
    return 0;
  auto elements = elementsOf(task.params);
  return elements ? *elements * widthAt(to) : static_cast<int64_t>(to.bytes);
}

/// Calls `visit` with every task and how often a request runs it.
static void forEachRun(const Program &program,
                       llvm::function_ref<void(const Task &, int64_t)> visit) {
  int64_t times = 1;
  std::vector<std::pair<size_t, int64_t>> open; // loops: end, runs of what is in them
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    for (const ProgramSegment &segment : program.segments)
      if (segment.firstTask == t)
        times = segment.once ? 1 : program.identity.microBatches;
    while (!open.empty() && open.back().first <= t)
      open.pop_back();
    int64_t runs = open.empty() ? times : open.back().second;
    visit(program.tasks[t], runs);
    if (auto *repeat = std::get_if<task::Repeat>(&program.tasks[t].params))
      open.emplace_back(t + 1 + repeat->tasks, runs * repeat->trips);
  }
}

int64_t codegen::stateBytesWritten(const Program &program) {
  int64_t bytes = 0;
  forEachRun(program, [&](const Task &task, int64_t runs) {
    bytes += runs * writtenBy(program, task, [&](const Place &place) {
               return isInState(program, place);
             });
  });
  return bytes;
}

kernels::Launches codegen::launchesOf(const Program &program) {
  kernels::Launches launches;
  forEachRun(program, [&](const Task &task, int64_t runs) {
    kernels::Launches one;
    if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
      const KernelSpec &spec = program.kernels[kernel->kernel];
      one.kernels = 1;
      one.attentions = spec.attention.has_value();
      one.copies = spec.nodes.size() == 1 && spec.nodes[0].kind == KernelNode::Load;
    } else if (isEngineCall(task.kind())) {
      one.calls = 1;
    } else {
      return;
    }
    one.bytesWritten = writtenBy(program, task, [](const Place &) { return true; });
    launches.add(one, runs);
  });
  return launches;
}

int64_t codegen::stateBytesMoved(const Program &program) {
  int64_t bytes = 0;
  for (const Storage &storage : program.storages) {
    if (!storage.roll || storage.roll->advance == 0)
      continue;
    const Roll &roll = *storage.roll;
    int64_t window = roll.outer * roll.window * roll.row * storage.slots *
                     static_cast<int64_t>(byteWidth(storage.type));
    int64_t requests = (roll.capacity - roll.window) / roll.advance;
    bytes += (window + requests - 1) / requests;
  }
  return bytes;
}

//===-- Slow nodes --------------------------------------------------------===//

namespace {
/// Work of tasks in a request.
struct Share {
  double flops = 0, bytes = 0, seconds = 0;

  void add(const Share &more) {
    flops += more.flops, bytes += more.bytes, seconds += more.seconds;
  }
};

/// The work of a node's slow tasks in a request.
struct SlowWork {
  Share work;
  std::string why;
};
} // namespace

/// Work of runs of a task, and their seconds on a core of the preset.
static Share shareOf(const Program &program, const Task &task, int64_t runs) {
  static const Device core = *devicePreset("cpu-core");
  const task::Work work = task::workOf(task.params, program.mesh);
  double steps = 0;
  if (auto *kernel = std::get_if<task::Kernel>(&task.params))
    steps = stepsOf(program.kernels[kernel->kernel]) / core.pointwiseRate();
  else
    steps = work.flops / core.peakOf(DType::F32);
  const auto times = static_cast<double>(runs);
  return {times * work.flops, times * work.bytes,
          times * std::max(steps, work.bytes / core.memoryBandwidth)};
}

/// "9% of the operations, 4% of the bytes, 7% of the predicted time"; empty: too little
/// of all.
static std::string shareText(const Share &part, const Share &all) {
  constexpr double leastShare = 0.02, leastWork = 1e6, leastSeconds = 10e-6;
  auto isMuch = [](double some, double of, double least) {
    return some >= least && some >= leastShare * of;
  };
  if (!isMuch(part.flops, all.flops, leastWork) &&
      !isMuch(part.bytes, all.bytes, leastWork) &&
      !isMuch(part.seconds, all.seconds, leastSeconds))
    return {};
  auto percent = [](double some, double of) {
    return std::to_string(of > 0 ? std::lround(100 * some / of) : 0) + "%";
  };
  return percent(part.flops, all.flops) + " of the operations, " +
         percent(part.bytes, all.bytes) + " of the bytes, " +
         percent(part.seconds, all.seconds) + " of the predicted time";
}

std::vector<std::pair<std::string, std::string>>
codegen::slowNodes(const Program &program, const std::vector<bool> &isScalar) {
  std::vector<Share> works(program.tasks.size());
  Share all;
  forEachRun(program, [&](const Task &task, int64_t runs) {
    Share &work = works[static_cast<size_t>(&task - program.tasks.data())];
    work = shareOf(program, task, runs);
    all.add(work);
  });
  // Entries by node and reason, in the order of the program.
  std::vector<std::pair<std::string, SlowWork>> found;
  auto add = [&](const std::string &node, const std::string &why, const Share &work) {
    auto known = llvm::find_if(found, [&](const auto &entry) {
      return entry.first == node && entry.second.why == why;
    });
    if (known == found.end())
      known = found.insert(found.end(), {node, {{}, why}});
    known->second.work.add(work);
  };
  for (auto [t, task] : llvm::enumerate(program.tasks)) {
    if (auto *repeat = std::get_if<task::Repeat>(&task.params)) {
      Share inside;
      for (const Share &work : ArrayRef(works).slice(t + 1, repeat->tasks))
        inside.add(work);
      if (repeat->trips > 1)
        add(task.source, std::to_string(repeat->trips) + " trips one after the other",
            inside);
    } else if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
      if (kernel->kernel < isScalar.size() && isScalar[kernel->kernel])
        add(task.source, "a kernel with a loop that has no vector code", works[t]);
    } else if (task.isSlow) {
      add(task.source, "plain loops, for which the engine has nothing faster", works[t]);
    }
  }
  std::vector<std::pair<std::string, std::string>> slow;
  for (const auto &[node, entry] : found)
    if (std::string shares = shareText(entry.work, all); !shares.empty())
      slow.emplace_back(node, entry.why + ": " + shares);
  return slow;
}
