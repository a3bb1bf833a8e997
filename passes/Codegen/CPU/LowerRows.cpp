//===- LowerRows.cpp - Reductions, softmax, normalization, sums -----------===//
#include "passes/Codegen/CPU/KernelEmitter.h"
#include "passes/Codegen/CPU/Models.h"
#include "passes/Codegen/CPU/RealFunctions.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Shorthands of the passes below.
class Passes {
public:
  Passes(KernelEmitter &emitter, int number)
      : e(emitter), b(emitter.builder), at(emitter.location), number(number),
        node(emitter.node(number)), type(emitter.computeType(node.type)) {}

  Value x() { return e.value(node.args[0]); }
  Value constant(double value) { return e.constant(type, value); }
  template <typename Op> Value make(Value a) { return Op::create(b, at, a); }
  template <typename Op> Value make(Value a, Value c) {
    return Op::create(b, at, a, c, arith::FastMathFlags::contract);
  }
  /// Σ over the row; the order of additions is free, so that it runs in vectors.
  Value add(Value a, Value c) {
    return arith::AddFOp::create(
        b, at, a, c, arith::FastMathFlags::reassoc | arith::FastMathFlags::contract);
  }
  Value exp(Value a) { return emitRealFunction(b, at, ScalarOp::Exp, a); }

  Value combine(ReduceKind kind, Value a, Value c);
  Value neutral(ReduceKind kind);
  Value reduceRow(ReduceKind kind, llvm::function_ref<Value()> element) {
    return e.rowLoop(neutral(kind), [&](ValueRange carried) {
      return KernelEmitter::Values{combine(kind, carried[0], element())};
    })[0];
  }
  /// The operand's element, kept in scratch from the first pass on if it is computed.
  Value kept() { return isLoad() ? x() : e.loadRow(number, 0, type); }
  Value keep() {
    Value element = x();
    if (!isLoad())
      e.storeRow(number, 0, element);
    return element;
  }
  bool isLoad() const { return e.node(node.args[0]).kind == KernelNode::Load; }

  KernelEmitter &e;
  OpBuilder &b;
  Location at;
  int number;
  const KernelNode &node;
  Type type;
};
} // namespace

Value Passes::neutral(ReduceKind kind) {
  bool isSum = kind == ReduceKind::Sum, isProd = kind == ReduceKind::Prod;
  if (isa<FloatType>(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    return constant(isSum                     ? 0
                    : isProd                  ? 1
                    : kind == ReduceKind::Max ? -infinity
                                              : infinity);
  }
  unsigned width = type.getIntOrFloatBitWidth();
  bool unsign = node.type == DType::Bool || node.type >= DType::U8;
  APInt bits = APInt(width, isProd ? 1 : 0);
  if (kind == ReduceKind::Max)
    bits = unsign ? APInt::getMinValue(width) : APInt::getSignedMinValue(width);
  if (kind == ReduceKind::Min)
    bits = unsign ? APInt::getMaxValue(width) : APInt::getSignedMaxValue(width);
  return arith::ConstantOp::create(b, at, IntegerAttr::get(type, bits));
}

Value Passes::combine(ReduceKind kind, Value a, Value c) {
  if (isa<FloatType>(type))
    switch (kind) {
    case ReduceKind::Sum:
      return add(a, c);
    case ReduceKind::Prod:
      return arith::MulFOp::create(b, at, a, c, arith::FastMathFlags::reassoc);
    case ReduceKind::Max:
      return arith::MaximumFOp::create(b, at, a, c);
    case ReduceKind::Min:
      return arith::MinimumFOp::create(b, at, a, c);
    }
  bool isBool = node.type == DType::Bool, unsign = isBool || node.type >= DType::U8;
  switch (kind) {
  case ReduceKind::Sum:
    if (isBool)
      return arith::OrIOp::create(b, at, a, c);
    return arith::AddIOp::create(b, at, a, c);
  case ReduceKind::Prod:
    return arith::MulIOp::create(b, at, a, c);
  case ReduceKind::Max:
    if (unsign)
      return arith::MaxUIOp::create(b, at, a, c);
    return arith::MaxSIOp::create(b, at, a, c);
  case ReduceKind::Min:
    if (unsign)
      return arith::MinUIOp::create(b, at, a, c);
    return arith::MinSIOp::create(b, at, a, c);
  }
  return nullptr;
}

static SmallVector<int64_t> axisOf(int64_t axis, Operation *op, bool toEnd) {
  auto rank =
      static_cast<int64_t>(cast<RankedTensorType>(op->getOperand(0).getType()).getRank());
  int64_t first = *normalizeAxis(axis, static_cast<size_t>(rank));
  SmallVector<int64_t> dims{first};
  for (int64_t d = first + 1; toEnd && d < rank; ++d)
    dims.push_back(d);
  return dims;
}

namespace {
struct ReduceModel : RowOpInterface::ExternalModel<ReduceModel, graph::ReduceOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    SmallVector<int64_t> dims;
    auto rank = cast<RankedTensorType>(op->getOperand(0).getType()).getRank();
    for (int64_t axis : cast<graph::ReduceOp>(op).getAxes())
      dims.push_back(*normalizeAxis(axis, static_cast<size_t>(rank)));
    llvm::sort(dims);
    return dims;
  }
  bool reducesRow(Operation *) const { return true; }
  bool keepsDims(Operation *op) const { return cast<graph::ReduceOp>(op).getKeepDims(); }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    ReduceKind kind = cast<graph::ReduceOp>(op).getKind();
    Value result = p.reduceRow(kind, [&] { return p.x(); });
    emitter.define(number, [result] { return result; });
  }
};

/// exp(x - max), kept in scratch and summed, then scaled where it is read.
struct SoftmaxModel : RowOpInterface::ExternalModel<SoftmaxModel, graph::SoftmaxOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    return axisOf(static_cast<int64_t>(cast<graph::SoftmaxOp>(op).getAxis()), op, false);
  }
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    Value top = p.reduceRow(ReduceKind::Max, [&] { return p.keep(); });
    Value sum = p.reduceRow(ReduceKind::Sum, [&] {
      Value term = p.exp(p.make<arith::SubFOp>(p.kept(), top));
      emitter.storeRow(number, 0, term);
      return term;
    });
    Value inverse = p.make<arith::DivFOp>(p.constant(1), sum);
    emitter.define(number, [=, &emitter]() -> Value {
      Value term = emitter.loadRow(number, 0, inverse.getType());
      return arith::MulFOp::create(emitter.builder, emitter.location, term, inverse);
    });
  }
};

struct LogSoftmaxModel
    : RowOpInterface::ExternalModel<LogSoftmaxModel, graph::LogSoftmaxOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    return axisOf(static_cast<int64_t>(cast<graph::LogSoftmaxOp>(op).getAxis()), op,
                  false);
  }
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    Value top = p.reduceRow(ReduceKind::Max, [&] { return p.keep(); });
    Value sum = p.reduceRow(ReduceKind::Sum,
                            [&] { return p.exp(p.make<arith::SubFOp>(p.kept(), top)); });
    Value logSum = emitRealFunction(p.b, p.at, ScalarOp::Log, sum);
    emitter.define(number, [=, &emitter]() -> Value {
      Passes q(emitter, number);
      return q.make<arith::SubFOp>(q.make<arith::SubFOp>(q.kept(), top), logSum);
    });
  }
};

/// Two passes, the second around the mean: the variance of large values stays exact.
struct LayerNormModel
    : RowOpInterface::ExternalModel<LayerNormModel, graph::LayerNormOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    return axisOf(static_cast<int64_t>(cast<graph::LayerNormOp>(op).getAxis()), op, true);
  }
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    Value count = p.constant(1.0 / static_cast<double>(emitter.rowElements()));
    Value sum = p.reduceRow(ReduceKind::Sum, [&] { return p.keep(); });
    Value mean = p.make<arith::MulFOp>(sum, count);
    Value squares = p.reduceRow(ReduceKind::Sum, [&] {
      Value offset = p.make<arith::SubFOp>(p.kept(), mean);
      return p.make<arith::MulFOp>(offset, offset);
    });
    double epsilon = cast<graph::LayerNormOp>(op).getEpsilon().convertToDouble();
    Value variance = p.add(p.make<arith::MulFOp>(squares, count), p.constant(epsilon));
    Value inverse = p.make<arith::DivFOp>(p.constant(1), p.make<math::SqrtOp>(variance));
    emitter.define(number, [=, &emitter]() -> Value {
      Passes q(emitter, number);
      Value offset = q.make<arith::SubFOp>(q.kept(), mean);
      Value normal = q.make<arith::MulFOp>(offset, inverse);
      Value scaled = q.make<arith::MulFOp>(normal, emitter.value(q.node.args[1]));
      return q.make<arith::AddFOp>(scaled, emitter.value(q.node.args[2]));
    });
  }
};

struct RmsNormModel : RowOpInterface::ExternalModel<RmsNormModel, graph::RmsNormOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    return axisOf(static_cast<int64_t>(cast<graph::RmsNormOp>(op).getAxis()), op, true);
  }
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    Value count = p.constant(1.0 / static_cast<double>(emitter.rowElements()));
    Value squares = p.reduceRow(ReduceKind::Sum, [&] {
      Value element = p.keep();
      return p.make<arith::MulFOp>(element, element);
    });
    double epsilon = cast<graph::RmsNormOp>(op).getEpsilon().convertToDouble();
    Value mean = p.add(p.make<arith::MulFOp>(squares, count), p.constant(epsilon));
    Value inverse = p.make<arith::DivFOp>(p.constant(1), p.make<math::SqrtOp>(mean));
    emitter.define(number, [=, &emitter]() -> Value {
      Passes q(emitter, number);
      Value normal = q.make<arith::MulFOp>(q.kept(), inverse);
      return q.make<arith::MulFOp>(normal, emitter.value(q.node.args[1]));
    });
  }
};

struct CumSumModel : RowOpInterface::ExternalModel<CumSumModel, graph::CumSumOp> {
  SmallVector<int64_t> getRowDims(Operation *op) const {
    return axisOf(static_cast<int64_t>(cast<graph::CumSumOp>(op).getAxis()), op, false);
  }
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    auto cumulate = cast<graph::CumSumOp>(op);
    Value zero = p.constant(0);
    emitter.rowLoop(
        zero,
        [&](ValueRange carried) {
          Value element = p.x(), before = carried[0];
          Value after =
              isa<FloatType>(p.type)
                  ? arith::AddFOp::create(p.b, p.at, before, element).getResult()
                  : arith::AddIOp::create(p.b, p.at, before, element).getResult();
          emitter.storeRow(number, 0, cumulate.getExclusive() ? before : after);
          return KernelEmitter::Values{after};
        },
        cumulate.getReverse());
    Type type = p.type;
    emitter.define(number,
                   [=, &emitter]() -> Value { return emitter.loadRow(number, 0, type); });
  }
};
} // namespace

void codegen::attachRowModels(MLIRContext &context) {
  graph::ReduceOp::attachInterface<ReduceModel>(context);
  graph::SoftmaxOp::attachInterface<SoftmaxModel>(context);
  graph::LogSoftmaxOp::attachInterface<LogSoftmaxModel>(context);
  graph::LayerNormOp::attachInterface<LayerNormModel>(context);
  graph::RmsNormOp::attachInterface<RmsNormModel>(context);
  graph::CumSumOp::attachInterface<CumSumModel>(context);
}
