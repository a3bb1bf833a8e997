//===- Restore.cpp - Loading the newest whole generation ------------------===//
#include "partita/Runtime/CheckpointSession.h"

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::runtime;

static std::string typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = std::string(name(type)) + "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// The generation has the states of the session and no others.
static Expected<void> checkStates(const Session &session, const Manifest &manifest,
                                  const std::string &path) {
  for (const TensorInfo &info : session.states()) {
    const Manifest::State *saved = manifest.find(info.name);
    if (!saved)
      return makeError("'" + path + "' has no state '" + info.name + "'");
    if (saved->type != info.type || saved->shape != info.shape)
      return makeError("'" + path + "': state '" + info.name + "' is " +
                       typeText(saved->type, saved->shape) + ", expected " +
                       typeText(info.type, info.shape));
  }
  for (const Manifest::State &saved : manifest.states)
    if (std::ranges::none_of(session.states(),
                             [&](auto &info) { return info.name == saved.name; }))
      return makeError("'" + path + "' has a state '" + saved.name +
                       "', which the bundle has not");
  return {};
}

namespace {

/// A try with one generation.
class Restorer {
public:
  Restorer(Session &session, std::string path)
      : session(session), restored{{}, std::move(path)},
        bytes(static_cast<size_t>(session.numRanks())),
        problems(static_cast<size_t>(session.numRanks())) {}

  /// Whether all is well, for all processes alike; else the sentence of one of them.
  Expected<std::string> readHeader() {
    auto manifest = readManifest(restored.path);
    std::string problem;
    if (!manifest)
      problem = manifest.error().message;
    else
      restored.manifest = std::move(*manifest);
    // Thousands of ranks need not open thousands of files each.
    if (manifest && session.isRoot())
      if (auto ok = checkParts(restored.path, restored.manifest); !ok)
        problem = ok.error().message;
    return agreeOnText(session, std::move(problem));
  }

  /// Finds what no other generation would mend.
  Expected<void> check(const std::function<Expected<void>(const Restored &)> &fits,
                       const std::function<std::string(const Manifest &)> &explain) {
    const Manifest &manifest = restored.manifest;
    auto ok = checkFormat(restored.path, manifest);
    if (ok) {
      ok = checkStates(session, manifest, restored.path);
      const std::string why =
          !ok && explain && session.isRoot() ? explain(manifest) : std::string();
      if (!why.empty())
        ok = makeError(ok.error().message + "; " + why);
    }
    if (ok && session.isRoot())
      ok = fits(restored);
    auto problem = agreeOnText(session, ok ? std::string() : ok.error().message);
    if (!problem)
      return tl::unexpected(problem.error());
    return problem->empty() ? Expected<void>() : makeError(*problem);
  }

  Expected<std::string> readStates() {
    GenerationReader reader(restored.path, restored.manifest);
    std::vector<HeldState> held = session.heldStates();
    auto visit = [&](int rank, size_t state, uint32_t slot,
                     std::byte *local) -> Expected<void> {
      auto at = static_cast<size_t>(rank);
      // The other ranks go on: a damaged generation is no failure of the session.
      if (problems[at].empty())
        problems[at] = readSlot(reader, held[state], at, slot, local);
      return {};
    };
    if (auto ok = session.fillStates(visit); !ok)
      return tl::unexpected(ok.error());
    auto first = std::ranges::find_if(problems, [](auto &it) { return !it.empty(); });
    return agreeOnText(session, first == problems.end() ? std::string() : *first);
  }

  Expected<Restored> result() {
    if (auto ok = session.agree(bytes); !ok)
      return tl::unexpected(ok.error());
    for (int64_t count : bytes) {
      restored.bytes += static_cast<uint64_t>(count);
      restored.mostBytes = std::max(restored.mostBytes, static_cast<uint64_t>(count));
    }
    return std::move(restored);
  }

private:
  std::string readSlot(GenerationReader &reader, const HeldState &held, size_t rank,
                       uint32_t slot, std::byte *local) {
    const Manifest::State *saved = reader.manifest().find(held.name);
    for (const StatePart &part : held.parts) {
      if (part.rank != static_cast<int>(rank) || part.slot != slot)
        continue;
      auto read = reader.read(*saved, part.runs, part.localShape, local);
      if (!read)
        return read.error().message;
      bytes[rank] += static_cast<int64_t>(*read);
    }
    return {};
  }

  Session &session;
  Restored restored;
  std::vector<int64_t> bytes; ///< read, by rank
  std::vector<std::string> problems;
};

} // namespace

/// The steps of the generations of a folder as the root sees them, newest first.
static Expected<std::vector<int64_t>> agreeOnSteps(Session &session,
                                                   const std::string &folder) {
  std::vector<int64_t> steps;
  std::string problem;
  if (session.isRoot()) {
    auto all = generationsOf(folder);
    if (!all)
      problem = all.error().message;
    for (const Generation &it : all.value_or(std::vector<Generation>()))
      steps.push_back(it.step);
  }
  auto agreed = agreeOnText(session, std::move(problem));
  if (!agreed)
    return tl::unexpected(agreed.error());
  if (!agreed->empty())
    return makeError(*agreed);
  int64_t count[] = {static_cast<int64_t>(steps.size())};
  if (auto ok = session.agree(count); !ok)
    return tl::unexpected(ok.error());
  steps.resize(static_cast<size_t>(count[0]));
  if (auto ok = session.agree(steps); !ok)
    return tl::unexpected(ok.error());
  return steps;
}

Expected<std::optional<Restored>>
runtime::restoreNewest(Session &session, const std::string &folder,
                       const std::function<void(std::string_view)> &tell,
                       const std::function<Expected<void>(const Restored &)> &fits,
                       const std::function<std::string(const Manifest &)> &explain) {
  auto steps = agreeOnSteps(session, folder);
  if (!steps)
    return tl::unexpected(steps.error());
  std::string last;
  for (int64_t step : *steps) {
    Restorer restorer(session, generationPath(folder, step));
    auto problem = restorer.readHeader();
    if (problem && problem->empty()) {
      if (auto ok = restorer.check(fits, explain); !ok)
        return tl::unexpected(ok.error());
      problem = restorer.readStates();
    }
    if (!problem)
      return tl::unexpected(problem.error());
    if (problem->empty()) {
      auto result = restorer.result();
      if (!result)
        return tl::unexpected(result.error());
      return std::optional(std::move(*result));
    }
    last = *problem;
    if (session.isRoot())
      tell("'" + generationPath(folder, step) + "' is skipped: " + last);
  }
  if (!steps->empty())
    return makeError("none of the " + std::to_string(steps->size()) +
                     " generations of '" + folder + "' is whole: " + last);
  return std::optional<Restored>();
}
