//===- ReadPayload.h - Payloads as functions for the runtime ----*- C++ -*-===//
#ifndef PARTITA_TOOLS_COMMON_READPAYLOAD_H
#define PARTITA_TOOLS_COMMON_READPAYLOAD_H

#include "partita/Rule/Scalar/Payload.h"
#include "partita/Runtime/NotFinite.h"

#include <memory>

namespace partita {

/// A payload whose arithmetic is of T.
template <typename T>
runtime::PayloadFunction payloadFunction(Payload payload,
                                         const std::vector<double> &attributes) {
  struct Made {
    Payload payload;
    std::vector<T> attributes, operands = {}, scratch = {};
  };
  auto made = std::make_shared<Made>(
      Made{std::move(payload), std::vector<T>(attributes.begin(), attributes.end())});
  return [made](const std::vector<double> &operands) {
    made->operands.assign(operands.begin(), operands.end());
    return static_cast<double>(
        made->payload.evaluate(made->operands.data(), made->attributes, made->scratch));
  };
}

/// See runtime::ReadPayload.
inline runtime::PayloadFunction
readPayload(const std::string &text, const std::vector<double> &attributes, DType type) {
  auto payload = Payload::parse(text);
  if (!payload || payload->attributeNames().size() > attributes.size())
    return nullptr;
  return type == DType::F64   ? payloadFunction<double>(std::move(*payload), attributes)
         : type == DType::F32 ? payloadFunction<float>(std::move(*payload), attributes)
                              : payloadFunction<int64_t>(std::move(*payload), attributes);
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_READPAYLOAD_H
