//===- Collectives.cpp - Exchanges between ranks as ONNX nodes ------------===//
#include "passes/RankFiles/Collectives.h"

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::rank_files;

static constexpr char ortDomain[] = "com.microsoft";

std::string Collectives::group(const AxisList &axes) const {
  std::string text;
  for (const AxisRef &axis : axes)
    text += (text.empty() ? "" : ",") + w.mesh.str(axis);
  return text;
}

bool Collectives::mayUse(const AxisList &axes, std::optional<ReduceKind> kind) {
  if (w.dialect != RankDialect::Partita && !w.around.empty()) {
    w.fail("(" + what + ") is in " + w.around.back() +
           ", where nobody runs a collective of dialect " +
           (w.dialect == RankDialect::Ort ? "ort" : "tensorrt"));
    return false;
  }
  if (w.dialect != RankDialect::Ort)
    return true;
  if (kind && *kind != ReduceKind::Sum) {
    w.fail("(" + what + ") reduces by " + std::string(partita::name(*kind)) +
           ", and dialect ort has sums alone");
    return false;
  }
  if (canonical(axes) != canonical(w.mesh.all())) {
    w.fail("(" + what + ") is over " + w.mesh.str(axes) +
           ", and a collective of dialect ort is over all ranks, " +
           w.mesh.str(w.mesh.all()));
    return false;
  }
  return true;
}

Attributes Collectives::tensorRt(const char *operation, const char *reduction,
                                 const AxisList &axes) {
  Attributes attributes{{"collective_operation", std::string(operation)},
                        {"reduce_op", std::string(reduction)},
                        {"root", int64_t(-1)},
                        {"group_size", int64_t(0)},
                        {"nb_rank", product(axes)}};
  if (canonical(axes) != canonical(w.mesh.all())) {
    attributes["group_size"] = product(axes);
    attributes["groups"] = w.mesh.group(w.rank, axes);
  }
  return attributes;
}

static const char *tensorRtName(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
    return "sum";
  case ReduceKind::Max:
    return "max";
  case ReduceKind::Min:
    return "min";
  case ReduceKind::Prod:
    return "prod";
  }
  return "";
}

std::string Collectives::allReduce(const std::string &x, DType type, ReduceKind kind,
                                   const AxisList &axes) {
  if (!mayUse(axes, kind))
    return "";
  // The greatest of booleans is any, the least one all of them.
  const bool isBool = type == DType::Bool;
  const std::string in = isBool ? w.castTo(x, DType::U8) : x;
  std::string sum;
  if (w.dialect == RankDialect::Ort)
    sum = w.node("AllReduce", {in}, {}, ortDomain);
  else if (w.dialect == RankDialect::TensorRt)
    sum =
        w.node("DistCollective", {in}, tensorRt("all_reduce", tensorRtName(kind), axes));
  else
    sum = w.node("AllReduce", {in},
                 {{"op", std::string(partita::name(kind))}, {"group", group(axes)}},
                 onnx_model::ownDomain);
  return isBool ? w.castTo(sum, DType::Bool) : sum;
}

/// The dim in the middle first, or back.
static std::string turned(RankWriter &w, const std::string &x) {
  return w.transpose(x, {1, 0, 2});
}

std::string Collectives::allGather(const std::string &x, const Shape &shape,
                                   const AxisList &axes) {
  if (!mayUse(axes, {}))
    return "";
  if (w.dialect == RankDialect::Ort)
    return w.node("AllGather", {x},
                  {{"axis", int64_t(1)}, {"group_size", w.mesh.numRanks()}}, ortDomain);
  if (w.dialect == RankDialect::Partita)
    return w.node("AllGather", {x}, {{"axis", int64_t(1)}, {"group", group(axes)}},
                  onnx_model::ownDomain);
  Attributes attributes = tensorRt("all_gather", "none", axes);
  return turned(w, w.node("DistCollective", {turned(w, x)}, std::move(attributes)));
}

std::string Collectives::reduceScatter(const std::string &x, const Shape &shape,
                                       DType type, ReduceKind kind,
                                       const AxisList &axes) {
  if (!mayUse(axes, kind))
    return "";
  const bool isBool = type == DType::Bool;
  const std::string in = isBool ? w.castTo(x, DType::U8) : x;
  std::string part;
  if (w.dialect == RankDialect::Ort) {
    // ONNX Runtime has no such node: all sums, of which each rank takes its block.
    const int64_t count = product(axes);
    std::string all = w.node("AllReduce", {in}, {}, ortDomain);
    all = w.reshape(all, {shape[0], count, shape[1] / count, shape[2]});
    HostTensor place = vectorOf({w.mesh.coordinate(w.rank, axes)});
    place.shape = {};
    part = w.node("Gather", {all, w.ownOfRank(place)}, {{"axis", int64_t(1)}});
  } else if (w.dialect == RankDialect::TensorRt) {
    Attributes attributes = tensorRt("reduce_scatter", tensorRtName(kind), axes);
    part = turned(w, w.node("DistCollective", {turned(w, in)}, std::move(attributes)));
  } else {
    part = w.node("ReduceScatter", {in},
                  {{"op", std::string(partita::name(kind))},
                   {"axis", int64_t(1)},
                   {"group", group(axes)}},
                  onnx_model::ownDomain);
  }
  return isBool ? w.castTo(part, DType::Bool) : part;
}

std::string Collectives::allToAll(const std::string &x, const Shape &shape, int64_t split,
                                  int64_t concat, const AxisList &axes) {
  if (!mayUse(axes, {}))
    return "";
  const int64_t count = product(axes);
  if (w.dialect == RankDialect::Partita)
    return w.node("AlltoAll", {x},
                  {{"split_dim", split},
                   {"concat_dim", concat},
                   {"split_count", count},
                   {"group", group(axes)}},
                  onnx_model::ownDomain);
  // Dim 0 is split and joined elsewhere: blocks by destination first, then by source.
  Shape cut = shape;
  cut[static_cast<size_t>(split)] /= count;
  cut.insert(cut.begin() + split, count);
  std::vector<int64_t> order(cut.size());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + split);
  order.insert(order.begin(), split);
  std::string blocks = w.transpose(w.reshape(x, cut), order);
  blocks = w.dialect == RankDialect::TensorRt
               ? w.node("DistCollective", {blocks}, tensorRt("all_to_all", "none", axes))
               : w.node("AllToAll", {blocks}, {{"group_size", count}}, ortDomain);
  // Dims are now [source, those of the operand]; the source joins in front of `concat`.
  std::vector<int64_t> back(cut.size() - 1);
  std::iota(back.begin(), back.end(), 1);
  back.insert(back.begin() + concat, 0);
  Shape joined = shape;
  joined[static_cast<size_t>(split)] /= count;
  joined[static_cast<size_t>(concat)] *= count;
  return w.reshape(w.transpose(blocks, back), joined);
}

//===-- Dims --------------------------------------------------------------===//

std::string rank_files::gatherDim(RankWriter &w, const std::string &what,
                                  const std::string &x, Shape &shape,
                                  const DimLayout &dim, size_t d) {
  std::vector<int64_t> sizes; // of the factors, as far as they are gathered
  for (const DimFactor &factor : dim.factors)
    sizes.push_back(factor.local());
  auto outside = [&](size_t from, size_t to) {
    return std::accumulate(shape.begin() + static_cast<ptrdiff_t>(from),
                           shape.begin() + static_cast<ptrdiff_t>(to), int64_t(1),
                           std::multiplies<>());
  };
  auto within = [&](size_t from, size_t to) {
    return std::accumulate(sizes.begin() + static_cast<ptrdiff_t>(from),
                           sizes.begin() + static_cast<ptrdiff_t>(to), int64_t(1),
                           std::multiplies<>());
  };
  std::string value = x;
  for (size_t f = 0; f < dim.factors.size(); ++f) {
    const DimFactor &factor = dim.factors[f];
    if (factor.axes.empty())
      continue;
    const Shape view{outside(0, d) * within(0, f), sizes[f],
                     within(f + 1, sizes.size()) * outside(d + 1, shape.size())};
    value = Collectives(w, what).allGather(w.reshape(value, view), view, factor.axes);
    sizes[f] = factor.padded;
  }
  shape[d] = within(0, sizes.size());
  return w.reshape(value, shape);
}

int64_t rank_files::placeIn(const DimLayout &dim, int64_t element) {
  const DimFactor &major = dim.factors.front();
  if (major.blocks.empty())
    return element;
  int64_t inner = 1;
  for (size_t f = 1; f < dim.factors.size(); ++f)
    inner *= dim.factors[f].size;
  int64_t index = element / inner;
  size_t block = 0;
  while (index >= major.blocks[block])
    index -= major.blocks[block++];
  return (static_cast<int64_t>(block) * major.local() + index) * inner + element % inner;
}

std::string rank_files::pick(RankWriter &w, const std::string &x, const Shape &shape,
                             DType type, size_t d, const std::vector<int64_t> &places,
                             bool mayLack, ReduceKind fill) {
  std::vector<int64_t> indices = places;
  std::vector<bool> isThere;
  for (int64_t &place : indices) {
    isThere.push_back(place >= 0);
    place = std::max<int64_t>(place, 0);
  }
  std::string found = w.node("Gather", {x, w.ownOfRank(vectorOf(indices))},
                             {{"axis", static_cast<int64_t>(d)}});
  if (!mayLack)
    return found;
  Shape mask(shape.size(), 1);
  mask[d] = static_cast<int64_t>(places.size());
  return w.where(w.ownOfRank(boolsOf(isThere, mask)), found,
                 w.common(neutralScalar(type, fill)));
}
