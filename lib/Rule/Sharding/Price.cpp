//===- Price.cpp - What the conversions of a plan cost --------------------===//
#include "partita/Rule/Sharding/Price.h"

#include <algorithm>

using namespace partita;

size_t StepTree::convert(size_t node, const Layout &from, const Layout &to,
                         int64_t epoch) {
  if (from == to)
    return node;
  auto plan = planReshard(mesh, from, to, options);
  if (!plan)
    return node;
  for (const Step &step : plan->steps)
    if (step.kind != StepKind::View)
      node = add(node, step, epoch);
  return node;
}

size_t StepTree::add(Node node) {
  nodes.push_back(std::move(node));
  if (observer) {
    observer->from = nodes.back().from;
    observer->to = nodes.size();
  }
  return nodes.size();
}

size_t StepTree::window(size_t node, const Halo &halo) {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].from == node && nodes[i].halo == halo)
      return i + 1;
  size_t buffers = add({node, StepKind::View, {}, {}, 0, halo});
  if (observer)
    observer->onWindow(halo, elementBytes);
  count(haloElements(mesh, halo), halo.before.localElements(),
        elementCount(halo.shape()));
  return buffers;
}

void StepTree::pieces(const Pieces &pieces) {
  count(pieceElements(pieces), elementCount(pieces.before), elementCount(pieces.after));
}

size_t StepTree::add(size_t from, const Step &step, int64_t epoch) {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].from == from && nodes[i].kind == step.kind && !nodes[i].halo &&
        nodes[i].before == step.before && nodes[i].after == step.after &&
        nodes[i].epoch == epoch)
      return i + 1;
  size_t node = add({from, step.kind, step.before, step.after, epoch});
  if (observer)
    observer->onStep(step, elementBytes);
  count(step.receivedElements, step.before.localElements(), step.after.localElements());
  return node;
}

void StepTree::count(int64_t received, int64_t in, int64_t out) {
  if (received == 0)
    return;
  ++price.collectives;
  price.receivedBytes += received * elementBytes;
  price.peakBytes = std::max(price.peakBytes, (in + out) * elementBytes);
}

static void priceValue(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                       const Servings &servings, int32_t number, Price &price,
                       StepObserver *observer) {
  const FlowValue &value = graph.values[static_cast<size_t>(number)];
  const FlowOp &producer = graph.ops[static_cast<size_t>(value.producer)];
  auto given = servings.find(number);
  auto served =
      given != servings.end() ? given->second : serveUses(graph, strategies, number);
  bool isSource = producer.kind == FlowKind::Source;
  if (served.empty())
    return;
  Layout produced =
      resultLayout(producer.rule, strategies[static_cast<size_t>(value.producer)],
                   static_cast<size_t>(value.result))
          .canonicalized();
  StepTree steps(graph.mesh, graph.reshard, value.elementBytes, price, observer);
  std::vector<size_t> nodes;
  for (const ServedLayout &s : served) {
    bool first = s.from < 0;
    size_t node = first ? 0 : nodes[static_cast<size_t>(s.from)], foundAt = node;
    const Layout &at = first ? produced : served[static_cast<size_t>(s.from)].layout;
    if (isSource && first) // read so, from its file
      price.weightBytes += s.layout.localElements() * value.elementBytes;
    else if (s.halo)
      foundAt = steps.window(node, *s.halo);
    else
      node = foundAt = steps.convert(node, at, s.layout, s.epoch);
    nodes.push_back(node);
    if (observer)
      observer->onServed(s, foundAt);
  }
}

Price partita::priceOfValue(const FlowGraph &graph,
                            const std::vector<Strategy> &strategies, int32_t value) {
  Price price;
  priceValue(graph, strategies, {}, value, price, nullptr);
  return price;
}

Received partita::receivedOf(const FlowGraph &graph,
                             const std::vector<Strategy> &strategies,
                             const std::vector<int32_t> &values) {
  Received all;
  for (int32_t value : values) {
    int32_t producer = graph.values[static_cast<size_t>(value)].producer;
    Price price = priceOfValue(graph, strategies, value);
    int64_t trips = graph.ops[static_cast<size_t>(producer)].trips;
    all.first += price.receivedBytes * trips;
    all.second += price.collectives * trips;
  }
  return all;
}

Price partita::price(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                     const Servings &servings, StepObserver *observer) {
  Price price;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].producer < 0)
      continue;
    Price once;
    int64_t trips = graph.ops[static_cast<size_t>(graph.values[v].producer)].trips;
    if (observer) {
      observer->trips = trips;
      observer->value = static_cast<int32_t>(v);
    }
    priceValue(graph, strategies, servings, static_cast<int32_t>(v), once, observer);
    price.receivedBytes += once.receivedBytes * trips;
    price.collectives += once.collectives * trips;
    price.peakBytes = std::max(price.peakBytes, once.peakBytes);
    price.weightBytes += once.weightBytes;
  }
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    int64_t shards = 1;
    for (const DimLayout &factor : strategies[op].factors)
      for (const DimFactor &sub : factor.factors)
        shards *= sub.shards();
    price.flops += graph.ops[op].flops / shards * graph.ops[op].trips;
  }
  return price;
}
