//===- SplitStages.cpp - A module per stage -------------------------------===//
#include "passes/Stage/Stages.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <functional>

using namespace mlir;
using namespace partita;

namespace {
class Splitter {
public:
  Splitter(func::FuncOp function, const std::vector<int32_t> &stageOf,
           const std::map<std::string, int32_t> &stageOfState)
      : function(function) {
    size_t i = 0;
    for (Operation &op : function.front().without_terminator()) {
      stages[&op] = stageOf[i++];
      count = std::max(count, stages[&op] + 1);
    }
    makeAgain();
    placeStates(stageOfState);
  }

  SplitProgram run() {
    findCrossings();
    for (int32_t s = 0; s < count; ++s)
      program.stages.push_back(build(s));
    return std::move(program);
  }

private:
  /// Ops that follow from weights and constants alone, as the transpose of a tied table,
  /// are wherever they are read, if in several stages: those would be sent the result
  /// with each micro-batch.
  void makeAgain() {
    llvm::SetVector<Operation *> candidates;
    for (Operation &op : function.front().without_terminator())
      if (op.getNumRegions() == 0 && llvm::all_of(op.getOperands(), [&](Value operand) {
            Operation *maker = operand.getDefiningOp();
            return maker && (stageOf(operand) < 0 || candidates.contains(maker));
          }))
        candidates.insert(&op);
    for (Operation *op : llvm::reverse(candidates.getArrayRef()))
      if (llvm::any_of(op->getUsers(), [&](Operation *user) {
            auto it = stages.find(user);
            return it != stages.end() && it->second != stages[op];
          }))
        stages[op] = -1;
  }

  void placeStates(const std::map<std::string, int32_t> &stageOfState) {
    for (BlockArgument argument : function.getArguments()) {
      dist::StateAttr state = dist::argumentState(function, argument.getArgNumber());
      if (!state)
        continue;
      std::set<int32_t> readers = readersOf(argument);
      auto known = stageOfState.find(state.getName().str());
      if (known != stageOfState.end())
        homes[argument] = known->second;
      else if (!readers.empty())
        homes[argument] = *readers.begin();
    }
  }

  /// −1: a source, which is wherever it is read.
  int32_t stageOf(Value value) const {
    if (auto home = homes.find(value); home != homes.end())
      return home->second;
    Operation *producer = value.getDefiningOp();
    return producer ? stages.lookup(producer) : -1;
  }

  std::set<int32_t> readersOf(Value value) const {
    std::set<int32_t> readers;
    for (Operation *user : value.getUsers())
      if (auto it = stages.find(user); it != stages.end() && it->second >= 0)
        readers.insert(it->second);
    return readers;
  }

  /// Notes that a value crosses if stages other than its own read it.
  void addCrossing(Value value, const std::string &base, std::set<std::string> &names) {
    const int32_t from = stageOf(value);
    std::set<int32_t> to = readersOf(value);
    to.erase(from);
    if (to.empty())
      return;
    // An output has its own name, which no other value gets.
    std::optional<std::string> output = outputName(value);
    std::string name = output.value_or(base);
    for (int k = 2; !output && !names.insert(name).second; ++k)
      name = base + "_" + std::to_string(k);
    crossing[value] = program.crossings.size();
    program.crossings.push_back({name, from, {to.begin(), to.end()}});
  }

  void findCrossings() {
    std::set<std::string> names;
    for (BlockArgument argument : function.getArguments())
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                            "graph.name"))
        names.insert(name.str());
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto name = function.getResultAttrOfType<StringAttr>(i, "graph.name"))
        names.insert(name.str());
    for (BlockArgument argument : function.getArguments())
      if (homes.contains(argument))
        addCrossing(
            argument,
            function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "graph.name")
                .str(),
            names);
    for (Operation &op : function.front().without_terminator())
      if (stages[&op] >= 0)
        for (OpResult result : op.getResults()) {
          SmallVector<StringRef> own = valueNames(result);
          addCrossing(result, own.empty() ? dist::nodeName(&op) : own[0].str(), names);
        }
  }

  /// The name of the first output that the value is, if it is one.
  std::optional<std::string> outputName(Value value) {
    for (OpOperand &operand : function.front().getTerminator()->getOpOperands())
      if (operand.get() == value)
        if (auto name = function.getResultAttrOfType<StringAttr>(
                operand.getOperandNumber(), "graph.name"))
          return name.str();
    return std::nullopt;
  }

  /// The stage in which an output of the program is: a source is one of the first.
  int32_t outputStage(Value value) const { return std::max(0, stageOf(value)); }

  OwningOpRef<ModuleOp> build(int32_t stage) {
    OpBuilder builder(function.getContext());
    Location loc = function.getLoc();
    auto module = ModuleOp::create(loc);
    for (NamedAttribute attr : function->getParentOp()->getDiscardableAttrs())
      module->setDiscardableAttr(attr.getName(), attr.getValue());
    builder.setInsertionPointToEnd(module.getBody());
    auto main =
        func::FuncOp::create(builder, loc, "main", builder.getFunctionType({}, {}));
    Block *block = main.addEntryBlock();
    builder.setInsertionPointToEnd(block);
    IRMapping mapping;
    SmallVector<DictionaryAttr> argumentAttrs;
    auto addArgument = [&](Value value, DictionaryAttr attrs) {
      mapping.map(value, block->addArgument(value.getType(), value.getLoc()));
      argumentAttrs.push_back(attrs);
    };
    auto named = [&](const std::string &name) {
      return builder.getDictionaryAttr(
          builder.getNamedAttr("graph.name", builder.getStringAttr(name)));
    };
    std::function<void(Value)> provide = [&](Value value) {
      if (mapping.contains(value))
        return;
      auto argument = dyn_cast<BlockArgument>(value);
      if (argument && (!homes.contains(value) || homes.lookup(value) == stage)) {
        DictionaryAttr attrs = function.getArgAttrDict(argument.getArgNumber());
        addArgument(value, attrs ? attrs : builder.getDictionaryAttr({}));
      } else if (!argument && stageOf(value) < 0) {
        for (Value operand : value.getDefiningOp()->getOperands())
          provide(operand);
        builder.clone(*value.getDefiningOp(), mapping);
      } else {
        addArgument(value, named(program.crossings[crossing.lookup(value)].name));
      }
    };
    for (Operation &op : function.front().without_terminator()) {
      if (stages[&op] != stage)
        continue;
      for (Value operand : op.getOperands())
        provide(operand);
      builder.clone(op, mapping);
    }
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> resultAttrs;
    llvm::SmallDenseSet<Value> given;
    for (OpOperand &operand : function.front().getTerminator()->getOpOperands()) {
      if (outputStage(operand.get()) != stage)
        continue;
      provide(operand.get());
      results.push_back(mapping.lookup(operand.get()));
      DictionaryAttr attrs = function.getResultAttrDict(operand.getOperandNumber());
      resultAttrs.push_back(attrs ? attrs : builder.getDictionaryAttr({}));
      given.insert(operand.get());
    }
    for (const auto &[value, number] : crossing)
      if (stageOf(value) == stage && !given.contains(value)) {
        provide(value); // a state that the stage itself does not read
        results.push_back(mapping.lookup(value));
        resultAttrs.push_back(named(program.crossings[number].name));
      }
    func::ReturnOp::create(builder, loc, results);
    main.setFunctionType(builder.getFunctionType(block->getArgumentTypes(),
                                                 ValueRange(results).getTypes()));
    main.setAllArgAttrs(argumentAttrs);
    main.setAllResultAttrs(resultAttrs);
    return module;
  }

  func::FuncOp function;
  llvm::DenseMap<Operation *, int32_t> stages;
  llvm::DenseMap<Value, int32_t> homes; ///< stages of states
  int32_t count = 1;
  llvm::MapVector<Value, size_t> crossing; ///< into program.crossings
  SplitProgram program;
};
} // namespace

SplitProgram partita::splitStages(func::FuncOp function,
                                  const std::vector<int32_t> &stageOf,
                                  const std::map<std::string, int32_t> &stageOfState) {
  return Splitter(function, stageOf, stageOfState).run();
}
