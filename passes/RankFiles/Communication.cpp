//===- Communication.cpp - Steps between layouts as ONNX nodes ------------===//
//
// A step moves strided blocks of dense local tensors (StepGeometry), so that each is a
// collective between two reshapes. What no dialect has (permutations, halos, exchanges)
// is written as a gather of the dims that change, of which each rank picks its elements.
//
//===----------------------------------------------------------------------===//
#include "dialects/Comm/Comm.h"
#include "passes/RankFiles/Collectives.h"

#include "partita/Reference/Kernels.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

static std::string shortName(Operation *op) { return op->getName().getStringRef().str(); }

static void finish(RankWriter &w, Operation *op, const std::string &value) {
  w.define(op->getResult(0), w.reshape(value, shapeOf(op->getResult(0))));
}

//===-- Steps -------------------------------------------------------------===//

static void writeAllReduce(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  w.define(op->getResult(0),
           Collectives(w, shortName(op))
               .allReduce(w.name(op->getOperand(0)), typeOf(op->getResult(0)),
                          step.reduce, step.axes));
}

static void writeReduceScatter(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  StepGeometry at = stepGeometry(step);
  Shape view{at.outer, at.count * at.chunk, at.inner};
  finish(w, op,
         Collectives(w, shortName(op))
             .reduceScatter(w.reshape(w.name(op->getOperand(0)), view), view,
                            typeOf(op->getResult(0)), step.reduce, step.axes));
}

static void writeAllGather(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  StepGeometry at = stepGeometry(step);
  Shape view{at.outer, at.chunk, at.inner};
  finish(w, op,
         Collectives(w, shortName(op))
             .allGather(w.reshape(w.name(op->getOperand(0)), view), view, step.axes));
}

static void writeAllToAll(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  StepGeometry at = stepGeometry(step);
  Shape view =
      at.fromFirst
          ? Shape{at.outer, at.chunk, at.middle, at.count * at.toChunk, at.inner}
          : Shape{at.outer, at.count * at.toChunk, at.middle, at.chunk, at.inner};
  finish(w, op,
         Collectives(w, shortName(op))
             .allToAll(w.reshape(w.name(op->getOperand(0)), view), view,
                       at.fromFirst ? 3 : 1, at.fromFirst ? 1 : 3, step.axes));
}

/// A rank's block of a small constant, which the program has whole.
static HostTensor blockOf(const HostTensor &whole, const StepGeometry &at, int64_t place,
                          Shape shape) {
  HostTensor block = HostTensor::zeros(whole.type, std::move(shape));
  const auto bytes = static_cast<size_t>(at.chunk * at.inner) * byteWidth(whole.type);
  for (int64_t o = 0; o < at.outer; ++o)
    std::copy_n(whole.bytes.begin() +
                    static_cast<ptrdiff_t>(bytes) * (o * at.count + place),
                bytes, block.bytes.begin() + static_cast<ptrdiff_t>(bytes) * o);
  return block;
}

/// The own block, whose number is the rank's.
static void writeSlice(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  StepGeometry at = stepGeometry(step);
  if (auto constant = op->getOperand(0).getDefiningOp<graph::ConstantOp>())
    return w.define(op->getResult(0),
                    w.ownOfRank(blockOf(graph::toHostTensor(constant.getValue()), at,
                                        w.mesh.coordinate(w.rank, step.axes),
                                        shapeOf(op->getResult(0)))));
  std::string blocks =
      w.reshape(w.name(op->getOperand(0)), {at.outer, at.count, at.chunk, at.inner});
  HostTensor place = vectorOf({w.mesh.coordinate(w.rank, step.axes)});
  place.shape = {};
  finish(w, op, w.node("Gather", {blocks, w.ownOfRank(place)}, {{"axis", int64_t(1)}}));
}

static void writeToPartial(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  const DType type = typeOf(op->getResult(0));
  auto fill = toPartialFill(w.mesh, step, w.rank);
  std::string keeps = w.ownOfRank(boolsOf({!fill}, {}));
  std::string neutral = w.ownOfRank(neutralScalar(type, fill.value_or(step.reduce)));
  w.define(op->getResult(0), w.where(keeps, w.name(op->getOperand(0)), neutral));
}

static void writeRepad(RankWriter &w, Operation *op) {
  StepGeometry at = stepGeometry(cast<comm::StepOpInterface>(op).getStep());
  std::string x = w.reshape(w.name(op->getOperand(0)), {at.outer, at.chunk, at.inner});
  const DType type = typeOf(op->getResult(0));
  finish(w, op,
         at.toChunk < at.chunk ? w.slice(x, 1, 0, at.toChunk)
                               : w.padBehind(x, {0, at.toChunk - at.chunk, 0},
                                             w.common(HostTensor::zeros(type, {}))));
}

//===-- Everything else between ranks -------------------------------------===//

/// Places, in the tensor as gatherDim gives it, of what a rank has by `runs`; −1 where it
/// has nothing.
static std::vector<int64_t> placesOf(const DimLayout &from,
                                     const std::vector<DimRun> &runs, int64_t extent) {
  std::vector<int64_t> places(static_cast<size_t>(extent), -1);
  for (const DimRun &run : runs)
    for (int64_t i = 0; i < run.length; ++i)
      places[static_cast<size_t>(run.local + i)] = placeIn(from, run.global + i);
  return places;
}

namespace {
/// Elements of a dim that a rank picks, where the dim is gathered.
struct PickedDim {
  size_t dim;
  std::vector<int64_t> places;
  bool mayLack = false; ///< on some rank
};
} // namespace

/// All dims are gathered before any rank picks: an axis may go from one dim to another,
/// and the ranks along it have the same elements of the others only until they pick.
static void gatherAndPick(RankWriter &w, Operation *op, const Layout &before,
                          ArrayRef<PickedDim> dims, ReduceKind fill) {
  Shape shape = shapeOf(op->getOperand(0));
  const Shape result = shapeOf(op->getResult(0));
  std::string x = w.name(op->getOperand(0));
  for (const PickedDim &each : dims)
    x = gatherDim(w, shortName(op), x, shape, before.dims[each.dim], each.dim);
  for (const auto &[d, places, mayLack] : dims) {
    x = pick(w, x, shape, typeOf(op->getResult(0)), d, places, mayLack, fill);
    shape[d] = result[d];
  }
  w.define(op->getResult(0), x);
}

/// Every dim that is laid out otherwise is gathered, and each rank picks what it has of
/// it then. Padding has some element of the tensor.
static void writeRelayout(RankWriter &w, Operation *op) {
  Step step = cast<comm::StepOpInterface>(op).getStep();
  const Shape result = shapeOf(op->getResult(0));
  std::vector<PickedDim> dims;
  for (size_t d = 0; d < result.size(); ++d) {
    const DimLayout &from = step.before.dims[d], &to = step.after.dims[d];
    if (from != to)
      dims.push_back({d, placesOf(from, dimRuns(w.mesh, to, w.rank), result[d])});
  }
  gatherAndPick(w, op, step.before, dims, ReduceKind::Sum);
}

static void writeHalo(RankWriter &w, Operation *op) {
  Halo halo = cast<comm::HaloOp>(op).getHalo();
  const Shape result = shapeOf(op->getResult(0));
  std::vector<PickedDim> dims;
  for (size_t d = 0; d < result.size(); ++d) {
    const bool isRead = llvm::any_of(halo.windows, [&](const HaloWindow &window) {
      return window.dim == static_cast<int32_t>(d);
    });
    const DimLayout &from = halo.before.dims[d];
    if (!isRead && from == halo.positions.dims[d])
      continue;
    bool mayLack = false;
    for (int64_t rank = 0; isRead && rank < w.mesh.numRanks(); ++rank)
      mayLack |= llvm::is_contained(
          placesOf(from, haloRuns(w.mesh, halo, d, rank), result[d]), -1);
    dims.push_back(
        {d, placesOf(from, haloRuns(w.mesh, halo, d, w.rank), result[d]), mayLack});
  }
  gatherAndPick(w, op, halo.before, dims, halo.fill);
}

/// Every rank has what all have, one behind the other, and picks what its pieces are. The
/// places are found by an exchange of places.
static void writePieces(RankWriter &w, Operation *op) {
  const Pieces pieces = cast<comm::PiecesOp>(op).getExchange();
  const AxisList axes = pieces.axes(w.mesh);
  const int64_t size = elementCount(pieces.before);
  std::vector<HostTensor> places;
  for (int64_t rank = 0; rank < w.mesh.numRanks(); ++rank) {
    std::vector<int64_t> own(static_cast<size_t>(size));
    std::iota(own.begin(), own.end(), w.mesh.coordinate(rank, axes) * size + 1);
    places.push_back(reference::tensor<int64_t>(DType::I64, pieces.before, own));
  }
  places = executePieces(w.mesh, pieces, places);
  const bool mayLack = llvm::any_of(places, [](const HostTensor &some) {
    return llvm::is_contained(ArrayRef(some.data<int64_t>(), some.size()), 0);
  });
  const HostTensor &own = places[static_cast<size_t>(w.rank)];
  std::vector<int64_t> wanted(own.data<int64_t>(), own.data<int64_t>() + own.size());
  for (int64_t &place : wanted)
    --place; // the empty ones were 0
  Shape row{1, size, 1};
  std::string x = w.reshape(w.name(op->getOperand(0)), row);
  if (!axes.empty())
    x = Collectives(w, shortName(op)).allGather(x, row, axes);
  const Shape all{product(axes) * size};
  finish(w, op,
         pick(w, w.reshape(x, all), all, typeOf(op->getResult(0)), 0, wanted, mayLack,
              ReduceKind::Sum));
}

//===-- Of one rank -------------------------------------------------------===//

static std::vector<bool> validIn(const Mesh &mesh, const DimLayout &dim, int64_t rank) {
  std::vector<bool> valid(static_cast<size_t>(dim.local()), false);
  for (const DimRun &run : dimRuns(mesh, dim, rank))
    for (int64_t i = 0; i < run.length; ++i)
      valid[static_cast<size_t>(run.local + i)] = true;
  return valid;
}

static void writeMask(RankWriter &w, Operation *op) {
  auto mask = cast<comm::MaskOp>(op);
  const Layout layout = mask.getLayout().getLayout();
  Shape shape = shapeOf(op->getResult(0));
  std::string x = w.name(mask.getInput());
  for (int64_t d : mask.getDims()) {
    const DimLayout &dim = layout.dims[static_cast<size_t>(d)];
    Shape ones(shape.size(), 1);
    ones[static_cast<size_t>(d)] = shape[static_cast<size_t>(d)];
    x = w.where(
        w.ownOfRank(boolsOf(validIn(w.mesh, dim, w.rank), ones)), x,
        w.common(neutralScalar(typeOf(op->getResult(0)), mask.getKind().getValue())));
  }
  w.define(op->getResult(0), x);
}

/// Indices from the end become those from the front. In one block a place is the distance
/// from the block's first element; in several a table says it.
static void writeLocalIndex(RankWriter &w, Operation *op) {
  auto local = cast<comm::LocalIndexOp>(op);
  const DimLayout dim = local.getLayout().getLayout().canonicalized().dims[0];
  const DType type = typeOf(op->getResult(0));
  std::string i = w.name(local.getIndices()), zero = w.scalar(type, 0);
  auto own = [&](int64_t number) {
    return w.ownOfRank(reference::tensor<int64_t>(type, {}, {number}));
  };
  i = w.where(w.node("Less", {i, zero}),
              w.node("Add", {i, w.scalar(type, static_cast<double>(dim.size()))}), i);
  std::vector<DimRun> runs = dimRuns(w.mesh, dim, w.rank);
  if (dim.factors.size() == 1) {
    const int64_t begin = runs.empty() ? 0 : runs[0].global;
    std::string at = w.node("Sub", {i, own(begin)});
    std::string isThere =
        w.node("And", {w.node("GreaterOrEqual", {at, zero}),
                       w.node("Less", {at, own(runs.empty() ? 0 : runs[0].length)})});
    return w.define(op->getResult(0), w.where(isThere, at, w.scalar(type, -1)));
  }
  std::vector<int64_t> places(static_cast<size_t>(dim.size()), -1);
  for (const DimRun &run : runs)
    for (int64_t k = 0; k < run.length; ++k)
      places[static_cast<size_t>(run.global + k)] = run.local + k;
  HostTensor table =
      reference::tensor<int64_t>(type, {static_cast<int64_t>(places.size())}, places);
  w.define(op->getResult(0),
           w.node("Gather", {w.ownOfRank(table), i}, {{"axis", int64_t(0)}}));
}

static void writeClaim(RankWriter &w, Operation *op) {
  w.define(op->getResult(0), w.name(op->getOperand(0)));
}

//===-- Ends --------------------------------------------------------------===//

static bool isWhole(const Layout &layout) {
  return layout.shardingAxes().empty() && layout.localShape() == layout.globalShape();
}

/// The layout of what is padded to its padded extents, which all ranks' blocks divide.
static Layout evenOf(const Layout &layout) {
  Layout even = layout;
  for (DimLayout &dim : even.dims)
    for (DimFactor &factor : dim.factors)
      factor.size = factor.padded;
  return even;
}

std::string rank_files::toLocal(RankWriter &w, const std::string &input,
                                const Layout &layout, DType type) {
  if (isWhole(layout))
    return input;
  Shape shape = layout.globalShape();
  std::string x = input;
  if (w.dialect == RankDialect::Partita && !layout.hasBlocks()) {
    const Layout even = evenOf(layout);
    std::vector<int64_t> behind = even.globalShape();
    for (size_t d = 0; d < behind.size(); ++d)
      behind[d] -= shape[d];
    if (even.globalShape() != shape)
      x = w.padBehind(x, behind, w.common(HostTensor::zeros(type, {})));
    return w.node("ToLocal", {x}, {{"layout", even.str(w.mesh)}}, onnx_model::ownDomain);
  }
  const Shape local = layout.localShape();
  for (size_t d = 0; d < shape.size(); ++d) {
    const DimLayout &dim = layout.dims[d];
    if (!dim.sharded() && local[d] == shape[d])
      continue;
    std::vector<int64_t> places(static_cast<size_t>(local[d]), -1);
    for (const DimRun &run : dimRuns(w.mesh, dim, w.rank))
      for (int64_t i = 0; i < run.length; ++i)
        places[static_cast<size_t>(run.local + i)] = run.global + i;
    x = pick(w, x, shape, type, d, places, false, ReduceKind::Sum);
    shape[d] = local[d];
  }
  return x;
}

std::string rank_files::toGlobal(RankWriter &w, const std::string &part,
                                 const Layout &layout) {
  if (isWhole(layout))
    return part;
  Shape shape = layout.localShape();
  const Shape global = layout.globalShape();
  std::string x = part;
  if (w.dialect == RankDialect::Partita && !layout.hasBlocks()) {
    const Layout even = evenOf(layout);
    x = w.node("ToGlobal", {x}, {{"layout", even.str(w.mesh)}}, onnx_model::ownDomain);
    shape = even.globalShape();
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const DimLayout &dim = layout.dims[d];
    if (shape[d] != dim.padded())
      x = gatherDim(w, "an output's gather", x, shape, dim, d);
    if (dim.hasBlocks()) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < global[d]; ++i)
        places.push_back(placeIn(dim, i));
      x = w.node("Gather", {x, w.ints(places)}, {{"axis", static_cast<int64_t>(d)}});
    } else if (shape[d] != global[d]) {
      x = w.slice(x, static_cast<int64_t>(d), 0, global[d]);
    }
    shape[d] = global[d];
  }
  return x;
}

void rank_files::addCommunication(WriterTable &table) {
  table[comm::AllReduceOp::getOperationName()] = writeAllReduce;
  table[comm::ReduceScatterOp::getOperationName()] = writeReduceScatter;
  table[comm::AllGatherOp::getOperationName()] = writeAllGather;
  table[comm::AllToAllOp::getOperationName()] = writeAllToAll;
  table[comm::SliceOp::getOperationName()] = writeSlice;
  table[comm::ToPartialOp::getOperationName()] = writeToPartial;
  table[comm::RepadOp::getOperationName()] = writeRepad;
  table[comm::PermuteOp::getOperationName()] = writeRelayout;
  table[comm::ExchangeOp::getOperationName()] = writeRelayout;
  table[comm::HaloOp::getOperationName()] = writeHalo;
  table[comm::PiecesOp::getOperationName()] = writePieces;
  table[comm::MaskOp::getOperationName()] = writeMask;
  table[comm::LocalIndexOp::getOperationName()] = writeLocalIndex;
  table[comm::ClaimOp::getOperationName()] = writeClaim;
}
