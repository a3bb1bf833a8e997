//===- ProtoWire.cpp - Reading the protobuf wire format -------------------===//
#include "partita/Base/Files/ProtoWire.h"

#include <cstring>

using namespace partita;

std::optional<uint64_t> WireReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    auto byte = static_cast<uint8_t>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80)
      return value;
  }
  malformed = true;
  return std::nullopt;
}

std::optional<std::string_view> WireReader::take(uint64_t count) {
  if (count > rest.size()) {
    malformed = true;
    return std::nullopt;
  }
  std::string_view taken = rest.substr(0, count);
  rest.remove_prefix(count);
  return taken;
}

std::optional<WireField> WireReader::next() {
  if (malformed || rest.empty())
    return std::nullopt;
  auto tag = varint();
  if (!tag)
    return std::nullopt;
  WireField field;
  field.type = static_cast<WireType>(*tag & 7);
  if (*tag >> 3 == 0 || *tag >> 3 > 0x1fffffff) {
    malformed = true;
    return std::nullopt;
  }
  field.id = static_cast<uint32_t>(*tag >> 3);
  switch (field.type) {
  case WireType::Varint:
    if (auto value = varint()) {
      field.number = *value;
      return field;
    }
    return std::nullopt;
  case WireType::Bytes:
    if (auto length = varint())
      if (auto bytes = take(*length)) {
        field.bytes = *bytes;
        return field;
      }
    return std::nullopt;
  case WireType::Fixed32:
  case WireType::Fixed64: {
    size_t width = field.type == WireType::Fixed32 ? 4 : 8;
    auto bytes = take(width);
    if (!bytes)
      return std::nullopt;
    std::memcpy(&field.number, bytes->data(), width);
    return field;
  }
  }
  malformed = true;
  return std::nullopt;
}

void partita::appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void partita::appendVarintField(std::string &out, uint32_t id, uint64_t value) {
  appendVarint(out, static_cast<uint64_t>(id) << 3);
  appendVarint(out, value);
}

void partita::appendBytesField(std::string &out, uint32_t id, std::string_view bytes) {
  appendVarint(out, static_cast<uint64_t>(id) << 3 | 2);
  appendVarint(out, bytes.size());
  out += bytes;
}
