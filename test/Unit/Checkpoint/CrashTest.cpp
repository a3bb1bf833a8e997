//===- CrashTest.cpp - Whatever a crash leaves, a generation is whole -----===//
#include "../Base/TestFolder.h"
#include "../Main/Tier.h"
#include "Disk.h"
#include "States.h"

#include <cerrno>
#include <filesystem>

using namespace partita;
using namespace partita::runtime;

static const std::vector<LaidState> &states() {
  static const std::vector<LaidState> list = {{"w", DType::F32, "[{48: dp}, {40}]"},
                                              {"b", DType::F32, "[{40}]"},
                                              {"step", DType::I64, "[]"}};
  return list;
}

namespace {
/// Operations of some saves, and how far each had come.
struct Recorded {
  std::vector<disk::Operation> operations;
  /// By step: operations when it was known to be saved.
  std::vector<std::pair<int64_t, size_t>> done;
};
} // namespace

static Recorded recordSaves() {
  Folder folder;
  auto session = sessionOf("dp=2", states());
  Saving saving(*session, folder / "c", 1);
  Recorded result;
  disk::record(folder / "c");
  for (int64_t step : {1, 2, 3}) {
    CHECK(saving.save(*session, step) == "");
    result.done.emplace_back(step, disk::count());
  }
  result.operations = disk::stop();
  return result;
}

TEST_CASE("crashes: every operation of a save is recorded") {
  Recorded recorded = recordSaves();
  size_t counts[7] = {};
  for (const disk::Operation &it : recorded.operations)
    ++counts[it.kind];
  // Three saves of two ranks: 6 files each. The first two are removed.
  CHECK(counts[disk::Operation::MakeFolder] == 3);
  CHECK(counts[disk::Operation::Create] == 18);
  CHECK(counts[disk::Operation::Write] >= 18);
  CHECK(counts[disk::Operation::SyncFile] == 18);
  CHECK(counts[disk::Operation::SyncFolder] == 3 * 4);
  CHECK(counts[disk::Operation::Rename] == 3 + 2);
  CHECK(counts[disk::Operation::Remove] == 2 * 7);
}

TEST_CASE("crashes: a whole generation loads from every state that one can leave") {
  Recorded recorded = recordSaves();
  Folder folder;
  auto session = sessionOf("dp=2", states());
  disk::Model model;
  std::mt19937 random(1);
  using Left = disk::Model::Left;
  size_t checked = 0;
  for (size_t k = 0; k <= recorded.operations.size(); ++k) {
    if (k > 0)
      model.apply(recorded.operations[k - 1]);
    int64_t least = -1;
    for (auto [step, count] : recorded.done)
      if (count <= k)
        least = step;
    auto check = [&](Left left, size_t alone = SIZE_MAX) {
      model.materialize(folder / "c", left, random, alone);
      Loaded loaded = load(*session, folder / "c");
      INFO("behind operation " << k << ", what is left " << int(left) << ", but item "
                               << alone);
      CHECK(loaded.error == "");
      CHECK(loaded.told.empty());
      CHECK(loaded.step >= least);
      CHECK((loaded.step < 0 || hasStates(*session, loaded.step)));
      ++checked;
    };
    check(Left::All);
    check(Left::Nothing);
    for (size_t item = 0; item < model.numPending(); ++item) {
      check(Left::All, item);
      check(Left::Nothing, item);
    }
    for (int draw = 0; draw < 4; ++draw)
      check(Left::Drawn);
  }
  CHECK(checked > 1000);
}

TEST_CASE("crashes: a second name is that of a whole generation, or of none") {
  Folder folder;
  auto session = sessionOf("dp=2", states());
  Saving saving(*session, folder / "c", 1);
  const std::string best = bestPath(folder / "c", "model");
  CHECK(saving.save(*session, 1, best) == "");
  disk::record(folder / "c");
  CHECK(saving.save(*session, 2, best) == "");
  const size_t count = disk::stop().size();
  for (size_t at = 0; at < count; ++at) {
    disk::record(folder / "c");
    disk::failFrom(at, EIO);
    std::string sentence = saving.save(*session, 3, best);
    disk::stop();
    INFO("operation " << at << " fails: " << sentence);
    CHECK(sentence.empty() != saving.saver->takeLostName());
    if (auto manifest = readManifest(best)) {
      CHECK((manifest->step == 2 || manifest->step == 3));
      CHECK(checkParts(best, *manifest).has_value());
    } else {
      CHECK(!std::filesystem::exists(best));
    }
    CHECK(saving.save(*session, 2, best) == "");
  }
}

TEST_CASE("crashes: without one of the syncs some state has no whole generation") {
  // The model sees what it is there for: each sync of a file or of the folder is needed.
  Recorded recorded = recordSaves();
  Folder folder;
  auto session = sessionOf("dp=2", states());
  auto isLost = [&](auto isLeftOut) {
    disk::Model model;
    std::mt19937 random(1);
    for (size_t k = 0; k < recorded.done.back().second; ++k)
      if (!isLeftOut(recorded.operations[k]))
        model.apply(recorded.operations[k]);
    model.materialize(folder / "c", disk::Model::Left::Nothing, random);
    Loaded loaded = load(*session, folder / "c");
    return loaded.step != 3;
  };
  using Kind = disk::Operation::Kind;
  CHECK(!isLost([](const auto &) { return false; }));
  CHECK(isLost([](const auto &it) { return it.kind == Kind::SyncFile; }));
  CHECK(isLost([](const auto &it) { return it.kind == Kind::SyncFolder; }));
  CHECK(isLost(
      [](const auto &it) { return it.kind == Kind::SyncFolder && it.path.empty(); }));
  CHECK(isLost([](const auto &it) {
    return it.kind == Kind::SyncFile && it.path.ends_with("manifest.json");
  }));
}

TEST_CASE(
    "crashes: a save that fails anywhere leaves the one before, and the next works") {
  size_t count = recordSaves().done[0].second;
  for (size_t at = 0; at < count; ++at)
    for (int error : {ENOSPC, EROFS, EIO}) {
      Folder folder;
      auto session = sessionOf("dp=2", states());
      Saving saving(*session, folder / "c", 1);
      CHECK(saving.save(*session, 1) == "");
      disk::record(folder / "c");
      disk::failFrom(at, error);
      std::string sentence = saving.save(*session, 2);
      disk::stop();
      INFO("operation " << at << " fails with " << error << ": " << sentence);
      // The name may be there already, when the disk fails to keep it.
      bool isNamed = std::filesystem::exists(folder / "c/step-2");
      CHECK(sentence.find(std::strerror(error)) != std::string::npos);
      CHECK(sentence.find(folder / "c") != std::string::npos);
      auto other = sessionOf("", {{"w", DType::F32, "[{48}, {40}]"},
                                  {"b", DType::F32, "[{40}]"},
                                  {"step", DType::I64, "[]"}});
      Loaded loaded = load(*other, folder / "c");
      CHECK(loaded.step == (isNamed ? 2 : 1));
      CHECK(hasStates(*other, loaded.step));
      CHECK(saving.save(*session, 3) == "");
      CHECK(load(*other, folder / "c").step == 3);
    }
}
