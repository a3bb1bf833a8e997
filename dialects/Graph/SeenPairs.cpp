//===- SeenPairs.cpp - What masks by positions leave of scores ------------===//
#include "dialects/Graph/SeenPairs.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// Queries and keys of a block that kernels compute or leave out as a whole.
static constexpr int64_t blockSize = 128;
/// A logit below it has a weight of 0 beside any other.
static constexpr double hidden = -1e30;

namespace {
/// Integers along queries or keys that the program knows.
class Positions {
public:
  /// Nothing where the value is none of these.
  static std::optional<Positions> of(Value value, int64_t queries, int64_t keys);

  double at(int64_t query, int64_t key) const {
    const int64_t place = query * ofQuery + key * ofKey;
    return static_cast<double>(numbers.empty() ? first + step * place
                                               : numbers[static_cast<size_t>(place)]);
  }

private:
  bool readNumbers(Value value);
  std::vector<int64_t> numbers;
  int64_t first = 0, step = 0;    ///< without numbers
  int64_t ofQuery = 0, ofKey = 0; ///< places to the next one's number
};

/// A mask by positions: a payload of these. Operands that it does not read are absent.
struct PositionMask {
  Payload payload;
  std::vector<std::optional<Positions>> operands;

  bool at(int64_t query, int64_t key) const {
    std::vector<double> values(operands.size()), scratch;
    for (size_t i = 0; i < operands.size(); ++i)
      values[i] = operands[i] ? operands[i]->at(query, key) : 0;
    return payload.evaluate<double>(values.data(), {}, scratch) != 0;
  }
};
} // namespace

bool Positions::readNumbers(Value value) {
  if (auto weight = value.getDefiningOp<WeightOp>())
    if (auto known =
            weight->getAttrOfType<DenseI64ArrayAttr>(graph::detail::progressionAttr)) {
      first = known[0], step = known[1];
      return true;
    }
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements =
      constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : nullptr;
  if (!elements)
    return false;
  for (const APInt &number : elements.getValues<APInt>())
    numbers.push_back(number.getBitWidth() == 1
                          ? static_cast<int64_t>(number.getZExtValue())
                          : number.getSExtValue());
  return true;
}

std::optional<Positions> Positions::of(Value value, int64_t queries, int64_t keys) {
  Shape shape = shapeOf(value);
  shape.insert(shape.begin(), shape.size() < 2 ? 2 - shape.size() : 0, 1);
  const int64_t across = shape.back(), down = shape[shape.size() - 2];
  if (elementCount(shape) != down * across || (down != 1 && down != queries) ||
      (across != 1 && across != keys))
    return std::nullopt;
  Positions positions;
  positions.ofQuery = down == 1 ? 0 : across;
  positions.ofKey = across == 1 ? 0 : 1;
  return positions.readNumbers(value) ? std::optional(positions) : std::nullopt;
}

/// The mask of a payload of these values, `firstOperand` being its first one; nothing
/// where it reads another one, or what is not known.
static std::optional<PositionMask> maskOf(const Payload &payload, ValueRange values,
                                          int32_t firstOperand, int64_t queries,
                                          int64_t keys) {
  PositionMask mask{payload, {}};
  mask.operands.resize(values.size() + static_cast<size_t>(firstOperand));
  for (int32_t operand : payload.operandsRead()) {
    if (operand < firstOperand)
      return std::nullopt;
    auto known = Positions::of(values[static_cast<unsigned>(operand - firstOperand)],
                               queries, keys);
    if (!known)
      return std::nullopt;
    mask.operands[static_cast<size_t>(operand)] = std::move(known);
  }
  return mask;
}

/// The part of the payload by which it chooses between a logit and the least number;
/// nothing where it does not.
static std::optional<Payload> conditionOf(const Payload &payload, bool &hidesWhereTrue) {
  const ScalarNode &root = payload.nodes().back();
  if (root.op != ScalarOp::Select)
    return std::nullopt;
  auto isHidden = [&](size_t argument) {
    const ScalarNode &node = payload.nodes()[static_cast<size_t>(root.args[argument])];
    return node.op == ScalarOp::Constant && node.value <= hidden;
  };
  hidesWhereTrue = isHidden(1);
  if (!hidesWhereTrue && !isHidden(2))
    return std::nullopt;
  return payload.partAt(static_cast<size_t>(root.args[0]));
}

/// Finds the mask of positions by which an attention's payload chooses.
static std::optional<PositionMask> maskBehind(const Payload &condition, ValueRange scored,
                                              int64_t queries, int64_t keys) {
  if (auto mask = maskOf(condition, scored, 1, queries, keys))
    return mask;
  // A table that a comparison makes.
  const ScalarNode &root = condition.nodes().back();
  if (root.op != ScalarOp::Operand || root.operand == 0)
    return std::nullopt;
  auto op =
      scored[static_cast<unsigned>(root.operand - 1)].getDefiningOp<PayloadOpInterface>();
  if (!op || !op.getPayloadAttributes().empty())
    return std::nullopt;
  return maskOf(op.getPayload(), op->getOperands(), 0, queries, keys);
}

/// True if some pair of the block is seen, of its corners, edges' middles and middle.
static bool isSeen(const PositionMask &mask, bool hidesWhereTrue, int64_t query,
                   int64_t key, int64_t queries, int64_t keys) {
  const int64_t rows = std::min(blockSize, queries - query) - 1,
                columns = std::min(blockSize, keys - key) - 1;
  for (int64_t row : {int64_t(0), rows / 2, rows})
    for (int64_t column : {int64_t(0), columns / 2, columns})
      if (mask.at(query + row, key + column) != hidesWhereTrue)
        return true;
  return false;
}

double graph::detail::seenShare(int64_t queries, int64_t keys, ValueRange scored,
                                const Payload &payload) {
  bool hidesWhereTrue = false;
  const std::optional<Payload> condition = conditionOf(payload, hidesWhereTrue);
  if (!condition || std::max(queries, keys) <= blockSize)
    return 1;
  const std::optional<PositionMask> mask = maskBehind(*condition, scored, queries, keys);
  if (!mask)
    return 1;
  int64_t seen = 0, all = 0;
  for (int64_t query = 0; query < queries; query += blockSize)
    for (int64_t key = 0; key < keys; key += blockSize, ++all)
      seen += isSeen(*mask, hidesWhereTrue, query, key, queries, keys);
  return all == 0 ? 1 : static_cast<double>(seen) / static_cast<double>(all);
}
