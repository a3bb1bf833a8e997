//===- LoadTest.cpp - What the loader makes of whole models ---------------===//
#include "TestModel.h"

#include "partita/Onnx/Write.h"

using namespace partita;
using namespace partita::onnx_model;
using namespace partita::test;

TEST_CASE("nodes come sorted, dead ones and their constants are left out") {
  auto model = load(R"(g (float[2,3] x) => (float[2,3] y)
    <float[3] w = {1, 2, 3}, float[3] unused = {0, 0, 0}> {
      y = Relu (t)
      dead = Mul (t, unused)
      t = Add (x, w)
    })");
  REQUIRE(model);
  CHECK(listing(*model) == "Add(x, w) -> t\nRelu(t) -> y\n");
  REQUIRE(model->graph.initializers.size() == 1);
  CHECK(values<float>(*model, "w") == std::vector<float>{1, 2, 3});
  CHECK(model->graph.inputs[0].shape == std::vector<int64_t>{2, 3});
  CHECK(model->graph.nodes[0].sinceVersion == 14);
}

TEST_CASE("a nameless or repeated node is called by its first output") {
  auto proto = parse(R"(g (float[2] x) => (float[2] y) {
      a = Relu (x)
      b = Relu (a)
      c = Relu (b)
      y = Relu (c)
    })");
  auto &nodes = *proto.mutable_graph()->mutable_node();
  nodes[0].set_name("same");
  nodes[1].set_name("same");
  nodes[2].set_name("own");
  auto model = load(proto);
  REQUIRE(model);
  std::vector<std::string> names;
  for (const Node &node : model->graph.nodes)
    names.push_back(node.name);
  CHECK(names == std::vector<std::string>{"a", "b", "own", "y"});
}

TEST_CASE("nodes keep the module of the framework that they come from") {
  auto proto = parse(R"(g (float[2,3] x) => (float[2,4] y)
    <float[3,4] val_1 = {1,1,1,1,1,1,1,1,1,1,1,1}, float[4] own = {1, 2, 3, 4}> {
      t = MatMul (x, val_1)
      s = Add (t, own)
      r = Relu (s)
      y = Relu (r)
    })");
  auto &nodes = *proto.mutable_graph()->mutable_node();
  auto *scopes = nodes[0].add_metadata_props();
  scopes->set_key("pkg.torch.onnx.name_scopes");
  scopes->set_value("['', 'model', 'model.h.0', 'model.h.0.fc', 'linear_3']");
  nodes[0].set_name("node_linear_3");
  nodes[1].set_name("/model/h.0/fc/Add");
  nodes[2].set_name("/model/h.0/Relu");
  nodes[3].set_name("/Relu");
  auto model = load(proto);
  REQUIRE(model);
  CHECK(model->graph.modules == ModulePaths{{"node_linear_3", "model.h.0.fc"},
                                            {"/model/h.0/fc/Add", "model.h.0.fc"},
                                            {"/model/h.0/Relu", "model.h.0"}});
  // What a module calls its parameters, whatever the exporter does.
  using Alias = std::pair<std::string, std::string>;
  CHECK(model->graph.aliases == std::vector<Alias>{{"model.h.0.fc.weight", "val_1"},
                                                   {"model.h.0.fc.bias", "own"}});
}

TEST_CASE("a broken list of scopes is no module path") {
  for (std::string text :
       {"", "[", "['model", "model", "[model, linear]", "['linear']"}) {
    auto proto = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }");
    auto &node = *proto.mutable_graph()->mutable_node(0);
    auto *scopes = node.add_metadata_props();
    scopes->set_key("pkg.torch.onnx.name_scopes");
    scopes->set_value(text);
    auto model = load(proto);
    REQUIRE(model);
    CHECK(model->graph.modules.empty());
  }
}

TEST_CASE("Constant nodes become initializers, whichever way they hold the value") {
  auto model = load(R"(g (float[2] x) => (float[2] y) {
      a = Constant <value = float[2] {1.5, 2.5}> ()
      b = Constant <value_float: float = 3.0> ()
      c = Constant <value_ints: ints = [4, 5]> ()
      d = Cast <to = 1> (c)
      s = Add (x, a)
      t = Add (s, b)
      y = Add (t, d)
    })");
  REQUIRE(model);
  CHECK(values<float>(*model, "a") == std::vector<float>{1.5, 2.5});
  CHECK(values<float>(*model, "b") == std::vector<float>{3.0});
  CHECK(constant(*model, "b")->shape.empty());
  CHECK(values<int64_t>(*model, "c") == std::vector<int64_t>{4, 5});
}

TEST_CASE("defaults of the operator's definition are filled in") {
  auto model = load(R"(g (float[2,3] x, float[3,2] w) => (float[2,2] y) {
      y = Gemm (x, w)
    })");
  REQUIRE(model);
  const Node &gemm = model->graph.nodes[0];
  CHECK(*gemm.attribute<float>("alpha") == 1.0f);
  CHECK(*gemm.attribute<int64_t>("transB") == 0);
  CHECK(gemm.attribute<int64_t>("alpha") == nullptr);
}

TEST_CASE("an input with a default value is a constant") {
  auto proto = parse(R"(g (float[2] x, float[2] w) => (float[2] y)
    <float[2] w = {7, 8}> { y = Add (x, w) })");
  auto model = load(proto);
  REQUIRE(model);
  CHECK(model->graph.inputs.size() == 1);
  CHECK(values<float>(*model, "w") == std::vector<float>{7, 8});
}

TEST_CASE("functions of the model are inlined, with names that say where from") {
  auto proto = parse(R"(g (float[4] x) => (float[4] y) {
      m = local.Twice <times: float = 3.0> (x)
      y = local.Twice (m)
    }
    <domain: "local", opset_import: ["" : 13, "local" : 1]>
    Scale <factor: float = 2.0> (a) => (b) {
      k = Constant <value_float: float = @factor> ()
      b = Mul (a, k)
    }
    <domain: "local", opset_import: ["" : 13, "local" : 1]>
    Twice <times: float = 5.0> (p) => (q) {
      r = local.Scale <factor: float = @times> (p)
      q = local.Scale (r)
    })",
                     17, ", \"local\" : 1");
  proto.mutable_graph()->mutable_node(0)->set_name("first");
  auto model = load(proto);
  REQUIRE(model);
  REQUIRE(model->graph.nodes.size() == 4);
  std::vector<float> factors;
  for (const Node &node : model->graph.nodes) {
    CHECK(node.opType == "Mul");
    CHECK(node.sinceVersion == 13);
    factors.push_back(values<float>(*model, node.inputs[1])[0]);
  }
  CHECK(factors == std::vector<float>{3, 2, 5, 2});
  CHECK(model->graph.nodes[0].name == "first/Scale/Mul");
  CHECK(model->graph.nodes[1].name == "first/Scale_2/Mul");
  CHECK(model->graph.nodes[0].origin == "first");
  CHECK(model->graph.nodes[3].origin == "y");
}

TEST_CASE("a function that hands an input through stays an Identity at the output") {
  auto model = load(parse(R"(g (float[4] x) => (float[4] y) { y = local.Same (x) }
    <domain: "local", opset_import: ["" : 17]>
    Same (a) => (a) { unused = Relu (a) })",
                          17, ", \"local\" : 1"));
  REQUIRE(model);
  CHECK(listing(*model) == "Identity(x) -> y\n");
}

TEST_CASE("an If with a constant condition becomes the branch it takes") {
  const char *text = R"(g (float[2] x) => (float[2] y)
    <bool cond = {VALUE}> {
      h = Relu (x)
      y = If (cond) <
        then_branch = t () => (float[2] a) { u = Add (h, h)  a = Neg (u) },
        else_branch = e () => (float[2] h) { unused = Neg (x) }
      >
    })";
  for (bool taken : {true, false}) {
    std::string graph = text;
    graph.replace(graph.find("VALUE"), 5, taken ? "1" : "0");
    auto model = load(graph);
    REQUIRE(model);
    std::string rest = taken ? "Add(h, h) -> y/u\nNeg(y/u) -> y\n" : "Identity(h) -> y\n";
    CHECK(listing(*model) == "Relu(x) -> h\n" + rest);
  }
}

TEST_CASE("both branches stand between two nodes where the condition is computed") {
  auto model = load(R"(g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] a) { a = Neg (x) },
        else_branch = e () => (float[2] b) { b = Constant <value = float[2] {1, 2}> () }
      >
    })");
  REQUIRE(model);
  CHECK(listing(*model) == "IfBegin(c, x) -> y/c y/x\nNeg(y/x) -> y/y\n"
                           "IfEnd(y/c, y/y, y/y_2) -> y\n");
}

TEST_CASE("a Loop of unknown length stays, for the compiler to report") {
  auto model = load(R"(g (int64 n, bool c, float[2] x) => (float[2] y) {
      y = Loop (n, c, x) <
        body = b (int64 i, bool k, float[2] h) => (bool o, float[2] z) {
          o = Identity (k)
          z = Neg (h)
        }
      >
    })");
  REQUIRE(model);
  const Node &node = model->graph.nodes[0];
  CHECK(node.opType == "Loop");
  REQUIRE(node.attribute<OpaqueAttribute>("body"));
  CHECK(node.attribute<OpaqueAttribute>("body")->kind == "a graph");
  ScratchFolder folder;
  auto written = writeModel(*model, folder.file("out.onnx"));
  REQUIRE(!written);
  CHECK(written.error().message.ends_with(
      "node 'y' (Loop): attribute 'body' is a graph, which cannot be written"));
  CHECK(!std::filesystem::exists(folder.file("out.onnx")));
}

TEST_CASE("a Loop without an iteration gives what it was given") {
  for (const char *first : {"n = Constant <value = int64 {0}> ()  "
                            "c = Constant <value = bool {1}> ()",
                            "n = Constant <value = int64 {5}> ()  "
                            "c = Constant <value = bool {0}> ()"}) {
    auto model = load(R"(g (float[2] x) => (float[2] y) { )" + std::string(first) + R"(
      y = Loop (n, c, x) <
        body = b (int64 i, bool k, float[2] h) => (bool o, float[2] z) {
          o = Identity (k)
          z = Neg (h)
        }
      >
    })");
    REQUIRE(model);
    CHECK(listing(*model) == "Identity(x) -> y\n");
  }
}

TEST_CASE("a Gradient in a function is named") {
  auto model = load(parse(R"(g (float[2] x) => (float[2] y) { y = local.Slope (x) }
    <domain: "local", opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>
    Slope (a) => (d) {
      s = Mul (a, a)
      d = ai.onnx.preview.training.Gradient <xs = ["a"], y = "s"> (a)
    })",
                          17, ", \"local\" : 1, \"ai.onnx.preview.training\" : 1"));
  REQUIRE(!model);
  CHECK(model.error().message ==
        "node 'y/Gradient' (Gradient) stands in a function, a branch or a loop; it names "
        "values that it differentiates, which must be of the model's own graph");
}

TEST_CASE("operators that ONNX defines by a function are expanded unless kept") {
  const char *text = R"(g (float[2,8] x) => (float[2,8] y) { y = Mish (x) })";
  auto kept = load(text, 18);
  REQUIRE(kept);
  CHECK(listing(*kept) == "Mish(x) -> y\n");
  LoadOptions options;
  options.kept = {"Softplus"};
  auto expanded = load(text, 18, options);
  REQUIRE(expanded);
  std::vector<std::string> ops;
  for (const Node &node : expanded->graph.nodes)
    ops.push_back(node.opType);
  CHECK(ops == std::vector<std::string>{"Softplus", "Tanh", "Mul"});
  CHECK(expanded->graph.nodes[0].name == "y/Softplus");
  CHECK(expanded->graph.nodes[0].origin == "y");
}

TEST_CASE("bodies that depend on types are expanded, also inside of others") {
  // The loss is defined by NegativeLogLikelihoodLoss, which has a body of its own.
  auto model = load(R"(g (float[4,5] scores, int64[4] labels) => (float loss) {
      loss = SoftmaxCrossEntropyLoss <reduction = "mean"> (scores, labels)
    })");
  REQUIRE(model);
  for (const Node &node : model->graph.nodes) {
    CHECK(node.opType != "SoftmaxCrossEntropyLoss");
    CHECK(node.opType != "NegativeLogLikelihoodLoss");
    CHECK(node.origin == "loss");
  }
  CHECK(model->graph.nodes.size() > 3);
}

TEST_CASE("operators of other domains stay with domain and name") {
  auto model = load(parse(R"(g (float[2] x) => (float[2] y) {
      y = com.acme.Frobnicate <n = 3> (x)
    })",
                          17, ", \"com.acme\" : 2"));
  REQUIRE(model);
  CHECK(model->graph.nodes[0].domain == "com.acme");
  CHECK(model->graph.nodes[0].sinceVersion == 0);
  CHECK(*model->graph.nodes[0].attribute<int64_t>("n") == 3);
  CHECK(model->opsets.at("com.acme") == 2);
}

TEST_CASE("a written model loads as the same graph") {
  auto model = load(R"(g (float[2,3] x) => (float[2,1] y) <float[3] w = {1, 2, 3}> {
      t = Mul (x, w)
      y = ReduceMean <axes = [1]> (t)
    })",
                    11);
  REQUIRE(model);
  ScratchFolder folder;
  REQUIRE(writeModel(*model, folder.file("out.onnx")));
  auto again = loadModel(folder.file("out.onnx"));
  REQUIRE(again);
  CHECK(listing(*again) == listing(*model));
  CHECK(values<float>(*again, "w") == values<float>(*model, "w"));
}
