//===- TensorProto.h - ONNX tensor files (.pb) ------------------*- C++ -*-===//
//
// The serialized TensorProto of ONNX test data (input_K.pb, output_K.pb), read and
// written without protobuf.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_TENSORPROTO_H
#define PARTITA_BASE_FILES_TENSORPROTO_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace partita {

/// A tensor and the name that the file gives it (may be empty).
struct NamedTensor {
  std::string name;
  HostTensor tensor;
};

/// The element type with ONNX's TensorProto.DataType number, e.g. 1 is f32; empty for
/// those the compiler does not know (strings, complex numbers).
std::optional<DType> dtypeFromOnnx(int64_t number);
int onnxNumber(DType type);
/// "FLOAT8E4M3FN" for 17, …; "99" for a number that ONNX does not define.
std::string onnxTypeName(int64_t number);

/// Elements of less than a byte lie packed in files, the first in the lowest bits: the
/// bytes there of what takes `bytes` in memory, and the elements of `packed` one by one.
uint64_t packedBytes(DType type, uint64_t bytes);
std::vector<std::byte> unpacked(DType type, std::span<const std::byte> packed,
                                uint64_t bytes);

/// Decodes a serialized TensorProto, whose values lie in raw_data or in a typed field.
/// `what` names it in messages: a file, or "initializer 'w' of model.onnx". Refuses
/// external data, unknown element types, negative dims and counts unequal to the shape.
Expected<NamedTensor> decodeTensorProto(std::string_view bytes, const std::string &what);
/// The inverse, always with raw_data.
std::string encodeTensorProto(const HostTensor &tensor, std::string_view name = {});

Expected<NamedTensor> readTensorProto(const std::string &path);
/// Through a temporary file and a rename: a reader never sees half a tensor.
Expected<void> writeTensorProto(const std::string &path, const HostTensor &tensor,
                                std::string_view name = {});

/// Product of dims times the width, or an error if a dim is negative or the product does
/// not fit in 63 bits. For shapes that come from outside.
Expected<uint64_t> byteCount(DType type, const std::vector<int64_t> &shape,
                             const std::string &what);

} // namespace partita

#endif // PARTITA_BASE_FILES_TENSORPROTO_H
