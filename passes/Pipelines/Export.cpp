//===- Export.cpp - What a bundle has trained, as an ONNX file ------------===//
#include "passes/Pipelines/Export.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Onnx/Export.h"

#include <filesystem>

using namespace partita;

static Expected<void> findModel(const std::string &bundle, ExportOptions &options) {
  if (options.model.empty()) {
    // All entries are of one model.
    auto plan = planFile(bundle, "").and_then(readAnyPlan);
    if (!plan)
      return tl::unexpected(plan.error());
    options.model = findRecorded(bundle, plan->modelRelative, plan->model);
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

Expected<size_t> partita::exportStates(const std::string &bundle, ExportOptions options,
                                       const std::string &states) {
  return findModel(bundle, options).and_then([&] {
    return onnx_model::exportModel(options.model, states, options.file,
                                   dataFolders(bundle, options.weightsDir));
  });
}
