//===- VerifySampled.cpp - Checking what is too large to evaluate ---------===//
#include "passes/Pipelines/VerifySampled.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"

#include "mlir/IR/IRMapping.h"

#include <filesystem>
#include <random>

using namespace mlir;
using namespace partita;

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

/// Weights and constants are there for whoever evaluates.
static bool isGiven(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->getNumOperands() == 0;
}

static int64_t bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() *
         static_cast<int64_t>(byteWidth(*dtypeOf(type.getElementType())));
}

NodeSample::NodeSample(func::FuncOp function, const EvaluationCost &cost, uint64_t seed,
                       const SampleLimits &limits)
    : function(function) {
  std::vector<Operation *> all;
  for (Operation &op : function.front().without_terminator())
    if (op.getNumOperands() != 0 && op.getNumResults() != 0)
      all.push_back(&op);
  eligible = all.size();
  std::mt19937_64 random(seed);
  for (size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[random() % i]);
  SampleLimits left = limits;
  for (Operation *op : all) {
    if (left.nodes == 0)
      break;
    if (!takes(op, cost, left))
      continue;
    nodes.push_back(op);
    --left.nodes;
    left.seconds -= cost.of(op);
    const size_t known = values.size();
    for (Value value : op->getOperands())
      add(value);
    for (Value value : op->getResults())
      add(value);
    for (size_t i = known; i < values.size(); ++i)
      left.bytes -= bytesOf(values[i]);
  }
  llvm::sort(nodes, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
}

/// Ops that run functions take what these take, which is not known of one op.
bool NodeSample::takes(Operation *op, const EvaluationCost &cost,
                       const SampleLimits &left) {
  if (isa<CallingOpInterface>(op) || cost.of(op) > left.seconds)
    return false;
  int64_t bytes = 0;
  for (ValueRange range : {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : range) {
      if (!isa<RankedTensorType>(value.getType()))
        return false;
      if (!isGiven(value) && !isa<BlockArgument>(value) && !numberOf.contains(value))
        bytes += bytesOf(value);
    }
  return bytes <= left.bytes;
}

void NodeSample::add(Value value) {
  if (isGiven(value) || isa<BlockArgument>(value))
    return;
  if (numberOf.try_emplace(value, values.size()).second)
    values.push_back(value);
}

void NodeSample::addResults(func::FuncOp clone) const {
  IRMapping map;
  func::FuncOp drawnFrom = function;
  for (auto [op, copy] : llvm::zip_equal(drawnFrom.front(), clone.front()))
    map.map(op.getResults(), copy.getResults());
  Operation *end = clone.front().getTerminator();
  Builder builder(clone.getContext());
  for (size_t i = 0; i < values.size(); ++i) {
    auto name = builder.getNamedAttr(
        "graph.name", builder.getStringAttr("sampled." + std::to_string(i)));
    (void)clone.insertResult(clone.getNumResults(), values[i].getType(),
                             builder.getDictionaryAttr(name));
    end->insertOperands(end->getNumOperands(), map.lookup(values[i]));
  }
}

const HostTensor &NodeSample::valueOf(Value value, const Tensors &results,
                                      const Tensors &arguments) const {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return arguments[argument.getArgNumber()];
  return results[numberOf.at(value)];
}

/// A function of one node, whose arguments are what the node reads, but for what is
/// given.
static OwningOpRef<func::FuncOp> functionOf(Operation *node,
                                            const std::vector<Value> &read) {
  OpBuilder builder(node->getContext());
  SmallVector<Type> types;
  for (Value value : read)
    types.push_back(value.getType());
  OwningOpRef<func::FuncOp> function(func::FuncOp::create(
      node->getLoc(), "sampled", builder.getFunctionType(types, node->getResultTypes())));
  Block *block = function->addEntryBlock();
  builder.setInsertionPointToEnd(block);
  IRMapping map;
  for (auto [value, argument] : llvm::zip_equal(read, block->getArguments()))
    map.map(value, argument);
  for (Value operand : node->getOperands())
    if (isGiven(operand) && !map.contains(operand))
      builder.clone(*operand.getDefiningOp(), map);
  Operation *copy = builder.clone(*node, map);
  func::ReturnOp::create(builder, node->getLoc(), copy->getResults());
  return function;
}

Expected<void> NodeSample::checkNode(Operation *node, const Tensors &results,
                                     const Tensors &arguments,
                                     const WeightLoader &weights, const Judge &judge,
                                     StopFlag stop) const {
  std::vector<Value> read;
  Tensors operands;
  for (Value operand : node->getOperands()) {
    if (isGiven(operand) || llvm::is_contained(read, operand))
      continue;
    read.push_back(operand);
    operands.push_back(valueOf(operand, results, arguments));
  }
  auto alone = functionOf(node, read);
  auto evaluated = evaluate(*alone, operands, weights, stop);
  if (!evaluated)
    return tl::unexpected(evaluated.error());
  const std::string where = "node '" + dist::nodeName(node) + "' (" +
                            node->getName().stripDialect().str() + ")";
  for (OpResult result : node->getResults())
    if (auto ok = judge(where, valueOf(result, results, arguments),
                        (*evaluated)[result.getResultNumber()]);
        !ok)
      return ok;
  return {};
}

Expected<void> NodeSample::check(const Tensors &results, const Tensors &arguments,
                                 const WeightLoader &weights, const Judge &judge,
                                 StopFlag stop) const {
  for (Operation *node : nodes)
    if (auto ok = checkNode(node, results, arguments, weights, judge, stop); !ok)
      return ok;
  return {};
}

//===----------------------------------------------------------------------===//
// One rank of `plain`
//===----------------------------------------------------------------------===//

Expected<Aside> partita::temporaryFolder() {
  std::error_code code;
  const std::filesystem::path place = std::filesystem::temp_directory_path(code);
  return Aside::folder(((code ? "/tmp" : place) / "partita-verify").string());
}

Expected<PlainRank> PlainRank::compile(const Job &job, const Program &program,
                                       const std::function<void(func::FuncOp)> &prepare) {
  auto folder = temporaryFolder();
  if (!folder)
    return tl::unexpected(folder.error());
  PlainRank rank;
  rank.folder = std::move(*folder);
  rank.job = std::make_unique<Job>(job);
  Request &request = rank.job->request;
  request.meshes = {};
  request.hints = {};
  request.plan = {};
  request.machine = {};
  request.cut = {};
  request.told = {};
  request.levels = {};
  request.target = {.name = "plain", .threads = 0};
  request.emission = {.output = rank.folder.path() + "/bundle"};
  Compiler compiler(*rank.job);
  static_cast<Program &>(compiler) = program.clone();
  auto main = compiler.module->lookupSymbol<func::FuncOp>("main");
  if (prepare)
    prepare(main);
  rank.main = main.clone();
  for (auto step :
       {&Compiler::annotate, &Compiler::partition, &Compiler::schedule, &Compiler::emit})
    if (auto ok = (compiler.*step)(); !ok)
      return makeError("as one rank of 'plain': " + ok.error().message);
  return rank;
}

Expected<Tensors> PlainRank::run(const BundleRunner &runner, const Tensors &arguments,
                                 StopFlag stop) const {
  // A task of loops may take minutes, in which it tells no progress; a rank that is alone
  // waits for nobody.
  constexpr double patience = 3600;
  return runBundleOf(*main, runner, job->request.emission.output, arguments,
                     {.timeout = patience, .stop = stop});
}
