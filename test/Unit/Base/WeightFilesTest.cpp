//===- WeightFilesTest.cpp - Where the files of a bundle's weights are found ---===//
#include "TestFolder.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"

#include <catch2/catch.hpp>

using namespace partita;
namespace fs = std::filesystem;

TEST_CASE("a file of the model is searched in four places, in their order") {
  Folder folder;
  for (const char *name :
       {"at/model/data", "at/bundle", "now/model/data", "now/bundle", "other/data"})
    fs::create_directories(folder / name);
  std::string bundle = folder / "now/bundle", other = folder / "other";
  std::string recorded = folder / "at/model/data/w.bin";
  REQUIRE(writeFile(recorded, "1234"));
  auto file = referTo(recorded, "data/w.bin", folder / "at/bundle");
  REQUIRE(file);
  CHECK(file->relative == "../model/data/w.bin");
  CHECK(file->path == recorded);
  // From the last place to the first: what is put there is found.
  const std::string places[] = {recorded, folder / "now/model/data/w.bin",
                                folder / "now/bundle/w.bin", other + "/w.bin",
                                other + "/data/w.bin"};
  for (const std::string &place : places) {
    if (place != recorded)
      fs::copy_file(recorded, place);
    auto found = findWeights(bundle, *file, other);
    REQUIRE(found);
    CHECK(fs::equivalent(found->path, place));
    CHECK(found->isSame == (place == recorded));
  }
  CHECK(
      fs::equivalent(findWeights(bundle, *file, "")->path, folder / "now/bundle/w.bin"));
  for (const std::string &place : places)
    fs::remove(place);
  auto none = findWeights(bundle, *file, other);
  REQUIRE(!none);
  CHECK(none.error().message ==
        "weight file 'data/w.bin' is neither in '" + other + "', the bundle '" + bundle +
            "', nor at '../model/data/w.bin' from there, nor at '" + recorded +
            "'; --weights-dir says where it is");
}

TEST_CASE("a weight file of another size is no weight file") {
  Folder folder;
  fs::create_directories(folder / "bundle");
  fs::create_directories(folder / "other");
  std::string recorded = folder / "w.bin", inside = folder / "bundle/w.bin";
  REQUIRE(writeFile(recorded, "1234"));
  auto file = referTo(recorded, "w.bin", folder / "bundle");
  REQUIRE(file);
  // By chance there is another one in the bundle.
  REQUIRE(writeFile(inside, "12345"));
  CHECK(fs::equivalent(findWeights(folder / "bundle", *file, "")->path, recorded));
  fs::remove(recorded);
  CHECK(findWeights(folder / "bundle", *file, "").error().message ==
        "weight file '" + inside + "' has 5 bytes, the bundle was compiled with 4");
  // A folder that was named is meant.
  REQUIRE(writeFile(recorded, "1234"));
  REQUIRE(writeFile(folder / "other/w.bin", "123"));
  CHECK_THAT(findWeights(folder / "bundle", *file, folder / "other").error().message,
             Catch::Contains("other/w.bin' has 3 bytes"));
}

TEST_CASE("time, inode and size say that a file is the very one") {
  Folder folder;
  std::string path = folder / "w.bin";
  REQUIRE(writeFile(path, "1234"));
  auto file = referTo(path, "w.bin", folder / "bundle");
  REQUIRE(file);
  CHECK(findWeights(folder / "bundle", *file, "")->isSame);
  auto time = fs::last_write_time(path);
  fs::last_write_time(path, time + std::chrono::seconds(1));
  CHECK(!findWeights(folder / "bundle", *file, "")->isSame);
  fs::last_write_time(path, time);
  CHECK(findWeights(folder / "bundle", *file, "")->isSame);
  fs::copy_file(path, folder / "copy");
  fs::rename(folder / "copy", path);
  fs::last_write_time(path, time);
  CHECK(!findWeights(folder / "bundle", *file, "")->isSame);
}

TEST_CASE("what a plan names is found beside the bundle, or where it was") {
  Folder folder;
  fs::create_directories(folder / "bundle");
  std::string recorded = folder / "was/m.onnx";
  CHECK(findRecorded(folder / "bundle", "../m.onnx", recorded) == recorded);
  REQUIRE(writeFile(folder / "m.onnx", ""));
  CHECK(findRecorded(folder / "bundle", "../m.onnx", recorded) ==
        folder / "bundle/../m.onnx");
  CHECK(findRecorded(folder / "bundle", "", recorded) == recorded);
  REQUIRE(writeFile(folder / "bundle/m.onnx", ""));
  CHECK(findRecorded(folder / "bundle", "../m.onnx", recorded) ==
        folder / "bundle/m.onnx");
}
