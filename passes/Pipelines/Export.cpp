//===- Export.cpp - What a bundle has trained, as an ONNX file ------------===//
#include "passes/Pipelines/Export.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/SafeTensors.h"
#include "partita/Onnx/Export.h"

#include <filesystem>

using namespace partita;

/// Finds the model that a bundle was compiled from; all entries are of one.
static Expected<std::string> ownModel(const std::string &bundle) {
  return planFile(bundle, "").and_then(readAnyPlan).map([&](const Plan &plan) {
    return findRecorded(bundle, plan.modelRelative, plan.model);
  });
}

static Expected<void> findModel(const std::string &bundle, ExportOptions &options) {
  if (options.model.empty()) {
    auto own = ownModel(bundle);
    if (!own)
      return tl::unexpected(own.error());
    options.model = std::move(*own);
  }
  std::error_code unreadable;
  if (!std::filesystem::exists(options.model, unreadable))
    return makeError("the bundle's model '" + options.model +
                     "' is not there; --model says where it is now");
  return {};
}

Expected<void> partita::prepareExport(const std::string &bundle, ExportOptions &options) {
  return findModel(bundle, options).and_then([&] {
    return onnx_model::checkExport(options.model, options.file);
  });
}

/// States that are initializers of the bundle's own model, if it is still there.
static Expected<std::vector<std::string>> weightsOf(const std::string &bundle,
                                                    const std::string &states) {
  auto own = ownModel(bundle);
  std::error_code unreadable;
  if (!own || !std::filesystem::exists(*own, unreadable))
    return std::vector<std::string>();
  auto file = readSafeTensors(states);
  if (!file)
    return tl::unexpected(file.error());
  std::vector<std::string> names;
  for (const SafeTensorEntry &tensor : file->tensors)
    names.push_back(tensor.name);
  return onnx_model::initializersOf(*own, names);
}

Expected<size_t> partita::exportStates(const std::string &bundle, ExportOptions options,
                                       const std::string &states) {
  const bool isOther = !options.model.empty();
  if (auto ok = findModel(bundle, options); !ok)
    return tl::unexpected(ok.error());
  auto weights = isOther ? weightsOf(bundle, states)
                         : Expected<std::vector<std::string>>(std::vector<std::string>());
  return weights.and_then([&](const std::vector<std::string> &names) {
    return onnx_model::exportModel(options.model, states, options.file,
                                   dataFolders(bundle, options.weightsDir), names);
  });
}
