//===- Returned.cpp - What a program returns of its results ---------------===//
#include "dialects/Graph/Returned.h"

#include "partita/Reference/Kernels.h"

#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Returned::Returned(FunctionOpInterface function) {
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    Result &result = results.emplace_back();
    if (auto name = function.getResultAttrOfType<StringAttr>(i, "graph.name"))
      result.name = name.str();
    result.isSize = bool(function.getResultAttr(i, sizeAttr));
    if (auto dims = function.getResultAttrOfType<ArrayAttr>(i, dimsAttr))
      for (auto dim : dims.getAsRange<StringAttr>())
        result.dims.push_back(dim.str());
  }
}

std::map<std::string, std::vector<std::string>> Returned::dims() const {
  std::map<std::string, std::vector<std::string>> all;
  for (const Result &result : results)
    if (!result.dims.empty())
      all[result.name] = result.dims;
  return all;
}

std::vector<std::string> Returned::sizes() const {
  std::vector<std::string> names;
  for (const Result &result : results)
    if (result.isSize)
      names.push_back(result.name);
  return names;
}

Expected<std::vector<HostTensor>>
Returned::of(const std::vector<HostTensor> &tensors) const {
  std::map<std::string, int64_t> sizes;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].isSize)
      sizes[results[i].name] = reference::values<int64_t>(tensors[i])[0];
  std::vector<HostTensor> given;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].isSize)
      continue;
    Shape shape = tensors[i].shape;
    for (size_t d = 0; d < results[i].dims.size(); ++d)
      if (auto size = sizes.find(results[i].dims[d]); size != sizes.end()) {
        if (size->second < 0 || size->second > shape[d])
          return makeError("dim " + std::to_string(d) + " of output '" + results[i].name +
                           "' has " + std::to_string(size->second) +
                           " elements, at most " + std::to_string(shape[d]) +
                           " are possible");
        shape[d] = size->second;
      }
    auto strides = reference::strides(tensors[i].shape);
    auto place = [&](const Shape &index) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d)
        at += index[d] * strides[d];
      return at;
    };
    given.push_back(shape == tensors[i].shape
                        ? tensors[i]
                        : reference::move(tensors[i], shape, place));
  }
  return given;
}
