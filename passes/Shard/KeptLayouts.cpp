//===- KeptLayouts.cpp - Ends of a program that are decided already -------===//
#include "passes/Shard/KeptLayouts.h"

#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace mlir;
using namespace partita;

static bool isEnd(const FlowOp &op) {
  return op.kind == FlowKind::Argument || op.kind == FlowKind::State ||
         op.kind == FlowKind::Sink;
}

/// The tensor of an end, in its rule.
static const TensorFactors &tensorOf(const FlowOp &end) {
  return end.kind == FlowKind::Sink ? end.rule.operands[0] : end.rule.results[0];
}
static int32_t valueOf(const FlowOp &end) {
  return end.kind == FlowKind::Sink ? end.operands[0] : end.results[0];
}

/// A dim of `size` split over axes by name, padded where it does not divide.
static Expected<DimLayout> splitDim(const Mesh &mesh, int64_t size,
                                    const std::vector<std::string> &names) {
  AxisList axes;
  for (const std::string &name : names) {
    auto axis = mesh.parseAxis(name);
    if (!axis)
      return tl::unexpected(axis.error());
    axes.push_back(*axis);
  }
  int64_t shards = product(axes);
  if (shards > size)
    return makeError("a dim of " + std::to_string(size) + " elements cannot be split " +
                     std::to_string(shards) + " ways");
  DimLayout dim;
  dim.factors.push_back({size, (size + shards - 1) / shards * shards, canonical(axes)});
  return dim;
}

/// The batch over as many axes, in their order, as it has elements for.
static std::vector<std::string> batchAxes(const Mesh &mesh, int64_t batch) {
  std::vector<std::string> names;
  int64_t ways = 1;
  for (const Mesh::Axis &axis : mesh.axes())
    if (ways * axis.size <= batch) {
      ways *= axis.size;
      names.push_back(axis.name);
    }
  return names;
}

static Expected<Layout> declared(const Mesh &mesh, const std::vector<int64_t> &shape,
                                 const DatasetHint &hint) {
  Layout layout = Layout::replicated(shape);
  if (hint.kind == DatasetHint::FullBatch || shape.empty())
    return layout;
  if (hint.kind == DatasetHint::DataParallel) {
    auto dim = splitDim(mesh, shape[0], batchAxes(mesh, shape[0]));
    if (dim)
      layout.dims[0] = std::move(*dim);
    return layout;
  }
  if (hint.dims.size() != shape.size())
    return makeError("it has " + std::to_string(shape.size()) + " dims, the entry " +
                     std::to_string(hint.dims.size()));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (hint.dims[d].empty())
      continue;
    auto dim = splitDim(mesh, shape[d], hint.dims[d]);
    if (!dim)
      return tl::unexpected(dim.error());
    layout.dims[d] = std::move(*dim);
  }
  if (auto ok = layout.verify(mesh); !ok)
    return tl::unexpected(ok.error());
  return layout.canonicalized();
}

Expected<KeptLayouts> partita::keptLayouts(FunctionOpInterface function,
                                           const dist::ProgramFlow &flow,
                                           const Hints &hints) {
  const FlowGraph &graph = flow.graph;
  KeptLayouts kept;
  for (int32_t i = 0; i < static_cast<int32_t>(function.getNumArguments()); ++i)
    if (dist::LayoutAttr layout =
            dist::argumentLayout(function, static_cast<unsigned>(i)))
      kept.emplace(i, layout.getLayout());
  for (const DatasetHint &hint : hints.dataset) {
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (!isEnd(op) || op.kind == FlowKind::State || op.tied >= 0 ||
          !matchesGlob(hint.glob, op.name))
        continue;
      found = true;
      if (function.getNumArguments() > i &&
          dist::argumentLayout(function, static_cast<unsigned>(i)))
        continue; // declared to the stage that gave it this layout
      auto layout = declared(graph.mesh,
                             graph.values[static_cast<size_t>(valueOf(op))].shape, hint);
      if (!layout)
        return makeError(hints.file + ": dataset '" + hint.glob + "': '" + op.name +
                         "': " + layout.error().message);
      if (!kept.emplace(static_cast<int32_t>(i), std::move(*layout)).second)
        return makeError(hints.file + ": dataset: '" + op.name + "' is declared twice");
    }
    if (!found)
      return makeError(hints.file + ": dataset: no input and no output is named '" +
                       hint.glob + "'");
  }
  return kept;
}

search::Pins partita::pinsFor(const FlowGraph &graph, const KeptLayouts &kept) {
  search::Pins pins;
  // A search has axes on one piece in the order of the mesh; what lies otherwise is
  // converted behind it.
  auto pin = [&](int32_t atom, const AxisList &axes) {
    if (std::is_sorted(axes.begin(), axes.end()))
      pins[atom] = axes;
  };
  for (const auto &[op, layout] : kept) {
    const TensorFactors &tensor = tensorOf(graph.ops[static_cast<size_t>(op)]);
    for (size_t d = 0; d < tensor.size(); ++d) {
      std::vector<int32_t> atoms = graph.dimAtoms(op, tensor[d]);
      const std::vector<DimFactor> &factors = layout.dims[d].factors;
      if (atoms.size() == factors.size()) {
        for (size_t i = 0; i < atoms.size(); ++i)
          pin(atoms[i], factors[i].axes);
        continue;
      }
      // Cut otherwise than there: the axes go to the pieces that they reach.
      AxisList axes;
      for (const DimFactor &factor : factors)
        axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
      if (auto given = distribute(graph, atoms, axes))
        for (size_t i = 0; i < atoms.size(); ++i)
          pin(atoms[i], (*given)[i]);
    }
  }
  return pins;
}

/// Whether that is another layout than was decided.
static bool give(const FlowGraph &graph, int32_t op, const Layout &layout,
                 Decision &decision) {
  const FlowOp &end = graph.ops[static_cast<size_t>(op)];
  Strategy &decided = decision.strategies[static_cast<size_t>(op)];
  Layout now = end.kind == FlowKind::Sink ? operandLayout(end.rule, decided, 0)
                                          : resultLayout(end.rule, decided, 0);
  if (now.canonicalized() == layout.canonicalized())
    return false;
  decided = strategyForLayout(end.rule, tensorOf(end), layout);
  decision.servings.erase(valueOf(end));
  return true;
}

void partita::keepLayouts(const FlowGraph &graph, const KeptLayouts &kept,
                          Decision &decision) {
  bool isOther = false;
  for (const auto &[op, layout] : kept) {
    isOther |= give(graph, op, layout, decision);
    if (int32_t sink = graph.ops[static_cast<size_t>(op)].tied; sink >= 0)
      isOther |= give(graph, sink, layout, decision);
  }
  if (isOther)
    decision.price = price(graph, decision.strategies, decision.servings);
}
