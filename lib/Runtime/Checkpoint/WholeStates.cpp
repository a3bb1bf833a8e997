//===- WholeStates.cpp - Generations as single files, and as weights ------===//
#include "partita/Runtime/CheckpointSession.h"

#include "partita/Base/Files/SafeTensors.h"

#include <algorithm>
#include <filesystem>

using namespace partita;
using namespace partita::runtime;

/// "f32[3, 4]".
static std::string textOf(DType type, const std::vector<int64_t> &shape) {
  std::string text(name(type));
  for (size_t d = 0; d < shape.size(); ++d)
    text += (d == 0 ? "[" : ", ") + std::to_string(shape[d]);
  return text + (shape.empty() ? "" : "]");
}

/// The generation itself, or those of the folder, newest first. The newest that is whole
/// must be of a format that is known: to take an older one instead would be a mistake.
static Expected<std::vector<std::string>> candidates(const std::string &path) {
  std::vector<std::string> paths;
  std::error_code failed;
  if (std::filesystem::exists(path + "/manifest.json", failed)) {
    paths = {path};
  } else {
    auto all = generationsOf(path);
    if (!all)
      return tl::unexpected(all.error());
    for (const Generation &it : *all)
      paths.push_back(it.path);
  }
  if (paths.empty())
    return makeError("'" + path + "' has no generation");
  for (const std::string &generation : paths)
    if (auto manifest = readManifest(generation)) {
      if (auto ok = checkFormat(generation, *manifest); !ok)
        return tl::unexpected(ok.error());
      break;
    }
  return paths;
}

/// Everything but the last rename. `written` becomes why the file cannot be written,
/// which is no fault of the generation.
static Expected<Manifest> writeFrom(const std::string &generation,
                                    const std::string &file, Expected<void> &written) {
  auto manifest = readManifest(generation);
  if (!manifest)
    return manifest;
  if (auto ok = checkFormat(generation, *manifest).and_then([&] {
        return checkParts(generation, *manifest);
      });
      !ok)
    return tl::unexpected(ok.error());
  auto cannotWrite = [&](const Error &error) -> Expected<Manifest> {
    written = tl::unexpected(error);
    return tl::unexpected(error);
  };
  GenerationReader reader(generation, *manifest);
  SafeTensorsWriter writer;
  for (const Manifest::State &state : manifest->states)
    writer.declare(state.name, state.type, state.shape);
  auto begun = writer.begin(file, {{"steps", std::to_string(manifest->step)}});
  if (!begun)
    return cannotWrite(begun.error());
  for (const Manifest::State &state : manifest->states) {
    HostTensor whole = HostTensor::zeros(state.type, state.shape);
    auto read =
        reader.read(state, wholeRuns(state.shape), state.shape, whole.bytes.data());
    if (!read)
      return tl::unexpected(read.error());
    if (auto ok = writer.append(whole.bytes); !ok)
      return cannotWrite(ok.error());
  }
  auto finished = writer.finish();
  return finished ? manifest : cannotWrite(finished.error());
}

Expected<Manifest>
runtime::writeWholeStates(const std::string &path, const std::string &file,
                          const std::function<void(std::string_view)> &tell) {
  auto paths = candidates(path);
  if (!paths)
    return tl::unexpected(paths.error());
  std::string last;
  for (const std::string &generation : *paths) {
    auto aside = Aside::file(file);
    if (!aside)
      return tl::unexpected(aside.error());
    Expected<void> written;
    auto manifest = writeFrom(generation, aside->path(), written);
    if (manifest)
      written = aside->commit();
    if (!written)
      return tl::unexpected(written.error());
    if (manifest)
      return manifest;
    last = manifest.error().message;
    if (paths->size() > 1)
      tell("'" + generation + "' is skipped: " + last);
  }
  return makeError(last);
}

//===----------------------------------------------------------------------===//
// Weights for another run
//===----------------------------------------------------------------------===//

namespace {

/// The weights of a file or of a generation.
class WeightSource {
public:
  static Expected<WeightSource> open(const std::string &path) {
    WeightSource source;
    source.path = path;
    if (path.ends_with(".safetensors")) {
      auto file = InputFile::open(path);
      if (!file)
        return tl::unexpected(file.error());
      auto header = readSafeTensors(path);
      if (!header)
        return tl::unexpected(header.error());
      for (SafeTensorEntry &it : header->tensors)
        source.tensors[it.name] = {it.type, std::move(it.shape), *file, it.offset,
                                   nullptr};
      return source;
    }
    auto manifest = readManifest(path);
    if (!manifest)
      return tl::unexpected(manifest.error());
    if (auto ok = checkFormat(path, *manifest).and_then([&] {
          return checkParts(path, *manifest);
        });
        !ok)
      return tl::unexpected(ok.error());
    source.reader = std::make_unique<GenerationReader>(path, std::move(*manifest));
    return source;
  }

  Expected<void> read(const HeldState &state, const StatePart &part, std::byte *local) {
    auto wrong = [&](DType type, const std::vector<int64_t> &shape) -> Expected<void> {
      if (type == state.type && shape == state.shape)
        return {};
      return makeError("'" + path + "': weight '" + state.name + "' is " +
                       textOf(type, shape) + ", and the bundle's state is " +
                       textOf(state.type, state.shape));
    };
    if (reader) {
      const Manifest::State *saved = reader->manifest().find(state.name);
      if (!saved)
        return makeError("'" + path + "' has no state '" + state.name + "'");
      if (auto ok = wrong(saved->type, saved->shape); !ok)
        return ok;
      auto done = reader->read(*saved, part.runs, part.localShape, local);
      return done ? Expected<void>() : tl::unexpected(done.error());
    }
    auto tensor = tensors.find(state.name);
    if (tensor == tensors.end())
      return makeError("'" + path + "' has no tensor '" + state.name + "'");
    if (auto ok = wrong(tensor->second.type, tensor->second.shape); !ok)
      return ok;
    SliceCopy copy(part.runs, state.shape, part.localShape, byteWidth(state.type));
    auto done = readRuns(tensor->second, 0, copy, local);
    return done ? Expected<void>() : tl::unexpected(done.error());
  }

private:
  std::string path;
  std::unique_ptr<GenerationReader> reader;    ///< null: a file
  std::map<std::string, StoredTensor> tensors; ///< of the file
};

} // namespace

/// The sentence of what was wrong; empty: all weights are set.
static Expected<std::string> tryWeights(Session &session, const std::string &path) {
  auto source = WeightSource::open(path);
  std::string problem = source ? "" : source.error().message;
  std::vector<HeldState> held = session.heldStates();
  std::vector<std::string> problems(static_cast<size_t>(session.numRanks()));
  auto visit = [&](int rank, size_t state, uint32_t slot,
                   std::byte *local) -> Expected<void> {
    std::string &own = problems[static_cast<size_t>(rank)];
    for (const StatePart &part : held[state].parts)
      if (held[state].isWeight && part.rank == rank && part.slot == slot && own.empty())
        if (auto ok = source->read(held[state], part, local); !ok)
          own = ok.error().message;
    return {};
  };
  if (source)
    if (auto ok = session.fillStates(visit); !ok)
      return tl::unexpected(ok.error());
  for (const std::string &own : problems)
    if (problem.empty())
      problem = own;
  return agreeOnText(session, std::move(problem));
}

Expected<void> runtime::loadWeights(Session &session, const std::string &path,
                                    const std::function<void(std::string_view)> &tell) {
  std::string problem;
  std::vector<std::string> paths = {path};
  if (std::ranges::none_of(session.heldStates(), &HeldState::isWeight))
    return makeError("the bundle has no state that begins as a weight");
  // All processes see one folder.
  if (!path.ends_with(".safetensors")) {
    auto found = candidates(path);
    auto agreed = agreeOnText(session, found ? std::string() : found.error().message);
    if (!agreed)
      return tl::unexpected(agreed.error());
    if (!agreed->empty())
      return makeError(*agreed);
    paths = std::move(*found);
  }
  for (const std::string &it : paths) {
    auto wrong = tryWeights(session, it);
    if (!wrong)
      return tl::unexpected(wrong.error());
    if (wrong->empty())
      return {};
    problem = *wrong;
    if (paths.size() > 1 && session.isRoot())
      tell("'" + it + "' is skipped: " + problem);
  }
  return makeError(problem);
}
