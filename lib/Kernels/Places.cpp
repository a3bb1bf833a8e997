//===- Places.cpp - In which order values lie, and what is copied ---------===//
#include "partita/Kernels/Places.h"

#include "partita/Base/Bundle/Images.h"
#include "partita/Kernels/View.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace partita;
using namespace partita::kernels;

namespace {
/// A value's storage and how it lies there.
struct Tensor {
  int32_t storage = -1;
  View view;
};

/// An operand or output of a kernel, seen from its points.
struct Access {
  Tensor tensor;
  View points;
  int64_t width = 0; ///< bytes of an element
  bool isIndexed = false, isOutput = false;
};

class Placer {
public:
  Placer(const LocalProgram &program, const Grouping &grouping, const Target &target)
      : program(program), grouping(grouping), target(target),
        tensors(program.values.size()) {}

  std::vector<CopyKernel> run();

private:
  void place(int32_t op);
  void placeEngine(int32_t op);
  void placeImages(int32_t op, Tensor &result);
  void placePosts(int32_t op, const View &result);
  void placeAttention(int32_t op);
  void placeJoin(int32_t op);
  void placePad(int32_t op);
  void placeWindow(int32_t op);
  void placeEnd(int32_t op);

  void placeGroup(int32_t group);
  void load(int32_t value, int32_t group, std::vector<Access> &accesses);
  void read(int32_t op, int32_t group, std::vector<Access> &accesses);
  void addAccess(int32_t value, int32_t group, bool isIndexed,
                 std::vector<Access> &accesses);
  void addOutput(int32_t value, int32_t group, std::vector<Access> &accesses);
  void refine(const std::vector<Access> &accesses, size_t rank);

  Tensor dense(const Shape &shape) { return {numStorages++, View::dense(shape)}; }
  Tensor like(int32_t value, const View &order);
  Tensor forUser(int32_t value);
  Tensor &tensorOf(int32_t value);
  Tensor &denseOf(int32_t value);
  Tensor copied(const View &from, int64_t width);
  void copy(const View &from, const View &to, int64_t width);

  int64_t widthOf(int32_t value) const {
    return static_cast<int64_t>(byteWidth(program.value(value).type));
  }
  static bool isAligned(const View &view, int64_t width) {
    return view.offset * width % PARTITA_BUFFER_ALIGNMENT == 0;
  }

  const LocalProgram &program;
  const Grouping &grouping;
  const Target &target;
  std::vector<std::optional<Tensor>> tensors; ///< by value
  std::set<int32_t> visited;                  ///< ops of the kernel
  int32_t numStorages = 0;
  int32_t now = -1; ///< the op that is placed
  std::vector<CopyKernel> copies;
};
} // namespace

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

void Placer::copy(const View &from, const View &to, int64_t width) {
  const bool isKernel = !from.isDense() || !to.isDense() || !isAligned(from, width) ||
                        !isAligned(to, width);
  if (to.elements() != 0 && isKernel)
    copies.push_back({now, to.elements() * width});
}

Tensor Placer::copied(const View &from, int64_t width) {
  Tensor to = dense(from.shape());
  copy(from, to.view, width);
  return to;
}

Tensor &Placer::tensorOf(int32_t value) {
  std::optional<Tensor> &known = tensors[static_cast<size_t>(value)];
  if (known)
    return *known;
  const LocalValue &it = program.value(value);
  if (it.isUniform() || it.producer < 0 ||
      program.op(it.producer).facts.kind != OpKind::View) {
    known = dense(it.shape);
    return *known;
  }
  const OpFacts &facts = program.op(it.producer).facts;
  const int32_t operand = program.op(it.producer).operands[0];
  Tensor tensor = tensorOf(operand);
  std::optional<View> view = viewOfResult(facts, tensor.view, it.shape);
  if (!view) {
    tensor = copied(tensor.view, widthOf(operand));
    view = viewOfResult(facts, tensor.view, it.shape);
  }
  tensor.view = view.value_or(View::dense(it.shape));
  known = std::move(tensor);
  return *known;
}

Tensor &Placer::denseOf(int32_t value) {
  Tensor &tensor = tensorOf(value);
  if (!tensor.view.isDense() || !isAligned(tensor.view, widthOf(value)))
    tensor = copied(tensor.view, widthOf(value));
  return tensor;
}

/// Results of the program are row-major.
Tensor Placer::like(int32_t value, const View &order) {
  const LocalValue &it = program.value(value);
  for (const LocalUse &use : it.uses)
    if (program.op(use.op).results.empty())
      return dense(it.shape);
  return {numStorages++, order.denseLike(it.shape)};
}

/// Lays the value so that views between it and its only user become dense.
Tensor Placer::forUser(int32_t value) {
  std::vector<int32_t> path;
  for (int32_t end = value; program.value(end).uses.size() == 1;) {
    const int32_t user = program.value(end).uses[0].op;
    const LocalOp &op = program.op(user);
    if (op.facts.kind != OpKind::View ||
        !viewOfOperand(op.facts, View::dense(program.result(user).shape),
                       program.value(end).shape))
      break;
    path.push_back(user);
    end = op.results[0];
  }
  for (; !path.empty(); path.pop_back()) {
    std::optional<View> view = View::dense(program.result(path.back()).shape);
    for (size_t i = path.size(); i-- > 0 && view;)
      view = viewOfOperand(program.op(path[i]).facts, *view,
                           program.operand(path[i], 0).shape);
    if (view)
      return {numStorages++, std::move(*view)};
  }
  return dense(program.value(value).shape);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Convolutions and pools read and write images in orders of their own.
void Placer::placeImages(int32_t number, Tensor &result) {
  const LocalOp &op = program.op(number);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const int32_t value = op.operands[i];
    if ((op.facts.imageOperands >> i & 1) == 0) {
      denseOf(value);
      continue;
    }
    Tensor &tensor = tensorOf(value);
    if (readsImage(target.images, tensor.view) && isAligned(tensor.view, widthOf(value)))
      continue;
    Tensor image{numStorages++, imageView(target.images, program.value(value).shape)};
    copy(tensor.view, image.view, widthOf(value));
    tensor = std::move(image);
  }
  const int32_t value = program.op(grouping.lastOfCall(number)).results[0];
  if (op.facts.givesImage)
    result = like(value, imageView(target.images, program.value(value).shape));
}

/// Operands of functions are dense over the dims along which they vary, in the order of
/// the result.
void Placer::placePosts(int32_t number, const View &result) {
  const Shape shape = result.shape();
  for (const PostStep &step : grouping.chains[static_cast<size_t>(number)]) {
    if (step.operand < 0)
      continue;
    const View view = tensorOf(step.operand).view.broadcast(shape);
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t(0));
    if (isImage(target.images, result))
      order = task::imageOrder(target.images.format, shape.size());
    View varying{view.offset, {}};
    for (size_t d : order)
      if (std::ranges::any_of(view.dims[d], [](const Part &p) { return p.stride != 0; }))
        varying.dims.push_back(view.dims[d]);
    const int64_t width = widthOf(step.operand);
    if (!varying.isDense() || !isAligned(varying, width))
      copied(varying, width);
  }
}

void Placer::placeEngine(int32_t number) {
  const LocalOp &op = program.op(number);
  const int32_t value = program.op(grouping.lastOfCall(number)).results[0];
  const Shape &shape = program.value(value).shape;
  Tensor result;
  if (op.facts.imageOperands != 0)
    placeImages(number, result);
  else
    for (int32_t operand : op.operands)
      tensorOf(operand);
  if (result.storage < 0)
    result = dense(shape);
  if (elementCount(shape) != 0 && op.facts.imageOperands != 0)
    placePosts(number, result.view);
  tensors[static_cast<size_t>(value)] = std::move(result);
}

/// Operands and results have one stride along rows and columns, their last dims.
void Placer::placeAttention(int32_t number) {
  const LocalOp &op = program.op(number);
  auto isPlain = [](const View &view) {
    return view.dims.size() < 2 ||
           (view.dims.end()[-1].size() <= 1 && view.dims.end()[-2].size() <= 1);
  };
  for (size_t i = 0; i < std::min<size_t>(op.operands.size(), 3); ++i)
    if (const View &view = tensorOf(op.operands[i]).view; !isPlain(view))
      copied(view, widthOf(op.operands[i]));
  for (int32_t value : op.results) {
    Tensor result = forUser(value);
    if (!isPlain(result.view))
      result = dense(program.value(value).shape);
    tensors[static_cast<size_t>(value)] = std::move(result);
  }
}

//===----------------------------------------------------------------------===//
// Copies, communication
//===----------------------------------------------------------------------===//

void Placer::placeJoin(int32_t number) {
  const LocalOp &op = program.op(number);
  Tensor result = like(op.results[0], tensorOf(op.operands[0]).view);
  std::vector<Shape> shapes;
  for (int32_t operand : op.operands)
    shapes.push_back(program.value(operand).shape);
  const std::vector<View> parts =
      viewsOfJoin(result.view, shapes, static_cast<size_t>(op.facts.numbers[0][0]));
  for (size_t i = 0; i < parts.size(); ++i)
    copy(tensorOf(op.operands[i]).view, parts[i], widthOf(op.results[0]));
  tensors[static_cast<size_t>(op.results[0])] = std::move(result);
}

/// Filled first, then the operand is put into the middle.
void Placer::placePad(int32_t number) {
  const LocalOp &op = program.op(number);
  const Shape &shape = program.result(number).shape, &low = op.facts.numbers[0],
              &high = op.facts.numbers[1];
  const int64_t width = widthOf(op.results[0]);
  Tensor result = like(op.results[0], tensorOf(op.operands[0]).view);
  copy(View{0, {}}.broadcast(shape), result.view, width);
  Shape middle, from, to, ones(shape.size(), 1);
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t size = program.operand(number, 0).shape[d];
    from.push_back(std::max<int64_t>(0, -low[d]));
    to.push_back(std::max<int64_t>(0, low[d]));
    middle.push_back(
        std::max<int64_t>(0, size + std::min<int64_t>(0, high[d]) - from.back()));
  }
  if (elementCount(middle) != 0) {
    auto source = tensorOf(op.operands[0]).view.sliced(middle, from, ones);
    if (!source)
      source = denseOf(op.operands[0]).view.sliced(middle, from, ones);
    copy(*source, *result.view.sliced(middle, to, ones), width);
  }
  tensors[static_cast<size_t>(op.results[0])] = std::move(result);
}

/// An image stays one.
void Placer::placeWindow(int32_t number) {
  const int32_t from = program.op(number).operands[0], to = program.op(number).results[0];
  const Tensor &source = tensorOf(from);
  Tensor result = dense(program.value(to).shape);
  if (isImage(target.images, source.view) && isAligned(source.view, widthOf(from)))
    result = like(to, imageView(target.images, program.value(to).shape));
  else
    denseOf(from);
  tensors[static_cast<size_t>(to)] = std::move(result);
}

/// Results of a program are row-major; those of a function to the one that runs it, too.
void Placer::placeEnd(int32_t number) {
  for (int32_t value : program.op(number).operands)
    denseOf(value);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void Placer::addAccess(int32_t value, int32_t number, bool isIndexed,
                       std::vector<Access> &accesses) {
  const Tensor &tensor = tensorOf(value);
  const Shape &domain = grouping.groups[static_cast<size_t>(number)].domain;
  View points = isIndexed ? tensor.view : tensor.view.broadcast(domain);
  for (const Access &other : accesses)
    if (other.isIndexed == isIndexed && other.tensor.storage == tensor.storage &&
        other.points == points)
      return;
  accesses.push_back({tensor, std::move(points), widthOf(value), isIndexed, false});
}

void Placer::load(int32_t value, int32_t group, std::vector<Access> &accesses) {
  const LocalValue &it = program.value(value);
  if (it.isUniform())
    return;
  if (it.producer >= 0 && grouping.isIn(it.producer, group))
    return read(it.producer, group, accesses);
  addAccess(value, group, false, accesses);
}

void Placer::read(int32_t number, int32_t group, std::vector<Access> &accesses) {
  if (!visited.insert(number).second)
    return;
  const LocalOp &op = program.op(number);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.facts.readsByPlace(i))
      addAccess(op.operands[i], group, true, accesses);
    else
      load(op.operands[i], group, accesses);
  }
}

void Placer::addOutput(int32_t value, int32_t number, std::vector<Access> &accesses) {
  const Group &group = grouping.groups[static_cast<size_t>(number)];
  const OpFacts &facts = program.op(program.value(value).producer).facts;
  std::vector<Lying> operands;
  for (const Access &access : accesses)
    operands.push_back({access.tensor.storage, &access.tensor.view, access.isIndexed});
  Tensor tensor = like(value, orderOfOutput(operands, program.value(value).shape));
  View view = tensor.view;
  if (facts.reducesRow && !facts.keepsDims)
    for (int64_t d : group.rowDims)
      view.dims.insert(view.dims.begin() + d, Parts());
  accesses.push_back({tensor, view.broadcast(group.domain), widthOf(value), false, true});
  tensors[static_cast<size_t>(value)] = std::move(tensor);
}

/// Outputs first: an operand that does not nest with them can be copied.
void Placer::refine(const std::vector<Access> &accesses, size_t rank) {
  Cuts cuts(rank);
  for (const Access &access : accesses)
    if (access.isOutput)
      cuts.nests(access.points);
  for (const Access &access : accesses) {
    if (access.isOutput || access.isIndexed || cuts.nests(access.points))
      continue;
    const View own = ownElements(access.points);
    copied(own, access.width);
    cuts.nests(View::dense(own.shape()).broadcast(access.points.shape()));
  }
}

void Placer::placeGroup(int32_t number) {
  const Group &group = grouping.groups[static_cast<size_t>(number)];
  const LocalOp &root = program.op(group.root);
  if (elementCount(group.domain) == 0)
    return;
  if (root.facts.mayChangeInPlace) {
    // A new tensor has the order of the elements that go into it.
    if (program.operand(group.root, 0).isUniform())
      tensors[static_cast<size_t>(root.results[0])] =
          like(root.results[0], tensorOf(root.operands.back()).view);
    else
      denseOf(root.operands[0]);
    return;
  }
  std::vector<int32_t> results;
  for (int32_t value : root.results)
    if (!program.value(value).uses.empty())
      results.push_back(value);
  if (results.empty())
    results.push_back(root.results[0]);
  results.insert(results.end(), group.kept.begin(), group.kept.end());
  std::vector<Access> accesses;
  visited.clear();
  for (int32_t value : results)
    read(program.value(value).producer, number, accesses);
  for (int32_t value : results)
    addOutput(value, number, accesses);
  refine(accesses, group.domain.size());
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

void Placer::place(int32_t number) {
  const LocalOp &op = program.op(number);
  const auto at = static_cast<size_t>(number);
  now = number;
  if (op.attention == LocalOp::Attention::Root || op.facts.kind == OpKind::Attention)
    return placeAttention(number);
  if (int32_t call = grouping.callOf[at]; call >= 0)
    return grouping.lastOfCall(call) == number ? placeEngine(call) : void();
  if (grouping.isAbsorbed(program, number) || op.facts.kind == OpKind::View ||
      (op.results.size() == 1 && program.result(number).isUniform()) ||
      !grouping.chains[at].empty() || (op.operands.empty() && !op.results.empty()))
    return;
  if (op.facts.kind == OpKind::Engine)
    return placeEngine(number);
  if (int32_t group = grouping.groupAt(number); group >= 0)
    return placeGroup(group);
  if (op.results.empty())
    return placeEnd(number);
  if (op.facts.role == OpRole::Join)
    return placeJoin(number);
  if (op.facts.role == OpRole::Pad)
    return placePad(number);
  if (op.facts.role == OpRole::Window)
    return placeWindow(number);
  // Communication, loops.
  for (int32_t operand : op.operands)
    denseOf(operand);
}

std::vector<CopyKernel> Placer::run() {
  for (size_t o = 0; o < program.ops.size(); ++o)
    place(static_cast<int32_t>(o));
  return std::move(copies);
}

std::vector<CopyKernel> kernels::copiesOf(const LocalProgram &program,
                                          const Grouping &grouping,
                                          const Target &target) {
  if (!target.copiesOrders)
    return {};
  return Placer(program, grouping, target).run();
}
