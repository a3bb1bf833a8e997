//===- Generations.cpp - Writing generations, and which there are ---------===//
#include "partita/Runtime/Checkpoint.h"

#include "partita/Base/Files/SafeTensors.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
namespace fs = std::filesystem;

static constexpr std::string_view prefix = "step-";

/// The step of "step-40"; other names have none.
static std::optional<int64_t> stepOf(std::string_view name) {
  if (!name.starts_with(prefix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t step = 0;
  auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), step);
  bool isNumber = failed == std::errc() && end == name.data() + name.size() && step >= 0;
  return isNumber ? std::optional(step) : std::nullopt;
}

std::string runtime::generationPath(const std::string &folder, int64_t step) {
  return folder + "/" + std::string(prefix) + std::to_string(step);
}

static constexpr std::string_view bestPrefix = "best-";

std::string runtime::bestPath(const std::string &folder, const std::string &name) {
  return folder + "/" + std::string(bestPrefix) + name;
}

/// Tells whether a folder is a generation, which may be damaged.
static bool isGeneration(const std::string &path) {
  std::error_code unreadable;
  return fs::exists(path + "/manifest.json", unreadable);
}

Expected<std::vector<Generation>> runtime::generationsOf(const std::string &folder) {
  std::vector<Generation> found;
  std::error_code failed;
  if (isGeneration(folder))
    return makeError("'" + folder +
                     "' is a generation itself; expected the folder of a "
                     "run's generations");
  fs::directory_iterator it(folder, failed);
  if (failed == std::errc::no_such_file_or_directory)
    return found;
  for (; !failed && it != fs::directory_iterator(); it.increment(failed))
    if (auto step = stepOf(it->path().filename().string()))
      found.push_back({*step, it->path().string()});
  if (failed)
    return makeError("cannot read the folder '" + folder + "': " + failed.message());
  std::ranges::sort(found, std::greater(), &Generation::step);
  return found;
}

void runtime::removeAbandonedGenerations(const std::string &folder) {
  std::error_code ignored;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::string name = it->path().filename().string();
    std::string step = name.substr(0, name.find(".tmp-"));
    if (step.size() < name.size() && (stepOf(step) || step.starts_with(bestPrefix)))
      paths.push_back(folder + "/" + step);
  }
  for (const std::string &path : paths)
    removeAbandoned(path);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Expected<void> runtime::writePart(const std::string &folder, size_t part,
                                  const std::string &incarnation, int64_t step,
                                  const std::vector<HeldState> &states,
                                  const std::vector<Piece> &pieces,
                                  const std::byte *bytes,
                                  std::atomic<uint64_t> &written) {
  // So that little is left to do at the end, and a disk that is stuck is seen.
  constexpr uint64_t syncBytes = uint64_t(64) << 20;
  SafeTensorsWriter writer;
  for (const Piece &piece : pieces)
    writer.declare(piece.tensor, states[piece.state].type, extentsOf(piece.runs));
  auto begun =
      writer.begin(folder + "/" + partFile(part),
                   {{"incarnation", incarnation}, {"step", std::to_string(step)}});
  if (!begun)
    return tl::unexpected(begun.error());
  uint64_t at = 0, unsynced = 0;
  for (const Piece &piece : pieces) {
    at = pieceBegin(at);
    uint64_t own = bytesOf(piece, states);
    if (auto ok = writer.append({bytes + at, own}); !ok)
      return ok;
    at += own, unsynced += own, written += own;
    if (unsynced < syncBytes)
      continue;
    if (auto ok = writer.sync(); !ok)
      return ok;
    unsynced = 0;
  }
  if (auto ok = writer.sync(); !ok)
    return ok;
  auto list = writer.finish();
  if (!list)
    return tl::unexpected(list.error());
  ++written;
  if (auto ok = writeSynced(folder + "/" + partBlocks(part), list->text()); !ok)
    return ok;
  return syncFolder(folder);
}

/// Takes the name from a generation, then removes it: no half of one has a name.
static void removeGeneration(const std::string &path) {
  std::string aside = Aside::nameOf(path, Aside::draw());
  std::error_code failed;
  fs::rename(path, aside, failed);
  if (!failed)
    fs::remove_all(aside, failed);
}

/// Tells whether nothing of a generation is missing, without reading its numbers.
static bool isComplete(const std::string &path) {
  return readManifest(path)
      .and_then([&](const Manifest &manifest) { return checkParts(path, manifest); })
      .has_value();
}

/// Keeps `keep` generations up to the step. A damaged one is none of them: a run would
/// have nothing to go on from.
static void removeOld(const std::string &folder, int64_t step, int64_t keep) {
  auto all = generationsOf(folder);
  int64_t kept = 0;
  for (const Generation &it : all.value_or(std::vector<Generation>())) {
    if (!isGeneration(it.path))
      continue; // a folder or file of somebody else
    if (it.step > step || kept >= keep)
      removeGeneration(it.path);
    else
      kept += isComplete(it.path);
  }
}

/// Makes `to` the file `from`, or one with its bytes, which are on the disk then.
static Expected<void> linkFile(const fs::path &from, const fs::path &to) {
  std::error_code failed;
  fs::create_hard_link(from, to, failed);
  if (!failed)
    return {};
  // Some file systems have no links.
  fs::copy_file(from, to, failed);
  if (failed)
    return makeError("cannot write '" + to.string() + "': " + failed.message());
  const int file = ::open(to.c_str(), O_WRONLY | O_CLOEXEC);
  const int problem = file >= 0 && ::fsync(file) == 0 ? 0 : errno;
  if (file >= 0)
    ::close(file);
  return problem == 0
             ? Expected<void>()
             : makeError("cannot write '" + to.string() + "': " + std::strerror(problem));
}

Expected<void> runtime::nameGeneration(const std::string &generation,
                                       const std::string &path) {
  auto aside = Aside::folder(path);
  if (!aside)
    return tl::unexpected(aside.error());
  std::error_code failed;
  fs::directory_iterator it(generation, failed);
  for (; !failed && it != fs::directory_iterator(); it.increment(failed))
    if (auto ok = linkFile(it->path(), fs::path(aside->path()) / it->path().filename());
        !ok)
      return ok;
  if (failed)
    return makeError("cannot read the folder '" + generation + "': " + failed.message());
  if (auto ok = syncFolder(aside->path()); !ok)
    return ok;
  if (auto ok = aside->commitReplacing(); !ok)
    return ok;
  return syncFolder(fs::path(path).parent_path().string());
}

Expected<void> runtime::publish(Aside aside, const std::string &folder, Manifest manifest,
                                int64_t keep, const std::string &alsoAs) {
  for (Manifest::Part &part : manifest.parts) {
    auto file = InputFile::open(aside.path() + "/" + part.file);
    if (!file)
      return tl::unexpected(file.error());
    part.bytes = (*file)->size();
  }
  std::string text = manifest.json(), at = aside.path() + "/manifest";
  BlockHasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  if (auto ok = writeSynced(at + ".blocks", hasher.finish().text()); !ok)
    return ok;
  if (auto ok = writeSynced(at + ".json", text); !ok)
    return ok;
  if (auto ok = syncFolder(aside.path()); !ok)
    return ok;
  if (auto number = parseIncarnation(manifest.incarnation))
    if (auto ok = checkIncarnation(folder, *number); !ok)
      return ok;
  // A generation of this name is a damaged one that was not taken, or the one from which
  // the run went on.
  if (auto ok = aside.commitReplacing(); !ok)
    return ok;
  if (auto ok = syncFolder(folder); !ok)
    return ok;
  if (!alsoAs.empty())
    if (auto ok = nameGeneration(generationPath(folder, manifest.step), alsoAs); !ok)
      return ok;
  // The new generation is there, whatever becomes of the old ones.
  removeOld(folder, manifest.step, keep);
  return {};
}
