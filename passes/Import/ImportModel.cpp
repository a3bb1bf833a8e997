//===- ImportModel.cpp - From an ONNX model to the graph dialect ----------===//
#include "passes/Import/Import.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Returned.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Import/Counted.h"
#include "passes/Import/Quantization.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <map>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static const HandlerTable &handlers() {
  static const HandlerTable table = [] {
    HandlerTable result;
    addElementwise(result);
    addContractions(result);
    addReductions(result);
    addShapes(result);
    addEinsum(result);
    addIndexing(result);
    addSelection(result);
    addNormalization(result);
    addQuantization(result);
    addSampling(result);
    addSignals(result);
    addPools(result);
    addRandom(result);
    addText(result);
    addContrib(result);
    addMachineLearning(result);
    addTraining(result);
    addRecurrent(result);
    addControl(result);
    addManual(result);
    return result;
  }();
  return table;
}

/// Operators of other domains are called with theirs.
static std::string keyOf(const Node &node) {
  return node.domain.empty() ? node.opType : node.domain + "." + node.opType;
}

static bool hasImport(const Node &node) {
  return handlers().contains(keyOf(node)) ||
         (node.domain.empty() && isPayloadOp(node.opType));
}

/// Why a node has no import. Operators of ONNX Runtime for one processor's blocks of
/// channels are left by its highest level alone, in files of that processor.
static std::string notImplemented(const Node &node) {
  if (node.domain == "com.microsoft.nchwc")
    return "this operator is a kernel of ONNX Runtime for one processor; optimize the "
           "model at ORT_ENABLE_EXTENDED, not at ORT_ENABLE_ALL";
  bool knowsDomain =
      node.domain.empty() || llvm::any_of(handlers().keys(), [&](llvm::StringRef key) {
        return key.starts_with(node.domain + ".");
      });
  return knowsDomain ? "this operator is not implemented"
                     : "operators of this domain are not implemented";
}

static Error describe(const std::string &path,
                      const std::vector<UnsupportedNode> &nodes) {
  std::string text = "'" + path + "': " + std::to_string(nodes.size()) +
                     (nodes.size() == 1 ? " node is" : " nodes are") + " not supported:";
  for (const UnsupportedNode &node : nodes)
    text += "\n  " + (node.domain.empty() ? "ai.onnx" : node.domain) + "." + node.opType +
            "-" + std::to_string(node.version) + " '" + node.node + "': " + node.reason;
  return {.message = text, .node = nodes.front().node};
}

/// The node whose import made a constant: both have one name. Empty where it has none,
/// as an initializer.
static StringRef makerOf(graph::ConstantOp constant) {
  auto own = dyn_cast<NameLoc>(constant.getLoc());
  bool isMade = own && llvm::any_of(constant->getUsers(), [&](Operation *user) {
                  auto node = dyn_cast<NameLoc>(user->getLoc());
                  return node && node.getName() == own.getName();
                });
  return isMade ? own.getName().getValue() : StringRef();
}

static bool isCalled(graph::ConstantOp constant, StringRef name) {
  auto own = dyn_cast<NameLoc>(constant.getLoc());
  return own && own.getName() == name;
}

/// Makes equal constants of a function one. It is called as the first of them, so it
/// notes which nodes' imports made the others:
///   %0 = constant 0.5 loc("g1")     mul %x, %0 loc("g1")
///   %1 = constant 0.5 loc("g2")     mul %y, %1 loc("g2")
/// becomes one that is made for "g1" and "g2", and neither node has it as an input.
static void mergeConstants(func::FuncOp function) {
  llvm::MapVector<Attribute, SmallVector<graph::ConstantOp>> groups;
  for (auto constant : function.getOps<graph::ConstantOp>())
    groups[constant.getValue()].push_back(constant);
  for (auto &[value, equal] : groups) {
    if (equal.size() == 1)
      continue;
    llvm::SetVector<StringRef> makers;
    for (graph::ConstantOp constant : equal)
      if (StringRef maker = makerOf(constant); !maker.empty())
        makers.insert(maker);
    for (graph::ConstantOp other : ArrayRef(equal).drop_front()) {
      other.replaceAllUsesWith(equal.front().getResult());
      other.erase();
    }
    if (!makers.empty() && (makers.size() > 1 || !isCalled(equal.front(), makers[0])))
      setMakers(equal.front(), makers.getArrayRef());
  }
}

namespace {
class ModelImporter {
public:
  ModelImporter(MLIRContext *context, const onnx_model::Model &model,
                const TrainingImport *training, const Mesh &mesh)
      : model(model), builder(context), importer(builder, result.weights) {
    importer.mesh = &mesh;
    importer.nodes = &model.graph.nodes;
    importer.training = training;
  }

  Expected<ImportedModel> run(std::vector<UnsupportedNode> &unsupported) {
    auto function = begin();
    importer.keepsLoops = model.keepsLoops;
    findLoops();
    for (const Node &node : model.graph.nodes)
      ++partsOf[node.origin];
    importNodes(nodesAround(nullptr), unsupported);
    if (!unsupported.empty())
      return tl::unexpected(describe(model.path, unsupported));
    return finish(function);
  }

private:
  /// The nodes of one program: the graph's, or those of the body of a loop.
  void importNodes(const std::vector<const Node *> &nodes,
                   std::vector<UnsupportedNode> &unsupported) {
    for (const Node *it : nodes) {
      const Node &node = *it;
      // A node behind an unsupported one has no operands: that alone is no reason.
      if (isEnd(node) ? !hasOperands(beginOf(node))
                      : hasImport(node) && !hasOperands(node))
        continue;
      Block *block = builder.getInsertionBlock();
      Operation *before = block->empty() ? nullptr : &block->back();
      auto values = isEnd(node) ? importBody(node, unsupported) : importNode(node);
      for (size_t i = values ? values->size() : 0; i < node.outputs.size(); ++i)
        if (values && !node.outputs[i].empty())
          values = makeError("its output " + std::to_string(i) + " is not computed");
      if (values) {
        for (size_t i = 0; i < node.outputs.size() && i < values->size(); ++i)
          define(node.outputs[i], (*values)[i], node);
        noteInputs(node, block, before);
        continue;
      }
      unsupported.push_back({node.opType, node.domain, node.origin,
                             values.error().message +
                                 (node.name == node.origin ? "" : " (part of this node)"),
                             versionOf(node)});
    }
  }

  /// Keeps in which order the ops behind `before`, which a node has become, read the
  /// inputs that its file's node has.
  void noteInputs(const Node &node, Block *block, Operation *before) {
    auto call = model.graph.callInputs.find(node.origin);
    bool isCall = call != model.graph.callInputs.end();
    // What else the loader makes several nodes of is in the order of these.
    if (loopOf.count(&node) || (!isCall && partsOf[node.origin] > 1))
      return;
    ReadInputs &inputs = readInputs[node.origin];
    inputs.names = isCall ? call->second : node.inputs;
    for (auto op = before ? std::next(before->getIterator()) : block->begin();
         op != block->end(); ++op)
      for (Value operand : op->getOperands())
        for (size_t i = 0; i < inputs.names.size(); ++i)
          if (importer.lookup(inputs.names[i]) == operand) {
            if (!llvm::is_contained(inputs.order, i))
              inputs.order.push_back(i);
            break;
          }
  }

  static bool isEnd(const Node &node) {
    return onnx_model::isAroundPart(node) && node.opType.ends_with("End");
  }
  static bool isBegin(const Node &node) {
    return onnx_model::isAroundPart(node) && node.opType.ends_with("Begin");
  }

  /// Which nodes lie on the way from the beginning of a loop, or of what is
  /// differentiated, to its end: of nested ones the innermost counts.
  void findLoops() {
    std::map<std::string, size_t> makers;
    const auto &nodes = model.graph.nodes;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const std::string &output : nodes[i].outputs)
        makers[output] = i;
    for (size_t end = 0; end < nodes.size(); ++end) {
      if (!isEnd(nodes[end]))
        continue;
      Loop loop{&nodes[end]};
      const std::string &name = *nodes[end].attribute<std::string>("begin");
      std::vector<bool> behind(nodes.size(), false), before(nodes.size(), false);
      auto makerOf = [&](const std::string &input) {
        auto it = makers.find(input);
        return it == makers.end() ? nodes.size() : it->second;
      };
      for (size_t i = 0; i < end; ++i) {
        if (nodes[i].name == name)
          loop.begin = &nodes[i], behind[i] = true;
        for (const std::string &input : nodes[i].inputs)
          if (size_t maker = makerOf(input); maker < i && behind[maker])
            behind[i] = true;
      }
      before[end] = true;
      for (size_t i = end + 1; i-- > 0;)
        for (const std::string &input : nodes[i].inputs)
          if (size_t maker = makerOf(input); before[i] && maker < i)
            before[maker] = true;
      for (size_t i = 0; i < end; ++i)
        if (behind[i] && before[i] && &nodes[i] != loop.begin)
          loop.nodes.push_back(&nodes[i]);
      // The end of an inner loop comes before that of the outer one.
      for (const Node *node : loop.nodes)
        loopOf.try_emplace(node, loops.size());
      if (loop.begin)
        loopOf.try_emplace(loop.begin, loops.size());
      loops.push_back(std::move(loop));
    }
  }

  /// The nodes that are in this loop and in none inside it; null: in no loop.
  std::vector<const Node *> nodesAround(const Node *end) {
    std::vector<const Node *> nodes;
    for (const Node &node : model.graph.nodes) {
      auto it = loopOf.find(&node);
      const Node *own = it == loopOf.end() ? nullptr : loops[it->second].end;
      if (own == end && !isBegin(node))
        nodes.push_back(&node);
    }
    return nodes;
  }

  const Node &beginOf(const Node &end) const {
    return *llvm::find_if(loops, [&](const Loop &loop) {
              return loop.end == &end;
            })->begin;
  }

  /// What the nodes between two give, built in a function of its own.
  Expected<Values> importBody(const Node &end,
                              std::vector<UnsupportedNode> &unsupported) {
    const Node &begin = beginOf(end);
    Location location = NameLoc::get(builder.getStringAttr(end.origin));
    auto build = [&](const Values &arguments) -> Expected<Values> {
      for (auto [name, value] : llvm::zip_equal(begin.outputs, arguments))
        importer.define(name, value);
      size_t before = unsupported.size();
      importNodes(nodesAround(&end), unsupported);
      importer.location = location;
      Values given;
      for (const std::string &input : end.inputs)
        given.push_back(importer.lookup(input));
      if (unsupported.size() != before || llvm::is_contained(given, Value()))
        return makeError("its body has a node that is not supported");
      return given;
    };
    importer.location = location;
    auto results = end.opType == "IfEnd"       ? importIf(end, begin, unsupported)
                   : end.opType == "RepeatEnd" ? importLoop(end, begin, build)
                                               : importGradient(end, begin, build);
    importer.location = location;
    return results;
  }

  /// The nodes between IfBegin and the outputs of one branch.
  std::vector<const Node *> nodesOfBranch(const Node &end, const Node &begin,
                                          ArrayRef<std::string> outputs) {
    std::map<std::string, const Node *> makers;
    for (const Node &node : model.graph.nodes)
      for (const std::string &output : node.outputs)
        makers[output] = &node;
    std::set<const Node *> needed{&begin};
    std::vector<std::string> work(outputs.begin(), outputs.end());
    while (!work.empty()) {
      auto it = makers.find(work.back());
      work.pop_back();
      if (it != makers.end() && needed.insert(it->second).second)
        llvm::append_range(work, it->second->inputs);
    }
    std::vector<const Node *> nodes;
    for (const Node *node : nodesAround(&end))
      if (needed.contains(node))
        nodes.push_back(node);
    return nodes;
  }

  /// Where import knows the condition, the branch is part of the program around it. So
  /// are both where what they give is of other sizes, or as long as the data say: an op
  /// has results of one type.
  Expected<Values> importIf(const Node &end, const Node &begin,
                            std::vector<UnsupportedNode> &unsupported) {
    size_t count = end.outputs.size();
    Values inputs = inputsOf(begin);
    auto branch = [&](size_t number) {
      return [&, number](const Values &arguments) -> Expected<Values> {
        auto outputs = ArrayRef(end.inputs).slice(1 + number * count, count);
        // What import knows of a value around it, it knows of no argument.
        for (auto [name, value, input] :
             llvm::zip_equal(begin.outputs, arguments, inputs))
          importer.define(name, importer.knows(input) ? input : value);
        size_t before = unsupported.size();
        importNodes(nodesOfBranch(end, begin, outputs), unsupported);
        Values given;
        for (const std::string &output : outputs)
          given.push_back(importer.lookup(output));
        if (unsupported.size() != before || llvm::is_contained(given, Value()))
          return makeError("its branch has a node that is not supported");
        importer.location = NameLoc::get(builder.getStringAttr(end.origin));
        return given;
      };
    };
    Value condition = inputs.front();
    auto known = importer.sizes.read(condition);
    if (known && known->size() == 1 && known->front().isKnown())
      return branch(known->front().most != 0 ? 0 : 1)(inputs);
    bool isCounted = false;
    std::vector<SmallVector<Type>> types(2);
    auto watched = [&](size_t number) {
      return [&, number](const Values &arguments) {
        auto given = branch(number)(arguments);
        for (Value value : given ? *given : Values()) {
          isCounted |= !importer.countedDims(value).empty();
          types[number].push_back(value.getType());
        }
        return given;
      };
    };
    auto made = importer.choose(condition, inputs, watched(0), watched(1));
    bool areOther =
        types[0].size() == count && types[1].size() == count && types[0] != types[1];
    if (made || !(isCounted || areOther))
      return made;
    auto yes = branch(0)(inputs);
    auto no = yes ? branch(1)(inputs) : yes;
    if (!no)
      return no;
    Compose c(importer);
    Values results;
    for (auto [a, b] : llvm::zip_equal(*yes, *no))
      results.push_back(either(c, condition, a, b));
    return c.results(results);
  }

  using Build = llvm::function_ref<Expected<Values>(const Values &)>;

  Expected<Values> importGradient(const Node &end, const Node &begin, Build build) {
    Values inputs = inputsOf(begin);
    auto wanted = static_cast<size_t>(*end.attribute<int64_t>("wanted"));
    return importer.gradient(inputs, wanted,
                             [&](const Values &arguments) -> Expected<Value> {
                               auto given = build(arguments);
                               if (!given)
                                 return tl::unexpected(given.error());
                               return given->front();
                             });
  }

  Expected<Values> importLoop(const Node &end, const Node &begin, Build build) {
    auto trips = *end.attribute<int64_t>("trips");
    auto count = static_cast<size_t>(*end.attribute<int64_t>("carried"));
    Values carried, scanned;
    for (size_t i = 0; i < begin.inputs.size(); ++i)
      (i < count ? carried : scanned).push_back(importer.lookup(begin.inputs[i]));
    return importer.repeat(trips, carried, scanned, build);
  }

  /// Of an operator that nobody knows, the version of its domain that the file imports.
  int versionOf(const Node &node) const {
    auto it = model.opsets.find(node.domain);
    return node.sinceVersion != 0 || it == model.opsets.end()
               ? node.sinceVersion
               : static_cast<int>(it->second);
  }

  /// A value that an earlier node computed, or an input, has other names now: this node
  /// changes nothing.
  void define(const std::string &name, Value value, const Node &node) {
    importer.define(name, value);
    if (name.empty())
      return;
    auto made = dyn_cast<OpResult>(value);
    if (made && isOfThisNode(made))
      return setValueName(made, name);
    addValueName(value, name);
    addValueName(value, node.origin);
  }

  /// Of several results of an op one may have been named before.
  bool isOfThisNode(OpResult value) const {
    Operation *op = value.getOwner();
    if (op->getLoc() == importer.location)
      return true;
    auto node = dyn_cast<NameLoc>(op->getLoc());
    SmallVector<StringRef> names = valueNames(value);
    return op->getNumResults() > 1 && !names.empty() &&
           node.getName() == cast<NameLoc>(importer.location).getName() &&
           names.front().starts_with(node.getName().str() + "#");
  }

  func::FuncOp begin() {
    auto name = [&](const std::string &text) {
      return NameLoc::get(builder.getStringAttr(text));
    };
    result.module = ModuleOp::create(builder.getUnknownLoc());
    SmallVector<Type> types;
    for (const onnx_model::ValueInfo &input : model.graph.inputs)
      types.push_back(tensorType(builder.getContext(), input.type, input.shape));
    builder.setInsertionPointToEnd(result.module->getBody());
    auto function = func::FuncOp::create(builder, name(model.graph.name), "main",
                                         builder.getFunctionType(types, {}));
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToEnd(body);
    for (auto [i, input] : llvm::enumerate(model.graph.inputs)) {
      auto index = static_cast<unsigned>(i);
      function.setArgAttr(index, "graph.name", builder.getStringAttr(input.name));
      // A halo of an input is the input's, not the graph's.
      body->getArgument(index).setLoc(name(input.name));
      importer.define(input.name, body->getArgument(index));
    }
    llvm::StringSet<> moments = runningMoments();
    for (const onnx_model::Tensor &tensor : model.graph.initializers) {
      importer.location = name(tensor.name);
      if (importer.training &&
          (moments.contains(tensor.name) || importer.training->trains(tensor))) {
        Value state = stateFrom(function, tensor);
        importer.define(tensor.name, state);
        if (moments.contains(tensor.name))
          importer.nextStates.emplace_back(state, state);
        continue;
      }
      bool isExternal = !tensor.file.empty() && tensor.file != model.path;
      bool isUpdated = llvm::any_of(model.graph.updates, [&](const auto &update) {
        return update.first == tensor.name;
      });
      importer.define(tensor.name, isUpdated ? stateFrom(function, tensor)
                                             : importer.initializer(tensor, isExternal));
    }
    if (importer.training)
      importer.step =
          addState(function, "step", RankedTensorType::get({}, builder.getI64Type()), {});
    return function;
  }

  /// A state that begins as an initializer.
  Value stateFrom(func::FuncOp function, const onnx_model::Tensor &tensor) {
    importer.keepWeight(tensor);
    return addState(function, tensor.name,
                    tensorType(builder.getContext(), tensor.type, tensor.shape),
                    builder.getStringAttr(tensor.name));
  }

  /// An argument that is what the step before has left.
  Value addState(func::FuncOp function, const std::string &state, Type type,
                 StringAttr init) {
    MLIRContext *context = builder.getContext();
    auto attr = dist::StateAttr::get(context, builder.getStringAttr(state), init);
    auto attrs = builder.getDictionaryAttr(
        {builder.getNamedAttr("graph.name", builder.getStringAttr(state)),
         builder.getNamedAttr(dist::stateAttr, attr)});
    unsigned place = function.getNumArguments();
    if (failed(function.insertArgument(place, type, attrs,
                                       NameLoc::get(builder.getStringAttr(state)))))
      llvm_unreachable("an argument can be added to a function");
    return function.getArgument(place);
  }

  /// Initializers that are the running moments of a normalization by the batch's own.
  llvm::StringSet<> runningMoments() const {
    llvm::StringSet<> names;
    if (!importer.training || !importer.training->batchStatistics)
      return names;
    for (const Node &node : model.graph.nodes)
      if (node.domain.empty() && node.opType == "BatchNormalization")
        for (size_t i : {3, 4})
          if (node.hasInput(i))
            names.insert(node.inputs[i]);
    return names;
  }

  bool hasOperands(const Node &node) const {
    return llvm::all_of(node.inputs, [&](const std::string &input) {
      return input.empty() || importer.lookup(input);
    });
  }

  Expected<Values> importNode(const Node &node) {
    if (!hasImport(node))
      return makeError(notImplemented(node));
    // In the body of a loop a node has a name of its own behind the loop's.
    importer.location = NameLoc::get(
        builder.getStringAttr(loopOf.count(&node) ? node.name : node.origin));
    importer.nodeName = node.name;
    auto it = handlers().find(keyOf(node));
    if (it == handlers().end())
      return importPayloadOp(importer, node);
    if (!it->second.takesCounts)
      if (auto ok =
              importer.checkAllThere(inputsOf(node), "which this operator does not take");
          !ok)
        return tl::unexpected(ok.error());
    return it->second.handler(importer, node);
  }

  Values inputsOf(const Node &node) const {
    Values inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(importer.input(node, i));
    return inputs;
  }

  /// The sizes of outputs that are data, which are results behind them.
  struct Sizes {
    std::map<unsigned, std::vector<std::string>> dims; ///< by output
    std::vector<std::string> names;
    unsigned first = 0;

    void setAttrs(func::FuncOp function) const {
      Builder builder(function.getContext());
      for (const auto &[output, list] : dims)
        function.setResultAttr(
            output, graph::dimsAttr,
            builder.getStrArrayAttr(SmallVector<StringRef>(list.begin(), list.end())));
      for (auto [i, name] : llvm::enumerate(names)) {
        auto result = first + static_cast<unsigned>(i);
        function.setResultAttr(result, "graph.name", builder.getStringAttr(name));
        function.setResultAttr(result, graph::sizeAttr, builder.getUnitAttr());
      }
    }
  };

  Expected<Sizes> addSizes(SmallVector<Value> &results) {
    Sizes sizes;
    sizes.first = static_cast<unsigned>(results.size());
    llvm::DenseMap<Value, std::string> known;
    for (unsigned i = 0; i < sizes.first; ++i)
      for (size_t d : importer.countedDims(results[i])) {
        if (importer.training)
          return makeError("'" + model.path + "': " + importer.countText(results[i], d) +
                           ", and a model that trains has outputs of one size");
        std::string &name = known[importer.countOf(results[i], d)];
        if (name.empty()) {
          name = freeOutputName(model.graph.outputs[i] + "#" + std::to_string(d));
          sizes.names.push_back(name);
          results.push_back(importer.countOf(results[i], d));
        }
        sizes.dims[i].resize(shapeOf(results[i]).size());
        sizes.dims[i][d] = name;
      }
    return sizes;
  }

  /// A name that no output of the model has.
  std::string freeOutputName(std::string name) const {
    while (llvm::is_contained(model.graph.outputs, name))
      name += "#";
    return name;
  }

  Expected<ImportedModel> finish(func::FuncOp function) {
    SmallVector<Value> results;
    const std::vector<DType> &stated = model.graph.outputTypes;
    for (auto [i, name] : llvm::enumerate(model.graph.outputs)) {
      Value value = importer.lookup(name);
      DType computed = *dtypeOf(getElementTypeOrSelf(value.getType()));
      DType declared = stated.empty() ? computed : stated[i];
      if (computed != declared)
        return makeError("'" + model.path + "': output '" + name + "' is declared as " +
                         std::string(partita::name(declared)) + ", but computed as " +
                         std::string(partita::name(computed)));
      results.push_back(value);
    }
    auto sizes = addSizes(results);
    if (!sizes)
      return tl::unexpected(sizes.error());
    for (const auto &[initializer, value] : model.graph.updates) {
      Value before = importer.lookup(initializer), next = importer.lookup(value);
      if (before.getType() != next.getType())
        return makeError("'" + model.path + "': initializer '" + initializer +
                         "' becomes '" + value + "', which is of another type or shape");
      if (auto ok = importer.checkAllThere({next}, "and a state keeps its size"); !ok)
        return tl::unexpected(ok.error());
      importer.nextStates.emplace_back(before, next);
    }
    for (auto [before, next] : importer.nextStates)
      results.push_back(next);
    for (const auto &[name, source] : model.graph.aliases)
      if (Value value = importer.lookup(source))
        addValueName(value, name);
    importer.location = builder.getUnknownLoc();
    func::ReturnOp::create(builder, importer.location, results);
    setNodeFacts();
    function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                             ValueRange(results).getTypes()));
    for (auto [i, output] : llvm::enumerate(model.graph.outputs))
      function.setResultAttr(static_cast<unsigned>(i), "graph.name",
                             builder.getStringAttr(output));
    sizes->setAttrs(function);
    auto first = static_cast<unsigned>(model.graph.outputs.size() + sizes->names.size());
    for (auto [i, state] : llvm::enumerate(importer.nextStates)) {
      auto argument = cast<BlockArgument>(state.first).getArgNumber();
      StringAttr name = dist::argumentState(function, argument).getName();
      function.setResultAttr(
          first + static_cast<unsigned>(i), dist::stateAttr,
          dist::StateAttr::get(builder.getContext(), name, StringAttr()));
    }
    for (auto each : result.module->getOps<func::FuncOp>())
      mergeConstants(each);
    for (auto each : result.module->getOps<func::FuncOp>())
      for (auto weight : each.getOps<graph::WeightOp>())
        if (importer.isExternal(weight.getResult()))
          weight->setAttr(externalAttr, builder.getUnitAttr());
    return std::move(result);
  }

  /// Which module a node comes from, and the order of its inputs, by the node's name: ops
  /// are called by it, so that no rewrite has to know of modules.
  void setNodeFacts() {
    SmallVector<NamedAttribute> paths;
    for (const Node &node : model.graph.nodes)
      if (auto it = model.graph.modules.find(node.origin);
          it != model.graph.modules.end() && node.name == node.origin)
        paths.push_back(
            builder.getNamedAttr(node.origin, builder.getStringAttr(it->second)));
    if (!paths.empty())
      result.module.get()->setAttr(modulePathsAttr, builder.getDictionaryAttr(paths));
    // Only where hints could not go by the order of the ops.
    SmallVector<NamedAttribute> orders;
    for (auto &[node, inputs] : readInputs)
      if (!llvm::is_sorted(inputs.order)) {
        llvm::erase(inputs.names, "");
        SmallVector<StringRef> names(inputs.names.begin(), inputs.names.end());
        orders.push_back(builder.getNamedAttr(node, builder.getStrArrayAttr(names)));
      }
    if (!orders.empty())
      result.module.get()->setAttr(nodeInputsAttr, builder.getDictionaryAttr(orders));
  }

  struct Loop {
    const Node *end = nullptr, *begin = nullptr;
    std::vector<const Node *> nodes = {};
  };

  const onnx_model::Model &model;
  OpBuilder builder;
  ImportedModel result;
  Importer importer;
  std::vector<Loop> loops;
  std::map<const Node *, size_t> loopOf;
  /// The inputs of a node of the file, and the numbers of those that are read, in the
  /// order in which its ops do.
  struct ReadInputs {
    std::vector<std::string> names;
    std::vector<size_t> order;
  };
  std::map<std::string, ReadInputs> readInputs; ///< by node of the file
  std::map<std::string, int> partsOf;           ///< how many nodes one of the file became
};
} // namespace

Expected<ImportedModel> partita::importModel(MLIRContext *context,
                                             const onnx_model::Model &model,
                                             std::vector<UnsupportedNode> *unsupported,
                                             const TrainingImport *training,
                                             const Mesh &mesh) {
  context->loadDialect<graph::GraphDialect, dist::DistDialect, func::FuncDialect>();
  std::vector<UnsupportedNode> local;
  return ModelImporter(context, model, training, mesh)
      .run(unsupported ? *unsupported : local);
}
