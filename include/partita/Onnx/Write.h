//===- Write.h - Writing ONNX models ----------------------------*- C++ -*-===//
#ifndef PARTITA_ONNX_WRITE_H
#define PARTITA_ONNX_WRITE_H

#include "partita/Base/Error.h"
#include "partita/Onnx/Model.h"

#include <string>

namespace partita::onnx_model {

/// Writes a graph in canonical form as an ONNX file of IR 10 and opset 23 (or
/// Model::writtenOpset), or the newest opset that one of its operators needs. All tensors
/// go into the file, which must stay below 2 GiB, and so do the properties of the model.
/// Outputs are written with the shapes that the graph says of them, if it does.
///
/// IfBegin and IfEnd with what stands between them are written as an If, RepeatBegin and
/// RepeatEnd as a Loop.
/// Fails on opaque attributes and tensors without bytes; nothing is written then.
Expected<void> writeModel(const Model &model, const std::string &path);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_WRITE_H
