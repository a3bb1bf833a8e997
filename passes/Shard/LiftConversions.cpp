//===- LiftConversions.cpp - Conversions as services of values ------------===//
#include "passes/Shard/LiftConversions.h"

#include "dialects/Dist/PlanAttributes.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// Facts of a conversion.
struct Conversion {
  Attribute form; ///< as dist::formOf
  int32_t from;   ///< an earlier one of the same value; −1: the value
  int64_t epoch;
  bool isForward;
  size_t place; ///< in the function
};

class Lifter {
public:
  Lifter(func::FuncOp function, dist::MeshAttr mesh) : function(function), mesh(mesh) {}

  Expected<void> run() {
    dissolveSplits();
    detach();
    if (conversions.empty())
      return {};
    auto made = dist::buildFlow(function, mesh.getMesh());
    if (failed(made))
      return makeError("the program has an op without a rule");
    flow = std::move(*made);
    auto known = dist::readStrategies(function, *flow);
    if (failed(known))
      return makeError("the program has an op without a strategy");
    strategies = std::move(*known);
    for (size_t v = 0; v < flow->graph.values.size(); ++v)
      if (auto ok = serve(static_cast<int32_t>(v)); !ok)
        return ok;
    return {};
  }

  /// The flow of the function without its conversions; null if it had none.
  std::unique_ptr<dist::ProgramFlow> flow;
  std::vector<Strategy> strategies;

private:
  void dissolveSplits() {
    SmallVector<Operation *> extra;
    for (Operation &op : function.front())
      if (op.hasAttr(dist::forSplitAttr))
        extra.push_back(&op);
    for (Operation *op : extra)
      if (op->getNumOperands() != 0)
        op->getResult(0).replaceAllUsesWith(op->getOperand(0));
    for (Operation *op : llvm::reverse(extra)) {
      for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
        user->erase(); // a reading of a constant
      op->erase();
    }
  }

  /// Ops read what the conversions converted, and these are gone.
  void detach() {
    DenseMap<Value, std::pair<Value, int32_t>> leads; // what a conversion gives
    SmallVector<Operation *> gone;
    for (Operation &op : function.front()) {
      placeOf[&op] = placeOf.size();
      if (dist::isConversion(&op)) {
        Value from = op.getOperand(0);
        auto [root, number] = leads.lookup(from);
        root = root ? root : from;
        number = leads.contains(from) ? number : -1;
        std::vector<Conversion> &list = conversions[root];
        leads[op.getResult(0)] = {root, static_cast<int32_t>(list.size())};
        auto epoch = op.getAttrOfType<IntegerAttr>("epoch");
        list.push_back({dist::formOf(&op), number, epoch ? epoch.getInt() : 0,
                        dist::phaseOf(&op) == Phase::Forward, placeOf[&op]});
        gone.push_back(&op);
        continue;
      }
      for (OpOperand &operand : op.getOpOperands())
        if (auto known = leads.find(operand.get()); known != leads.end()) {
          readBy[&operand] = known->second.second;
          operand.set(known->second.first);
        }
    }
    for (Operation *op : llvm::reverse(gone))
      op->erase();
  }

  OperandForm wanted(const FlowUse &use) const {
    return operandForm(flow->graph.ops[static_cast<size_t>(use.op)].rule,
                       strategies[static_cast<size_t>(use.op)],
                       static_cast<size_t>(use.operand));
  }

  /// The conversion that a use reads; −1: the value itself. A copy reads the last one of
  /// its form before the place where it will stand, as partita-recompute says.
  int32_t conversionOf(const FlowUse &use, const std::vector<Conversion> &list) const {
    if (!flow->isCopy(use.op)) {
      Operation *op = flow->operations[static_cast<size_t>(use.op)];
      auto found = readBy.find(op ? &op->getOpOperand(static_cast<unsigned>(use.operand))
                                  : &flow->ends[static_cast<size_t>(use.op)].use());
      return found == readBy.end() ? -1 : found->second;
    }
    OperandForm form = wanted(use);
    Attribute attribute =
        form.window ? Attribute(dist::WindowsAttr::of(mesh, *form.window))
                    : Attribute(dist::LayoutAttr::get(mesh.getContext(), mesh,
                                                      form.layout.canonicalized())
                                    .canonical());
    int32_t last = -1;
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].form == attribute &&
          list[i].place < placeOf.lookup(flow->where(use.op)))
        last = static_cast<int32_t>(i);
    return last;
  }

  /// Whether a source is read otherwise than each user wants it: converted.
  static bool isConverted(const std::vector<Conversion> &list) {
    return llvm::any_of(list, [&](const Conversion &it) {
      return it.from >= 0 && isa<dist::LayoutAttr>(it.form);
    });
  }

  Expected<void> serve(int32_t value) {
    const FlowValue &it = flow->graph.values[static_cast<size_t>(value)];
    const FlowOp &producer = flow->graph.ops[static_cast<size_t>(it.producer)];
    auto found = conversions.find(flow->valueAt(value));
    if (found == conversions.end() ||
        (producer.kind == FlowKind::Source && !isConverted(found->second)))
      return {};
    const std::vector<Conversion> &list = found->second;
    Operation *maker = found->first.getDefiningOp();
    const bool isMarked = maker && dist::recomputeOf(maker);
    const bool isCopy = flow->isCopy(it.producer);
    // An op and its copy have conversions of their own; the copy also those that it takes
    // of the op's.
    std::vector<bool> isOwn(list.size());
    for (size_t i = 0; i < list.size(); ++i)
      isOwn[i] = !isMarked || list[i].isForward != isCopy;
    std::vector<std::pair<FlowUse, int32_t>> uses;
    for (const FlowUse &use : it.uses) {
      int32_t number = conversionOf(use, list);
      if (number < 0)
        continue;
      uses.emplace_back(use, number);
      for (int32_t i = number; i >= 0; i = list[static_cast<size_t>(i)].from)
        isOwn[static_cast<size_t>(i)] = true;
    }
    auto served = servedBy(value, list, isOwn, uses, isMarked);
    if (served.empty())
      return {};
    auto entries = exactEntries(flow->graph, strategies, value, served);
    if (!entries)
      return tl::unexpected(entries.error());
    dist::writeServed(function, *flow, value, *entries);
    return {};
  }

  std::vector<ServedLayout> servedBy(int32_t value, const std::vector<Conversion> &list,
                                     const std::vector<bool> &isOwn,
                                     ArrayRef<std::pair<FlowUse, int32_t>> uses,
                                     bool isMarked) const {
    const FlowValue &it = flow->graph.values[static_cast<size_t>(value)];
    auto producer = static_cast<size_t>(it.producer);
    std::vector<ServedLayout> served;
    std::vector<int32_t> entryOf(list.size(), -1);
    std::map<std::pair<const void *, int32_t>, int32_t> known; // of a copy: form, origin
    for (size_t i = 0; i < list.size(); ++i) {
      const Conversion &conversion = list[i];
      if (!isOwn[i])
        continue;
      int32_t from =
          conversion.from < 0 ? -1 : entryOf[static_cast<size_t>(conversion.from)];
      std::pair key(conversion.form.getAsOpaquePointer(), from);
      auto same = known.find(key);
      if (isMarked && same != known.end()) {
        entryOf[i] = same->second;
        continue;
      }
      ServedLayout entry{{}, from, {}, std::nullopt, conversion.epoch};
      if (auto layout = dyn_cast<dist::LayoutAttr>(conversion.form)) {
        entry.layout = layout.getLayout().canonicalized();
      } else {
        Layout at =
            from >= 0 ? served[static_cast<size_t>(from)].layout
                      : resultLayout(flow->graph.ops[producer].rule, strategies[producer],
                                     static_cast<size_t>(it.result))
                            .canonicalized();
        entry.halo = cast<dist::WindowsAttr>(conversion.form).from(at);
        if (llvm::none_of(
                uses, [&](auto &use) { return use.second == static_cast<int32_t>(i); }))
          continue; // a buffer has a number by who reads it
      }
      known[key] = entryOf[i] = static_cast<int32_t>(served.size());
      served.push_back(std::move(entry));
    }
    for (auto [use, number] : uses)
      if (int32_t entry = entryOf[static_cast<size_t>(number)]; entry >= 0)
        served[static_cast<size_t>(entry)].uses.push_back(use);
    return served;
  }

  func::FuncOp function;
  dist::MeshAttr mesh;
  DenseMap<Value, std::vector<Conversion>> conversions; ///< by what is converted
  DenseMap<OpOperand *, int32_t> readBy; ///< number of the conversion that it read
  DenseMap<Operation *, size_t> placeOf;
};
} // namespace

Expected<Unconverted> partita::withoutConversions(ModuleOp planned) {
  Unconverted result{OwningOpRef<ModuleOp>(planned.clone()), nullptr, {}};
  for (auto function : result.module->getOps<func::FuncOp>()) {
    dist::MeshAttr mesh = dist::findMesh(function);
    if (function.isExternal() || !mesh)
      continue;
    Lifter lifter(function, mesh);
    if (auto ok = lifter.run(); !ok)
      return makeError("function '" + function.getName().str() +
                       "': " + ok.error().message);
    if (function.getName() == "main" && lifter.flow && !lifter.flow->hasCalls) {
      result.flow = std::move(lifter.flow);
      result.strategies = std::move(lifter.strategies);
    }
  }
  return result;
}
