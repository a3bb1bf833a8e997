//===- ReadFusion.cpp - Which collectives are one call --------------------===//
#include "Read.h"

using namespace partita;
using namespace partita::train;
using buckets::Fusion;

/// Numbers of parameters, ascending.
static Expected<std::vector<int32_t>> readIndex(const JsonValue &value) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<int32_t> index;
  for (const JsonValue &element : *elements) {
    auto number = element.asInteger(0, INT32_MAX);
    if (!number)
      return tl::unexpected(number.error());
    if (!index.empty() && *number <= index.back())
      return element.error("expected more than " + std::to_string(index.back()) +
                           ", as numbers of parameters ascend, got " +
                           std::to_string(*number));
    index.push_back(static_cast<int32_t>(*number));
  }
  if (index.empty())
    return value.error("expected at least one number of a parameter, got an empty list");
  return index;
}

static Expected<std::vector<std::vector<std::string>>>
readGroups(const JsonValue &value) {
  auto elements = value.elements();
  if (!elements)
    return tl::unexpected(elements.error());
  std::vector<std::vector<std::string>> groups;
  for (const JsonValue &element : *elements) {
    auto globs = readGlobs(element);
    if (!globs)
      return tl::unexpected(globs.error());
    groups.push_back(std::move(*globs));
  }
  return groups;
}

static Expected<CommFusion::Kind> readKind(const JsonValue &value) {
  CommFusion::Kind read;
  if (auto ok = value.allowOnly({"mode", "config", "groups"}); !ok)
    return tl::unexpected(ok.error());
  auto given = value.at("mode");
  if (!given)
    return tl::unexpected(given.error());
  static constexpr std::string_view names[] = {"auto", "size", "index"};
  auto mode = readName(*given, names);
  if (!mode)
    return tl::unexpected(mode.error());
  read.fusion.mode = static_cast<Fusion::Mode>(*mode);
  const bool takesConfig = read.fusion.mode != Fusion::Mode::Auto;
  if (value.has("config") && !takesConfig)
    return value.error("\"config\" is of size and index, the mode is auto");
  if (auto config = value.at("config"); takesConfig && !config)
    return tl::unexpected(config.error());
  auto ok = readMember(value, "groups", read.groups, readGroups);
  if (ok && read.fusion.mode == Fusion::Mode::Size)
    ok = readMember(value, "config", read.fusion.bytes, readCount);
  if (ok && read.fusion.mode == Fusion::Mode::Index)
    ok = readMember(value, "config", read.fusion.index, readIndex);
  if (!ok)
    return tl::unexpected(ok.error());
  return read;
}

Expected<CommFusion> train::readFusion(const JsonValue &value) {
  CommFusion read;
  if (auto ok = value.allowOnly({"openstate", "allreduce", "allgather", "reducescatter"});
      !ok)
    return tl::unexpected(ok.error());
  bool isOpen = true;
  Expected<void> ok = readMember(value, "openstate", isOpen, readFlag);
  for (size_t k = 0; k < buckets::numCallKinds && ok; ++k)
    ok = readMember(value, buckets::name(static_cast<buckets::CallKind>(k)),
                    read.kinds[k], readKind);
  if (!ok)
    return tl::unexpected(ok.error());
  return isOpen ? read : CommFusion::closed();
}
