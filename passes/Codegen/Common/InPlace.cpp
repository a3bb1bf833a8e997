//===- InPlace.cpp - Results that are made where their operands lie -------===//
//
// A state, a sum over micro-batches or a carried value is read and then written. Where
// what is written is made by a task that reads the old elements no later than it writes
// the new ones, and no task reads them behind it, it is made in their place.
//
//===----------------------------------------------------------------------===//
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Reads whose elements a kernel needs only at the point, or in the row, at which it
/// stores: the same elements, and all of them before.
static bool mayShareKernel(KernelSpec &spec, const Task &task, int from, int to) {
  size_t reads = spec.operands.size();
  int output = -1;
  for (size_t o = 0; o < spec.outputs.size(); ++o)
    if (task.operands[reads + o].storage == from)
      output = static_cast<int>(o);
  if (output < 0 || spec.outputs.size() != 1 || spec.outputs[0].perRow)
    return false;
  const KernelOperand &written = spec.outputs[0];
  for (size_t i = 0; i < reads; ++i) {
    if (task.operands[i].storage != to)
      continue;
    KernelOperand &read = spec.operands[i];
    bool byPlace = llvm::any_of(spec.nodes, [&](const KernelNode &node) {
      return llvm::is_contained(node.reads, static_cast<int>(i));
    });
    if (byPlace || read.strides != written.strides || read.offset != written.offset ||
        read.type != written.type)
      return false;
    read.output = 0;
  }
  return true;
}

/// Whether the task, which fills `from` and reads `to`, may have one place for both; if
/// so it is made such a one.
bool TaskFormer::mayShare(Task &task, int from, int to) {
  if (auto *kernel = std::get_if<task::Kernel>(&task.params)) {
    KernelSpec spec = program.kernels[kernel->kernel];
    if (!mayShareKernel(spec, task, from, to))
      return false;
    kernel->kernel = static_cast<uint32_t>(addKernel(std::move(spec)));
    return true;
  }
  bool isPair = task.operands.size() == 2 && task.operands[0].storage == to &&
                task.operands[1].storage == from && task.operands[0].offset == 0 &&
                task.operands[1].offset == 0 && task.handle == 0;
  if (auto *copy = std::get_if<task::Copy>(&task.params); copy && isPair) {
    copy->count = 0; // what is to be copied is there
    return true;
  }
  return isPair && task.kind() == TaskKind::AllReduce;
}

bool TaskFormer::makeIn(int from, int to, size_t first) {
  const std::vector<Storage> &storages = program.storages;
  const Storage &a = storages[static_cast<size_t>(from)];
  const Storage &b = storages[static_cast<size_t>(to)];
  if (a.type != b.type || a.elements != b.elements)
    return false;
  auto baseOf = [&](int storage) {
    while (storage >= 0 && storages[static_cast<size_t>(storage)].isWindow() &&
           storage != to)
      storage = storages[static_cast<size_t>(storage)].window.of;
    return storage;
  };
  auto touches = [&](const Task &task, int which) {
    return llvm::any_of(task.operands,
                        [&](const Place &p) { return baseOf(p.storage) == which; });
  };
  size_t filled = first, end = program.tasks.size(), range = first;
  while (filled < end && !touches(program.tasks[filled], from))
    ++filled;
  for (size_t t = first; t < end; ++t) {
    const Task &task = program.tasks[t];
    if (auto *repeat = std::get_if<task::Repeat>(&task.params))
      range = std::max(range, t + 1 + repeat->tasks);
    if (auto *skip = std::get_if<task::Skip>(&task.params))
      range = std::max(range, t + 1 + skip->tasks);
    // Windows of what is to be renamed, readings behind, parts that run otherwise than
    // once.
    for (const Place &place : task.operands)
      if (baseOf(place.storage) == from && place.storage != from)
        return false;
    if ((t > filled && touches(task, to)) || (t == filled && filled < range))
      return false;
  }
  if (filled == end)
    return false;
  if (touches(program.tasks[filled], to) && !mayShare(program.tasks[filled], from, to))
    return false;
  for (size_t t = first; t < end; ++t)
    for (Place &place : program.tasks[t].operands)
      if (place.storage == from)
        place.storage = to;
  for (auto &entry : tensors)
    if (entry.second.storage == from)
      entry.second.storage = to;
  return true;
}
