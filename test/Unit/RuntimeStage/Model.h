//===- Model.h - A small hand-made model for runtime tests ------*- C++ -*-===//
//
// y = 0.5 · (relu(x·w1 + b1)·w2), 7 rows over dp (so that dp=2 pads), the hidden dim
// over tp, with the reduction of a row-split product. A first kernel misbehaves on
// request, mode = {what, rank}, and another one while the reduction is in flight,
// mode = {what + Between, rank}.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TEST_UNIT_RUNTIMESTAGE_MODEL_H
#define PARTITA_TEST_UNIT_RUNTIMESTAGE_MODEL_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/DType.h"
#include "partita/Base/Files/File.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace testmodel {

constexpr int64_t rows = 7, width = 16, hidden = 32;
/// Bytes of each weight in weights.bin, in this order, each padded to 64.
constexpr uint64_t w1Offset = 0, b1Offset = w1Offset + width * hidden * 4,
                   w2Offset = b1Offset + hidden * 4,
                   fileBytes = w2Offset + hidden * width * 4;

enum Mode : int64_t { Normal, Hang, Kill, Crash, Stop, Between = 16 };

inline float weightAt(uint64_t i) {
  return static_cast<float>((i * 37 + 11) % 17) / 16 - 0.5f;
}
inline float inputAt(uint64_t i) {
  return static_cast<float>((i * 29 + 5) % 13) / 8 - 0.75f;
}

inline partita::HostTensor input() {
  auto x = partita::HostTensor::zeros(partita::DType::F32, {rows, width});
  for (uint64_t i = 0; i < rows * width; ++i)
    x.data<float>()[i] = inputAt(i);
  return x;
}

inline partita::HostTensor mode(int64_t what, int64_t rank) {
  auto m = partita::HostTensor::zeros(partita::DType::I64, {2});
  m.data<int64_t>()[0] = what;
  m.data<int64_t>()[1] = rank;
  return m;
}

inline partita::HostTensor expected() {
  auto y = partita::HostTensor::zeros(partita::DType::F32, {rows, width});
  for (uint64_t r = 0; r < rows; ++r) {
    std::vector<double> h(hidden);
    for (uint64_t j = 0; j < hidden; ++j) {
      h[j] = weightAt(b1Offset / 4 + j);
      for (uint64_t k = 0; k < width; ++k)
        h[j] += inputAt(r * width + k) * weightAt(k * hidden + j);
      h[j] = std::max(h[j], 0.0);
    }
    for (uint64_t n = 0; n < width; ++n) {
      double sum = 0;
      for (uint64_t j = 0; j < hidden; ++j)
        sum += h[j] * weightAt(w2Offset / 4 + j * width + n);
      y.data<float>()[r * width + n] = static_cast<float>(0.5 * sum);
    }
  }
  return y;
}

/// Writes the bundle around a copy of the stage library.
inline partita::Expected<void>
writeBundle(const std::string &out, const std::string &stage, const std::string &mesh) {
  auto writer = partita::BundleWriter::create(out);
  if (!writer)
    return tl::unexpected(writer.error());
  std::error_code failure;
  std::filesystem::copy_file(stage, writer->path("stage-0.so"), failure);
  if (failure)
    return partita::makeError("cannot copy " + stage);
  std::vector<float> weights(fileBytes / 4);
  for (uint64_t i = 0; i < weights.size(); ++i)
    weights[i] = weightAt(i);
  std::string_view bytes(reinterpret_cast<const char *>(weights.data()), fileBytes);
  if (auto ok = partita::writeFile(writer->path("weights.bin"), bytes); !ok)
    return ok;
  partita::BlockHasher blocks;
  blocks.add(std::as_bytes(std::span(bytes)));
  if (auto ok =
          partita::writeFile(writer->path("weights-0.blocks"), blocks.finish().text());
      !ok)
    return ok;
  partita::Bundle bundle;
  bundle.mesh = *partita::Mesh::parse(mesh);
  bundle.entries = {{"main", {{"stage-0.so"}}}};
  bundle.weightFiles = {{"weights.bin", fileBytes, "weights-0.blocks"}};
  bundle.model = "test";
  return writer->commit(bundle);
}

} // namespace testmodel

#endif // PARTITA_TEST_UNIT_RUNTIMESTAGE_MODEL_H
