//===- CheckpointTest.cpp - Generations go from any plan to any other -----===//
#include "../Base/TestFolder.h"
#include "States.h"

#include <filesystem>
#include <fstream>
#include <numeric>

using namespace partita;
using namespace partita::runtime;

namespace {
/// States as a plan lays them.
struct Plan {
  std::string mesh;
  std::vector<LaidState> states;
};
} // namespace

/// A weight, its fused neighbor, a dim that does not divide, one with given blocks, a
/// small tensor, and a scalar.
static Plan planOf(const std::string &mesh, const std::string &w,
                   const std::string &fused, const std::string &odd,
                   const std::string &small) {
  return {mesh,
          {{"w", DType::F32, w},
           {"fused", DType::BF16, fused},
           {"odd", DType::F32, odd},
           {"small", DType::F64, small},
           {"step", DType::I64, "[]"}}};
}

static std::vector<Plan> plans() {
  return {
      planOf("", "[{48}, {40}]", "[{24}, {96}]", "[{13}, {7}]", "[{6}]"),
      planOf("dp=2", "[{48}, {40}]", "[{24}, {96}]", "[{13}, {7}]", "[{6}]"),
      planOf("dp=2", "[{48: dp}, {40}]", "[{24: dp}, {96}]", "[{13/14: dp}, {7}]",
             "[{6: dp}]"),
      planOf("tp=4", "[{48}, {40: tp}]", "[{24}, {3}*{32: tp}]", "[{13/16: tp}, {7}]",
             "[{6/8: tp}]"),
      planOf("dp=2,tp=2", "[{48: dp}, {40: tp}]", "[{24}, {3}*{32: tp}]",
             "[{13=4+9: dp}, {7/8: tp}]", "[{6: tp}]"),
      planOf("dp=3,tp=2", "[{48: dp, tp}, {40}]", "[{24: dp}, {3}*{32: tp}]",
             "[{13}, {7/8: tp}]", "[{6: dp}]"),
      planOf("dp=8", "[{48}, {40}]", "[{24}, {96}]", "[{13}, {7}]", "[{6}]"),
  };
}

TEST_CASE("checkpoints: a generation of any plan loads into any other") {
  std::vector<Plan> all = plans();
  for (const Plan &from : all) {
    Folder folder;
    auto session = sessionOf(from.mesh, from.states);
    Saving saving(*session, folder / "c", 2);
    CHECK(saving.save(*session, 7) == "");
    for (const Plan &to : all) {
      INFO("'" + from.mesh + "' to '" + to.mesh + "'");
      auto other = sessionOf(to.mesh, to.states);
      Loaded loaded = load(*other, folder / "c");
      CHECK(loaded.error == "");
      CHECK(loaded.step == 7);
      CHECK(loaded.restored.manifest.cursor == DataCursor{1, 3});
      CHECK(hasStates(*other, 7));
      // Each rank reads what it holds and nothing else; runs below 512 bytes are read
      // with what lies between them.
      uint64_t held = 0, whole = 0;
      for (const HeldState &state : other->heldStates()) {
        whole += static_cast<uint64_t>(elementCount(state.shape)) * byteWidth(state.type);
        for (const StatePart &part : state.parts)
          held += static_cast<uint64_t>(elementCount(extentsOf(part.runs))) *
                  byteWidth(state.type);
      }
      CHECK(loaded.restored.bytes >= held);
      CHECK(loaded.restored.bytes <= whole * static_cast<uint64_t>(other->numRanks()));
    }
  }
}

TEST_CASE("checkpoints: ranks write equal bytes") {
  // GPT-2 of two layers, weights and two moments, whole on every rank and over tp=2.
  for (auto [mesh, rows, columns] :
       {std::tuple("dp=8", "", ""), {"dp=4,tp=2", "", ": tp"}, {"dp=7", "", ""}}) {
    std::vector<LaidState> states;
    auto add = [&](const std::string &name, int64_t rowCount, int64_t columnCount) {
      for (const char *moment : {"", ".m", ".v"})
        states.push_back({name + moment, DType::F32,
                          "[{" + std::to_string(rowCount) + rows + "}, {" +
                              std::to_string(columnCount) + columns + "}]"});
    };
    add("wte", 1009, 64);
    for (const char *layer : {"h.0.", "h.1."}) {
      for (auto [name, r, c] : {std::tuple("qkv", 64, 192),
                                {"proj", 64, 64},
                                {"fc", 64, 256},
                                {"out", 256, 64},
                                {"ln", 1, 64}})
        add(std::string(layer) + name, r, c);
    }
    auto session = sessionOf(mesh, states);
    std::vector<HeldState> held = session->heldStates();
    auto ranks = static_cast<int>(session->numRanks());
    std::vector<uint64_t> bytes;
    uint64_t sum = 0;
    for (const auto &list : piecesOf(held, ranks)) {
      bytes.push_back(0);
      for (const runtime::Piece &piece : list)
        bytes.back() += bytesOf(piece, held);
      sum += bytes.back();
    }
    uint64_t whole = 0;
    for (const HeldState &state : held)
      whole += static_cast<uint64_t>(elementCount(state.shape)) * 4;
    CHECK(sum == whole);
    auto [least, most] = std::ranges::minmax(bytes);
    CHECK(static_cast<double>(most) <= 1.1 * static_cast<double>(least));
  }
}

TEST_CASE("checkpoints: the newest stay, and nothing else does") {
  Folder folder;
  auto session = sessionOf("dp=2", plans()[2].states);
  std::filesystem::create_directories(folder / "c/step-3.tmp-0123456789abcdef");
  std::filesystem::create_directories(folder / "c/step-x");
  Saving saving(*session, folder / "c", 2);
  for (int64_t step : {2, 5, 9, 11})
    CHECK(saving.save(*session, step) == "");
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(folder / "c"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  const std::string own = "incarnation-" + incarnationText(saving.folder.number());
  CHECK(names == std::vector<std::string>{own, "step-11", "step-9", "step-x"});
  CHECK(saving.saver->cost().saves == 4);
  CHECK(saving.saver->savedStep() == 11);
}

TEST_CASE("checkpoints: a generation with two names outlives the one") {
  Folder folder;
  auto session = sessionOf("dp=2", plans()[2].states);
  const std::string best = bestPath(folder / "c", "model");
  CHECK(best == folder / "c/best-model");
  std::filesystem::create_directories(folder / "c/best-model.tmp-0123456789abcdef");
  Saving saving(*session, folder / "c", 1);
  CHECK(!std::filesystem::exists(folder / "c/best-model.tmp-0123456789abcdef"));
  CHECK(saving.save(*session, 2, best) == "");
  CHECK(saving.save(*session, 3) == "");
  auto manifest = readManifest(best);
  REQUIRE(manifest.has_value());
  CHECK(manifest->step == 2);
  REQUIRE(manifest->best.has_value());
  CHECK(manifest->best->name == "model");
  CHECK(manifest->best->step == 2);
  CHECK(manifest->best->loss == 0.1);
  CHECK(manifest->best->data == "8 rows");
  CHECK(checkParts(best, *manifest).has_value());
  auto all = generationsOf(folder / "c");
  REQUIRE(all.has_value());
  CHECK(all->size() == 1);
  CHECK(load(*session, folder / "c").step == 3);
  // The later one takes its place.
  CHECK(saving.save(*session, 4, best) == "");
  CHECK(readManifest(best)->step == 4);
  CHECK(saving.save(*session, 5) == "");
  CHECK(readManifest(best)->step == 4);
  CHECK(!readManifest(folder / "c/step-5")->best.has_value());
}

TEST_CASE("checkpoints: a second name that cannot be given is told") {
  Folder folder;
  auto session = sessionOf("dp=2", plans()[2].states);
  Saving saving(*session, folder / "c", 1);
  CHECK(saving.save(*session, 2, folder / "none/best-model") != "");
  CHECK(saving.saver->takeLostName());
  CHECK(!saving.saver->takeLostName());
  CHECK(saving.save(*session, 3) == "");
  CHECK(!saving.saver->takeLostName());
}

TEST_CASE("checkpoints: a folder has one writer") {
  Folder folder;
  auto session = sessionOf("", plans()[0].states);
  Saving saving(*session, folder / "c", 2);
  auto second = CheckpointFolder::open(*session, folder / "c", /*incarnation=*/0,
                                       std::chrono::milliseconds(50));
  REQUIRE(!second);
  CHECK(second.error().message ==
        "another run writes checkpoints into '" + (folder / "c") + "'");
}

TEST_CASE("checkpoints: a start that was given up publishes nothing") {
  Folder folder;
  const std::string path = folder / "c";
  auto session = sessionOf("", plans()[0].states);
  Saving late(*session, path, 2);
  CHECK(late.save(*session, 1) == "");
  const uint64_t number = nextIncarnation(path);
  CHECK(number >> 32 == (late.folder.number() >> 32) + 1);
  // A file system without locks keeps nobody out.
  REQUIRE(takeFolder(path, number).has_value());
  CHECK(!std::filesystem::exists(incarnationPath(path, late.folder.number())));
  const std::string given = "'" + path + "' belongs to incarnation " +
                            incarnationText(number) + " of the run; this one, " +
                            incarnationText(late.folder.number()) + ", was given up";
  CHECK(late.save(*session, 2) == given);
  CHECK(!std::filesystem::exists(generationPath(path, 2)));
  CHECK(std::filesystem::exists(generationPath(path, 1)));
  CHECK(takeFolder(path, late.folder.number()).error().message == given);
  CHECK(!std::filesystem::exists(incarnationPath(path, late.folder.number())));
  CHECK(takeFolder(path, number).has_value());
}

TEST_CASE("checkpoints: incarnations are read as they are written") {
  CHECK(incarnationText(0x1f) == "000000000000001f");
  CHECK(parseIncarnation("000000000000001f") == uint64_t{0x1f});
  for (const char *text : {"", "1f", "000000000000001g", "0000000000000001f",
                           "ffffffffffffffff", "-00000000000001f"})
    CHECK(!parseIncarnation(text));
}

/// Changes one byte.
static void flip(const std::string &path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 0x10));
}

TEST_CASE("checkpoints: a damaged generation is told, and the one before is taken") {
  Folder folder;
  const Plan plan = plans()[4];
  auto session = sessionOf(plan.mesh, plan.states);
  {
    Saving saving(*session, folder / "c", 2);
    CHECK(saving.save(*session, 3) == "");
    CHECK(saving.save(*session, 4) == "");
  }
  std::string newest = folder / "c/step-4";
  std::filesystem::copy(newest, folder / "whole");
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(newest))
    files.push_back(entry.path().filename().string());
  CHECK(files.size() == 2 + 2 * 4);
  auto check = [&](const std::string &what) {
    INFO(what);
    Loaded loaded = load(*session, folder / "c");
    CHECK(loaded.error == "");
    CHECK(loaded.step == 3);
    CHECK(hasStates(*session, 3));
    REQUIRE(loaded.told.size() == 1);
    std::string head = "'" + newest + "' is skipped: ";
    CHECK(loaded.told[0].starts_with(head));
    CHECK(loaded.told[0].find("'" + newest + "/", head.size()) != std::string::npos);
    std::filesystem::remove_all(newest);
    std::filesystem::copy(folder / "whole", newest);
  };
  for (const std::string &file : files) {
    std::string path = newest + "/" + file;
    uint64_t size = std::filesystem::file_size(path);
    for (uint64_t k = 0; k < 12; ++k) {
      flip(path, k == 11 ? size - 1 : size * k / 11);
      check("byte " + std::to_string(size * k / 11) + " of " + file);
    }
    std::filesystem::resize_file(path, size - 1);
    check(file + " is shorter");
    std::filesystem::remove(path);
    check(file + " is gone");
  }
  // Parts that are whole in themselves.
  auto takePartOf = [&](const std::string &generation) {
    for (const char *file : {"/part-1.safetensors", "/part-1.blocks"})
      std::filesystem::copy_file(generation + file, newest + file,
                                 std::filesystem::copy_options::overwrite_existing);
  };
  takePartOf(folder / "c/step-3");
  check("a part of another generation");
  {
    auto other = sessionOf(plan.mesh, plan.states);
    Folder second;
    Saving saving(*other, second / "c", 1);
    CHECK(saving.save(*other, 4) == "");
    takePartOf(second / "c/step-4");
  }
  check("a part of another run");
  CHECK(load(*session, folder / "c").step == 4);
  flip(newest + "/part-0.safetensors", 600);
  flip(folder / "c/step-3/manifest.json", 40);
  Loaded none = load(*session, folder / "c");
  CHECK(none.error.starts_with("none of the 2 generations of '" + (folder / "c") +
                               "' is whole: '" + (folder / "c/step-3/manifest.json")));
}

TEST_CASE("checkpoints: states that the session has not, or has otherwise, are errors") {
  Folder folder;
  const Plan plan = plans()[0];
  {
    auto session = sessionOf(plan.mesh, plan.states);
    Saving saving(*session, folder / "c", 2);
    CHECK(saving.save(*session, 3) == "");
  }
  std::string at = "'" + (folder / "c/step-3") + "'";
  auto errorOf = [&](std::vector<LaidState> states) {
    auto session = sessionOf(plan.mesh, states);
    return load(*session, folder / "c").error;
  };
  auto changed = plan.states;
  changed[0].layout = "[{40}, {48}]";
  CHECK(errorOf(changed) == at + ": state 'w' is f32[48, 40], expected f32[40, 48]");
  changed[0] = {"w", DType::F64, "[{48}, {40}]"};
  CHECK(errorOf(changed) == at + ": state 'w' is f32[48, 40], expected f64[48, 40]");
  changed[0].name = "v";
  CHECK(errorOf(changed) == at + " has no state 'v'");
  changed.erase(changed.begin());
  CHECK(errorOf(changed) == at + " has a state 'w', which the bundle has not");
}

TEST_CASE("checkpoints: a generation of another format is an error, and not skipped") {
  Folder folder;
  const Plan plan = plans()[0];
  auto session = sessionOf(plan.mesh, plan.states);
  {
    Saving saving(*session, folder / "c", 2);
    CHECK(saving.save(*session, 3) == "");
    CHECK(saving.save(*session, 4) == "");
  }
  const std::string newest = folder / "c/step-4";
  std::string text = *readFile(newest + "/manifest.json");
  REQUIRE(text.starts_with("{\"format\":1,"));
  text.replace(0, 12, "{\"format\":9,");
  BlockHasher hasher;
  hasher.add(std::as_bytes(std::span(text)));
  REQUIRE(writeFile(newest + "/manifest.blocks", hasher.finish().text()));
  REQUIRE(writeFile(newest + "/manifest.json", text));
  const std::string expected = "'" + newest + "' has format 9, this version reads 1";
  CHECK(load(*session, folder / "c").error == expected);
  auto tell = [](std::string_view) { FAIL("no generation is skipped"); };
  auto whole = writeWholeStates(folder / "c", folder / "whole.safetensors", tell);
  REQUIRE(!whole);
  CHECK(whole.error().message == expected);
  CHECK(!std::filesystem::exists(folder / "whole.safetensors"));
}
