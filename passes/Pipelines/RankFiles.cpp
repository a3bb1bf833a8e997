//===- RankFiles.cpp - A bundle as an ONNX file per rank ------------------===//
#include "passes/Pipelines/RankFiles.h"

#include "partita/Base/Files/Aside.h"
#include "partita/Onnx/Write.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Recompute.h"

#include <filesystem>

using namespace partita;
namespace fs = std::filesystem;

static Expected<void> checkFolder(const std::string &folder) {
  std::error_code unreadable;
  if (fs::exists(folder, unreadable))
    return makeError("'" + folder +
                     "' is there already; files per rank are written to a new folder");
  return {};
}

/// A place is known to be bad before the work, and not after it. A slash behind the
/// place would name something inside the folder.
static Expected<Aside> openFolder(const std::string &given) {
  fs::path place = given;
  if (!place.has_filename())
    place = place.parent_path();
  const std::string folder = place.string();
  if (auto ok = checkFolder(folder); !ok)
    return tl::unexpected(ok.error());
  std::error_code failure;
  fs::path parent = place.parent_path();
  if (!parent.empty())
    fs::create_directories(parent, failure);
  if (failure)
    return makeError("cannot write '" + folder + "': " + failure.message());
  return Aside::folder(folder);
}

static std::string fileName(int64_t rank, int64_t ranks) {
  std::string number = std::to_string(rank);
  const size_t digits = std::to_string(ranks - 1).size();
  return "rank-" + std::string(digits - number.size(), '0') + number + ".onnx";
}

static Expected<void> checkRequest(const std::string &bundle, const Request &request) {
  if (request.train)
    return makeError("'" + bundle +
                     "' is a training step; files per rank are of models that infer");
  if (!request.plan)
    return makeError("'" + bundle +
                     "' is a pipeline of several stages; files per rank are of bundles "
                     "of one stage");
  return {};
}

static bool exchanges(const onnx_model::Node &node) {
  return node.opType == "DistCollective" ||
         (!node.domain.empty() && node.opType != "ToLocal" && node.opType != "ToGlobal");
}

/// The files of all ranks; the models are made one after the other, as each has weights.
static Expected<RankFiles> writeAll(Compiler &compiler, RankDialect dialect,
                                    int64_t ranks, const std::string &folder) {
  auto weight = [&](llvm::StringRef name) -> Expected<const onnx_model::Tensor *> {
    auto found = compiler.weights.find(name.str());
    if (found == compiler.weights.end() ||
        (found->second.bytes.empty() && elementCount(found->second.shape) != 0))
      return makeError("reads weight '" + name.str() + "', which has no bytes");
    return &found->second;
  };
  RankFiles written{.ranks = ranks};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto model = rankModel(*compiler.module, rank, dialect, weight);
    if (!model)
      return tl::unexpected(model.error());
    const std::string path = folder + "/" + fileName(rank, ranks);
    if (auto ok = onnx_model::writeModel(*model, path); !ok)
      return tl::unexpected(ok.error());
    std::error_code unreadable;
    written.bytes += static_cast<int64_t>(fs::file_size(path, unreadable));
    written.nodes = static_cast<int64_t>(model->graph.nodes.size());
    written.collectives = llvm::count_if(model->graph.nodes, exchanges);
  }
  return written;
}

Expected<RankFiles> partita::writeRankFiles(const std::string &bundle,
                                            const BundleSource &source,
                                            RankDialect dialect,
                                            const std::string &folder) {
  auto request = requestOf(bundle, source);
  if (!request)
    return tl::unexpected(request.error());
  if (auto ok = checkRequest(bundle, *request); !ok)
    return tl::unexpected(ok.error());
  auto aside = openFolder(folder);
  if (!aside)
    return tl::unexpected(aside.error());
  Job job(*request, [](const std::string &) {});
  takeChoices(job);
  Compiler compiler(job);
  auto ok = compiler.import()
                .and_then([&] { return compiler.annotate(); })
                .and_then([&] { return compiler.partition(); })
                .and_then([&] { return expandForRanks(*compiler.module); });
  if (!ok)
    return tl::unexpected(ok.error());
  auto written = writeAll(compiler, dialect, request->mesh().numRanks(), aside->path());
  if (written)
    if (auto done = aside->commit(); !done)
      return tl::unexpected(done.error());
  return written;
}
