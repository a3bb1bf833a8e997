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
  if (output < 0 || spec.attention ||
      llvm::any_of(spec.outputs, [](const KernelOperand &o) { return o.perRow; }))
    return false;
  const KernelOperand &written = spec.outputs[static_cast<size_t>(output)];
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
    read.output = output;
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

bool TaskFormer::runsAlways(size_t task, size_t first) const {
  size_t range = first;
  for (size_t t : llvm::make_range(llvm::lower_bound(state.ranges, first),
                                   llvm::lower_bound(state.ranges, task + 1))) {
    if (auto *repeat = std::get_if<task::Repeat>(&program.tasks[t].params))
      range = std::max(range, t + 1 + repeat->tasks);
    if (auto *skip = std::get_if<task::Skip>(&program.tasks[t].params))
      range = std::max(range, t + 1 + skip->tasks);
  }
  return task >= std::min(range, program.tasks.size());
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
  std::vector<size_t> tasks = tasksAt(from, to, first);
  auto filling =
      llvm::find_if(tasks, [&](size_t t) { return touches(program.tasks[t], from); });
  if (filling == tasks.end())
    return false;
  const size_t filled = *filling;
  if (!runsAlways(filled, first))
    return false;
  for (size_t t : tasks) {
    const Task &task = program.tasks[t];
    // Windows of what is to be renamed, readings behind.
    for (const Place &place : task.operands)
      if (baseOf(place.storage) == from && place.storage != from)
        return false;
    if (t > filled && touches(task, to))
      return false;
  }
  if (touches(program.tasks[filled], to) && !mayShare(program.tasks[filled], from, to))
    return false;
  rename(from, to, tasks);
  return true;
}

bool TaskFormer::makeInside(Value value, Operation *user, const Tensor &target,
                            int64_t begin) {
  Tensor source = tensorOf(value);
  if (source.storage == target.storage || !isReadOnlyBy(value, user))
    return false;
  const Storage &from = program.storages[static_cast<size_t>(source.storage)];
  const Storage &to = program.storages[static_cast<size_t>(target.storage)];
  uint64_t offset = static_cast<uint64_t>(begin) * byteWidth(to.type);
  std::vector<size_t> tasks = tasksAt(source.storage, -1, 0);
  if (!from.isTemporary() || from.space != to.space || from.type != to.type ||
      source.view.offset != 0 || target.view.offset != 0 ||
      from.elements != source.view.elements() || begin < 0 ||
      begin + from.elements > to.elements || offset % PARTITA_BUFFER_ALIGNMENT != 0 ||
      tasks.empty() || tasks.front() < firstTask || !runsAlways(tasks.front(), firstTask))
    return false;
  for (size_t t : tasks)
    for (Place &place : program.tasks[t].operands) {
      if (place.storage != source.storage)
        continue;
      place.storage = target.storage;
      place.offset += offset;
    }
  std::vector<size_t> &list = state.touching[target.storage];
  list.insert(list.end(), tasks.begin(), tasks.end());
  llvm::sort(list);
  state.touching[source.storage].clear();
  return true;
}

void TaskFormer::indexTasks() {
  for (; state.indexed < program.tasks.size(); ++state.indexed) {
    const Task &task = program.tasks[state.indexed];
    if (task.kind() == TaskKind::Repeat || task.kind() == TaskKind::Skip)
      state.ranges.push_back(state.indexed);
    for (const Place &place : task.operands)
      for (int storage = place.storage; storage >= 0;
           storage = program.storages[static_cast<size_t>(storage)].window.of) {
        std::vector<size_t> &list = state.touching[storage];
        if (list.empty() || list.back() != state.indexed)
          list.push_back(state.indexed);
      }
  }
}

std::vector<size_t> TaskFormer::tasksAt(int storage, int other, size_t first) {
  indexTasks();
  std::vector<size_t> tasks;
  for (int which : {storage, other})
    if (auto found = state.touching.find(which); found != state.touching.end())
      tasks.insert(tasks.end(), llvm::lower_bound(found->second, first),
                   found->second.end());
  llvm::sort(tasks);
  tasks.erase(llvm::unique(tasks), tasks.end());
  return tasks;
}

void TaskFormer::rename(int from, int to, const std::vector<size_t> &tasks) {
  std::vector<size_t> &list = state.touching[to];
  for (size_t t : tasks)
    for (Place &place : program.tasks[t].operands)
      if (place.storage == from) {
        place.storage = to;
        list.push_back(t);
      }
  // What the new one is a window of is touched by them, too.
  llvm::sort(list);
  list.erase(llvm::unique(list), list.end());
  for (int base = program.storages[static_cast<size_t>(to)].window.of; base >= 0;
       base = program.storages[static_cast<size_t>(base)].window.of) {
    std::vector<size_t> &outer = state.touching[base];
    outer.insert(outer.end(), tasks.begin(), tasks.end());
    llvm::sort(outer);
    outer.erase(llvm::unique(outer), outer.end());
  }
  movedTo[from] = to;
}
