//===- Contractions.cpp - Sums of products as ONNX nodes ------------------===//
#include "passes/RankFiles/RankWriter.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

//===-- Equations ---------------------------------------------------------===//

namespace {
/// An equation whose dims are one loop each: what a reshape makes of operands and result.
struct Flat {
  std::vector<Shape> shapes;      ///< of the operands
  std::vector<std::string> terms; ///< a letter per dim, of operands and then the result
};
} // namespace

/// Letters for loops, with their sizes. A dim that broadcasts has no letter.
static std::optional<Flat> flatten(const Equation &equation,
                                   const std::vector<Shape> &shapes) {
  auto rule = equation.rule(shapes);
  if (!rule)
    return std::nullopt;
  // A loop of one iteration is none of the rule's.
  std::map<std::string, std::pair<char, int64_t>> letters;
  auto visit = [&](const Equation::Tensor &words) {
    for (const std::vector<std::string> &dim : words)
      for (const std::string &word : dim) {
        const auto number = static_cast<int>(letters.size());
        auto loop = llvm::find_if(
            rule->factors, [&](const auto &factor) { return factor.name == word; });
        letters.try_emplace(
            word, static_cast<char>(number < 26 ? 'a' + number : 'A' + number - 26),
            loop == rule->factors.end() ? 1 : loop->size);
      }
  };
  for (const Equation::Tensor &operand : equation.operands)
    visit(operand);
  visit(equation.results[0]);
  if (letters.size() > 52)
    return std::nullopt;
  Flat flat;
  auto add = [&](const Equation::Tensor &words) {
    Shape shape;
    std::string term;
    for (const std::vector<std::string> &dim : words)
      for (const std::string &word : dim) {
        shape.push_back(letters[word].second);
        term += letters[word].first;
      }
    flat.shapes.push_back(shape);
    flat.terms.push_back(term);
  };
  for (const Equation::Tensor &operand : equation.operands)
    add(operand);
  add(equation.results[0]);
  flat.shapes.pop_back();
  return flat;
}

/// "bmk, bkn -> bmn" and "bmk, kn -> bmn" are products of matrices as ONNX has them.
static bool isMatMul(const std::vector<std::string> &terms) {
  const std::string &x = terms[0], &y = terms[1], &z = terms[2];
  if (x.size() < 2 || y.size() < 2 || z.size() != x.size())
    return false;
  const std::string outer = x.substr(0, x.size() - 2);
  const char m = x[x.size() - 2], k = x.back(), n = z.back();
  return n != k && n != m && z == outer + m + n &&
         (y == std::string{k, n} || y == outer + k + n);
}

static void writeContract(RankWriter &w, Operation *op) {
  auto contract = cast<graph::ContractOp>(op);
  std::vector<Shape> shapes = shapesOf(op->getOperands());
  auto flat = flatten(contract.getEquation(), shapes);
  if (!flat) {
    w.fail("(graph.contract) has more loops than an Einsum has letters");
    return;
  }
  Names inputs = w.names(op->getOperands());
  // Einsum has no bf16, whose products are exact in f32.
  const DType type = typeOf(op->getResult(0));
  const bool isWidened = type == DType::BF16 && !isMatMul(flat->terms);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (isWidened)
      inputs[i] = w.castTo(inputs[i], DType::F32);
    // Products of 8-bit integers are exact in the type of their sums.
    if (contract.getSums())
      inputs[i] = w.castTo(inputs[i], *dtypeOf(*contract.getSums()));
    if (shapes[i] != flat->shapes[i])
      inputs[i] = w.reshape(inputs[i], flat->shapes[i]);
  }
  std::string product = isMatMul(flat->terms)
                            ? w.node("MatMul", inputs)
                            : w.node("Einsum", inputs,
                                     {{"equation", flat->terms[0] + "," + flat->terms[1] +
                                                       "->" + flat->terms[2]}});
  if (isWidened)
    product = w.castTo(product, type);
  Shape result = shapeOf(op->getResult(0));
  const bool isFlat = flat->terms[2].size() == result.size();
  w.define(op->getResult(0), isFlat ? product : w.reshape(product, result));
}

/// Writes the operator of ONNX Runtime: scales and zero points of a column side by side,
/// these real.
static void writeContractBlocks(RankWriter &w, Operation *op) {
  auto product = cast<graph::ContractBlocksOp>(op);
  const Shape weight = shapeOf(product.getWeight());
  auto perColumn = [&](Value value) {
    std::string name = w.castTo(w.name(value), DType::F32);
    return w.node("Transpose", {name}, {{"perm", std::vector<int64_t>{1, 0}}});
  };
  Names inputs{w.name(product.getInput()), w.name(product.getWeight()),
               perColumn(product.getScales())};
  if (Value zeros = product.getZeros())
    inputs.push_back(perColumn(zeros));
  const auto block = static_cast<int64_t>(product.getBlock());
  w.define(op->getResult(0),
           w.node("MatMulNBits", inputs,
                  {{"K", weight[1] * block},
                   {"N", weight[0]},
                   {"accuracy_level", static_cast<int64_t>(product.getAccuracyLevel())},
                   {"bits", int64_t(4)},
                   {"block_size", block}},
                  "com.microsoft"));
}

//===-- Convolutions ------------------------------------------------------===//

template <typename Op>
static Attributes windowOf(Op op, const std::vector<int64_t> &pads) {
  Shape kernel = shapeOf(op.getFilter());
  return {{"strides", graph::vec(op.getStrides())},
          {"dilations", graph::vec(op.getDilations())},
          {"pads", pads},
          {"group", static_cast<int64_t>(op.getGroup())},
          {"kernel_shape", std::vector<int64_t>(kernel.begin() + 2, kernel.end())}};
}

/// The operand without the elements that negative pads cut, and pads that are not
/// negative.
static std::string withoutCuts(RankWriter &w, const std::string &x,
                               std::vector<int64_t> &pads) {
  const size_t n = pads.size() / 2;
  std::vector<int64_t> cuts(2 * (n + 2), 0);
  bool isCut = false;
  for (size_t i = 0; i < pads.size(); ++i)
    if (pads[i] < 0) {
      cuts[i < n ? 2 + i : n + 4 + (i - n)] = pads[i];
      pads[i] = 0;
      isCut = true;
    }
  if (!isCut)
    return x;
  return w.node("Pad", {x, w.ints(cuts)}, {{"mode", std::string("constant")}});
}

static void writeConv(RankWriter &w, Operation *op) {
  auto conv = cast<graph::ConvOp>(op);
  std::vector<int64_t> pads = graph::vec(conv.getPads());
  Names inputs = w.names(op->getOperands());
  inputs[0] = withoutCuts(w, inputs[0], pads);
  // The zero points of 8-bit integers are 0 here.
  w.define(op->getResult(0),
           w.node(conv.getSums() ? "ConvInteger" : "Conv", inputs, windowOf(conv, pads)));
}

/// A negative pad is an edge of the result that no tap reaches: it has the bias alone.
static void writeConvTranspose(RankWriter &w, Operation *op) {
  auto conv = cast<graph::ConvTransposeOp>(op);
  std::vector<int64_t> pads = graph::vec(conv.getPads());
  const size_t n = pads.size() / 2;
  std::vector<int64_t> edges(2 * (n + 2), 0);
  bool hasEdges = false;
  for (size_t i = 0; i < pads.size(); ++i)
    if (pads[i] < 0) {
      edges[i < n ? 2 + i : n + 4 + (i - n)] = -pads[i];
      pads[i] = 0;
      hasEdges = true;
    }
  Names inputs = w.names(op->getOperands());
  std::string bias = hasEdges && conv.getBias() ? inputs[2] : "";
  if (!bias.empty())
    inputs.resize(2);
  Attributes attributes = windowOf(conv, pads);
  attributes["output_padding"] = graph::vec(conv.getOutputPadding());
  std::string y = w.node("ConvTranspose", inputs, std::move(attributes));
  if (hasEdges)
    y = w.node("Pad", {y, w.ints(edges)}, {{"mode", std::string("constant")}});
  if (!bias.empty()) {
    Shape channels(n + 1, 1);
    channels[0] = -1;
    y = w.node("Add", {y, w.reshape(bias, channels)});
  }
  w.define(op->getResult(0), y);
}

/// The input [N, G·C, in…] as [C, G·N, in…]: batch and channels change places within each
/// group, as a convolution sums the channels of a group.
static std::string batchAsChannels(RankWriter &w, Value input, int64_t group) {
  const Shape shape = shapeOf(input);
  const int64_t channels = shape[1] / group;
  Shape split{shape[0], group, channels}, joined{channels, group * shape[0]};
  std::vector<int64_t> order{2, 1, 0};
  for (size_t d = 2; d < shape.size(); ++d) {
    order.push_back(static_cast<int64_t>(d) + 1);
    split.push_back(shape[d]);
    joined.push_back(shape[d]);
  }
  return w.reshape(w.transpose(w.reshape(w.name(input), split), order), joined);
}

static std::string swapped(RankWriter &w, const std::string &x, size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  return w.transpose(x, order);
}

/// The pads with which a window of all positions has as many places as the filter has
/// taps; none: no tap meets the input.
static std::optional<std::vector<int64_t>> padsOfTaps(graph::ConvBackwardFilterOp op,
                                                      const Shape &in, const Shape &out,
                                                      const Shape &kernel) {
  std::vector<int64_t> pads = graph::vec(op.getPads());
  const size_t n = op.getStrides().size();
  for (size_t d = 0; d < n; ++d) {
    const int64_t read = (kernel[d + 2] - 1) * op.getDilations()[d] +
                         (out[d + 2] - 1) * op.getStrides()[d] + 1;
    if (read <= pads[d] || in[d + 2] + pads[d] <= 0)
      return std::nullopt;
    pads[n + d] = read - in[d + 2] - pads[d];
  }
  return pads;
}

/// A convolution whose filter is the cotangent: it goes by the filter's dilations from
/// tap to tap and by its strides from position to position.
static void writeConvBackwardFilter(RankWriter &w, Operation *op) {
  auto filter = cast<graph::ConvBackwardFilterOp>(op);
  const Shape in = shapeOf(filter.getInput()), out = shapeOf(filter.getCotangent());
  const Shape result = shapeOf(op->getResult(0));
  auto pads = padsOfTaps(filter, in, out, result);
  if (!pads || elementCount(in) == 0 || elementCount(out) == 0)
    return w.define(
        op->getResult(0),
        w.node("Expand", {w.scalar(typeOf(op->getResult(0)), 0), w.ints(result)}));
  const auto group = static_cast<int64_t>(filter.getGroup());
  std::string x = batchAsChannels(w, filter.getInput(), group);
  x = withoutCuts(w, x, *pads);
  std::string taps =
      w.node("Conv", {x, swapped(w, w.name(filter.getCotangent()), out.size())},
             {{"strides", graph::vec(filter.getDilations())},
              {"dilations", graph::vec(filter.getStrides())},
              {"pads", *pads},
              {"group", group},
              {"kernel_shape", std::vector<int64_t>(out.begin() + 2, out.end())}});
  w.define(op->getResult(0), swapped(w, taps, result.size()));
}

void rank_files::addContractions(WriterTable &table) {
  table[graph::ContractOp::getOperationName()] = writeContract;
  table[graph::ContractBlocksOp::getOperationName()] = writeContractBlocks;
  table[graph::ConvOp::getOperationName()] = writeConv;
  table[graph::ConvTransposeOp::getOperationName()] = writeConvTranspose;
  table[graph::ConvBackwardFilterOp::getOperationName()] = writeConvBackwardFilter;
}
