//===- StoredTensor.h - Tensors in files, read in parts ---------*- C++ -*-===//
//
// A rank that needs a part of a tensor reads that part. Formats that have the elements as
// they are, row-major, can be read so: .npy, the members of .npz, safetensors.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_STOREDTENSOR_H
#define PARTITA_BASE_FILES_STOREDTENSOR_H

#include "partita/Base/DType.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Layout/SliceCopy.h"

#include <memory>
#include <string>
#include <vector>

namespace partita {

/// Elements in a file, or, of formats that are read as a whole, in memory.
struct StoredTensor {
  DType type = DType::F32;
  std::vector<int64_t> shape;
  std::shared_ptr<const InputFile> file; ///< null: in `whole`
  uint64_t offset = 0;                   ///< of the first element in the file
  std::shared_ptr<const HostTensor> whole;
  /// Dim 0 has these rows of what is stored, in this order; null: all of them.
  std::shared_ptr<const std::vector<int64_t>> rows = {};
  /// Tensors whose rows follow each other in what is stored; null: it is one tensor, in
  /// `file` or `whole`.
  struct Part {
    uint64_t begin = 0; ///< of its bytes in those of all parts
    std::shared_ptr<const InputFile> file;
    uint64_t offset = 0;
    std::shared_ptr<const HostTensor> whole;
  };
  std::shared_ptr<const std::vector<Part>> parts = {};

  uint64_t bytes() const {
    return static_cast<uint64_t>(elementCount(shape)) * byteWidth(type);
  }
};

/// Opens F.npy, F.pb (a TensorProto), or the tensor `name` of F.npz or F.safetensors;
/// "F.npz:other" names another one. Column-major arrays and TensorProtos are read whole.
/// An error names the file and says what is wrong: no such tensor (and which there are),
/// a compressed member, a truncated file.
Expected<StoredTensor> openTensor(const std::string &path, const std::string &name);

/// Of a tensor that has all its rows: some of them, in this order. One may come twice.
/// Nothing is read.
StoredTensor takeRows(const StoredTensor &tensor,
                      std::shared_ptr<const std::vector<int64_t>> rows);

/// The rows of all of these, one tensor's behind the other's. The tensors, at least one,
/// have all their rows, and equal types and shapes behind dim 0. Nothing is read.
StoredTensor joinRows(const std::vector<StoredTensor> &tensors);

/// Reads the bytes from `begin` on.
Expected<void> readBytes(const StoredTensor &tensor, uint64_t begin,
                         std::span<std::byte> into);

/// Reads the part of a tensor that `slice` takes to `into`, as SliceCopy::toLocal does
/// from memory; `begin` is the place in the tensor's bytes at which the slice's tensor
/// begins (a slot of it). Returns the bytes that were read: those of the part, where
/// they lie in runs of 512 bytes and more, else what lies between them too.
Expected<uint64_t> readSlice(const StoredTensor &tensor, uint64_t begin,
                             const SliceCopy &slice, std::byte *into);
/// Reads likewise; elements of `into` that the slice does not take stay as they are.
Expected<uint64_t> readRuns(const StoredTensor &tensor, uint64_t begin,
                            const SliceCopy &slice, std::byte *into);

/// The whole tensor.
Expected<HostTensor> readAll(const StoredTensor &tensor);

} // namespace partita

#endif // PARTITA_BASE_FILES_STOREDTENSOR_H
