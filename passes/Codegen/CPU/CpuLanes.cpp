//===- CpuLanes.cpp - Rows across memory, several at once -----------------===//
#include "passes/Codegen/CPU/CpuEmitter.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Lanes of a kernel whose points are no rows, which has them for its stores alone.
static constexpr int64_t lanesOfPoints = 32;
/// Bytes of a group's arrays, beside which the elements of a few points stay in the
/// first-level cache, and the most rows: a page of f32, in which the CPU reads ahead.
static constexpr int64_t groupBytes = 16 << 10, mostRows = 1024;
/// Points that are added to a sum before it is stored again, and those of which squares
/// are summed around a mean of their own: as many as registers hold.
static constexpr int64_t pointsAtOnce = 4, pointsPerMean = 8;
/// Points of a sum that is added to the total: a multiple of both.
static constexpr int64_t pointsPerSum = 512;
/// Bytes from which on a tensor has left every cache before it is read.
static constexpr int64_t streamedBytes = 16 << 20;
/// Bytes that are stored past the caches at once.
static constexpr int64_t lineBytes = 64;

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

int64_t CpuEmitter::lanes() const {
  return spec.split.lanes != 1 ? spec.split.lanes : lanesOfPoints;
}

int64_t CpuEmitter::groupRows() const {
  int64_t arrays = static_cast<int64_t>(keptNodes().size());
  for (const KernelNode &n : spec.nodes)
    arrays += n.kind == KernelNode::Row ? 2 : 0;
  int64_t rows = groupBytes / (std::max<int64_t>(1, arrays) * 4);
  return std::max(lanes(), std::min(rows, mostRows) / lanes() * lanes());
}

void CpuEmitter::laneGroups(Value from, Value to) {
  OpBuilder::InsertionGuard guard(builder);
  Value count = arith::SubIOp::create(builder, location, to, from);
  Value rest = arith::RemUIOp::create(builder, location, count, integer(lanes()));
  Value whole = arith::SubIOp::create(builder, location, to, rest);
  scopes.emplace_back();
  {
    OpBuilder::InsertionGuard inner(builder);
    Value rows = integer(groupRows());
    auto groups = scf::ForOp::create(builder, location, from, whole, rows);
    builder.setInsertionPointToStart(groups.getBody());
    firstLane = groups.getInductionVar();
    endLane = arith::AddIOp::create(builder, location, firstLane, rows);
    endLane = arith::MinSIOp::create(builder, location, endLane, whole);
    if (spec.rowDims == 0)
      laneLoop([&] { rowBody(); });
    else
      rowBody();
    firstLane = endLane = nullptr;
  }
  scopes.pop_back();
  scopes.emplace_back();
  point[numOuter() - 1] = enterLoop(whole, to).getInductionVar();
  rowBody();
  scopes.pop_back();
}

void CpuEmitter::laneLoop(llvm::function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(builder);
  scopes.emplace_back();
  Value width = integer(lanes());
  auto blocks = scf::ForOp::create(builder, location, firstLane, endLane, width);
  builder.setInsertionPointToStart(blocks.getBody());
  Value block = blocks.getInductionVar();
  Value before = arith::SubIOp::create(builder, location, block, firstLane);
  {
    OpBuilder::InsertionGuard inner(builder);
    laneInBlock = enterLoop(integer(0), width).getInductionVar();
    lane = arith::AddIOp::create(builder, location, before, laneInBlock);
    point[numOuter() - 1] = arith::AddIOp::create(builder, location, block, laneInBlock);
    body();
    lane = laneInBlock = nullptr;
  }
  storeStaged(block);
  point[numOuter() - 1] = nullptr;
  scopes.pop_back();
}

void CpuEmitter::pointBlocks(int64_t count, PointsBody body,
                             llvm::function_ref<void()> pause) {
  OpBuilder::InsertionGuard guard(builder);
  size_t last = spec.domain.size() - 1;
  scopes.emplace_back();
  for (size_t d = numOuter(); d < last; ++d)
    point[d] = enterLoop(integer(0), integer(spec.domain[d])).getInductionVar();
  int64_t size = spec.domain[last], whole = size - size % count;
  auto loop = [&](Value from, Value to, int64_t step) {
    OpBuilder::InsertionGuard inner(builder);
    auto points = scf::ForOp::create(builder, location, from, to, integer(step));
    builder.setInsertionPointToStart(points.getBody());
    scopes.emplace_back();
    body(points.getInductionVar(), step);
    scopes.pop_back();
  };
  if (whole != 0) {
    OpBuilder::InsertionGuard inner(builder);
    auto parts = scf::ForOp::create(builder, location, integer(0), integer(whole),
                                    integer(pointsPerSum));
    builder.setInsertionPointToStart(parts.getBody());
    Value from = parts.getInductionVar();
    Value to = arith::AddIOp::create(builder, location, from, integer(pointsPerSum));
    loop(from, arith::MinSIOp::create(builder, location, to, integer(whole)), count);
    pause();
  }
  if (whole != size) {
    loop(integer(whole), integer(size), 1);
    pause();
  }
  for (size_t d = numOuter(); d <= last; ++d)
    point[d] = nullptr;
  scopes.pop_back();
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

Value CpuEmitter::laneArray(Type type, int64_t rows) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(
      &builder.getBlock()->getParent()->getParentOfType<func::FuncOp>().front());
  return LLVM::AllocaOp::create(builder, location,
                                LLVM::LLVMPointerType::get(builder.getContext()), type,
                                integer(rows), PARTITA_BUFFER_ALIGNMENT);
}

Value CpuEmitter::loadLane(Value array, Type type) {
  Value place = LLVM::GEPOp::create(builder, location, array.getType(), type, array,
                                    ValueRange{lane});
  return LLVM::LoadOp::create(builder, location, type, place);
}

void CpuEmitter::storeLane(Value array, Value element) {
  Value place = LLVM::GEPOp::create(builder, location, array.getType(), element.getType(),
                                    array, ValueRange{lane});
  LLVM::StoreOp::create(builder, location, element, place);
}

SmallVector<int> CpuEmitter::keptNodes() const {
  SmallVector<bool> varies = variesAlongRow();
  llvm::SetVector<int> kept;
  for (auto [i, n] : llvm::enumerate(spec.nodes))
    if (varies[i] || n.kind == KernelNode::Row)
      for (int arg : n.args)
        if (!varies[static_cast<size_t>(arg)] && node(arg).kind == KernelNode::Payload &&
            isFloat(node(arg).type))
          kept.insert(arg);
  return kept.takeVector();
}

/// A division or a root for every point of a row would take longer than the point comes
/// from memory.
void CpuEmitter::keepPerRow() {
  if (!firstLane)
    return;
  SmallVector<bool> waits(spec.nodes.size(), false);
  for (auto [i, n] : llvm::enumerate(spec.nodes))
    waits[i] = !isDefined(static_cast<int>(i)) &&
               (n.kind == KernelNode::Row || llvm::any_of(n.args, [&](int arg) {
                  return waits[static_cast<size_t>(arg)];
                }));
  SmallVector<std::tuple<int, Type, Value>> kept;
  for (int number : keptNodes())
    if (!waits[static_cast<size_t>(number)] && !isDefined(number)) {
      Type type = computeType(node(number).type);
      kept.emplace_back(number, type, laneArray(type, groupRows()));
    }
  if (kept.empty())
    return;
  laneLoop([&] {
    for (auto [number, type, array] : kept)
      storeLane(array, value(number));
  });
  for (auto [number, type, array] : kept)
    define(number, [this, type = type, array = array] { return loadLane(array, type); });
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

static bool isSum(const KernelNode &n) {
  auto reduce = n.kind == KernelNode::Row ? dyn_cast<graph::ReduceOp>(n.op) : nullptr;
  return reduce && reduce.getKind() == ReduceKind::Sum && isFloat(n.type);
}

/// The m of a sum of (x − m)²; −1 if the node is none.
int CpuEmitter::meanOf(int squares) const {
  if (!isSum(node(squares)))
    return -1;
  const KernelNode &product = node(node(squares).args[0]);
  if (product.kind != KernelNode::Payload || !isa<graph::MulOp>(product.op) ||
      product.own || product.args[0] != product.args[1])
    return -1;
  const KernelNode &offset = node(product.args[0]);
  if (offset.kind != KernelNode::Payload || !isa<graph::SubOp>(offset.op) || offset.own)
    return -1;
  for (int n : {node(squares).args[0], product.args[0], offset.args[0], offset.args[1]})
    if (node(n).type != node(squares).type)
      return -1;
  return variesAlongRow()[static_cast<size_t>(offset.args[1])] ? -1 : offset.args[1];
}

int CpuEmitter::squaresAround(int sum) const {
  if (!isSum(node(sum)))
    return -1;
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    auto number = static_cast<int>(i);
    int mean = isDefined(number) ? -1 : meanOf(number);
    if (mean < 0)
      continue;
    int x = node(node(node(number).args[0]).args[0]).args[0];
    if (x != node(sum).args[0] || node(sum).type != node(number).type)
      continue;
    // Row nodes that the mean needs.
    bool needsSum = false, needsOthers = false;
    SmallVector<int> work{mean};
    while (!work.empty()) {
      int n = work.pop_back_val();
      if (node(n).kind == KernelNode::Row)
        (n == sum ? needsSum : needsOthers) |= n == sum || !isDefined(n);
      else
        work.append(node(n).args.begin(), node(n).args.end());
    }
    if (needsSum && !needsOthers)
      return number;
  }
  return -1;
}

void CpuEmitter::reduceLanes(ArrayRef<Reduction> reductions) {
  SmallVector<LaneSum> sums;
  bool hasSquares = false;
  for (const Reduction &reduction : reductions) {
    Type type = reduction.neutral.getType();
    LaneSum sum{
        &reduction, laneArray(type, groupRows()), laneArray(type, groupRows()), -1, {}};
    sum.squares = squaresAround(reduction.number);
    if (sum.squares >= 0)
      sum.squareSums = laneArray(type, groupRows());
    hasSquares |= sum.squares >= 0;
    sums.push_back(sum);
  }
  laneLoop([&] {
    for (const LaneSum &sum : sums)
      for (Value array : {sum.sums, sum.totals, sum.squareSums})
        if (array)
          storeLane(array, sum.reduction->neutral);
  });
  auto addToTotals = [&] {
    laneLoop([&] {
      for (const LaneSum &sum : sums) {
        Type type = sum.reduction->neutral.getType();
        storeLane(sum.totals, sum.reduction->combine(loadLane(sum.totals, type),
                                                     loadLane(sum.sums, type)));
        storeLane(sum.sums, sum.reduction->neutral);
      }
    });
  };
  pointBlocks(
      hasSquares ? pointsPerMean : pointsAtOnce,
      [&](Value first, int64_t count) { addPoints(sums, first, count); }, addToTotals);
  for (const LaneSum &sum : sums) {
    Type type = sum.reduction->neutral.getType();
    define(sum.reduction->number,
           [this, array = sum.totals, type] { return loadLane(array, type); });
    if (sum.squares >= 0)
      defineSquares(sum);
  }
}

/// Neighbouring points of all rows of the group.
void CpuEmitter::addPoints(ArrayRef<LaneSum> sums, Value first, int64_t count) {
  size_t last = spec.domain.size() - 1;
  point[last] = first;
  Value before = rowPosition();
  laneLoop([&] {
    Values now;
    for (const LaneSum &sum : sums)
      now.push_back(sum.squares >= 0
                        ? Value()
                        : loadLane(sum.sums, sum.reduction->neutral.getType()));
    SmallVector<Values> elements(sums.size());
    for (int64_t i = 0; i < count; ++i) {
      scopes.emplace_back();
      point[last] = arith::AddIOp::create(builder, location, first, integer(i));
      for (auto [sum, value, list] : llvm::zip_equal(sums, now, elements)) {
        Value element = sum.reduction->element();
        if (sum.squares >= 0)
          list.push_back(element);
        else
          value = sum.reduction->combine(value, element);
      }
      scopes.pop_back();
    }
    for (auto [sum, value, list] : llvm::zip_equal(sums, now, elements))
      if (sum.squares >= 0)
        addCentered(sum, list, before);
      else
        storeLane(sum.sums, value);
  });
  point[last] = nullptr;
}

namespace {
/// Arithmetic of floats of a type; a product and a sum may be one instruction.
struct Floats {
  OpBuilder &b;
  Location at;
  Type type;

  Value number(double value) const {
    return arith::ConstantOp::create(b, at, FloatAttr::get(type, value));
  }
  template <typename Op> Value make(Value a, Value c) const {
    return Op::create(b, at, a, c, arith::FastMathFlags::contract);
  }
  Value add(Value a, Value c) const { return make<arith::AddFOp>(a, c); }
  Value sub(Value a, Value c) const { return make<arith::SubFOp>(a, c); }
  Value mul(Value a, Value c) const { return make<arith::MulFOp>(a, c); }
  Value square(Value a) const { return mul(a, a); }
  /// The sum in pairs.
  Value sum(SmallVector<Value> list) const {
    for (size_t step = 1; step < list.size(); step *= 2)
      for (size_t i = 0; i + step < list.size(); i += 2 * step)
        list[i] = add(list[i], list[i + step]);
    return list[0];
  }
};
} // namespace

/// Joins two sets of points, those before and b new ones, each of which has a sum and the
/// squares around its own mean: with n and b points and means μ and ν, the squares around
/// the common mean are those of both and (ν − μ)²·n·b / (n + b). No large sum is taken
/// from another, as Σ x² − n·μ² would: the squares of large values are as
/// exact as their mean is.
void CpuEmitter::addCentered(const LaneSum &sum, ArrayRef<Value> elements,
                             Value pointsBefore) {
  Type type = sum.reduction->neutral.getType();
  Floats f{builder, location, type};
  auto many = static_cast<double>(elements.size());
  Value n = arith::SIToFPOp::create(builder, location, type, pointsBefore);
  Value all = f.add(n, f.number(many));
  Value weight = f.make<arith::DivFOp>(f.mul(n, f.number(many)), all);
  Value least = arith::MaximumFOp::create(builder, location, n, f.number(1));
  Value inverse = f.make<arith::DivFOp>(f.number(1), least);

  Value added = f.sum(SmallVector<Value>(elements));
  Value mean = f.mul(added, f.number(1 / many));
  Value sums = loadLane(sum.sums, type), squares = loadLane(sum.squareSums, type);
  if (elements.size() > 1) {
    SmallVector<Value> own;
    for (Value element : elements)
      own.push_back(f.square(f.sub(element, mean)));
    squares = f.add(squares, f.sum(own));
  }
  Value before = f.add(loadLane(sum.totals, type), sums);
  Value apart = f.sub(mean, f.mul(before, inverse));
  storeLane(sum.squareSums, f.add(squares, f.mul(f.mul(apart, weight), apart)));
  storeLane(sum.sums, f.add(sums, added));
}

/// Around any m the squares are those around the mean μ and N·(μ − m)².
void CpuEmitter::defineSquares(const LaneSum &sum) {
  int mean = meanOf(sum.squares);
  Type type = sum.reduction->neutral.getType();
  Value array = sum.squareSums, sums = sum.totals;
  define(sum.squares, [this, mean, type, array, sums] {
    Floats f{builder, location, type};
    Value count = f.number(static_cast<double>(rowElements()));
    Value own = f.make<arith::DivFOp>(loadLane(sums, type), count);
    Value apart = f.square(f.sub(own, value(mean)));
    return f.add(loadLane(array, type), f.mul(apart, count));
  });
}

//===----------------------------------------------------------------------===//
// Stores past the caches
//===----------------------------------------------------------------------===//

bool CpuEmitter::isStreamed(const KernelOperand &output) const {
  size_t outer = numOuter();
  auto width = static_cast<int64_t>(byteWidth(output.type));
  if (spec.attention || output.perRow || outer == 0 || spec.storedPoints >= 0 ||
      output.strides[outer - 1] != 1 || spec.domain[outer - 1] < lanes() ||
      spec.split.chunk % lanes() != 0 || lanes() * width % lineBytes != 0 ||
      (spec.rowDims != 0 && spec.split.lanes == 1))
    return false;
  int64_t bytes = width;
  for (auto [d, size] : llvm::enumerate(spec.domain)) {
    bytes *= output.strides[d] == 0 ? 1 : size;
    if (d + 1 != outer && output.strides[d] * width % lineBytes != 0)
      return false;
  }
  for (const KernelOperand &operand : spec.operands)
    if (operand.output >= 0 &&
        &spec.outputs[static_cast<size_t>(operand.output)] == &output)
      return false;
  return output.offset * width % lineBytes == 0 && bytes >= streamedBytes;
}

bool CpuEmitter::isStreamed() const {
  return llvm::any_of(spec.outputs,
                      [&](const KernelOperand &output) { return isStreamed(output); }) &&
         llvm::none_of(llvm::seq<size_t>(0, spec.nodes.size()),
                       [&](size_t n) { return changesInPlace(static_cast<int>(n)); });
}

/// A vector past the caches has to be a whole line, which LLVM's vectors need not be: the
/// elements of a block meet in an array, which it keeps in registers.
void CpuEmitter::storeOutput(size_t number, Value element) {
  const KernelOperand &output = spec.outputs[number];
  if (!laneInBlock || !isStreamed(output))
    return KernelEmitter::storeOutput(number, element);
  staged.resize(spec.outputs.size());
  if (!staged[number])
    staged[number] =
        laneArray(IntegerType::get(builder.getContext(),
                                   static_cast<unsigned>(8 * byteWidth(output.type))),
                  lanes());
  store(staged[number], laneInBlock, output.type, element);
}

void CpuEmitter::storeStaged(Value block) {
  for (auto [number, array] : llvm::enumerate(staged)) {
    if (!array)
      continue;
    const KernelOperand &output = spec.outputs[number];
    auto width = static_cast<int64_t>(byteWidth(output.type));
    auto element =
        IntegerType::get(builder.getContext(), static_cast<unsigned>(8 * width));
    auto line = VectorType::get({lineBytes / width}, element);
    point[numOuter() - 1] = block;
    Value offset = linear(output.offset, output.strides);
    for (int64_t i = 0; i < lanes(); i += lineBytes / width) {
      Value from = LLVM::GEPOp::create(builder, location, array.getType(), element, array,
                                       ValueRange{integer(i)});
      Value to = LLVM::GEPOp::create(
          builder, location, array.getType(), element,
          pointers[spec.operands.size() + number],
          ValueRange{arith::AddIOp::create(builder, location, offset, integer(i))});
      Value whole = LLVM::LoadOp::create(builder, location, line, from, lineBytes);
      LLVM::StoreOp::create(builder, location, whole, to, lineBytes, /*isVolatile=*/false,
                            /*isNonTemporal=*/true);
    }
  }
  staged.clear();
}
