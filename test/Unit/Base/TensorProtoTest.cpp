//===- TensorProtoTest.cpp - ONNX tensor files, read and written ----------===//
#include "partita/Base/Files/TensorProto.h"
#include "partita/Base/Files/ProtoWire.h"

#include <catch2/catch.hpp>

using namespace partita;

/// A TensorProto of the given ONNX type number and shape, without values.
static std::string header(int type, std::initializer_list<int64_t> shape) {
  std::string out;
  for (int64_t extent : shape)
    appendVarintField(out, 1, static_cast<uint64_t>(extent));
  appendVarintField(out, 2, static_cast<uint64_t>(type));
  return out;
}

static std::string failure(const std::string &bytes) {
  auto tensor = decodeTensorProto(bytes, "t.pb");
  REQUIRE(!tensor);
  return tensor.error().message;
}

TEST_CASE("every element type survives a round trip") {
  for (int i = 0; i <= static_cast<int>(DType::Bool); ++i) {
    auto type = static_cast<DType>(i);
    HostTensor tensor = HostTensor::zeros(type, {2, 3});
    for (size_t b = 0; b < tensor.bytes.size(); ++b)
      tensor.bytes[b] = static_cast<std::byte>(b * 37 % 2);
    auto back = decodeTensorProto(encodeTensorProto(tensor, "x"), "t.pb");
    REQUIRE(back);
    CHECK(back->name == "x");
    CHECK(back->tensor.type == type);
    CHECK(back->tensor.shape == tensor.shape);
    CHECK(back->tensor.bytes == tensor.bytes);
    CHECK(dtypeFromOnnx(onnxNumber(type)) == type);
  }
}

TEST_CASE("typed fields hold the same values as raw data") {
  std::string packed;
  for (int64_t value : {-1, 300})
    appendVarint(packed, static_cast<uint64_t>(value));
  std::string bytes = header(7, {3});
  appendBytesField(bytes, 7, packed);
  appendVarintField(bytes, 7, 5); // an unpacked element after a packed piece
  auto tensor = decodeTensorProto(bytes, "t.pb");
  REQUIRE(tensor);
  CHECK(tensor->tensor.data<int64_t>()[0] == -1);
  CHECK(tensor->tensor.data<int64_t>()[1] == 300);
  CHECK(tensor->tensor.data<int64_t>()[2] == 5);

  std::string half = header(10, {1});
  appendVarintField(half, 5, 0x3c00); // int32_data carries the bits of an f16
  auto one = decodeTensorProto(half, "t.pb");
  REQUIRE(one);
  CHECK(halfToFloat(*one->tensor.data<uint16_t>()) == 1.0f);

  std::string flags = header(9, {2});
  appendVarintField(flags, 5, 1);
  appendVarintField(flags, 5, 0);
  auto bools = decodeTensorProto(flags, "t.pb");
  REQUIRE(bools);
  CHECK(bools->tensor.bytes == std::vector<std::byte>{std::byte{1}, std::byte{0}});
}

TEST_CASE("what is not a whole tensor is refused with one sentence") {
  CHECK(failure("hello, world") == "t.pb: not an ONNX tensor, or truncated");
  std::string whole = encodeTensorProto(HostTensor::zeros(DType::F32, {4}), "x");
  for (size_t length = 1; length < whole.size(); ++length)
    CHECK(!decodeTensorProto(whole.substr(0, length), "t.pb"));
  CHECK(failure(header(8, {1})) == "t.pb: element type STRING is not supported");
  CHECK(failure(header(99, {1})) == "t.pb: element type 99 is not supported");
  CHECK(failure(header(1, {-2})) == "t.pb: dim 0 is -2, which is negative");
  CHECK(failure(header(1, {1LL << 40, 1LL << 40})) ==
        "t.pb: the shape has more bytes than fit in 63 bits");
  CHECK(failure(header(1, {2})) == "t.pb: the shape needs 8 bytes, but there are 0");
  std::string wrong = header(1, {1});
  appendVarintField(wrong, 7, 1); // int64_data for an f32 tensor
  CHECK(failure(wrong) == "t.pb: the values are not stored as those of a f32 tensor");
  std::string external = header(1, {1});
  appendVarintField(external, 14, 1);
  CHECK(failure(external) == "t.pb: external data is not possible here");
}

TEST_CASE("empty tensors and scalars have the shape's bytes") {
  auto empty = decodeTensorProto(header(1, {0, 1LL << 62, 1LL << 62}), "t.pb");
  REQUIRE(empty);
  CHECK(empty->tensor.bytes.empty());
  auto scalar =
      decodeTensorProto(encodeTensorProto(HostTensor::zeros(DType::F64, {})), "t.pb");
  REQUIRE(scalar);
  CHECK(scalar->tensor.bytes.size() == 8);
}
