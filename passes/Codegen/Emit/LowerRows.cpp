//===- LowerRows.cpp - Reductions, softmax, normalization, sums -----------===//
#include "passes/Codegen/Emit/Models.h"
#include "passes/Codegen/Emit/RowPasses.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
struct ReduceModel : RowOpInterface::ExternalModel<ReduceModel, graph::ReduceOp> {
  bool takesLanes(Operation *op) const {
    return isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType()));
  }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    ReduceKind kind = cast<graph::ReduceOp>(op).getKind();
    emitter.reduce(
        {number, p.neutral(kind), [p]() mutable { return p.x(); },
         [p, kind](Value a, Value c) mutable { return p.combine(kind, a, c); }});
  }
};

/// exp(x - max), kept in scratch and summed, then scaled where it is read.
struct SoftmaxModel : RowOpInterface::ExternalModel<SoftmaxModel, graph::SoftmaxOp> {
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

template <typename Op, ReduceKind kind>
struct CumulativeModel : RowOpInterface::ExternalModel<CumulativeModel<Op, kind>, Op> {
  int64_t numScratchRows(Operation *) const { return 1; }
  void emitRow(Operation *op, KernelEmitter &emitter, int number) const {
    Passes p(emitter, number);
    auto cumulate = cast<Op>(op);
    emitter.scanRow(
        p.neutral(kind), [&] { return p.x(); },
        [&](Value a, Value c) { return p.inOrder(kind, a, c); },
        [&](Value before, Value after) {
          emitter.storeRow(number, 0, cumulate.getExclusive() ? before : after);
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
  graph::CumSumOp::attachInterface<CumulativeModel<graph::CumSumOp, ReduceKind::Sum>>(
      context);
  graph::CumProdOp::attachInterface<CumulativeModel<graph::CumProdOp, ReduceKind::Prod>>(
      context);
  attachIndexedRowModels(context);
  attachSortModel(context);
}
