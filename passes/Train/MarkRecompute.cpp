//===- MarkRecompute.cpp - Which forward ops are computed again -----------===//
#include "passes/Train/MarkRecompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Train/Layers.h"
#include "passes/Train/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace partita {
#define GEN_PASS_DEF_MARKRECOMPUTEPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
class Marker {
public:
  explicit Marker(ModuleOp module)
      : paths(module->getAttrOfType<DictionaryAttr>(modulePathsAttr)) {
    auto main = module.lookupSymbol<func::FuncOp>("main");
    functions.push_back(main);
    for (Operation &op : main.front())
      if (auto call = dyn_cast<CallingOpInterface>(op); call && !op.hasAttr(phaseAttr))
        for (Operation *callee : call.getCallees())
          functions.push_back(cast<func::FuncOp>(callee));
    forEach([&](Operation &op) {
      if (!op.hasAttr(phaseAttr) && !isa<CallingOpInterface>(op) &&
          op.getNumOperands() != 0 && !op.hasTrait<OpTrait::IsTerminator>())
        forward.push_back(&op);
    });
  }

  Expected<void> findSegments(const std::vector<Recompute> &asked) {
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

  /// Marks what something behind the forward pass needs. A reader is behind it, or the
  /// copy of another op.
  void run() {
    SmallVector<Operation *> readers;
    forEach([&](Operation &op) {
      if (op.hasAttr(phaseAttr) || dist::recomputeOf(&op))
        readers.push_back(&op);
    });
    while (!readers.empty())
      for (Value operand : readers.pop_back_val()->getOperands())
        if (isRepeated(operand) && !dist::recomputeOf(operand.getDefiningOp())) {
          mark(operand.getDefiningOp());
          readers.push_back(operand.getDefiningOp());
        }
  }

  /// Of each pattern that does not lessen what is kept: what it asks for is a mistake.
  std::vector<std::string> notes(const std::vector<Recompute> &asked) {
    DenseMap<const Recompute *, int64_t> saved;
    llvm::DenseSet<Value> kept; // of the forward pass, for what is behind it
    for (Operation *op : forward)
      for (Value value : op->getResults())
        if (llvm::any_of(value.getUsers(),
                         [](Operation *user) { return user->hasAttr(phaseAttr); })) {
          kept.insert(value);
          if (dist::recomputeOf(op))
            saved[segments.at(op).knobs] += bytesOf(value);
        }
    // A copy may read what nothing else did.
    for (Operation *op : forward)
      if (dist::recomputeOf(op))
        for (Value operand : op->getOperands())
          if (Operation *maker = operand.getDefiningOp();
              maker && maker->getNumOperands() != 0 && !maker->hasAttr(phaseAttr) &&
              !dist::recomputeOf(maker) && kept.insert(operand).second)
            saved[segments.at(op).knobs] -= bytesOf(operand);
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
  struct Segment {
    std::string name;
    const Recompute *knobs;
  };

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

  void mark(Operation *op) {
    const Recompute &knobs = *segments.at(op).knobs;
    op->setAttr(recomputeAttr, dist::RecomputeAttr::get(
                                   op->getContext(), !knobs.modelParallelCommunication,
                                   knobs.optimizerParallelCommunication));
  }

  void forEach(function_ref<void(Operation &)> visit) {
    for (func::FuncOp function : functions)
      for (Operation &op : function.front())
        visit(op);
  }

  SmallVector<func::FuncOp> functions;
  DictionaryAttr paths;
  std::vector<Operation *> forward; ///< that may be computed again
  std::vector<int32_t> layers;      ///< of each of them, once needed
  DenseMap<Operation *, Segment> segments;
  int64_t numTogether = 0;
};
} // namespace

Expected<std::vector<std::string>>
train::markRecompute(ModuleOp module, const std::vector<Recompute> &asked) {
  if (asked.empty())
    return std::vector<std::string>();
  Marker marker(module);
  if (auto ok = marker.findSegments(asked); !ok)
    return tl::unexpected(ok.error());
  marker.run();
  return marker.notes(asked);
}

namespace {
struct MarkRecomputePass : partita::impl::MarkRecomputePassBase<MarkRecomputePass> {
  using MarkRecomputePassBase::MarkRecomputePassBase;
  explicit MarkRecomputePass(Spec spec) : given(std::move(spec)) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    auto fail = [&](const std::string &message) {
      (main ? main.getOperation() : module.getOperation())->emitError(message);
      signalPassFailure();
    };
    if (!main)
      return fail("the module has no function 'main'");
    auto read = given ? Expected<Spec>(*given) : readSpec(spec);
    if (!read)
      return fail(read.error().message);
    auto notes = markRecompute(module, read->recompute);
    if (!notes)
      return fail(notes.error().message);
    for (const std::string &note : *notes)
      main->emitRemark(note);
  }

  std::optional<Spec> given; ///< absent: the option names a file
};
} // namespace

std::unique_ptr<Pass> partita::createMarkRecomputePass(Spec spec) {
  return std::make_unique<MarkRecomputePass>(std::move(spec));
}
