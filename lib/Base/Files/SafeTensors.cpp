//===- SafeTensors.cpp - Weight files -------------------------------------===//
#include "partita/Base/Files/SafeTensors.h"

#include "partita/Base/Files/Json.h"
#include "partita/Base/Files/JsonWriter.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <tuple>
#include <unistd.h>

using namespace partita;

static constexpr uint64_t alignment = 64;
/// The limit of the format's reference reader.
static constexpr uint64_t maxHeader = 100'000'000;

static std::string upper(std::string_view text) {
  std::string out(text);
  for (char &c : out)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

static std::string lower(std::string text) {
  for (char &c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

const SafeTensorEntry *SafeTensorsFile::find(std::string_view name) const {
  for (const SafeTensorEntry &entry : tensors)
    if (entry.name == name)
      return &entry;
  return nullptr;
}

/// One member of the header; `data` is the file offset of the buffer, `limit` its size.
static Expected<SafeTensorEntry> parseEntry(const std::string &name,
                                            const JsonValue &value, uint64_t data,
                                            uint64_t limit) {
  auto typeText = value.at("dtype");
  auto shape = value.at("shape");
  auto offsets = value.at("data_offsets");
  for (const auto *member : {&typeText, &shape, &offsets})
    if (!*member)
      return tl::unexpected(member->error());
  auto text = typeText->asString();
  auto extents = shape->asIntegers();
  auto range = offsets->asIntegers();
  if (!text)
    return tl::unexpected(text.error());
  if (!extents)
    return tl::unexpected(extents.error());
  if (!range)
    return tl::unexpected(range.error());
  auto type = dtypeFromName(lower(*text));
  if (!type)
    return typeText->error("element type " + *text + " is not supported");
  if (range->size() != 2 || (*range)[0] < 0 || (*range)[1] < (*range)[0] ||
      static_cast<uint64_t>((*range)[1]) > limit)
    return offsets->error("the range leaves the file");
  uint64_t bytes = byteWidth(*type);
  for (int64_t extent : *extents)
    if (extent < 0 ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return shape->error("the shape overflows");
  if (bytes != static_cast<uint64_t>((*range)[1] - (*range)[0]))
    return offsets->error("the range has " + std::to_string((*range)[1] - (*range)[0]) +
                          " bytes, the shape needs " + std::to_string(bytes));
  return SafeTensorEntry{name, *type, std::move(*extents),
                         data + static_cast<uint64_t>((*range)[0]), bytes};
}

static Expected<void> parseMetadata(const JsonValue &value, SafeTensorsFile &out) {
  auto members = value.members();
  if (!members)
    return tl::unexpected(members.error());
  for (const auto &[key, item] : *members) {
    auto text = item.asString();
    if (!text)
      return tl::unexpected(text.error());
    out.metadata.emplace_back(key, *text);
  }
  return {};
}

Expected<SafeTensorsFile> partita::readSafeTensors(const std::string &path) {
  SafeTensorsFile out;
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  out.file = *file;
  auto bytes = out.file->bytes();
  uint64_t length = 0;
  if (bytes.size() >= 8)
    std::memcpy(&length, bytes.data(), 8);
  if (bytes.size() < 8 || length > maxHeader || length > bytes.size() - 8)
    return makeError("'" + path + "' is not a safetensors file or is truncated");
  auto root = parseJson(
      std::string_view(reinterpret_cast<const char *>(bytes.data()) + 8, length), path);
  if (!root)
    return tl::unexpected(root.error());
  auto members = root->members();
  if (!members)
    return tl::unexpected(members.error());
  for (const auto &[name, value] : *members) {
    if (name == "__metadata__") {
      if (auto ok = parseMetadata(value, out); !ok)
        return tl::unexpected(ok.error());
      continue;
    }
    auto entry = parseEntry(name, value, 8 + length, bytes.size() - 8 - length);
    if (!entry)
      return tl::unexpected(entry.error());
    out.tensors.push_back(std::move(*entry));
  }
  std::sort(out.tensors.begin(), out.tensors.end(), [](const auto &a, const auto &b) {
    return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
  });
  for (size_t i = 1; i < out.tensors.size(); ++i)
    if (out.tensors[i].offset < out.tensors[i - 1].offset + out.tensors[i - 1].bytes)
      return makeError("'" + path + "': tensors " + out.tensors[i - 1].name + " and " +
                       out.tensors[i].name + " overlap");
  return out;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

void SafeTensorsWriter::declare(std::string name, DType type,
                                std::vector<int64_t> shape) {
  uint64_t bytes = static_cast<uint64_t>(elementCount(shape)) * byteWidth(type);
  entries.push_back({std::move(name), type, std::move(shape), 0, bytes});
}

Expected<std::vector<SafeTensorEntry>>
SafeTensorsWriter::begin(const std::string &file, const Metadata &metadata) {
  path = file;
  JsonWriter header(JsonWriter::Style::Compact);
  header.beginObject();
  if (!metadata.empty()) {
    header.key("__metadata__");
    header.beginObject();
    for (const auto &[key, value] : metadata)
      header.member(key, std::string_view(value));
    header.endObject();
  }
  auto add = [&](const std::string &name, const std::string &type,
                 const std::vector<int64_t> &shape, uint64_t offset, uint64_t bytes) {
    uint64_t range[] = {offset, offset + bytes};
    header.key(name);
    header.beginObject();
    header.member("dtype", std::string_view(type));
    header.member("shape", std::span(shape));
    header.member("data_offsets", std::span<const uint64_t>(range));
    header.endObject();
  };
  uint64_t offset = 0;
  size_t pads = 0;
  for (SafeTensorEntry &entry : entries) {
    uint64_t aligned = (offset + alignment - 1) / alignment * alignment;
    if (aligned != offset)
      add("__pad__" + std::to_string(pads++), "U8",
          {static_cast<int64_t>(aligned - offset)}, offset, aligned - offset);
    entry.offset = aligned;
    add(entry.name, upper(name(entry.type)), entry.shape, aligned, entry.bytes);
    offset = aligned + entry.bytes;
  }
  // JSON allows spaces at the end, which align the buffer.
  header.endObject();
  std::string text = header.take();
  text.append((alignment - (text.size() + 8) % alignment) % alignment, ' ');
  uint64_t length = text.size();
  for (SafeTensorEntry &entry : entries)
    entry.offset += 8 + length;
  fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return makeError("cannot write '" + path + "': " + std::strerror(errno));
  if (auto ok = write(&length, 8); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = write(text.data(), text.size()); !ok)
    return tl::unexpected(ok.error());
  return entries;
}

/// Large data goes to the file directly, small data by way of `pending`.
Expected<void> SafeTensorsWriter::write(const void *data, size_t size) {
  position += size;
  if (pending.size() + size > pendingLimit)
    if (auto ok = flush(); !ok)
      return ok;
  if (size <= pendingLimit) {
    pending.append(static_cast<const char *>(data), size);
    return {};
  }
  return writeNow(static_cast<const char *>(data), size);
}

Expected<void> SafeTensorsWriter::flush() {
  auto ok = writeNow(pending.data(), pending.size());
  pending.clear();
  return ok;
}

Expected<void> SafeTensorsWriter::writeNow(const char *at, size_t size) {
  hasher.add(std::as_bytes(std::span(at, size)));
  while (size != 0) {
    ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return makeError("cannot write '" + path + "': " + std::strerror(errno));
    at += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

Expected<void> SafeTensorsWriter::append(std::span<const std::byte> bytes) {
  if (next == entries.size())
    return makeError("'" + path + "': more tensors than declared");
  const SafeTensorEntry &entry = entries[next++];
  if (bytes.size() != entry.bytes)
    return makeError("'" + path + "': tensor " + entry.name + " has " +
                     std::to_string(bytes.size()) + " bytes, declared were " +
                     std::to_string(entry.bytes));
  static constexpr char zeros[alignment] = {};
  if (auto ok = write(zeros, entry.offset - position); !ok)
    return ok;
  return write(bytes.data(), bytes.size());
}

Expected<void> SafeTensorsWriter::sync() {
  if (auto ok = flush(); !ok)
    return ok;
  return ::fsync(fd) == 0
             ? Expected<void>()
             : makeError("cannot write '" + path + "': " + std::strerror(errno));
}

Expected<BlockList> SafeTensorsWriter::finish() {
  if (auto ok = flush(); !ok)
    return tl::unexpected(ok.error());
  int result = fd < 0 ? -1 : ::close(fd);
  fd = -1;
  if (result != 0)
    return makeError("cannot write '" + path + "': " + std::strerror(errno));
  if (next != entries.size())
    return makeError("'" + path + "': tensor " + entries[next].name + " is missing");
  return hasher.finish();
}

SafeTensorsWriter::~SafeTensorsWriter() {
  if (fd >= 0)
    ::close(fd);
}
