//===- ExportTest.cpp - Trained models as ONNX files ----------------------===//
#include "partita/Onnx/Export.h"

#include "TestModel.h"
#include "partita/Base/Files/SafeTensors.h"

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

namespace {

onnx::TensorProto &addFloats(onnx::ModelProto &proto, const std::string &name,
                             const std::vector<float> &values) {
  auto &tensor = *proto.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (float value : values)
    tensor.add_float_data(value);
  return tensor;
}

void addEntry(onnx::TensorProto &tensor, const std::string &key,
              const std::string &value) {
  auto &entry = *tensor.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

/// y = x + w + b, w trained and b not, both in the file.
struct SmallModel {
  ScratchFolder folder;
  onnx::ModelProto proto =
      parse("g (float[2] x) => (float[2] y) { h = Add (x, w)  [last] y = Add (h, b) }");
  std::string model = folder.file("m.onnx"), states = folder.file("s.safetensors"),
              out = folder.file("out.onnx");

  SmallModel() {
    proto.set_producer_name("somebody");
    addFloats(proto, "w", {1, 2}).set_doc_string("weight");
    addFloats(proto, "b", {3, 4});
  }

  template <typename T>
  void writeStates(const std::string &name, DType type, const std::vector<T> &values) {
    SafeTensorsWriter writer;
    writer.declare(name, type, {static_cast<int64_t>(values.size())});
    writer.declare("step", DType::I64, {});
    REQUIRE(writer.begin(states));
    REQUIRE(writer.append(std::as_bytes(std::span(values))));
    int64_t step = 7;
    REQUIRE(writer.append(std::as_bytes(std::span(&step, 1))));
    REQUIRE(writer.finish());
  }
  Expected<size_t> run() {
    REQUIRE(writeFile(model, proto.SerializeAsString()));
    return exportModel(model, states, out);
  }
  onnx::ModelProto written() {
    onnx::ModelProto result;
    REQUIRE(result.ParseFromString(*readFile(out)));
    return result;
  }
  Model loaded() {
    auto result = loadModel(out);
    INFO((result ? "" : result.error().message));
    REQUIRE(result);
    return *result;
  }
  /// The message with D for the folder; nothing was written.
  std::string failure() {
    auto result = run();
    REQUIRE(!result);
    for (const auto &entry : std::filesystem::directory_iterator(folder.path)) {
      std::string name = entry.path().filename();
      CHECK(!name.starts_with("out.onnx"));
      CHECK(name.find(".tmp-") == std::string::npos);
    }
    std::string message = result.error().message, path = folder.path;
    for (size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), "D");
    return message;
  }
};

} // namespace

TEST_CASE("export: values change, and nothing else") {
  SmallModel it;
  it.writeStates<float>("w", DType::F32, {10, 20});
  CHECK(it.run() == 1);
  CHECK(values<float>(it.loaded(), "w") == std::vector<float>{10, 20});
  CHECK(values<float>(it.loaded(), "b") == std::vector<float>{3, 4});
  onnx::ModelProto expected = it.proto;
  auto &weight = *expected.mutable_graph()->mutable_initializer(0);
  weight.clear_float_data();
  weight.set_raw_data(it.written().graph().initializer(0).raw_data());
  CHECK(expected.SerializeAsString() == it.written().SerializeAsString());
  CHECK(!std::filesystem::exists(it.out + ".data"));
}

TEST_CASE("export: a payload of kilobytes that does not train stays") {
  SmallModel it;
  std::string payload(40000, '\x3f');
  auto &table = *it.proto.mutable_graph()->add_initializer();
  table.set_name("table");
  table.set_data_type(onnx::TensorProto::FLOAT);
  table.add_dims(10000);
  table.set_raw_data(payload);
  it.writeStates<float>("w", DType::F32, {10, 20});
  CHECK(it.run() == 1);
  CHECK(it.written().graph().initializer(2).raw_data() == payload);
}

TEST_CASE("export: floats of another width are rounded") {
  SmallModel it;
  auto &weight = *it.proto.mutable_graph()->mutable_initializer(0);
  weight.set_data_type(onnx::TensorProto::FLOAT16);
  weight.clear_float_data();
  weight.set_raw_data(std::string(4, '\0'));
  it.writeStates<float>("w", DType::F32, {1.0f / 3, 65504});
  CHECK(it.run() == 1);
  uint16_t bits[] = {floatToHalf(1.0f / 3), floatToHalf(65504)};
  CHECK(it.written().graph().initializer(0).raw_data() ==
        std::string(reinterpret_cast<const char *>(bits), 4));
}

TEST_CASE("export: what was in training mode infers") {
  SmallModel it;
  it.proto = parse(R"(g (float[2, 2] x, bool train, float ratio) =>
      (float[2, 2] y, float[2] kept, bool[2, 2] mask) {
    [a] h, m, v = BatchNormalization <training_mode = 1> (x, w, w, w, w)
    [b] i, kept, u = BatchNormalization <training_mode = 1> (h, w, w, w, w)
    [c] j, mask = Dropout (i, ratio, train)
    [d] y = Dropout <seed = 3> (j)
  })");
  addFloats(it.proto, "w", {1, 2});
  it.writeStates<float>("w", DType::F32, {10, 20});
  CHECK(it.run() == 1);
  onnx::ModelProto written = it.written();
  auto &nodes = written.graph().node();
  CHECK(nodes[0].output_size() == 1);
  CHECK(nodes[0].attribute(0).i() == 0);
  // Somebody wants what only training gives.
  CHECK(nodes[1].output_size() == 3);
  CHECK(nodes[1].attribute(0).i() == 1);
  CHECK(nodes[2].input_size() == 2);
  CHECK(nodes[2].output_size() == 2);
  CHECK(nodes[3].SerializeAsString() == it.proto.graph().node(3).SerializeAsString());
}

TEST_CASE("export: external data, trained or not, goes beside the copy") {
  SmallModel it;
  std::vector<float> stored{-1, 1, 2, 3, 4};
  REQUIRE(writeFile(it.folder.file("w.bin"),
                    {reinterpret_cast<const char *>(stored.data()), 20}));
  for (int i : {0, 1}) {
    auto &tensor = *it.proto.mutable_graph()->mutable_initializer(i);
    tensor.clear_float_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    addEntry(tensor, "location", "w.bin");
    addEntry(tensor, "offset", i == 0 ? "4" : "12");
  }
  // A constant of a branch of packed elements, external too.
  auto &node = *it.proto.mutable_graph()->add_node();
  node.set_op_type("Constant");
  node.add_output("unused");
  auto &attribute = *node.add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  auto &packed = *attribute.mutable_t();
  packed.set_name("packed");
  packed.set_data_type(onnx::TensorProto::INT4);
  packed.add_dims(4);
  packed.set_data_location(onnx::TensorProto::EXTERNAL);
  addEntry(packed, "location", "w.bin");
  addEntry(packed, "offset", "2");
  it.writeStates<float>("w", DType::F32, {10, 20});
  std::filesystem::create_directory(it.folder.path / "other");
  it.out = it.folder.file("other/out.onnx");
  auto count = it.run();
  INFO((count ? "" : count.error().message));
  REQUIRE(count);
  CHECK(*count == 1);
  // The original may go.
  std::filesystem::remove(it.folder.file("w.bin"));
  std::string data = *readFile(it.out + ".data");
  onnx::ModelProto written = it.written();
  for (const auto &tensor : written.graph().initializer()) {
    CHECK(tensor.data_location() == onnx::TensorProto::EXTERNAL);
    CHECK(tensor.external_data(0).value() == "out.onnx.data");
  }
  CHECK(values<float>(it.loaded(), "w") == std::vector<float>{10, 20});
  CHECK(values<float>(it.loaded(), "b") == std::vector<float>{3, 4});
  const auto &copied = written.graph().node(2).attribute(0).t();
  CHECK(copied.external_data(2).value() == "2");
  CHECK(data.substr(std::stoul(copied.external_data(1).value()), 2) ==
        std::string(reinterpret_cast<const char *>(stored.data()) + 2, 2));
}

TEST_CASE("export: what cannot be exported") {
  SmallModel it;
  it.writeStates<float>("w", DType::F32, {10, 20, 30});
  CHECK(it.failure() == "initializer 'w' of 'D/m.onnx' is f32[2], but the state of this "
                        "name is f32[3]");
  it.writeStates<int64_t>("w", DType::I64, {1, 2});
  CHECK(it.failure() == "initializer 'w' of 'D/m.onnx' is f32[2], but the state of this "
                        "name is i64[2]");
  it.writeStates<float>("v", DType::F32, {10, 20});
  CHECK(it.failure() == "no state has the name of an initializer of 'D/m.onnx'");
  std::filesystem::remove(it.states);
  CHECK(it.failure() == "cannot open 'D/s.safetensors': No such file or directory");
  it.writeStates<float>("w", DType::F32, {10, 20});
  it.out = it.model;
  CHECK(it.failure() ==
        "'D/m.onnx' is a file of the model itself; export under another name");
  CHECK(checkExport(it.model, it.folder.file("link.onnx")));
  std::filesystem::create_symlink(it.model, it.folder.file("link.onnx"));
  CHECK(!checkExport(it.model, it.folder.file("link.onnx")));
  CHECK(!checkExport(it.folder.file("none.onnx"), it.out));
  // A tensor whose data are "else.onnx.data".
  auto &tensor = *it.proto.mutable_graph()->mutable_initializer(1);
  tensor.clear_float_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  addEntry(tensor, "location", "else.onnx.data");
  it.out = it.folder.file("else.onnx");
  CHECK(it.failure() == "'D/m.onnx': tensor 'b': external data 'else.onnx.data' does not "
                        "exist in 'D'");
  REQUIRE(writeFile(it.folder.file("else.onnx.data"), "12345678"));
  CHECK(it.failure() ==
        "'D/else.onnx.data' is a file of the model itself; export under another name");
  it.out = it.folder.file("none/out.onnx");
  CHECK(it.failure() == "cannot write 'D/none/out.onnx.data': No such file or directory");
}
