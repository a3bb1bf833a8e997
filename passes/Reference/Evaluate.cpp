//===- Evaluate.cpp - Running programs on host tensors --------------------===//
#include "passes/Reference/Evaluate.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Manual.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Compute.h"
#include "partita/Reference/Kernels.h"

#include <cmath>
#include <random>
#include <unistd.h>

using namespace mlir;
using namespace partita;

namespace {
class Machine {
public:
  Machine(const Mesh &mesh, const WeightLoader &weights, bool poison,
          const Evaluating &how)
      : mesh(mesh), ranks(static_cast<size_t>(mesh.numRanks())), weights(weights),
        poison(poison), how(how) {}

  Expected<RankTensors> run(func::FuncOp function, const RankTensors &inputs) {
    Block &body = function.front();
    for (auto [i, argument] : llvm::enumerate(body.getArguments())) {
      auto &slot = tensors[argument];
      for (size_t r = 0; r < ranks; ++r) {
        if (inputs[r][i].shape != shapeOf(argument))
          return makeError("argument " + std::to_string(i) + " has the wrong shape");
        slot.push_back(inputs[r][i]);
      }
    }
    for (Operation &op : body.without_terminator()) {
      if (how.stop.isRaised())
        return makeError("cancelled");
      if (auto ok = step(op); !ok)
        return makeError("'" + dist::nodeName(&op) + "' (" +
                         op.getName().getStringRef().str() + "): " + ok.error().message);
      if (how.done)
        how.done(&op);
    }
    RankTensors results(ranks);
    for (Value value : body.getTerminator()->getOperands())
      for (size_t r = 0; r < ranks; ++r)
        results[r].push_back(tensors[value][r]);
    return results;
  }

private:
  /// A sentence instead of a process that the system ends for its memory.
  Expected<void> checkSize(Operation &op) const {
    auto memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                  static_cast<double>(::sysconf(_SC_PAGE_SIZE));
    double bytes = 0;
    for (Value result : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      if (!type)
        continue;
      bytes += static_cast<double>(type.getNumElements()) *
               static_cast<double>(byteWidth(*dtypeOf(type.getElementType()))) *
               static_cast<double>(ranks);
    }
    if (bytes <= memory)
      return {};
    return makeError("its results take " + std::to_string(static_cast<int64_t>(bytes)) +
                     " bytes on all ranks, and this machine has " +
                     std::to_string(static_cast<int64_t>(memory)));
  }

  Expected<void> step(Operation &op) {
    Expected<void> done = checkSize(op);
    if (!done)
      return done;
    if (auto communicate = dyn_cast<comm::StepOpInterface>(op))
      done = exchange(communicate);
    else if (auto start = dyn_cast<task_ir::StartOp>(op))
      done = begin(start);
    else if (auto manual = dyn_cast<dist::ManualOp>(op))
      done = exchange(manual);
    else if (auto halo = dyn_cast<comm::HaloOp>(op))
      tensors[halo.getResult()] =
          executeHalo(mesh, halo.getHalo(), tensors[halo.getInput()]);
    else if (auto pieces = dyn_cast<comm::PiecesOp>(op))
      tensors[pieces.getResult()] =
          executePieces(mesh, pieces.getExchange(), tensors[pieces.getInput()]);
    else if (auto mask = dyn_cast<comm::MaskOp>(op))
      done = clean(mask);
    else if (auto index = dyn_cast<comm::LocalIndexOp>(op))
      done = localize(index);
    else if (isa<dist::ReshardOp, dist::WindowOp>(op)) // global: the same tensor
      done = copy(op);
    else if (isa<comm::ClaimOp>(op))
      done = copy(op);
    else if (auto weight = dyn_cast<graph::WeightOp>(op))
      done = load(weight);
    else if (auto repeat = dyn_cast<graph::RepeatOp>(op))
      done = runRepeat(repeat);
    else if (auto wait = dyn_cast<task_ir::WaitOp>(op))
      done = finish(wait);
    else if (auto branch = dyn_cast<graph::IfOp>(op))
      done = runBranch(branch);
    else
      done = compute(op);
    if (done && how.change)
      for (Value result : op.getResults())
        for (HostTensor &tensor : tensors[result])
          how.change(tensor);
    dropOperands(op);
    return done;
  }

  /// A value whose last user has run is dropped, so that whole models fit.
  void dropOperands(Operation &op) {
    for (Value operand : op.getOperands())
      if (--usesLeft(operand) == 0)
        tensors.erase(operand);
  }

  int64_t &usesLeft(Value value) {
    auto [it, added] = uses.try_emplace(value, 0);
    if (added)
      it->second = std::distance(value.use_begin(), value.use_end());
    return it->second;
  }

  Expected<void> copy(Operation &op) {
    // By value: adding an entry moves the others.
    std::vector<HostTensor> same = tensors[op.getOperand(0)];
    tensors[op.getResult(0)] = std::move(same);
    return {};
  }

  Expected<void> exchange(comm::StepOpInterface op) {
    ReshardPlan plan;
    plan.steps.push_back(op.getStep());
    tensors[op->getResult(0)] =
        executeReshard(mesh, plan, tensors[op->getOperand(0)], poison);
    return {};
  }

  /// Computes at once what is in flight, under the names that it has inside.
  Expected<void> begin(task_ir::StartOp op) {
    for (Operation &inside : op.communications()) {
      auto communicate = dyn_cast<comm::StepOpInterface>(inside);
      if (!communicate)
        return makeError("cannot be evaluated");
      if (auto ok = exchange(communicate); !ok)
        return ok;
      dropOperands(inside);
    }
    return {};
  }

  Expected<void> finish(task_ir::WaitOp op) {
    auto start = op.getHandle().getDefiningOp<task_ir::StartOp>();
    for (auto [inside, result] :
         llvm::zip_equal(start.communications(), op.getResults())) {
      std::vector<HostTensor> come = std::move(tensors[inside.getResult(0)]);
      tensors.erase(inside.getResult(0));
      tensors[result] = std::move(come);
    }
    return {};
  }

  Expected<void> exchange(dist::ManualOp op) {
    if (auto pieces = op.getExchange()) {
      tensors[op.getResult()] = executePieces(mesh, *pieces, tensors[op.getInput()]);
      return {};
    }
    auto plan = op.getPlan();
    if (!plan)
      return tl::unexpected(plan.error());
    tensors[op.getResult()] = executeReshard(mesh, *plan, tensors[op.getInput()], poison);
    return {};
  }

  Expected<void> clean(comm::MaskOp op) {
    Layout layout = op.getLayout().getLayout();
    // What counts is where elements live: of the ranks that hold partial values, each
    // has its own.
    layout.partial.clear();
    // Only the named dims' padding counts; others are left as they are.
    for (int64_t d = 0; d < layout.rank(); ++d)
      if (!llvm::is_contained(op.getDims(), d))
        layout.dims[d] =
            DimLayout{{DimFactor{layout.dims[d].local(), layout.dims[d].local(), {}}}};
    ReduceKind kind = op.getKind().getValue();
    std::vector<HostTensor> result = tensors[op.getInput()];
    HostTensor ones = HostTensor::zeros(DType::U8, layout.globalShape());
    std::fill(ones.bytes.begin(), ones.bytes.end(), std::byte{1});
    for (size_t r = 0; r < ranks; ++r) {
      HostTensor valid = extractLocal(mesh, layout, static_cast<int64_t>(r), ones);
      HostTensor neutral = result[r];
      fillNeutral(neutral, kind);
      size_t width = byteWidth(neutral.type);
      for (int64_t i = 0; i < neutral.size(); ++i)
        if (valid.bytes[i] == std::byte{0})
          std::copy_n(neutral.bytes.begin() + i * static_cast<int64_t>(width), width,
                      result[r].bytes.begin() + i * static_cast<int64_t>(width));
    }
    tensors[op.getResult()] = std::move(result);
    return {};
  }

  Expected<void> localize(comm::LocalIndexOp op) {
    const DimLayout &dim = op.getLayout().getLayout().dims[0];
    for (size_t r = 0; r < ranks; ++r) {
      const HostTensor &indices = tensors[op.getIndices()][r];
      std::vector<int64_t> places(static_cast<size_t>(dim.size()), -1);
      for (const DimRun &run : dimRuns(mesh, dim, static_cast<int64_t>(r)))
        for (int64_t i = 0; i < run.length; ++i)
          places[run.global + i] = run.local + i;
      std::vector<int64_t> result;
      for (int64_t index : reference::values<int64_t>(indices)) {
        if (index < -dim.size() || index >= dim.size())
          return makeError("index " + std::to_string(index) +
                           " is outside a dim of size " + std::to_string(dim.size()));
        result.push_back(places[index < 0 ? index + dim.size() : index]);
      }
      tensors[op.getResult()].push_back(
          reference::tensor<int64_t>(indices.type, indices.shape, result));
    }
    return {};
  }

  Expected<void> load(graph::WeightOp op) {
    auto global = weights(op.getName());
    if (!global)
      return tl::unexpected(global.error());
    const DType type = *dtypeOf(getElementTypeOrSelf(op.getType()));
    if (global->type == DType::F32 && (type == DType::F16 || type == DType::BF16)) {
      global->type = type;
      global->bytes = narrowed(global->bytes, type);
    }
    dist::LayoutAttr layout = dist::sourceLayout(op);
    auto &slot = tensors[op.getResult()];
    for (int64_t r = 0; r < static_cast<int64_t>(ranks); ++r) {
      slot.push_back(layout ? extractLocal(mesh, layout.getLayout(), r, *global)
                            : *global);
      if (layout && poison)
        poisonPadding(mesh, layout.getLayout(), r, slot.back());
    }
    return {};
  }

  /// Row `index` of what every rank has.
  static HostTensor rowOf(const HostTensor &all, int64_t index) {
    HostTensor row{all.type, Shape(all.shape.begin() + 1, all.shape.end()), {}};
    size_t bytes = all.bytes.size() / static_cast<size_t>(all.shape[0]);
    auto begin = all.bytes.begin() + index * static_cast<int64_t>(bytes);
    row.bytes.assign(begin, begin + static_cast<int64_t>(bytes));
    return row;
  }

  Expected<RankTensors> runFunction(Operation *callee, const RankTensors &inputs) {
    return Machine(mesh, weights, poison, how).run(cast<func::FuncOp>(callee), inputs);
  }

  Expected<void> runRepeat(graph::RepeatOp op) {
    Operation *callee = op.getCallees().front();
    size_t carried = op.getNumCarried();
    RankTensors state(ranks);
    std::vector<RankTensors> rows; // per trip
    for (size_t r = 0; r < ranks; ++r)
      for (Value value : op.getCarried())
        state[r].push_back(tensors[value][r]);
    for (int64_t t = 0; t < op.getCallTrips(); ++t) {
      RankTensors inputs = std::move(state);
      for (size_t r = 0; r < ranks; ++r) {
        for (Value value : op.getScanned())
          inputs[r].push_back(rowOf(tensors[value][r], t));
        for (Value value : op.getShared())
          inputs[r].push_back(tensors[value][r]);
      }
      auto results = runFunction(callee, inputs);
      if (!results)
        return tl::unexpected(results.error());
      state.assign(ranks, {});
      rows.emplace_back(ranks);
      for (size_t r = 0; r < ranks; ++r)
        for (auto [i, tensor] : llvm::enumerate((*results)[r]))
          (i < carried ? state[r] : rows.back()[r]).push_back(std::move(tensor));
    }
    for (OpResult result : op->getResults())
      for (size_t r = 0; r < ranks; ++r) {
        size_t i = result.getResultNumber();
        if (i < carried) {
          tensors[result].push_back(std::move(state[r][i]));
          continue;
        }
        HostTensor all{rows[0][r][i - carried].type, shapeOf(result), {}};
        for (RankTensors &trip : rows)
          all.bytes.insert(all.bytes.end(), trip[r][i - carried].bytes.begin(),
                           trip[r][i - carried].bytes.end());
        tensors[result].push_back(std::move(all));
      }
    return {};
  }

  /// The ranks must agree on which function they run.
  Expected<void> runBranch(graph::IfOp op) {
    const auto &conditions = tensors[op.getCondition()];
    bool isThen = conditions[0].bytes[0] != std::byte{0};
    for (const HostTensor &condition : conditions)
      if ((condition.bytes[0] != std::byte{0}) != isThen)
        return makeError("its condition differs between ranks");
    RankTensors inputs(ranks);
    for (size_t r = 0; r < ranks; ++r)
      for (Value value : op.getInputs())
        inputs[r].push_back(tensors[value][r]);
    auto results = runFunction(op.getCallees()[isThen ? 0 : 1], inputs);
    if (!results)
      return tl::unexpected(results.error());
    for (OpResult result : op->getResults())
      for (size_t r = 0; r < ranks; ++r)
        tensors[result].push_back(std::move((*results)[r][result.getResultNumber()]));
    return {};
  }

  Expected<void> compute(Operation &op) {
    auto evaluable = dyn_cast<EvaluateOpInterface>(op);
    if (!evaluable)
      return makeError("cannot be evaluated");
    for (size_t r = 0; r < ranks; ++r) {
      std::vector<const HostTensor *> operands;
      for (Value operand : op.getOperands())
        operands.push_back(&tensors[operand][r]);
      auto results = evaluable.evaluate(operands);
      if (!results)
        return tl::unexpected(results.error());
      for (auto [i, result] : llvm::enumerate(*results))
        tensors[op.getResult(static_cast<unsigned>(i))].push_back(std::move(result));
    }
    return {};
  }

  const Mesh &mesh;
  size_t ranks;
  const WeightLoader &weights;
  bool poison;
  const Evaluating &how;
  llvm::DenseMap<Value, std::vector<HostTensor>> tensors;
  llvm::DenseMap<Value, int64_t> uses;
};
} // namespace

Expected<RankTensors> partita::evaluateRanks(func::FuncOp function, const Mesh &mesh,
                                             const RankTensors &inputs,
                                             const WeightLoader &weights, bool poison,
                                             const Evaluating &how) {
  return Machine(mesh, weights, poison, how).run(function, inputs);
}

Expected<Tensors> partita::evaluate(func::FuncOp function, const Tensors &inputs,
                                    const WeightLoader &weights, const Evaluating &how) {
  // A graph that is written per rank is run by all of them.
  Operation *module = function->getParentOp();
  dist::ManualOp manual = dist::findManual(module ? module : function.getOperation());
  const Mesh mesh = manual ? manual.getFrom().devices() : Mesh();
  auto all = evaluateRanks(function, mesh,
                           RankTensors(static_cast<size_t>(mesh.numRanks()), inputs),
                           weights, /*poison=*/false, how);
  if (!all)
    return tl::unexpected(all.error());
  for (size_t r = 1; r < all->size(); ++r)
    for (size_t i = 0; i < (*all)[r].size(); ++i)
      if ((*all)[r][i].bytes != (*all)[0][i].bytes)
        return makeError("output " + std::to_string(i) +
                         " differs between rank 0 and rank " + std::to_string(r));
  return std::move((*all)[0]);
}

static Layout layoutOf(dist::LayoutAttr layout, Type type) {
  return layout ? layout.getLayout()
                : Layout::replicated(cast<RankedTensorType>(type).getShape().vec());
}

Expected<HostTensor> partita::assemble(const Mesh &mesh, const Layout &layout,
                                       const Tensors &parts) {
  HostTensor global = HostTensor::zeros(parts[0].type, layout.globalShape());
  size_t width = byteWidth(global.type);
  for (size_t r = 0; r < parts.size(); ++r)
    insertLocal(mesh, layout, static_cast<int64_t>(r), width, parts[r].bytes.data(),
                global.bytes.data());
  for (size_t r = 0; r < parts.size(); ++r) {
    HostTensor copy = global;
    insertLocal(mesh, layout, static_cast<int64_t>(r), width, parts[r].bytes.data(),
                copy.bytes.data());
    if (copy.bytes != global.bytes)
      return makeError("rank " + std::to_string(r) +
                       " disagrees with another rank that holds the same elements");
  }
  return global;
}

HostTensor partita::localPart(const Mesh &mesh, const Layout &layout, int64_t rank,
                              const HostTensor &global) {
  HostTensor local = extractLocal(mesh, layout, rank, global);
  poisonPadding(mesh, layout, rank, local);
  return local;
}

Expected<Tensors> partita::evaluatePartitioned(func::FuncOp function,
                                               const Tensors &inputs,
                                               const WeightLoader &weights,
                                               const Evaluating &how) {
  auto mesh = dist::meshOf(function);
  if (!mesh)
    return tl::unexpected(mesh.error());
  RankTensors locals(static_cast<size_t>(mesh->numRanks()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto index = static_cast<unsigned>(i);
    Layout layout = layoutOf(dist::argumentLayout(function, index),
                             function.getArgument(index).getType());
    for (size_t r = 0; r < locals.size(); ++r)
      locals[r].push_back(localPart(*mesh, layout, static_cast<int64_t>(r), inputs[i]));
  }
  return evaluateLocals(function, locals, weights, how);
}

Expected<Tensors> partita::evaluateLocals(func::FuncOp function,
                                          const RankTensors &inputs,
                                          const WeightLoader &weights,
                                          const Evaluating &how) {
  auto mesh = dist::meshOf(function);
  if (!mesh)
    return tl::unexpected(mesh.error());
  auto results = evaluateRanks(function, *mesh, inputs, weights, /*poison=*/true, how);
  if (!results)
    return tl::unexpected(results.error());
  Tensors assembled;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    Layout layout =
        layoutOf(dist::resultLayout(function, i), function.getResultTypes()[i]);
    Tensors parts;
    for (Tensors &rank : *results)
      parts.push_back(std::move(rank[i]));
    auto tensor = assemble(*mesh, layout, parts);
    if (!tensor)
      return makeError("result " + std::to_string(i) + ": " + tensor.error().message);
    assembled.push_back(std::move(*tensor));
  }
  return assembled;
}

Expected<void> partita::compareTensors(const HostTensor &actual,
                                       const HostTensor &expected, double rtol,
                                       double atol) {
  if (actual.shape != expected.shape || actual.type != expected.type)
    return makeError("the shapes or types differ");
  if (!isFloat(expected.type)) {
    auto a = reference::values<int64_t>(actual), e = reference::values<int64_t>(expected);
    for (size_t i = 0; i < e.size(); ++i)
      if (a[i] != e[i])
        return makeError("element " + std::to_string(i) + " is " + std::to_string(a[i]) +
                         ", expected " + std::to_string(e[i]));
    return {};
  }
  auto a = reference::values<double>(actual), e = reference::values<double>(expected);
  size_t worst = 0;
  double worstExcess = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if ((std::isnan(a[i]) && std::isnan(e[i])) || a[i] == e[i])
      continue;
    double excess = std::abs(a[i] - e[i]) / (atol + rtol * std::abs(e[i]));
    if (!(excess <= worstExcess)) {
      worstExcess = std::isnan(excess) ? INFINITY : excess;
      worst = i;
    }
  }
  if (worstExcess <= 1)
    return {};
  // As many digits as tell two numbers of the type apart.
  auto text = [&](double value, int digits) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    return std::string(buffer);
  };
  int digits = expected.type == DType::F64 ? 17 : 9;
  return makeError("element " + std::to_string(worst) + " is " + text(a[worst], digits) +
                   ", expected " + text(e[worst], digits) +
                   (std::isfinite(worstExcess)
                        ? " (" + text(worstExcess, 3) + " times the tolerance)"
                        : ""));
}

HostTensor partita::randomTensor(DType type, const std::vector<int64_t> &shape,
                                 uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + 1);
  auto count = static_cast<size_t>(elementCount(shape));
  if (isFloat(type)) {
    std::vector<double> values(count);
    for (double &v : values)
      v = static_cast<double>(static_cast<int64_t>(random() >> 11)) * 0x1p-52 - 1;
    return reference::tensor<double>(type, shape, values);
  }
  std::vector<int64_t> values(count);
  for (int64_t &v : values)
    v = static_cast<int64_t>(random() % (type == DType::Bool ? 2 : 4));
  return reference::tensor<int64_t>(type, shape, values);
}
