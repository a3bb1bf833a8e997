//===- StatedHashes.h - What a model says of its external data --*- C++ -*-===//
#ifndef PARTITA_ONNX_STATEDHASHES_H
#define PARTITA_ONNX_STATEDHASHES_H

#include "partita/Base/Error.h"
#include "partita/Base/Files/File.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace partita::onnx_model {

struct StatedHash {
  std::string checksum;                   ///< SHA-1 in hexadecimal digits
  std::shared_ptr<const MappedFile> file; ///< found as the tensors in it are
};

/// By file of external data, as the model names it, what initializers state of it
/// ("checksum"); files of which nothing is stated are left out. An error if two state
/// another one. `dataFolders`: see LoadOptions.
Expected<std::map<std::string, StatedHash>>
statedHashes(const std::string &model, const std::vector<std::string> &dataFolders);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_STATEDHASHES_H
