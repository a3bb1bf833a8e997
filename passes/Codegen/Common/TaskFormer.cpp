//===- TaskFormer.cpp - From a partitioned function to tasks --------------===//
#include "passes/Codegen/Common/TaskFormer.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "passes/Codegen/Common/KernelBuilder.h"
#include "passes/Codegen/Common/KernelFormula.h"
#include "passes/Codegen/Common/Models.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

#include "passes/Codegen/Common/CodegenInterfaces.cpp.inc"

void codegen::attachTaskModels(MLIRContext &context) {
  context.getOrLoadDialect<graph::GraphDialect>();
  context.getOrLoadDialect<comm::CommDialect>();
  context.getOrLoadDialect<task_ir::TaskDialect>();
  attachViewModels(context);
  attachSourceModels(context);
  attachMatMulModel(context);
  attachBlockMatMulModel(context);
  attachWindowModels(context);
  attachAttentionModels(context);
  attachJoinModels(context);
  attachCommModels(context);
  attachControlModels(context);
}

std::string codegen::sourceName(Operation *op) { return dist::nodeName(op); }

DType codegen::dtypeOf(Value value) {
  return *partita::dtypeOf(getElementTypeOrSelf(value.getType()));
}

Layout codegen::layoutFrom(dist::LayoutAttr layout, const Shape &shape) {
  return layout ? layout.getLayout() : Layout::replicated(shape);
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

LogicalResult TaskFormer::run(ArrayRef<BufferSlot *> reads, ArrayRef<BufferSlot *> writes,
                              ArrayRef<Rolling> rolling) {
  firstTask = program.tasks.size();
  noteApart();
  formInputs(reads);
  for (const Rolling &state : rolling)
    placeRolling(state);
  for (Operation &op : function.front().without_terminator())
    if (failed(formOp(op)))
      return failure();
  formResults(reads, writes);
  return success();
}

FailureOr<std::vector<Tensor>> TaskFormer::runBody(ArrayRef<Tensor> arguments) {
  firstTask = program.tasks.size();
  noteApart();
  for (auto [argument, tensor] : llvm::zip_equal(function.getArguments(), arguments))
    setTensor(argument, tensor);
  for (Operation &op : function.front().without_terminator())
    if (failed(formOp(op)))
      return failure();
  std::vector<Tensor> results;
  for (Value result : function.front().getTerminator()->getOperands())
    results.push_back(denseOf(result));
  return results;
}

int TaskFormer::storageOf(Program &program, BufferSlot &buffer, DType type,
                          int64_t elements) {
  if (buffer.storage >= 0)
    return buffer.storage;
  buffer.storage = static_cast<int>(program.storages.size());
  Storage storage = buffer.kind;
  storage.type = type;
  storage.elements = storage.roll ? storage.roll->reach() : elements;
  program.storages.push_back(storage);
  return buffer.storage;
}

void TaskFormer::formInputs(ArrayRef<BufferSlot *> reads) {
  for (auto [argument, buffer] : llvm::zip_equal(function.getArguments(), reads)) {
    setTensor(argument, tensorIn(*buffer, dtypeOf(argument), shapeOf(argument)));
  }
}

LogicalResult TaskFormer::formOp(Operation &op) {
  size_t first = program.tasks.size();
  LogicalResult formed = formTasksOf(op);
  // Tasks of functions that the op runs have theirs already.
  if (Phase phase = dist::phaseOf(&op); first < program.tasks.size())
    for (Task &task : llvm::drop_begin(program.tasks, first))
      task.phase = task.phase.value_or(phase);
  return formed;
}

LogicalResult TaskFormer::formTasksOf(Operation &op) {
  if (const kernels::Attention *attention = fusion.attentionAt(&op))
    return formAttention(*attention);
  if (Operation *engine = fusion.engineAt(&op))
    return cast<TaskOpInterface>(engine).formTasks(*this);
  if (fusion.isAbsorbed(&op) || isa<ViewOpInterface>(op) ||
      (op.getNumResults() == 1 && uniformOf(op.getResult(0))))
    return success();
  if (!fusion.postChain(&op).empty())
    return success(); // formed at its last post-op
  if (auto task = dyn_cast<TaskOpInterface>(op))
    return task.formTasks(*this);
  if (fusion.groupAt(&op) >= 0)
    return formKernel(&op);
  return op.emitError("has no code generation");
}

void TaskFormer::formResults(ArrayRef<BufferSlot *> reads,
                             ArrayRef<BufferSlot *> writes) {
  auto results = function.front().getTerminator()->getOperands();
  // By storage the buffer that it is of; null: of several.
  llvm::DenseMap<int, BufferSlot *> bufferOf;
  for (BufferSlot *buffer : writes)
    if (auto [at, added] = bufferOf.try_emplace(buffer->storage, buffer);
        !added && at->second != buffer)
      at->second = nullptr;
  // What a buffer held before is copied before the buffer is written.
  for (auto [value, buffer] : llvm::zip_equal(results, writes)) {
    Tensor tensor = tensorOf(value);
    auto other = bufferOf.find(tensor.storage);
    bool isOld =
        tensor.storage >= 0 && other != bufferOf.end() && other->second != buffer;
    // Of itself other elements than those that it is left with.
    isOld |= buffer->storage >= 0 && tensor.storage == buffer->storage &&
             !(tensor.view == resultIn(value, *buffer).view);
    if (isOld && tensor.view.elements() != 0)
      setTensor(value, copied(tensor, dtypeOf(value), buffer->name));
  }
  llvm::SmallPtrSet<BufferSlot *, 8> read(reads.begin(), reads.end());
  for (auto [value, buffer] : llvm::zip_equal(results, writes))
    formResult(value, *buffer, read.contains(buffer));
}

/// What fills a storage of its own from one end to the other is made in the buffer;
/// anything else is copied into it. So is what goes into a buffer that the segment reads:
/// its tasks may come before the last reading.
void TaskFormer::formResult(Value value, BufferSlot &buffer, bool isRead) {
  DType type = dtypeOf(value);
  Tensor tensor = tensorOf(value);
  const Storage &storage = program.storages[static_cast<size_t>(tensor.storage)];
  bool isOwn = storage.isTemporary() && tensor.view.offset == 0 &&
               tensor.view.isDense() && storage.elements == tensor.view.elements();
  if (!isOwn || isRead || buffer.kind.space != storage.space) {
    Tensor to = resultIn(value, buffer);
    if (to.storage == tensor.storage ||
        (isOwn && makeIn(tensor.storage, to.storage, firstTask)))
      return;
    copy(tensor, to, type, buffer.name);
    return;
  }
  if (buffer.storage < 0) {
    Storage &own = program.storages[static_cast<size_t>(tensor.storage)];
    buffer.storage = tensor.storage;
    own.output = buffer.kind.output, own.shared = buffer.kind.shared;
    own.slots = buffer.kind.slots;
    return;
  }
  rename(tensor.storage, buffer.storage, tasksAt(tensor.storage, -1, firstTask));
}

std::set<uint32_t> TaskFormer::handlesInUse() const {
  std::set<uint32_t> handles = taken;
  for (const auto &entry : flying)
    handles.insert(program.tasks[entry.second].handle);
  return handles;
}

void TaskFormer::startLast(Value handle) {
  std::set<uint32_t> taken = handlesInUse();
  uint32_t number = 1;
  while (taken.count(number))
    ++number;
  program.tasks.back().handle = number;
  flying[handle] = program.tasks.size() - 1;
}

void TaskFormer::waitFor(Value handle) {
  auto found = flying.find(handle);
  if (found == flying.end())
    return;
  const Task &started = program.tasks[found->second];
  task::Wait params;
  params.handle = started.handle;
  Task wait{started.source};
  wait.phase = started.phase;
  wait.operands = started.operands;
  wait.params = params;
  flying.erase(found);
  addTask(std::move(wait));
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

int TaskFormer::addStorage(DType type, int64_t elements) {
  program.storages.push_back({Space::Arena, type, elements});
  return static_cast<int>(program.storages.size()) - 1;
}

Tensor TaskFormer::allocate(Value value) {
  Shape shape = shapeOf(value);
  return {addStorage(dtypeOf(value), elementCount(shape)), View::dense(shape)};
}

Tensor TaskFormer::allocateLike(Value value, const View &model) {
  for (Operation *user : value.getUsers())
    if (user->hasTrait<OpTrait::IsTerminator>())
      return allocate(value);
  Shape shape = shapeOf(value);
  return {addStorage(dtypeOf(value), elementCount(shape)), model.denseLike(shape)};
}

Tensor TaskFormer::allocateForUser(Value value) {
  if (auto place = placeToAppend(value))
    return *place;
  SmallVector<ViewOpInterface> path;
  for (Value end = value; end.hasOneUse();) {
    auto user = dyn_cast<ViewOpInterface>(*end.user_begin());
    if (!user || !user.operandView(View::dense(shapeOf(user->getResult(0)))))
      break;
    path.push_back(user);
    end = user->getResult(0);
  }
  for (; !path.empty(); path.pop_back()) {
    std::optional<View> view = View::dense(shapeOf(path.back()->getResult(0)));
    for (size_t i = path.size(); i-- > 0 && view;)
      view = path[i].operandView(*view);
    if (view)
      return {addStorage(dtypeOf(value), view->elements()), *view};
  }
  return allocate(value);
}

Tensor TaskFormer::tensorOf(Value value) {
  auto found = tensors.find(value);
  if (found != tensors.end()) {
    for (auto moved = movedTo.find(found->second.storage); moved != movedTo.end();
         moved = movedTo.find(found->second.storage))
      found->second.storage = moved->second;
    return found->second;
  }
  Tensor tensor;
  if (uniformOf(value)) {
    tensor = materializeConstant(value);
  } else {
    auto viewOp = cast<ViewOpInterface>(value.getDefiningOp());
    Value operand = viewOp->getOperand(0);
    tensor = tensorOf(operand);
    std::optional<View> view = viewOp.resultView(tensor.view);
    if (!view) {
      tensor = copied(tensor, dtypeOf(operand), sourceName(viewOp));
      view = viewOp.resultView(tensor.view);
    }
    tensor.view = *view;
  }
  setTensor(value, tensor);
  return tensor;
}

Tensor TaskFormer::denseOf(Value value) {
  Tensor tensor = tensorOf(value);
  if (tensor.view.isDense() && isAligned(tensor))
    return tensor;
  Operation *op = value.getDefiningOp();
  tensor = copied(tensor, dtypeOf(value), op ? sourceName(op) : "input");
  setTensor(value, tensor);
  return tensor;
}

Tensor TaskFormer::copied(const Tensor &tensor, DType type, const std::string &source) {
  Tensor to{addStorage(type, tensor.view.elements()), View::dense(tensor.view.shape())};
  copy(tensor, to, type, source);
  return to;
}

void TaskFormer::copy(const Tensor &from, const Tensor &to, DType type,
                      const std::string &source) {
  if (to.view.elements() == 0)
    return;
  if (from.view.isDense() && to.view.isDense() && isAligned(from) && isAligned(to)) {
    task::Copy params;
    params.dtype = static_cast<int64_t>(type);
    params.count = to.view.elements();
    Task task{source};
    task.operands = {place(from), place(to)};
    task.params = std::move(params);
    return addTask(std::move(task));
  }
  KernelBuilder builder(*this, to.view.shape(), {});
  builder.addOutput(builder.load(from, type), to, to.view, type, false);
  builder.finish(source);
}

static HostTensor contentsOf(Value constant) {
  return graph::toHostTensor(
      cast<DenseElementsAttr>(constant.getDefiningOp<graph::ConstantOp>().getValue()));
}

Tensor TaskFormer::materializeConstant(Value value) {
  return filled(value, contentsOf(value));
}

LogicalResult TaskFormer::reduceNothing(Operation *op) {
  std::vector<HostTensor> nothing;
  for (Value operand : op->getOperands())
    nothing.push_back(HostTensor::zeros(dtypeOf(operand), shapeOf(operand)));
  std::vector<const HostTensor *> operands;
  for (const HostTensor &tensor : nothing)
    operands.push_back(&tensor);
  auto result = cast<EvaluateOpInterface>(op).evaluate(operands);
  if (!result)
    return op->emitError("reduces an empty tensor: ") << result.error().message;
  for (auto [value, contents] : llvm::zip_equal(op->getResults(), *result))
    setTensor(value, filled(value, contents));
  return success();
}

Tensor TaskFormer::filled(Value value, const HostTensor &contents, const View &order) {
  Tensor tensor = allocateLike(value, order);
  task::Fill params;
  params.dtype = static_cast<int64_t>(dtypeOf(value));
  params.count = tensor.view.elements();
  std::memcpy(&params.bits, contents.bytes.data(),
              std::min(contents.bytes.size(), byteWidth(contents.type)));
  Task task{sourceName(value.getDefiningOp())};
  task.operands = {place(tensor)};
  task.params = std::move(params);
  if (params.count != 0)
    addTask(std::move(task));
  return tensor;
}

bool TaskFormer::isReadOnlyBy(Value &value, Operation *user) const {
  for (;;) {
    if (!value.hasOneUse() || *value.user_begin() != user)
      return false;
    Operation *op = value.getDefiningOp();
    if (!op || !isa<ViewOpInterface>(op))
      break;
    user = op;
    value = op->getOperand(0);
  }
  return !(isCalled && isa<BlockArgument>(value));
}

bool TaskFormer::mayOverwrite(Value value, Operation *user) {
  if (!isReadOnlyBy(value, user))
    return false;
  Tensor tensor = tensorOf(value);
  const Storage &storage = program.storages[static_cast<size_t>(tensor.storage)];
  return storage.space == Space::Arena && !storage.shared && !storage.isWindow() &&
         tensor.view.offset == 0 && tensor.view.isDense() &&
         storage.elements == tensor.view.elements() && !uniformOf(value);
}

bool TaskFormer::mayReplace(Value value, Operation *user) {
  Operation *now = fusion.formedAt(user);
  Tensor tensor = tensorOf(value);
  while (isa_and_nonnull<ViewOpInterface>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  if (!now || !value.getDefiningOp() || uniformOf(value))
    return false;
  for (SmallVector<Value> views{value}; !views.empty();)
    for (Operation *other : views.pop_back_val().getUsers()) {
      if (isa<ViewOpInterface>(other))
        views.push_back(other->getResult(0));
      // Other dialects' ops may be in flight, or end the function.
      else if (other != user &&
               (!isa<graph::GraphDialect>(other->getDialect()) ||
                !fusion.formedAt(other) || !fusion.formedAt(other)->isBeforeInBlock(now)))
        return false;
    }
  const Storage &storage = program.storages[static_cast<size_t>(tensor.storage)];
  return storage.isTemporary() && storage.space == Space::Arena && storage.slots == 1 &&
         tensor.view.offset == 0 && storage.elements == tensor.view.elements();
}

Place TaskFormer::place(const Tensor &tensor) const {
  const Storage &storage = program.storages[static_cast<size_t>(tensor.storage)];
  size_t width = byteWidth(storage.type);
  uint64_t offset = static_cast<uint64_t>(tensor.view.offset) * width;
  uint64_t bytes = tensor.view.isDense()
                       ? static_cast<uint64_t>(tensor.view.elements()) * width
                       : storage.bytes() - offset;
  return {tensor.storage, offset, bytes};
}

bool TaskFormer::isAligned(const Tensor &tensor) const {
  size_t width = byteWidth(program.storages[static_cast<size_t>(tensor.storage)].type);
  return static_cast<uint64_t>(tensor.view.offset) * width % PARTITA_BUFFER_ALIGNMENT ==
         0;
}

//===----------------------------------------------------------------------===//
// Engine calls, weights, kernels
//===----------------------------------------------------------------------===//

LogicalResult TaskFormer::addEngineCall(Operation *op, Task task, size_t scratchOperand,
                                        std::optional<size_t> weight) {
  int storage = weight ? task.operands[*weight].storage : -1;
  // As the runtime does: the first call that reads a weight fixes its form.
  auto key = state.keyOfWeight.find(storage);
  auto needs = state.calls.needsOf(program.identity.name, task.params,
                                   key == state.keyOfWeight.end()
                                       ? std::to_string(storage) // no weight's name
                                       : key->second,
                                   program.team.threads);
  if (!needs)
    return op->emitError("cannot be run by the engine: ") << needs.error().message;
  task.isSlow = needs->isSlow;
  if (needs->scratch != 0)
    task.operands[scratchOperand] = {
        addStorage(DType::U8, static_cast<int64_t>(needs->scratch)), 0, needs->scratch};
  if (needs->packed != 0) {
    task.packedOperand = static_cast<int>(*weight);
    if (state.packed.insert({storage, needs->form}).second)
      program.packed.emplace_back(storage, needs->packed);
  }
  addTask(std::move(task));
  return success();
}

std::vector<MadeName> TaskFormer::namesOfCall(Operation *engine, size_t steps) const {
  std::vector<MadeName> names{madeBy(engine)};
  for (const kernels::PostStep &step : fusion.postChain(engine).take_front(steps))
    names.push_back(madeBy(fusion.op(step.op)));
  return names;
}

Tensor TaskFormer::weight(const TensorSpec &spec, int64_t localElements,
                          Operation *literal) {
  std::string key =
      spec.name + "\n" + spec.layout.str(mesh()) + "\n" + std::string(name(spec.type));
  auto [found, added] = state.weightOfKey.try_emplace(key, -1);
  if (added) {
    found->second = addStorage(spec.type, localElements);
    state.keyOfWeight[found->second] = key;
    program.storages.back().space = Space::Weight;
    program.tensors.push_back({spec, found->second, literal});
  }
  return {found->second, View::dense(spec.layout.localShape())};
}

std::string TaskFormer::constantName(Operation *op) {
  Attribute value = cast<graph::ConstantOp>(op).getValue();
  size_t number =
      state.constants.try_emplace(value, state.constants.size()).first->second;
  return "partita.constant." + state.constantPrefix + std::to_string(number);
}

static bool hasWholeDims(const View &view) {
  return llvm::all_of(view.dims, [](const Parts &parts) { return parts.size() <= 1; });
}

Tensor TaskFormer::ownCopy(Operation *op, Value value) {
  bool inPlace = mayOverwrite(value, op);
  Tensor tensor = denseOf(value);
  if (!inPlace)
    tensor = copied(tensor, dtypeOf(value), sourceName(op));
  tensor.view = View::dense(shapeOf(value));
  setTensor(op->getResult(0), tensor);
  return tensor;
}

bool TaskFormer::isKeptArgument(Value value) {
  if (!isa<BlockArgument>(value))
    return false;
  const auto storage = static_cast<size_t>(tensorOf(value).storage);
  return !program.storages[storage].input ||
         program.storages[storage].space == Space::State;
}

void TaskFormer::formInPlace(Operation *op, KernelBuilder &builder) {
  Value data = op->getOperand(0), result = op->getResult(0);
  // A new tensor has the memory order of the elements that go into it.
  View order = tensorOf(op->getOperands().back()).view;
  Tensor tensor =
      uniformOf(data) ? filled(result, contentsOf(data), order) : ownCopy(op, data);
  setTensor(result, tensor);
  builder.setNode(data, builder.load(tensor, dtypeOf(data)));
  builder.addOutput(builder.nodeOf(result), tensor, tensor.view, dtypeOf(result), false);
  builder.finish(sourceName(op));
}

/// How many elements from the begin of `dim` on are read of a result, by slices of it;
/// all, if it is read otherwise.
static int64_t readAlong(Value result, size_t dim) {
  int64_t most = 0;
  for (Operation *user : result.getUsers()) {
    auto slice = dyn_cast<graph::SliceOp>(user);
    if (!slice || slice.getStarts()[dim] != 0 || slice.getSteps()[dim] != 1)
      return shapeOf(result)[dim];
    most = std::max(most, shapeOf(slice.getResult())[dim]);
  }
  return most;
}

LogicalResult TaskFormer::formKernel(Operation *op) {
  const int32_t number = fusion.groupAt(op);
  const kernels::Group &group = fusion.group(number);
  // What nobody reads is not written.
  SmallVector<Value> results(
      llvm::make_filter_range(op->getResults(), [](Value v) { return !v.use_empty(); }));
  if (results.empty())
    results.push_back(op->getResult(0));
  if (llvm::all_of(results, [](Value v) { return elementCount(shapeOf(v)) == 0; })) {
    for (Value result : results)
      setTensor(result, allocate(result));
    return success();
  }
  if (elementCount(group.domain) == 0)
    return reduceNothing(op);
  kernels::OpFacts facts = kernelFactsOf(op);
  KernelBuilder builder(*this, group.domain, group.rowDims);
  builder.setGroup(number);
  // A state or a sum stays where it is: InPlace.cpp makes the result in its place.
  if (facts.mayChangeInPlace && !isKeptArgument(op->getOperand(0))) {
    formInPlace(op, builder);
    return success();
  }
  size_t ofRoot = results.size();
  for (int32_t kept : group.kept)
    results.push_back(fusion.value(kept));
  SmallVector<int> nodes;
  int64_t stored = 0;
  for (Value result : results)
    nodes.push_back(builder.nodeOf(result));
  for (auto [i, result, node] : llvm::enumerate(results, nodes)) {
    auto place = placeToAppend(result);
    // The parts of two outputs' dims need not divide one another.
    if (place && i >= ofRoot && !hasWholeDims(place->view))
      place.reset();
    Tensor tensor = place ? *place : allocateLike(result, builder.model(shapeOf(result)));
    View view = tensor.view;
    kernels::OpFacts own = i < ofRoot ? facts : kernelFactsOf(result.getDefiningOp());
    if (own.reducesRow && !own.keepsDims)
      for (int64_t d : group.rowDims)
        view.dims.insert(view.dims.begin() + d, Parts());
    bool perRow = !group.rowDims.empty() && view.shape() != group.domain;
    // A reduction along one element has a row's shape, but not its dims.
    if (!perRow && group.rowDims.size() == 1) {
      const auto dim = static_cast<size_t>(group.rowDims[0]);
      stored = std::max(stored, shapeOf(result) == group.domain ? readAlong(result, dim)
                                                                : group.domain[dim]);
    }
    builder.addOutput(node, tensor, view.broadcast(group.domain), dtypeOf(result),
                      perRow);
    setTensor(result, tensor);
  }
  if (stored > 0)
    builder.storeFirst(stored);
  builder.finish(sourceName(op));
  return success();
}

void TaskFormer::formRest(Operation *engine, size_t step, const Tensor &partial) {
  ArrayRef<kernels::PostStep> chain = fusion.postChain(engine);
  Value before = (step == 0 ? engine : fusion.op(chain[step - 1].op))->getResult(0);
  Value result = fusion.callResult(engine);
  KernelBuilder builder(*this, shapeOf(result), {});
  builder.setNode(before, builder.load(partial, dtypeOf(result)));
  for (const kernels::PostStep &rest : chain.drop_front(step)) {
    builder.addMember(fusion.op(rest.op));
    for (int32_t op : rest.merged)
      builder.addMember(fusion.op(op));
  }
  int node = builder.nodeOf(result);
  auto place = placeToAppend(result);
  Tensor tensor = place ? *place : allocateLike(result, partial.view);
  builder.addOutput(node, tensor, tensor.view, dtypeOf(result), false);
  builder.finish(sourceName(engine));
  setTensor(result, tensor);
}

int TaskFormer::addKernel(KernelSpec spec) {
  std::vector<int> &candidates = state.kernelsOfHash[spec.hash()];
  for (int number : candidates)
    if (program.kernels[static_cast<size_t>(number)] == spec)
      return number;
  candidates.push_back(static_cast<int>(program.kernels.size()));
  program.kernels.push_back(std::move(spec));
  return candidates.back();
}
