//===- Recompute.cpp - Forward ops repeated in the backward pass ----------===//
#include "passes/Train/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Train/Layers.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <map>

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
class Repeater {
public:
  explicit Repeater(func::FuncOp function) : function(function) {
    auto module = function->getParentOfType<ModuleOp>();
    paths = module->getAttrOfType<DictionaryAttr>(modulePathsAttr);
  }

  Expected<void> findSegments(const std::vector<Recompute> &asked) {
    for (Operation &op : function.front().without_terminator())
      if (!op.hasAttr(phaseAttr) && !isa<CallingOpInterface>(op) &&
          op.getNumOperands() != 0)
        forward.push_back(&op);
    if (llvm::any_of(asked, [](const Recompute &it) { return it.byLayer; }))
      layers = layersIn(forward);
    for (const Recompute &pattern : asked) {
      bool found = false, foundLayer = false;
      std::string together =
          pattern.together ? "together " + std::to_string(numTogether++) : "";
      // What a choice under a memory limit lists are names.
      llvm::StringSet<> names;
      for (const std::string &name : pattern.nodes)
        names.insert(name);
      for (auto [i, op] : llvm::enumerate(forward)) {
        auto segment = names.contains(dist::nodeName(op))
                           ? std::optional(dist::nodeName(op))
                           : segmentOf(op, pattern.nodes);
        if (!segment)
          continue;
        found = true;
        if (pattern.byLayer && layers[i] < 0)
          continue;
        foundLayer = true;
        std::string name = pattern.byLayer    ? "layer " + std::to_string(layers[i])
                           : pattern.together ? together
                                              : *segment;
        segments.try_emplace(op, Segment{name, &pattern});
      }
      if (!found)
        return makeError("recompute: no node and no module is named '" + textOf(pattern) +
                         "'");
      if (!foundLayer)
        return makeError("recompute: \"each\" is \"layer\", but nothing that is named '" +
                         textOf(pattern) + "' is in a layer: no row of ops repeats");
    }
    return {};
  }

  void run() {
    for (Operation &op :
         llvm::make_early_inc_range(function.front().without_terminator()))
      if (op.hasAttr(phaseAttr))
        for (OpOperand &operand : op.getOpOperands())
          if (isRepeated(operand.get()))
            operand.set(again(operand.get(), &op));
  }

  /// Values of the forward pass that the backward pass reads, in program order.
  SmallVector<Value> kept() {
    SmallVector<Value> values;
    for (Operation &op : function.front().without_terminator())
      if (!op.hasAttr(phaseAttr) && op.getNumOperands() != 0)
        for (Value value : op.getResults())
          if (llvm::any_of(value.getUsers(),
                           [](Operation *user) { return user->hasAttr(phaseAttr); }))
            values.push_back(value);
    return values;
  }

  /// Of each pattern that does not lessen what is kept: what it asks for is a mistake.
  std::vector<std::string> notes(const std::vector<Recompute> &asked,
                                 ArrayRef<Value> keptBefore) {
    DenseMap<const Recompute *, int64_t> saved;
    llvm::DenseSet<Value> before(keptBefore.begin(), keptBefore.end());
    SmallVector<Value> keptNow = kept();
    llvm::DenseSet<Value> now(keptNow.begin(), keptNow.end());
    for (Value value : keptBefore)
      if (auto own = segments.find(value.getDefiningOp());
          own != segments.end() && !now.contains(value))
        saved[own->second.knobs] += bytesOf(value);
    // A copy may read what nothing else did.
    for (Operation &op : function.front().without_terminator())
      if (Operation *copy = copies.lookup(&op))
        for (Value operand : copy->getOperands())
          if (now.contains(operand) && before.insert(operand).second)
            saved[segments.at(&op).knobs] -= bytesOf(operand);
    std::vector<std::string> texts;
    for (const Recompute &pattern : asked)
      if (!pattern.isChosen && saved.lookup(&pattern) <= 0)
        texts.push_back(
            "recompute: '" + textOf(pattern) +
            "' saves no byte: what each of its parts makes is read by the rest "
            "of the forward pass, and kept" +
            (!pattern.byLayer && !pattern.together && joinsByLayer(pattern)
                 ? " (\"each\": \"layer\" makes each layer one part)"
                 : ""));
    return texts;
  }

private:
  /// Whether one part of the pattern reads another one in its layer, so that the two
  /// keep less as one part.
  bool joinsByLayer(const Recompute &pattern) {
    if (layers.empty())
      layers = layersIn(forward);
    DenseMap<Operation *, int32_t> layerOf;
    for (auto [i, op] : llvm::enumerate(forward))
      if (auto own = segments.find(op);
          own != segments.end() && own->second.knobs == &pattern && layers[i] >= 0)
        layerOf[op] = layers[i];
    return llvm::any_of(layerOf, [&](const auto &entry) {
      return llvm::any_of(entry.first->getOperands(), [&](Value operand) {
        auto maker = layerOf.find(operand.getDefiningOp());
        return maker != layerOf.end() && maker->second == entry.second &&
               segments.at(maker->first).name != segments.at(entry.first).name;
      });
    });
  }

  static std::string textOf(const Recompute &pattern) {
    return llvm::join(pattern.nodes, "', '");
  }

  static int64_t bytesOf(Value value) {
    return elementCount(shapeOf(value)) *
           static_cast<int64_t>(byteWidth(*dtypeOf(getElementTypeOrSelf(value))));
  }

  /// Per op its layer. Ops of one kind have one name, properties and types. Discardable
  /// attributes hold names of the file, in which equal layers differ.
  static std::vector<int32_t> layersIn(ArrayRef<Operation *> ops) {
    using Kind = std::tuple<const void *, const void *, std::vector<const void *>>;
    std::map<Kind, size_t> known;
    std::vector<size_t> kinds;
    llvm::DenseMap<Operation *, size_t> places;
    std::vector<int64_t> change(ops.size() + 1, 0); // of the bytes that cross a place
    for (auto [i, op] : llvm::enumerate(ops)) {
      Kind kind{op->getName().getAsOpaquePointer(),
                op->getPropertiesAsAttribute().getAsOpaquePointer(),
                {}};
      for (TypeRange types :
           {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
        for (Type type : types)
          std::get<2>(kind).push_back(type.getAsOpaquePointer());
      kinds.push_back(known.try_emplace(std::move(kind), known.size()).first->second);
      places[op] = i;
    }
    for (auto [i, op] : llvm::enumerate(ops))
      for (Value value : op->getResults()) {
        size_t last = i;
        for (Operation *user : value.getUsers())
          if (auto place = places.find(user); place != places.end())
            last = std::max(last, place->second);
        change[i + 1] += last > i ? bytesOf(value) : 0;
        change[last + 1] -= last > i ? bytesOf(value) : 0;
      }
    std::vector<int64_t> crossing;
    int64_t bytes = 0;
    for (size_t i = 0; i < ops.size(); ++i)
      crossing.push_back(bytes += change[i]);
    return layersOf(kinds, crossing);
  }

  /// The node or the outermost module of it that a pattern names. A node that is of no
  /// module has the parts of its name for modules.
  std::optional<std::string> segmentOf(Operation *op,
                                       const std::vector<std::string> &globs) const {
    std::string name = dist::nodeName(op);
    std::optional<std::string> found;
    auto isNamed = [&](const std::string &text) {
      return llvm::any_of(
          globs, [&](const std::string &glob) { return matchesGlob(glob, text); });
    };
    if (isNamed(name))
      found = name;
    auto known = paths ? paths.getAs<StringAttr>(name) : StringAttr();
    for (std::string path = known ? known.getValue().str() : name; !path.empty();) {
      if (isNamed(path))
        found = path;
      size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
    return found;
  }

  /// Whether the value is of a segment, and nothing else of the forward pass reads it or
  /// that does not matter.
  bool isRepeated(Value value) const {
    Operation *op = value.getDefiningOp();
    auto own = segments.find(op);
    if (own == segments.end())
      return false;
    if (own->second.knobs->exactly)
      return true;
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      auto other = segments.find(user);
      return user->hasAttr(phaseAttr) ||
             (other != segments.end() && other->second.name == own->second.name);
    });
  }

  /// The value as it is computed before `user`, the first in the backward pass that reads
  /// it.
  Value again(Value value, Operation *user) {
    auto result = cast<OpResult>(value);
    Operation *op = result.getOwner();
    Operation *&copy = copies[op];
    if (!copy) {
      SmallVector<Value> operands;
      for (Value operand : op->getOperands())
        operands.push_back(isRepeated(operand) ? again(operand, user) : operand);
      OpBuilder builder(user);
      Operation *made = builder.clone(*op);
      made->setOperands(operands);
      dist::setPhase(made, Phase::Backward);
      made->setLoc(
          NameLoc::get(builder.getStringAttr(dist::nodeName(op) + "/recompute")));
      mark(op, made);
      copies[op] = made;
      return made->getResult(result.getResultNumber());
    }
    return copy->getResult(result.getResultNumber());
  }

  /// What the knobs ask of conversions, which there are none of yet.
  void mark(Operation *op, Operation *copy) {
    const Recompute &knobs = *segments.at(op).knobs;
    Builder builder(op->getContext());
    auto number = builder.getI64IntegerAttr(marked++);
    copy->setAttr(repeatsAttr, number);
    op->setAttr(repeatedAttr, number);
    if (!knobs.modelParallelCommunication)
      copy->setAttr(keepsAttr, builder.getUnitAttr());
    if (knobs.optimizerParallelCommunication)
      copy->setAttr(gathersAttr, builder.getUnitAttr());
  }

  struct Segment {
    std::string name;
    const Recompute *knobs;
  };
  func::FuncOp function;
  DictionaryAttr paths;
  std::vector<Operation *> forward; ///< that may be computed again
  std::vector<int32_t> layers;      ///< of each of them, once needed
  DenseMap<Operation *, Segment> segments;
  DenseMap<Operation *, Operation *> copies;
  int64_t marked = 0, numTogether = 0;
};
} // namespace

Expected<std::vector<std::string>>
train::repeatForward(func::FuncOp function, const std::vector<Recompute> &asked) {
  if (asked.empty())
    return std::vector<std::string>();
  Repeater repeater(function);
  if (auto ok = repeater.findSegments(asked); !ok)
    return tl::unexpected(ok.error());
  SmallVector<Value> before = repeater.kept();
  repeater.run();
  return repeater.notes(asked, before);
}
