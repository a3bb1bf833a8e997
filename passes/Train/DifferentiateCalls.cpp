//===- DifferentiateCalls.cpp - Reverse mode through loops and branches ---===//
//
// A trip of a loop is differentiated as a function of what was carried into it, its rows
// and what all trips share. The loop of cotangents runs from the last trip to the first;
// each of its trips computes the forward trip again from what was carried into it, which
// the forward loop keeps as rows, and carries on the cotangents of what was carried and
// the sums of those of what is shared:
//
//     %last = graph.repeat @body trips 8 carried(%h) scanned(%x) with(%w)
//
//     %last, %hs = graph.repeat @body_kept trips 8 carried(%h) scanned(%x) with(%w)
//     %dh, %dw, %dx = graph.repeat @body_backward trips 8
//         carried(%dlast, %zeros) scanned(reversed %hs, reversed %x) with(%w)
//
// A branch runs the backward function of the side that was taken.
//
//===----------------------------------------------------------------------===//
#include "passes/Train/Differentiate.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

static std::string freeName(ModuleOp module, const std::string &base) {
  std::string name = base;
  for (int number = 2; module.lookupSymbol(name); ++number)
    name = base + "_" + std::to_string(number);
  return name;
}

static Value inPhase(Value value, Phase phase) {
  Operation *op = value.getDefiningOp();
  dist::setPhase(op, phase);
  return value;
}

/// The seeds, one for each value: what several results give to one is added up.
static std::vector<Seed> merged(Block &block, const std::vector<Seed> &seeds) {
  OpBuilder builder(block.getTerminator());
  Formula f(builder, block.getTerminator()->getLoc());
  std::vector<Seed> result;
  for (const Seed &seed : seeds) {
    auto same =
        llvm::find_if(result, [&](const Seed &s) { return s.value == seed.value; });
    if (same == result.end())
      result.push_back(seed);
    else
      same->cotangent = inPhase(f.add(same->cotangent, seed.cotangent), Phase::Backward);
  }
  return result;
}

/// A private function of these arguments, without a terminator.
static func::FuncOp newFunction(func::FuncOp like, const std::string &suffix,
                                TypeRange arguments) {
  auto module = like->getParentOfType<ModuleOp>();
  OpBuilder builder(module.getBodyRegion());
  builder.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(builder, like.getLoc(),
                                       freeName(module, like.getName().str() + suffix),
                                       builder.getFunctionType(arguments, {}));
  function.setPrivate();
  function.addEntryBlock();
  return function;
}

static void finishFunction(func::FuncOp function, const Values &results) {
  Block &block = function.front();
  if (!block.empty() && isa<func::ReturnOp>(block.back()))
    block.back().erase();
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setType(
      builder.getFunctionType(block.getArgumentTypes(), ValueRange(results).getTypes()));
}

/// As above, of a function that the backward pass runs: what it has of the forward pass
/// it computes again.
static void finishBackwardFunction(func::FuncOp function, const Values &results) {
  finishFunction(function, results);
  for (Operation &op : function.front().without_terminator())
    if (op.getNumOperands() != 0 && dist::phaseOf(&op) == Phase::Forward)
      dist::setPhase(&op, Phase::Backward);
}

/// Copies what `from` computes to the end of `to`; what it returns there.
static Values copyBody(func::FuncOp from, func::FuncOp to, ValueRange arguments) {
  OpBuilder builder = OpBuilder::atBlockEnd(&to.front());
  IRMapping mapping;
  mapping.map(from.getArguments(), arguments);
  for (Operation &op : from.front().without_terminator())
    builder.clone(op, mapping);
  Values results;
  for (Value result : from.front().getTerminator()->getOperands())
    results.push_back(mapping.lookupOrDefault(result));
  // The place before which cotangents are built.
  func::ReturnOp::create(builder, from.getLoc(), results);
  return results;
}

static Value orZeros(Formula &f, Value value, Type type) {
  if (value)
    return value;
  auto tensor = cast<RankedTensorType>(type);
  return f.zeros(tensor.getElementType(), tensor.getShape().vec());
}

static RankedTensorType rowsOf(Type row, int64_t trips) {
  auto type = cast<RankedTensorType>(row);
  SmallVector<int64_t> shape{trips};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

namespace {
/// One loop and the loop of its cotangents.
class LoopGradient {
public:
  LoopGradient(RepeatOp loop, OpBuilder &builder, ArrayRef<Value> cotangents,
               const std::vector<bool> &wanted)
      : loop(loop), builder(builder), f(builder, loop.getLoc()), cotangents(cotangents),
        wanted(wanted), carriedCount(loop.getCarried().size()),
        trips(static_cast<int64_t>(loop.getTrips())),
        body(cast<func::FuncOp>(loop.getCallees()[0])) {
    for (auto [i, argument] : llvm::enumerate(body.getArguments()))
      if (isReal(argument) && (i < carriedCount || wanted[i]))
        differentiated.push_back(static_cast<unsigned>(i));
  }

  Expected<Values> run() {
    if (auto ok = buildBackward(); !ok)
      return tl::unexpected(ok.error());
    Values kept = keepCarried();
    return f.results(call(kept));
  }

private:
  bool isCarried(unsigned i) const { return i < carriedCount; }
  bool isScanned(unsigned i) {
    return !isCarried(i) && i < carriedCount + loop.getScanned().size();
  }

  /// Arguments: cotangents of what is carried, sums for what is shared; rows of what was
  /// carried, of what is scanned, of the cotangents of rows; what is shared.
  Expected<void> buildBackward() {
    SmallVector<Type> types;
    auto add = [&](Type type) {
      types.push_back(type);
      return types.size() - 1;
    };
    std::vector<size_t> state, inside(body.getNumArguments()), rows;
    for (unsigned i : differentiated)
      if (!isScanned(i))
        state.push_back(add(body.getArgument(i).getType()));
    for (unsigned i = 0; i < body.getNumArguments(); ++i)
      if (isCarried(i) || isScanned(i))
        inside[i] = add(body.getArgument(i).getType());
    for (size_t r = carriedCount; r < cotangents.size(); ++r)
      if (cotangents[r])
        rows.push_back(add(body.getResultTypes()[r]));
    for (unsigned i = 0; i < body.getNumArguments(); ++i)
      if (!isCarried(i) && !isScanned(i))
        inside[i] = add(body.getArgument(i).getType());
    backward = newFunction(body, "_backward", types);
    auto at = [&](size_t k) {
      return Value(backward.getArgument(static_cast<unsigned>(k)));
    };
    Values arguments, sought;
    for (size_t k : inside)
      arguments.push_back(at(k));
    Values results = copyBody(body, backward, arguments);
    std::vector<Seed> seeds;
    size_t next = 0;
    for (unsigned i : differentiated) {
      sought.push_back(arguments[i]);
      if (isCarried(i))
        seeds.push_back({results[i], at(state[next++])});
    }
    for (size_t r = carriedCount, k = 0; r < cotangents.size(); ++r)
      if (cotangents[r])
        seeds.push_back({results[r], at(rows[k++])});
    auto found = differentiate(backward.front(), merged(backward.front(), seeds), sought);
    if (!found)
      return tl::unexpected(found.error());
    finishBackward(*found, state);
    return {};
  }

  void finishBackward(const Values &found, const std::vector<size_t> &state) {
    OpBuilder inner(backward.front().getTerminator());
    Formula g(inner, loop.getLoc());
    Values carried, rows;
    size_t next = 0;
    for (auto [k, i] : llvm::enumerate(differentiated)) {
      Type type = body.getArgument(i).getType();
      if (isScanned(i)) {
        rows.push_back(orZeros(g, found[k], type));
        continue;
      }
      Value before = backward.getArgument(static_cast<unsigned>(state[next++]));
      if (isCarried(i))
        carried.push_back(orZeros(g, found[k], type));
      else
        carried.push_back(found[k] ? inPhase(g.add(before, found[k]), Phase::Weight)
                                   : before);
    }
    carried.insert(carried.end(), rows.begin(), rows.end());
    finishBackwardFunction(backward, carried);
  }

  /// Replaces the loop by one that also gives what was carried into each trip.
  Values keepCarried() {
    func::FuncOp keeping = newFunction(body, "_kept", body.getArgumentTypes());
    Values results = copyBody(body, keeping, keeping.getArguments());
    for (unsigned i = 0; i < carriedCount; ++i)
      results.push_back(keeping.getArgument(i));
    finishFunction(keeping, results);
    SmallVector<Type> types(loop.getResultTypes());
    for (unsigned i = 0; i < carriedCount; ++i)
      types.push_back(rowsOf(body.getArgument(i).getType(), trips));
    OpBuilder before(loop);
    auto made = RepeatOp::create(before, loop.getLoc(), types,
                                 FlatSymbolRefAttr::get(keeping.getSymNameAttr()),
                                 before.getI64IntegerAttr(trips), loop.getCarried(),
                                 loop.getScanned(), loop.getShared());
    size_t count = loop.getNumResults();
    loop->replaceAllUsesWith(made->getResults().take_front(count));
    scanned.assign(loop.getScanned().begin(), loop.getScanned().end());
    shared.assign(loop.getShared().begin(), loop.getShared().end());
    carriedTypes.assign(loop.getCarried().getTypes().begin(),
                        loop.getCarried().getTypes().end());
    loop.erase();
    if (SymbolTable::symbolKnownUseEmpty(body, body->getParentOfType<ModuleOp>()))
      body.erase();
    auto kept = made->getResults().drop_front(count);
    return Values(kept.begin(), kept.end());
  }

  Values call(const Values &kept) {
    Values carried, rows;
    size_t operands = carriedCount + scanned.size() + shared.size();
    for (unsigned i : differentiated) {
      if (isCarriedAt(i))
        carried.push_back(orZeros(f, cotangents[i], carriedTypes[i]));
      else if (i >= carriedCount + scanned.size())
        carried.push_back(f.zerosLike(shared[i - carriedCount - scanned.size()]));
    }
    for (Value value : kept)
      rows.push_back(f.reversed(value, 0));
    for (Value value : scanned)
      rows.push_back(f.reversed(value, 0));
    for (size_t r = carriedCount; r < cotangents.size(); ++r)
      if (cotangents[r])
        rows.push_back(f.reversed(cotangents[r], 0));
    SmallVector<Type> types;
    for (auto [k, type] : llvm::enumerate(backward.getResultTypes()))
      types.push_back(k < carried.size() ? type : rowsOf(type, trips));
    auto made = RepeatOp::create(builder, backward.getLoc(), types,
                                 FlatSymbolRefAttr::get(backward.getSymNameAttr()),
                                 builder.getI64IntegerAttr(trips), carried, rows, shared);
    Values results(operands);
    size_t nextCarried = 0, nextRow = carried.size();
    for (unsigned i : differentiated) {
      bool hasRows = i >= carriedCount && i < carriedCount + scanned.size();
      Value value =
          made->getResult(static_cast<unsigned>(hasRows ? nextRow++ : nextCarried++));
      if (wanted[i])
        results[i] = hasRows ? f.reversed(value, 0) : value;
    }
    return results;
  }

  bool isCarriedAt(unsigned i) const { return i < carriedCount; }

  RepeatOp loop;
  OpBuilder &builder;
  Formula f;
  ArrayRef<Value> cotangents;
  const std::vector<bool> &wanted;
  size_t carriedCount;
  int64_t trips;
  func::FuncOp body, backward;
  /// Arguments of the body whose cotangents are built: what is carried, as cotangents go
  /// through it, and what is wanted.
  SmallVector<unsigned> differentiated;
  Values scanned, shared;
  SmallVector<Type> carriedTypes;
};
} // namespace

/// A function of the inputs and the cotangents that there are, to those of the inputs.
static Expected<func::FuncOp> branchBackward(func::FuncOp side,
                                             ArrayRef<Value> cotangents,
                                             const std::vector<unsigned> &sought) {
  SmallVector<Type> types(side.getArgumentTypes());
  for (auto [r, value] : llvm::enumerate(cotangents))
    if (value)
      types.push_back(value.getType());
  func::FuncOp backward = newFunction(side, "_backward", types);
  auto arguments = backward.getArguments().take_front(side.getNumArguments());
  Values results = copyBody(side, backward, arguments), wanted;
  std::vector<Seed> seeds;
  unsigned next = side.getNumArguments();
  for (auto [r, value] : llvm::enumerate(cotangents)) {
    if (!value)
      continue;
    seeds.push_back({results[r], backward.getArgument(next++)});
  }
  for (unsigned i : sought)
    wanted.push_back(backward.getArgument(i));
  // Of an argument that is returned the seed is the cotangent.
  auto found = differentiate(backward.front(), merged(backward.front(), seeds), wanted);
  if (!found)
    return tl::unexpected(found.error());
  OpBuilder end(backward.front().getTerminator());
  Formula g(end, side.getLoc());
  for (auto [k, i] : llvm::enumerate(sought))
    (*found)[k] = orZeros(g, (*found)[k], side.getArgumentTypes()[i]);
  finishBackwardFunction(backward, *found);
  return backward;
}

static Expected<Values> branchGradients(graph::IfOp op, OpBuilder &builder,
                                        ArrayRef<Value> cotangents,
                                        const std::vector<bool> &wanted) {
  std::vector<unsigned> sought;
  for (unsigned i = 1; i < op->getNumOperands(); ++i)
    if (wanted[i])
      sought.push_back(i - 1);
  SmallVector<FlatSymbolRefAttr> sides;
  SmallVector<Type> types;
  for (Operation *side : op.getCallees()) {
    auto backward = branchBackward(cast<func::FuncOp>(side), cotangents, sought);
    if (!backward)
      return tl::unexpected(backward.error());
    sides.push_back(FlatSymbolRefAttr::get(backward->getSymNameAttr()));
    types.assign(backward->getResultTypes().begin(), backward->getResultTypes().end());
  }
  Values operands(op.getInputs().begin(), op.getInputs().end());
  for (Value value : cotangents)
    if (value)
      operands.push_back(value);
  auto made = graph::IfOp::create(builder, op.getLoc(), types, op.getCondition(),
                                  sides[0], sides[1], operands);
  Values results(op->getNumOperands());
  for (auto [k, i] : llvm::enumerate(sought))
    results[i + 1] = made->getResult(static_cast<unsigned>(k));
  return results;
}

Expected<Values> train::callGradients(Operation *op, OpBuilder &builder,
                                      ArrayRef<Value> cotangents,
                                      const std::vector<bool> &wanted) {
  if (auto loop = dyn_cast<RepeatOp>(op))
    return LoopGradient(loop, builder, cotangents, wanted).run();
  if (auto branch = dyn_cast<graph::IfOp>(op))
    return branchGradients(branch, builder, cotangents, wanted);
  return makeError("it runs functions in a way that is not known");
}
