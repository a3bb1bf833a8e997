//===- StoredTensor.cpp - Tensors in files, read in parts -----------------===//
#include "partita/Base/Files/StoredTensor.h"

#include "Zip.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/SafeTensors.h"
#include "partita/Base/Files/TensorProto.h"

#include <algorithm>
#include <cstring>

using namespace partita;

static StoredTensor inMemory(HostTensor tensor) {
  StoredTensor stored{tensor.type, tensor.shape, nullptr, 0, nullptr};
  stored.whole = std::make_shared<HostTensor>(std::move(tensor));
  return stored;
}

/// An array that begins at `begin` of a file and has `bytes`.
static Expected<StoredTensor> openArray(std::shared_ptr<const InputFile> file,
                                        uint64_t begin, uint64_t bytes,
                                        const std::string &path) {
  std::string text(std::min<uint64_t>(bytes, mostNpyHeader), '\0');
  if (auto ok = file->read(begin, std::as_writable_bytes(std::span(text))); !ok)
    return tl::unexpected(ok.error());
  auto header = parseNpyHeader(text, path);
  if (!header)
    return tl::unexpected(header.error());
  if (bytes - header->dataOffset != header->dataBytes)
    return makeError("'" + path + "': expected " + std::to_string(header->dataBytes) +
                     " bytes of data, got " + std::to_string(bytes - header->dataOffset));
  if (header->fortran && header->shape.size() > 1)
    return makeError("'" + path +
                     "' is column-major; save it with numpy.ascontiguousarray");
  return StoredTensor{header->type, std::move(header->shape), std::move(file),
                      begin + header->dataOffset, nullptr};
}

static Expected<StoredTensor> openNpy(const std::string &path) {
  auto file = InputFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto stored = openArray(*file, 0, (*file)->size(), path);
  if (stored)
    return stored;
  // Column-major: whole, and turned.
  auto tensor = readNpy(path);
  return tensor ? inMemory(std::move(*tensor))
                : Expected<StoredTensor>(tl::unexpected(tensor.error()));
}

template <typename List, typename Name>
static Error lacks(const std::string &path, const std::string &name, const List &list,
                   Name nameOf) {
  std::string known;
  for (const auto &entry : list)
    if (std::string it = nameOf(entry); !it.starts_with("__pad__"))
      known += (known.empty() ? "" : ", ") + it;
  return {"'" + path + "' has no tensor '" + name + "'; it has " + known};
}

static Expected<StoredTensor> openNpz(const std::string &path, const std::string &name) {
  auto file = InputFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto members = readZip(**file, path);
  if (!members)
    return tl::unexpected(members.error());
  for (const ZipMember &member : *members)
    if (member.name == name + ".npy") {
      if (member.isCompressed)
        return makeError("'" + path + "': '" + name +
                         "' is compressed; save it with numpy.savez");
      return openArray(*file, member.offset, member.bytes, path + ":" + name);
    }
  return tl::unexpected(lacks(path, name, *members, [](const ZipMember &member) {
    return member.name.substr(0, member.name.rfind(".npy"));
  }));
}

static Expected<StoredTensor> openSafeTensors(const std::string &path,
                                              const std::string &name) {
  auto header = readSafeTensors(path);
  if (!header)
    return tl::unexpected(header.error());
  const SafeTensorEntry *entry = header->find(name);
  if (!entry)
    return tl::unexpected(lacks(path, name, header->tensors,
                                [](const SafeTensorEntry &it) { return it.name; }));
  auto file = InputFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  return StoredTensor{entry->type, entry->shape, *file, entry->offset, nullptr};
}

Expected<StoredTensor> partita::openTensor(const std::string &given,
                                           const std::string &name) {
  if (given.ends_with(".npy"))
    return openNpy(given);
  if (given.ends_with(".pb")) {
    auto proto = readTensorProto(given);
    if (!proto)
      return tl::unexpected(proto.error());
    return inMemory(std::move(proto->tensor));
  }
  for (std::string_view ending : {".npz", ".safetensors"}) {
    size_t colon = given.find(std::string(ending) + ":");
    if (colon == std::string::npos && !given.ends_with(ending))
      continue;
    std::string path =
        given.substr(0, colon == std::string::npos ? colon : colon + ending.size());
    std::string member =
        colon == std::string::npos ? name : given.substr(colon + ending.size() + 1);
    return ending == ".npz" ? openNpz(path, member) : openSafeTensors(path, member);
  }
  return makeError("'" + given + "': expected a .npy, .npz, .safetensors or .pb file");
}

StoredTensor partita::takeRows(const StoredTensor &tensor,
                               std::shared_ptr<const std::vector<int64_t>> rows) {
  StoredTensor taken = tensor;
  taken.shape.at(0) = static_cast<int64_t>(rows->size());
  taken.rows = std::move(rows);
  return taken;
}

StoredTensor partita::joinRows(const std::vector<StoredTensor> &tensors) {
  if (tensors.size() == 1)
    return tensors.front();
  StoredTensor joined{tensors.front().type, tensors.front().shape, nullptr, 0, nullptr};
  joined.shape.at(0) = 0;
  auto parts = std::make_shared<std::vector<StoredTensor::Part>>();
  uint64_t begin = 0;
  for (const StoredTensor &tensor : tensors) {
    parts->push_back({begin, tensor.file, tensor.offset, tensor.whole});
    begin += tensor.bytes();
    joined.shape[0] += tensor.shape.at(0);
  }
  joined.parts = std::move(parts);
  return joined;
}

namespace {

/// Reads pieces of what is stored.
class PieceReader {
public:
  explicit PieceReader(const StoredTensor &tensor) : tensor(tensor) {
    if (tensor.rows && !tensor.rows->empty())
      rowBytes = tensor.bytes() / tensor.rows->size();
  }

  /// Bytes of the tensor, whose rows may lie anywhere.
  void read(uint64_t from, uint64_t bytes, std::byte *into) {
    if (!tensor.rows)
      return readStored(from, bytes, tensor.bytes(), into);
    while (bytes > 0) {
      uint64_t inRow = from % rowBytes, count = std::min(bytes, rowBytes - inRow);
      uint64_t row = static_cast<uint64_t>((*tensor.rows)[from / rowBytes]) * rowBytes;
      readStored(row + inRow, count, row + rowBytes, into);
      from += count, into += count, bytes -= count;
    }
  }
  Expected<uint64_t> result() const {
    if (!ok)
      return tl::unexpected(ok.error());
    return count;
  }

private:
  // Shorter runs would be a call of the system each: what lies between is read with them.
  static constexpr uint64_t shortRun = 512, windowBytes = 65536;

  /// `limit`: up to where it may be worth to read on.
  void readStored(uint64_t from, uint64_t bytes, uint64_t limit, std::byte *into) {
    if (!tensor.parts)
      return readFrom({0, tensor.file, tensor.offset, tensor.whole}, from, bytes, limit,
                      into);
    while (bytes > 0) {
      auto next =
          std::ranges::upper_bound(*tensor.parts, from, {}, &StoredTensor::Part::begin);
      uint64_t stop = next == tensor.parts->end() ? limit : std::min(next->begin, limit);
      uint64_t piece = std::min(bytes, stop - from);
      readFrom(*std::prev(next), from, piece, stop, into);
      from += piece, into += piece, bytes -= piece;
    }
  }

  /// `from` and `limit` are places in the bytes of all parts.
  void readFrom(const StoredTensor::Part &part, uint64_t from, uint64_t bytes,
                uint64_t limit, std::byte *into) {
    if (!ok)
      return;
    if (part.whole) {
      std::memcpy(into, part.whole->bytes.data() + (from - part.begin), bytes);
      count += bytes;
      return;
    }
    auto read = [&](uint64_t at, std::span<std::byte> bytesAt) {
      ok = part.file->read(part.offset + (at - part.begin), bytesAt);
      count += bytesAt.size();
    };
    if (bytes >= shortRun)
      return read(from, {into, bytes});
    if (from < first || from + bytes > end) {
      window.resize(windowBytes);
      first = from;
      end = std::min(from + windowBytes, limit);
      read(first, {window.data(), end - first});
    }
    if (ok)
      std::memcpy(into, window.data() + (from - first), bytes);
  }

  const StoredTensor &tensor;
  uint64_t rowBytes = 0;
  std::vector<std::byte> window;
  uint64_t first = 0, end = 0; ///< of what is in the window
  uint64_t count = 0;          ///< that was read
  Expected<void> ok;
};

} // namespace

Expected<void> partita::readBytes(const StoredTensor &tensor, uint64_t begin,
                                  std::span<std::byte> into) {
  PieceReader reader(tensor);
  reader.read(begin, into.size(), into.data());
  if (auto ok = reader.result(); !ok)
    return tl::unexpected(ok.error());
  return {};
}

Expected<uint64_t> partita::readSlice(const StoredTensor &tensor, uint64_t begin,
                                      const SliceCopy &slice, std::byte *into) {
  std::memset(into, 0, slice.localBytes()); // the padding
  return readRuns(tensor, begin, slice, into);
}

Expected<uint64_t> partita::readRuns(const StoredTensor &tensor, uint64_t begin,
                                     const SliceCopy &slice, std::byte *into) {
  PieceReader reader(tensor);
  slice.forEachRun([&](uint64_t from, uint64_t to, uint64_t bytes) {
    reader.read(begin + from, bytes, into + to);
  });
  return reader.result();
}

Expected<HostTensor> partita::readAll(const StoredTensor &tensor) {
  if (tensor.whole && !tensor.rows)
    return *tensor.whole;
  HostTensor result = HostTensor::zeros(tensor.type, tensor.shape);
  if (auto ok = readBytes(tensor, 0, result.bytes); !ok)
    return tl::unexpected(ok.error());
  return result;
}
