//===- KernelBuilder.cpp - One kernel and its task ------------------------===//
#include "passes/Codegen/Common/KernelBuilder.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/KernelFormula.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

int KernelBuilder::addNode(KernelNode node) {
  if (list.empty())
    list.reserve(16);
  list.push_back(std::move(node));
  return static_cast<int>(list.size()) - 1;
}

int KernelBuilder::addAccess(Access access) {
  for (size_t i = 0; i < accesses.size(); ++i)
    if (!access.isOutput && !accesses[i].isOutput &&
        accesses[i].isIndexed == access.isIndexed &&
        accesses[i].tensor.storage == access.tensor.storage &&
        accesses[i].view == access.view)
      return static_cast<int>(i);
  accesses.push_back(std::move(access));
  return static_cast<int>(accesses.size()) - 1;
}

int KernelBuilder::load(const Tensor &tensor, DType type) {
  int access = addAccess({tensor, tensor.view.broadcast(shape), type});
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == KernelNode::Load && list[i].operand == access)
      return static_cast<int>(i);
  return addNode({KernelNode::Load, nullptr, type, access, {}, {}});
}

void KernelBuilder::addOperand(const Tensor &tensor, View view, DType type) {
  accesses.push_back({tensor, std::move(view), type});
}

int KernelBuilder::addPayload(Operation *op, Payload payload, std::vector<int> args,
                              DType type) {
  KernelNode made{KernelNode::Payload, op, type, -1, std::move(args), {}};
  made.own = std::move(payload);
  return addNode(std::move(made));
}

int KernelBuilder::score(DType type) {
  return addNode({KernelNode::Score, nullptr, type, -1, {}, {}});
}

int KernelBuilder::readByPlace(Value operand) {
  Tensor tensor = former.tensorOf(operand);
  return addAccess(
      {tensor, tensor.view, dtypeOf(operand), false, false, /*isIndexed=*/true});
}

int KernelBuilder::nodeOf(Value value) {
  auto found = nodes.find(value);
  if (found != nodes.end())
    return found->second;
  Operation *op = value.getDefiningOp();
  int node;
  if (uniformOf(value)) {
    node = addNode({KernelNode::Constant, op, dtypeOf(value), -1, {}, {}});
  } else if (!op ||
             !(members.contains(op) || (group >= 0 && former.plan().isIn(op, group)))) {
    node = load(former.tensorOf(value), dtypeOf(value));
  } else if (auto result = cast<OpResult>(value); result.getResultNumber() != 0) {
    KernelNode other{KernelNode::Result, op, dtypeOf(value), -1, {}, {}};
    other.args = {nodeOf(op->getResult(0))};
    other.result = static_cast<int>(result.getResultNumber());
    node = addNode(std::move(other));
  } else {
    KernelNode made{KernelNode::Payload, op, dtypeOf(value), -1, {}, {}};
    if (auto indexed = dyn_cast<IndexedOpInterface>(op)) {
      made.kind = KernelNode::Indexed;
      made.scalar = static_cast<int>(scalars.size());
      llvm::append_range(scalars, indexed.getRankValues(former.mesh()));
      for (Value operand : op->getOperands())
        made.reads.push_back(readByPlace(operand));
    } else {
      kernels::OpFacts facts = kernelFactsOf(op);
      if (facts.kind == kernels::OpKind::Row)
        made.kind = KernelNode::Row;
      for (OpOperand &operand : op->getOpOperands())
        if (facts.readsByPlace(operand.getOperandNumber()))
          made.reads.push_back(readByPlace(operand.get()));
        else
          made.args.push_back(nodeOf(operand.get()));
    }
    node = addNode(std::move(made));
  }
  nodes[value] = node;
  return node;
}

View KernelBuilder::model(const Shape &shape) const {
  std::vector<kernels::Lying> operands;
  for (const Access &access : accesses)
    operands.push_back({access.tensor.storage, &access.tensor.view, access.isIndexed});
  return kernels::orderOfOutput(operands, shape);
}

void KernelBuilder::addOutput(int node, const Tensor &tensor, View view, DType type,
                              bool perRow) {
  accesses.push_back({tensor, std::move(view), type, true, perRow, false, node});
}

//===----------------------------------------------------------------------===//
// Refinement
//===----------------------------------------------------------------------===//

bool KernelBuilder::isRow(int64_t dim) const { return llvm::is_contained(rowDims, dim); }

bool KernelBuilder::hasIndexed() const {
  return llvm::any_of(list, [](const KernelNode &n) { return !n.reads.empty(); });
}

/// Outputs first: an operand that does not fit can be copied, an output cannot.
void KernelBuilder::refine() {
  for (const Access &access : accesses)
    if (access.isOutput)
      cuts.nests(access.view);
  for (Access &access : accesses) {
    if (access.isOutput || access.isIndexed || cuts.nests(access.view))
      continue;
    access.tensor = former.copied(
        {access.tensor.storage, kernels::ownElements(access.view)}, access.type, "copy");
    access.view = access.tensor.view.broadcast(shape);
    cuts.nests(access.view);
  }
}

/// The stride of each atom of a dim, major to minor, cut at `cuts` (ascending products of
/// the minor atoms).
static std::vector<int64_t> atomStrides(const Parts &parts,
                                        const std::vector<int64_t> &cuts) {
  std::vector<int64_t> strides(cuts.size() - 1, 0);
  int64_t begin = 1; // of the part, as a product
  for (size_t p = parts.size(); p-- > 0;) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] >= begin && cuts[i] < begin * parts[p].size)
        strides[i] = parts[p].stride * (cuts[i] / begin);
    begin *= parts[p].size;
  }
  std::reverse(strides.begin(), strides.end());
  return strides;
}

void KernelBuilder::makeAtoms() {
  for (bool row : {false, true})
    for (size_t d = 0; d < shape.size(); ++d) {
      if (isRow(static_cast<int64_t>(d)) != row)
        continue;
      size_t first = atoms.size();
      for (size_t i = cuts.of(d).size() - 1; i-- > 0;)
        atoms.push_back(
            {static_cast<int64_t>(d), cuts.of(d)[i + 1] / cuts.of(d)[i], cuts.of(d)[i]});
      for (const Access &access : accesses) {
        std::vector<int64_t> strides(cuts.of(d).size() - 1, 0);
        if (!access.isIndexed)
          strides = atomStrides(access.view.dims[d], cuts.of(d));
        for (size_t i = 0; i < strides.size(); ++i)
          atoms[first + i].strides.push_back(strides[i]);
      }
    }
}

/// Without rows the loops may run in any order: the output is written front to back.
void KernelBuilder::orderAtoms() {
  if (!rowDims.empty())
    return;
  auto output = static_cast<size_t>(
      llvm::find_if(accesses, [](const Access &a) { return a.isOutput; }) -
      accesses.begin());
  std::stable_sort(atoms.begin(), atoms.end(), [&](const Atom &a, const Atom &b) {
    return a.strides[output] > b.strides[output];
  });
}

/// Neighbours that every operand has next to each other are one loop.
void KernelBuilder::mergeAtoms() {
  if (hasIndexed())
    return;
  std::vector<Atom> merged;
  for (Atom &atom : atoms) {
    bool together = !merged.empty() && isRow(merged.back().dim) == isRow(atom.dim);
    for (size_t i = 0; together && i < accesses.size(); ++i)
      together = merged.back().strides[i] == atom.size * atom.strides[i];
    if (together) {
      merged.back().size *= atom.size;
      merged.back().strides = atom.strides;
    } else {
      merged.push_back(std::move(atom));
    }
  }
  atoms = std::move(merged);
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

KernelSpec KernelBuilder::makeSpec() const {
  KernelSpec spec;
  spec.nodes = list;
  spec.attention = attention;
  spec.numScalars = static_cast<int>(scalars.size());
  spec.originalDims.resize(hasIndexed() ? shape.size() : 0);
  for (const Atom &atom : atoms) {
    if (hasIndexed())
      spec.originalDims[static_cast<size_t>(atom.dim)].push_back(
          {static_cast<int64_t>(spec.domain.size()), atom.weight});
    spec.domain.push_back(atom.size);
    spec.rowDims += isRow(atom.dim);
  }
  if (spec.rowDims == 1 && storedPoints < spec.domain.back())
    spec.storedPoints = storedPoints;
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access &access = accesses[i];
    KernelOperand operand;
    operand.type = access.type;
    operand.offset = access.view.offset;
    operand.perRow = access.perRow;
    operand.node = access.node;
    if (access.isIndexed)
      operand.view = access.view;
    for (const Atom &atom : atoms)
      operand.strides.push_back(atom.strides[i]);
    (access.isOutput ? spec.outputs : spec.operands).push_back(std::move(operand));
  }
  // An operand that is changed where it lies shares the pointer of its output.
  for (size_t i = 0; i < spec.operands.size(); ++i)
    for (size_t o = 0; o < spec.outputs.size(); ++o)
      if (!accesses[i].isIndexed && spec.operands[i].offset == spec.outputs[o].offset &&
          spec.operands[i].strides == spec.outputs[o].strides &&
          accesses[i].tensor.storage == accesses[spec.operands.size() + o].tensor.storage)
        spec.operands[i].output = static_cast<int>(o);
  const TargetModel &target = *former.program.target;
  if (attention)
    target.divideAttention(spec, former.program.team.threads);
  else
    spec.scratchBytes = spec.scratchOffset(list.size(), 0);
  spec.split = spec.splitBy(target.kernels.division);
  return spec;
}

bool codegen::isChecked(const KernelNode &node) {
  if (node.kind == KernelNode::Row)
    return cast<RowOpInterface>(node.op).isChecked();
  return node.kind == KernelNode::Indexed &&
         cast<IndexedOpInterface>(node.op).isChecked();
}

/// The node whose indices are looked at: comm.local_index works for the gather behind it.
static std::string checkedName(Operation *op) {
  if (isa<comm::LocalIndexOp>(op))
    for (Operation *user : op->getUsers())
      if (isa<graph::GatherOp, graph::GatherElementsOp, graph::GatherNDOp,
              graph::ScatterElementsOp>(user))
        return sourceName(user);
  return sourceName(op);
}

void KernelBuilder::finish(const std::string &source) {
  refine();
  makeAtoms();
  orderAtoms();
  mergeAtoms();
  KernelSpec spec = makeSpec();
  Task task{source};
  task::Kernel kernel;
  for (const Access &access : accesses) {
    // The offset is part of the kernel.
    const Storage &storage =
        former.program.storages[static_cast<size_t>(access.tensor.storage)];
    task.operands.push_back({access.tensor.storage, 0, storage.bytes()});
  }
  const TeamPlan &team = former.program.team;
  kernel.units = spec.split.units;
  kernel.flops = spec.flops(), kernel.bytes = spec.bytes();
  // Waking a team and meeting again takes about a microsecond.
  kernel.parts = static_cast<int32_t>(std::clamp<int64_t>(
      std::min(spec.split.units, spec.work() / team.workPerPart), 1, team.threads));
  if (spec.scratchBytes != 0) {
    uint64_t bytes = spec.scratchBytes * static_cast<uint64_t>(kernel.parts);
    int scratch = former.addStorage(DType::U8, static_cast<int64_t>(bytes));
    task.operands.push_back({scratch, 0, bytes});
  }
  task.rankValues = scalars;
  for (const KernelNode &node : spec.nodes)
    task.made.push_back(madeBy(node.op, node.result));
  for (const KernelNode &node : spec.nodes)
    if (isChecked(node))
      kernel.checks.push_back(checkedName(node.op));
  kernel.kernel = static_cast<uint32_t>(former.addKernel(std::move(spec)));
  task.params = std::move(kernel);
  former.addTask(std::move(task));
}
