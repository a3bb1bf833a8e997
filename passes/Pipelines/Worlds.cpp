//===- Worlds.cpp - One bundle for several numbers of ranks ---------------===//
#include "passes/Pipelines/Worlds.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Evaluation.h"
#include "partita/Base/Files/File.h"
#include "passes/Pipelines/BundleRequest.h"
#include "passes/Pipelines/Compiler.h"

#include <algorithm>
#include <filesystem>

using namespace partita;
namespace fs = std::filesystem;

std::string partita::refusalOfWorlds(const Request &request) {
  if (request.worlds.empty())
    return "";
  const std::string several = " is for one mesh, and --mesh is given " +
                              std::to_string(request.worlds.size() + 1) + " times";
  const Levels &levels = request.levels;
  if (request.plan)
    return "--plan" + several;
  if (!request.told.hints.empty())
    return "--write-hints" + several;
  if (!levels.dump.empty())
    return "--dump-dir" + several;
  return levels.to < Level::L5 ? "--to" + several : "";
}

static std::string haveBoth(const std::string &a, const std::string &b, int64_t ranks) {
  return "--mesh " + a + " and --mesh " + b + " both have " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks") + ": a world is chosen by their number";
}

/// Finds two worlds with as many ranks before anything is compiled. Empty: there are
/// none, or the number of stages decides, which hints may give.
static std::string refusalOfEqual(const Request &request) {
  std::vector<std::vector<Mesh>> all = {request.meshes};
  all.insert(all.end(), request.worlds.begin(), request.worlds.end());
  auto ranks = [](const std::vector<Mesh> &meshes) {
    int64_t sum = 0;
    for (const Mesh &mesh : meshes)
      sum += mesh.numRanks();
    return sum;
  };
  if (request.cut.stages > 1 || request.hints)
    return "";
  for (size_t b = 0; b < all.size(); ++b)
    for (size_t a = 0; a < b; ++a)
      if (all[a].size() == all[b].size() && ranks(all[a]) == ranks(all[b]))
        return haveBoth(str(all[a]), str(all[b]), ranks(all[a]));
  return "";
}

/// Says whether the file in `world` is that of `bundle`, byte for byte as far as lists of
/// blocks tell.
static bool isEqual(const std::string &bundle, const std::string &world,
                    const WeightFile &a, const WeightFile &b) {
  if (a.isOfModel() || b.isOfModel() || a.path != b.path || a.size != b.size)
    return false;
  auto own = readFile(bundle + "/" + a.blocks), other = readFile(world + "/" + b.blocks);
  return own && other && *own == *other;
}

/// Makes a bundle a world of the one at `bundle`, whose equal weight files it names in
/// place of its own.
static Expected<void> share(const std::string &bundle, const Bundle &first,
                            const std::string &folder, Bundle &world) {
  world.isWorld = true;
  for (WeightFile &file : world.weightFiles) {
    bool isShared = std::ranges::any_of(first.weightFiles, [&](const WeightFile &it) {
      return isEqual(bundle, folder, it, file);
    });
    if (!isShared)
      continue;
    std::error_code failed;
    for (std::string *path : {&file.path, &file.blocks}) {
      fs::remove(folder + "/" + *path, failed);
      if (failed)
        return makeError("cannot remove '" + folder + "/" + *path +
                         "': " + failed.message());
      path->insert(0, sharedByWorlds);
    }
  }
  return writeFile(folder + "/bundle.json", world.json());
}

namespace {
/// Makes the worlds of a bundle one after the other.
class WorldCompiler {
public:
  WorldCompiler(const Request &request, const Progress &progress, StopFlag stop,
                std::string folder)
      : request(request), progress(progress), stop(std::move(stop)),
        folder(std::move(folder)) {}

  Expected<std::vector<WorldReport>> run() {
    if (auto ok = compile(request.meshes, folder, request.emission.output); !ok)
      return tl::unexpected(ok.error());
    auto bundle = readBundle(folder);
    if (!bundle)
      return tl::unexpected(bundle.error());
    first = std::move(*bundle);
    reports.back().ranks = first.numRanks();
    for (const std::vector<Mesh> &meshes : request.worlds)
      if (auto ok = add(meshes); !ok)
        return tl::unexpected(ok.error());
    if (auto ok = writeFile(folder + "/bundle.json", first.json()); !ok)
      return tl::unexpected(ok.error());
    return std::move(reports);
  }

private:
  Expected<void> compile(const std::vector<Mesh> &meshes, const std::string &output,
                         const std::string &place) {
    Request one = request;
    one.worlds.clear();
    one.meshes = meshes;
    one.emission.output = output;
    one.emission.place = place;
    one.emission.force = false;
    progress("world " + str(meshes));
    auto report = compileModel(one, progress, stop);
    if (!report)
      return makeError("--mesh " + str(meshes) + ": " + report.error().message);
    reports.push_back({0, str(meshes), std::move(*report)});
    return {};
  }

  Expected<void> add(const std::vector<Mesh> &meshes) {
    const std::string made = folder + "/worlds/new";
    std::error_code failed;
    fs::create_directories(folder + "/worlds", failed);
    if (failed)
      return makeError("cannot create '" + folder + "/worlds': " + failed.message());
    // The later name is as deep: paths from there to the model's files are the same.
    if (auto ok = compile(meshes, made, request.emission.output + "/worlds/new"); !ok)
      return ok;
    auto world = readBundle(made);
    if (!world)
      return tl::unexpected(world.error());
    const int64_t ranks = world->numRanks();
    for (const WorldReport &other : reports)
      if (other.ranks == ranks)
        return makeError(haveBoth(other.mesh, str(meshes), ranks));
    reports.back().ranks = ranks;
    if (auto ok = share(folder, first, made, *world); !ok)
      return ok;
    const std::string name = "worlds/" + std::to_string(ranks);
    fs::rename(made, folder + "/" + name, failed);
    if (failed)
      return makeError("cannot create '" + folder + "/" + name +
                       "': " + failed.message());
    first.worlds.push_back({ranks, name});
    return {};
  }

  const Request &request;
  const Progress &progress;
  const StopFlag stop;
  const std::string folder; ///< of the bundle
  Bundle first;
  std::vector<WorldReport> reports;
};
} // namespace

Expected<std::vector<WorldReport>>
partita::compileWorlds(const Request &request, const Progress &progress, StopFlag stop) {
  if (request.worlds.empty())
    return compileModel(request, progress, stop).map([&](CompileReport report) {
      std::vector<WorldReport> reports;
      reports.push_back({0, str(request.meshes), std::move(report)});
      return reports;
    });
  if (std::string wrong = refusalOfWorlds(request); !wrong.empty())
    return makeError(wrong);
  if (std::string wrong = refusalOfEqual(request); !wrong.empty())
    return makeError(wrong);
  const std::string &output = request.emission.output;
  std::error_code unreadable;
  const bool replaces = request.emission.force && fs::exists(output, unreadable);
  if (auto ok = replaces ? Expected<void>() : checkOutput(request); !ok)
    return tl::unexpected(ok.error());
  auto place = replaces ? BundlePlace::replacing(output) : BundlePlace::fresh(output);
  if (!place)
    return tl::unexpected(place.error());
  auto reports = WorldCompiler(request, progress, stop, place->path()).run();
  if (reports)
    if (auto ok = place->commit(); !ok)
      return tl::unexpected(ok.error());
  return reports;
}

Expected<void> partita::planWorld(const std::string &bundle, int64_t ranks,
                                  const std::string &output,
                                  const std::string &weightsDir,
                                  const Progress &progress) {
  auto known = readBundle(bundle);
  if (!known)
    return tl::unexpected(known.error());
  // An evaluation follows from the specification.
  const auto entries = std::ranges::count_if(
      known->entries, [](const BundleEntry &it) { return !isEvaluation(it.name); });
  if (entries > 1 || known->entries[0].stages.size() > 1)
    return makeError("'" + bundle + "' has several " +
                     (entries > 1 ? "entries" : "stages") +
                     ", which are not planned again: compile with a --mesh for " +
                     std::to_string(ranks) + " ranks");
  BundleSource source;
  source.weightsDir = weightsDir;
  auto request = requestOf(bundle, source);
  if (!request)
    return tl::unexpected(request.error());
  auto mesh = Mesh::create({{"r", ranks}});
  if (!mesh)
    return tl::unexpected(mesh.error());
  request->plan.reset();
  request->meshes = {std::move(*mesh)};
  request->target = {known->target, known->targetCpu, known->threads};
  request->emission.output = output;
  request->emission.force = true;
  return compileModel(*request, progress).map([](const CompileReport &) {});
}
