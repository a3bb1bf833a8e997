//===- StatedHashes.h - What a model says of its external data --*- C++ -*-===//
#ifndef PARTITA_ONNX_STATEDHASHES_H
#define PARTITA_ONNX_STATEDHASHES_H

#include "partita/Base/Error.h"

#include <map>
#include <string>

namespace partita::onnx_model {

/// By file of external data, relative to the model's folder, the SHA-1 in hexadecimal
/// digits that initializers state of it ("checksum"); files of which nothing is stated
/// are left out. An error if two state another one.
Expected<std::map<std::string, std::string>> statedHashes(const std::string &model);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_STATEDHASHES_H
