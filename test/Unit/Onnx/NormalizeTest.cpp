//===- NormalizeTest.cpp - One canonical form from every opset ------------===//
//
// The forms; that they compute the same is checked against ONNX Runtime, over the
// operator tests of the onnx package, by test/E2E/models/check_loader.py.
//
//===----------------------------------------------------------------------===//
#include "TestModel.h"

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

using Ints = std::vector<int64_t>;

/// Loads a graph of one node written in an older opset and returns the whole model.
static Model normal(const std::string &graph, int opset) {
  auto model = load(graph, opset);
  INFO((model ? "" : model.error().message));
  REQUIRE(model);
  return std::move(*model);
}

TEST_CASE("axes are an input") {
  for (const char *op : {"Squeeze", "ReduceMean", "ReduceSum", "ReduceMax"}) {
    Model model = normal(std::string("g (float[2,1,3] x) => (float[2,3] y) { y = ") + op +
                             " <axes = [1]> (x) }",
                         11);
    const Node &node = model.graph.nodes.at(0);
    CHECK(node.opType == op);
    CHECK(!node.attributes.contains("axes"));
    CHECK(values<int64_t>(model, node.inputs.at(1)) == Ints{1});
  }
  Model all = normal("g (float[2,3] x) => (float[1,1] y) { y = ReduceMean (x) }", 13);
  CHECK(listing(all) == "ReduceMean(x) -> y\n");
  CHECK(*all.graph.nodes[0].attribute<int64_t>("keepdims") == 1);
}

TEST_CASE("a reduction of nothing is an Identity, of an empty list of axes one of all") {
  const char *text = R"(g (float[2,3] x) => (float[2,3] y) <int64[0] axes = {}> {
      t = ReduceSum <noop_with_empty_axes = NOOP> (x, axes)
      y = Relu (t)
    })";
  for (bool noop : {true, false}) {
    std::string graph = text;
    graph.replace(graph.find("NOOP"), 4, noop ? "1" : "0");
    CHECK(listing(normal(graph, 13)) ==
          (noop ? "Relu(x) -> y\n" : "ReduceSum(x) -> t\nRelu(t) -> y\n"));
  }
}

TEST_CASE("composed reductions become a ReduceSum with something around it") {
  auto ops = [](const char *op) {
    std::string result;
    Model model = normal(std::string("g (float[2,3] x) => (float[2] y) { y = ") + op +
                             " <axes = [1], keepdims = 0> (x) }",
                         13);
    for (const Node &node : model.graph.nodes) {
      result += node.opType + " ";
      CHECK(node.origin == "y");
    }
    CHECK(model.graph.nodes.back().outputs[0] == "y");
    return result;
  };
  CHECK(ops("ReduceL1") == "Abs ReduceSum ");
  CHECK(ops("ReduceL2") == "Mul ReduceSum Sqrt ");
  CHECK(ops("ReduceSumSquare") == "Mul ReduceSum ");
  CHECK(ops("ReduceLogSum") == "ReduceSum Log ");
  CHECK(ops("ReduceLogSumExp") ==
        "ReduceMax ReduceMax Clip Clip Sub Exp ReduceSum Log Add ");
}

TEST_CASE("the logarithm of a sum of exponentials of integers is one of numbers") {
  CHECK(listing(normal("g (int32[2,3] x) => (int32[1,1] y) { y = ReduceLogSumExp (x) }",
                       13)) ==
        "Cast(x) -> y/Cast\nReduceMax(y/Cast) -> y/ReduceMax\n"
        "Clip(y/ReduceMax, y/min, y/max) -> y/Clip\nSub(y/Cast, y/Clip) -> y/Sub\n"
        "Exp(y/Sub) -> y/Exp\nReduceSum(y/Exp) -> y/sum\nLog(y/sum) -> y/Log\n"
        "Add(y/Log, y/Clip) -> y/f64\nCast(y/f64) -> y\n");
}

TEST_CASE("RoiAlign before opset 16 takes edges as they are") {
  std::string graph = "g (float[1,1,4,4] x, float[2,4] r, int64[2] b) => "
                      "(float[2,1,1,1] y) { y = RoiAlign (x, r, b) }";
  for (auto [opset, mode] :
       {std::pair(10, "output_half_pixel"), std::pair(16, "half_pixel")})
    CHECK(*normal(graph, opset)
               .graph.nodes.at(0)
               .attribute<std::string>("coordinate_transformation_mode") == mode);
}

TEST_CASE("Sum, Mean, Max and Min take two operands at a time") {
  CHECK(listing(normal(R"(g (float[2] a, float[2] b, float[2] c) => (float[2] y) {
      y = Sum (a, b, c) })",
                       9)) == "Add(a, b) -> y/Add\nAdd(y/Add, c) -> y\n");
  CHECK(listing(normal("g (float[2] a, float[2] b) => (float[2] y) { y = Max (a, b) }",
                       12)) == "Max(a, b) -> y\n");
  Model mean =
      normal("g (double[2] a, double[2] b) => (double[2] y) { y = Mean (a, b) }", 13);
  CHECK(listing(mean) == "Add(a, b) -> y/Add\nDiv(y/Add, y/count) -> y\n");
  CHECK(values<double>(mean, "y/count") == std::vector<double>{2});
}

TEST_CASE("Softmax of the old kind: over the axis, or over rows of a matrix") {
  auto form = [](const char *shape, int axis, int opset) {
    return listing(normal("g (float[" + std::string(shape) + "] x) => (float[" + shape +
                              "] y) { y = Softmax <axis = " + std::to_string(axis) +
                              "> (x) }",
                          opset));
  };
  std::string plain = "Softmax(x) -> y\n";
  CHECK(form("2,3,4", 2, 11) == plain);
  CHECK(form("2,3,4", -1, 11) == plain);
  CHECK(form("2,3,1,1", 1, 9) == plain);
  CHECK(form("2,3,4", 1, 13) == plain);
  CHECK(form("2,3,4", 1, 11) == "Flatten(x) -> y/Flatten\nShape(x) -> y/Shape\n"
                                "Softmax(y/Flatten) -> y/rows\n"
                                "Reshape(y/rows, y/Shape) -> y\n");
}

TEST_CASE("the rank is found through computed shapes, which stop ONNX's inference") {
  Model model = normal(R"(g (float[2,12] x, float[4] b) => (float[2,3,4] y)
    <int64[1] two = {2}, int64[1] rest = {3}, int64[1] last = {4}> {
      zero = Constant <value_ints = [0]> ()
      one = Constant <value_ints = [1]> ()
      s = Shape (x)
      n = Slice (s, zero, one)
      f = Cast <to = 1> (n)
      i = Cast <to = 7> (f)
      shape = Concat <axis = 0> (i, rest, last)
      r = Reshape (x, shape)
      t = Add (r, b)
      y = Softmax <axis = 2> (t)
    })",
                       12);
  CHECK(model.graph.nodes.back().opType == "Softmax");
}

TEST_CASE("the rank goes through every operator that has a definition") {
  // Behind a computed shape of 3 elements, what follows makes [2, 3, 4] of it.
  auto last = [&](const std::string &steps) {
    return normal(R"(g (float[2,12] x, float[4] b) => (float[2,3,4] y)
      <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rest = {3}, int64[1] last = {4},
       int64 first = {0}, int64[6] pads = {0, 0, 0, 0, 0, 0}, int64[3] once = {1, 1, 1}> {
        s = Shape (x)
        n = Slice (s, zero, one)
        f = Cast <to = 1> (n)
        i = Cast <to = 7> (f)
        shape = Concat <axis = 0> (i, rest, last)
        r = Reshape (x, shape)
)" + steps + "y = Softmax <axis = 2> (t) }",
                  12)
        .graph.nodes.back()
        .opType;
  };
  CHECK(last("t = Softsign (r) ") == "Softmax");
  CHECK(last("t = CumSum (r, first) ") == "Softmax");
  CHECK(last("a = Unsqueeze <axes = [0]> (r) t = Squeeze <axes = [0]> (a) ") ==
        "Softmax");
  CHECK(last("t = Pad (r, pads) ") == "Softmax");
  CHECK(last("t = Tile (r, once) ") == "Softmax");
  CHECK(last("a, t = Split <axis = 0> (r) ") == "Softmax");
  CHECK(last("k = Flatten <axis = 1> (r) t = Reshape (k, shape) ") == "Softmax");
  CHECK(last("t = Transpose <perm = [0, 1, 2]> (r) ") == "Softmax");
  CHECK(last("m = Greater (r, b) t = Where (m, r, b) ") == "Softmax");
  CHECK(last("t, m = Dropout (r) ") == "Softmax");
}

TEST_CASE("Slice, Pad, Clip, TopK and Split take what were attributes as inputs") {
  Model slice = normal("g (float[4,6] x) => (float[2,6] y) { y = Slice <starts = [1], "
                       "ends = [3], axes = [0]> (x) }",
                       9);
  const Node &node = slice.graph.nodes[0];
  CHECK(values<int64_t>(slice, node.inputs.at(1)) == Ints{1});
  CHECK(values<int64_t>(slice, node.inputs.at(2)) == Ints{3});
  CHECK(values<int64_t>(slice, node.inputs.at(3)) == Ints{0});

  Model pad = normal("g (double[2] x) => (double[4] y) { y = Pad <pads = [1, 1], value = "
                     "2.5> (x) }",
                     10);
  CHECK(values<int64_t>(pad, pad.graph.nodes[0].inputs.at(1)) == Ints{1, 1});
  CHECK(values<double>(pad, pad.graph.nodes[0].inputs.at(2)) == std::vector<double>{2.5});

  Model clip = normal("g (float[2] x) => (float[2] y) { y = Clip <max = 6.0> (x) }", 7);
  REQUIRE(clip.graph.nodes[0].inputs.size() == 3);
  CHECK(!clip.graph.nodes[0].hasInput(1));
  CHECK(values<float>(clip, clip.graph.nodes[0].inputs[2]) == std::vector<float>{6});

  Model top =
      normal("g (float[4] x) => (float[2] y, int64[2] i) { y, i = TopK <k = 2> (x) }", 9);
  CHECK(values<int64_t>(top, top.graph.nodes[0].inputs.at(1)) == Ints{2});
  CHECK(*top.graph.nodes[0].attribute<int64_t>("largest") == 1);

  Model split = normal("g (float[6] x) => (float[2] y, float[4] z) { y, z = Split <split "
                       "= [2, 4]> (x) }",
                       11);
  CHECK(values<int64_t>(split, split.graph.nodes[0].inputs.at(1)) == Ints{2, 4});
  Model equal =
      normal("g (float[6] x) => (float[3] y, float[3] z) { y, z = Split (x) }", 13);
  CHECK(equal.graph.nodes[0].inputs.size() == 1);
  CHECK(*equal.graph.nodes[0].attribute<int64_t>("num_outputs") == 2);
}

TEST_CASE("Upsample and Resize of every age have the inputs X, roi, scales, sizes") {
  std::string head = "g (float[1,1,2,2] x) => (float[1,1,4,4] y) ";
  auto check = [&](const std::string &rest, int opset, const char *coordinates) {
    Model model = normal(head + rest, opset);
    const Node &node = model.graph.nodes.at(0);
    CHECK(node.opType == "Resize");
    REQUIRE(node.inputs.size() == 3);
    CHECK(!node.hasInput(1));
    CHECK(values<float>(model, node.inputs[2]) == std::vector<float>{1, 1, 2, 2});
    CHECK(*node.attribute<std::string>("coordinate_transformation_mode") == coordinates);
    CHECK(*node.attribute<std::string>("mode") == "nearest");
  };
  std::string scales = "<float[4] s = {1, 1, 2, 2}, float[0] none = {}> ";
  check("{ y = Upsample <scales = [1.0, 1.0, 2.0, 2.0]> (x) }", 7, "asymmetric");
  check(scales + "{ y = Upsample (x, s) }", 9, "asymmetric");
  check(scales + "{ y = Resize (x, s) }", 10, "asymmetric");
  check(scales + "{ y = Resize (x, none, s) }", 11, "half_pixel");
  check(scales + "{ y = Resize (x, , s) }", 19, "half_pixel");
}

TEST_CASE("Dropout does nothing, and its mask is all ones") {
  CHECK(listing(normal(R"(g (float[2] x) => (float[2] y) {
      d, mask = Dropout <ratio = 0.5> (x)
      y = Relu (d) })",
                       9)) == "Relu(x) -> y\n");
  Model old = normal(R"(g (double[2] x) => (double[2] y, double[2] m) {
      y, m = Dropout (x) })",
                     7);
  CHECK(listing(old) ==
        "Shape(x) -> y/Shape\nConstantOfShape(y/Shape) -> m\nIdentity(x) -> y\n");
  CHECK(old.graph.nodes[1].attribute<Tensor>("value")->type == DType::F64);
  Model mask = normal(R"(g (float[2] x) => (float[2] y, bool[2] m) {
      y, m = Dropout (x) })",
                      13);
  CHECK(mask.graph.nodes[1].attribute<Tensor>("value")->type == DType::Bool);
  Model training = normal(R"(g (float[2] x) => (float[2] y)
    <float r = {0.5}, bool t = {1}> { y = Dropout (x, r, t) })",
                          13);
  CHECK(listing(training) == "Dropout(x, r, t) -> y\n");
}

TEST_CASE("BatchNormalization has one output in inference") {
  Model model = normal(R"(g (float[1,2,3] x) => (float[1,2,3] y)
    <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {1, 1}> {
      y, a, c, d, e = BatchNormalization (x, s, b, m, v) })",
                       9);
  CHECK(model.graph.nodes[0].outputs.size() == 1);
  CHECK(*model.graph.nodes[0].attribute<int64_t>("training_mode") == 0);
}

TEST_CASE("windows are written out") {
  Model conv = normal(R"(g (float[1,2,8,8] x, float[4,2,3,5] w) => (float[1,4,6,4] y) {
      y = Conv <auto_pad = "VALID"> (x, w) })",
                      11);
  const Node &node = conv.graph.nodes[0];
  CHECK(*node.attribute<Ints>("kernel_shape") == Ints{3, 5});
  CHECK(*node.attribute<Ints>("strides") == Ints{1, 1});
  CHECK(*node.attribute<Ints>("dilations") == Ints{1, 1});
  CHECK(*node.attribute<Ints>("pads") == Ints{0, 0, 0, 0});
  CHECK(*node.attribute<std::string>("auto_pad") == "NOTSET");
  Model same = normal(R"(g (float[1,1,8] x) => (float[1,1,4] y) {
      y = MaxPool <kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER"> (x) })",
                      8);
  CHECK(!same.graph.nodes[0].attributes.contains("pads"));
  CHECK(*same.graph.nodes[0].attribute<int64_t>("ceil_mode") == 0);
}

TEST_CASE("what newer opsets added has its default") {
  Model reshape = normal(R"(g (float[2,3] x) => (float[3,2] y) <int64[2] s = {3, 2}> {
      y = Reshape (x, s) })",
                         7);
  CHECK(*reshape.graph.nodes[0].attribute<int64_t>("allowzero") == 0);
  Model transpose = normal("g (float[2,3] x) => (float[3,2] y) { y = Transpose (x) }", 7);
  CHECK(*transpose.graph.nodes[0].attribute<Ints>("perm") == Ints{1, 0});
  Model shape = normal("g (float[2,3] x) => (int64[2] y) { y = Shape (x) }", 7);
  CHECK(*shape.graph.nodes[0].attribute<int64_t>("start") == 0);
}
