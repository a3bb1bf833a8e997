//===- Export.h - A trained model as an ONNX file ---------------*- C++ -*-===//
#ifndef PARTITA_ONNX_EXPORT_H
#define PARTITA_ONNX_EXPORT_H

#include "partita/Base/Error.h"

#include <cstddef>
#include <string>
#include <vector>

namespace partita::onnx_model {

/// Writes the model file `from` to `to`. Each initializer of its graph whose name a
/// tensor of the safetensors file `states` has gets the values of that; floats of another
/// width are rounded to the initializer's. All else stays as the file has it: nodes,
/// names, opsets, metadata. Returns how many initializers were replaced.
///
/// Tensors that the model has as external data, trained or not, go to "TO.data" beside
/// `to`, so that the copy needs nothing of the original.
///
/// `dataFolders` are searched for the external data of `from` before its own folder.
///
/// An error, and nothing is written, if a state has another shape than its initializer,
/// if no state is one, if one of `weights` is none, as in another model, or if `to` or
/// its data would replace a file of the model.
Expected<size_t> exportModel(const std::string &from, const std::string &states,
                             const std::string &to,
                             const std::vector<std::string> &dataFolders = {},
                             const std::vector<std::string> &weights = {});

/// Finds which of these names are initializers of a model file's graph.
Expected<std::vector<std::string>> initializersOf(const std::string &model,
                                                  const std::vector<std::string> &names);

/// Says before a long run why exportModel would fail for lack of a model or of a place.
Expected<void> checkExport(const std::string &from, const std::string &to);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_EXPORT_H
