//===- StateFile.cpp - The states of a session as a file ------------------===//
#include "partita/Runtime/StateFile.h"

#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/SafeTensors.h"

#include <algorithm>
#include <charconv>

using namespace partita;
using namespace partita::runtime;

/// Tensors that SafeTensorsWriter fills gaps with.
static constexpr std::string_view padName = "__pad__";
static constexpr const char *stepsName = "steps";

static std::string typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = std::string(name(type)) + "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Everything but the last rename. Of an MPI job only the root has a writer, but all
/// take part in reading each state.
static Expected<void> writeAll(Session &session, const std::string &path, int64_t steps) {
  SafeTensorsWriter writer;
  SafeTensorsWriter::Metadata metadata;
  if (steps > 0)
    metadata.emplace_back(stepsName, std::to_string(steps));
  for (const TensorInfo &info : session.states()) {
    writer.declare(info.name, info.type, info.shape);
    metadata.emplace_back("layout of " + info.name, info.layout);
  }
  if (session.isRoot())
    if (auto begun = writer.begin(path, metadata); !begun)
      return tl::unexpected(begun.error());
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < session.states().size(); ++i) {
    bytes.resize(session.isRoot() ? session.states()[i].bytes() : 0);
    if (auto ok = session.readState(i, bytes.data()); !ok)
      return ok;
    if (session.isRoot())
      if (auto ok = writer.append(bytes); !ok)
        return ok;
  }
  return session.isRoot() ? writer.finish().map([](auto &&) {}) : Expected<void>();
}

Expected<void> runtime::saveStates(Session &session, const std::string &path,
                                   int64_t steps) {
  if (!session.isRoot())
    return writeAll(session, {}, steps);
  auto aside = Aside::file(path);
  if (!aside)
    return tl::unexpected(aside.error());
  auto ok = writeAll(session, aside->path(), steps);
  return ok ? aside->commit() : ok;
}

static Expected<void> check(const Session &session, const SafeTensorsFile &file,
                            const std::string &path) {
  for (const TensorInfo &info : session.states()) {
    const SafeTensorEntry *entry = file.find(info.name);
    if (!entry)
      return makeError("'" + path + "' has no state '" + info.name + "'");
    if (entry->type != info.type || entry->shape != info.shape)
      return makeError("'" + path + "': state '" + info.name + "' is " +
                       typeText(entry->type, entry->shape) + ", expected " +
                       typeText(info.type, info.shape));
  }
  for (const SafeTensorEntry &entry : file.tensors)
    if (!entry.name.starts_with(padName) &&
        std::ranges::none_of(session.states(),
                             [&](auto &info) { return info.name == entry.name; }))
      return makeError("'" + path + "' has a state '" + entry.name +
                       "', which the bundle has not");
  return {};
}

Expected<void> runtime::loadStates(Session &session, const std::string &path) {
  auto file = readSafeTensors(path);
  if (!file)
    return tl::unexpected(file.error());
  if (auto ok = check(session, *file, path); !ok)
    return ok;
  for (size_t i = 0; i < session.states().size(); ++i)
    if (auto ok = session.writeState(
            i, file->bytes(*file->find(session.states()[i].name)).data());
        !ok)
      return ok;
  return {};
}

Expected<int64_t> runtime::savedSteps(const std::string &path) {
  auto file = readSafeTensors(path);
  if (!file)
    return tl::unexpected(file.error());
  for (const auto &[key, text] : file->metadata) {
    if (key != stepsName)
      continue;
    int64_t steps = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
    if (error != std::errc() || end != text.data() + text.size() || steps < 0)
      return makeError("'" + path +
                       "': expected a number of steps in its metadata, got '" + text +
                       "'");
    return steps;
  }
  return 0;
}
