//===- StatedHashes.cpp - What a model says of its external data ----------===//
#include "partita/Onnx/StatedHashes.h"

#include "Internal.h"

#include <exception>

using namespace partita;
using namespace partita::onnx_model;

using Hashes = std::map<std::string, StatedHash>;

static Expected<Hashes> hashesIn(const std::string &model,
                                 const std::vector<std::string> &dataFolders) {
  auto file = readModelFile(model);
  if (!file)
    return tl::unexpected(file.error());
  TensorReader reader(**file, /*weights=*/true, dataFolders);
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
    std::string what = "'" + model + "': initializer '" + tensor.name() + "'";
    auto [known, fresh] = hashes.try_emplace(location, StatedHash{checksum, nullptr});
    if (known->second.checksum != checksum)
      return makeError(what + " states another checksum of '" + location +
                       "' than the initializers before it");
    if (!fresh)
      continue;
    auto found = reader.open(location, what);
    if (!found)
      return tl::unexpected(found.error());
    known->second.file = std::move(found->mapping);
  }
  return hashes;
}

Expected<Hashes> onnx_model::statedHashes(const std::string &model,
                                          const std::vector<std::string> &dataFolders) {
  try {
    auto hashes = hashesIn(model, dataFolders);
    return hashes ? hashes : makeError(printable(hashes.error().message));
  } catch (const std::exception &error) {
    return makeError(printable("'" + model + "': " + error.what()));
  }
}
