//===- States.h - Sessions that have states and nothing else ----*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_CHECKPOINT_STATES_H
#define PARTITA_TEST_UNIT_CHECKPOINT_STATES_H

#include "partita/Runtime/CheckpointSession.h"

#include <catch2/catch.hpp>

#include <cstring>

namespace partita::runtime {

/// A state, and how a plan lays it: "[{12: dp}, {5}]".
struct LaidState {
  std::string name;
  DType type;
  std::string layout;
};

/// A session on threads whose program has no tasks.
inline std::unique_ptr<Session> sessionOf(const std::string &meshText,
                                          const std::vector<LaidState> &states) {
  Mesh mesh = *Mesh::parse(meshText);
  TaskTableBuilder table(mesh);
  uint64_t end = 0;
  for (const LaidState &state : states) {
    auto layout = Layout::parse(state.layout, mesh);
    if (!layout)
      FAIL(layout.error().message);
    uint64_t bytes =
        static_cast<uint64_t>(layout->localElements()) * byteWidth(state.type);
    uint32_t buffer = table.addBuffer(Space::State, end, bytes);
    table.addTensor({Role::State, state.type, state.name, *layout, buffer});
    end += (bytes + 63) / 64 * 64;
  }
  table.setMemory(0, 0, 0);
  table.setRegion(Space::State, end);
  std::string blob = table.finish();
  auto made = TaskTable::read(std::as_bytes(std::span(blob)));
  if (!made)
    FAIL(made.error().message);
  auto store = std::make_shared<WeightStore>(
      std::vector<std::shared_ptr<const InputFile>>(), *engineOf("cpu"));
  SessionOptions options;
  options.threads = 1;
  auto session = Session::start({Stage::fromParts(std::move(*made), {})}, store, options);
  if (!session)
    FAIL(session.error().message);
  return std::move(*session);
}

/// Values of a state behind a step, which all differ.
inline HostTensor valuesOf(const TensorInfo &info, int64_t step) {
  HostTensor values = HostTensor::zeros(info.type, info.shape);
  uint64_t seed = hashOf(std::as_bytes(std::span(info.name))).low + uint64_t(step) * 977;
  for (size_t i = 0; i < values.bytes.size(); ++i)
    values.bytes[i] = static_cast<std::byte>((seed + i * 131 + (i >> 8) * 17) % 251);
  return values;
}

inline void setStates(Session &session, int64_t step) {
  for (size_t i = 0; i < session.states().size(); ++i) {
    HostTensor values = valuesOf(session.states()[i], step);
    REQUIRE(session.writeState(i, values.bytes.data()).has_value());
  }
}

/// Whether all states are those behind a step.
inline bool hasStates(Session &session, int64_t step) {
  for (size_t i = 0; i < session.states().size(); ++i) {
    HostTensor expected = valuesOf(session.states()[i], step);
    HostTensor actual = HostTensor::zeros(expected.type, expected.shape);
    REQUIRE(session.readState(i, actual.bytes.data()).has_value());
    if (actual.bytes != expected.bytes)
      return false;
  }
  return true;
}

/// A folder with its saver.
struct Saving {
  CheckpointFolder folder;
  std::unique_ptr<CheckpointSaver> saver;

  Saving(Session &session, const std::string &path, int64_t keep)
      : folder(opened(session, path)) {
    auto made = CheckpointSaver::create(session, folder, {keep, 60});
    if (!made)
      FAIL(made.error().message);
    saver = std::move(*made);
  }
  static CheckpointFolder opened(Session &session, const std::string &path) {
    auto folder = CheckpointFolder::open(session, path);
    if (!folder)
      FAIL(folder.error().message);
    return std::move(*folder);
  }

  /// The sentence of what went wrong; empty: it is saved.
  std::string save(Session &session, int64_t step, const std::string &alsoAs = {}) {
    setStates(session, step);
    Manifest head;
    head.step = step, head.cursor = {step / 4, step % 4};
    if (!alsoAs.empty())
      head.best = BestStep{"model", step, 0.1, "8 rows"};
    REQUIRE(saver->save(head, -1, alsoAs).has_value());
    REQUIRE(saver->finish().has_value());
    return saver->takeFailure().value_or("");
  }
};

/// The step that was loaded; −1: there is none; the sentences on the way.
struct Loaded {
  int64_t step = -1;
  std::vector<std::string> told;
  std::string error;
  Restored restored = {};
};
inline Loaded load(Session &session, const std::string &folder) {
  Loaded loaded;
  auto found = restoreNewest(
      session, folder, [&](std::string_view text) { loaded.told.emplace_back(text); },
      [](const Restored &) { return Expected<void>(); });
  if (!found)
    loaded.error = found.error().message;
  else if (*found)
    loaded.step = (*found)->manifest.step, loaded.restored = std::move(**found);
  return loaded;
}

} // namespace partita::runtime

#endif // PARTITA_TEST_UNIT_CHECKPOINT_STATES_H
