//===- Accumulate.cpp - A step of several micro-batches -------------------===//
#include "passes/Train/Step.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

/// The sum stands behind what is added: a product that is added to where the sum lies
/// runs there, and what it reads need not wait for the end of the trip.
static Value addEarly(Formula &f, Value sum, Value more) {
  Value result = f.add(sum, more);
  if (Operation *maker = more.getDefiningOp())
    result.getDefiningOp()->moveAfter(maker);
  return result;
}

/// Its arguments are what is carried, the rows of a micro-batch, and what is shared.
func::FuncOp StepBuilder::microBatch(const Values &carriedIn, const Values &carriedOut,
                                     const Values &scanned, const Values &shared) {
  Block &block = main.front();
  OpBuilder builder(context);
  SmallVector<Type> types;
  for (auto [in, out] : llvm::zip_equal(carriedIn, carriedOut))
    types.push_back(in ? in.getType() : out.getType());
  for (const Values *list : {&scanned, &shared})
    for (Value value : *list)
      types.push_back(value.getType());
  auto module = main->getParentOfType<ModuleOp>();
  builder.setInsertionPoint(main);
  auto name = NameLoc::get(builder.getStringAttr("accumulate"));
  auto micro = func::FuncOp::create(builder, name, "micro_batch",
                                    builder.getFunctionType(types, {}));
  SymbolTable(module).insert(micro);
  micro.setPrivate();
  Block *body = micro.addEntryBlock();
  IRMapping mapping;
  unsigned next = 0;
  for (Value value : carriedIn) {
    if (value)
      mapping.map(value, body->getArgument(next));
    ++next;
  }
  for (const Values *list : {&scanned, &shared})
    for (Value value : *list)
      mapping.map(value, body->getArgument(next++));
  for (auto [i, p] : llvm::enumerate(parameters))
    micro.setArgAttr(static_cast<unsigned>(i) + 1, parameterAttr,
                     builder.getStringAttr(p.name));
  builder.setInsertionPointToEnd(body);
  for (Operation &op : block.without_terminator())
    builder.clone(op, mapping);
  Formula g(builder, name);
  Values results;
  for (auto [i, out] : llvm::enumerate(carriedOut)) {
    Value before = body->getArgument(static_cast<unsigned>(i));
    if (!out)
      results.push_back(g.add(before, 1));
    else if (carriedIn[i])
      results.push_back(mapping.lookupOrDefault(out));
    else
      results.push_back(addEarly(g, before, mapping.lookupOrDefault(out)));
    if (i > 0 && i <= parameters.size())
      dist::setPhase(results.back().getDefiningOp(), Phase::Weight);
  }
  func::ReturnOp::create(builder, name, results);
  micro.setType(
      builder.getFunctionType(body->getArgumentTypes(), ValueRange(results).getTypes()));
  return micro;
}

void StepBuilder::accumulate() {
  int64_t trips = spec.accumulation;
  Block &block = main.front();
  OpBuilder builder(context);
  Values carriedIn; // values of main's block that a trip takes as carried, or null: a sum
  Values carriedOut; // what it makes of them
  carriedIn.push_back(Value()), carriedOut.push_back(loss);
  for (const Parameter &p : parameters)
    carriedIn.push_back(Value()), carriedOut.push_back(p.gradient);
  for (const Result &r : running)
    carriedIn.push_back(stateNamed(r.name)), carriedOut.push_back(r.value);
  if (step)
    carriedIn.push_back(step), carriedOut.push_back(Value());
  if (counted)
    carriedIn.push_back(Value()), carriedOut.push_back(counted);

  Values scanned, shared;
  for (unsigned i = 0; i < main.getNumArguments(); ++i) {
    Value argument = main.getArgument(i);
    bool isInput = !dist::argumentState(main, i);
    if (isInput && !shapeOf(argument).empty())
      scanned.push_back(argument);
    else if (!llvm::is_contained(carriedIn, argument))
      shared.push_back(argument);
  }

  func::FuncOp micro = microBatch(carriedIn, carriedOut, scanned, shared);
  TypeRange types = micro.getResultTypes();
  Location name = micro.getLoc();
  // In main only the loop remains. Inputs have the rows of all micro-batches.
  Operation *end = block.getTerminator();
  end->setOperands({});
  while (end->getPrevNode())
    end->getPrevNode()->erase();
  builder.setInsertionPoint(end);
  Formula f(builder, name);
  Values carried, rows;
  for (auto [in, type] : llvm::zip(carriedIn, types)) {
    if (!in) {
      auto tensor = cast<RankedTensorType>(type);
      carried.push_back(f.zeros(tensor.getElementType(), tensor.getShape().vec()));
    } else if (in == step) {
      carried.push_back(f.mul(step, static_cast<double>(trips)));
    } else {
      carried.push_back(in);
    }
  }
  for (Value value : scanned) {
    auto argument = cast<BlockArgument>(value);
    Shape one = shapeOf(argument), all = one, split = one;
    all[0] *= trips;
    split.insert(split.begin(), trips);
    argument.setType(
        RankedTensorType::get(all, getElementTypeOrSelf(argument.getType())));
    rows.push_back(f.reshape(argument, split));
  }
  main.setType(builder.getFunctionType(block.getArgumentTypes(), main.getResultTypes()));
  auto loop = RepeatOp::create(builder, name, types,
                               FlatSymbolRefAttr::get(micro.getSymNameAttr()),
                               builder.getI64IntegerAttr(trips), carried, rows, shared);
  // A number of micro-batches that was chosen changes nothing: a sum over the batch is
  // one of sums.
  const bool isSum = spec.choosesAccumulation && !spec.loss.mean;
  double share = isSum ? 1 : 1.0 / static_cast<double>(trips);
  Value all = counted ? loop->getResults().back() : Value();
  auto ofStep = [&](Value sum) {
    return all          ? f.div(sum, f.cast(all, f.type(sum)))
           : share == 1 ? sum
                        : f.mul(sum, share);
  };
  unsigned result = 0;
  loss = ofStep(loop->getResult(result++));
  for (Parameter &p : parameters) {
    Value sum = loop->getResult(result++);
    p.gradient = spec.sumGradients ? sum : ofStep(sum);
    // Scaling is the first of the update: it runs where the moments lie.
    if (p.gradient != sum)
      inUpdateOf(p, p.gradient);
  }
  for (Result &r : running)
    r.value = loop->getResult(result++);
}
