//===- Repeat.cpp - Loops, and what is differentiated, as functions -------===//
#include "passes/Import/Importer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;

/// The functions of a module are called loop_0, loop_1, …
static std::string freeName(ModuleOp module, StringRef base) {
  for (int number = 0;; ++number)
    if (std::string name = base.str() + "_" + std::to_string(number);
        !module.lookupSymbol(name))
      return name;
}

/// The type of one row, or of all of them.
static RankedTensorType rowType(Value all) {
  auto type = cast<RankedTensorType>(all.getType());
  return RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
}

static RankedTensorType rowsType(Value row, int64_t trips) {
  auto type = cast<RankedTensorType>(row.getType());
  SmallVector<int64_t> shape{trips};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

/// What the function's ops use of what is not in it: sources are copied into it, other
/// values become arguments of it and are returned.
static Values capture(func::FuncOp function) {
  Block &block = function.front();
  llvm::SetVector<Value> outside;
  for (Operation &op : block)
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() != &block)
        outside.insert(operand);
  Values shared;
  for (Value value : outside) {
    Value inside;
    if (Operation *source = value.getDefiningOp();
        source && isa<graph::ConstantOp, graph::WeightOp>(source)) {
      inside = OpBuilder::atBlockBegin(&block).clone(*source)->getResult(0);
    } else {
      unsigned number = function.getNumArguments();
      if (failed(function.insertArgument(number, value.getType(), {}, value.getLoc())))
        llvm_unreachable("an argument can be added to a function");
      inside = function.getArgument(number);
      shared.push_back(value);
    }
    value.replaceUsesWithIf(
        inside, [&](OpOperand &use) { return use.getOwner()->getBlock() == &block; });
  }
  return shared;
}

Expected<Importer::Body>
Importer::bodyOf(StringRef name, const SmallVector<Type> &seen,
                 llvm::function_ref<Expected<Values>(const Values &)> body) {
  auto module = builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto function = func::FuncOp::create(location, freeName(module, name),
                                       builder.getFunctionType(seen, {}));
  function.setPrivate();
  module.getBody()->push_back(function);
  Block *block = function.addEntryBlock();
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(block);
    auto results = body(Values(block->args_begin(), block->args_end()));
    if (results)
      if (auto ok = checkAllThere(*results, "which no loop or branch gives"); !ok)
        results = tl::unexpected(ok.error());
    if (!results) {
      forgetCounts(function);
      function.erase();
      return tl::unexpected(results.error());
    }
    func::ReturnOp::create(builder, location, *results);
  }
  Values shared = capture(function);
  function.setType(builder.getFunctionType(block->getArgumentTypes(),
                                           block->getTerminator()->getOperandTypes()));
  return Body{function, std::move(shared)};
}

Expected<Values>
Importer::repeat(int64_t trips, const Values &carried, const Values &scanned,
                 llvm::function_ref<Expected<Values>(const Values &)> body) {
  for (const Values &list : {carried, scanned})
    if (auto ok = checkAllThere(list, "which no loop carries or scans"); !ok)
      return tl::unexpected(ok.error());
  SmallVector<Type> seen;
  for (Value value : carried)
    seen.push_back(value.getType());
  for (Value value : scanned)
    seen.push_back(rowType(value));
  SmallVector<Type> types;
  auto made = bodyOf("loop", seen, [&](const Values &arguments) -> Expected<Values> {
    auto results = body(arguments);
    if (!results)
      return results;
    for (auto [i, result] : llvm::enumerate(*results)) {
      bool isCarried = i < carried.size();
      if (isCarried && result.getType() != carried[i].getType())
        return makeError("what is carried from trip to trip changes its type or shape");
      types.push_back(isCarried ? result.getType() : rowsType(result, trips));
    }
    return results;
  });
  if (!made)
    return tl::unexpected(made.error());
  auto loop = graph::RepeatOp::create(
      builder, location, types, FlatSymbolRefAttr::get(made->function.getSymNameAttr()),
      builder.getI64IntegerAttr(trips), carried, scanned, made->shared);
  for (Value result : loop.getResults())
    if (auto ok = checkSize(cast<RankedTensorType>(result.getType())); !ok)
      return tl::unexpected(ok.error());
  return Values(loop->result_begin(), loop->result_end());
}

Expected<Values>
Importer::gradient(const Values &inputs, size_t wanted,
                   llvm::function_ref<Expected<Value>(const Values &)> body) {
  if (auto ok = checkAllThere(inputs, "in which nothing is derived"); !ok)
    return tl::unexpected(ok.error());
  SmallVector<Type> seen;
  for (Value value : inputs)
    seen.push_back(value.getType());
  auto made = bodyOf("gradient", seen,
                     [&](const Values &arguments) { return single(body(arguments)); });
  if (!made)
    return tl::unexpected(made.error());
  Values operands = inputs;
  llvm::append_range(operands, made->shared);
  auto op = graph::GradientOp::create(
      builder, location, TypeRange(seen).take_front(wanted),
      FlatSymbolRefAttr::get(made->function.getSymNameAttr()), operands);
  return Values(op->result_begin(), op->result_end());
}

/// Arguments of these types, from argument `first` on, that the function does not use.
static void takeAlso(func::FuncOp function, unsigned first, const Values &others) {
  for (auto [i, value] : llvm::enumerate(others))
    if (failed(function.insertArgument(first + static_cast<unsigned>(i), value.getType(),
                                       {}, value.getLoc())))
      llvm_unreachable("an argument can be added to a function");
}

Expected<Values>
Importer::choose(Value condition, const Values &inputs,
                 llvm::function_ref<Expected<Values>(const Values &)> then,
                 llvm::function_ref<Expected<Values>(const Values &)> otherwise) {
  SmallVector<Type> seen;
  for (Value value : inputs)
    seen.push_back(value.getType());
  // The counts of the inputs are values outside, which a branch captures.
  auto counted = [&](llvm::function_ref<Expected<Values>(const Values &)> branch) {
    return [this, &inputs, branch](const Values &arguments) {
      for (auto [input, argument] : llvm::zip_equal(inputs, arguments))
        for (size_t d : countedDims(input))
          setCount(argument, d, countOf(input, d));
      return branch(arguments);
    };
  };
  // Bodies in the branches are functions, too.
  auto module = builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  llvm::DenseSet<Operation *> before;
  for (Operation &op : *module.getBody())
    before.insert(&op);
  auto fail = [&](const Error &error) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*module.getBody())))
      if (auto function = dyn_cast<func::FuncOp>(op); function && !before.contains(&op)) {
        forgetCounts(function);
        function.erase();
      }
    return tl::unexpected(error);
  };
  auto one = bodyOf("branch", seen, counted(then));
  if (!one)
    return fail(one.error());
  auto other = bodyOf("branch", seen, counted(otherwise));
  if (!other)
    return fail(other.error());
  if (one->function.getResultTypes() != other->function.getResultTypes())
    return fail(Error{"the branches of an If whose condition is computed give tensors of "
                      "other types or shapes"});
  auto own = static_cast<unsigned>(inputs.size());
  takeAlso(one->function, one->function.getNumArguments(), other->shared);
  takeAlso(other->function, own, one->shared);
  Values operands = inputs;
  llvm::append_range(operands, one->shared);
  llvm::append_range(operands, other->shared);
  auto made = graph::IfOp::create(
      builder, location, one->function.getResultTypes(), condition,
      FlatSymbolRefAttr::get(one->function.getSymNameAttr()),
      FlatSymbolRefAttr::get(other->function.getSymNameAttr()), operands);
  return Values(made->result_begin(), made->result_end());
}
