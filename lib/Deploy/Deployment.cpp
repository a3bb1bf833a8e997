//===- Deployment.cpp - What a run needs of a cluster ---------------------===//
#include "partita/Deploy/Deployment.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

using namespace partita;
using namespace partita::deploy;

/// Tells whether levels are the axes of the mesh, as a search without a cluster file
/// makes them: of one host.
static bool areAxes(const std::vector<PlanCertificate::Level> &levels,
                    const PlanEntry &entry) {
  return std::all_of(levels.begin(), levels.end(), [&](const auto &level) {
    return ("," + entry.stages.front().mesh).find("," + level.name + "=") !=
           std::string::npos;
  });
}

Expected<int64_t> deploy::ranksPerHost(const PlanEntry &entry, int64_t ranks,
                                       const std::optional<Topology> &cluster) {
  if (cluster && cluster->numDevices() != ranks)
    return makeError("the cluster has " + std::to_string(cluster->numDevices()) +
                     " devices, the bundle needs " + std::to_string(ranks));
  if (cluster)
    return cluster->levels.empty() ? ranks : cluster->unit(0);
  if (!entry.certificate || entry.certificate->levels.empty() ||
      areAxes(entry.certificate->levels, entry))
    return ranks;
  return std::min(ranks, entry.certificate->levels.front().size);
}

std::vector<int64_t> Deployment::ranksOfHosts() const {
  std::vector<int64_t> result;
  for (int64_t left = ranks; left > 0; left -= result.back()) {
    const size_t k = result.size();
    if (!named.empty() && k == named.size())
      break; // too few, which deploy refuses
    result.push_back(std::min(left, named.empty() ? slots : named[k].slots));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static constexpr int64_t mebibyte = int64_t(1) << 20;
/// Memory of a rank beside the plan's: its code and stacks, and MPI's. Measured:
/// docs/runtime.md#memory.
static constexpr int64_t runtimeBytes = 128 * mebibyte;
/// Memory of a host: the daemons of MPI and ssh, and what MPI shares between ranks.
static constexpr int64_t hostBytes = 192 * mebibyte;
/// Share of everything: pages of data that are mapped, what allocators keep.
static constexpr double margin = 0.1;

Expected<int64_t> deploy::memoryOfHost(const Plan &plan,
                                       const std::vector<int64_t> &ranksOfHosts,
                                       bool saves) {
  const int64_t ranks =
      std::accumulate(ranksOfHosts.begin(), ranksOfHosts.end(), int64_t(0));
  double most = 0;
  for (const PlanEntry &entry : plan.entries) {
    std::vector<double> bytes(static_cast<size_t>(ranks), 0.0);
    for (const PlanStage &stage : entry.stages) {
      if (!stage.memory)
        return makeError("'" + plan.file + "' does not say what memory a rank takes");
      auto of =
          static_cast<double>(stage.memory->rank + (saves ? stage.memory->states : 0));
      for (int64_t r = 0; r < ranks; ++r)
        if (stage.ranks.empty() ||
            std::find(stage.ranks.begin(), stage.ranks.end(), r) != stage.ranks.end())
          bytes[static_cast<size_t>(r)] += of;
    }
    size_t rank = 0;
    for (int64_t count : ranksOfHosts) {
      double sum = hostBytes;
      for (int64_t r = 0; r < count; ++r)
        sum += bytes[rank++] + runtimeBytes;
      most = std::max(most, sum);
    }
  }
  return static_cast<int64_t>(most * (1 + margin));
}

//===----------------------------------------------------------------------===//
// Names and volumes
//===----------------------------------------------------------------------===//

static bool isOfName(char c) { return std::islower(c) || std::isdigit(c) || c == '-'; }

/// Controllers put up to 23 characters behind it, of 63 that a host's name may have.
static constexpr size_t longestName = 40;

Expected<void> deploy::checkName(const std::string &name) {
  bool isName = !name.empty() && std::islower(name.front()) && name.back() != '-' &&
                std::all_of(name.begin(), name.end(), isOfName);
  if (isName && name.size() <= longestName)
    return {};
  return makeError("the name '" + name +
                   "' is none of a job: expected at most 40 lower-case letters, digits "
                   "and hyphens, a letter first and no hyphen last");
}

std::string deploy::nameFrom(const std::string &text) {
  std::string name;
  for (char c : text) {
    char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (isOfName(lower) && (std::islower(lower) || !name.empty()))
      name += lower;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  name.resize(std::min(name.size(), longestName));
  while (!name.empty() && name.back() == '-')
    name.pop_back();
  return name;
}

static bool goesUp(const std::filesystem::path &path) {
  return std::find(path.begin(), path.end(), "..") != path.end();
}

Expected<Volume> deploy::readVolume(const std::string &text) {
  const tl::unexpected<Error> wrong =
      makeError("expected CLAIM[/SUB/PATH]:/PATH[:ro], got '" + text + "'");
  Volume volume;
  std::string rest = text;
  if (rest.ends_with(":ro")) {
    volume.readOnly = true;
    rest.resize(rest.size() - 3);
  }
  size_t colon = rest.find(':');
  std::string source = rest.substr(0, colon);
  volume.claim = source.substr(0, source.find('/'));
  if (source.find('/') != std::string::npos)
    volume.subPath = source.substr(source.find('/') + 1);
  volume.path = colon == std::string::npos ? "" : rest.substr(colon + 1);
  bool isClaim = !volume.claim.empty() && std::isalnum(volume.claim.front()) &&
                 std::all_of(volume.claim.begin(), volume.claim.end(),
                             [](char c) { return isOfName(c) || c == '.'; });
  if (!isClaim || volume.path.size() < 2 || volume.path[0] != '/' ||
      volume.path.find(':') != std::string::npos || source.ends_with('/') ||
      goesUp(source) || goesUp(volume.path) || volume.subPath.starts_with('/'))
    return wrong;
  volume.path = std::filesystem::path(volume.path).lexically_normal().string();
  if (volume.path.ends_with('/'))
    volume.path.pop_back();
  return volume.path.empty() ? Expected<Volume>(wrong) : volume;
}

Expected<void> deploy::checkWritable(const Deployment &run, const std::string &option,
                                     const std::string &given) {
  // "/shared/../tmp" is not in "/shared".
  const std::string path = std::filesystem::path(given).lexically_normal().string();
  const Volume *nearest = nullptr;
  for (const Volume &volume : run.volumes)
    if ((path + "/").starts_with(volume.path + "/") &&
        (!nearest || volume.path.size() > nearest->path.size()))
      nearest = &volume;
  if (nearest && !nearest->readOnly)
    return {};
  return makeError(option + " '" + given + "' is in no volume that pods may write; " +
                   (nearest ? "'" + nearest->path + "' is read-only"
                            : "--mount CLAIM:/PATH gives one"));
}
