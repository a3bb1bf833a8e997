//===- ManualGradients.cpp - Gradients of a graph written per rank --------===//
//
// The cotangent of what is the same on several ranks is the same on them; that of a part
// is the part's. So the op's adjoint leads back, and what was a partial sum gets, on
// every rank, the cotangent of the whole sum. Spreads are where the reverse is a
// reduction.
//
//===----------------------------------------------------------------------===//
#include "passes/Train/Differentiate.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
/// An op, whose operand is taken as part of a tensor in layout `from`.
class Adjoint {
public:
  Adjoint(dist::ManualOp op, OpBuilder &builder)
      : op(op), builder(builder), f(builder, op.getLoc()), from(op.getFrom().getLayout()),
        whole(from) {
    whole.partial.clear();
  }

  Expected<Values> run(Value cotangent) {
    const Layout &to = op.getTo().getLayout();
    if (auto pieces = op.getExchange())
      return f.results({sendBack(cotangent, pieces->back())});
    if (dist::isSpread(op))
      return Values{exchange(cotangent, to, whole)};
    if (!to.partial.empty())
      return makeError("it gives parts of a sum");
    if (from.partial.size() > 1)
      return makeError("it reduces in more than one way");
    if (from.hasBlocks())
      return f.results(
          {onRoot(to.isReplicated() ? cotangent : exchange(cotangent, to, evenly()))});
    Value back = exchange(cotangent, to, whole, op.getLeave(), op.getEnter());
    if (from.partial.empty() || from.partial[0].kind == ReduceKind::Sum)
      return Values{back};
    if (from.partial[0].kind == ReduceKind::Prod)
      return f.results({f.mul(back, productOfOthers())});
    // Ranks that have the extremum share its cotangent.
    Value x = op.getInput(), extremum = exchange(x, from, whole);
    Value mask = f.cast(f.equal(x, extremum), f.type(x));
    return f.results({f.mul(mask, f.div(back, reduced(mask, ReduceKind::Sum)))});
  }

private:
  Value exchange(Value value, const Layout &before, const Layout &after,
                 bool enters = false, bool leaves = false) {
    MLIRContext *context = builder.getContext();
    dist::MeshAttr mesh = op.getFrom().getMesh();
    auto type = RankedTensorType::get(after.localShape(), f.type(value));
    return dist::ManualOp::create(
        builder, op.getLoc(), type, value, dist::LayoutAttr::get(context, mesh, before),
        dist::LayoutAttr::get(context, mesh, after), enters, leaves, dist::PiecesAttr());
  }

  /// Each piece goes back to where it is from, and what was sent to several ranks adds
  /// up.
  Value sendBack(Value cotangent, const Pieces::Back &back) {
    MLIRContext *context = builder.getContext();
    dist::MeshAttr mesh = op.getFrom().getMesh();
    auto whole = [&](const Shape &shape) {
      return dist::LayoutAttr::get(context, mesh, Layout::replicated(shape));
    };
    auto type = RankedTensorType::get(back.pieces.after, f.type(cotangent));
    Value given = dist::ManualOp::create(
        builder, op.getLoc(), type, cotangent, whole(back.pieces.before),
        whole(back.pieces.after), false, false,
        dist::PiecesAttr::get(context, mesh, back.pieces.list));
    if (back.layers == 1)
      return given;
    Shape layers = f.shape(op.getInput());
    layers.insert(layers.begin(), back.layers);
    return f.sum(f.reshape(given, layers), {0}, /*keep=*/false);
  }

  /// All elements, as the root has them.
  Layout evenly() const { return Layout::replicated(from.globalShape()); }

  /// The root alone has given something of a broadcast: the rank whose block is not
  /// empty.
  Value onRoot(Value cotangent) {
    const DimFactor &rows = from.dims[0].factors[0];
    std::vector<double> flags(rows.blocks.begin(), rows.blocks.end());
    const auto ranks = static_cast<int64_t>(flags.size());
    Layout all = Layout::replicated({ranks}), own = all;
    own.dims[0].factors[0].axes = rows.axes;
    Value flag = exchange(f.tensor(f.type(cotangent), {ranks}, flags), all, own,
                          /*enters=*/true);
    return f.select(f.less(f.like(flag, 0), f.reshape(flag, {})), cotangent,
                    f.like(cotangent, 0));
  }

  Value reduced(Value value, ReduceKind kind) {
    Layout parts = from;
    parts.partial[0].kind = kind;
    return exchange(value, parts, whole);
  }

  /// Divides by no zero: of the ranks' factors those that are zero are counted.
  Value productOfOthers() {
    Value x = op.getInput(), isZero = f.equal(x, 0), one = f.like(x, 1);
    Value factor = f.select(isZero, one, x);
    Value product = reduced(factor, ReduceKind::Prod);
    Value zeros = reduced(f.cast(isZero, f.type(x)), ReduceKind::Sum);
    Value others = f.sub(zeros, f.cast(isZero, f.type(x)));
    return f.select(f.equal(others, 0), f.div(product, factor), f.like(x, 0));
  }

  dist::ManualOp op;
  OpBuilder &builder;
  Formula f;
  Layout from, whole;
};
} // namespace

Expected<Values> train::manualGradients(dist::ManualOp op, OpBuilder &builder,
                                        Value cotangent) {
  return Adjoint(op, builder).run(cotangent);
}
