//===- ProtoWire.h - Reading the protobuf wire format -----------*- C++ -*-===//
//
// Just enough of the encoding to read and write ONNX tensors without protobuf (the
// runtime does not link it), and to find where in a model's file a tensor's bytes lie.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_PROTOWIRE_H
#define PARTITA_BASE_FILES_PROTOWIRE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace partita {

/// The values are those of the format. Groups (3, 4) are not used by ONNX.
enum class WireType : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

/// One field of a message. `number` holds a varint, or the bits of a fixed value;
/// `bytes` the contents of a length-delimited one, pointing into the message.
struct WireField {
  uint32_t id = 0;
  WireType type = WireType::Varint;
  uint64_t number = 0;
  std::string_view bytes;
};

/// Walks the fields of one message in order. Every read is bounds-checked: after the end
/// or at the first malformed field next() is empty, and failed() tells the two apart.
class WireReader {
public:
  explicit WireReader(std::string_view message) : rest(message) {}
  std::optional<WireField> next();
  bool failed() const { return malformed; }
  bool atEnd() const { return rest.empty(); }

  /// Reads one bare varint (an element of a packed field).
  std::optional<uint64_t> varint();

private:
  std::optional<std::string_view> take(uint64_t count);
  std::string_view rest;
  bool malformed = false;
};

/// Appends fields to `out`.
void appendVarint(std::string &out, uint64_t value);
void appendVarintField(std::string &out, uint32_t id, uint64_t value);
void appendBytesField(std::string &out, uint32_t id, std::string_view bytes);

} // namespace partita

#endif // PARTITA_BASE_FILES_PROTOWIRE_H
