//===- ExternalDataTest.cpp - Weights in files beside the model -----------===//
#include "TestModel.h"

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

namespace {
/// A model whose weight w, f32[4], is external; each test bends it a little.
struct ExternalModel {
  ScratchFolder folder;
  onnx::ModelProto proto = parse("g (float[4] x) => (float[4] y) { y = Add (x, w) }");
  onnx::TensorProto &weight = *proto.mutable_graph()->add_initializer();

  ExternalModel() {
    weight.set_name("w");
    weight.set_data_type(onnx::TensorProto::FLOAT);
    weight.add_dims(4);
    weight.set_data_location(onnx::TensorProto::EXTERNAL);
    std::filesystem::create_directory(folder.path / "model");
    std::vector<float> values{-1, 1, 2, 3, 4, 5};
    store("model/w.bin", {reinterpret_cast<const char *>(values.data()), 24});
  }
  void store(const std::string &name, std::string_view bytes) {
    REQUIRE(writeFile(folder.file(name), bytes));
  }
  ExternalModel &entry(const std::string &key, const std::string &value) {
    auto &added = *weight.add_external_data();
    added.set_key(key);
    added.set_value(value);
    return *this;
  }
  Expected<Model> load(bool weights = true) {
    store("model/m.onnx", proto.SerializeAsString());
    LoadOptions options;
    options.weights = weights;
    return loadModel(folder.file("model/m.onnx"), options);
  }
  /// The message without the model's path, and with D for its folder.
  std::string failure() {
    auto model = load();
    REQUIRE(!model);
    std::string message = model.error().message, path = folder.file("model");
    for (size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), "D");
    std::string prefix = "'D/m.onnx': initializer 'w': ";
    REQUIRE_THAT(message, Catch::StartsWith(prefix));
    return message.substr(prefix.size());
  }
};
} // namespace

TEST_CASE("external data is mapped at its offset") {
  ExternalModel model;
  auto loaded = model.entry("location", "w.bin").entry("offset", "4").load();
  REQUIRE(loaded);
  CHECK(values<float>(*loaded, "w") == std::vector<float>{1, 2, 3, 4});
  const Tensor *tensor = constant(*loaded, "w");
  CHECK(tensor->file == model.folder.file("model/w.bin"));
  CHECK(tensor->offset == 4);
}

TEST_CASE("external data may lie in a folder below") {
  ExternalModel model;
  std::filesystem::create_directory(model.folder.path / "model/data");
  std::filesystem::rename(model.folder.path / "model/w.bin",
                          model.folder.path / "model/data/w.bin");
  auto loaded = model.entry("location", "data/w.bin").load();
  REQUIRE(loaded);
  CHECK(values<float>(*loaded, "w") == std::vector<float>{-1, 1, 2, 3});
}

TEST_CASE("bytes in the model's own file are mapped, not copied") {
  ExternalModel model;
  model.weight.clear_data_location();
  std::vector<float> numbers(4, 2.5f);
  model.weight.set_raw_data(numbers.data(), 16);
  auto loaded = model.load();
  REQUIRE(loaded);
  const Tensor *tensor = constant(*loaded, "w");
  CHECK(tensor->file == model.folder.file("model/m.onnx"));
  auto file = readFile(tensor->file);
  REQUIRE(file);
  CHECK(file->substr(tensor->offset, 16) ==
        std::string(reinterpret_cast<const char *>(numbers.data()), 16));
}

TEST_CASE("external data that is missing, unless weights are not needed") {
  ExternalModel model;
  model.entry("location", "none.bin");
  CHECK(model.failure() == "external data 'none.bin' does not exist in 'D'");
  auto loaded = model.load(/*weights=*/false);
  REQUIRE(loaded);
  CHECK(constant(*loaded, "w")->bytes.empty());
  CHECK(constant(*loaded, "w")->shape == std::vector<int64_t>{4});
}

TEST_CASE("external data outside the model's folder is refused, even if it exists") {
  std::vector<char> bytes(24);
  auto withSecret = [&](ExternalModel &model) {
    model.store("secret.bin", {bytes.data(), bytes.size()});
  };
  SECTION("by ..") {
    ExternalModel model;
    withSecret(model);
    CHECK(model.entry("location", "../secret.bin").failure() ==
          "external data '../secret.bin' is outside the model's folder");
  }
  SECTION("by .. further in") {
    ExternalModel model;
    withSecret(model);
    std::filesystem::create_directory(model.folder.path / "model/a");
    CHECK(model.entry("location", "a/../../secret.bin").failure() ==
          "external data 'a/../../secret.bin' is outside the model's folder");
  }
  SECTION("by an absolute path") {
    ExternalModel model;
    withSecret(model);
    std::string path = model.folder.file("secret.bin");
    CHECK(model.entry("location", path).failure() ==
          "external data '" + path +
              "' is an absolute path; it must lie in the model's folder");
  }
  SECTION("by a symbolic link") {
    ExternalModel model;
    withSecret(model);
    std::filesystem::create_symlink("../secret.bin", model.folder.path / "model/link");
    CHECK(model.entry("location", "link").failure() ==
          "external data 'link' is a symbolic link, which is not followed");
  }
  SECTION("by a symbolic link to a folder") {
    ExternalModel model;
    withSecret(model);
    std::filesystem::create_directory_symlink("..", model.folder.path / "model/up");
    CHECK(model.entry("location", "up/secret.bin").failure() ==
          "external data 'up/secret.bin' goes through 'up', which is not a plain folder");
  }
}

TEST_CASE("external data of the wrong size") {
  SECTION("the file is too short") {
    ExternalModel model;
    CHECK(model.entry("location", "w.bin").entry("offset", "12").failure() ==
          "needs bytes 12 to 28 of 'D/w.bin', which has only 24");
  }
  SECTION("the offset is past the end, and adding would overflow") {
    ExternalModel model;
    CHECK_THAT(
        model.entry("location", "w.bin").entry("offset", "9223372036854775807").failure(),
        Catch::StartsWith("needs bytes 9223372036854775807 to "));
  }
  SECTION("the length does not match the shape") {
    ExternalModel model;
    CHECK(model.entry("location", "w.bin").entry("length", "20").failure() ==
          "the shape needs 16 bytes, but the external data has 20");
  }
  SECTION("the offset is no number") {
    ExternalModel model;
    CHECK(model.entry("location", "w.bin").entry("offset", "-4").failure() ==
          "the external data's offset is '-4', not a number of bytes");
  }
  SECTION("no file is named") {
    ExternalModel model;
    CHECK(model.entry("offset", "0").failure() ==
          "the external data does not name a file");
  }
  SECTION("the location is a folder") {
    ExternalModel model;
    std::filesystem::create_directory(model.folder.path / "model/dir");
    CHECK_THAT(model.entry("location", "dir").failure(),
               Catch::StartsWith("external data 'dir' cannot be read"));
  }
}
