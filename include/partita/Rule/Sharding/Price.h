//===- Price.h - What the conversions of a plan cost ------------*- C++ -*-===//
//
// Conversions are priced as the steps that will be emitted. The same tree of steps prices
// a set of strategies (a search, which has no IR) and the conversions of a program (L2).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_PRICE_H
#define PARTITA_RULE_SHARDING_PRICE_H

#include "partita/Base/Layout/Halo.h"
#include "partita/Base/Layout/Pieces.h"
#include "partita/Rule/Sharding/ServeUses.h"

namespace partita {

/// What a set of strategies costs one rank per run of the program.
struct Price {
  int64_t receivedBytes = 0; ///< by the reshard planner, worst rank per step
  int64_t collectives = 0;   ///< steps and windows by which ranks receive something
  int64_t peakBytes = 0;     ///< most bytes that go into and come out of one of them
  int64_t flops = 0;
  int64_t weightBytes = 0; ///< weights one rank holds
  /// Seconds at a nominal 100 GFLOP/s and 5 GB/s: only for comparing seeds.
  double score() const {
    return static_cast<double>(flops) / 1e11 + static_cast<double>(receivedBytes) / 5e9;
  }
};

/// Is told of every step and window that is priced, once.
class StepObserver {
public:
  virtual ~StepObserver() = default;
  virtual void onStep(const Step &step, int64_t elementBytes) = 0;
  virtual void onWindow(const Halo &halo, int64_t elementBytes) = 0;
  /// The users of `entry` find what they want at `node`. Told behind what leads there.
  virtual void onServed(const ServedLayout & /*entry*/, size_t /*node*/) {}
  /// How often a run of the program does what is told from now on.
  int64_t trips = 1;
  int32_t value = -1; ///< whose conversions are told from now on, where that is known
  /// The nodes of the value's tree between which the step or window stands that is told.
  size_t from = 0, to = 0;
};

/// The steps that turn one value into the forms in which its users want it. A step that
/// several conversions begin with is there once, as in the partitioned program. Node 0 is
/// the value itself, each step and window leads to another one.
class StepTree {
public:
  StepTree(const Mesh &mesh, const ReshardOptions &options, int64_t elementBytes,
           Price &price, StepObserver *observer = nullptr)
      : mesh(mesh), options(options), elementBytes(elementBytes), price(price),
        observer(observer) {}

  /// Adds what leads from the value at `node`, which is in layout `from`, to `to`;
  /// returns the node it is at then. Layouts are canonical. Steps of conversions of
  /// different epochs are never one.
  size_t convert(size_t node, const Layout &from, const Layout &to, int64_t epoch = 0);
  /// Adds the exchange that fills window buffers from the value at `node`; returns the
  /// node of the buffers.
  size_t window(size_t node, const Halo &halo);
  /// Adds an exchange of pieces of the value, which leads to no node: it is shared with
  /// no conversion.
  void pieces(const Pieces &pieces);

private:
  struct Node {
    size_t from;
    StepKind kind;
    Layout before, after;
    int64_t epoch;
    std::optional<Halo> halo = std::nullopt; ///< instead of a step
  };
  size_t add(size_t from, const Step &step, int64_t epoch);
  /// Tells the observer where what it is told next stands; returns the new node.
  size_t add(Node node);
  void count(int64_t received, int64_t in, int64_t out);

  const Mesh &mesh;
  ReshardOptions options;
  int64_t elementBytes;
  Price &price;
  StepObserver *observer;
  std::vector<Node> nodes; ///< nodes 1, 2, …
};

/// Prices the conversions of one value, each once.
Price priceOfValue(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                   int32_t value);

/// In a run of the program: bytes, and of equal ones the conversions that receive them.
using Received = std::pair<int64_t, int64_t>;

/// The sums over the conversions of these values.
Received receivedOf(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                    const std::vector<int32_t> &values);

/// Prices the conversions that `servings` and serveUses name, and the work of the ops.
Price price(const FlowGraph &graph, const std::vector<Strategy> &strategies,
            const Servings &servings = {}, StepObserver *observer = nullptr);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_PRICE_H
