//===- Returned.h - What a program returns of its results -------*- C++ -*-===//
//
// A result whose size is data is a tensor of the most elements that there can be, and its
// sizes are results too (docs/rules-any-op.md, Bounded sizes). Who asked for a result
// gets the elements that there are, and no sizes.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_GRAPH_RETURNED_H
#define PARTITA_DIALECTS_GRAPH_RETURNED_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include <map>
#include <string>
#include <vector>

namespace partita::graph {

/// On results of @main whose sizes are data: per dim what its size is called, as symbolic
/// dims are; "" where it is the extent. Without it all sizes are.
inline constexpr char dimsAttr[] = "graph.dims";
/// On a result that is such a size, of that name, and no output of the model: an i64
/// scalar, at most the extents of the dims that are called so.
inline constexpr char sizeAttr[] = "graph.size";

class Returned {
public:
  Returned() = default;
  explicit Returned(mlir::FunctionOpInterface function);

  /// By output what its dims' sizes are called; only of outputs that have such dims.
  std::map<std::string, std::vector<std::string>> dims() const;
  /// The names of the results that are sizes.
  std::vector<std::string> sizes() const;
  /// Of the results of a run what there is, without sizes. An error if a size is more
  /// than an extent.
  Expected<std::vector<HostTensor>> of(const std::vector<HostTensor> &results) const;

private:
  struct Result {
    std::string name;
    bool isSize = false;
    std::vector<std::string> dims;
  };
  std::vector<Result> results;
};

} // namespace partita::graph

#endif // PARTITA_DIALECTS_GRAPH_RETURNED_H
