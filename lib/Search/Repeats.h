//===- Repeats.h - What the backward pass may compute again -----*- C++ -*-===//
//
// Adds the choice of what is computed again to a problem (RecomputeBound.h). An op of the
// forward pass that the backward pass needs something of has its strategies several
// times: the backward pass finds its result as it was made, the op runs again, by the
// same strategy, or the backward pass finds nothing. A value that gradients read has its
// states twice:
//
//     variable     choices                              costs
//     op           kept: strategies                     the op's time
//                  repeated: strategies, for each       the same twice
//                  birth, for each operand as it is
//                  kept or not
//     value        kept: states                         the conversions
//                  repeated: states, for each birth     those of what is made again
//
// A birth is the backward op before which a copy runs. An op that is repeated finds its
// operands kept, or repeated and born no later. What is repeated serves
// gradients and readers that are repeated, by the value's state; the readers in the
// forward pass are served by themselves, of which the first one's conversion counts. A
// value without gradients has its states once, as the readers' copies want what they
// want.
//
// Example: `h = x w`, `g = gelu(h)`, and a gradient reads g. That g is repeated means
// that h is kept, at its bytes when the backward pass begins, or repeated, so that the
// product runs twice. If h is converted for gelu, it is converted twice in the second
// case.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_REPEATS_H
#define PARTITA_LIB_SEARCH_REPEATS_H

#include "ProblemParts.h"
#include "Tables.h"

namespace partita::search {

/// Adds the variables of values that may be repeated, and says what those of ops are.
class Repeats {
public:
  /// All must outlive it. The choices of the model are known, but there are no variables.
  Repeats(Timing &timing, Tables &tables, ProblemParts &parts, Model &model,
          const ModelOptions &options);

  /// Whether the op has choices as above: it is of the forward pass, has one result, and
  /// the backward pass needs what it leads to.
  bool mayRepeat(int32_t op) const { return isRepeatable[static_cast<size_t>(op)]; }
  bool isForward(int32_t op) const;
  /// Whether nothing is counted of a use of what an op makes: the backward pass reads it,
  /// and the op, of several results, may run again without choices of its own.
  bool isFoundAnyway(int32_t producer, const FlowUse &use) const;
  /// The costs of an op that may repeat.
  std::vector<int64_t> costsOf(int32_t op) const;
  /// A table of which the last number of a place is the choice of an op, for its
  /// variable: all of such an op's choices cost the same.
  const solver::CostTable &forUser(int32_t op, const solver::CostTable &table);
  /// The same, where the op costs that again if it is repeated.
  const solver::CostTable &forReader(int32_t op, const solver::CostTable &table);

  /// The result of such an op, with its users, each once. All ops have variables.
  void add(int32_t value, const End &producer,
           const std::vector<std::pair<int32_t, End>> &users);

  /// The ops of one node run again together. All ops have variables.
  void joinNodes();

private:
  struct Reader {
    int32_t op;
    const End *end;
    bool isGradient; ///< else of the forward pass, or a result
    bool mayRepeat;
  };
  struct Value {
    int32_t number, producer;
    const End *end; ///< of the producer
    std::vector<Reader> readers;
    uint32_t variable = 0;
    const SharedTable *table = nullptr;
    size_t states() const { return table->times.size(); }
    size_t choices() const { return end->choices->size(); }
  };

  /// A choice of an op.
  struct Choice {
    size_t strategy;
    bool isRepeated = false;
    unsigned keptWays = 0; ///< of one that is: a bit per way (see `ways`) that is kept
    size_t birth = 0;      ///< of one that is: when it runs again
  };
  Choice choiceOf(int32_t op, size_t number) const;
  size_t choicesOf(int32_t op) const;
  bool hasGradient(int32_t op) const;
  /// Time to write a value in a form, to read it, and to start the kernel that
  /// does: what is saved where it stays in a kernel.
  Picos between(int32_t value, int32_t form) const;
  /// Time that a step takes longer if the op runs again.
  Picos timeAgain(int32_t op, size_t strategy, size_t birth) const;
  /// Says whether an op shares a kernel with the only gradient that reads it, if it runs
  /// again and no other copy reads it, or with its only reader of the forward pass, once
  /// no gradient reads it there.
  bool joins(int32_t op, bool ofBackward) const;
  /// The only op of these readers of a result; −1: there is none, or another one.
  int32_t onlyReader(int32_t op, bool ofBackward) const;
  void findRepeatable();
  void findWays();

  /// A value that no gradient reads.
  void addOnTheWay(const Value &value);
  /// One that gradients read.
  void addRead(Value value);
  void joinForward(const Value &value, size_t reader, bool isFirst);
  void joinGradient(const Value &value, size_t reader);
  /// The op that makes a value that no gradient reads, and a reader.
  void joinOps(const Value &value, const Reader &reader);
  void useBytes(const Value &value);
  /// Adds least rows, and others, of a value that gradients read.
  void useLeastBytes(const Value &value);
  void useMostBytes(const Value &value);
  /// Adds other rows of a value that no gradient reads: in the forward pass, and while
  /// what reads it is computed again.
  void useBytesOnTheWay(const Value &value);
  /// The moment after the last reader of the forward pass.
  int64_t forwardDone(const Value &value) const;
  /// The moment after its last reader.
  int64_t done(const Value &value) const;
  /// Bytes of the largest form that each choice wants.
  std::vector<int64_t> wantedBytes(const Value &value, const Reader &reader) const;
  /// What that form has more than the smallest of each state, [state][choice].
  std::vector<int64_t> moreThanLeast(const Value &value, const Reader &reader) const;
  uint32_t variableOf(int32_t op) const {
    return static_cast<uint32_t>(model.variables[static_cast<size_t>(op)]);
  }
  int64_t width(const Value &value) const {
    return graph.values[static_cast<size_t>(value.number)].elementBytes;
  }
  int64_t trips(const Value &value) const {
    return graph.ops[static_cast<size_t>(value.producer)].trips;
  }
  int64_t keptFrom(const Value &value) const;
  /// Moments at which the op may run again; of the bound, which knows of none, 1.
  size_t birthCount(int32_t op) const;
  int64_t bornAgain(int32_t op, size_t birth) const;
  /// A bit per pair of births of an op and of its reader that are in such an order.
  template <typename Order> int orderOf(int32_t op, int32_t reader, Order order) const;
  /// States of a value that gradients read: kept, then by birth.
  size_t allStates(const Value &value) const {
    return value.states() * (1 + birthCount(value.producer));
  }
  /// Of a value that gradients read.
  const Reader &firstGradient(const Value &value) const;
  const Reader &lastGradient(const Value &value) const;
  bool hasPlaceRepeated(const Value &value) const;
  bool isBound() const { return rows == Rows::Least; }
  /// A table of so many rows and columns that follows from another one, made once.
  template <typename Entry>
  const solver::CostTable &once(const solver::CostTable &table, int kind, size_t rows,
                                size_t columns, Entry entry);

  Timing &timing;
  const FlowGraph &graph;
  Tables &tables;
  ProblemParts &parts;
  Model &model;
  const Rows rows;
  const bool choosesBirths;    ///< as ModelOptions, without least rows
  const int32_t turn;          ///< the first op of the backward pass
  std::vector<int32_t> needed; ///< per op the first backward op that needs it, or none
  /// Per op the backward ops before which it may run again, the latest first; without
  /// least rows.
  std::vector<std::vector<int32_t>> births;
  std::vector<bool> isRepeatable; ///< per op
  /// Per op the operands that no gradient reads, at most two, of which it says whether
  /// they are kept: of a value with several readers the last one does.
  std::vector<std::vector<int32_t>> ways;
  std::map<std::tuple<const void *, int, size_t, size_t>, solver::CostTable> made;
};

/// The fewest bytes of any of the forms in which a value lies in each of its states.
std::vector<int64_t> leastBytes(const Timing &timing, const SharedTable &table,
                                int64_t elementBytes);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_REPEATS_H
