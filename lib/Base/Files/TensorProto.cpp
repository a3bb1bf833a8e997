//===- TensorProto.cpp - ONNX tensor files (.pb) --------------------------===//
#include "partita/Base/Files/TensorProto.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/ProtoWire.h"

#include <cstring>
#include <iterator>

using namespace partita;

// Field numbers of onnx.proto's TensorProto.
enum TensorField : uint32_t {
  Dims = 1,
  DataType = 2,
  FloatData = 4,
  Int32Data = 5,
  StringData = 6,
  Int64Data = 7,
  Name = 8,
  RawData = 9,
  DoubleData = 10,
  Uint64Data = 11,
  ExternalData = 13,
  DataLocation = 14,
};

/// Indexed by the value of DType.
static constexpr int onnxNumbers[] = {1, 11, 10, 16, 3,  5,  6,  7,  2,  4,  12, 13,
                                      9, 17, 18, 19, 20, 24, 23, 22, 21, 26, 25};

std::optional<DType> partita::dtypeFromOnnx(int64_t number) {
  for (size_t i = 0; i < std::size(onnxNumbers); ++i)
    if (onnxNumbers[i] == number)
      return static_cast<DType>(i);
  return std::nullopt;
}

int partita::onnxNumber(DType type) { return onnxNumbers[static_cast<int>(type)]; }

std::string partita::onnxTypeName(int64_t number) {
  static constexpr const char *names[] = {
      "UNDEFINED",      "FLOAT",    "UINT8",        "INT8",           "UINT16",
      "INT16",          "INT32",    "INT64",        "STRING",         "BOOL",
      "FLOAT16",        "DOUBLE",   "UINT32",       "UINT64",         "COMPLEX64",
      "COMPLEX128",     "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
      "FLOAT8E5M2FNUZ", "UINT4",    "INT4",         "FLOAT4E2M1",     "FLOAT8E8M0",
      "UINT2",          "INT2"};
  if (number >= 0 && number < static_cast<int64_t>(std::size(names)))
    return names[number];
  return std::to_string(number);
}

Expected<uint64_t> partita::byteCount(DType type, const std::vector<int64_t> &shape,
                                      const std::string &what) {
  uint64_t count = byteWidth(type);
  bool tooLarge = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0)
      return makeError(what + ": dim " + std::to_string(i) + " is " +
                       std::to_string(shape[i]) + ", which is negative");
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(shape[i]), &count) ||
        count > INT64_MAX)
      tooLarge = true;
  }
  // A zero anywhere makes the tensor empty, however large the other dims are.
  for (int64_t extent : shape)
    if (extent == 0)
      return 0;
  if (tooLarge)
    return makeError(what + ": the shape has more bytes than fit in 63 bits");
  return count;
}

uint64_t partita::packedBytes(DType type, uint64_t bytes) {
  uint64_t elements = bytes / byteWidth(type);
  return bitWidth(type) < 8 ? (elements * static_cast<uint64_t>(bitWidth(type)) + 7) / 8
                            : bytes;
}

std::vector<std::byte> partita::unpacked(DType type, std::span<const std::byte> packed,
                                         uint64_t bytes) {
  int bits = bitWidth(type), each = 8 / bits;
  bool isSigned = !isFloat(type) && !isUnsigned(type);
  std::vector<std::byte> result;
  result.reserve(bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    auto byte = static_cast<uint8_t>(packed[i / static_cast<uint64_t>(each)]);
    int shift = static_cast<int>(i % static_cast<uint64_t>(each)) * bits;
    int value = (byte >> shift) & ((1 << bits) - 1);
    if (isSigned && value >> (bits - 1))
      value -= 1 << bits;
    result.push_back(static_cast<std::byte>(value));
  }
  return result;
}

static std::vector<std::byte> packed(DType type, const std::vector<std::byte> &elements) {
  auto bits = static_cast<size_t>(bitWidth(type));
  std::vector<std::byte> result(packedBytes(type, elements.size()));
  for (size_t i = 0; i < elements.size(); ++i) {
    auto value = static_cast<uint8_t>(elements[i]) & ((1 << bits) - 1);
    result[i * bits / 8] |= static_cast<std::byte>(value << (i * bits % 8));
  }
  return result;
}

namespace {
/// A TensorProto as it lies on the wire: the typed fields are kept as views, since a
/// repeated field may come packed, unpacked, or in several pieces.
struct Raw {
  std::vector<int64_t> shape;
  int64_t dataType = 0;
  std::string name;
  std::optional<std::string_view> rawData;
  std::vector<WireField> typed;
  bool external = false;
};
} // namespace

/// Appends the varints of a packed field, or the one of an unpacked field.
template <typename T>
static bool appendVarints(const WireField &field, std::vector<T> &values) {
  if (field.type == WireType::Varint) {
    values.push_back(static_cast<T>(field.number));
    return true;
  }
  if (field.type != WireType::Bytes)
    return false;
  WireReader packed(field.bytes);
  while (!packed.atEnd()) {
    auto value = packed.varint();
    if (!value)
      return false;
    values.push_back(static_cast<T>(*value));
  }
  return true;
}

static Expected<Raw> scan(std::string_view bytes, const std::string &what) {
  Raw raw;
  WireReader reader(bytes);
  bool valid = true;
  while (auto field = reader.next()) {
    switch (field->id) {
    case Dims:
      valid &= appendVarints(*field, raw.shape);
      break;
    case DataType:
      valid &= field->type == WireType::Varint;
      raw.dataType = static_cast<int64_t>(field->number);
      break;
    case Name:
      raw.name = field->bytes;
      break;
    case RawData:
      valid &= field->type == WireType::Bytes;
      raw.rawData = field->bytes;
      break;
    case FloatData:
    case Int32Data:
    case StringData:
    case Int64Data:
    case DoubleData:
    case Uint64Data:
      raw.typed.push_back(*field);
      break;
    case DataLocation:
      raw.external |= field->number == 1;
      break;
    default:
      break;
    }
  }
  if (!valid || reader.failed())
    return makeError(what + ": not an ONNX tensor, or truncated");
  return raw;
}

/// The typed field that the format prescribes for an element type.
static uint32_t typedField(DType type) {
  switch (type) {
  case DType::F32:
    return FloatData;
  case DType::F64:
    return DoubleData;
  case DType::I64:
    return Int64Data;
  case DType::U32:
  case DType::U64:
    return Uint64Data;
  default:
    return Int32Data;
  }
}

/// Collects the values of a typed field as the tensor's bytes; false if malformed.
static bool collectTyped(const Raw &raw, DType type, std::vector<std::byte> &bytes) {
  size_t width = byteWidth(type);
  bool isFixed = type == DType::F32 || type == DType::F64;
  for (const WireField &field : raw.typed) {
    if (field.id != typedField(type))
      return false;
    if (isFixed && field.type == WireType::Bytes) {
      if (field.bytes.size() % width != 0)
        return false;
      auto *data = reinterpret_cast<const std::byte *>(field.bytes.data());
      bytes.insert(bytes.end(), data, data + field.bytes.size());
      continue;
    }
    std::vector<uint64_t> values;
    if (isFixed)
      values.push_back(field.number);
    else if (!appendVarints(field, values))
      return false;
    // Little-endian: the low `width` bytes of a value come first.
    for (uint64_t value : values) {
      auto *data = reinterpret_cast<const std::byte *>(&value);
      bytes.insert(bytes.end(), data, data + width);
    }
  }
  return true;
}

Expected<NamedTensor> partita::decodeTensorProto(std::string_view bytes,
                                                 const std::string &what) {
  auto raw = scan(bytes, what);
  if (!raw)
    return tl::unexpected(raw.error());
  auto type = dtypeFromOnnx(raw->dataType);
  if (!type)
    return makeError(what + ": element type " + onnxTypeName(raw->dataType) +
                     " is not supported");
  if (raw->external)
    return makeError(what + ": external data is not possible here");
  auto size = byteCount(*type, raw->shape, what);
  if (!size)
    return tl::unexpected(size.error());
  NamedTensor result{std::move(raw->name), {*type, std::move(raw->shape), {}}};
  std::vector<std::byte> &data = result.tensor.bytes;
  if (raw->rawData) {
    auto *begin = reinterpret_cast<const std::byte *>(raw->rawData->data());
    data.assign(begin, begin + raw->rawData->size());
  } else if (!collectTyped(*raw, *type, data)) {
    return makeError(what + ": the values are not stored as those of a " +
                     std::string(partita::name(*type)) + " tensor");
  }
  uint64_t inFile = packedBytes(*type, *size);
  if (data.size() != inFile)
    return makeError(what + ": the shape needs " + std::to_string(inFile) +
                     " bytes, but there are " + std::to_string(data.size()));
  if (inFile != *size || bitWidth(*type) < 8)
    data = unpacked(*type, data, *size);
  return result;
}

std::string partita::encodeTensorProto(const HostTensor &tensor, std::string_view name) {
  std::string out;
  out.reserve(tensor.bytes.size() + 64);
  for (int64_t extent : tensor.shape)
    appendVarintField(out, Dims, static_cast<uint64_t>(extent));
  appendVarintField(out, DataType, static_cast<uint64_t>(onnxNumber(tensor.type)));
  if (!name.empty())
    appendBytesField(out, Name, name);
  std::vector<std::byte> narrow;
  if (bitWidth(tensor.type) < 8)
    narrow = packed(tensor.type, tensor.bytes);
  const auto &bytes = bitWidth(tensor.type) < 8 ? narrow : tensor.bytes;
  appendBytesField(out, RawData,
                   {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  return out;
}

Expected<NamedTensor> partita::readTensorProto(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  return decodeTensorProto({reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                           path);
}

Expected<void> partita::writeTensorProto(const std::string &path,
                                         const HostTensor &tensor,
                                         std::string_view name) {
  return writeFile(path, encodeTensorProto(tensor, name));
}
