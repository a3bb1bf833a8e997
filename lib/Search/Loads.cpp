//===- Loads.cpp - For how long choices keep resources busy ---------------===//
#include "Loads.h"

#include "Tables.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::search;

static size_t at(int32_t number) { return static_cast<size_t>(number); }
static size_t at(Place place) { return static_cast<size_t>(place); }

double Multipliers::operator()(Place place, const Occupied &occupied) const {
  const Of &by = of[at(place)];
  double sum = by.time * static_cast<double>(occupied.time) +
               by.device * static_cast<double>(occupied.device);
  for (size_t l = 0; l < by.links.size(); ++l)
    sum += by.links[l] * static_cast<double>(occupied.links[l]);
  return sum;
}

double Multipliers::operator()(const Loads &loads) const {
  double sum = 0;
  for (size_t p = 0; p < loads.size(); ++p)
    sum += (*this)(static_cast<Place>(p), loads[p]);
  return sum;
}

void Multipliers::add(const Multipliers &others, double share) {
  for (size_t p = 0; p < of.size(); ++p) {
    of[p].time += share * others.of[p].time;
    of[p].device += share * others.of[p].device;
    for (size_t l = 0; l < of[p].links.size(); ++l)
      of[p].links[l] += share * others.of[p].links[l];
  }
}

/// Of a level: whether the device counts in full or its links, whether necks and sections
/// follow each other, and whether what is Anywhere counts then.
static Multipliers extremeMultipliers(size_t level, double contention, bool isDevice,
                                      bool isOrdered, bool countsAnywhere) {
  const double rest = contention - 1;
  auto by = [&](double time, double device, double links) {
    Multipliers::Of result{time, device, {}};
    result.links[level] = links;
    return result;
  };
  const Multipliers::Of both = by(0, isDevice ? 1 : rest, isDevice ? rest : 1);
  if (!isOrdered)
    return {{both, both, both}};
  if (!countsAnywhere)
    return {{by(1, 0, 0), both, by(0, 0, 0)}};
  return {{by(1 - rest, rest, rest), both, by(0, rest, rest)}};
}

std::vector<Multipliers> search::extremeMultipliers(size_t levels, double contention) {
  std::vector<Multipliers> extremes;
  for (size_t level = 0; level < std::max<size_t>(1, levels); ++level)
    for (bool isDevice : {true, false}) {
      extremes.push_back(::extremeMultipliers(level, contention, isDevice, true, false));
      extremes.push_back(::extremeMultipliers(level, contention, isDevice, true, true));
      extremes.push_back(::extremeMultipliers(level, contention, isDevice, false, true));
    }
  return extremes;
}

namespace {
/// Numbers of equal keys are equal.
template <typename Key> struct Numbers {
  std::map<Key, uint32_t> numbers;
  std::vector<Key> keys;
  uint32_t add(const Key &key) {
    auto [place, added] = numbers.try_emplace(key, static_cast<uint32_t>(keys.size()));
    if (added)
      keys.push_back(key);
    return place->second;
  }
};
} // namespace

/// How an op uses a value.
static End userOf(const FlowGraph &graph, const Model &model, int32_t op, int32_t value) {
  End end{model.choices[at(op)].get(), {}};
  const std::vector<int32_t> &operands = graph.ops[at(op)].operands;
  for (size_t o = 0; o < operands.size(); ++o)
    if (operands[o] == value)
      end.places.push_back(static_cast<int32_t>(o));
  return end;
}

template <typename Make>
ModelLoads::Shared ModelLoads::once(const void *id, Place place, Make make) {
  Shared &table = known[{id, place}];
  if (!table) {
    Table made = make();
    made.place = place;
    table = std::make_shared<const Table>(std::move(made));
  }
  return table;
}

ModelLoads::ModelLoads(Timing &timing, const Model &model)
    : timing(timing), graph(timing.graph), model(model),
      variables(model.problem.variables.size()), edges(model.problem.edges.size()) {
  const Places places = placesOf(graph);
  auto costsOf = [&](size_t edge) { return model.problem.edges[edge].costs.id(); };
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (const OpChoices *choices = model.choices[op].get())
      variables[at(model.variables[op])] =
          once(choices, places.ops[op], [&] { return ofOp(*choices); });
  for (const SharedValue &shared : model.values) {
    const Place place = places.values[at(shared.value)];
    variables[shared.variable] =
        once(shared.states.get(), place, [&] { return ofStates(shared); });
    for (size_t u = 0; u < shared.users.size(); ++u)
      if (std::ranges::any_of(*shared.states, &ValueState::isReadAnew))
        edges[shared.edge + u] = once(costsOf(shared.edge + u), place,
                                      [&] { return ofReading(shared, shared.users[u]); });
  }
  for (const auto &[value, edge] : model.directs)
    edges[edge] = once(costsOf(edge), places.values[at(value)],
                       [&, number = value] { return ofDirect(number); });
  for (const HomeSource &home : model.homes)
    edges[home.edge] = once(costsOf(home.edge), places.values[at(home.value)],
                            [&] { return ofHome(home); });
}

Occupied ModelLoads::converted(int32_t from, int32_t to, int64_t elementBytes) {
  auto [place, added] = conversions.try_emplace({from, to, elementBytes});
  if (added)
    place->second = timing.occupied(from, to, elementBytes);
  return place->second;
}

Occupied ModelLoads::served(int32_t produced, const Service &service,
                            int64_t elementBytes) {
  Occupied sum;
  for (const Service::Entry &entry : service.entries)
    sum += converted(entry.from < 0 ? produced : service.entries[at(entry.from)].form,
                     entry.form, elementBytes);
  return sum;
}

ModelLoads::Table ModelLoads::ofOp(const OpChoices &choices) const {
  Table table;
  for (size_t c = 0; c < choices.size(); ++c) {
    table.rowOf.push_back(static_cast<uint32_t>(c));
    table.entries.push_back(occupiedByKernel(choices.times[c]));
  }
  return table;
}

ModelLoads::Table ModelLoads::ofStates(const SharedValue &shared) {
  const FlowValue &value = graph.values[at(shared.value)];
  Table table;
  for (const ValueState &state : *shared.states) {
    table.rowOf.push_back(static_cast<uint32_t>(table.entries.size()));
    Service service =
        bestService(timing, state.produced, state.copies, value.elementBytes);
    table.entries.push_back(served(state.produced, service, value.elementBytes)
                                .repeated(graph.ops[at(value.producer)].trips));
  }
  return table;
}

/// Of pairs that are forbidden what is written does not matter.
ModelLoads::Table ModelLoads::ofDirect(int32_t number) {
  const FlowValue &value = graph.values[at(number)];
  End user = userOf(graph, model, value.uses[0].op, number);
  Numbers<int32_t> rows;
  Numbers<std::vector<int32_t>> columns;
  Table table;
  for (int32_t form : model.choices[at(value.producer)]->results[at(value.result)])
    table.rowOf.push_back(rows.add(form));
  for (size_t choice = 0; choice < user.choices->size(); ++choice)
    table.columnOf.push_back(columns.add(wantedBy(user, choice)));
  table.columns = columns.keys.size();
  for (int32_t produced : rows.keys)
    for (const std::vector<int32_t> &wanted : columns.keys) {
      Service service = bestServiceOfOp(timing, produced, wanted, value.elementBytes);
      Occupied &entry = table.entries.emplace_back();
      if (!service.possible)
        continue;
      entry = served(produced, service, value.elementBytes);
      if (!service.entries.empty())
        entry += occupiedByKernel(timing.breaking(number, produced, wanted[0]));
      entry = entry.repeated(graph.ops[at(value.producer)].trips);
    }
  return table;
}

/// Pairs that cost nothing find what they want.
ModelLoads::Table ModelLoads::ofReading(const SharedValue &shared, int32_t op) {
  const FlowValue &value = graph.values[at(shared.value)];
  End user = userOf(graph, model, op, shared.value);
  Numbers<std::vector<int32_t>> columns;
  Table table;
  for (size_t choice = 0; choice < user.choices->size(); ++choice)
    table.columnOf.push_back(columns.add(wantedBy(user, choice)));
  table.columns = columns.keys.size();
  for (size_t s = 0; s < shared.states->size(); ++s) {
    const ValueState &state = (*shared.states)[s];
    table.rowOf.push_back(static_cast<uint32_t>(s));
    for (const std::vector<int32_t> &wanted : columns.keys) {
      Occupied &entry = table.entries.emplace_back();
      if (state.isReadAnew && wanted.size() == 1 && wanted[0] != state.produced &&
          !timing.forms[wanted[0]].halo &&
          timing.convert(state.produced, wanted[0], value.elementBytes).possible)
        entry = converted(state.produced, wanted[0], value.elementBytes)
                    .repeated(graph.ops[at(value.producer)].trips);
    }
  }
  return table;
}

ModelLoads::Table ModelLoads::ofHome(const HomeSource &home) {
  const FlowValue &value = graph.values[at(home.value)];
  End user = userOf(graph, model, value.uses[0].op, home.value);
  Numbers<int32_t> columns;
  Table table;
  for (size_t choice = 0; choice < user.choices->size(); ++choice)
    table.columnOf.push_back(columns.add(wantedBy(user, choice).front()));
  table.columns = columns.keys.size();
  const solver::CostTable &costs = model.problem.edges[home.edge].costs;
  for (size_t h = 0; h < home.forms.size(); ++h) {
    table.rowOf.push_back(static_cast<uint32_t>(h));
    std::vector<char> isPossible(table.columns, false);
    for (size_t choice = 0; choice < user.choices->size(); ++choice)
      isPossible[table.columnOf[choice]] =
          costs[h * user.choices->size() + choice] < solver::forbidden;
    for (size_t c = 0; c < table.columns; ++c)
      table.entries.push_back(
          isPossible[c] ? converted(home.forms[h], columns.keys[c], value.elementBytes)
                        : Occupied());
  }
  return table;
}

Loads ModelLoads::of(const std::vector<uint32_t> &answer) const {
  Loads loads;
  for (size_t v = 0; v < variables.size(); ++v)
    if (const Table *table = variables[v].get())
      loads[at(table->place)] += table->at(answer[v], 0);
  for (size_t e = 0; e < edges.size(); ++e)
    if (const Table *table = edges[e].get()) {
      const solver::Edge &edge = model.problem.edges[e];
      loads[at(table->place)] += table->at(answer[edge.first], answer[edge.second]);
    }
  return loads;
}

solver::Problem ModelLoads::weighted(const Multipliers &multipliers,
                                     bool withMemory) const {
  solver::Problem problem = model.problem;
  auto priceOf = [&](const Table &table) {
    std::vector<int64_t> costs;
    for (const Occupied &entry : table.entries)
      costs.push_back(static_cast<int64_t>(multipliers(table.place, entry)));
    return costs;
  };
  std::map<const Table *, std::vector<int64_t>> prices;
  auto pricesOf = [&](const Table &table) -> const std::vector<int64_t> & {
    auto [place, added] = prices.try_emplace(&table);
    if (added)
      place->second = priceOf(table);
    return place->second;
  };
  for (size_t v = 0; v < variables.size(); ++v) {
    if (!withMemory)
      problem.variables[v].usages.clear();
    const Table *table = variables[v].get();
    if (!table)
      continue;
    const std::vector<int64_t> &its = pricesOf(*table);
    std::vector<int64_t> &costs = problem.variables[v].costs;
    for (size_t c = 0; c < costs.size(); ++c)
      if (costs[c] < solver::forbidden)
        costs[c] = its[table->rowOf[c]];
  }
  // Equal layers share their tables, before and behind.
  std::map<const Table *, solver::CostTable> tables;
  for (size_t e = 0; e < edges.size(); ++e) {
    solver::Edge &edge = problem.edges[e];
    if (!withMemory)
      edge.usages.clear();
    const Table *table = edges[e].get();
    if (!table)
      continue;
    auto [place, added] = tables.try_emplace(table, edge.costs);
    if (added) {
      const std::vector<int64_t> &its = pricesOf(*table);
      std::vector<int64_t> &costs = place->second.edit();
      const size_t columns = table->columnOf.size();
      for (size_t i = 0; i < costs.size(); ++i)
        if (costs[i] < solver::forbidden)
          costs[i] = its[table->rowOf[i / columns] * table->columns +
                         table->columnOf[i % columns]];
    }
    edge.costs = place->second;
  }
  if (!withMemory)
    problem.memoryLimit.reset();
  return problem;
}
