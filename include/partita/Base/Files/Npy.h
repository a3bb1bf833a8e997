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

#include <string>

namespace partita {

/// Reads an array; Fortran order is transposed to row-major. Errors name the file and
/// say what is wrong: not .npy, big-endian, an unsupported type, truncated.
Expected<HostTensor> readNpy(const std::string &path);

/// Writes version 1.0, row-major, data aligned to 64 bytes.
Expected<void> writeNpy(const std::string &path, const HostTensor &tensor);

} // namespace partita

#endif // PARTITA_BASE_FILES_NPY_H
