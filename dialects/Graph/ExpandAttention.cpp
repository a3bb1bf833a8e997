//===- ExpandAttention.cpp - Attention as the ops that it stands for ------===//
#include "dialects/Graph/Attention.h"
#include "dialects/Graph/Formula.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

namespace {
/// Products of one attention, whose loops have names.
template <typename Op> class Expansion {
public:
  Expansion(Op op, OpBuilder &builder)
      : op(op), f(builder, op.getLoc()), element(f.type(op.getQ())),
        statistic(graph::detail::statisticType(element)) {
    Shape q = f.shape(op.getQ()), k = f.shape(op.getK());
    for (size_t d = 0; d + 2 < q.size(); ++d) {
      std::vector<std::string> name{"o" + std::to_string(d)};
      outer.push_back(name);
      shared.push_back(k[d] == q[d] ? name : std::vector<std::string>());
    }
    last = static_cast<int64_t>(q.size()) - 1;
  }

  Expected<Values> forward() {
    Value logits = mapped(payload());
    Value largest = f.reduce(ReduceKind::Max, logits, {last});
    Value weights = f.map("exp(x - select(y <= -1e999, 0, y))", {logits, largest});
    Value sum = f.sum(weights, {last});
    weights =
        f.map(op.getZeroForNan() ? "select(y > 0, x / y, 0)" : "x / y", {weights, sum});
    Value output =
        product(narrow(weights), rows("m", "n"), op.getV(), keys("e"), rows("m", "e"));
    Shape row = f.shape(largest);
    row.pop_back();
    return f.results({output, f.reshape(largest, row), f.reshape(sum, row)});
  }

  Value weights() {
    std::string text = "exp(min(x - select(y <= -1e999, 0, y), 0)) / z";
    if (op.getZeroForNan())
      text = "select(z > 0, " + text + ", 0)";
    return f.map(text, {mapped(payload()), column(op.getLargest()), column(op.getSum())});
  }
  /// Cotangents of scores that are not scaled.
  Value slopes(Value weights) {
    Value along =
        product(op.getCotangent(), rows("m", "e"), op.getV(), keys("e"), rows("m", "n"));
    Value delta = f.cast(column(op.getDelta()), statistic);
    return f.mul(f.map("x * (y - z) * w", {weights, f.cast(along, statistic), delta,
                                           mapped(payload().derivative(0))}),
                 op.getScale().convertToDouble());
  }
  Expected<Values> byQueries() {
    return f.results({product(narrow(slopes(weights())), rows("m", "n"), op.getK(),
                              keys("d"), rows("m", "d"))});
  }
  Expected<Values> byKeys() {
    Value p = weights();
    return f.results(
        {product(narrow(slopes(p)), rows("m", "n"), op.getQ(), rows("m", "d"), keys("d")),
         product(narrow(p), rows("m", "n"), op.getCotangent(), rows("m", "e"),
                 keys("e"))});
  }

private:
  Equation::Tensor rows(const char *row, const char *column) {
    Equation::Tensor dims = outer;
    dims.push_back({row}), dims.push_back({column});
    return dims;
  }
  Equation::Tensor keys(const char *column) {
    Equation::Tensor dims = shared;
    dims.push_back({"n"}), dims.push_back({column});
    return dims;
  }
  Value product(Value a, const Equation::Tensor &ofA, Value b,
                const Equation::Tensor &ofB, const Equation::Tensor &result) {
    return f.contract(a, b, Equation{{ofA, ofB}, {result}});
  }
  const Payload &payload() { return op.getPayload(); }
  Value narrow(Value value) { return f.cast(value, element); }
  Value column(Value row) {
    Shape shape = f.shape(row);
    shape.push_back(1);
    return f.reshape(row, shape);
  }
  /// The payload, or its derivative, of the scores.
  Value mapped(const Payload &payload) {
    if (!scores)
      scores = f.mul(
          f.cast(product(op.getQ(), rows("m", "d"), op.getK(), keys("d"), rows("m", "n")),
                 statistic),
          op.getScale().convertToDouble());
    Values operands{scores};
    operands.insert(operands.end(), op.getScored().begin(), op.getScored().end());
    return f.map(payload, operands);
  }

  Op op;
  Formula f;
  Type element, statistic;
  Equation::Tensor outer, shared; ///< dims of queries, of keys
  int64_t last = 0;
  Value scores;
};
} // namespace

Expected<std::vector<Value>> graph::expandAttention(Operation *op, OpBuilder &builder) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return Expansion(attention, builder).forward();
  if (auto queries = dyn_cast<AttentionGradQueryOp>(op))
    return Expansion(queries, builder).byQueries();
  return Expansion(cast<AttentionGradKeysOp>(op), builder).byKeys();
}
