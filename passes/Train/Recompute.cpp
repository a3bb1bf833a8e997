//===- Recompute.cpp - Forward ops repeated in the backward pass ----------===//
#include "passes/Train/Recompute.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Decide/ModuleNames.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

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
    for (const Recompute &pattern : asked) {
      bool found = false;
      std::string together =
          pattern.together ? "together " + std::to_string(numTogether++) : "";
      // What a choice under a memory limit lists are names.
      llvm::StringSet<> names;
      for (const std::string &name : pattern.nodes)
        names.insert(name);
      for (Operation &op : function.front().without_terminator()) {
        if (op.hasAttr(phaseAttr) || isa<CallingOpInterface>(op) ||
            op.getNumOperands() == 0)
          continue;
        auto segment = names.contains(dist::nodeName(&op))
                           ? std::optional(dist::nodeName(&op))
                           : segmentOf(&op, pattern.nodes);
        if (segment) {
          segments.try_emplace(&op,
                               Segment{pattern.together ? together : *segment, &pattern});
          found = true;
        }
      }
      if (!found)
        return makeError("recompute: no node and no module is named '" +
                         llvm::join(pattern.nodes, "', '") + "'");
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

private:
  /// The node or the outermost module of it that a pattern names.
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
    for (std::string path = known ? known.getValue().str() : ""; !path.empty();) {
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
      made->setAttr(phaseAttr, PhaseAttr::get(op->getContext(), Phase::Backward));
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
  DenseMap<Operation *, Segment> segments;
  DenseMap<Operation *, Operation *> copies;
  int64_t marked = 0, numTogether = 0;
};
} // namespace

Expected<void> train::repeatForward(func::FuncOp function,
                                    const std::vector<Recompute> &asked) {
  if (asked.empty())
    return {};
  Repeater repeater(function);
  if (auto ok = repeater.findSegments(asked); !ok)
    return ok;
  repeater.run();
  return {};
}
