//===- Zip.cpp - Where the members of a zip file lie ----------------------===//
#include "Zip.h"

#include <algorithm>

using namespace partita;

namespace {
/// Little-endian numbers out of a piece of the file; zeros behind its end.
class Bytes {
public:
  explicit Bytes(std::string text) : text(std::move(text)) {}

  uint64_t number(size_t at, size_t width) const {
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;)
      value =
          value << 8 | (at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0);
    return value;
  }
  std::string_view piece(size_t at, size_t count) const {
    return std::string_view(text).substr(std::min(at, text.size()), count);
  }
  size_t size() const { return text.size(); }

private:
  std::string text;
};

constexpr uint32_t endSignature = 0x06054b50, end64Signature = 0x06064b50,
                   locatorSignature = 0x07064b50, entrySignature = 0x02014b50,
                   localSignature = 0x04034b50;
constexpr size_t endBytes = 22, locatorBytes = 20, entryBytes = 46, localBytes = 30;
constexpr uint64_t none32 = 0xffffffff;
} // namespace

static Expected<Bytes> readPiece(const InputFile &file, uint64_t offset, uint64_t count) {
  if (offset > file.size() || count > file.size() - offset)
    return makeError("ends too early");
  std::string text(count, '\0');
  if (auto ok = file.read(offset, std::as_writable_bytes(std::span(text))); !ok)
    return tl::unexpected(ok.error());
  return Bytes(std::move(text));
}

namespace {
struct Directory {
  uint64_t offset = 0, bytes = 0, count = 0;
};
} // namespace

static Expected<Directory> findDirectory(const InputFile &file) {
  uint64_t tailBytes = std::min<uint64_t>(file.size(), endBytes + 0xffff);
  uint64_t tailAt = file.size() - tailBytes;
  auto tail = readPiece(file, tailAt, tailBytes);
  if (!tail)
    return tl::unexpected(tail.error());
  // The last record of this kind; a comment may follow it.
  for (size_t at = tail->size() < endBytes ? 0 : tail->size() - endBytes + 1; at-- > 0;) {
    if (tail->number(at, 4) != endSignature)
      continue;
    Directory found{tail->number(at + 16, 4), tail->number(at + 12, 4),
                    tail->number(at + 10, 2)};
    uint64_t end = tailAt + at;
    if (found.offset != none32 && found.bytes != none32 && found.count != 0xffff)
      return found;
    auto locator =
        readPiece(file, end < locatorBytes ? 0 : end - locatorBytes, locatorBytes);
    if (!locator || locator->number(0, 4) != locatorSignature)
      return makeError("has no 64-bit directory");
    auto record = readPiece(file, locator->number(8, 8), 56);
    if (!record || record->number(0, 4) != end64Signature)
      return makeError("has a damaged 64-bit directory");
    return Directory{record->number(48, 8), record->number(40, 8), record->number(32, 8)};
  }
  return makeError("is not a zip file");
}

/// Sizes and offset of an entry that has them in its extra field.
static void readExtra(std::string_view extra, uint64_t &plain, uint64_t &stored,
                      uint64_t &offset) {
  Bytes bytes{std::string(extra)};
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4 + bytes.number(at + 2, 2)) {
    if (bytes.number(at, 2) != 1)
      continue;
    size_t next = at + 4;
    for (uint64_t *value : {&plain, &stored, &offset})
      if (*value == none32) {
        *value = bytes.number(next, 8);
        next += 8;
      }
  }
}

static Expected<std::vector<ZipMember>> readMembers(const InputFile &file) {
  auto directory = findDirectory(file);
  if (!directory)
    return tl::unexpected(directory.error());
  auto bytes = readPiece(file, directory->offset, directory->bytes);
  if (!bytes)
    return tl::unexpected(bytes.error());
  std::vector<ZipMember> members;
  size_t at = 0;
  for (uint64_t i = 0; i < directory->count; ++i) {
    if (at + entryBytes > bytes->size() || bytes->number(at, 4) != entrySignature)
      return makeError("has a damaged directory");
    uint64_t flags = bytes->number(at + 8, 2), method = bytes->number(at + 10, 2);
    uint64_t stored = bytes->number(at + 20, 4), plain = bytes->number(at + 24, 4);
    uint64_t offset = bytes->number(at + 42, 4);
    size_t name = bytes->number(at + 28, 2), extra = bytes->number(at + 30, 2);
    size_t comment = bytes->number(at + 32, 2);
    if (flags & 1)
      return makeError("is encrypted");
    readExtra(bytes->piece(at + entryBytes + name, extra), plain, stored, offset);
    auto local = readPiece(file, offset, localBytes);
    if (!local || local->number(0, 4) != localSignature)
      return makeError("has a damaged member");
    ZipMember member{std::string(bytes->piece(at + entryBytes, name)),
                     offset + localBytes + local->number(26, 2) + local->number(28, 2),
                     stored, method != 0};
    if (member.offset > file.size() || member.bytes > file.size() - member.offset)
      return makeError("has a member that leaves the file");
    members.push_back(std::move(member));
    at += entryBytes + name + extra + comment;
  }
  return members;
}

Expected<std::vector<ZipMember>> partita::readZip(const InputFile &file,
                                                  const std::string &path) {
  auto members = readMembers(file);
  return members ? std::move(members)
                 : makeError("'" + path + "' " + members.error().message);
}
