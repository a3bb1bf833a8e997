//===- LowerIndexed.cpp - Elements read at computed places ----------------===//
#include "passes/Codegen/Emit/KernelEmitter.h"
#include "passes/Codegen/Emit/Models.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// An index from data: negative ones count from the end. One outside the dim has been
/// reported by the checks; it reads the nearest element, not other memory, until the
/// kernel has come to its end.
static Value dataIndex(KernelEmitter &e, Value index, int64_t size) {
  OpBuilder &b = e.builder;
  Location at = e.location;
  Value zero = e.integer(0);
  if (index.getType().getIntOrFloatBitWidth() < 64)
    index = arith::ExtSIOp::create(b, at, b.getI64Type(), index);
  Value isNegative = arith::CmpIOp::create(b, at, arith::CmpIPredicate::slt, index, zero);
  Value fromEnd = arith::AddIOp::create(b, at, index, e.integer(size));
  Value chosen = arith::SelectOp::create(b, at, isNegative, fromEnd, index);
  chosen = arith::MaxSIOp::create(b, at, chosen, zero);
  return arith::MinSIOp::create(b, at, chosen, e.integer(size - 1));
}

/// The element, or zero where its place is not in the rank's block.
static Value orZero(KernelEmitter &e, Value place, int64_t extent, Value element) {
  Value size = arith::ConstantOp::create(
      e.builder, e.location, e.builder.getIntegerAttr(place.getType(), extent));
  Value isHere = arith::CmpIOp::create(e.builder, e.location, arith::CmpIPredicate::ult,
                                       place, size);
  return arith::SelectOp::create(e.builder, e.location, isHere, element,
                                 e.constant(element.getType(), 0));
}

/// The check of an operand whose elements are all indices of one dim.
static void checkAll(KernelEmitter &e, int number, size_t operand, int64_t size) {
  e.checkIndices(number, operand, [&](ValueRange) { return e.integer(size); });
}

namespace {
struct GatherModel : IndexedOpInterface::ExternalModel<GatherModel, graph::GatherOp> {
  /// The indices of a masked one have been checked by the comm.local_index before.
  bool isChecked(Operation *op) const { return !cast<graph::GatherOp>(op).getMasked(); }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    auto gather = cast<graph::GatherOp>(op);
    Shape data = shapeOf(gather.getData());
    int64_t axis = *normalizeAxis(gather.getAxis(), data.size());
    checkAll(e, number, 1, data[static_cast<size_t>(axis)]);
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto gather = cast<graph::GatherOp>(op);
    Shape data = shapeOf(gather.getData());
    auto axis = static_cast<size_t>(*normalizeAxis(gather.getAxis(), data.size()));
    size_t depth = shapeOf(gather.getIndices()).size();
    const std::vector<int> &reads = e.node(number).reads;
    Value place = e.loadAt(reads[1], index.slice(axis, depth));
    SmallVector<Value> at(index.take_front(axis));
    at.push_back(dataIndex(e, place, data[axis]));
    llvm::append_range(at, index.drop_front(axis + depth));
    Value element = e.loadAt(reads[0], at);
    return gather.getMasked() ? orZero(e, place, data[axis], element) : element;
  }
};

struct GatherElementsModel
    : IndexedOpInterface::ExternalModel<GatherElementsModel, graph::GatherElementsOp> {
  static size_t axisOf(graph::GatherElementsOp gather) {
    return static_cast<size_t>(
        *normalizeAxis(gather.getAxis(), shapeOf(gather.getData()).size()));
  }
  /// As of a gather.
  bool isChecked(Operation *op) const {
    return !cast<graph::GatherElementsOp>(op).getMasked();
  }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    auto gather = cast<graph::GatherElementsOp>(op);
    checkAll(e, number, 1, shapeOf(gather.getData())[axisOf(gather)]);
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto gather = cast<graph::GatherElementsOp>(op);
    size_t axis = axisOf(gather);
    int64_t size = shapeOf(gather.getData())[axis];
    const std::vector<int> &reads = e.node(number).reads;
    Value place = e.loadAt(reads[1], index);
    SmallVector<Value> at(index);
    at[axis] = dataIndex(e, place, size);
    Value element = e.loadAt(reads[0], at);
    return gather.getMasked() ? orZero(e, place, size, element) : element;
  }
};

/// A tree alone is gone down in as many steps as its lowest leaf is away, without a
/// branch, so that rows or trees go down in a vector. Several trees together go down step
/// by step, without vectors, until all are at a leaf: gathers of vectors are slower than
/// as many loads that do not wait for one another.
struct TreesModel : IndexedOpInterface::ExternalModel<TreesModel, graph::TreesOp> {
  int64_t getElementsAtOnce(Operation *op) const {
    return depthOf(op) > stepsPerLook ? 8 : 1;
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    Value at = e.integer(0);
    for (int64_t step = 0, depth = depthOf(op); step < depth; ++step)
      at = nextNode(e, number, index, at);
    return weight(e, number, index, at);
  }

  SmallVector<Value> emitElements(Operation *op, KernelEmitter &e, int number,
                                  ArrayRef<SmallVector<Value>> indices) const {
    OpBuilder &b = e.builder;
    Location where = e.location;
    Value zero = e.integer(0), depth = e.integer(depthOf(op));
    // A node per tree, behind them the steps that were taken, and bits that are set where
    // a tree was not at a leaf. An odd step comes first.
    SmallVector<Value> begin(indices.size() + 1, zero);
    if (const int64_t odd = depthOf(op) % stepsPerLook; odd != 0) {
      begin.back() = e.integer(odd);
      for (auto [at, index] : llvm::zip(begin, indices))
        at = nextNode(e, number, index, at);
    }
    begin.push_back(e.integer(1));
    auto isOnTheWay = [&](OpBuilder &, Location, ValueRange now) {
      Value isLower = arith::CmpIOp::create(b, where, arith::CmpIPredicate::slt,
                                            now[indices.size()], depth);
      Value isMoved =
          arith::CmpIOp::create(b, where, arith::CmpIPredicate::ne, now.back(), zero);
      scf::ConditionOp::create(b, where,
                               arith::AndIOp::create(b, where, isLower, isMoved), now);
    };
    auto goDown = [&](OpBuilder &, Location, ValueRange now) {
      SmallVector<Value> next(now.take_front(indices.size()));
      Value moved = zero;
      for (int64_t step = 0; step < stepsPerLook; ++step)
        for (auto [at, index] : llvm::zip_equal(next, indices)) {
          Value before = at;
          at = nextNode(e, number, index, before);
          if (step + 1 == stepsPerLook)
            moved = arith::OrIOp::create(b, where, moved,
                                         arith::XOrIOp::create(b, where, before, at));
        }
      next.push_back(
          arith::AddIOp::create(b, where, now[indices.size()], e.integer(stepsPerLook)));
      next.push_back(moved);
      scf::YieldOp::create(b, where, next);
    };
    auto loop =
        scf::WhileOp::create(b, where, SmallVector<Type>(begin.size(), b.getI64Type()),
                             begin, isOnTheWay, goDown);
    SmallVector<Value> elements;
    for (auto [index, at] : llvm::zip(indices, loop.getResults()))
      elements.push_back(weight(e, number, index, at));
    return elements;
  }

private:
  static constexpr int64_t stepsPerLook = 2;

  static int64_t depthOf(Operation *op) {
    return static_cast<int64_t>(cast<graph::TreesOp>(op).getDepth());
  }

  static Value weight(KernelEmitter &e, int number, ArrayRef<Value> index, Value at) {
    return e.loadAt(e.node(number).reads[4], {index[0], at, index[2]});
  }

  /// The node to which a node of the tree `index[0]` leads the row `index[1]`.
  static Value nextNode(KernelEmitter &e, int number, ArrayRef<Value> index, Value at) {
    OpBuilder &b = e.builder;
    Location where = e.location;
    const std::vector<int> &reads = e.node(number).reads;
    Value tree = index[0], row = index[1];
    auto wide = [&](Value place) -> Value {
      return arith::ExtSIOp::create(b, where, b.getI64Type(), place);
    };
    Value given = e.loadAt(reads[1], {tree, at});
    Value zero = arith::ConstantIntOp::create(b, where, 0, 32);
    Value isLower =
        arith::CmpIOp::create(b, where, arith::CmpIPredicate::slt, given, zero);
    Value sign = arith::ShRSIOp::create(b, where, given,
                                        arith::ConstantIntOp::create(b, where, 31, 32));
    Value feature = wide(arith::XOrIOp::create(b, where, given, sign));
    Value value = e.loadAt(reads[0], {row, feature});
    Value split = e.loadAt(reads[2], {tree, at});
    Value isMore =
        arith::CmpFOp::create(b, where, arith::CmpFPredicate::OGT, value, split);
    Value isAny =
        arith::CmpFOp::create(b, where, arith::CmpFPredicate::UGT, value, split);
    Value isBehind = arith::SelectOp::create(b, where, isLower, isMore, isAny);
    Value child = e.loadAt(reads[3], {tree, at});
    return arith::AddIOp::create(
        b, where, wide(child),
        arith::ExtUIOp::create(b, where, b.getI64Type(), isBehind));
  }
};

/// The place of an index in the rank's block: its digits over the factors of the dim,
/// each relative to where the block begins. Scalars: where, per factor; behind them how
/// long the rank's block is, if the dim has given blocks.
struct LocalIndexModel
    : IndexedOpInterface::ExternalModel<LocalIndexModel, comm::LocalIndexOp> {
  bool isChecked(Operation *op) const { return true; }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    checkAll(e, number, 0, dimOf(op).size());
  }

  static const DimLayout &dimOf(Operation *op) {
    return cast<comm::LocalIndexOp>(op).getLayout().getLayout().dims[0];
  }

  std::vector<RankValueSpec> getRankValues(Operation *op, const Mesh &mesh) const {
    std::vector<RankValueSpec> values;
    const DimLayout &dim = dimOf(op);
    for (const DimFactor &factor : dim.factors)
      values.push_back(
          {PARTITA_RANK_BLOCK_START, factor.size, factor.local(), factor.axes});
    const DimFactor &major = dim.factors[0];
    if (major.blocks.empty())
      return values;
    values[0] = {PARTITA_RANK_LISTED, 0, 0, major.axes, {}};
    for (int64_t c = 0; c < major.shards(); ++c)
      values[0].listed.push_back(major.begin(c));
    values.push_back({PARTITA_RANK_LISTED, 0, 0, major.axes, major.blocks});
    return values;
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    OpBuilder &b = e.builder;
    Location at = e.location;
    const DimLayout &dim = dimOf(op);
    Value given = e.loadAt(e.node(number).reads[0], index);
    Value rest = dataIndex(e, given, dim.size());
    Value place = e.integer(0), isHere;
    int64_t stride = 1;
    for (size_t f = dim.factors.size(); f-- > 0;) {
      const DimFactor &factor = dim.factors[f];
      Value digit = rest;
      if (f != 0) {
        digit = arith::RemUIOp::create(b, at, rest, e.integer(factor.size));
        rest = arith::DivUIOp::create(b, at, rest, e.integer(factor.size));
      }
      Value offset =
          arith::SubIOp::create(b, at, digit, e.scalar(number, static_cast<int>(f)));
      Value length = factor.blocks.empty()
                         ? e.integer(factor.local())
                         : e.scalar(number, static_cast<int>(dim.factors.size()));
      Value inBlock =
          arith::CmpIOp::create(b, at, arith::CmpIPredicate::ult, offset, length);
      isHere =
          isHere ? arith::AndIOp::create(b, at, isHere, inBlock).getResult() : inBlock;
      Value term = arith::MulIOp::create(b, at, offset, e.integer(stride));
      place = arith::AddIOp::create(b, at, place, term);
      stride *= factor.local();
    }
    place = arith::SelectOp::create(b, at, isHere, place, e.integer(-1));
    if (given.getType() == place.getType())
      return place;
    return arith::TruncIOp::create(b, at, given.getType(), place);
  }
};

struct GatherNDModel
    : IndexedOpInterface::ExternalModel<GatherNDModel, graph::GatherNDOp> {
  /// As of a gather.
  bool isChecked(Operation *op) const { return !cast<graph::GatherNDOp>(op).getMasked(); }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    auto gather = cast<graph::GatherNDOp>(op);
    Shape data = shapeOf(gather.getData());
    auto batch = static_cast<size_t>(gather.getBatchDims());
    auto depth = static_cast<size_t>(shapeOf(gather.getIndices()).back());
    e.checkIndices(number, 1, [&](ValueRange place) {
      Value size = e.integer(data[batch]);
      for (size_t k = 1; k < depth; ++k) {
        Value isDim =
            arith::CmpIOp::create(e.builder, e.location, arith::CmpIPredicate::eq,
                                  place.back(), e.integer(static_cast<int64_t>(k)));
        size = arith::SelectOp::create(e.builder, e.location, isDim,
                                       e.integer(data[batch + k]), size);
      }
      return size;
    });
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto gather = cast<graph::GatherNDOp>(op);
    Shape data = shapeOf(gather.getData()), indices = shapeOf(gather.getIndices());
    auto batch = static_cast<size_t>(gather.getBatchDims());
    const std::vector<int> &reads = e.node(number).reads;
    size_t outer = indices.size() - 1;
    SmallVector<Value> at(index.take_front(batch));
    Value place;
    for (int64_t k = 0; k < indices.back(); ++k) {
      SmallVector<Value> where(index.take_front(outer));
      where.push_back(e.integer(k));
      place = e.loadAt(reads[1], where);
      at.push_back(dataIndex(e, place, data[batch + static_cast<size_t>(k)]));
    }
    llvm::append_range(at, index.drop_front(outer));
    Value element = e.loadAt(reads[0], at);
    // A masked one has one component.
    return gather.getMasked() ? orZero(e, place, data[batch], element) : element;
  }
};

/// Coordinates are computed in f32 as ONNX does; f64 tensors too.
struct ResizeModel : IndexedOpInterface::ExternalModel<ResizeModel, graph::ResizeOp> {
  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto resize = cast<graph::ResizeOp>(op);
    Shape from = shapeOf(resize.getInput());
    bool isNearest = resize.getMode() == graph::ResizeMode::Nearest;
    // Corners of the surrounding cell, each with the product of its weights.
    struct Corner {
      SmallVector<Value> at;
      Value weight;
    };
    SmallVector<Corner> corners(1);
    for (size_t d = 0; d < from.size(); ++d) {
      if (resize.getScales()[d] == 1) {
        for (Corner &corner : corners)
          corner.at.push_back(clamped(e, index[d], from[d]));
        continue;
      }
      Value coordinate = sourceCoordinate(e, resize, d, index[d]);
      if (isNearest) {
        Value place = nearest(e, resize.getRounding(), coordinate);
        for (Corner &corner : corners)
          corner.at.push_back(clamped(e, place, from[d]));
        continue;
      }
      SmallVector<Corner> next;
      Value last = constant(e, static_cast<double>(from[d] - 1));
      coordinate = make<arith::MaximumFOp>(e, coordinate, constant(e, 0));
      coordinate = make<arith::MinimumFOp>(e, coordinate, last);
      Value floor = math::FloorOp::create(e.builder, e.location, coordinate);
      Value part = make<arith::SubFOp>(e, coordinate, floor);
      Value low = toInteger(e, floor);
      Value high = clamped(
          e, arith::AddIOp::create(e.builder, e.location, low, e.integer(1)), from[d]);
      for (const Corner &corner : corners)
        for (bool second : {false, true}) {
          Corner more = corner;
          Value weight = second ? part : make<arith::SubFOp>(e, constant(e, 1), part);
          more.at.push_back(second ? high : low);
          more.weight =
              corner.weight ? make<arith::MulFOp>(e, corner.weight, weight) : weight;
          next.push_back(std::move(more));
        }
      corners = std::move(next);
    }
    return sum(e, number, corners);
  }

private:
  static Value constant(KernelEmitter &e, double value) {
    return e.constant(e.builder.getF32Type(), value);
  }
  template <typename Op> static Value make(KernelEmitter &e, Value a, Value c) {
    return Op::create(e.builder, e.location, a, c);
  }
  static Value toInteger(KernelEmitter &e, Value value) {
    return arith::FPToSIOp::create(e.builder, e.location, e.builder.getI64Type(), value);
  }
  static Value clamped(KernelEmitter &e, Value index, int64_t size) {
    Value low = make<arith::MaxSIOp>(e, index, e.integer(0));
    return make<arith::MinSIOp>(e, low, e.integer(size - 1));
  }

  template <typename Corners>
  static Value sum(KernelEmitter &e, int number, const Corners &corners) {
    const KernelNode &node = e.node(number);
    Value total;
    for (const auto &corner : corners) {
      Value element = e.loadAt(node.reads[0], corner.at);
      if (!corner.weight)
        return element;
      DType work = node.type == DType::F64 ? DType::F64 : DType::F32;
      element = e.convert(element, node.type, work);
      Value weight = e.convert(corner.weight, DType::F32, work);
      Value term = make<arith::MulFOp>(e, element, weight);
      total = total ? make<arith::AddFOp>(e, total, term) : term;
    }
    return e.convert(total, node.type == DType::F64 ? DType::F64 : DType::F32, node.type);
  }

  static Value sourceCoordinate(KernelEmitter &e, graph::ResizeOp op, size_t d,
                                Value index) {
    auto from = static_cast<double>(shapeOf(op.getInput())[d]);
    auto to = static_cast<double>(shapeOf(op.getResult())[d]);
    graph::Coordinates mode = op.getCoordinates();
    double scale = op.getScales()[d];
    Value x =
        arith::SIToFPOp::create(e.builder, e.location, e.builder.getF32Type(), index);
    // The product first: a rounded quotient would miss the last element.
    if (mode == graph::Coordinates::AlignCorners && to == 1)
      return constant(e, 0);
    if (mode == graph::Coordinates::AlignCorners)
      return make<arith::DivFOp>(e, make<arith::MulFOp>(e, x, constant(e, from - 1)),
                                 constant(e, to - 1));
    if (mode == graph::Coordinates::Asymmetric)
      return make<arith::DivFOp>(e, x, constant(e, scale));
    if (mode == graph::Coordinates::PytorchHalfPixel && to == 1)
      return constant(e, 0);
    Value half = constant(e, 0.5);
    Value middle = make<arith::AddFOp>(e, x, half);
    return make<arith::SubFOp>(e, make<arith::DivFOp>(e, middle, constant(e, scale)),
                               half);
  }

  static Value nearest(KernelEmitter &e, graph::Rounding rounding, Value x) {
    auto floor = [&](Value v) -> Value {
      return math::FloorOp::create(e.builder, e.location, v);
    };
    auto ceil = [&](Value v) -> Value {
      return math::CeilOp::create(e.builder, e.location, v);
    };
    Value half = constant(e, 0.5);
    if (rounding == graph::Rounding::Floor)
      return toInteger(e, floor(x));
    if (rounding == graph::Rounding::Ceil)
      return toInteger(e, ceil(x));
    if (rounding == graph::Rounding::PreferCeil)
      return toInteger(e, floor(make<arith::AddFOp>(e, x, half)));
    return toInteger(e, ceil(make<arith::SubFOp>(e, x, half)));
  }
};
/// A loop over the rows of a bin's samples, and one over its columns.
struct RoiAlignModel
    : IndexedOpInterface::ExternalModel<RoiAlignModel, graph::RoiAlignOp> {
  /// As of a gather.
  bool isChecked(Operation *op) const { return !cast<graph::RoiAlignOp>(op).getMasked(); }
  void emitChecks(Operation *op, KernelEmitter &e, int number) const {
    checkAll(e, number, 2, shapeOf(op->getOperand(0))[0]);
  }

  Value emitElement(Operation *op, KernelEmitter &e, int number,
                    ArrayRef<Value> index) const {
    auto align = cast<graph::RoiAlignOp>(op);
    Shape in = shapeOf(align.getData());
    Value picture = e.loadAt(e.node(number).reads[2], index[0]);
    SmallVector<Value> at{dataIndex(e, picture, in[0]), index[1], nullptr, nullptr};
    Samples rows(align, e, number, index, 0), columns(align, e, number, index, 1);
    auto both = [&](Value a, Value c) -> Value { return make<arith::AndIOp>(e, a, c); };
    Value start = rows.constant(0);
    if (align.getLargest()) // but for the samples outside, which are zero
      start = arith::SelectOp::create(e.builder, e.location,
                                      both(rows.areAllVisited, columns.areAllVisited),
                                      rows.constant(-INFINITY), start);
    Value total = rows.visit(start, [&](const Tap &row, Value sum) {
      return columns.visit(sum, [&](const Tap &column, Value sum) {
        Value isInside = both(row.isInside, column.isInside);
        for (bool below : {false, true})
          for (bool right : {false, true}) {
            at[2] = below ? row.high : row.low;
            at[3] = right ? column.high : column.low;
            Value weight = make<arith::MulFOp>(e, below ? row.part : row.rest,
                                               right ? column.part : column.rest);
            Value term =
                make<arith::MulFOp>(e, weight, e.loadAt(e.node(number).reads[0], at));
            term = arith::SelectOp::create(e.builder, e.location, isInside, term,
                                           rows.constant(0));
            sum = align.getLargest() ? make<arith::MaximumFOp>(e, sum, term)
                                     : make<arith::AddFOp>(e, sum, term);
          }
        return sum;
      });
    });
    if (!align.getLargest()) {
      Value count = make<arith::MulFOp>(e, rows.count, columns.count);
      count = make<arith::MaximumFOp>(e, count, rows.constant(1));
      total = make<arith::DivFOp>(e, total, count);
    }
    return align.getMasked() ? orZero(e, picture, in[0], total) : total;
  }

private:
  template <typename Op> static Value make(KernelEmitter &e, Value a, Value c) {
    return Op::create(e.builder, e.location, a, c);
  }

  /// A sample along one dim: the elements around it, and their weights.
  struct Tap {
    Value low, high, rest, part, isInside;
  };

  /// The samples of the bin along spatial dim `d`; see samplesOf in Sampling.cpp. All
  /// numbers are floats, for a region may be of any size.
  struct Samples {
    KernelEmitter &e;
    Type type;
    int64_t extent;
    Value begin, size, count, low, trips, areAllVisited;

    Samples(graph::RoiAlignOp align, KernelEmitter &e, int number, ArrayRef<Value> index,
            size_t d)
        : e(e), type(e.computeType(e.node(number).type)),
          extent(shapeOf(align.getData())[2 + d]) {
      DType from = *dtypeOf(getElementTypeOrSelf(align.getBoxes().getType()));
      DType to = type.isF64() ? DType::F64 : DType::F32;
      auto field = [&](size_t k) {
        Value place = e.integer(static_cast<int64_t>(k));
        Value element = e.loadAt(e.node(number).reads[1], {index[0], place});
        return e.convert(element, from, to);
      };
      Value bins = constant(static_cast<double>(align.getBins()[d]));
      size = make<arith::DivFOp>(e, field(2 + d), bins);
      Value bin = arith::SIToFPOp::create(e.builder, e.location, type, index[2 + d]);
      begin = make<arith::AddFOp>(e, field(d), make<arith::MulFOp>(e, bin, size));
      Value ceiling = math::CeilOp::create(e.builder, e.location, size);
      count = select(compare(arith::CmpFPredicate::OGT, size, constant(0)), ceiling,
                     constant(0));
      findRange();
    }

    /// Those that may be inside, and one more at either end. What is no number counts as
    /// 0, so that a loop over a region of NaN or infinity ends.
    void findRange() {
      Value step = make<arith::DivFOp>(e, size, count);
      auto place = [&](double at) {
        Value offset = make<arith::SubFOp>(e, constant(at), begin);
        return make<arith::SubFOp>(e, make<arith::DivFOp>(e, offset, step),
                                   constant(0.5));
      };
      auto above = arith::CmpFPredicate::OGT;
      Value first = math::FloorOp::create(e.builder, e.location, place(-1));
      first = make<arith::SubFOp>(e, first, constant(1));
      low = select(compare(above, first, constant(0)), first, constant(0));
      Value last =
          math::CeilOp::create(e.builder, e.location, place(static_cast<double>(extent)));
      last = make<arith::AddFOp>(e, last, constant(2));
      Value high = select(compare(arith::CmpFPredicate::OLT, last, count), last, count);
      Value number = make<arith::SubFOp>(e, high, low);
      number = select(compare(above, number, constant(0)), number, constant(0));
      Value most = constant(static_cast<double>(2 * extent + 8));
      number = select(compare(arith::CmpFPredicate::OLT, number, most), number, most);
      trips =
          arith::FPToSIOp::create(e.builder, e.location, e.builder.getI64Type(), number);
      areAllVisited =
          make<arith::AndIOp>(e, compare(arith::CmpFPredicate::OEQ, number, count),
                              compare(above, count, constant(0)));
    }

    /// What `body` makes of the value, one sample after the other.
    Value visit(Value start, llvm::function_ref<Value(const Tap &, Value)> body) {
      auto loop = scf::ForOp::create(e.builder, e.location, e.integer(0), trips,
                                     e.integer(1), ValueRange{start});
      OpBuilder::InsertionGuard guard(e.builder);
      e.builder.setInsertionPointToStart(loop.getBody());
      Value result = body(tap(loop.getInductionVar()), loop.getRegionIterArgs()[0]);
      scf::YieldOp::create(e.builder, e.location, result);
      return loop.getResult(0);
    }

    Tap tap(Value trip) {
      Value k = arith::SIToFPOp::create(e.builder, e.location, type, trip);
      k = make<arith::AddFOp>(e, make<arith::AddFOp>(e, low, k), constant(0.5));
      Value at = make<arith::DivFOp>(e, make<arith::MulFOp>(e, k, size), count);
      at = make<arith::AddFOp>(e, begin, at);
      Tap tap;
      auto last = static_cast<double>(extent - 1);
      tap.isInside =
          make<arith::AndIOp>(e, compare(arith::CmpFPredicate::OGE, at, constant(-1)),
                              compare(arith::CmpFPredicate::OLE, at, constant(last + 1)));
      at = select(compare(arith::CmpFPredicate::OGT, at, constant(0)), at, constant(0));
      at = make<arith::MinimumFOp>(e, at, constant(last));
      Value floor = math::FloorOp::create(e.builder, e.location, at);
      tap.low =
          arith::FPToSIOp::create(e.builder, e.location, e.builder.getI64Type(), floor);
      tap.high = make<arith::AddIOp>(e, tap.low, e.integer(1));
      tap.high = make<arith::MinSIOp>(e, tap.high, e.integer(extent - 1));
      tap.part = make<arith::SubFOp>(e, at, floor);
      tap.rest = make<arith::SubFOp>(e, constant(1), tap.part);
      return tap;
    }

    Value constant(double value) { return e.constant(type, value); }
    Value compare(arith::CmpFPredicate predicate, Value a, Value c) {
      return arith::CmpFOp::create(e.builder, e.location, predicate, a, c);
    }
    Value select(Value condition, Value yes, Value no) {
      return arith::SelectOp::create(e.builder, e.location, condition, yes, no);
    }
  };
};
} // namespace

void codegen::attachIndexedModels(MLIRContext &context) {
  graph::GatherOp::attachInterface<GatherModel>(context);
  graph::TreesOp::attachInterface<TreesModel>(context);
  graph::GatherElementsOp::attachInterface<GatherElementsModel>(context);
  graph::GatherNDOp::attachInterface<GatherNDModel>(context);
  graph::ResizeOp::attachInterface<ResizeModel>(context);
  graph::RoiAlignOp::attachInterface<RoiAlignModel>(context);
  comm::LocalIndexOp::attachInterface<LocalIndexModel>(context);
}

void codegen::attachKernelModels(MLIRContext &context) {
  attachTaskModels(context);
  attachRowModels(context);
  attachIndexedModels(context);
  attachPoolModels(context);
}
