//===- LocalProgram.cpp - What one rank runs of a decided program ---------===//
#include "partita/Search/LocalProgram.h"

#include "FindMoments.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

using namespace partita;
using namespace partita::search;
using namespace partita::kernels;

using Shape = std::vector<int64_t>;

namespace {
/// A value as it is produced (node 0), and what it is converted to.
struct Tree {
  struct Node {
    size_t from = 0;
    Layout before;
    Shape shape;
    std::optional<LocalStep> step = std::nullopt; ///< of all but node 0
    int32_t local = -1; ///< number in the local program, once it is made
  };
  struct Entry {
    ServedLayout service;
    size_t node = 0;
  };
  std::vector<Node> nodes = {Node()};
  std::vector<Entry> entries;
  /// Readings of a source: a layout, the local value that it was made of, and its own.
  std::vector<std::tuple<Layout, int32_t, int32_t>> readings;
};

/// Records the conversions that prices are of.
class Recorder : public StepObserver {
public:
  explicit Recorder(size_t values) : trees(values) {}

  void onStep(const Step &step, int64_t elementBytes) override {
    add(step.before, step.after.localShape(), {-1, step, elementBytes});
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    add(halo.before, halo.shape(), {-1, halo, elementBytes});
  }
  void onServed(const ServedLayout &entry, size_t node) override {
    trees[static_cast<size_t>(value)].entries.push_back({entry, node});
  }

  std::vector<Tree> trees;

private:
  void add(const Layout &before, Shape shape, LocalStep step) {
    trees[static_cast<size_t>(value)].nodes.push_back(
        {from, before, std::move(shape), std::move(step)});
  }
};

/// Form in which an op must find an operand, made once for all ops that ask for the same
/// form.
struct Preparation {
  std::vector<int64_t> dims; ///< of a mask; empty: local indices
  ReduceKind kind = ReduceKind::Sum;
  Layout layout;
  bool operator==(const Preparation &) const = default;
};

class Builder {
public:
  Builder(const FlowGraph &graph, const Decided &plan)
      : graph(graph), plan(plan), recorder(graph.values.size()),
        entryOf(graph.ops.size()), due(graph.ops.size()) {
    price(graph, plan.strategies, plan.servings, &recorder);
    for (size_t o = 0; o < graph.ops.size(); ++o)
      entryOf[o].assign(graph.ops[o].operands.size(), -1);
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].producer >= 0)
        placeEntries(static_cast<int32_t>(v));
    for (const FlowTie &tie : graph.ties)
      spans[tie.begin] = tie.end;
    findMoments();
  }

  std::vector<LocalFunction> run();

private:
  /// A function whose ops are being added.
  struct Open {
    size_t function;                 ///< number
    int32_t end;                     ///< the flow op behind what its call runs
    int32_t call;                    ///< what runs it, in the function before
    std::vector<int32_t> sinks = {}; ///< flow ops, the last ones that were seen
    /// Values whose conversions follow the last argument.
    std::vector<int32_t> arguments = {};
  };

  const FlowOp &op(int32_t number) const {
    return graph.ops[static_cast<size_t>(number)];
  }
  const FlowOp &producer(int32_t value) const {
    return op(graph.values[static_cast<size_t>(value)].producer);
  }
  Tree &tree(int32_t value) { return recorder.trees[static_cast<size_t>(value)]; }
  LocalProgram &program() { return functions[open.back().function].program; }

  void placeEntries(int32_t value);
  void findMoments();
  Layout produced(int32_t value) const;

  void openFunction(int32_t first, int32_t end, int32_t call);
  /// Makes one op of the sinks that were seen last: what ends a function, or runs some.
  int32_t takeSinks(int32_t at);
  void addEnd(int32_t number);
  OpFacts localFacts(int32_t number, const std::vector<int32_t> &operands);
  void addCompute(int32_t number);
  void convertArguments();
  void convertResults(int32_t number);

  int32_t newValue(int32_t value, Shape shape);
  int32_t newOp(int32_t at, OpFacts facts, Phase phase, std::vector<int32_t> operands,
                std::vector<int32_t> results);
  /// The result of a new op that moves what it reads.
  int32_t moved(int32_t at, int32_t value, int32_t from, Shape shape,
                OpRole role = OpRole::Other);
  int32_t readSource(int32_t at, int32_t value, const Layout &layout);
  /// What `make` makes of the local value `from` (−1: of the file), once per layout.
  template <typename Make>
  int32_t made(int32_t value, const Layout &layout, int32_t from, Make make);
  /// What users find at the node, made if need be.
  int32_t at(int32_t op, int32_t value, size_t node);
  int32_t entryValue(int32_t op, int32_t value, const Tree::Entry &entry);
  /// Writes moments by those of each rank's own elements, at the conversion of the mean.
  void combine(int32_t number, const FlowMoments &moments);
  int32_t combined(int32_t number, const FlowMoments &moments, const MomentOp &op,
                   std::vector<int32_t> operands);
  /// The local values of a conversion that is no value's of the plan.
  int32_t converted(int32_t number, int32_t value, int32_t from, const Layout &before,
                    const Layout &after);
  int32_t operand(int32_t op, size_t number);
  int32_t prepared(int32_t number, size_t operand);
  int32_t preparedBy(int32_t number, int32_t value, int32_t local,
                     const Preparation &what);

  const FlowGraph &graph;
  const Decided &plan;
  Recorder recorder;
  /// Per operand of each op the entry of its value that serves it; −1: as it is produced.
  std::vector<std::vector<int32_t>> entryOf;
  /// Per op what is converted before it: value, entry.
  std::vector<std::vector<std::pair<int32_t, size_t>>> due;
  std::map<int32_t, int32_t> spans;       ///< of what others run: begin, end
  std::map<int32_t, FlowMoments> moments; ///< by the value that is the mean
  std::set<int32_t> replaced;             ///< flow ops that moments are written without
  std::vector<LocalFunction> functions;
  std::vector<Open> open;
  int32_t call = -1; ///< whose results come next
  /// Preparations by function and local value.
  std::multimap<std::pair<size_t, int32_t>, std::pair<Preparation, int32_t>> preparations;
};
} // namespace

/// Conversions stand behind what makes the value; of a state, and of a source that is
/// converted after it was read, before the first user.
void Builder::placeEntries(int32_t value) {
  const std::vector<Tree::Entry> &entries = tree(value).entries;
  std::vector<int32_t> first(entries.size(), std::numeric_limits<int32_t>::max());
  for (size_t e = entries.size(); e-- > 0;) {
    for (const FlowUse &use : entries[e].service.uses) {
      entryOf[static_cast<size_t>(use.op)][static_cast<size_t>(use.operand)] =
          static_cast<int32_t>(e);
      first[e] = std::min(first[e], use.op);
    }
    if (int32_t from = entries[e].service.from; from >= 0)
      first[static_cast<size_t>(from)] =
          std::min(first[static_cast<size_t>(from)], first[e]);
  }
  const FlowKind kind = producer(value).kind;
  for (size_t e = 0; e < entries.size(); ++e)
    if (kind == FlowKind::State ||
        (kind == FlowKind::Source && entries[e].service.from >= 0))
      if (first[e] != std::numeric_limits<int32_t>::max())
        due[static_cast<size_t>(first[e])].emplace_back(value, e);
}

Layout Builder::produced(int32_t value) const {
  const FlowValue &it = graph.values[static_cast<size_t>(value)];
  return resultLayout(op(it.producer).rule,
                      plan.strategies[static_cast<size_t>(it.producer)],
                      static_cast<size_t>(it.result))
      .canonicalized();
}

//===----------------------------------------------------------------------===//
// Ops and values
//===----------------------------------------------------------------------===//

int32_t Builder::newValue(int32_t value, Shape shape) {
  functions[open.back().function].flowValues.push_back(value);
  return program().addValue(std::move(shape),
                            graph.values[static_cast<size_t>(value)].type);
}

int32_t Builder::newOp(int32_t at, OpFacts facts, Phase phase,
                       std::vector<int32_t> operands, std::vector<int32_t> results) {
  LocalOp made;
  made.facts = std::move(facts);
  made.phase = phase;
  made.operands = std::move(operands);
  made.results = std::move(results);
  functions[open.back().function].flowOps.push_back(at);
  functions[open.back().function].isOwn.push_back(false);
  return program().addOp(std::move(made));
}

int32_t Builder::moved(int32_t at, int32_t value, int32_t from, Shape shape,
                       OpRole role) {
  int32_t result = newValue(value, std::move(shape));
  newOp(at, OpFacts::of(OpKind::Other, role, {}), Phase::Forward, {from}, {result});
  return result;
}

template <typename Make>
int32_t Builder::made(int32_t value, const Layout &layout, int32_t from, Make make) {
  for (const auto &[known, of, local] : tree(value).readings)
    if (known == layout && of == from)
      return local;
  int32_t local = make();
  tree(value).readings.emplace_back(layout, from, local);
  return local;
}

/// A rank reads its part of a source, and all of a small constant whose elements differ,
/// of which it takes its part. A value that is read is no part of a sum yet.
int32_t Builder::readSource(int32_t at, int32_t value, const Layout &layout) {
  const FlowOp &source = producer(value);
  Layout whole = Layout::replicated(graph.values[static_cast<size_t>(value)].shape);
  Layout from = source.isLiteral && !source.isUniform() ? std::move(whole) : layout;
  from.partial.clear();
  int32_t local = made(value, from, -1, [&] {
    int32_t read = newValue(value, from.localShape());
    program().values.back().uniform = source.uniform;
    newOp(at, source.facts, Phase::Forward, {}, {read});
    return read;
  });
  if (from == layout)
    return local;
  if (auto steps = planReshard(graph.mesh, from, layout, graph.reshard))
    for (const Step &step : steps->steps)
      if (step.kind != StepKind::View)
        local = made(value, step.after, local,
                     [&] { return moved(at, value, local, step.after.localShape()); });
  return local;
}

int32_t Builder::at(int32_t number, int32_t value, size_t node) {
  if (int32_t known = tree(value).nodes[node].local; known >= 0 || node == 0)
    return known;
  const Tree::Node it = tree(value).nodes[node];
  bool isRead = it.from == 0 && producer(value).kind == FlowKind::Source;
  int32_t from =
      isRead ? readSource(number, value, it.before) : at(number, value, it.from);
  int32_t local =
      moved(number, value, from, it.shape,
            std::holds_alternative<Halo>(it.step->what) ? OpRole::Window : OpRole::Other);
  LocalFunction &function = functions[open.back().function];
  function.steps.push_back(*it.step);
  function.steps.back().op = static_cast<int32_t>(function.program.ops.size()) - 1;
  tree(value).nodes[node].local = local;
  return local;
}

int32_t Builder::entryValue(int32_t number, int32_t value, const Tree::Entry &entry) {
  if (auto found = moments.find(value); found != moments.end() && entry.node != 0 &&
                                        tree(value).nodes[entry.node].local < 0)
    combine(number, found->second);
  if (producer(value).kind != FlowKind::Source || entry.service.from >= 0)
    return at(number, value, entry.node);
  int32_t read = readSource(number, value, entry.service.layout);
  return entry.service.halo
             ? moved(number, value, read, entry.service.halo->shape(), OpRole::Window)
             : read;
}

int32_t Builder::operand(int32_t number, size_t operand) {
  int32_t value = op(number).operands[operand];
  int32_t entry = entryOf[static_cast<size_t>(number)][operand];
  if (entry >= 0)
    return entryValue(number, value, tree(value).entries[static_cast<size_t>(entry)]);
  return producer(value).kind == FlowKind::Source
             ? readSource(
                   number, value,
                   Layout::replicated(graph.values[static_cast<size_t>(value)].shape))
             : at(number, value, 0);
}

int32_t Builder::preparedBy(int32_t number, int32_t value, int32_t local,
                            const Preparation &what) {
  const Phase phase = op(number).phase;
  auto [begin, end] = preparations.equal_range({open.back().function, local});
  for (auto it = begin; it != end; ++it)
    if (it->second.first == what) {
      LocalOp &made =
          program().ops[static_cast<size_t>(program().value(it->second.second).producer)];
      if (orderOf(phase) < orderOf(made.phase))
        made.phase = phase;
      return it->second.second;
    }
  int32_t result = newValue(value, program().value(local).shape);
  newOp(number, OpFacts::of(what.dims.empty() ? OpKind::Indexed : OpKind::Other), phase,
        {local}, {result});
  preparations.emplace(std::pair(open.back().function, local), std::pair(what, result));
  return result;
}

/// Masks and places of indices, as the operand's form asks for.
int32_t Builder::prepared(int32_t number, size_t i) {
  int32_t value = op(number).operands[i], local = operand(number, i);
  OperandForm form =
      operandForm(op(number).rule, plan.strategies[static_cast<size_t>(number)], i);
  for (ReduceKind kind :
       {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod})
    if (std::vector<int64_t> dims = form.dimsOf(kind); !dims.empty())
      local = preparedBy(number, value, local, {std::move(dims), kind, form.layout});
  if (form.localIndex) {
    Layout dim;
    dim.dims = {*form.localIndex};
    local = preparedBy(number, value, local, {{}, ReduceKind::Sum, dim.canonicalized()});
  }
  return local;
}

//===----------------------------------------------------------------------===//
// Moments
//===----------------------------------------------------------------------===//

void Builder::findMoments() {
  MomentFinder finder(graph, plan.strategies, [&](int32_t value) {
    std::vector<ServedLayout> services;
    for (const Tree::Entry &entry : tree(value).entries)
      if (entry.node != 0) // else it is read as it is made
        services.push_back(entry.service);
    return services;
  });
  for (FlowMoments &found : finder.run())
    moments.emplace(found.mean.value, std::move(found));
  replaced = finder.replaced;
}

int32_t Builder::converted(int32_t number, int32_t value, int32_t from,
                           const Layout &before, const Layout &after) {
  const FlowValue &it = graph.values[static_cast<size_t>(value)];
  auto steps = planReshard(graph.mesh, before.canonicalized(), after.canonicalized(),
                           graph.reshard);
  if (!steps)
    return from;
  for (const Step &step : steps->steps)
    if (step.kind != StepKind::View) {
      from = moved(number, value, from, step.after.localShape());
      LocalFunction &function = functions[open.back().function];
      function.steps.push_back({static_cast<int32_t>(function.program.ops.size()) - 1,
                                step, it.elementBytes, false});
    }
  return from;
}

int32_t Builder::combined(int32_t number, const FlowMoments &moments, const MomentOp &it,
                          std::vector<int32_t> operands) {
  using enum MomentOp::Kind;
  OpFacts facts = OpFacts::of(OpKind::View, OpRole::Reshape, {});
  if (it.kind == Sum) {
    facts = op(moments.mean.sum).facts;
    facts.rowDims = it.axes;
  } else if (it.kind == Divide) {
    facts = op(moments.mean.share).facts;
  } else if (it.kind == Multiply) {
    facts = op(moments.square).facts;
  } else if (it.kind != Reshape) {
    facts = op(moments.distance).facts;
    if (it.kind == Add)
      facts.post = Post::Add, facts.role = OpRole::Add;
  }
  const int32_t value = moments.mean.value;
  if (it.kind == Divide || (it.kind == Multiply && operands.size() == 1)) {
    const int32_t by = newValue(value, {});
    program().values.back().uniform = it.number;
    newOp(number, {}, Phase::Forward, {}, {by});
    operands.push_back(by);
  }
  const int32_t result = newValue(value, it.layout.localShape());
  newOp(number, std::move(facts), op(moments.mean.sum).phase, std::move(operands),
        {result});
  return result;
}

void Builder::combine(int32_t number, const FlowMoments &found) {
  const MomentProgram steps = combinedMoments(found.groups, found.mean.whole);
  std::vector<int32_t> made;
  for (const MomentOp &it : steps.ops) {
    std::vector<int32_t> operands;
    for (int32_t operand : it.operands)
      operands.push_back(operand < 0 ? this->operand(found.mean.sum, 0)
                                     : made[static_cast<size_t>(operand)]);
    if (it.kind == MomentOp::Kind::Gather)
      made.push_back(converted(number, found.mean.value, operands[0],
                               steps.ops[static_cast<size_t>(it.operands[0])].layout,
                               it.layout));
    else
      made.push_back(combined(number, found, it, std::move(operands)));
  }
  for (auto [mean, moment] :
       {std::pair(&found.mean, steps.mean), std::pair(&found.variance, steps.variance)}) {
    Tree &its = tree(mean->value);
    for (const Tree::Entry &entry : its.entries)
      if (entry.node != 0) {
        Tree::Node &node = its.nodes[entry.node];
        node.local = made[static_cast<size_t>(moment)];
        LocalFunction &function = functions[open.back().function];
        function.replaced.push_back(*node.step);
        function.replaced.back().op =
            static_cast<int32_t>(function.program.ops.size()) - 1;
      }
  }
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

void Builder::openFunction(int32_t first, int32_t end, int32_t call) {
  open.push_back({functions.size(), end, call});
  functions.emplace_back();
  functions.back().trips = op(first).trips;
}

int32_t Builder::takeSinks(int32_t at) {
  std::vector<int32_t> operands;
  for (int32_t sink : open.back().sinks)
    operands.push_back(operand(sink, 0));
  open.back().sinks.clear();
  return newOp(at, {}, Phase::Forward, std::move(operands), {});
}

/// Converts arguments. As for the results of an op, conversions of the last one come
/// first.
void Builder::convertArguments() {
  for (size_t i = open.back().arguments.size(); i-- > 0;)
    for (const Tree::Entry &entry : tree(open.back().arguments[i]).entries)
      entryValue(0, open.back().arguments[i], entry);
  open.back().arguments.clear();
}

void Builder::convertResults(int32_t number) {
  const std::vector<int32_t> &results = op(number).results;
  const bool isSource = op(number).kind == FlowKind::Source;
  for (size_t r = results.size(); r-- > 0;)
    for (const Tree::Entry &entry : tree(results[r]).entries)
      if (!isSource || entry.service.from < 0)
        entryValue(number, results[r], entry);
}

void Builder::addEnd(int32_t number) {
  const FlowOp &it = op(number);
  if (it.kind == FlowKind::Sink) {
    open.back().sinks.push_back(number);
    return;
  }
  int32_t value = it.results[0];
  int32_t local = newValue(value, produced(value).localShape());
  tree(value).nodes[0].local = local;
  if (call >= 0) {
    program().values[static_cast<size_t>(local)].producer = call;
    program().ops[static_cast<size_t>(call)].results.push_back(local);
  } else if (it.kind == FlowKind::Argument) {
    open.back().arguments.push_back(value);
  }
}

/// A slice of one of equal blocks begins there in each block that is split.
OpFacts Builder::localFacts(int32_t number, const std::vector<int32_t> &operands) {
  OpFacts facts = op(number).facts;
  if (facts.role != OpRole::Slice)
    return facts;
  const Shape &whole = graph.values[static_cast<size_t>(op(number).operands[0])].shape;
  const Shape &local = program().value(operands[0]).shape;
  for (size_t d = 0; d < whole.size(); ++d)
    if (whole[d] != local[d] && whole[d] != 0)
      facts.numbers[0][d] = facts.numbers[0][d] * local[d] / whole[d];
  return facts;
}

void Builder::addCompute(int32_t number) {
  if (replaced.count(number))
    return convertResults(number);
  const FlowOp &it = op(number);
  std::vector<int32_t> operands, results;
  for (size_t i = 0; i < it.operands.size(); ++i)
    operands.push_back(prepared(number, i));
  for (int32_t value : it.results) {
    results.push_back(newValue(value, produced(value).localShape()));
    tree(value).nodes[0].local = results.back();
  }
  newOp(number, localFacts(number, operands), it.phase, std::move(operands),
        std::move(results));
  functions[open.back().function].isOwn.back() = true;
  convertResults(number);
}

std::vector<LocalFunction> Builder::run() {
  const auto size = static_cast<int32_t>(graph.ops.size());
  if (size == 0)
    return {};
  openFunction(0, size, -1);
  for (int32_t o = 0; o < size; ++o) {
    while (open.size() > 1 && open.back().end == o) {
      takeSinks(o);
      call = open.back().call;
      open.pop_back();
    }
    const FlowOp &it = op(o);
    if (it.kind != FlowKind::State)
      call = -1;
    if (it.kind != FlowKind::Argument && it.kind != FlowKind::State)
      convertArguments();
    if (auto span = spans.find(o); span != spans.end()) {
      int32_t runs = takeSinks(o);
      openFunction(o, span->second, runs);
    } else if (!open.back().sinks.empty() && it.kind != FlowKind::Sink) {
      // The other side of a branch.
      takeSinks(o);
      Open ended = std::move(open.back());
      open.pop_back();
      openFunction(o, ended.end, ended.call);
    }
    for (const auto &[value, entry] : due[static_cast<size_t>(o)])
      entryValue(o, value, tree(value).entries[entry]);
    if (it.kind == FlowKind::Compute)
      addCompute(o);
    else if (it.kind == FlowKind::Source)
      convertResults(o);
    else
      addEnd(o);
  }
  takeSinks(size - 1);
  return std::move(functions);
}

std::vector<LocalFunction> search::localProgram(const FlowGraph &graph,
                                                const Decided &plan) {
  return Builder(graph, plan).run();
}
