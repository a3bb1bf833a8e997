//===- OpenDims.h - Sizes that a model leaves open --------------*- C++ -*-===//
#ifndef PARTITA_ONNX_OPENDIMS_H
#define PARTITA_ONNX_OPENDIMS_H

#include "partita/Onnx/Load.h"

namespace partita::onnx_model {

/// Inputs of a model as its file has them, and the names of their dims.
struct OpenDims {
  struct Input {
    std::string name, type; ///< type: as names of element types, or ONNX's own word
    bool hasShape = true;
    std::vector<std::string> dims; ///< an extent, a name, or "?"
  };
  struct Dim {
    std::string name;
    std::vector<std::string> places; ///< "dim 0 of input 'ids'", inputs first
    /// Names of which this one is a sum or a product; empty: a name of its own.
    std::vector<std::string> parts;
    std::optional<int64_t> size; ///< by what is bound; absent: open
  };
  std::vector<Input> inputs;
  std::vector<Dim> dims;             ///< in the order in which inputs name them
  std::vector<std::string> bindings; ///< texts of --shape that would bind what is open
};

/// The open dims of a model by the shapes and constants of `options`; `bindings` is empty
/// if nothing is open. Errors are those of loadModel on the file, its version and what is
/// bound.
Expected<OpenDims> openDims(const std::string &path, const LoadOptions &options = {});

/// The same texts as options, quoted for a shell: "--shape batch=1 --shape length=1".
std::string shapeOptions(const std::vector<std::string> &bindings);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_OPENDIMS_H
