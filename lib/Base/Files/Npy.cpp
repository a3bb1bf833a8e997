//===- Npy.cpp - NumPy array files ----------------------------------------===//
#include "partita/Base/Files/Npy.h"

#include "partita/Base/Files/File.h"

#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

using namespace partita;

namespace {

struct TypeCode {
  DType type;
  std::string_view code; ///< without the byte-order character
};

constexpr TypeCode typeCodes[] = {
    {DType::F32, "f4"}, {DType::F64, "f8"}, {DType::F16, "f2"}, {DType::BF16, "V2"},
    {DType::I8, "i1"},  {DType::I16, "i2"}, {DType::I32, "i4"}, {DType::I64, "i8"},
    {DType::U8, "u1"},  {DType::U16, "u2"}, {DType::U32, "u4"}, {DType::U64, "u8"},
    {DType::Bool, "b1"}};

/// The header is the repr of a Python dict with three known keys.
class DictReader {
public:
  explicit DictReader(std::string_view text) : text(text) {}

  /// The text of the value of `key`, up to the comma or brace that ends it.
  std::optional<std::string_view> value(std::string_view key) const {
    for (char quote : {'\'', '"'}) {
      std::string quoted = quote + std::string(key) + quote;
      size_t at = text.find(quoted);
      if (at == std::string_view::npos)
        continue;
      size_t colon = text.find(':', at + quoted.size());
      if (colon == std::string_view::npos)
        return std::nullopt;
      return trim(text.substr(colon + 1));
    }
    return std::nullopt;
  }

private:
  static std::string_view trim(std::string_view s) {
    while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front())))
      s.remove_prefix(1);
    return s;
  }
  std::string_view text;
};

} // namespace

static std::optional<std::vector<int64_t>> parseShape(std::string_view text) {
  size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == std::string_view::npos)
    return std::nullopt;
  text = text.substr(1, close - 1);
  std::vector<int64_t> shape;
  for (;;) {
    while (!text.empty() && (text.front() == ' ' || text.front() == ','))
      text.remove_prefix(1);
    if (text.empty())
      return shape;
    int64_t extent = 0;
    auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (status != std::errc() || extent < 0)
      return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text.front() == 'L') // Python 2 wrote long integers so
      text.remove_prefix(1);
    shape.push_back(extent);
  }
}

static Expected<DType> parseType(std::string_view text, const std::string &path) {
  if (text.empty() || (text.front() != '\'' && text.front() != '"'))
    return makeError("'" + path + "': a structured array is not supported");
  size_t close = text.find(text.front(), 1);
  if (close == std::string_view::npos || close < 3)
    return makeError("'" + path + "': the header has no element type");
  text = text.substr(1, close - 1);
  for (const TypeCode &t : typeCodes) {
    if (text.substr(1) != t.code)
      continue;
    if (text.front() == '>')
      return makeError("'" + path + "': the data is big-endian (" + std::string(text) +
                       "); save it with little-endian byte order");
    return t.type;
  }
  return makeError("'" + path + "': element type " + std::string(text) +
                   " is not supported");
}

static Expected<NpyHeader> parseDict(std::string_view text, const std::string &path) {
  DictReader dict(text);
  auto descr = dict.value("descr"), order = dict.value("fortran_order"),
       shape = dict.value("shape");
  if (!descr || !order || !shape)
    return makeError("'" + path + "': the header is malformed");
  Expected<DType> type = parseType(*descr, path);
  if (!type)
    return tl::unexpected(type.error());
  auto extents = parseShape(*shape);
  if (!extents)
    return makeError("'" + path + "': the shape in the header is malformed");
  return NpyHeader{*type, order->substr(0, 4) == "True", std::move(*extents)};
}

/// Copies a column-major array to row-major order.
static void transpose(const std::byte *source, HostTensor &target) {
  size_t width = byteWidth(target.type), rank = target.shape.size();
  std::vector<int64_t> stride(rank), index(rank, 0);
  int64_t step = 1;
  for (size_t d = 0; d < rank; ++d) {
    stride[d] = step;
    step *= target.shape[d];
  }
  int64_t place = 0;
  for (size_t at = 0; at < target.bytes.size(); at += width) {
    std::memcpy(target.bytes.data() + at, source + static_cast<size_t>(place) * width,
                width);
    for (size_t d = rank; d-- > 0;) {
      place += stride[d];
      if (++index[d] < target.shape[d])
        break;
      place -= stride[d] * target.shape[d];
      index[d] = 0;
    }
  }
}

Expected<NpyHeader> partita::parseNpyHeader(std::string_view text,
                                            const std::string &path) {
  if (text.size() < 12 || text.substr(0, 6) != std::string_view("\x93NUMPY", 6))
    return makeError("'" + path + "' is not a .npy file");
  int major = static_cast<unsigned char>(text[6]);
  if (major < 1 || major > 3)
    return makeError("'" + path + "': .npy version " + std::to_string(major) +
                     " is not supported");
  size_t prefix = major == 1 ? 10 : 12, length = 0;
  for (size_t i = 8; i < prefix; ++i)
    length |= static_cast<size_t>(static_cast<unsigned char>(text[i])) << (8 * (i - 8));
  if (length > text.size() - prefix)
    return makeError("'" + path + "' is truncated");
  auto header = parseDict(text.substr(prefix, length), path);
  if (!header)
    return header;
  header->dataOffset = prefix + length;
  header->dataBytes = byteWidth(header->type);
  for (int64_t extent : header->shape)
    if (__builtin_mul_overflow(header->dataBytes, static_cast<uint64_t>(extent),
                               &header->dataBytes))
      return makeError("'" + path + "': the shape overflows");
  return header;
}

Expected<HostTensor> partita::readNpy(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  auto text =
      std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  auto header = parseNpyHeader(text, path);
  if (!header)
    return tl::unexpected(header.error());
  auto data = bytes.subspan(header->dataOffset);
  if (data.size() != header->dataBytes)
    return makeError("'" + path + "': expected " + std::to_string(header->dataBytes) +
                     " bytes of data, got " + std::to_string(data.size()));
  HostTensor tensor{header->type, header->shape, {}};
  tensor.bytes.resize(header->dataBytes);
  if (header->fortran && header->shape.size() > 1)
    transpose(data.data(), tensor);
  else if (!data.empty())
    std::memcpy(tensor.bytes.data(), data.data(), data.size());
  return tensor;
}

Expected<void> partita::writeNpy(const std::string &path, const HostTensor &tensor) {
  std::string_view code;
  for (const TypeCode &t : typeCodes)
    if (t.type == tensor.type)
      code = t.code;
  std::string order = byteWidth(tensor.type) == 1 ? "|" : "<";
  std::string dict =
      "{'descr': '" + order + std::string(code) + "', 'fortran_order': False, 'shape': (";
  for (int64_t extent : tensor.shape)
    dict += std::to_string(extent) + ", ";
  dict += "), }";
  if (tensor.shape.empty())
    dict = dict.substr(0, dict.find('(')) + "(), }";
  // The prefix of 10 bytes, the dict and a newline end at a multiple of 64.
  dict.append((64 - (dict.size() + 11) % 64) % 64, ' ');
  dict += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  out += dict;
  out.append(reinterpret_cast<const char *>(tensor.bytes.data()), tensor.bytes.size());
  return writeFile(path, out);
}
