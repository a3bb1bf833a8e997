//===- Npy.h - NumPy array files --------------------------------*- C++ -*-===//
//
// .npy, versions 1.0 to 3.0. Little-endian and byte-order-free types only. NumPy has no
// bfloat16: such arrays are saved by ml_dtypes as '<V2' (or '|V2'), which is read as
// bf16, and that is also how bf16 is written.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_NPY_H
#define PARTITA_BASE_FILES_NPY_H

#include "partita/Base/DType.h"
#include "partita/Base/Error.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace partita {

/// What stands before the elements of an array.
struct NpyHeader {
  DType type = DType::F32;
  bool fortran = false; ///< column-major
  std::vector<int64_t> shape;
  uint64_t dataOffset = 0; ///< from the beginning of the array's bytes
  uint64_t dataBytes = 0;
};
/// The longest header that is read.
inline constexpr uint64_t mostNpyHeader = 1 << 16;
/// Of the first bytes of an array, as many as there are up to mostNpyHeader. `path` is
/// for messages.
Expected<NpyHeader> parseNpyHeader(std::string_view begin, const std::string &path);

/// Reads an array; Fortran order is transposed to row-major. Errors name the file and
/// say what is wrong: not .npy, big-endian, an unsupported type, truncated.
Expected<HostTensor> readNpy(const std::string &path);

/// Writes version 1.0, row-major, data aligned to 64 bytes.
Expected<void> writeNpy(const std::string &path, const HostTensor &tensor);

} // namespace partita

#endif // PARTITA_BASE_FILES_NPY_H
