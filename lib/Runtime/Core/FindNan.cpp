//===- FindNan.cpp - A rank that looks for what is not finite -------------===//
#include "ExecutorOp.h"
#include "NanFinder.h"

#include <cmath>

using namespace partita;
using namespace partita::runtime;

Expected<void> Executor::prepareFinder() {
  if (!options.findNan)
    return {};
  auto made = NanFinder::create(program->table(), transport.rank(), options.findNan);
  if (!made)
    return tl::unexpected(made.error());
  finder = std::move(*made);
  return {};
}

/// Runs a task between two looks at its operands.
bool Executor::stepAndLook(Op &op, size_t index) noexcept {
  const TaskView task = program->table().task(index);
  std::vector<const std::byte *> addresses(task.operands.size(), nullptr);
  for (size_t k = 0; k < op.addresses.size(); ++k)
    if (size_t operand = op.operandOf(k, task); operand < addresses.size())
      addresses[operand] = static_cast<const std::byte *>(op.addresses[k]);
  finder->before(index, addresses);
  if (!step(op))
    return false;
  finder->after(index, addresses);
  return true;
}

void Executor::lookAtTransfer(const Moving &moving) {
  const TransferView &transfer = program->table().transfers()[moving.transfer];
  if (!finder || !transfer.sends || !moving.places[0])
    return;
  const Layout &layout = program->table().layout(transfer.layout);
  finder->sends(transfer.type, static_cast<const std::byte *>(moving.places[0]),
                static_cast<uint64_t>(elementCount(layout.localShape())));
}

/// "input 'x'", for an address at which an input, a weight or a state lies.
std::string Executor::tensorNameAt(const std::byte *place) const {
  const TaskTable &table = program->table();
  // The code generator names constants by numbers (TaskFormer::constantName).
  static constexpr std::string_view constantPrefix = "partita.constant.";
  static constexpr std::string_view roles[] = {"input", "output", "weight", "state"};
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &tensor = table.tensor(i);
    const BufferView &buffer = table.buffers()[tensor.buffer];
    const std::byte *begin = address[tensor.buffer];
    if (tensor.role != Role::Output && begin && place >= begin &&
        place < begin + (buffer.slots - 1) * buffer.slotStride + buffer.bytes)
      return tensor.role == Role::Weight && tensor.name.starts_with(constantPrefix)
                 ? "a constant of the model"
                 : std::string(roles[static_cast<size_t>(tensor.role)]) + " '" +
                       std::string(tensor.name) + "'";
  }
  return {};
}

/// Elements of a slot that are the tensor's, and no padding.
static bool isFiniteIn(const SliceCopy &slice, DType type, const std::byte *local) {
  bool isFinite = true;
  slice.forEachRun([&](uint64_t, uint64_t at, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / byteWidth(type); ++i)
      isFinite &=
          std::isfinite(elementAt(type, local + at, static_cast<int64_t>(i))) != 0;
  });
  return isFinite;
}

void Executor::endFinding() {
  const TaskTable &table = program->table();
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &tensor = table.tensor(i);
    // Outputs tell of a state that rolls.
    if ((tensor.role != Role::Output && tensor.role != Role::State) || tensor.roll ||
        !isFloat(tensor.type) || localBytes(i) == 0)
      continue;
    for (uint32_t s = 0; s < table.buffers()[tensor.buffer].slots; ++s)
      if (const std::byte *local = placeOf(i, s);
          !isFiniteIn(slices[i], tensor.type, local))
        finder->ends(local, localBytes(i));
  }
  foundNan =
      finder->endRequest([&](const std::byte *place) { return tensorNameAt(place); });
}
