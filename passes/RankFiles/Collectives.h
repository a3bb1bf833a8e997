//===- Collectives.h - Exchanges between ranks as ONNX nodes ----*- C++ -*-===//
#ifndef PARTITA_PASSES_RANKFILES_COLLECTIVES_H
#define PARTITA_PASSES_RANKFILES_COLLECTIVES_H

#include "passes/RankFiles/RankWriter.h"

namespace partita::rank_files {

/// The collectives of a dialect. Each fails by naming `what`, the op that asks for it,
/// if the dialect does not have it.
class Collectives {
public:
  Collectives(RankWriter &writer, std::string what) : w(writer), what(std::move(what)) {}

  std::string allReduce(const std::string &x, DType type, ReduceKind kind,
                        const AxisList &axes);
  /// Operand of shape [outer, chunk, inner], result [outer, count · chunk, inner].
  std::string allGather(const std::string &x, const Shape &shape, const AxisList &axes);
  /// Operand [outer, count · chunk, inner], result [outer, chunk, inner].
  std::string reduceScatter(const std::string &x, const Shape &shape, DType type,
                            ReduceKind kind, const AxisList &axes);
  /// Block i of dim `split` goes to member i, which joins what it gets along `concat`.
  std::string allToAll(const std::string &x, const Shape &shape, int64_t split,
                       int64_t concat, const AxisList &axes);

private:
  bool mayUse(const AxisList &axes, std::optional<ReduceKind> kind);
  Attributes tensorRt(const char *operation, const char *reduction, const AxisList &axes);
  std::string group(const AxisList &axes) const;

  RankWriter &w;
  std::string what;
};

/// The tensor along dim `d`, of which ranks have parts by `dim`, on every rank: padding
/// stays, and given blocks have their longest one's length. `shape` is that of `x` and
/// becomes that of the result.
std::string gatherDim(RankWriter &w, const std::string &what, const std::string &x,
                      Shape &shape, const DimLayout &dim, size_t d);

/// The place in what gatherDim gives of an element of the tensor.
int64_t placeIn(const DimLayout &dim, int64_t element);

/// Elements of dim `d` that a rank picks by their places, which differ between ranks.
/// Those of −1 become the neutral element of `fill`; `mayLack`: some rank has such.
std::string pick(RankWriter &w, const std::string &x, const Shape &shape, DType type,
                 size_t d, const std::vector<int64_t> &places, bool mayLack,
                 ReduceKind fill);

} // namespace partita::rank_files

#endif // PARTITA_PASSES_RANKFILES_COLLECTIVES_H
