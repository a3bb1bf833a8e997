//===- Shard.cpp - Give every op a strategy -------------------------------===//
#include "passes/Shard/KeptLayouts.h"
#include "passes/Shard/OptimizerStates.h"
#include "passes/Shard/Passes.h"
#include "passes/Shard/SearchPlan.h"

#include "dialects/Dist/Manual.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/Notes.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/File.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Served.h"
#include "partita/Rule/Sharding/Ties.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace partita {
#define GEN_PASS_DEF_SHARDPASS
#include "passes/Shard/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

/// What kind of thing an explanation is about; ops are called by their name alone.
static const char *kindText(FlowKind kind) {
  switch (kind) {
  case FlowKind::Argument:
    return "input ";
  case FlowKind::Source:
    return "weight ";
  case FlowKind::State:
    return "state ";
  case FlowKind::Sink:
    return "output ";
  case FlowKind::Compute:
    return "";
  }
}

/// The strategy of an op, where its axes came from, and what it did not take.
static std::string explainOp(const FlowGraph &graph, const Decision &decision,
                             int32_t op) {
  const FlowOp &it = graph.ops[op];
  const Strategy &strategy = decision.strategies[op];
  const AxisList axes = strategy.axes();
  std::string text = std::string(kindText(it.kind)) + "'" + it.name +
                     "': " + strategy.str(graph.mesh, it.rule);
  bool told = false;
  for (int32_t a : graph.allAtoms(op)) {
    // What a source was asked for is not what it has where its users read it otherwise.
    if (!overlap(axes, decision.propagated.axes[a]))
      continue;
    told = true;
    text += "; " + it.rule.loopName(static_cast<size_t>(graph.atoms[a].factor)) +
            " (of " + std::to_string(graph.atoms[a].size) +
            "): " + graph.mesh.str(decision.propagated.axes[a]) + " from the " +
            decision.propagated.origins[a].text;
    if (int32_t via = decision.propagated.origins[a].via; via >= 0)
      text += " by way of '" + graph.ops[via].name + "'";
  }
  for (const Passing &passing : strategy.passing)
    text += "; partial values over " + graph.mesh.str(passing.axes) +
            " pass through it unreduced";
  if (graph.mesh.numRanks() > 1 && axes.empty())
    text += "; whole on every rank";
  else if (it.isSource() && !told)
    text += "; as its users read it";
  for (const Conflict &conflict : decision.propagated.conflicts)
    if (conflict.op == op)
      text += "; " + toString(graph, conflict);
  std::string whole;
  for (size_t f = 0; f < it.rule.factors.size(); ++f)
    if (it.rule.factors[f].kind() == FactorKind::Replicate)
      whole += (whole.empty() ? "" : ", ") + it.rule.loopName(f);
  if (!whole.empty() && !it.whyWhole.empty())
    text += "; needed whole (" + whole + "): " + std::string(it.whyWhole);
  return text;
}

/// Where the ops stand that `message` names in quotes, as 'fc1': the error itself is the
/// function's.
static InFlightDiagnostic noteNamed(InFlightDiagnostic error,
                                    const dist::ProgramFlow &flow,
                                    const std::string &message) {
  std::set<std::string> told;
  for (size_t i = 0; i < flow.operations.size(); ++i) {
    const std::string &name = flow.graph.ops[i].name;
    if (flow.operations[i] && message.find("'" + name + "'") != std::string::npos &&
        told.insert(name).second)
      error.attachNote(flow.operations[i]->getLoc()) << "'" << name << "' is here";
  }
  return error;
}

namespace {
/// The nodes of a plan by name and op; several of one name and op in their order.
class PlanIndex {
public:
  explicit PlanIndex(const PlanStage &stage) {
    for (const PlanNode &node : stage.nodes)
      nodes[{node.name, node.op}].push_back(&node);
  }

  /// The next node of this name and op, of the phase if any is; null if there is none
  /// left. Sums for a norm's scale and bias have one name, and may be of two phases.
  const PlanNode *take(const std::string &name, const std::string &op, Phase phase) {
    names.insert(name);
    auto found = nodes.find({name, op});
    if (found == nodes.end() || found->second.empty())
      return nullptr;
    auto &left = found->second;
    auto next = std::ranges::find(left, phase, &PlanNode::phase);
    next = next == left.end() ? left.begin() : next;
    const PlanNode *node = *next;
    left.erase(next);
    return node;
  }

  /// A node that was not taken and whose name no op has; null if there is none. Others
  /// are of ops that an edited program had beside a node's.
  const PlanNode *unknown() const {
    for (const auto &[key, left] : nodes)
      if (!left.empty() && !names.count(key.first))
        return left.front();
    return nullptr;
  }

private:
  std::map<std::pair<std::string, std::string>, std::deque<const PlanNode *>> nodes;
  std::set<std::string> names;
};

struct ShardPass : partita::impl::ShardPassBase<ShardPass> {
  using ShardPassBase::ShardPassBase;
  explicit ShardPass(Deciding how) : how(std::move(how)), isRead(true) {}

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  LogicalResult run() {
    ModuleOp module = getOperation();
    if (auto ok = isRead ? Expected<void>() : readOptions(); !ok)
      return module.emitError(ok.error().message);
    if (!mesh.empty()) {
      auto given = Mesh::parse(std::string_view(mesh.getValue()));
      if (!given)
        return module.emitError(given.error().message);
      module->setAttr(dist::meshAttr, dist::MeshAttr::get(&getContext(), *given));
    }
    if (!how.allToAll || (how.plan && !how.plan->entry().calls.allToAll))
      module->setAttr(dist::noAllToAllAttr, UnitAttr::get(&getContext()));
    auto devices = dist::meshOf(module);
    if (!devices)
      return module.emitError(devices.error().message);
    for (auto function : module.getOps<func::FuncOp>())
      // One that an op runs is decided with that op.
      if (!function.isExternal() && !isRun(module, function) &&
          failed(shard(function, *devices)))
        return failure();
    return success();
  }

  /// Whoever makes the pass in a program has read what it says.
  Expected<void> readOptions() {
    isRead = true;
    auto known = shardModeFromName(mode);
    if (!known)
      return makeError("unknown mode \"" + mode + "\"");
    how.mode = *known;
    how.allToAll = allToAll;
    how.hintsOutput = hintsOutput;
    how.explain = explain;
    Expected<void> ok;
    if (!plan.empty())
      ok = readPlan(plan).map([&](Plan read) { how.plan = std::move(read); });
    else if (!hints.empty())
      ok = readHints(hints).map([&](GivenHints read) { how.hints = std::move(read); });
    if (ok && !cluster.empty())
      ok = how.machine.readCluster(cluster);
    return ok && !memory.empty() ? how.machine.readMemory(memory) : ok;
  }

  LogicalResult shard(func::FuncOp function, const Mesh &devices) {
    auto flow = dist::buildFlow(function, devices, dist::Callees::Inlined);
    if (failed(flow))
      return failure();
    if (how.plan)
      return followPlan(function, std::move(*flow));
    if (how.mode == ShardMode::Manual && how.hints)
      return emitError(function.getLoc(),
                       how.hints->text + ": mode manual takes no hints: nothing is split "
                                         "but by the nodes of the graph");
    FlowGraph &graph = (*flow)->graph;
    graph.finalize();
    Hints parsed;
    if (how.hints) {
      auto given = how.hints->on(graph);
      if (!given)
        return function.emitError(given.error().message);
      if (how.stage < 0 && !(given->stages.empty() && given->groups.empty()))
        return function.emitError(how.hints->text +
                                  ": stages are made by partita compile of a model");
      parsed = how.stage >= 0 ? hintsFor(graph, *given) : std::move(*given);
    }
    if (auto ok = checkManual(**flow, parsed); !ok)
      return emitError(function.getLoc(), ok.error().message);
    if (!how.hintsOutput.empty())
      if (auto ok = writeFile(how.hintsOutput, parsed.json()); !ok)
        return function.emitError(ok.error().message);
    bool undecided =
        !how.hints ||
        (parsed.empty() &&
         (!parsed.stages.empty() || !parsed.groups.empty() || !parsed.dataset.empty()));
    bool searches = how.mode == ShardMode::Auto && undecided && devices.numRanks() > 1;
    hintBorders(function, **flow, parsed);
    auto kept = keptLayouts(function, **flow, parsed);
    if (!kept)
      return function.emitError(kept.error().message);
    auto decision =
        searches ? decideBySearch(function, **flow, how.machine, pinsFor(graph, *kept))
                 : decide(graph, how.mode, parsed);
    if (decision)
      decision = withOptimizer(function, **flow, *kept, searches, std::move(*decision));
    if (decision)
      keepLayouts(graph, *kept, *decision);
    else
      return noteNamed(emitError(withSubjects(function.getLoc(), decision.error()),
                                 decision.error().message),
                       **flow, decision.error().message);
    if (how.narrower)
      if (std::string note = narrowedNote(graph, *decision, how.machine, *how.narrower);
          !note.empty())
        decision->notes.push_back(std::move(note));
    numConflicts += static_cast<unsigned>(decision->propagated.conflicts.size());
    settleSources(graph, decision->strategies);
    dist::writeStrategies(function, **flow, decision->strategies);
    // Of bodies too: a search with other layouts given may have served them otherwise.
    for (auto each : getOperation().getOps<FunctionOpInterface>())
      dist::clearServed(each);
    for (const auto &[value, served] : decision->servings)
      dist::writeServed(function, **flow, value,
                        servedEntries(graph, decision->strategies, value, served));
    // Only hints speak of dims as the model has them.
    getOperation().walk([](Operation *op) {
      op->removeAttr("graph.operand_order");
      op->removeAttr("graph.absorbed");
    });
    for (const std::string &note : decision->notes)
      emitRemark(function.getLoc(), note);
    return explainOps(function, graph, *decision);
  }

  /// A graph that is written per rank says everything itself; parts of a graph that are
  /// written so are what hints name so.
  Expected<void> checkManual(const dist::ProgramFlow &flow, const Hints &hints) const {
    std::set<const SubgraphHint *> unused;
    for (const SubgraphHint &hint : hints.subgraphs)
      if (hint.mode == ShardMode::Manual)
        unused.insert(&hint);
    const std::set<const SubgraphHint *> all = unused;
    for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
      if (!isa_and_nonnull<dist::ManualOp>(flow.operations[i]))
        continue;
      bool isNamedSo = how.mode == ShardMode::Manual;
      for (const SubgraphHint *hint : all)
        if (isNamed(flow.graph, flow.graph.ops[i], hint->glob))
          isNamedSo = unused.erase(hint) || true;
      if (!isNamedSo)
        return makeError("'" + flow.graph.ops[i].name +
                         "' is written per rank, which --mode manual compiles; beside "
                         "what --mode " +
                         std::string(name(how.mode)) + " splits, \"subgraphs\": {\"" +
                         flow.graph.ops[i].name +
                         "\": \"manual\"} of a hints file says so");
    }
    if (!unused.empty())
      return makeError(hints.file + ": no node that '" + (*unused.begin())->glob +
                       "' names is written per rank");
    return {};
  }

  /// Tells if a border is one of the program, beyond which there is no graph: in mode
  /// manual all inputs and outputs are whole, but for states and what crosses stages.
  bool liesAsInside(func::FuncOp function, dist::ManualOp op) const {
    if (how.mode != ShardMode::Manual || how.stage >= 0)
      return true;
    if (op.getEnter()) {
      auto argument = dyn_cast<BlockArgument>(op->getOperand(0));
      return argument && dist::argumentState(function, argument.getArgNumber());
    }
    return llvm::any_of(op->getUses(), [&](OpOperand &use) {
      return use.getOwner() == function.front().getTerminator() &&
             dist::resultState(function, use.getOperandNumber());
    });
  }

  /// Values that enter or leave lie outside as inside, unless hints ask for another
  /// layout.
  void hintBorders(func::FuncOp function, const dist::ProgramFlow &flow,
                   Hints &hints) const {
    for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
      auto op = dyn_cast_or_null<dist::ManualOp>(flow.operations[i]);
      if (!op || !(op.getEnter() || op.getLeave()) || !liesAsInside(function, op))
        continue;
      std::vector<DimHint> dims;
      const dist::LayoutAttr layout = op.getEnter() ? op.getTo() : op.getFrom();
      for (const DimLayout &dim : layout.getLayout().dims) {
        DimHint &hint = dims.emplace_back();
        if (dim.factors.size() != 1 || dim.factors[0].axes.empty())
          continue;
        hint.open = false;
        for (const AxisRef &axis : dim.factors[0].axes)
          hint.axes.push_back(layout.devices().str(axis));
      }
      NodeHint hint{flow.graph.ops[i].name, {}, {}};
      (op.getEnter() ? hint.in : hint.out) = {dims};
      hints.nodes.push_back(std::move(hint));
    }
  }

  /// Parts of moments, gradients and weights for ranks that hold the same, as the
  /// training step asks. A search is done again with them: updates and all else follow.
  Expected<Decision> withOptimizer(func::FuncOp function, const dist::ProgramFlow &flow,
                                   const KeptLayouts &kept, bool searches,
                                   Decision decision) {
    std::vector<std::string> notes;
    auto homes = homesInParts(function, flow, decision.strategies, kept, notes);
    if (!homes)
      return decision;
    if (searches) {
      auto again =
          decideBySearch(function, flow, how.machine, pinsFor(flow.graph, *homes));
      if (!again)
        return again;
      decision = std::move(*again);
    } else {
      placeOptimizer(flow.graph, *homes, parametersOf(function, flow), decision);
    }
    llvm::append_range(decision.notes, notes);
    return decision;
  }

  /// The layout of a plan for a tensor of this shape.
  static Expected<dist::LayoutAttr> readLayout(func::FuncOp function,
                                               const std::string &text,
                                               const std::vector<int64_t> &shape) {
    dist::MeshAttr mesh = dist::findMesh(function);
    auto layout = Layout::parse(text, mesh.getMesh());
    if (!layout)
      return tl::unexpected(layout.error());
    if (layout->globalShape() != shape)
      return makeError("layout " + text + " is for another shape");
    return dist::LayoutAttr::get(function.getContext(), mesh, layout->canonicalized());
  }

  /// An error that says of what plan it is.
  InFlightDiagnostic mismatch(func::FuncOp function, const Twine &what) const {
    return emitError(function.getLoc(),
                     "'" + how.plan->file + "' is not a plan for this model: ")
           << what;
  }

  LogicalResult followPlan(func::FuncOp function,
                           std::unique_ptr<dist::ProgramFlow> flow) {
    const std::vector<PlanStage> &stages = how.plan->entry().stages;
    auto number = static_cast<size_t>(std::max<int>(0, how.stage));
    if (number >= stages.size())
      return mismatch(function, "it has no stage " + Twine(number));
    const PlanStage &own = stages[number];
    if (own.mesh != flow->graph.mesh.str())
      return mismatch(function, "its mesh is \"" + own.mesh + "\", not \"" +
                                    flow->graph.mesh.str() + "\"");
    if (applyMarks(*flow, own)) {
      auto again = dist::buildFlow(function, flow->graph.mesh, dist::Callees::Inlined);
      if (failed(again))
        return failure();
      flow = std::move(*again);
    }
    return applyPlan(function, *flow, own);
  }

  /// The plan says what is computed again; `true`: other ops than before.
  static bool applyMarks(const dist::ProgramFlow &flow, const PlanStage &own) {
    bool changes = false;
    PlanIndex index(own);
    for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
      Operation *op = flow.operations[i];
      if (!op || flow.isCopy(static_cast<int32_t>(i)))
        continue;
      const PlanNode *node =
          index.take(flow.graph.ops[i].name, op->getName().getStringRef().str(),
                     flow.graph.ops[i].phase);
      if (!node || node->isRepeated == (dist::recomputeOf(op) != nullptr))
        continue;
      changes = true;
      if (node->isRepeated)
        op->setAttr(recomputeAttr,
                    dist::RecomputeAttr::get(op->getContext(), false, false));
      else
        op->removeAttr(recomputeAttr);
    }
    return changes;
  }

  /// How the users of values are served; of those that the plan does not name, as usual.
  static Expected<void> applyValues(func::FuncOp function, const dist::ProgramFlow &flow,
                                    const PlanStage &own) {
    std::map<std::pair<std::string, int64_t>, std::string> served;
    for (const PlanValue &value : own.values)
      served.emplace(std::pair(value.name, value.number), value.served);
    std::map<std::string, int64_t> seen;
    for (size_t v = 0; v < flow.graph.values.size(); ++v) {
      const std::string &name = flow.graph.values[v].name;
      auto found = served.find({name, ++seen[name]});
      if (found == served.end())
        continue;
      auto entries = parseServed(found->second, flow.graph.mesh);
      if (!entries)
        return makeError("value '" + name + "': " + entries.error().message);
      if (!entries->empty())
        dist::writeServed(function, flow, static_cast<int32_t>(v), *entries);
      served.erase(found);
    }
    if (served.empty())
      return {};
    const auto &[name, number] = served.begin()->first;
    return makeError("the model has no value named '" + name + "'" +
                     (seen.count(name) ? " of number " + std::to_string(number) : ""));
  }

  /// The strategies of a plan, which must be for this program and mesh.
  LogicalResult applyPlan(func::FuncOp function, dist::ProgramFlow &flow,
                          const PlanStage &own) {
    auto mismatch = [&](const Twine &what) { return this->mismatch(function, what); };
    auto differs = [&](size_t there, size_t here, const char *what) -> LogicalResult {
      if (there == here)
        return success();
      return mismatch("it has " + Twine(there) + " " + what + ", the model " +
                      Twine(here));
    };
    if (failed(differs(own.arguments.size(), function.getNumArguments(), "inputs")) ||
        failed(differs(own.results.size(), function.getNumResults(), "outputs")))
      return failure();
    // By name, so that a plan outlives a change in the order of ops.
    PlanIndex index(own);
    for (size_t i = 0; i < flow.graph.ops.size(); ++i) {
      Operation *op = flow.operations[i];
      if (!op || op->getNumOperands() == 0 || flow.isCopy(static_cast<int32_t>(i)))
        continue;
      const FlowOp &entry = flow.graph.ops[i];
      StringRef kind = op->getName().getStringRef();
      const PlanNode *node = index.take(entry.name, kind.str(), entry.phase);
      if (!node)
        return mismatch("it has no " + kind + " named '" + entry.name + "'");
      if (node->phase != entry.phase)
        return mismatch("op '" + node->name + "' is of phase " +
                        std::string(name(node->phase)) + " there, of " +
                        std::string(name(entry.phase)) + " in the model");
      auto strategy = Strategy::parse(node->strategy, flow.graph.mesh, entry.rule);
      if (!strategy)
        return mismatch("op '" + node->name + "': " + strategy.error().message);
      dist::setStrategy(dist::findMesh(function), op, entry.rule, *strategy);
    }
    if (auto ok = applyValues(function, flow, own); !ok)
      return mismatch(ok.error().message);
    if (const PlanNode *left = index.unknown())
      return mismatch("the model has no " + left->op + " named '" + left->name + "'");
    for (auto [i, tensor] : llvm::enumerate(own.arguments)) {
      auto argument = function.getArgument(static_cast<unsigned>(i));
      auto layout = readLayout(function, tensor.layout, shapeOf(argument));
      if (!layout)
        return mismatch("input '" + tensor.name + "': " + layout.error().message);
      function.setArgAttr(static_cast<unsigned>(i), dist::layoutAttr, *layout);
    }
    auto results = function.front().getTerminator()->getOperands();
    for (auto [i, tensor] : llvm::enumerate(own.results)) {
      auto layout = readLayout(function, tensor.layout, shapeOf(results[i]));
      if (!layout)
        return mismatch("output '" + tensor.name + "': " + layout.error().message);
      function.setResultAttr(static_cast<unsigned>(i), dist::layoutAttr, *layout);
    }
    if (!flow.hasCalls)
      return success();
    if (own.functions.empty())
      return settleCalls(function, flow);
    for (const PlanFunction &planned : own.functions)
      if (auto ok = applyEnds(function, planned); !ok)
        return mismatch("function '" + planned.name + "': " + ok.error().message);
    return success();
  }

  /// The layouts of what goes into a function that an op runs, and of what comes out.
  Expected<void> applyEnds(func::FuncOp main, const PlanFunction &planned) {
    auto function = getOperation().lookupSymbol<func::FuncOp>(planned.name);
    if (!function)
      return makeError("the model has none");
    if (planned.arguments.size() != function.getNumArguments() ||
        planned.results.size() != function.getNumResults())
      return makeError("it has other arguments or results");
    auto shape = [](Type type) { return cast<RankedTensorType>(type).getShape().vec(); };
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto layout =
          readLayout(main, planned.arguments[i], shape(function.getArgumentTypes()[i]));
      if (!layout)
        return tl::unexpected(layout.error());
      function.setArgAttr(i, dist::layoutAttr, *layout);
    }
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto layout =
          readLayout(main, planned.results[i], shape(function.getResultTypes()[i]));
      if (!layout)
        return tl::unexpected(layout.error());
      function.setResultAttr(i, dist::layoutAttr, *layout);
    }
    return {};
  }

  /// A plan that does not say where what loops carry lies has the strategies of all ops:
  /// it follows.
  static LogicalResult settleCalls(func::FuncOp function, dist::ProgramFlow &flow) {
    auto strategies = dist::readStrategies(function, flow);
    if (failed(strategies))
      return failure();
    settleEnds(flow.graph, *strategies);
    dist::MeshAttr mesh = dist::findMesh(function);
    for (size_t i = 0; i < flow.graph.ops.size(); ++i)
      if (const dist::FlowEnd &end = flow.ends[i]; end.op && end.op != function) {
        Layout layout = endLayout(flow.graph, static_cast<int32_t>(i), (*strategies)[i]);
        end.setLayout(
            dist::LayoutAttr::get(function.getContext(), mesh, layout.canonicalized()));
      }
    return success();
  }

  /// For explanations: a weight is told to have the layout in which its users read it.
  void settleSources(const FlowGraph &graph, std::vector<Strategy> &strategies) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Source)
        continue;
      auto served = serveUses(graph, strategies, op.results[0]);
      strategies[i] =
          served.size() == 1 && served[0].layout.partial.empty()
              ? strategyForLayout(op.rule, op.rule.results[0], served[0].layout)
              : Strategy::replicated(op.rule);
    }
  }

  LogicalResult explainOps(func::FuncOp function, const FlowGraph &graph,
                           const Decision &decision) {
    if (how.explain.empty())
      return success();
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (!isNamed(graph, graph.ops[i], how.explain))
        continue;
      found = true;
      emitRemark(function.getLoc(), explainOp(graph, decision, static_cast<int32_t>(i)));
    }
    if (!found && how.stage < 0) // another stage may have it
      return function.emitError("no node and no module is named '" + how.explain + "'" +
                                nearMisses(graph, how.explain));
    return success();
  }

  Deciding how;
  bool isRead = false; ///< whether `how` says what the options do
};
} // namespace

std::unique_ptr<Pass> partita::createShardPass(Deciding how) {
  return std::make_unique<ShardPass>(std::move(how));
}
