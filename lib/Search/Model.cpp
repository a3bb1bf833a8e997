//===- Model.cpp - A program as a pairwise choice problem -----------------===//
#include "partita/Search/Model.h"

#include "Choices.h"
#include "Repeats.h"
#include "Tables.h"
#include "partita/Search/Memory.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

namespace {
class Builder {
public:
  Builder(Timing &timing, const ModelOptions &options)
      : timing(timing), options(options), graph(timing.graph), tables(timing, options),
        memory(options.memoryLimit.has_value()), end(timing.moments()) {
    if (options.anyRecompute)
      repeats.emplace(timing);
    model.problem.memoryLimit = options.memoryLimit;
  }

  Model build(std::vector<std::shared_ptr<const OpChoices>> choices) {
    model.choices = std::move(choices);
    for (const auto &list : model.choices) {
      model.variables.push_back(list ? static_cast<int32_t>(addVariable(list->times))
                                     : -1);
    }
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].producer >= 0 && !graph.values[v].uses.empty())
        addValue(static_cast<int32_t>(v));
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].kind == FlowKind::State && graph.ops[op].tied >= 0)
        addTie({static_cast<int32_t>(op)}, {graph.ops[op].tied});
    for (const FlowTie &tie : graph.ties)
      for (size_t i = 1; i < tie.members.size(); ++i)
        addTie(tie.members[0], tie.members[i]);
    if (model.problem.memoryLimit)
      *model.problem.memoryLimit =
          std::max<int64_t>(0, *model.problem.memoryLimit - model.fixedBytes);
    return std::move(model);
  }

private:
  uint32_t addVariable(std::vector<int64_t> costs) {
    model.problem.variables.push_back({std::move(costs), {}});
    return static_cast<uint32_t>(model.problem.variables.size()) - 1;
  }
  void addEdge(uint32_t first, uint32_t second, const solver::CostTable &costs) {
    if (!costs.empty())
      model.problem.edges.push_back({first, second, costs, {}});
  }
  void use(uint32_t variable, int64_t from, int64_t to, solver::CostTable bytes) {
    if (memory && from < to)
      model.problem.variables[variable].usages.push_back({from, to, std::move(bytes)});
  }
  uint32_t variableOf(int32_t op) const {
    return static_cast<uint32_t>(model.variables[static_cast<size_t>(op)]);
  }
  const OpChoices *choicesOf(int32_t op) const {
    return model.choices[static_cast<size_t>(op)].get();
  }

  /// With `anyRecompute`: whether the backward pass reads a value that may be made anew.
  bool isReadAgain(const FlowValue &value, const FlowUse &use) const {
    return repeats && timing.mayBeRepeated(numberOf(value)) &&
           isReadByBackward(graph, use, repeats->turn);
  }
  /// Whether nothing is counted of that: no other op reads the value.
  bool isFoundAnyway(const FlowValue &value, const FlowUse &use) const {
    return isReadAgain(value, use) &&
           (!repeats->isNeeded(value.producer) || value.uses.size() == 1);
  }

  /// The users of a value, each op once with all operands that are the value.
  std::vector<std::pair<int32_t, End>> usersOf(const FlowValue &value) const {
    std::vector<std::pair<int32_t, End>> users;
    for (const FlowUse &use : value.uses) {
      if (isFoundAnyway(value, use))
        continue;
      auto same = std::find_if(users.begin(), users.end(),
                               [&](const auto &u) { return u.first == use.op; });
      if (same == users.end())
        same = users.insert(users.end(), {use.op, End{choicesOf(use.op), {}}});
      same->second.places.push_back(use.operand);
    }
    return users;
  }

  void addValue(int32_t number) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    auto users = usersOf(value);
    if (graph.ops[static_cast<size_t>(value.producer)].kind == FlowKind::Source)
      return addSource(number, value, users);
    if (users.empty())
      return;
    End producer{choicesOf(value.producer), {value.result}};
    if (repeats && timing.mayBeRepeated(number) && repeats->isNeeded(value.producer) &&
        users.size() > 1)
      addRepeatable(number, producer, users);
    else if (users.size() == 1)
      addDirect(number, producer, users[0]);
    else
      addShared(number, producer, users);
  }

  /// The form of what an end's choices have, or of one row of it.
  std::vector<int32_t> formsOf(const FlowTie::Member &end) {
    const OpChoices &choices = *choicesOf(end.op);
    std::vector<int32_t> forms =
        choices.results.empty() ? choices.operands[0] : choices.results[0];
    for (int32_t &form : forms)
      if (end.hasRows) {
        Layout row = timing.forms[form].layout;
        row.dims.erase(row.dims.begin());
        form = timing.forms.add(std::move(row));
      }
    return forms;
  }

  /// Two ends have one layout: a state goes out in that in which it came in.
  void addTie(const FlowTie::Member &first, const FlowTie::Member &second) {
    std::vector<int64_t> costs;
    std::vector<int32_t> other = formsOf(second);
    for (int32_t one : formsOf(first))
      for (int32_t two : other)
        costs.push_back(one == two ? 0 : solver::forbidden);
    addEdge(variableOf(first.op), variableOf(second.op), pool.add(std::move(costs)));
  }

  void addDirect(int32_t number, const End &producer,
                 const std::pair<int32_t, End> &user) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const DirectTable &table = tables.direct(number, producer, user.second);
    addEdge(variableOf(value.producer), variableOf(user.first), table.costs);
    model.directs.emplace_back(number, model.problem.edges.size() - 1);
    if (!memory || hasNoBytesAgain(value))
      return;
    auto &usages = model.problem.edges.back().usages;
    int64_t made = timing.bornAt(value.producer),
            converted = Timing::convertsAt(value.producer),
            done = timing.doneAt(user.first);
    if (isState(value)) {
      int64_t runs = std::max(Timing::runsAt(user.first), converted + 1);
      if (!timing.liesElsewhere(number))
        usages.push_back({made, done, table.making});
      if (!options.anyRecompute)
        usages.push_back({runs - 1, runs, table.besideConverting});
      if (runs < done)
        usages.push_back({runs, done, table.besideWaiting});
      return;
    }
    usages.push_back({made, converted, table.making});
    usages.push_back({converted, converted + 1, table.converting});
    if (converted + 1 < done)
      usages.push_back({converted + 1, done, table.waiting});
  }

  void addShared(int32_t number, const End &producer,
                 const std::vector<std::pair<int32_t, End>> &users) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    std::vector<End> ends;
    int64_t converted = Timing::convertsAt(value.producer), last = converted + 1;
    for (const auto &[op, user] : users) {
      ends.push_back(user);
      last = std::max(last, timing.doneAt(op));
    }
    const SharedTable &table = tables.shared(number, producer, ends);
    SharedValue shared{number, addVariable(table.times), table.states};
    addEdge(variableOf(value.producer), shared.variable, table.producer);
    shared.edge = model.problem.edges.size();
    for (size_t u = 0; u < users.size(); ++u) {
      shared.users.push_back(users[u].first);
      addEdge(shared.variable, variableOf(users[u].first), table.users[u]);
      if (options.anyRecompute)
        addFound(value, users[u], table.states);
      else
        addReading(converted, users[u].first, table.readings[u]);
    }
    if (options.anyRecompute) {
      addLeast(shared.variable, value, last, table);
    } else if (isState(value)) {
      int64_t first = last;
      for (const auto &[op, user] : users)
        first = std::min(first, Timing::runsAt(op) - 1);
      if (!timing.liesElsewhere(number))
        use(shared.variable, timing.bornAt(value.producer), last, table.making);
      use(shared.variable, std::max(first, converted), last, table.copies);
    } else {
      use(shared.variable, converted - 1, converted, table.making);
      use(shared.variable, converted, last, table.all);
    }
    model.values.push_back(std::move(shared));
  }

  /// With `anyRecompute`: a value that is kept to its last reader, from where it is
  /// needed first, or whose op runs twice.
  void addRepeatable(int32_t number, const End &producer,
                     const std::vector<std::pair<int32_t, End>> &users) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const FlowOp &op = graph.ops[static_cast<size_t>(value.producer)];
    std::vector<End> ends;
    int64_t last = 0;
    for (const auto &[user, end] : users) {
      ends.push_back(end);
      last = std::max(last, timing.doneAt(user));
    }
    const SharedTable &table = tables.shared(number, producer, ends);
    const size_t states = table.times.size();
    Picos again = 0;
    if (repeats->isFirstRepeated(op, static_cast<size_t>(value.result)))
      again = repeats->again(value.producer, model.choices);
    SharedValue shared{number, addVariable(Repeats::times(table, again)), table.states};
    addEdge(variableOf(value.producer), shared.variable,
            repeats->producer(table.producer, states));
    for (size_t u = 0; u < users.size(); ++u)
      addEdge(shared.variable, variableOf(users[u].first),
              repeats->user(table.users[u], users[u].first >= repeats->turn));
    std::vector<int64_t> kept = leastBytes(timing, table, value.elementBytes);
    kept.resize(2 * states, 0);
    use(shared.variable, Timing::runsAt(repeats->neededAt(value.producer)), last,
        pool.add(std::move(kept)));
    model.values.push_back(std::move(shared));
  }

  /// With `anyRecompute`, the bytes of a shared value in any step: of a state its home,
  /// of another one whichever of its forms is the smallest, as one of them is there.
  void addLeast(uint32_t variable, const FlowValue &value, int64_t last,
                const SharedTable &table) {
    const int64_t born = timing.bornAt(value.producer);
    if (isState(value)) {
      if (!timing.liesElsewhere(numberOf(value)))
        use(variable, born, last, table.making);
      return;
    }
    if (hasNoBytesAgain(value))
      return;
    use(variable, Timing::convertsAt(value.producer), last,
        pool.add(leastBytes(timing, table, value.elementBytes)));
  }
  /// With `anyRecompute`, what a user of a state, by the last edge, finds beside its home
  /// while it runs. Users may share it, but do not run at the same time; a loop that
  /// reads it has it to its end.
  void addFound(const FlowValue &value, const std::pair<int32_t, End> &user,
                const std::shared_ptr<const std::vector<ValueState>> &states) {
    if (!memory || !isState(value) || timing.isView(user.first))
      return;
    auto isSink = [&](int32_t op) {
      return graph.ops[static_cast<size_t>(op)].kind == FlowKind::Sink;
    };
    int64_t runs = Timing::runsAt(user.first), done = runs + 1;
    if (isSink(user.first)) {
      auto first = std::ranges::find_if(value.uses, isSink, &FlowUse::op);
      if (first->op != user.first)
        return;
      done = timing.doneAt(user.first);
    }
    solver::CostTable &bytes = found[{states.get(), user.second, value.elementBytes}];
    if (bytes.empty()) {
      std::vector<int64_t> table;
      for (const ValueState &state : *states)
        for (size_t choice = 0; choice < user.second.choices->size(); ++choice) {
          table.push_back(0);
          for (int32_t form : wantedBy(user.second, choice))
            if (form != state.produced)
              table.back() += timing.localBytes(form, value.elementBytes);
        }
      bytes = pool.add(std::move(table));
    }
    if (runs < done)
      model.problem.edges.back().usages.push_back({runs, done, bytes});
  }
  int32_t numberOf(const FlowValue &value) const {
    return graph.ops[static_cast<size_t>(value.producer)]
        .results[static_cast<size_t>(value.result)];
  }
  /// With `anyRecompute`, what the forward pass makes counts nothing but where it is
  /// kept.
  bool hasNoBytesAgain(const FlowValue &value) const {
    return repeats && isForwardOp(graph, value.producer, repeats->turn);
  }

  /// What lies from run to run; it is converted where it is used.
  bool isState(const FlowValue &value) const {
    return graph.ops[static_cast<size_t>(value.producer)].kind == FlowKind::State;
  }

  /// What a user of a state, by the last edge, gathers for itself.
  void addReading(int64_t converted, int32_t user, const ReadingTable &table) {
    if (!memory || table.gathered.empty())
      return;
    int64_t runs = std::max(Timing::runsAt(user), converted + 1),
            done = timing.doneAt(user);
    auto &usages = model.problem.edges.back().usages;
    usages.push_back({runs - 1, runs, table.converting});
    if (runs < done)
      usages.push_back({runs, done, table.gathered});
  }

  void addSource(int32_t number, const FlowValue &value,
                 const std::vector<std::pair<int32_t, End>> &users) {
    if (!memory || graph.ops[static_cast<size_t>(value.producer)].isUniform)
      return;
    if (value.bytes() < options.smallSource) {
      model.fixedBytes += value.bytes();
      return;
    }
    auto bytesOf = [&](int32_t form) {
      const Layout &layout = timing.forms[form].layout;
      return layout.localElements() * value.elementBytes;
    };
    if (users.size() == 1 && canGather(value, users[0]))
      return addHome(number, value, users[0]);
    if (users.size() == 1) {
      std::vector<int64_t> bytes;
      for (size_t choice = 0; choice < users[0].second.choices->size(); ++choice) {
        bytes.push_back(0);
        for (int32_t form : wantedBy(users[0].second, choice))
          bytes.back() += bytesOf(form);
      }
      return use(variableOf(users[0].first), 0, end, pool.add(std::move(bytes)));
    }
    SharedSource shared{number, {}, {}};
    for (const auto &[op, user] : users)
      for (size_t choice = 0; choice < user.choices->size(); ++choice)
        for (int32_t form : wantedBy(user, choice))
          if (std::find(shared.forms.begin(), shared.forms.end(), form) ==
              shared.forms.end())
            shared.forms.push_back(form);
    for (int32_t form : shared.forms) {
      uint32_t copy = addVariable({0, 0});
      shared.copies.push_back(copy);
      use(copy, 0, end, pool.add({0, bytesOf(form)}));
      for (const auto &[op, user] : users)
        addWish(copy, variableOf(op), user, form);
    }
    model.sources.push_back(std::move(shared));
  }

  /// A view reads under another name for as long as its own users do.
  bool canGather(const FlowValue &value, const std::pair<int32_t, End> &user) const {
    return value.bytes() >= options.leastGathered && user.second.places.size() == 1 &&
           !timing.isView(user.first) &&
           graph.ops[static_cast<size_t>(user.first)].kind == FlowKind::Compute;
  }

  void addHome(int32_t number, const FlowValue &value,
               const std::pair<int32_t, End> &user) {
    const HomeTable &table = tables.home(user.second, value.elementBytes);
    HomeSource home{number, addVariable(std::vector<int64_t>(table.forms.size(), 0)),
                    model.problem.edges.size(), table.forms};
    use(home.variable, 0, end, table.kept);
    addEdge(home.variable, variableOf(user.first), table.costs);
    model.homes.push_back(home);
    if (options.anyRecompute)
      return;
    auto &usages = model.problem.edges.back().usages;
    int64_t runs = Timing::runsAt(user.first);
    if (runs > 0)
      usages.push_back({runs - 1, runs, table.converting});
    usages.push_back({runs, timing.doneAt(user.first), table.gathered});
  }

  /// A user that wants the form of a source needs it.
  void addWish(uint32_t copy, uint32_t variable, const End &user, int32_t form) {
    std::vector<int64_t> costs(2 * user.choices->size(), 0);
    bool any = false;
    for (size_t choice = 0; choice < user.choices->size(); ++choice) {
      std::vector<int32_t> forms = wantedBy(user, choice);
      if (std::find(forms.begin(), forms.end(), form) == forms.end())
        continue;
      costs[choice] = solver::forbidden;
      any = true;
    }
    if (any)
      addEdge(copy, variable, pool.add(std::move(costs)));
  }

  Timing &timing;
  const ModelOptions &options;
  const FlowGraph &graph;
  Tables tables;
  solver::TablePool pool;
  std::map<std::tuple<const void *, End, int64_t>, solver::CostTable> found;
  bool memory;
  int64_t end;
  std::optional<Repeats> repeats; ///< with `anyRecompute`
  Model model;
};
} // namespace

Expected<Model> search::buildModel(Timing &timing, const ModelOptions &options) {
  auto choices = choicesOf(timing, options.pins);
  if (!choices)
    return tl::unexpected(choices.error());
  return Builder(timing, options).build(std::move(*choices));
}
