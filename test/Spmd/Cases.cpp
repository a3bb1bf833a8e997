//===- Cases.cpp - Every graph op, with shapes, types and data ------------===//
#include "Cases.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <map>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

std::string OpCase::name() const {
  std::string text = op;
  for (size_t i = 0; i < operands.size(); ++i)
    text += (i ? ", " : " ") + operands[i];
  if (!result.empty())
    text += " -> " + result;
  return attributes.empty() ? text : text + " {" + attributes + "}";
}

void spmd::loadDialects(MLIRContext &context) {
  context.disableMultithreading();
  context.loadDialect<graph::GraphDialect, dist::DistDialect, comm::CommDialect,
                      func::FuncDialect>();
}

//===-- Ops with a payload ------------------------------------------------===//

/// Operands on which a function is defined everywhere and numerically tame.
static std::vector<Data> payloadData(StringRef op) {
  static const std::map<std::string, std::vector<Data>> table{
      {"graph.log", {{Data::Positive}}},
      {"graph.sqrt", {{Data::Positive}}},
      {"graph.reciprocal", {{Data::NonZero}}},
      {"graph.div", {{Data::Any}, {Data::NonZero}}},
      {"graph.mod", {{Data::Any}, {Data::NonZero}}},
      {"graph.pow", {{Data::Positive}, {Data::Any}}},
      {"graph.equal", {{Data::Few}, {Data::Few}}},
      {"graph.isnan", {{Data::WithNaN}}},
      {"graph.isinf", {{Data::WithInfinity}}},
      {"graph.tan", {{Data::Unit}}},
      {"graph.asin", {{Data::Unit}}},
      {"graph.acos", {{Data::Unit}}},
      {"graph.atanh", {{Data::Unit}}},
      {"graph.acosh", {{Data::AboveOne}}},
      {"graph.shift_left", {{Data::Any}, {Data::Positive}}},
      {"graph.shift_right", {{Data::Any}, {Data::Positive}}},
  };
  auto it = table.find(op.str());
  return it == table.end() ? std::vector<Data>{} : it->second;
}

/// Element types of the operands to try: floats always, integers where the payload has
/// no transcendental function, booleans for logic.
static std::vector<std::string> payloadTypes(StringRef op, const Payload &payload) {
  std::string name = op.drop_front(6).str();
  if (name == "not" || name == "and" || name == "or" || name == "xor")
    return {"i1"};
  if (name.starts_with("bit_"))
    return {"i32", "ui8"};
  if (name.starts_with("shift_"))
    return {"ui32", "ui8"};
  std::vector<std::string> types{"f32"};
  bool integral = true;
  for (const ScalarNode &node : payload.nodes())
    integral &= node.op < ScalarOp::Exp || node.op == ScalarOp::Abs ||
                node.op == ScalarOp::Sign || node.op >= ScalarOp::Pow;
  static const std::set<std::string> floatOnly{
      "softsign",     "hard_swish", "reciprocal", "leaky_relu", "thresholded_relu",
      "hard_sigmoid", "prelu",      "isnan",      "cast",       "isinf"};
  if (integral && floatOnly.count(name) == 0)
    types.insert(types.end(), {"i64", "i32"});
  if (name == "add")
    types.insert(types.end(), {"f16", "bf16", "f64"});
  if (name == "equal" || name == "where")
    types.push_back("i1");
  return types;
}

static void addPayloadCases(std::vector<OpCase> &cases, StringRef op,
                            const Payload &payload) {
  size_t count = static_cast<size_t>(payload.numOperands());
  auto add = [&](const std::vector<std::string> &shapes, const std::string &type,
                 const std::string &attributes = "") {
    OpCase c{op.str(), {}, attributes, "", payloadData(op)};
    for (size_t i = 0; i < count; ++i)
      c.operands.push_back(shapes[i] + (op == "graph.where" && i == 0 ? "i1" : type));
    cases.push_back(std::move(c));
  };
  std::vector<std::string> equal{"4x3x", "4x3x", "4x3x"};
  if (op == "graph.cast") {
    cases.push_back({op.str(), {"4x3xf32"}, "to = i1", "", {{Data::Few}}});
    for (const char *pair : {"f32 f64", "f32 f16", "f16 f32", "bf16 f32", "f32 i32",
                             "i32 i64", "i64 i32", "i64 f32", "i1 f32", "f32 f8E4M3FN",
                             "f8E5M2 f32", "f32 f4E2M1FN", "i4 i32", "i32 ui4"}) {
      auto [from, to] = StringRef(pair).split(' ');
      add(equal, from.str(), "to = " + to.str());
    }
    return;
  }
  if (op == "graph.map") {
    auto map = [&](std::vector<std::string> operands, const std::string &text) {
      cases.push_back({op.str(),
                       std::move(operands),
                       "payload = #graph.payload<\"" + text + "\">",
                       "",
                       {}});
    };
    map({"4x3xf32", "4x3xf32"}, "x * (1 - y * y)");
    map({"5x4xf32", "4xf32", "1x4xf32"}, "x * y - exp(y) * z * x");
    map({"6x4xf64", "6x1xf64", "4xf64", "6x4xf64"}, "x * cos(y - z * w)");
    return;
  }
  if (op == "graph.bitcast") {
    for (const char *pair : {"f32 i32", "ui32 f32", "i64 f64", "bf16 i16", "ui8 i8"}) {
      auto [from, to] = StringRef(pair).split(' ');
      add(equal, from.str(), "to = " + to.str());
    }
    return;
  }
  for (const std::string &type : payloadTypes(op, payload))
    add(equal, type);
  if (count > 1) {
    add({"5x4x", "4x", "1x4x"}, payloadTypes(op, payload)[0]);
    add({"6x1x", "2x1x4x", "6x4x"}, payloadTypes(op, payload)[0]);
  } else {
    add({"5x6x"}, payloadTypes(op, payload)[0]);
  }
  // Parameters that turn a monotone function into one that is not.
  if (op == "graph.leaky_relu" || op == "graph.elu" || op == "graph.celu" ||
      op == "graph.hard_sigmoid" || op == "graph.thresholded_relu" || op == "graph.selu")
    add(equal, "f32", "alpha = -0.5 : f64");
}

//===-- Ops with cases of their own ---------------------------------------===//

static std::vector<OpCase> contractions() {
  auto contract = [](const std::string &a, const std::string &b, const std::string &eq) {
    return OpCase{
        "graph.contract", {a, b}, "equation = #graph.equation<\"" + eq + "\">", "", {}};
  };
  auto blocks = [](std::vector<std::string> operands, int64_t block, int64_t level = 0) {
    return OpCase{
        "graph.contract_blocks",
        std::move(operands),
        "block = " + std::to_string(block) + " : i64" +
            (level ? ", accuracy_level = " + std::to_string(level) + " : i64" : ""),
        "",
        {}};
  };
  auto conv = [](const std::string &op, std::vector<std::string> operands, int64_t dims,
                 int64_t group, int64_t stride, int64_t pad) {
    auto list = [](int64_t n, int64_t v) {
      std::string text = "array<i64: ";
      for (int64_t i = 0; i < n; ++i)
        text += (i ? ", " : "") + std::to_string(v);
      return text + ">";
    };
    std::string attributes =
        "strides = " + list(dims, stride) + ", dilations = " + list(dims, 1) +
        ", pads = " + list(2 * dims, pad) + ", group = " + std::to_string(group);
    if (op == "graph.conv_transpose")
      attributes += ", output_padding = " + list(dims, 0);
    return OpCase{op, std::move(operands), attributes, "", {}};
  };
  return {
      contract("4x6xf32", "6x5xf32", "m k, k n -> m n"),
      contract("2x3x4xf32", "2x4x5xf32", "b m k, b k n -> b m n"),
      contract("4x6xi32", "5x6xi32", "m k, n k -> m n"),
      contract("4x6xf16", "6x2xf16", "m k, k n -> m n"),
      contract("2x6xf32", "2x3x2xf32", "m (a b), a b n -> m n"),
      contract("1x6xf32", "6x1xf32", "m k, k n -> m n"),
      blocks({"4x24xf32", "6x6x2xui8", "6x6xf32"}, 4),
      blocks({"2x3x8xf32", "4x2x2xui8", "2x4xf32", "2x4xui8"}, 4),
      blocks({"3x12xf32", "5x3x2xui8", "3x5xf32", "3x5xf32"}, 4),
      blocks({"4x16xf32", "4x4x2xui8", "4x4xf32", "4x4xui8"}, 4, 4),
      conv("graph.conv", {"2x4x5x5xf32", "6x4x3x3xf32", "6xf32"}, 2, 1, 1, 1),
      conv("graph.conv", {"2x4x6xf32", "4x2x3xf32"}, 1, 2, 2, 0),
      conv("graph.conv", {"1x4x4xf32", "4x1x3xf32", "4xf32"}, 1, 4, 1, 1),
      conv("graph.conv", {"3x6x4xf32", "4x3x1xf32", "4xf32"}, 1, 2, 1, 0),
      conv("graph.conv_transpose", {"2x4x3xf32", "4x3x2xf32", "3xf32"}, 1, 1, 2, 0),
      conv("graph.conv_transpose", {"2x4x3xf32", "4x3x2xf32", "6xf32"}, 1, 2, 1, 0),
      conv("graph.conv_transpose", {"2x4x3xf32", "4x1x2xf32"}, 1, 4, 1, 0),
      conv("graph.conv_transpose", {"1x2x5x4xf32", "2x2x3x3xf32", "2xf32"}, 2, 1, 3, 0),
  };
}

static std::string ints(const std::vector<int64_t> &values) {
  std::string text = "array<i64: ";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + std::to_string(values[i]);
  return text + ">";
}

/// Window dims that split: 13 rows on 8, strides, dilation, windows over several blocks,
/// pads on one side and negative ones, two dims at once.
static std::vector<OpCase> windows() {
  using List = std::vector<int64_t>;
  std::vector<OpCase> cases;
  auto conv = [&](std::vector<std::string> operands, const List &strides,
                  const List &dilations, const List &pads) {
    cases.push_back({"graph.conv",
                     std::move(operands),
                     "strides = " + ints(strides) + ", dilations = " + ints(dilations) +
                         ", pads = " + ints(pads) + ", group = 1",
                     "",
                     {}});
  };
  conv({"1x1x13xf32", "1x1x3xf32"}, {1}, {1}, {1, 1});
  conv({"1x1x13xf32", "1x1x3xf32", "1xf32"}, {2}, {1}, {0, 1});
  conv({"1x1x11xf32", "1x1x3xf32"}, {1}, {2}, {3, 1});
  conv({"1x1x9xf32", "1x1x7xf32"}, {1}, {1}, {3, 3});
  conv({"1x1x5xf32", "1x1x3xf32"}, {1}, {1}, {5, 4});
  conv({"1x1x14xf32", "1x1x2xf32"}, {3}, {1}, {-2, 1});
  conv({"1x2x9xf32", "1x2x1xf32"}, {2}, {1}, {0, 0});
  conv({"1x3x6xf32", "2x3x3xf32", "2xf32"}, {1}, {1}, {1, 1});
  conv({"1x1x6x5xf32", "2x1x3x3xf32"}, {1, 2}, {1, 1}, {1, 0, 1, 2});
  conv({"1x2x7xf16", "1x2x3xf16"}, {1}, {1}, {1, 1});
  // Of a filter of these sizes; the first also splits batch, channels and groups.
  auto backwardFilter = [&](std::vector<std::string> operands, const std::string &filter,
                            const List &strides, const List &dilations, const List &pads,
                            int64_t group) {
    cases.push_back({"graph.conv_backward_filter",
                     std::move(operands),
                     "strides = " + ints(strides) + ", dilations = " + ints(dilations) +
                         ", pads = " + ints(pads) + ", group = " + std::to_string(group),
                     filter,
                     {}});
  };
  backwardFilter({"3x4x4xf32", "3x6x4xf32"}, "6x2x3xf32", {1}, {1}, {1, 1}, 2);
  backwardFilter({"2x4x5xf32", "2x4x5xf32"}, "4x1x3xf32", {1}, {1}, {1, 1}, 4);
  backwardFilter({"2x3x6xf32", "2x2x6xf32"}, "2x3x1xf32", {1}, {1}, {0, 0}, 1);
  backwardFilter({"1x1x13xf32", "1x1x7xf32"}, "1x1x3xf32", {2}, {1}, {1, 1}, 1);
  backwardFilter({"1x1x11xf32", "1x1x11xf32"}, "1x1x3xf32", {1}, {2}, {3, 1}, 1);
  backwardFilter({"1x1x14xf32", "1x1x4xf32"}, "1x1x2xf32", {3}, {1}, {-2, 1}, 1);
  backwardFilter({"1x1x9xf32", "1x1x9xf32"}, "1x1x7xf32", {1}, {1}, {3, 3}, 1);
  backwardFilter({"1x2x9xf32", "1x2x5xf32"}, "2x2x1xf32", {2}, {1}, {0, 0}, 1);
  backwardFilter({"1x1x6x5xf32", "1x2x6x3xf32"}, "2x1x3x3xf32", {1, 2}, {1, 1},
                 {1, 0, 1, 2}, 1);
  backwardFilter({"2x2x4x4xf16", "2x2x4x4xf16"}, "2x2x3x3xf16", {1, 1}, {1, 1},
                 {1, 1, 1, 1}, 1);
  auto convTranspose = [&](std::vector<std::string> operands, const List &strides,
                           const List &dilations, const List &pads, const List &more) {
    cases.push_back({"graph.conv_transpose",
                     std::move(operands),
                     "strides = " + ints(strides) + ", dilations = " + ints(dilations) +
                         ", pads = " + ints(pads) +
                         ", group = 1, output_padding = " + ints(more),
                     "",
                     {}});
  };
  convTranspose({"1x1x13xf32", "1x1x3xf32"}, {1}, {1}, {1, 1}, {0});
  convTranspose({"1x2x7xf32", "2x1x3xf32", "1xf32"}, {2}, {1}, {1, 1}, {1});
  convTranspose({"1x1x5xf32", "1x1x4xf32"}, {3}, {2}, {2, 2}, {0});
  convTranspose({"1x1x6xf32", "1x1x1xf32"}, {2}, {1}, {0, 0}, {1});
  convTranspose({"1x1x6xf32", "1x1x2xf32"}, {2}, {1}, {-2, 0}, {0});
  convTranspose({"1x1x7xf32", "1x1x2xf32"}, {2}, {1}, {1, 0}, {1});
  convTranspose({"1x1x4x5xf32", "1x2x3x3xf32"}, {2, 1}, {1, 1}, {1, 0, 1, 1}, {1, 0});
  auto pool = [&](const std::string &operand, const std::string &kind, const List &window,
                  const List &strides, const List &dilations, const List &pads,
                  bool countPadding) {
    cases.push_back({"graph.pool",
                     {operand},
                     "kind = #graph.pool<" + kind + ">, window = " + ints(window) +
                         ", strides = " + ints(strides) +
                         ", dilations = " + ints(dilations) + ", pads = " + ints(pads) +
                         (countPadding ? ", count_padding = true" : ""),
                     "",
                     {}});
  };
  for (const char *kind : {"max", "average"}) {
    pool("1x2x13xf32", kind, {3}, {2}, {1}, {1, 1}, false);
    pool("1x1x9xf32", kind, {6}, {1}, {1}, {3, 4}, false);
    pool("1x1x5x6xf32", kind, {3, 2}, {1, 2}, {1, 1}, {1, 1, 0, 1}, false);
  }
  pool("1x1x11xf32", "max", {3}, {1}, {2}, {2, 2}, false);
  pool("1x1x7x4xf32", "average", {3, 3}, {2, 1}, {1, 1}, {1, 1, 1, 1}, true);
  pool("1x2x6xf16", "average", {3}, {1}, {1}, {1, 1}, false);
  auto maxPool = [&](const std::string &operand, const List &window, const List &strides,
                     const List &dilations, const List &pads) {
    cases.push_back({"graph.max_pool",
                     {operand},
                     "window = " + ints(window) + ", strides = " + ints(strides) +
                         ", dilations = " + ints(dilations) + ", pads = " + ints(pads),
                     "",
                     {{Data::Few}}});
  };
  maxPool("1x2x13xf32", {3}, {2}, {1}, {1, 1});
  maxPool("1x1x5x6xf32", {3, 2}, {1, 2}, {1, 1}, {1, 1, 0, 1});
  maxPool("2x1x11xi32", {3}, {1}, {2}, {2, 2});
  auto backward = [&](const std::string &positions, const std::string &type,
                      const std::string &result, const List &window, const List &strides,
                      const List &dilations, const List &pads) {
    cases.push_back({"graph.max_pool_backward",
                     {positions + "x" + type, positions + "xi8"},
                     "window = " + ints(window) + ", strides = " + ints(strides) +
                         ", dilations = " + ints(dilations) + ", pads = " + ints(pads),
                     result + "x" + type,
                     {{}, {Data::Index, elementCount(window)}}});
  };
  backward("3x2x7", "f32", "3x2x14", {3}, {2}, {1}, {1, 1});
  backward("1x1x7", "f32", "1x1x13", {3}, {2}, {1}, {1, 1});
  backward("1x2x6", "f32", "1x2x12", {3}, {2}, {1}, {0, 0});
  backward("1x1x4x4", "f32", "1x1x5x6", {3, 2}, {1, 2}, {1, 1}, {1, 1, 0, 1});
  backward("2x1x11", "f32", "2x1x11", {3}, {1}, {2}, {2, 2});
  backward("1x1x4", "f32", "1x1x15", {4}, {3}, {2}, {1, 1});
  backward("1x2x6", "f16", "1x2x6", {3}, {1}, {1}, {1, 1});
  return cases;
}

static std::vector<OpCase> reductions() {
  std::vector<OpCase> cases;
  auto reduce = [&](const std::string &type, const std::string &kind,
                    const std::string &axes, bool keep) {
    cases.push_back({"graph.reduce",
                     {type},
                     "kind = #graph.reduce<" + kind + ">, axes = array<i64: " + axes +
                         ">" + (keep ? ", keep_dims = true" : ""),
                     "",
                     {{kind == "prod" ? Data::NonZero : Data::Any}}});
  };
  for (const char *kind : {"sum", "max", "min", "prod"}) {
    reduce("5x4xf32", kind, "0", false);
    reduce("2x3x4xf32", kind, "1, 2", true);
    reduce("4x5xi32", kind, "1", true);
  }
  reduce("4x6xf16", "sum", "-1", false);
  reduce("4x6xbf16", "max", "1", false);
  reduce("4x6xi64", "max", "0, 1", false);
  reduce("4x6xi1", "max", "0", false);
  for (const char *op : {"graph.softmax", "graph.log_softmax"}) {
    cases.push_back({op, {"4x3x5xf32"}, "axis = -1", "", {}});
    cases.push_back({op, {"4x6xf32"}, "axis = 0", "", {}});
  }
  cases.push_back({"graph.layer_norm",
                   {"4x5x6xf32", "6xf32", "6xf32"},
                   "axis = -1, epsilon = 1.0e-5 : f64",
                   "",
                   {}});
  cases.push_back({"graph.layer_norm",
                   {"4x2x3xf32", "2x3xf32", "1x3xf32"},
                   "axis = 1, epsilon = 1.0e-5 : f64",
                   "",
                   {}});
  cases.push_back({"graph.rms_norm",
                   {"4x5x6xf32", "6xf32"},
                   "axis = -1, epsilon = 1.0e-5 : f64",
                   "",
                   {}});
  for (const char *kind : {"max", "average"}) {
    cases.push_back({"graph.pool",
                     {"3x4x5x5xf32"},
                     std::string("kind = #graph.pool<") + kind +
                         ">, window = array<i64: 3, 2>, strides = array<i64: 2, 1>, "
                         "dilations = array<i64: 1, 1>, pads = array<i64: 1, 0, 1, 0>",
                     "",
                     {}});
  }
  cases.push_back(
      {"graph.pool",
       {"2x6x4xf32"},
       "kind = #graph.pool<average>, window = array<i64: 4>, strides = array<i64: 1>, "
       "dilations = array<i64: 1>, pads = array<i64: 1, 1>, "
       "count_padding = true",
       "",
       {}});
  return cases;
}

/// Attention and its gradients, whose operands q, k, v and of the payload are the same.
static std::vector<OpCase> attentions() {
  std::vector<OpCase> cases;
  auto add = [&](const std::vector<std::string> &qkv, const std::string &row,
                 const std::string &output, const std::vector<std::string> &scored,
                 const std::string &attributes) {
    OpCase forward{"graph.attention", qkv, attributes, "", {}};
    OpCase backward{"graph.attention_grad_query", qkv, attributes, "", {}};
    for (const std::string &operand : {row, row, output, row})
      backward.operands.push_back(operand);
    backward.data = {{}, {}, {}, {}, {Data::Positive}};
    for (OpCase *it : {&forward, &backward})
      it->operands.insert(it->operands.end(), scored.begin(), scored.end());
    cases.push_back(forward);
    cases.push_back(backward);
    backward.op = "graph.attention_grad_keys";
    cases.push_back(backward);
  };
  add({"4x3x2xf32", "4x5x2xf32", "4x5x3xf32"}, "4x3xf32", "4x3x3xf32", {},
      "payload = #graph.payload<\"x\">, scale = 0.5 : f64");
  // Two query heads read one head of keys; masks of queries and keys, and of heads.
  add({"2x2x3x2xf32", "2x1x4x2xf32", "2x1x4x2xf32"}, "2x2x3xf32", "2x2x3x2xf32",
      {"3x4xi1", "2x1x1xf32"},
      "payload = #graph.payload<\"select(y, tanh(x) + z, -100)\">, scale = 2.0 : f64");
  // A row may see nothing.
  add({"6x2xf32", "2x2xf32", "2x3xf32"}, "6xf32", "6x3xf32", {"6x1xi64", "1x2xi64"},
      "payload = #graph.payload<\"select(z <= y, x, -1e999)\">, scale = 1.0 : f64, "
      "zero_for_nan = true");
  return cases;
}

static std::vector<OpCase> movements() {
  std::vector<OpCase> cases;
  auto shaped = [&](const std::string &op, const std::string &from, const std::string &to,
                    const std::string &attributes = "") {
    cases.push_back({op, {from}, attributes, to, {}});
  };
  auto inferred = [&](const std::string &op, std::vector<std::string> operands,
                      const std::string &attributes, std::vector<Data> data = {}) {
    cases.push_back({op, std::move(operands), attributes, "", std::move(data)});
  };
  shaped("graph.reshape", "2x6x4xf32", "12x4xf32");
  shaped("graph.reshape", "12x5xf32", "3x4x5xf32");
  shaped("graph.reshape", "4x6xf32", "8x3xf32");
  shaped("graph.reshape", "5x4x6xf32", "5x8x3xf32");
  shaped("graph.reshape", "2x3x4xf32", "2x4x3xf32");
  shaped("graph.reshape", "7x2xi64", "1x14x1xi64");
  inferred("graph.transpose", {"4x5x3xf32"}, "permutation = array<i64: 2, 0, 1>");
  inferred("graph.transpose", {"6x4xi1"}, "permutation = array<i64: 1, 0>");
  shaped("graph.broadcast", "4x1x3xf32", "2x4x5x3xf32");
  shaped("graph.broadcast", "1xf32", "5x6xf32");
  auto slice = [&](const std::string &from, const std::string &to,
                   const std::string &starts, const std::string &steps) {
    shaped("graph.slice", from, to,
           "starts = array<i64: " + starts + ">, steps = array<i64: " + steps + ">");
  };
  slice("5x12xf32", "5x4xf32", "0, 4", "1, 1");
  slice("4x18xf32", "4x6xf32", "0, 12", "1, 1");
  slice("5x7xf32", "5x3xf32", "0, 6", "1, -2");
  slice("6x4xi64", "3x4xi64", "3, 0", "1, 1");
  inferred("graph.concat", {"4x3xf32", "4x3xf32"}, "axis = 1");
  inferred("graph.concat", {"2x5xf32", "4x5xf32", "1x5xf32"}, "axis = 0");
  inferred("graph.concat", {"4x6xf32", "4x6xf32", "4x6xf32"}, "axis = -1");
  inferred("graph.pad", {"4x5xf32", "f32"},
           "low = array<i64: 0, 1>, high = array<i64: 0, 2>");
  inferred("graph.pad", {"3x4xf32", "f32"},
           "low = array<i64: 1, 0>, high = array<i64: 1, 0>, mode = #graph.pad<edge>");
  inferred(
      "graph.pad", {"4x5xf32", "f32"},
      "low = array<i64: 0, 2>, high = array<i64: 0, -1>, mode = #graph.pad<reflect>");
  inferred("graph.gather", {"6x4xf32", "5xi64"}, "axis = 0", {{}, {Data::Index, 6}});
  inferred("graph.gather", {"3x6x2xf32", "2x3xi64"}, "axis = 1", {{}, {Data::Index, 6}});
  inferred("graph.gather", {"5x4xf32", "i64"}, "axis = -1", {{}, {Data::Index, 4}});
  inferred("graph.gather", {"5x3xi32", "4xi32"}, "axis = 0", {{}, {Data::Index, 5}});
  inferred("graph.gather", {"6x3xi1", "4xi64"}, "axis = 0", {{}, {Data::Index, 6}});
  // Storage: its elements are not summed, so the dim that is looked up stays whole.
  inferred("graph.gather", {"6x4xf8E4M3FN", "4xi64"}, "axis = 0", {{}, {Data::Index, 6}});
  inferred("graph.gather_nd", {"3x4x5xf32", "3x6x1xi64"}, "batch_dims = 1",
           {{}, {Data::Index, 4}});
  inferred("graph.gather_nd", {"3x4x5xf32", "4x2xi64"}, "", {{}, {Data::Index, 3}});
  inferred("graph.gather_nd", {"6x4xi1", "5x1xi32"}, "", {{}, {Data::Index, 6}});
  inferred("graph.gather_nd", {"3x6xf32", "3x4x1xi64"}, "batch_dims = 1",
           {{}, {Data::Index, 6}});
  inferred("graph.gather_elements", {"6x4xf32", "5x4xi64"}, "axis = 0",
           {{}, {Data::Index, 6}});
  inferred("graph.gather_elements", {"4x5x6xf32", "3x5x4xi32"}, "axis = -1",
           {{}, {Data::Index, 6}});
  inferred("graph.gather_elements", {"4x6xi1", "4x3xi64"}, "axis = 1",
           {{}, {Data::Index, 6}});
  // Regions inside; and of any length, also a negative one, and beyond the border.
  for (const char *more : {"", ", largest = true"}) {
    inferred("graph.roi_align", {"5x4x5x6xf32", "3x4xf32", "3xi64"},
             std::string("bins = array<i64: 1, 2>") + more,
             {{}, {Data::Positive}, {Data::Index, 5}});
    inferred("graph.roi_align", {"6x1x3x2xf32", "4x4xf32", "4xi64"},
             std::string("bins = array<i64: 2, 1>") + more, {{}, {}, {Data::Index, 6}});
  }
  auto scatter = [&](const std::string &data, const std::string &indices,
                     const std::string &updates, int64_t limit,
                     const std::string &attributes) {
    inferred("graph.scatter_elements", {data, indices, updates}, attributes,
             {{}, {Data::Index, limit}, {}});
  };
  scatter("6x4xf32", "1x4xi64", "1x4xf32", 6, "axis = 0");
  scatter("4x6xf32", "4x3xi32", "4x3xf32", 6, "axis = 1");
  scatter("6x4xf32", "8x4xi64", "8x4xf32", 6, "axis = 0, kind = #graph.reduce<sum>");
  scatter("5x6xf32", "3x4xi64", "3x4xf32", 6, "axis = 1, kind = #graph.reduce<sum>");
  scatter("4x5xi32", "4x6xi64", "4x6xi32", 5, "axis = 1, kind = #graph.reduce<prod>");
  scatter("4x5xf32", "4x6xi64", "4x6xf32", 5, "axis = 1, kind = #graph.reduce<prod>");
  scatter("6x4xf32", "8x4xi64", "8x4xf32", 6, "axis = 0, kind = #graph.reduce<max>");
  scatter("6x4xf32", "8x4xi64", "8x4xf32", 6, "axis = 0, kind = #graph.reduce<min>");
  inferred("graph.sort", {"4x6xf32"}, "axis = 1, count = 3, descending = true");
  inferred("graph.sort", {"6x4xi32"}, "axis = 0, count = 6, descending = false",
           {{Data::Few}});
  inferred("graph.trees", {"4x3xf32", "6x7xi32", "6x7xf32", "6x7xi32", "6x7x2xf32"},
           "depth = 3");
  inferred("graph.suppress", {"2x3x8xf32", "2x3x8xi1", "2x8x4xf32", "f32"}, "most = 5");
  inferred("graph.suppress", {"4x2x5xf32", "4x2x5xi1", "4x5x4xf32", "f32"},
           "most = 2, centers");
  inferred("graph.cumprod", {"4x5xf32"}, "axis = 1");
  inferred("graph.cumprod", {"6x3xf32"}, "axis = 0, exclusive = true, reverse = true");
  inferred("graph.cumsum", {"4x5xf32"}, "axis = 1");
  inferred("graph.cumsum", {"4x5xi32"}, "axis = 0, exclusive = true, reverse = true");
  auto resize = [&](const std::string &from, const std::string &to,
                    const std::string &mode, const std::string &scales,
                    const std::string &coordinates = "half_pixel",
                    const std::string &rounding = "floor") {
    shaped("graph.resize", from, to,
           "scales = array<f64: " + scales + ">, mode = #graph.resize<" + mode +
               ">, coordinates = #graph.coordinates<" + coordinates +
               ">, rounding = #graph.rounding<" + rounding + ">");
  };
  resize("2x3x4xf32", "2x3x8xf32", "nearest", "1.0, 1.0, 2.0");
  // Every element repeated: blocks depend on nothing outside.
  resize("2x5x4xf32", "2x15x8xf32", "nearest", "1.0, 3.0, 2.0", "asymmetric");
  resize("1x2x4x3xf16", "1x2x8x6xf16", "nearest", "1.0, 1.0, 2.0, 2.0", "half_pixel",
         "round_prefer_floor");
  resize("2x3x4x4xf32", "2x3x6x4xf32", "linear", "1.0, 1.0, 1.5, 1.0");
  return cases;
}

Expected<std::vector<OpCase>> spmd::allCases(MLIRContext &context) {
  std::vector<OpCase> written, cases;
  for (auto list : {contractions(), windows(), reductions(), attentions(), movements()})
    written.insert(written.end(), list.begin(), list.end());
  // Sources have no operands: they appear as operands of the others.
  // What runs functions is tested with programs: RegionTest.
  std::set<std::string> sources{"graph.constant", "graph.weight", "graph.repeat",
                                "graph.if", "graph.gradient"};
  std::string missing;
  for (RegisteredOperationName name : context.getRegisteredOperationsByDialect("graph")) {
    std::string op = name.getStringRef().str();
    if (name.hasInterface<PayloadOpInterface>()) {
      auto *concept_ = name.getInterface<PayloadOpInterface>();
      // That of graph.map is an attribute: any will do here.
      std::string text = concept_->payloadText().str();
      auto payload = Payload::parse(text.empty() ? "x" : text);
      if (!payload)
        return tl::unexpected(payload.error());
      addPayloadCases(cases, op, *payload);
      continue;
    }
    size_t before = cases.size();
    for (const OpCase &c : written)
      if (c.op == op)
        cases.push_back(c);
    if (cases.size() == before && sources.count(op) == 0)
      missing += " " + op;
  }
  if (!missing.empty())
    return makeError("ops without a case in test/Spmd/Cases.cpp:" + missing);
  return cases;
}

//===-- Programs ----------------------------------------------------------===//

Expected<Program> spmd::buildProgram(MLIRContext &context, const OpCase &opCase) {
  OpBuilder builder(&context);
  Location location = builder.getUnknownLoc();
  std::string problem;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    problem += diagnostic.str() + "; ";
    return success();
  });
  auto typeOf = [&](const std::string &text) {
    return parseType("tensor<" + text + ">", &context);
  };
  SmallVector<Type> types;
  for (const std::string &operand : opCase.operands)
    types.push_back(typeOf(operand));
  // Integers without a type are i64, as in the textual form of the ops.
  Attribute parsed = parseAttribute("{" + opCase.attributes + "}", &context);
  if (!parsed || llvm::is_contained(types, Type()))
    return makeError(opCase.name() + ": bad text: " + problem);
  Program program;
  program.module = ModuleOp::create(location);
  builder.setInsertionPointToEnd(program.module->getBody());
  program.function =
      func::FuncOp::create(builder, location, "main", builder.getFunctionType(types, {}));
  Block *body = program.function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  auto attributes = cast<DictionaryAttr>(parsed).getValue();
  if (opCase.result.empty()) {
    auto op = graph::createInferred(builder, location, opCase.op, body->getArguments(),
                                    attributes);
    if (!op)
      return makeError(opCase.name() + ": " + op.error().message);
    program.op = *op;
  } else {
    OperationState state(location, opCase.op, body->getArguments(),
                         {typeOf(opCase.result)}, attributes);
    program.op = builder.create(state);
  }
  func::ReturnOp::create(builder, location, program.op->getResults());
  program.function.setType(builder.getFunctionType(types, program.op->getResultTypes()));
  if (failed(program.module->verify()))
    return makeError(opCase.name() + ": " + problem);
  auto rule = cast<ShardingRuleOpInterface>(program.op).inferShardingRule();
  if (!rule)
    return makeError(opCase.name() + ": " + rule.error().message);
  program.rule = std::move(*rule);
  return program;
}
