//===- Append.cpp - Rows that a segment appends to states -----------------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Rows from the base on of a storage that rolls, as a tensor of this shape but for their
/// number.
static View rowsIn(const Roll &roll, Shape shape, int64_t begin, int64_t end) {
  View all;
  all.dims.resize(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t size = d == roll.dim ? roll.capacity : shape[d];
    stride = d == roll.dim ? roll.row : stride;
    if (size != 1)
      all.dims[d] = {{size, stride}};
    stride *= size;
  }
  Shape starts(shape.size(), 0);
  shape[roll.dim] = end - begin;
  starts[roll.dim] = begin;
  return *all.sliced(shape, starts, Shape(shape.size(), 1));
}

Tensor TaskFormer::tensorIn(BufferSlot &buffer, DType type, const Shape &shape) {
  int storage = storageOf(program, buffer, type, elementCount(shape));
  if (const auto &roll = buffer.kind.roll)
    return {storage, rowsIn(*roll, shape, 0, roll->window)};
  return {storage, View::dense(shape)};
}

Tensor TaskFormer::resultIn(Value value, BufferSlot &buffer) {
  Shape shape = shapeOf(value);
  Tensor tensor = tensorIn(buffer, dtypeOf(value), shape);
  if (const auto &roll = buffer.kind.roll)
    tensor.view = rowsIn(*roll, shape, roll->advance, roll->advance + roll->window);
  return tensor;
}

void TaskFormer::placeRolling(const Rolling &rolling) {
  const RolledValues &values = rolling.values;
  const Roll &roll = *rolling.buffer->kind.roll;
  llvm::DenseMap<Value, Tensor> places;
  int64_t at = values.window;
  for (Value value : values.appended) {
    int64_t end = at + values.rowsOf(value);
    places[value] = {rolling.buffer->storage, rowsIn(roll, shapeOf(value), at, end)};
    appendedAt.try_emplace(value, places[value]);
    at = end;
  }
  for (const auto &[value, rows] : values.rows) {
    auto concat = value.getDefiningOp<graph::ConcatOp>();
    if (!concat)
      continue;
    setTensor(value, {rolling.buffer->storage,
                      rowsIn(roll, shapeOf(value), rows.first, rows.second)});
    Appended &list = appends[concat];
    for (Value operand : concat->getOperands().drop_front())
      list.emplace_back(operand, places[operand]);
  }
}

std::optional<Tensor> TaskFormer::placeToAppend(Value value) {
  SmallVector<ViewOpInterface> path;
  Value end = value;
  while (!appendedAt.contains(end)) {
    auto user = end.hasOneUse() ? dyn_cast<ViewOpInterface>(*end.user_begin()) : nullptr;
    if (!user)
      return std::nullopt;
    path.push_back(user);
    end = user->getResult(0);
  }
  Tensor place = appendedAt.lookup(end);
  for (ViewOpInterface op : llvm::reverse(path)) {
    auto view = op.operandView(place.view);
    if (!view)
      return std::nullopt;
    place.view = *view;
  }
  return place;
}

bool TaskFormer::append(Operation *concat) {
  auto found = appends.find(concat);
  if (found == appends.end())
    return false;
  for (const auto &[value, to] : found->second) {
    if (!isAppended.emplace(to.storage, to.view.offset).second)
      continue; // by another concatenation of the same rows
    Tensor from = tensorOf(value);
    if (from.storage != to.storage || !(from.view == to.view))
      copy(from, to, dtypeOf(value), sourceName(concat));
  }
  return true;
}
