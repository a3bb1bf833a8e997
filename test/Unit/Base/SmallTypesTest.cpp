//===- SmallTypesTest.cpp - Element types of a byte and less --------------===//
#include "partita/Base/DType.h"
#include "partita/Base/Files/TensorProto.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace partita;

TEST_CASE("every float of one byte is what it becomes again") {
  for (DType type : {DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ,
                     DType::F8E8M0, DType::F4E2M1})
    for (int code = 0; code < 1 << bitWidth(type); ++code) {
      auto bits = static_cast<uint8_t>(code);
      float value = smallToFloat(type, bits);
      INFO(name(type) << " " << code << " is " << value);
      if (std::isnan(value))
        CHECK(std::isnan(smallToFloat(type, floatToSmall(type, value))));
      else
        CHECK(floatToSmall(type, value) == bits);
    }
}

TEST_CASE("floats of one byte round to nearest, ties to even") {
  auto rounded = [](DType type, float value) {
    return smallToFloat(type, floatToSmall(type, value));
  };
  CHECK(rounded(DType::F8E4M3FN, 17) == 16);
  CHECK(rounded(DType::F8E4M3FN, 19) == 20);
  CHECK(rounded(DType::F8E4M3FN, 448) == 448);
  CHECK(rounded(DType::F8E4M3FN, 464) == 448);
  CHECK(std::isnan(rounded(DType::F8E4M3FN, 465)));
  CHECK(rounded(DType::F8E4M3FN, -0x1p-10F) == 0);
  CHECK(rounded(DType::F8E4M3FN, 0x1.8p-10F) == 0x1p-9F);
  CHECK(rounded(DType::F8E4M3FNUZ, 240) == 240);
  CHECK(std::isnan(rounded(DType::F8E4M3FNUZ, 256)));
  CHECK(rounded(DType::F8E5M2, 57344) == 57344);
  CHECK(std::isinf(rounded(DType::F8E5M2, 65536)));
  CHECK(rounded(DType::F4E2M1, 2.5) == 2);
  CHECK(rounded(DType::F4E2M1, 5) == 4);
  CHECK(rounded(DType::F4E2M1, -100) == -6);
  CHECK(rounded(DType::F8E8M0, 3) == 4);
  CHECK(rounded(DType::F8E8M0, 2.9F) == 2);
  CHECK(std::signbit(rounded(DType::F8E5M2, -0.0F)));
  CHECK_FALSE(std::signbit(rounded(DType::F8E5M2FNUZ, -0.0F)));
}

TEST_CASE("elements of less than a byte are packed in files") {
  HostTensor tensor = HostTensor::zeros(DType::I4, {5});
  int8_t values[] = {-8, 7, -1, 0, 3};
  std::copy(std::begin(values), std::end(values), tensor.data<int8_t>());
  std::string text = encodeTensorProto(tensor);
  auto again = decodeTensorProto(text, "t.pb");
  REQUIRE(again);
  CHECK(again->tensor.bytes == tensor.bytes);
  CHECK(packedBytes(DType::I4, 5) == 3);
  CHECK(packedBytes(DType::U2, 9) == 3);
  CHECK(packedBytes(DType::F32, 8) == 8);
  HostTensor pairs = HostTensor::zeros(DType::U2, {5});
  for (uint8_t i = 0; i < 5; ++i)
    pairs.data<uint8_t>()[i] = i % 4;
  again = decodeTensorProto(encodeTensorProto(pairs), "t.pb");
  REQUIRE(again);
  CHECK(again->tensor.bytes == pairs.bytes);
  text.resize(text.size() - 1);
  CHECK_FALSE(decodeTensorProto(text, "t.pb"));
}
