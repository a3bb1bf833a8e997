//===- ShapesTest.cpp - Binding symbolic dims -----------------------------===//
#include "TestModel.h"

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

static const char *twoInputs = R"(g (int64[batch,length] ids, int64[batch,4] mask)
  => (int64[batch,length] y) { z = ReduceSum <keepdims = 1> (mask)  y = Add (ids, z) })";

static Expected<Model> bind(std::vector<ShapeBinding> shapes,
                            const char *text = twoInputs) {
  LoadOptions options;
  options.shapes = std::move(shapes);
  return load(text, 17, options);
}

static std::string failure(std::vector<ShapeBinding> shapes,
                           const char *text = twoInputs) {
  auto model = bind(std::move(shapes), text);
  REQUIRE(!model);
  return model.error().message;
}

TEST_CASE("a symbol bound by one input holds for the others") {
  for (auto shapes : {std::vector<ShapeBinding>{{"ids", {2, 7}}},
                      std::vector<ShapeBinding>{{"batch", {2}}, {"length", {7}}}}) {
    auto model = bind(shapes);
    REQUIRE(model);
    CHECK(model->graph.inputs[0].shape == std::vector<int64_t>{2, 7});
    CHECK(model->graph.inputs[1].shape == std::vector<int64_t>{2, 4});
  }
}

TEST_CASE("shapes that are missing or do not fit are one sentence") {
  CHECK(failure({}) == "dim 0 of input 'ids' is symbolic ('batch'): give sizes, as in"
                       " --shape batch=1 --shape length=1");
  CHECK(failure({{"mask", {3, 4}}}) ==
        "dim 1 of input 'ids' is symbolic ('length'): give sizes, as in"
        " --shape length=1");
  CHECK(failure({{"ids", {2}}}) ==
        "input 'ids' has 2 dims, but the shape given for it is [2]");
  CHECK(failure({{"mask", {2, 5}}}) ==
        "dim 1 of input 'mask' is 4 in the model, but the shape given for it is [2, 5]");
  CHECK(failure({{"ids", {2, 7}}, {"mask", {3, 4}}}) ==
        "dimension 'batch' is 2 by the shape given for input 'ids', but 3 by the shape"
        " given for input 'mask'");
  CHECK(failure({{"idz", {2, 7}}}) ==
        "a shape is given for 'idz', which is not an input ('ids', 'mask'), and not a"
        " dimension ('batch', 'length')");
  CHECK(failure({{"batch", {2, 3}}}) ==
        "'batch' is one dimension, but the shape given for it is [2, 3]");
  CHECK(failure({{"ids", {2, 7}}, {"ids", {2, 8}}}) == "two shapes are given for 'ids'");
}

TEST_CASE("all that is missing is said at once") {
  auto model =
      load(parse("g (float[batch,3] x, float[batch] m, float[2,steps] s, "
                 "float[steps,batch] t) => (float[batch,3] y) { y = Relu (x) }"));
  REQUIRE(!model);
  CHECK(model.error().message ==
        "dim 0 of input 'x' is symbolic ('batch'): give sizes, as in"
        " --shape batch=1 --shape steps=1");
}

TEST_CASE("placeholders are not symbols, and an open dim says so") {
  auto proto = parse("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }");
  auto &shape = *proto.mutable_graph()
                     ->mutable_input(0)
                     ->mutable_type()
                     ->mutable_tensor_type()
                     ->mutable_shape();
  shape.mutable_dim(0)->set_dim_param("?");
  shape.mutable_dim(1)->set_dim_param("?");
  auto open = load(proto);
  REQUIRE(!open);
  CHECK(open.error().message ==
        "dim 0 of input 'x' is open: give the shape, as in --shape x=1,1");
  LoadOptions options;
  options.shapes = {{"x", {4, 5}}};
  REQUIRE(load(proto, options));

  shape.mutable_dim(0)->set_dim_value(-1);
  CHECK(!load(proto));
  REQUIRE(load(proto, options));

  proto.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->clear_shape();
  auto none = load(proto);
  REQUIRE(!none);
  CHECK(none.error().message ==
        "input 'x' has no shape: give one, as in --shape x=1,128");
  REQUIRE(load(proto, options));
}

/// Two inputs, whose dims' names the parser of ONNX's text cannot read.
static onnx::ModelProto named(const std::string &first, const std::string &second) {
  auto proto = parse("g (float[a,2] x, float[b] y) => (float[a,2] z) { z = Relu (x) }");
  auto dim = [&](int input) {
    return proto.mutable_graph()
        ->mutable_input(input)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0);
  };
  dim(0)->set_dim_param(first);
  dim(1)->set_dim_param(second);
  return proto;
}

static Expected<int64_t> sizeOfSecond(const std::string &first, const std::string &second,
                                      std::vector<ShapeBinding> shapes) {
  LoadOptions options;
  options.shapes = std::move(shapes);
  return load(named(first, second), options).map([](const Model &model) {
    return model.graph.inputs[1].shape[0];
  });
}

TEST_CASE("names that are sums or products of others are computed") {
  CHECK(*sizeOfSecond("a", "a + b", {{"a", {3}}, {"b", {4}}}) == 7);
  CHECK(*sizeOfSecond("a", "a + b", {{"x", {3, 2}}, {"b", {4}}}) == 7);
  CHECK(*sizeOfSecond("a", "2*a", {{"a", {3}}}) == 6);
  CHECK(*sizeOfSecond("a", "(a + 1)*b - 2", {{"a", {3}}, {"b", {4}}}) == 14);
  CHECK(*sizeOfSecond("a", "a + b", {{"a", {3}}, {"a + b", {9}}}) == 9);
  // Names that only look like it.
  CHECK(*sizeOfSecond("a", "a-b", {{"a", {3}}, {"a-b", {5}}}) == 5);
  CHECK(*sizeOfSecond("a", "Max(1, a)", {{"a", {3}}, {"Max(1, a)", {5}}}) == 5);
  CHECK(*sizeOfSecond("a", "2a", {{"a", {3}}, {"2a", {5}}}) == 5);

  auto error = [](auto &&...given) {
    return sizeOfSecond(std::forward<decltype(given)>(given)...).error().message;
  };
  CHECK(
      error("a", "a + b", std::vector<ShapeBinding>{}) ==
      "dim 0 of input 'x' is symbolic ('a'): give sizes, as in --shape a=1 --shape b=1");
  CHECK(error("a", "a + b", std::vector<ShapeBinding>{{"a", {1}}}) ==
        "dim 0 of input 'y' is symbolic ('a + b'): give sizes, as in --shape b=1");
  CHECK(error("a", "Max(1, a)", std::vector<ShapeBinding>{{"a", {1}}}) ==
        "dim 0 of input 'y' is symbolic ('Max(1, a)'): give sizes, as in "
        "--shape 'Max(1, a)=1'");
  CHECK(error("a", "a + b",
              std::vector<ShapeBinding>{{"a", {1}}, {"b", {2}}, {"y", {4}}}) ==
        "dimension 'a + b' is 4 by the shape given for input 'y', but 3 by the sizes of "
        "its parts");
  CHECK(error("a", "a - 2", std::vector<ShapeBinding>{{"a", {1}}}) ==
        "dimension 'a - 2' is -1 by the sizes of its parts");
  CHECK(error("a", "a * a * a", std::vector<ShapeBinding>{{"a", {int64_t(1) << 32}}})
            .starts_with("dim 0 of input 'y' is symbolic ('a * a * a')"));
  CHECK(error("a", std::string(1000, '(') + "a", std::vector<ShapeBinding>{{"a", {1}}})
            .starts_with("dim 0 of input 'y' is symbolic ('((("));
}

TEST_CASE("--shape texts") {
  auto good = parseShapeBinding("in=put=2,30");
  REQUIRE(good);
  CHECK(good->name == "in=put");
  CHECK(good->shape == std::vector<int64_t>{2, 30});
  CHECK(parseShapeBinding("scalar=")->shape.empty());
  CHECK(parseShapeBinding("x").error().message == "shape 'x': expected NAME=1,128");
  CHECK(parseShapeBinding("=1").error().message == "shape '=1': expected NAME=1,128");
  CHECK(parseShapeBinding("x=1,").error().message ==
        "shape 'x=1,': there is nothing after the last comma");
  CHECK(parseShapeBinding("x=1,-2").error().message ==
        "shape 'x=1,-2': '-2' is not an extent");
  CHECK(parseShapeBinding("x=99999999999999999999").error().message ==
        "shape 'x=99999999999999999999': '99999999999999999999' is not an extent");
}
