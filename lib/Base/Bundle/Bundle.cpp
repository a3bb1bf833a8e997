//===- Bundle.cpp - The output folder of a compile ------------------------===//
#include "partita/Base/Bundle/Bundle.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;
using nlohmann::ordered_json;

std::string_view partita::partitaVersion() { return PARTITA_VERSION; }

std::string Bundle::json() const {
  ordered_json entryList = ordered_json::array();
  for (const BundleEntry &entry : entries) {
    ordered_json stages = ordered_json::array();
    for (const BundleStage &stage : entry.stages)
      stages.push_back({{"library", stage.file},
                        {"hash", stage.hash.str()},
                        {"memory_per_rank",
                         {{"arena", stage.arenaBytes},
                          {"weights", stage.weightBytes},
                          {"packed_weights", stage.packedBytes}}}});
    ordered_json record = {{"name", entry.name}, {"stages", stages}};
    if (!entry.sliced.empty())
      record["sliced"] = entry.sliced;
    if (!entry.outputs.empty())
      record["outputs"] = entry.outputs;
    if (!entry.dims.empty())
      record["dims"] = entry.dims;
    if (!entry.sizes.empty())
      record["sizes"] = entry.sizes;
    for (const auto &[key, name] :
         {std::pair("skipped", entry.flags.skipped), {"stop", entry.flags.stop}})
      if (!name.empty())
        record["flags"][key] = name;
    if (entry.plan != "plan.json")
      record["plan"] = entry.plan;
    entryList.push_back(std::move(record));
  }
  ordered_json files = ordered_json::array();
  for (const WeightFile &file : weightFiles) {
    ordered_json record = {
        {"path", file.path}, {"size", file.size}, {"blocks", file.blocks}};
    if (file.isOfModel())
      record.update({{"location", file.location},
                     {"relative", file.relative},
                     {"modified_ns", file.modified},
                     {"inode", file.inode}});
    files.push_back(std::move(record));
  }
  ordered_json root = {{"format", bundleFormat},  {"partita", partitaVersion()},
                       {"model", model},          {"target", target},
                       {"target_cpu", targetCpu}, {"cpu_features", cpuFeatures},
                       {"threads", threads},      {"mesh", mesh.str()},
                       {"ranks", numRanks()},     {"entries", entryList},
                       {"inputs", inputs},        {"weight_files", files}};
  if (compute != Bundle().compute)
    root["compute"] = compute;
  if (isWorld)
    root["world"] = true;
  for (const BundleWorld &world : worlds)
    root["worlds"].push_back({{"ranks", world.ranks}, {"path", world.path}});
  return root.dump(2) + "\n";
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// Reads members one after the other; the first error is kept and the rest are skipped.
class Fields {
public:
  explicit Fields(const JsonValue &value) : value(value) {}

  template <typename T, typename Read> void read(std::string_view key, T &out, Read get) {
    if (error)
      return;
    auto member = value.at(key);
    if (!member)
      return fail(member.error());
    auto result = get(*member);
    if (!result)
      return fail(result.error());
    out = static_cast<T>(std::move(*result));
  }
  void read(std::string_view key, std::string &out) {
    read(key, out, [](const JsonValue &v) { return v.asString(); });
  }
  void read(std::string_view key, std::vector<std::string> &out) {
    read(key, out, [](const JsonValue &v) { return v.asStrings(); });
  }
  void read(std::string_view key, uint64_t &out) {
    read(key, out, [](const JsonValue &v) { return v.asInteger(0, INT64_MAX); });
  }
  void read(std::string_view key, int64_t &out) {
    read(key, out, [](const JsonValue &v) { return v.asInteger(); });
  }
  void fail(Error e) { error = std::move(e); }

  std::optional<Error> error;

private:
  const JsonValue &value;
};
} // namespace

/// A path inside the bundle: relative, and no component is "..".
static Expected<void> checkInside(const JsonValue &where, const std::string &path) {
  std::filesystem::path p(path);
  bool escapes = p.empty() || p.is_absolute();
  for (const auto &part : p)
    escapes |= part == "..";
  if (escapes)
    return where.error("the path '" + path + "' leaves the bundle");
  return {};
}

static Expected<BundleStage> readStage(const JsonValue &value) {
  BundleStage stage;
  Fields fields(value);
  fields.read("library", stage.file);
  std::string hash;
  fields.read("hash", hash);
  if (fields.error)
    return tl::unexpected(*fields.error);
  if (auto ok = checkInside(value, stage.file); !ok)
    return tl::unexpected(ok.error());
  auto parsed = parseHash(hash);
  if (!parsed)
    return value.error("hash: expected 32 hexadecimal digits");
  stage.hash = *parsed;
  auto memory = value.at("memory_per_rank");
  if (!memory)
    return tl::unexpected(memory.error());
  Fields sizes(*memory);
  sizes.read("arena", stage.arenaBytes);
  sizes.read("weights", stage.weightBytes);
  sizes.read("packed_weights", stage.packedBytes);
  if (sizes.error)
    return tl::unexpected(*sizes.error);
  return stage;
}

template <typename T, typename Read>
static Expected<std::vector<T>> readList(const JsonValue &parent, const char *key,
                                         Read read) {
  auto member = parent.at(key);
  if (!member)
    return tl::unexpected(member.error());
  auto items = member->elements();
  if (!items)
    return tl::unexpected(items.error());
  std::vector<T> out;
  for (const JsonValue &item : *items) {
    Expected<T> one = read(item);
    if (!one)
      return tl::unexpected(one.error());
    out.push_back(std::move(*one));
  }
  return out;
}

static Expected<BundleEntry> readEntry(const JsonValue &value) {
  BundleEntry entry;
  Fields fields(value);
  fields.read("name", entry.name);
  if (fields.error)
    return tl::unexpected(*fields.error);
  for (auto [key, list] : {std::pair("sliced", &entry.sliced),
                           {"outputs", &entry.outputs},
                           {"sizes", &entry.sizes}})
    if (value.has(key)) {
      auto names = value.at(key)->asStrings();
      if (!names)
        return tl::unexpected(names.error());
      *list = std::move(*names);
    }
  if (value.has("dims")) {
    auto dims = value.at("dims")->members();
    if (!dims)
      return tl::unexpected(dims.error());
    for (const auto &[name, list] : *dims) {
      auto names = list.asStrings();
      if (!names)
        return tl::unexpected(names.error());
      entry.dims[name] = std::move(*names);
    }
  }
  if (value.has("flags")) {
    const JsonValue flags = *value.at("flags");
    if (auto ok = flags.allowOnly({"skipped", "stop"}); !ok)
      return tl::unexpected(ok.error());
    Fields named(flags);
    for (auto [key, name] :
         {std::pair("skipped", &entry.flags.skipped), {"stop", &entry.flags.stop}})
      if (flags.has(key))
        named.read(key, *name);
    if (named.error)
      return tl::unexpected(*named.error);
  }
  if (value.has("plan")) {
    fields.read("plan", entry.plan);
    if (fields.error)
      return tl::unexpected(*fields.error);
    if (auto ok = checkInside(value, entry.plan); !ok)
      return tl::unexpected(ok.error());
  }
  auto stages = readList<BundleStage>(value, "stages", readStage);
  if (!stages)
    return tl::unexpected(stages.error());
  if (stages->empty())
    return value.error("an entry point needs a stage");
  entry.stages = std::move(*stages);
  return entry;
}

/// `isWorld`: the path may lead to the bundle that this one is a world of.
static Expected<void> checkWeightPath(const JsonValue &where, std::string_view path,
                                      bool isWorld) {
  if (isWorld && path.starts_with(sharedByWorlds))
    path.remove_prefix(sharedByWorlds.size());
  return checkInside(where, std::string(path));
}

static Expected<WeightFile> readWeightFile(const JsonValue &value, bool isWorld) {
  WeightFile file;
  Fields fields(value);
  fields.read("path", file.path);
  fields.read("size", file.size);
  fields.read("blocks", file.blocks);
  bool isOfModel = value.has("location");
  if (isOfModel) {
    fields.read("location", file.location);
    fields.read("relative", file.relative);
    fields.read("modified_ns", file.modified);
    fields.read("inode", file.inode);
  }
  if (fields.error)
    return tl::unexpected(*fields.error);
  for (const std::string &path : {isOfModel ? file.location : file.path, file.blocks})
    if (auto ok = checkWeightPath(value, path, isWorld); !ok)
      return tl::unexpected(ok.error());
  if (isOfModel && !file.path.starts_with('/'))
    return value.error("path: expected an absolute path of a file of the model");
  return file;
}

static Expected<BundleWorld> readWorld(const JsonValue &value) {
  BundleWorld world;
  Fields fields(value);
  fields.read("ranks", world.ranks,
              [](const JsonValue &v) { return v.asInteger(1, 1 << 20); });
  fields.read("path", world.path);
  if (fields.error)
    return tl::unexpected(*fields.error);
  if (auto ok = checkInside(value, world.path); !ok)
    return tl::unexpected(ok.error());
  return world;
}

static Expected<void> readWorldsOf(const JsonValue &root, Bundle &bundle) {
  if (root.has("world")) {
    auto isWorld = root.at("world")->asBool();
    if (!isWorld)
      return tl::unexpected(isWorld.error());
    bundle.isWorld = *isWorld;
  }
  if (!root.has("worlds"))
    return {};
  return readList<BundleWorld>(root, "worlds", readWorld).map([&](auto worlds) {
    bundle.worlds = std::move(worlds);
  });
}

/// Format and version first: a bundle of another version is told apart from a damaged
/// one.
static Expected<void> checkVersions(const JsonValue &root) {
  int64_t format = 0;
  std::string version;
  Fields fields(root);
  fields.read("format", format);
  fields.read("partita", version);
  if (fields.error)
    return tl::unexpected(*fields.error);
  if (format != bundleFormat)
    return makeError(root.where() + ": the bundle has format " + std::to_string(format) +
                     " (written by Partita " + version + "), this is Partita " +
                     std::string(partitaVersion()) + " and reads format " +
                     std::to_string(bundleFormat) + "; compile the model again");
  return {};
}

Expected<Bundle> partita::readBundle(const std::string &folder) {
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0)
    return makeError("cannot open bundle '" + folder + "': " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return makeError("'" + folder + "' is not a bundle: it is not a folder");
  auto root = readJsonFile(folder + "/bundle.json");
  if (!root)
    return tl::unexpected(root.error());
  if (auto ok = checkVersions(*root); !ok)
    return tl::unexpected(ok.error());
  Bundle bundle;
  std::string mesh;
  int64_t ranks = 0;
  Fields fields(*root);
  fields.read("model", bundle.model);
  fields.read("target", bundle.target);
  fields.read("target_cpu", bundle.targetCpu);
  fields.read("cpu_features", bundle.cpuFeatures);
  fields.read("threads", bundle.threads,
              [](const JsonValue &v) { return v.asInteger(1, 4096); });
  fields.read("mesh", mesh);
  fields.read("ranks", ranks);
  fields.read("inputs", bundle.inputs);
  if (root->has("compute"))
    fields.read("compute", bundle.compute);
  if (fields.error)
    return tl::unexpected(*fields.error);
  Expected<Mesh> parsed = Mesh::parse(mesh);
  if (!parsed)
    return root->error("mesh: " + parsed.error().message);
  bundle.mesh = std::move(*parsed);
  auto entries = readList<BundleEntry>(*root, "entries", readEntry);
  if (!entries)
    return tl::unexpected(entries.error());
  if (entries->empty())
    return root->error("the bundle has no entry point");
  if (entries->front().stages.size() > 1 && ranks > 1 && ranks < (1 << 20))
    bundle.ranks = ranks;
  if (bundle.numRanks() != ranks)
    return root->error("ranks is " + std::to_string(ranks) + ", the mesh has " +
                       std::to_string(bundle.numRanks()));
  if (auto ok = readWorldsOf(*root, bundle); !ok)
    return tl::unexpected(ok.error());
  auto files = readList<WeightFile>(*root, "weight_files", [&](const JsonValue &value) {
    return readWeightFile(value, bundle.isWorld);
  });
  if (!files)
    return tl::unexpected(files.error());
  bundle.entries = std::move(*entries);
  bundle.weightFiles = std::move(*files);
  return bundle;
}

Expected<std::vector<World>> partita::readWorlds(const std::string &folder) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  std::vector<World> all = {{bundle->numRanks(), folder, bundle->mesh.str()}};
  for (const BundleWorld &world : bundle->worlds) {
    const std::string inside = folder + "/" + world.path;
    auto other = readBundle(inside);
    if (!other)
      return tl::unexpected(other.error());
    if (other->numRanks() != world.ranks)
      return makeError("'" + inside + "' has " + std::to_string(other->numRanks()) +
                       " ranks, '" + folder + "' says " + std::to_string(world.ranks));
    all.push_back({world.ranks, inside, other->mesh.str()});
  }
  std::ranges::sort(all, {}, &World::ranks);
  return all;
}

Expected<std::string> partita::planFile(const std::string &folder,
                                        const std::string &entry) {
  if (entry.empty())
    return folder + "/plan.json";
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  std::string names;
  for (const BundleEntry &it : bundle->entries) {
    if (it.name == entry)
      return folder + "/" + it.plan;
    names += (names.empty() ? "'" : ", '") + it.name + "'";
  }
  return makeError("'" + folder + "' has no entry point '" + entry + "'; it has " +
                   names);
}
