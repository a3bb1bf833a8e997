//===- BadModelTest.cpp - Every broken file gives one sentence ------------===//
#include "TestModel.h"

#include <fstream>

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

static const char *simple = "g (float[2] x) => (float[2] y) { y = Relu (x) }";

static std::string failure(const onnx::ModelProto &proto) {
  auto model = load(proto);
  REQUIRE(!model);
  return model.error().message;
}

/// The message for a file with these bytes, the path replaced by F.
static std::string fileFailure(const std::string &bytes) {
  ScratchFolder folder;
  std::string path = folder.file("m.onnx");
  REQUIRE(writeFile(path, bytes));
  auto model = loadModel(path);
  REQUIRE(!model);
  std::string message = model.error().message;
  REQUIRE(message.find(path) != std::string::npos);
  return message.replace(message.find(path), path.size(), "F");
}

TEST_CASE("files that are no models") {
  CHECK(fileFailure("") == "'F' is empty, not an ONNX model");
  CHECK(fileFailure("hello, this is a text file\n") ==
        "'F' is not an ONNX model, or is truncated");
  onnx::ModelProto empty;
  empty.set_ir_version(8);
  CHECK(fileFailure(empty.SerializeAsString()) ==
        "'F' is not an ONNX model: it has no graph");
  CHECK(!loadModel("/nonexistent/m.onnx"));
  CHECK(loadModel("/tmp").error().message == "'/tmp' is not a regular file");
}

TEST_CASE("a truncated model fails wherever it is cut") {
  std::string whole = parse(R"(g (float[2,3] x) => (float[2,3] y)
    <float[3] w = {1, 2, 3}> { y = Add (x, w) })")
                          .SerializeAsString();
  for (size_t length = 0; length < whole.size(); ++length) {
    ScratchFolder folder;
    REQUIRE(writeFile(folder.file("m.onnx"), whole.substr(0, length)));
    INFO("cut at " << length << " of " << whole.size());
    CHECK(!loadModel(folder.file("m.onnx")));
  }
}

TEST_CASE("versions from the future and the far past") {
  auto proto = parse(simple);
  proto.set_ir_version(14);
  CHECK(failure(proto) == "IR version 14 is not supported (known are 3 to 13)");
  proto.set_ir_version(2);
  CHECK(failure(proto) == "IR version 2 is not supported (known are 3 to 13)");
  proto.set_ir_version(8);
  proto.mutable_opset_import(0)->set_version(28);
  CHECK(failure(proto) == "opset 28 is not supported (known are 7 to 27)");
  proto.mutable_opset_import(0)->set_version(6);
  CHECK(failure(proto) == "opset 6 is not supported (known are 7 to 27)");
  proto.clear_opset_import();
  CHECK(failure(proto) ==
        "the model does not say which opset its standard operators are from");
}

TEST_CASE("cycles name a node that is on one") {
  auto proto = parse(R"(g (float[2] x) => (float[2] y) {
      y = Abs (c)
      a = Add (x, c)
      b = Relu (a)
      c = Neg (b)
    })");
  // y comes first and hangs on the cycle, but is not on it.
  CHECK(failure(proto) ==
        "the graph has a cycle: node 'c' (Neg) needs the output of node 'b' (Relu), which"
        " needs the first's through 1 more");
  auto self = parse("g (float[2] x) => (float[2] y) { y = Add (x, y) }");
  CHECK(failure(self) == "the graph has a cycle: node 'y' (Add) needs its own output");
}

TEST_CASE("values that nothing defines, or two do") {
  CHECK(failure(parse("g (float[2] x) => (float[2] y) { y = Add (x, z) }")) ==
        "node 'y' (Add) uses 'z', which nothing defines");
  CHECK(failure(parse("g (float[2] x) => (float[2] y) { z = Relu (x) }")) ==
        "nothing defines the output 'y'");
  CHECK(failure(parse(R"(g (float[2] x) => (float[2] y) {
          y = Relu (x)
          y = Neg (x) })")) ==
        "value 'y' is defined twice, by node 'y' (Relu) and by node 'y_2' (Neg)");
  CHECK(failure(parse("g (float[2] x) => (float[2] x) { x = Relu (x) }")) ==
        "value 'x' is defined twice, by an input or initializer and by node 'x' (Relu)");
}

TEST_CASE("nodes of a loaded graph alone are in no file") {
  const std::string why =
      ") of domain partita stands around a part of a loaded graph, and no file has such "
      "nodes";
  for (const std::string op : {"IfBegin", "IfEnd", "RepeatEnd", "GradientBegin"})
    CHECK(failure(parse("g (float[2] x) => (float[2] y) { y = partita." + op +
                        " (x) }")) == "node 'y' (" + op + why);
  CHECK(
      failure(parse("g (float[2] x, bool k) => (float[2] y) { y = If (k) "
                    "<then_branch = a () => (float[2] u) { [n] u = partita.IfEnd (x) }, "
                    "else_branch = b () => (float[2] v) { v = Neg (x) }> }")) ==
      "node 'n' (IfEnd" + why);
}

TEST_CASE("malformed nodes are named") {
  CHECK_THAT(failure(parse("g (float[2] x) => (float[2] y) { y = Relu (x, x) }")),
             Catch::StartsWith("node 'y' (Relu) is malformed: "));
  CHECK_THAT(
      failure(parse("g (float[2] x) => (float[2] y) { y = Relu <colour = 3> (x) }")),
      Catch::StartsWith("node 'y' (Relu) is malformed: ") && Catch::Contains("colour"));
  CHECK_THAT(failure(parse("g (float[2] x) => (float[2] y) { y = Cast (x) }")),
             Catch::StartsWith("node 'y' (Cast) is malformed: ") &&
                 Catch::Contains("to"));
}

TEST_CASE("a function that calls itself") {
  CHECK(failure(parse(R"(g (float[4] x) => (float[4] y) { y = local.F (x) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]>
    F (a) => (b) { b = local.F (a) })",
                      17, ", \"local\" : 1")) ==
        "function 'F' calls itself (from node 'y')");
}

TEST_CASE("functions that would expand without end are refused at once") {
  // F0 calls F1 twice, F1 calls F2 twice, …: 2^40 nodes.
  std::string text = "g (float[4] x) => (float[4] y) { y = local.F0 (x) }";
  std::string head = "\n<domain: \"local\", opset_import: [\"\" : 17, \"local\" : 1]> F";
  for (int i = 0; i < 40; ++i) {
    std::string next = "local.F" + std::to_string(i + 1);
    text += head + std::to_string(i) + " (a) => (b) { c = " + next + " (a) b = " + next +
            " (c) }";
  }
  text += head + "40 (a) => (b) { b = Relu (a) }";
  CHECK(failure(parse(text, 17, ", \"local\" : 1")) ==
        "expanding node 'y' needs more than 250000 nodes or 200 nested functions");
}

TEST_CASE("types that the compiler does not know") {
  CHECK(failure(parse("g (string[2] x) => (string[2] y) { y = Identity (x) }")) ==
        "input 'x' has element type STRING, which is not supported");
  CHECK(failure(parse("g (seq(float[2]) x) => (float[2] y) { y = SequenceAt (x, x) }")) ==
        "input 'x' is not a tensor");
  CHECK(failure(parse("g (float[2] x) => (string[2] y) { y = Cast <to = 8> (x) }")) ==
        "output 'y' has element type STRING, which is not supported: labels are to be "
        "integers, or the output to be removed");
  auto proto = parse("g (float[2] x) => (float[2] y) { y = Add (x, w) }");
  auto &weight = *proto.mutable_graph()->add_initializer();
  weight.set_name("w");
  weight.set_data_type(onnx::TensorProto::COMPLEX64);
  weight.add_dims(2);
  CHECK(failure(proto) == "initializer 'w': element type COMPLEX64 is not supported");
  weight.set_data_type(onnx::TensorProto::FLOAT);
  weight.set_raw_data("1234");
  CHECK(failure(proto) == "initializer 'w': the shape needs 8 bytes, but there are 4");
  weight.set_dims(0, -2);
  CHECK(failure(proto) == "initializer 'w': dim 0 is -2, which is negative");
}

TEST_CASE("shapes and attributes that older opsets allowed but nobody can mean") {
  CHECK(failure(parse("g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis = 5> (x) }",
                      11)) == "node 'y' (Softmax): axis 5 is out of range for 2 dims");
  CHECK(failure(parse(R"(g (float[2] x, float[2] w) => (float[2] y) {
          y, z = Split <num_outputs = 3> (x) })",
                      18)) ==
        "node 'y' (Split): num_outputs is 3, but there are 2 outputs");
}

TEST_CASE("names that would upset a terminal are written as escapes, long ones cut") {
  auto proto = parse("g (float[2] x) => (float[2] y) { y = Add (x, z) }");
  proto.mutable_graph()->mutable_node(0)->set_input(1, "a\n\x1b[2J\xff\xc3\xa9");
  CHECK(failure(proto) ==
        "node 'y' (Add) uses 'a\\x0a\\x1b[2J\\xff\xc3\xa9', which nothing defines");
  proto.mutable_graph()->mutable_node(0)->set_input(1, std::string(100000, 'n'));
  CHECK(failure(proto).size() < 1100);
}
