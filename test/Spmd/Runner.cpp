//===- Runner.cpp - One op, partitioned many ways, on virtual ranks -------===//
#include "Runner.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "partita/Reference/Kernels.h"
#include "passes/Partition/Passes.h"
#include "passes/Reference/Evaluate.h"
#include "passes/Shard/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

static WeightLoader noWeights() {
  return [](StringRef name) -> Expected<HostTensor> {
    return makeError("no weight '" + name.str() + "'");
  };
}

Expected<Runner> Runner::create(MLIRContext &context, const OpCase &opCase,
                                uint64_t seed) {
  Runner runner;
  auto program = buildProgram(context, opCase);
  if (!program)
    return tl::unexpected(program.error());
  runner.opCase = opCase;
  runner.program = std::move(*program);
  runner.seed = seed;
  Random random(seed);
  for (auto [i, type] : llvm::enumerate(runner.program.function.getArgumentTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    runner.inputs.push_back(draw(*dtypeOf(tensor.getElementType()),
                                 tensor.getShape().vec(), opCase.dataOf(i), random));
  }
  auto result = evaluate(runner.program.function, runner.inputs, noWeights());
  if (!result)
    return makeError(opCase.name() + ": " + result.error().message);
  runner.expected = std::move(*result);
  return runner;
}

Expected<Runner> Runner::changed(StringRef attribute, Attribute value) const {
  Runner other;
  other.opCase = opCase;
  Program &copy = other.program;
  ModuleOp original = program.module.get();
  copy.module = OwningOpRef<ModuleOp>(original.clone());
  copy.function = *copy.module->getOps<func::FuncOp>().begin();
  copy.op = &copy.function.front().front();
  if (value)
    copy.op->setAttr(attribute, value);
  else
    copy.op->removeAttr(attribute);
  ScopedDiagnosticHandler quiet(copy.op->getContext(),
                                [](Diagnostic &) { return success(); });
  if (failed(verify(*copy.module)))
    return makeError("there is no such op");
  auto rule = cast<ShardingRuleOpInterface>(copy.op).inferShardingRule();
  if (!rule)
    return tl::unexpected(rule.error());
  copy.rule = std::move(*rule);
  return other;
}

//===-- Partitioning ------------------------------------------------------===//

static Layout withoutPartial(Layout layout) {
  layout.partial.clear();
  return layout;
}

/// An argument that the partitioner made partial by to_partial steps becomes partial by
/// itself: those steps go.
static void dropToPartial(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    SmallVector<Operation *> chain;
    Value value = argument;
    while (value.hasOneUse()) {
      auto step = dyn_cast<comm::ToPartialOp>(*value.getUsers().begin());
      if (!step)
        break;
      chain.push_back(step);
      value = step.getResult();
    }
    if (value != argument)
      value.replaceAllUsesWith(argument);
    for (Operation *op : llvm::reverse(chain))
      op->erase();
  }
}

Expected<OwningOpRef<ModuleOp>>
Runner::partition(const Mesh &mesh, const std::vector<Strategy> &strategies, Feed feed) {
  MLIRContext *context = program.module->getContext();
  OpBuilder builder(context);
  Location location = builder.getUnknownLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  auto meshAttr = dist::MeshAttr::get(context, mesh);
  (*module)->setAttr(dist::meshAttr, meshAttr);
  auto layoutAttr = [&](const Layout &layout) {
    return dist::LayoutAttr::get(context, meshAttr, withoutPartial(layout));
  };
  for (size_t s = 0; s < strategies.size(); ++s) {
    builder.setInsertionPointToEnd(module->getBody());
    auto function = cast<func::FuncOp>(builder.clone(*program.function));
    function.setName("s" + std::to_string(s));
    Operation &op = function.front().front();
    dist::setStrategy(meshAttr, &op, program.rule, strategies[s]);
    if (feed == Feed::Direct) {
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        function.setArgAttr(i, dist::layoutAttr,
                            layoutAttr(operandLayout(program.rule, strategies[s], i)));
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        function.setResultAttr(i, dist::layoutAttr,
                               layoutAttr(resultLayout(program.rule, strategies[s], i)));
    }
    if (feed == Feed::Weights) {
      builder.setInsertionPointToStart(&function.front());
      for (BlockArgument argument : function.getArguments()) {
        auto weight = graph::WeightOp::create(
            builder, location, argument.getType(),
            builder.getStringAttr("w" + std::to_string(argument.getArgNumber())));
        argument.replaceAllUsesWith(weight.getResult());
      }
    }
  }
  std::string problem;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    problem += diagnostic.str() + "; ";
    return success();
  });
  PassManager manager(context);
  manager.addPass(createInsertReshardsPass());
  manager.addPass(createVerifyPlannedPass());
  manager.addPass(createPartitionPass());
  manager.addPass(createVerifyPartitionedPass());
  if (failed(manager.run(*module)))
    return makeError(opCase.name() + " on " + mesh.str() + ": " + problem);
  if (feed == Feed::Direct)
    for (auto function : module->getOps<func::FuncOp>())
      dropToPartial(function);
  return module;
}

//===-- Running -----------------------------------------------------------===//

/// The tensor of the rank whose coordinate along every partial entry is given: `layout`'s
/// kinds nest, the first outermost.
HostTensor Runner::partialPart(const Mesh &mesh, const Layout &layout, size_t operand,
                               int64_t rank) {
  HostTensor part = inputs[operand];
  uint64_t path = seed * 31 + operand;
  for (const PartialAxes &entry : layout.partial) {
    Random random(path);
    auto at = mesh.coordinate(rank, entry.axes);
    part =
        decompose(part, entry.kind, product(entry.axes), random)[static_cast<size_t>(at)];
    path = path * 1000003 + static_cast<uint64_t>(at);
  }
  return part;
}

/// Half a unit in the last place of 1.
static double rounding(DType type) {
  return type == DType::F16    ? 0x1p-11
         : type == DType::BF16 ? 0x1p-8
         : type == DType::F32  ? 0x1p-24
                               : 0x1p-53;
}

DType spmd::coarsestType(Operation *op) {
  DType coarsest = DType::F64;
  auto consider = [&](Value value) {
    DType type = *dtypeOf(getElementTypeOrSelf(value.getType()));
    if (isFloat(type) && rounding(type) > rounding(coarsest))
      coarsest = type;
  };
  llvm::for_each(op->getOperands(), consider);
  llvm::for_each(op->getResults(), consider);
  return coarsest;
}

Expected<void> spmd::compareResults(const HostTensor &actual, const HostTensor &expected,
                                    DType coarsest, double magnification) {
  double scale = 1;
  if (isFloat(expected.type))
    for (double v : reference::values<double>(expected))
      if (std::isfinite(v))
        scale = std::max(scale, std::abs(v));
  double tolerance = 16 * rounding(coarsest);
  return compareTensors(actual, expected, tolerance, tolerance * scale * magnification);
}

/// Sums and products of parts round; maxima and minima are exact.
static bool rounds(const Layout &layout) {
  return llvm::any_of(layout.partial, [](const PartialAxes &p) {
    return p.kind == ReduceKind::Sum || p.kind == ReduceKind::Prod;
  });
}

static void addSizes(std::vector<double> &sizes, const HostTensor &part) {
  size_t i = 0;
  for (double v : reference::values<double>(part))
    sizes[i++] += std::isfinite(v) ? std::abs(v) : 0;
}

static double largest(const HostTensor &tensor) {
  double most = 0;
  for (double v : reference::values<double>(tensor))
    if (std::isfinite(v))
      most = std::max(most, std::abs(v));
  return most;
}

Expected<void> Runner::check(ModuleOp module, const Mesh &mesh, const Strategy &strategy,
                             size_t number, Feed feed) {
  auto function = module.lookupSymbol<func::FuncOp>("s" + std::to_string(number));
  auto fail = [&](const std::string &what) {
    return makeError(opCase.name() + " on " + mesh.str() + " by " +
                     strategy.str(mesh, program.rule) + ": " + what);
  };
  Expected<Tensors> result = makeError("");
  // The condition of a sum of parts: what they lose by rounding is in proportion to the
  // sum of their sizes, which may be far above the size of the whole.
  double magnification = 1;
  if (feed == Feed::Direct) {
    RankTensors locals(static_cast<size_t>(mesh.numRanks()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      Layout layout = operandLayout(program.rule, strategy, i);
      std::vector<double> sizes(static_cast<size_t>(inputs[i].size()), 0);
      for (int64_t r = 0; r < mesh.numRanks(); ++r) {
        HostTensor part = partialPart(mesh, layout, i, r);
        if (isFloat(part.type) && rounds(layout))
          addSizes(sizes, part);
        locals[static_cast<size_t>(r)].push_back(
            localPart(mesh, withoutPartial(layout), r, part));
      }
      // Every part was seen by all ranks that differ in other axes only.
      double copies = static_cast<double>(mesh.numRanks()) /
                      static_cast<double>(product(layout.partialAxes()));
      for (double size : sizes)
        magnification =
            std::max(magnification, size / copies / std::max(largest(inputs[i]), 0.1));
    }
    result = evaluateLocals(function, locals, noWeights());
  } else {
    WeightLoader weights = [&](StringRef name) -> Expected<HostTensor> {
      return inputs[static_cast<size_t>(std::stoi(name.drop_front().str()))];
    };
    result = evaluatePartitioned(function, inputs, weights);
  }
  if (!result)
    return fail(result.error().message);
  for (size_t i = 0; i < expected.size(); ++i)
    if (auto ok = compareResults((*result)[i], expected[i], coarsestType(program.op),
                                 magnification);
        !ok)
      return fail((i == 0 ? "" : "result " + std::to_string(i) + ": ") +
                  ok.error().message);
  return {};
}
