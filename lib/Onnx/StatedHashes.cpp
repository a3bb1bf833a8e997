//===- StatedHashes.cpp - What a model says of its external data ----------===//
#include "partita/Onnx/StatedHashes.h"

#include "Internal.h"

#include <exception>

using namespace partita;
using namespace partita::onnx_model;

using Hashes = std::map<std::string, std::string>;

static Expected<Hashes> hashesIn(const std::string &model) {
  auto file = readModelFile(model);
  if (!file)
    return tl::unexpected(file.error());
  Hashes hashes;
  for (const onnx::TensorProto &tensor : (*file)->proto.graph().initializer()) {
    std::string location, checksum;
    for (const auto &entry : tensor.external_data()) {
      if (entry.key() == "location")
        location = entry.value();
      if (entry.key() == "checksum")
        checksum = entry.value();
    }
    if (checksum.empty())
      continue;
    auto [known, fresh] = hashes.try_emplace(location, checksum);
    if (known->second != checksum)
      return makeError("'" + model + "': initializer '" + tensor.name() +
                       "' states another checksum of '" + location +
                       "' than the initializers before it");
  }
  return hashes;
}

Expected<Hashes> onnx_model::statedHashes(const std::string &model) {
  try {
    auto hashes = hashesIn(model);
    return hashes ? hashes : makeError(printable(hashes.error().message));
  } catch (const std::exception &error) {
    return makeError(printable("'" + model + "': " + error.what()));
  }
}
