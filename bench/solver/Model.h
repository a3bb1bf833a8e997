//===- Model.h - Problems with the structure of sharded models --*- C++ -*-===//
//
// Makes problems the way the instances of the contest came about: a model is a list of
// ops over named loop extents (factors); a strategy gives every mesh axis to one factor
// or to none; a choice costs its share of the work and the reduction of a split sum, and
// uses the bytes of its shard while the result is alive; an edge from producer to reader
// costs the reshard between the layouts. Backward ops are derived from the forward ones,
// so activations live until their gradient is taken; a weight and its update must be laid
// out alike (forbidden pairs).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BENCH_SOLVER_MODEL_H
#define PARTITA_BENCH_SOLVER_MODEL_H

#include "partita/Solver/Problem.h"

#include <algorithm>
#include <random>
#include <string>

namespace partita::solver::bench {

enum class ModelKind { Transformer, UNet, Graph };

struct ModelSpec {
  ModelKind kind = ModelKind::Transformer;
  /// Stops adding layers at about so many variables.
  int nodes = 5000;
  /// No op has more strategies; the first ones in the order of the factors are kept.
  int choices = 300;
  std::vector<int> mesh{4, 8};
  bool training = true;
  uint64_t seed = 1;
  /// The memory limit lies this far between what is needed at least and what the
  /// cheapest choices use.
  double tightness = 0.7;
};

class Model {
public:
  explicit Model(ModelSpec spec) : spec(std::move(spec)), random(this->spec.seed) {}
  Problem make();

private:
  /// An op's result: the factors of the loop nest, which of them its dims are, and for
  /// each operand which factors the operand's dims are.
  struct Node {
    std::vector<int64_t> factors;
    std::vector<int> out;
    struct Operand {
      int node;
      std::vector<int> dims;
    };
    std::vector<Operand> operands;
    bool isWeight = false;
    /// A weight's update is laid out like the weight.
    int tiedTo = -1;
    int64_t lastUse = 0;
    /// For each strategy the factor of every axis, -1 for none.
    std::vector<std::vector<int>> strategies;
  };
  using Dims = std::vector<int>;

  int add(Node node);
  int weight(std::vector<int64_t> shape);
  int einsum(std::vector<int64_t> factors, Dims out, std::vector<Node::Operand> operands);
  int elementwise(std::vector<int> operands);
  int norm(int x);
  int linear(int x, int64_t width);
  int transformerLayer(int x);
  int convolution(int x, int64_t channels);
  int graphStep(int x);
  void forward();
  void backward(int last);
  void update();

  std::vector<int64_t> shape(int node) const;
  void chooseStrategies(Node &node) const;
  int axisOfDim(const Node &node, const Dims &dims, const std::vector<int> &strategy,
                size_t axis) const;
  double shards(const Node &node, const Dims &dims,
                const std::vector<int> &strategy) const;
  Variable variable(int n) const;
  Edge edge(int from, int to, const Dims &dims);
  Edge tie(int a, int b);
  static int64_t limit(const Problem &problem, double tightness);

  ModelSpec spec;
  std::mt19937_64 random;
  std::vector<Node> nodes;
  TablePool tables;
  std::vector<int> weights, gradients;
  int64_t batch = 0, length = 0, hidden = 0, heads = 0;
};

} // namespace partita::solver::bench

#endif // PARTITA_BENCH_SOLVER_MODEL_H
