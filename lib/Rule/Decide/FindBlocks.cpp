//===- FindBlocks.cpp - Attention and MLP blocks by structure -------------===//
#include "partita/Rule/Decide/ReadyRules.h"

#include <algorithm>

using namespace partita;

static bool has(const TensorFactors &tensor, int32_t factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const auto &dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

/// A sum of products of two operands, over a loop of both. Of a convolution the taps are
/// no loop; its channels are as good as the columns of a matrix.
static bool isProduct(const FlowOp &op) {
  if (op.kind != FlowKind::Compute || !op.isForward() || op.operands.size() < 2 ||
      op.results.size() != 1)
    return false;
  for (size_t f = 0; f < op.rule.factors.size(); ++f) {
    const loop::Reduction *sum = op.rule.factors[f].reduction();
    if (sum && sum->reduce == ReduceKind::Sum && sum->index < 0 &&
        has(op.rule.operands[0], static_cast<int32_t>(f)) &&
        has(op.rule.operands[1], static_cast<int32_t>(f)))
      return true;
  }
  return false;
}

namespace {
class BlockFinder {
public:
  explicit BlockFinder(const FlowGraph &graph) : graph(graph) {
    constant.resize(graph.values.size());
    chosen.resize(graph.values.size());
    for (const FlowOp &op : graph.ops) {
      bool isConstant = op.kind == FlowKind::Source || op.isParameter ||
                        (op.kind == FlowKind::Compute &&
                         std::all_of(op.operands.begin(), op.operands.end(),
                                     [&](int32_t v) { return constant[v]; }));
      const bool isChosen = !isConstant && (choosesWeights(op) || isChosenView(op));
      for (int32_t v : op.results) {
        constant[v] = isConstant;
        chosen[v] = isChosen;
      }
    }
  }

  std::vector<Block> run() {
    std::vector<Block> blocks;
    std::set<int32_t> rows;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      auto block = blockOf(static_cast<int32_t>(i));
      // In a chain of layers every other one is a row product.
      if (!block || std::any_of(block->columns.begin(), block->columns.end(),
                                [&](int32_t op) { return rows.count(op); }))
        continue;
      rows.insert(block->row);
      blocks.push_back(std::move(*block));
    }
    return blocks;
  }

  std::vector<WeightLoop> heads(const std::vector<Block> &blocks) const {
    std::set<int32_t> inBlocks;
    for (const Block &block : blocks) {
      inBlocks.insert(block.row);
      inBlocks.insert(block.columns.begin(), block.columns.end());
    }
    // From the last op on: whether what is made is read by a product with weights.
    std::vector<bool> feeds(graph.values.size(), false);
    std::vector<WeightLoop> heads;
    for (size_t i = graph.ops.size(); i-- > 0;) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute || !op.isForward())
        continue;
      auto number = static_cast<int32_t>(i);
      const int32_t weight = weightOf(op);
      const bool feedsOn = std::any_of(op.results.begin(), op.results.end(),
                                       [&](int32_t v) { return feeds[v]; });
      if (weight >= 0 && !feedsOn && !inBlocks.count(number))
        if (auto dim = vocabularyOf(number, weight))
          heads.push_back({number, weight, *dim});
      for (int32_t v : op.operands)
        feeds[v] = feeds[v] || feedsOn || weight >= 0;
    }
    std::reverse(heads.begin(), heads.end());
    return heads;
  }

  std::vector<WeightLoop> experts() const {
    std::vector<WeightLoop> experts;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      const int32_t weight = weightOf(op);
      // Matrices that each token has looked up have a loop of tokens, not of experts.
      if (weight < 0 || chosen[op.operands[weight]])
        continue;
      const TensorFactors &tensor = op.rule.operands[weight];
      for (size_t d = 0; d < tensor.size(); ++d)
        if (tensor[d].size() == 1 &&
            op.rule.factors[tensor[d][0]].kind() == FactorKind::Parallel &&
            has(op.rule.operands[1 - weight], tensor[d][0]) &&
            has(op.rule.results[0], tensor[d][0])) {
          experts.push_back({static_cast<int32_t>(i), weight, d});
          break;
        }
    }
    return experts;
  }

private:
  /// The dim of the weight that is the columns, if they are a vocabulary.
  std::optional<size_t> vocabularyOf(int32_t number, int32_t weight) const {
    const FlowOp &op = graph.ops[number];
    const TensorFactors &tensor = op.rule.operands[weight];
    int64_t summed = 1, columns = 1;
    std::optional<size_t> dim;
    for (size_t d = 0; d < tensor.size(); ++d)
      for (int32_t f : tensor[d]) {
        if (op.rule.factors[f].reduction()) {
          summed *= op.rule.factors[f].size;
        } else if (!has(op.rule.operands[1 - weight], f)) {
          if (dim && *dim != d)
            return std::nullopt;
          dim = d;
          columns *= op.rule.factors[f].size;
        }
      }
    if (!dim || columns <= summed)
      return std::nullopt;
    for (int32_t atom : graph.dimAtoms(number, tensor[*dim]))
      if (graph.atoms[atom].refused)
        return std::nullopt;
    return dim;
  }

  /// Whether each element of an index takes a matrix out of a stack of weights, as that
  /// of the expert that a token has chosen. The rows of a table of embeddings are
  /// activations.
  bool choosesWeights(const FlowOp &op) const {
    if (op.kind != FlowKind::Compute || !constant[op.operands[0]])
      return false;
    const TensorFactors &stack = op.rule.operands[0];
    auto isLookedUp = [&](const std::vector<int32_t> &dim) {
      return std::any_of(dim.begin(), dim.end(), [&](int32_t f) {
        const int32_t index = op.rule.factors[f].indexOperand();
        return index > 0 && !constant[op.operands[index]];
      });
    };
    return stack.size() > 2 && std::count_if(stack.begin(), stack.end(), isLookedUp) == 1;
  }

  /// Whether chosen weights keep their elements: another shape, order or type.
  bool isChosenView(const FlowOp &op) const {
    return op.kind == FlowKind::Compute && op.operands.size() == 1 &&
           op.results.size() == 1 && chosen[op.operands[0]] &&
           elementCount(graph.values[op.operands[0]].shape) ==
               elementCount(graph.values[op.results[0]].shape) &&
           !op.rule.linear.empty();
  }

  /// The operand of a product that is a weight: computed from weights alone, else chosen
  /// among weights; -1 if none or both.
  int32_t weightOf(const FlowOp &op) const {
    if (!isProduct(op))
      return -1;
    for (const std::vector<bool> *are : {&constant, &chosen})
      if ((*are)[op.operands[0]] != (*are)[op.operands[1]])
        return (*are)[op.operands[0]] ? 0 : 1;
    return -1;
  }

  /// What following an atom back to where it is made has found.
  struct Trace {
    bool isGood = true, passesScores = false, passesActivation = false;
    bool meetsInput = false;  ///< a lookup or an argument
    bool isMadeWhole = false; ///< by an op that cannot be split along it
    std::set<int32_t> columns;
    std::set<int32_t> scores;
    std::set<int32_t> seen;
    std::vector<int32_t> open;

    bool isMlp() const {
      return isGood && passesActivation && !meetsInput && !isMadeWhole &&
             !columns.empty();
    }
    void add(int32_t atom) {
      if (seen.insert(atom).second)
        open.push_back(atom);
    }
  };

  std::optional<Block> blockOf(int32_t number) const {
    const FlowOp &op = graph.ops[number];
    int32_t weight = weightOf(op);
    if (weight < 0)
      return std::nullopt;
    Block block;
    block.row = number;
    block.operand = 1 - weight;
    bool isMlp = false;
    std::vector<Trace> traces;
    for (const std::vector<int32_t> &dim : op.rule.operands[block.operand]) {
      bool isSummed = std::any_of(dim.begin(), dim.end(), [&](int32_t f) {
        return op.rule.factors[f].reduction() && has(op.rule.operands[weight], f);
      });
      // A dim of its own in both operands: else it is not one loop that is followed.
      if (!isSummed)
        continue;
      if (!block.atoms.empty())
        return std::nullopt;
      block.atoms = graph.dimAtoms(number, dim);
    }
    for (int32_t atom : block.atoms) {
      traces.push_back(follow(number, block.operand, atom));
      const Trace &trace = traces.back();
      block.isAttention |= trace.isGood && trace.passesScores;
      isMlp |= trace.isMlp();
    }
    if (!block.isAttention && !isMlp)
      return std::nullopt;
    for (const Trace &trace : traces) {
      bool usable =
          block.isAttention ? trace.isGood && trace.passesScores : trace.isMlp();
      block.usable.push_back(usable);
      if (!usable)
        continue;
      block.columns.insert(trace.columns.begin(), trace.columns.end());
      block.scores.insert(trace.scores.begin(), trace.scores.end());
    }
    return block;
  }

  Trace follow(int32_t op, int32_t operand, int32_t atom) const {
    Trace trace;
    toProducer(trace, graph.ops[op].operands[operand], atom);
    while (trace.isGood && !trace.open.empty()) {
      int32_t next = trace.open.back();
      trace.open.pop_back();
      visit(trace, next);
    }
    return trace;
  }

  /// Goes from an atom of a user of a value to the same piece of who makes it.
  void toProducer(Trace &trace, int32_t value, int32_t atom) const {
    int32_t producer = graph.values[value].producer;
    const FlowOp &op = graph.ops[producer];
    if (op.kind == FlowKind::Argument || (op.kind == FlowKind::State && !op.isParameter))
      trace.meetsInput = true;
    if (op.kind != FlowKind::Compute)
      return;
    bool found = false;
    for (const Atom::Link &link : graph.atoms[atom].links)
      if (link.value == value && link.common == 0 &&
          graph.atoms[link.atom].op == producer) {
        trace.add(link.atom);
        found = true;
      }
    trace.isGood &= found;
  }

  void visit(Trace &trace, int32_t number) const {
    const Atom &atom = graph.atoms[number];
    const FlowOp &op = graph.ops[atom.op];
    if (graph.kindOf(atom) != FactorKind::Parallel) {
      // The heads that a Split takes out of a fused product of grouped heads: queries,
      // keys and values are made whole, and each rank goes on with its heads.
      trace.isMadeWhole = true;
      return;
    }
    int32_t weight = weightOf(op);
    if (weight >= 0) {
      // Columns end the way; rows are positions, which no block is split along.
      trace.isGood &= has(op.rule.operands[weight], atom.factor);
      trace.columns.insert(atom.op);
      return;
    }
    if (isProduct(op) || op.facts.kind == kernels::OpKind::Attention) {
      if (has(op.rule.operands[0], atom.factor) &&
          has(op.rule.operands[1], atom.factor)) {
        trace.passesScores = true;
        trace.scores.insert(atom.op);
      }
    } else {
      trace.passesActivation |=
          std::none_of(op.rule.linear.begin(), op.rule.linear.end(),
                       [](const LinearSet &set) { return set.kind == ReduceKind::Sum; });
    }
    for (const Factor &factor : op.rule.factors)
      trace.meetsInput |= factor.indexOperand() >= 0;
    for (size_t o = 0; o < op.operands.size() && trace.isGood; ++o)
      if (has(op.rule.operands[o], atom.factor))
        toProducer(trace, op.operands[o], number);
  }

  const FlowGraph &graph;
  std::vector<bool> constant; ///< per value: computed from weights alone
  std::vector<bool> chosen;   ///< per value: weights that an index has looked up
};
} // namespace

std::vector<Block> partita::findBlocks(const FlowGraph &graph) {
  return BlockFinder(graph).run();
}

std::vector<WeightLoop> partita::findHeads(const FlowGraph &graph,
                                           const std::vector<Block> &blocks) {
  return BlockFinder(graph).heads(blocks);
}

std::vector<WeightLoop> partita::findExperts(const FlowGraph &graph) {
  return BlockFinder(graph).experts();
}
