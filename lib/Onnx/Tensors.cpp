//===- Tensors.cpp - Constants: in memory, in the model, external ---------===//
#include "Internal.h"

#include "partita/Base/Files/TensorProto.h"

#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace partita;
using namespace partita::onnx_model;

Tensor onnx_model::memoryTensor(std::string name, HostTensor values) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = values.type;
  tensor.shape = std::move(values.shape);
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(values.bytes));
  tensor.bytes = *owner;
  tensor.owner = std::move(owner);
  return tensor;
}

TensorReader::TensorReader(const ModelFile &file, bool weights,
                           const std::vector<std::string> &dataFolders)
    : file(file), weights(weights), folders(dataFolders) {
  std::string own = std::filesystem::path(file.path).parent_path().string();
  folders.push_back(own.empty() ? "." : own);
}

Expected<Tensor> TensorReader::read(const onnx::TensorProto &proto,
                                    const std::string &what,
                                    std::span<const std::byte> payload) {
  std::string place = "'" + file.path + "': " + what;
  bool isExternal = proto.data_location() == onnx::TensorProto::EXTERNAL;
  if (payload.empty() && !isExternal) {
    auto decoded = decodeTensorProto(proto.SerializeAsString(), place);
    if (!decoded)
      return tl::unexpected(decoded.error());
    return memoryTensor(proto.name(), std::move(decoded->tensor));
  }
  Tensor tensor;
  tensor.name = proto.name();
  tensor.shape.assign(proto.dims().begin(), proto.dims().end());
  auto type = dtypeFromOnnx(proto.data_type());
  if (!type)
    return makeError(place + ": element type " + onnxTypeName(proto.data_type()) +
                     " is not supported");
  tensor.type = *type;
  auto size = byteCount(tensor.type, tensor.shape, place);
  if (!size)
    return tl::unexpected(size.error());
  if (isExternal)
    return readExternal(proto, std::move(tensor), *size, place);
  uint64_t inFile = packedBytes(tensor.type, *size);
  if (payload.size() != inFile)
    return makeError(place + ": the shape needs " + std::to_string(inFile) +
                     " bytes, but there are " + std::to_string(payload.size()));
  if (bitWidth(tensor.type) < 8)
    return memoryTensor(
        proto.name(), {tensor.type, tensor.shape, unpacked(tensor.type, payload, *size)});
  tensor.file = file.path;
  tensor.offset = static_cast<uint64_t>(payload.data() - file.mapping->bytes().data());
  tensor.bytes = payload;
  tensor.owner = file.mapping;
  return tensor;
}

/// A decimal number without sign, or an error naming the key.
static Expected<uint64_t> parseNumber(const std::string &value, const std::string &key,
                                      const std::string &what) {
  uint64_t number = 0;
  const char *end = value.data() + value.size();
  auto [stop, status] = std::from_chars(value.data(), end, number);
  if (status != std::errc() || stop != end || number > INT64_MAX)
    return makeError(what + ": the external data's " + key + " is '" + value +
                     "', not a number of bytes");
  return number;
}

Expected<Tensor> TensorReader::readExternal(const onnx::TensorProto &proto, Tensor tensor,
                                            uint64_t inMemory, const std::string &what) {
  uint64_t size = packedBytes(tensor.type, inMemory);
  std::string location;
  uint64_t offset = 0, length = size;
  for (const auto &entry : proto.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length")
      continue;
    auto number = parseNumber(entry.value(), entry.key(), what);
    if (!number)
      return tl::unexpected(number.error());
    (entry.key() == "offset" ? offset : length) = *number;
  }
  if (length != size)
    return makeError(what + ": the shape needs " + std::to_string(size) +
                     " bytes, but the external data has " + std::to_string(length));
  auto external = open(location, what);
  if (!external)
    return tl::unexpected(external.error());
  tensor.file = external->path;
  tensor.offset = offset;
  const auto &mapping = external->mapping;
  if (!mapping)
    return tensor;
  auto bytes = mapping->bytes();
  if (offset > bytes.size() || size > bytes.size() - offset)
    return makeError(what + ": needs bytes " + std::to_string(offset) + " to " +
                     std::to_string(offset + size) + " of '" + tensor.file +
                     "', which has only " + std::to_string(bytes.size()));
  tensor.bytes = bytes.subspan(offset, size);
  tensor.owner = mapping;
  if (bitWidth(tensor.type) < 8) {
    auto elements = std::make_shared<const std::vector<std::byte>>(
        unpacked(tensor.type, tensor.bytes, inMemory));
    tensor.bytes = *elements;
    tensor.owner = std::move(elements);
  }
  return tensor;
}

namespace {
/// A directory handle that closes itself.
struct Directory {
  int handle;
  explicit Directory(int handle) : handle(handle) {}
  Directory(Directory &&other) noexcept : handle(std::exchange(other.handle, -1)) {}
  Directory &operator=(Directory &&other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Directory() {
    if (handle >= 0)
      ::close(handle);
  }
};
} // namespace

/// Finds a file by the path that the model has for it; in folders that were named, also
/// by its name alone, as the runtime does.
Expected<TensorReader::External> TensorReader::open(const std::string &location,
                                                    const std::string &what) {
  if (auto it = opened.find(location); it != opened.end())
    return it->second;
  std::filesystem::path path(location);
  if (location.empty())
    return makeError(what + ": the external data does not name a file");
  std::string shown = "external data '" + location + "'";
  if (path.is_absolute())
    return makeError(what + ": " + shown +
                     " is an absolute path; it must lie in the"
                     " model's folder");
  for (const auto &part : path)
    if (part == "..")
      return makeError(what + ": " + shown + " is outside the model's folder");
  for (size_t i = 0; i < folders.size(); ++i)
    for (const std::string &place : {location, path.filename().string()}) {
      const bool isOfModel = i + 1 == folders.size();
      if (isOfModel && place != location)
        continue;
      auto found = openIn(folders[i], place, what);
      if (!found)
        return found;
      if (found->mapping)
        return opened[location] = std::move(*found);
    }
  if (weights)
    return makeError(what + ": " + shown + " does not exist in '" + folders.back() + "'" +
                     (folders.size() > 1 ? " or '" + folders.front() + "'" : ""));
  return opened[location] =
             External{(std::filesystem::path(folders.back()) / path).string(), nullptr};
}

/// Maps a file below a folder, if it is there. Folders on the way are opened one by one
/// without following links, so that neither ".." nor a symbolic link, even one put there
/// meanwhile, leads outside.
Expected<TensorReader::External> TensorReader::openIn(const std::string &folder,
                                                      const std::string &location,
                                                      const std::string &what) {
  std::string shown = "external data '" + location + "'";
  std::filesystem::path path(location);
  Directory directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const auto &part : path.parent_path()) {
    Directory inner(::openat(directory.handle, part.c_str(),
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    int reason = errno;
    directory = std::move(inner);
    if (directory.handle < 0 && (reason == ELOOP || reason == ENOTDIR))
      return makeError(what + ": " + shown + " goes through '" + part.string() +
                       "', which is not a plain folder");
  }
  std::string anchored = "/proc/self/fd/" + std::to_string(directory.handle) + "/" +
                         path.filename().string();
  std::error_code status;
  auto kind = std::filesystem::symlink_status(anchored, status).type();
  if (directory.handle < 0 || kind == std::filesystem::file_type::not_found)
    return External{};
  if (kind == std::filesystem::file_type::symlink)
    return makeError(what + ": " + shown + " is a symbolic link, which is not followed");
  auto mapping = MappedFile::open(anchored, /*followLinks=*/false);
  if (!mapping)
    return makeError(what + ": " + shown +
                     " cannot be read: it is not a regular file,"
                     " or not permitted");
  return External{(std::filesystem::path(folder) / path).string(), *mapping};
}
