//===- ReadyRules.cpp - Hints by the structure of a model ------------------===//
#include "partita/Rule/Decide/ReadyRules.h"

#include "NodeInputs.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/ModuleNames.h"

#include <algorithm>
#include <filesystem>

using namespace partita;

static constexpr std::string_view megatron = "megatron", sequence = "megatron-sp",
                                  expert = "megatron-ep", sharded = "fsdp";

bool partita::isReadyRule(std::string_view text) {
  std::string_view rule = text.substr(0, text.find(':'));
  return rule == megatron || rule == sequence || rule == expert || rule == sharded;
}

static std::vector<std::string> axisTexts(const Mesh &mesh, const AxisList &axes) {
  std::vector<std::string> texts;
  for (const AxisRef &axis : axes)
    texts.push_back(mesh.str(axis));
  return texts;
}

/// A hint for one dim that gives its atoms these axes: plain where that means the same.
static DimHint dimHint(const FlowGraph &graph, const std::vector<int32_t> &atoms,
                       const std::vector<AxisList> &lists, const AxisList &axes) {
  DimHint hint;
  hint.open = false;
  auto plain = distribute(graph, atoms, axes);
  if (plain && *plain == lists) {
    hint.axes = axisTexts(graph.mesh, axes);
    return hint;
  }
  for (size_t i = 0; i < atoms.size(); ++i) {
    hint.factors.push_back(graph.atoms[atoms[i]].size);
    hint.factorAxes.push_back(axisTexts(graph.mesh, lists[i]));
  }
  return hint;
}

namespace {
/// Writes hints for operands and results of ops, by the name of the module that has the
/// op alone, else by the node's.
class HintWriter {
public:
  explicit HintWriter(const FlowGraph &graph) : graph(graph), modules(moduleOps(graph)) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].kind == FlowKind::Compute)
        nodes[graph.ops[i].name].push_back(static_cast<int32_t>(i));
  }

  /// Hints dim `dim` of an operand (as its op has it), whose atoms get `lists`; other
  /// dims are open. Where the operand is computed inside the op's node (a quantized
  /// product subtracts its zero point first), the hint is for the input of the node from
  /// which the dim comes as it is. An error where there is none.
  Expected<void> addInput(int32_t op, int32_t operand, size_t dim,
                          const std::vector<AxisList> &lists, const AxisList &axes,
                          int priority = 0) {
    std::string name = moduleOf(op, operand);
    const std::vector<int32_t> &ops =
        name.empty() ? nodes.at(graph.ops[op].name) : modules.at(name);
    std::vector<NodeInput> inputs = inputsOf(graph, ops, Repeats::Merged);
    auto at = fromOutside({op, operand}, dim, ops, inputs);
    auto atoms =
        at ? atomsOf(inputs[at->input].uses.front(), at->dim) : std::vector<int32_t>();
    if (atoms.size() != lists.size())
      return makeError("no input of '" + graph.ops[op].name + "' has dim " +
                       std::to_string(dim) + " of operand " + std::to_string(operand) +
                       " of its product, so that a hint for the node cannot name it");
    const NodeInput &input = inputs[at->input];
    const FlowUse &use = input.uses.front();
    const FlowOp &reader = graph.ops[use.op];
    auto o = static_cast<size_t>(use.operand);
    const bool isOrdered =
        o < reader.operandOrder.size() && !reader.operandOrder[o].empty();
    std::vector<DimHint> dims(reader.rule.operands[o].size());
    for (size_t d = 0; d < dims.size(); ++d)
      if ((isOrdered ? static_cast<size_t>(reader.operandOrder[o][d]) : d) == at->dim)
        dims[d] = dimHint(graph, atoms, lists, axes);
    NodeHint hint{name.empty() ? graph.ops[op].name : name, {}, {}, priority};
    hint.in.resize(at->input + 1);
    hint.in.back() = std::move(dims);
    hints.push_back(std::move(hint));
    return {};
  }

  /// The same for the result of an op that leaves its node, after all others.
  void addOutput(int32_t op, size_t dim, DimHint atDim) {
    std::vector<DimHint> dims(graph.ops[op].rule.results[0].size());
    dims[dim] = std::move(atDim);
    std::vector<int32_t> outputs = outputsOf(graph, nodes.at(graph.ops[op].name));
    auto number = static_cast<size_t>(
        std::find(outputs.begin(), outputs.end(), graph.ops[op].results[0]) -
        outputs.begin());
    NodeHint hint{graph.ops[op].name, {}, {}, 1};
    // A result that does not leave is the first of none.
    hint.out.resize(number < outputs.size() ? number + 1 : 1);
    hint.out.back() = std::move(dims);
    hints.push_back(std::move(hint));
  }

  /// Equal layers as one: "h.*.mlp.c_proj" where that names no other node or module.
  std::vector<NodeHint> take() {
    std::map<std::string, std::vector<size_t>> groups;
    for (size_t i = 0; i < hints.size(); ++i)
      groups[layerGlob(hints[i].glob)].push_back(i);
    std::set<std::string> alone;
    for (const auto &[glob, group] : groups)
      if (group.size() > 1 && isAlone(glob, group))
        alone.insert(glob);
    std::vector<NodeHint> result;
    for (size_t i = 0; i < hints.size(); ++i) {
      std::string glob = layerGlob(hints[i].glob);
      if (!alone.count(glob))
        result.push_back(hints[i]);
      else if (groups[glob].front() == i) {
        result.push_back(hints[i]);
        result.back().glob = glob;
      }
    }
    return result;
  }

private:
  /// The innermost module that has the work of `op` and no other, if the operand comes
  /// from outside and the path is no name of a node too; else "".
  std::string moduleOf(int32_t op, int32_t operand) const {
    auto path = graph.modules.find(graph.ops[op].name);
    if (path == graph.modules.end() || nodes.count(path->second))
      return "";
    // A module that repeats (a shared layer) or has other work is not this node.
    const std::vector<int32_t> &ops = modules.at(path->second);
    auto isBig = [&](int32_t o) { return graph.ops[o].flops > graph.ops[op].flops / 8; };
    int32_t producer = graph.values[graph.ops[op].operands[operand]].producer;
    bool isOutside = !std::binary_search(ops.begin(), ops.end(), producer);
    return isOutside && std::count_if(ops.begin(), ops.end(), isBig) == 1 ? path->second
                                                                          : "";
  }

  struct Place {
    size_t input, dim;
  };

  std::vector<int32_t> atomsOf(const FlowUse &use, size_t dim) const {
    return graph.dimAtoms(use.op, graph.ops[use.op].rule.operands[use.operand][dim]);
  }

  /// The input, as hints count, and its dim that a dim of an operand is: followed back
  /// through those of `ops` that compute the operand and have the dim as it is.
  std::optional<Place> fromOutside(FlowUse use, size_t dim,
                                   const std::vector<int32_t> &ops,
                                   const std::vector<NodeInput> &inputs) const {
    for (;;) {
      auto found =
          std::find_if(inputs.begin(), inputs.end(), [&](const NodeInput &input) {
            return std::find(input.uses.begin(), input.uses.end(), use) !=
                   input.uses.end();
          });
      if (found != inputs.end())
        return Place{static_cast<size_t>(found - inputs.begin()), dim};
      const FlowValue &value = graph.values[graph.ops[use.op].operands[use.operand]];
      if (!std::binary_search(ops.begin(), ops.end(), value.producer))
        return std::nullopt; // made for the node by its import
      const ShardingRule &rule = graph.ops[value.producer].rule;
      const std::vector<int32_t> &loops = rule.results[value.result][dim];
      bool isFound = false;
      for (size_t o = 0; o < rule.operands.size() && !isFound; ++o)
        for (size_t d = 0; d < rule.operands[o].size() && !isFound; ++d)
          if (!loops.empty() && rule.operands[o][d] == loops) {
            use = {value.producer, static_cast<int32_t>(o)};
            dim = d;
            isFound = true;
          }
      if (!isFound)
        return std::nullopt;
    }
  }

  bool isAlone(const std::string &glob, const std::vector<size_t> &group) const {
    std::set<std::string> names;
    for (size_t i : group) {
      names.insert(hints[i].glob);
      if (!(hints[i] == hints[group[0]]))
        return false;
    }
    auto isForeign = [&](const auto &entry) {
      return matchesGlob(glob, entry.first) && !names.count(entry.first);
    };
    return std::none_of(nodes.begin(), nodes.end(), isForeign) &&
           std::none_of(modules.begin(), modules.end(), isForeign);
  }

  const FlowGraph &graph;
  std::map<std::string, std::vector<int32_t>> modules, nodes;
  std::vector<NodeHint> hints;
};
} // namespace

/// What is behind the colon.
static std::string_view argumentOf(std::string_view text) {
  size_t colon = text.find(':');
  return colon == text.npos ? std::string_view() : text.substr(colon + 1);
}

Expected<AxisList> partita::readyAxis(const Mesh &mesh, std::string_view text) {
  std::string_view name = argumentOf(text);
  if (!name.empty()) {
    auto axis = mesh.parseAxis(std::string(name));
    return axis ? Expected<AxisList>(AxisList{*axis}) : tl::unexpected(axis.error());
  }
  AxisList last;
  for (const AxisRef &axis : mesh.all()) {
    if (mesh.str(axis) == "tp")
      return AxisList{axis};
    if (axis.size > 1)
      last = {axis};
  }
  return last;
}

/// The dim of a tensor that an atom is part of.
static std::optional<size_t> dimWith(const FlowGraph &graph, int32_t op,
                                     const TensorFactors &tensor,
                                     const std::set<int32_t> &atoms) {
  for (size_t d = 0; d < tensor.size(); ++d)
    for (int32_t a : graph.dimAtoms(op, tensor[d]))
      if (atoms.count(a))
        return d;
  return std::nullopt;
}

static Expected<void> hintRow(const FlowGraph &graph, const Block &block,
                              const AxisList &axes, std::string_view rule,
                              HintWriter &writer) {
  std::vector<int32_t> usable;
  int64_t size = 1;
  for (size_t i = 0; i < block.atoms.size(); ++i)
    if (block.usable[i]) {
      usable.push_back(block.atoms[i]);
      size *= graph.atoms[block.atoms[i]].size;
    }
  auto lists = distribute(graph, usable, axes, 0);
  if (!lists)
    return makeError("rule '" + std::string(rule) + "': the block of '" +
                     graph.ops[block.row].name + "' has " + std::to_string(size) +
                     (block.isAttention ? " heads" : " columns") +
                     ", which cannot be split by " + graph.mesh.str(axes));
  std::vector<AxisList> all(block.atoms.size());
  for (size_t i = 0, u = 0; i < all.size(); ++i)
    if (block.usable[i])
      all[i] = (*lists)[u++];
  const TensorFactors &tensor = graph.ops[block.row].rule.operands[block.operand];
  auto dim = dimWith(graph, block.row, tensor, {usable.begin(), usable.end()});
  if (auto ok = writer.addInput(block.row, block.operand, *dim, all, axes); !ok)
    return makeError("rule '" + std::string(rule) + "': " + ok.error().message);
  return {};
}

//===-- Heads and experts -------------------------------------------------===//

/// The dim of an op's result that has these loops, if nothing else of its node reads the
/// result: it leaves the node as it is.
static std::optional<size_t> leavingDim(const FlowGraph &graph, int32_t number,
                                        const std::vector<int32_t> &loops) {
  const FlowOp &op = graph.ops[number];
  for (const FlowUse &use : graph.values[op.results[0]].uses)
    if (graph.ops[use.op].name == op.name)
      return std::nullopt;
  const TensorFactors &result = op.rule.results[0];
  auto found = std::find(result.begin(), result.end(), loops);
  return found == result.end() ? std::nullopt
                               : std::optional<size_t>(found - result.begin());
}

/// Splits the vocabulary where that can be, after all else: the logits stay in parts.
static void hintHeads(const FlowGraph &graph, const std::vector<Block> &blocks,
                      const AxisList &axes, HintWriter &writer) {
  for (const WeightLoop &head : findHeads(graph, blocks)) {
    const std::vector<int32_t> &loops =
        graph.ops[head.op].rule.operands[head.operand][head.dim];
    const std::vector<int32_t> atoms = graph.dimAtoms(head.op, loops);
    auto lists = distribute(graph, atoms, axes, 0);
    if (!lists) // logits that are cut otherwise stay whole
      continue;
    auto ok = writer.addInput(head.op, head.operand, head.dim, *lists, axes,
                              /*priority=*/1);
    // A weight that import has made of the file's has no name; the result may have one.
    if (auto dim = leavingDim(graph, head.op, loops); !ok && dim)
      writer.addOutput(head.op, *dim, dimHint(graph, atoms, *lists, axes));
  }
}

/// Each expert whole on one coordinate of the axis. `found`: products that are experts'.
static Expected<void> hintExperts(const FlowGraph &graph,
                                  const std::vector<WeightLoop> &found,
                                  const AxisList &axes, HintWriter &writer) {
  for (const WeightLoop &loop : found) {
    const FlowOp &op = graph.ops[loop.op];
    const std::vector<int32_t> &dim = op.rule.operands[loop.operand][loop.dim];
    auto lists = distribute(graph, graph.dimAtoms(loop.op, dim), axes, 0);
    if (!lists)
      return makeError("rule 'megatron-ep': '" + op.name + "' has " +
                       std::to_string(op.rule.factors[dim[0]].size) +
                       " experts, which cannot be split by " + graph.mesh.str(axes));
    if (auto ok = writer.addInput(loop.op, loop.operand, loop.dim, *lists, axes); !ok)
      return makeError("rule 'megatron-ep': " + ok.error().message);
  }
  return {};
}

//===-- Positions of the sequence -----------------------------------------===//

/// Every atom that is linked to one of `start`, however far, sources left out.
static std::set<int32_t> linked(const FlowGraph &graph, std::vector<int32_t> start) {
  std::set<int32_t> seen(start.begin(), start.end());
  while (!start.empty()) {
    int32_t atom = start.back();
    start.pop_back();
    for (const Atom::Link &link : graph.atoms[atom].links)
      if (link.common == 0 &&
          graph.ops[graph.atoms[link.atom].op].kind == FlowKind::Compute &&
          seen.insert(link.atom).second)
        start.push_back(link.atom);
  }
  return seen;
}

/// The pieces that run over positions: loops of scores that only one operand has, but not
/// what is a column of the products behind them.
static std::set<int32_t> positions(const FlowGraph &graph,
                                   const std::vector<Block> &blocks) {
  std::vector<int32_t> start;
  for (const Block &block : blocks) {
    if (block.scores.empty())
      continue;
    int32_t scores = *block.scores.begin();
    const ShardingRule &rule = graph.ops[scores].rule;
    for (int32_t a : graph.allAtoms(scores)) {
      auto f = static_cast<size_t>(graph.atoms[a].factor);
      bool inResult = false, inOperand[2] = {false, false};
      for (const auto &dim : rule.results[0])
        inResult |= std::count(dim.begin(), dim.end(), f) != 0;
      for (size_t o = 0; o < 2; ++o)
        for (const auto &dim : rule.operands[o])
          inOperand[o] |= std::count(dim.begin(), dim.end(), f) != 0;
      if (inResult && inOperand[0] != inOperand[1])
        start.push_back(a);
    }
  }
  return linked(graph, std::move(start));
}

/// Whether an op only gives its elements another shape: of what it makes, sums and maxima
/// alike pass, as they do of what it reads.
static bool isView(const FlowGraph &graph, const FlowOp &op) {
  if (op.kind != FlowKind::Compute || op.operands.size() != 1 || op.results.size() != 1)
    return false;
  auto passes = [&](ReduceKind kind) {
    return std::any_of(op.rule.linear.begin(), op.rule.linear.end(),
                       [&](const LinearSet &set) { return set.kind == kind; });
  };
  return passes(ReduceKind::Sum) && passes(ReduceKind::Max) &&
         elementCount(graph.values[op.operands[0]].shape) ==
             elementCount(graph.values[op.results[0]].shape);
}

/// Whether an op only gives its elements another type of float.
static bool isCast(const FlowGraph &graph, const FlowOp &op) {
  if (op.kind != FlowKind::Compute || op.operands.size() != 1 || op.results.size() != 1)
    return false;
  const FlowValue &from = graph.values[op.operands[0]], &to = graph.values[op.results[0]];
  return isFloat(from.type) && isFloat(to.type) && from.type != to.type &&
         from.shape == to.shape;
}

/// The op behind whose result nothing but views and casts lies before an operand is read.
/// There batch and positions are dims of their own, which rows of a flattened matrix are
/// not.
static int32_t makerOf(const FlowGraph &graph, int32_t value) {
  for (;;) {
    int32_t producer = graph.values[value].producer;
    if (!isView(graph, graph.ops[producer]) && !isCast(graph, graph.ops[producer]))
      return producer;
    value = graph.ops[producer].operands[0];
  }
}

static Expected<void> hintPositions(const FlowGraph &graph,
                                    const std::vector<Block> &blocks,
                                    const AxisList &axes, HintWriter &writer) {
  std::set<int32_t> sequenceAtoms = positions(graph, blocks), done;
  for (const Block &block : blocks)
    for (int32_t column : block.columns)
      for (size_t o = 0; o < 2; ++o) {
        int32_t maker = makerOf(graph, graph.ops[column].operands[o]);
        const FlowOp &op = graph.ops[maker];
        if (op.kind != FlowKind::Compute || !done.insert(maker).second)
          continue;
        auto dim = dimWith(graph, maker, op.rule.results[0], sequenceAtoms);
        if (!dim)
          continue;
        auto atoms = graph.dimAtoms(maker, op.rule.results[0][*dim]);
        std::vector<int32_t> those;
        for (int32_t a : atoms)
          if (sequenceAtoms.count(a))
            those.push_back(a);
        auto lists = distribute(graph, those, axes, 0);
        if (!lists)
          return makeError("rule 'megatron-sp': the positions of '" + op.name +
                           "' cannot be split by " + graph.mesh.str(axes) + ": " +
                           lists.error().message);
        std::vector<AxisList> all(atoms.size());
        for (size_t i = 0, u = 0; i < atoms.size(); ++i)
          if (sequenceAtoms.count(atoms[i]))
            all[i] = (*lists)[u++];
        writer.addOutput(maker, *dim, dimHint(graph, atoms, all, axes));
      }
  if (sequenceAtoms.empty())
    return makeError("rule 'megatron-sp': the model has no attention block, whose "
                     "positions could be split");
  return {};
}

//===-- Fully sharded -----------------------------------------------------===//

static Expected<Hints> fullySharded(const FlowGraph &graph) {
  FlowGraph copy = graph;
  auto decision = decide(copy, ShardMode::DataParallel, {});
  if (!decision)
    return tl::unexpected(decision.error());
  Hints hints;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Argument || decision->strategies[i].axes().empty())
      continue;
    Layout layout = resultLayout(op.rule, decision->strategies[i], 0);
    std::vector<DimHint> dims(layout.dims.size());
    AxisList batch;
    for (const DimFactor &factor : layout.dims[0].factors)
      batch.insert(batch.end(), factor.axes.begin(), factor.axes.end());
    dims[0].open = false;
    dims[0].axes = axisTexts(graph.mesh, canonical(batch));
    hints.tensors.push_back({op.name, std::move(dims), 0});
  }
  if (hints.tensors.empty() && graph.mesh.numRanks() > 1)
    return makeError("rule 'fsdp': no input has a batch dim that can be split");
  hints.kept.push_back({"*", axisTexts(graph.mesh, graph.mesh.all())});
  return hints;
}

Expected<Hints> partita::readyHints(const FlowGraph &graph, std::string_view text) {
  std::string_view rule = text.substr(0, text.find(':'));
  std::string_view axis = argumentOf(text);
  const std::string file = "rule '" + std::string(text) + "'";
  if (text.ends_with(':'))
    return makeError(file + ": an axis is missing after the colon");
  if (rule == sharded) {
    if (!axis.empty())
      return makeError(file + ": the batch is split over all axes; leave ':" +
                       std::string(axis) + "' out");
    auto hints = fullySharded(graph);
    if (hints) {
      hints->file = file;
      hints->areFound = true;
    }
    return hints;
  }
  auto axes = readyAxis(graph.mesh, text);
  if (!axes)
    return makeError(file + ": " + axes.error().message);
  Hints hints;
  hints.file = file;
  hints.areFound = true;
  std::vector<Block> blocks = findBlocks(graph);
  if (blocks.empty())
    return makeError(file + ": the model has no attention block (product, softmax, "
                            "product) and no MLP (products around an activation)");
  if (axes->empty())
    return hints;
  HintWriter writer(graph);
  std::vector<WeightLoop> experts;
  if (rule == expert) {
    experts = findExperts(graph);
    if (experts.empty())
      return makeError(file +
                       ": the model has no product with a weight for each of several "
                       "experts in one tensor; experts that are nodes of their own, or "
                       "whose weights each token looks up, are what 'megatron' splits");
    if (auto ok = hintExperts(graph, experts, *axes, writer); !ok)
      return tl::unexpected(ok.error());
  }
  for (const Block &block : blocks) {
    const bool isExpert = std::any_of(experts.begin(), experts.end(),
                                      [&](auto &it) { return it.op == block.row; });
    if (auto ok =
            isExpert ? Expected<void>() : hintRow(graph, block, *axes, rule, writer);
        !ok)
      return tl::unexpected(ok.error());
  }
  hintHeads(graph, blocks, *axes, writer);
  if (rule == sequence)
    if (auto ok = hintPositions(graph, blocks, *axes, writer); !ok)
      return tl::unexpected(ok.error());
  hints.nodes = writer.take();
  return hints;
}

Expected<GivenHints> partita::readHints(const std::string &path) {
  if (isReadyRule(path))
    return GivenHints{path};
  std::error_code failure;
  if (path != "-" && !std::filesystem::exists(path, failure))
    return makeError("there is no hints file '" + path +
                     "' and no rule of that name; the rules are megatron[:AXIS], "
                     "megatron-sp[:AXIS], megatron-ep[:AXIS] and fsdp");
  return readJsonFile(path).and_then(Hints::parse).map([&](Hints hints) {
    return GivenHints{path, std::move(hints)};
  });
}

Expected<Hints> GivenHints::on(const FlowGraph &graph) const {
  return file ? *file : readyHints(graph, text);
}
