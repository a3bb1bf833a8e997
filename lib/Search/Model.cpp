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
        parts(model.problem, options.memoryLimit.has_value()), end(timing.moments()) {
    model.problem.memoryLimit = options.memoryLimit;
  }

  Expected<Model> build(std::vector<std::shared_ptr<const OpChoices>> choices) {
    model.choices = std::move(choices);
    if (options.anyRecompute)
      repeats.emplace(timing, tables, parts, model, options);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      model.variables.push_back(
          model.choices[op] ? static_cast<int32_t>(parts.addVariable(costsOf(op))) : -1);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (options.stop.isRaised()) // tables of many axes take seconds
        return makeError("cancelled");
      if (graph.values[v].producer >= 0 && !graph.values[v].uses.empty())
        addValue(static_cast<int32_t>(v));
    }
    if (repeats)
      repeats->joinNodes();
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].kind == FlowKind::State && graph.ops[op].tied >= 0)
        addTie({static_cast<int32_t>(op)}, {graph.ops[op].tied});
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].repeats >= 0)
        if (auto ok = addRepetition(static_cast<int32_t>(op)); !ok)
          return tl::unexpected(ok.error());
    for (const FlowTie &tie : graph.ties)
      for (size_t i = 1; i < tie.members.size(); ++i)
        addTie(tie.members[0], tie.members[i]);
    keepOthers();
    if (model.problem.memoryLimit)
      *model.problem.memoryLimit =
          std::max<int64_t>(0, *model.problem.memoryLimit - model.fixedBytes);
    return std::move(model);
  }

private:
  /// Counts all the time what is kept of other micro-batches than the one that runs.
  /// Least rows do not know of it, so that no plan needs less than they say.
  void keepOthers() {
    if (graph.keptMicroBatches == 1 || options.rows == Rows::Least || !parts.memory)
      return;
    const int32_t turn = turnOf(graph);
    auto keep = [&](std::vector<solver::Usage> &usages) {
      for (size_t u = 0, count = usages.size(); u < count; ++u) {
        const solver::Usage usage = usages[u];
        if (usage.begin >= Timing::runsAt(turn) || usage.end <= Timing::runsAt(turn) ||
            !isForwardOp(graph, static_cast<int32_t>(usage.begin / 2), turn))
          continue;
        std::vector<int64_t> bytes(usage.bytes.begin(), usage.bytes.end());
        for (int64_t &it : bytes)
          it *= graph.keptMicroBatches - 1;
        usages.push_back({0, end, parts.pool.add(std::move(bytes))});
      }
    };
    for (auto &variable : model.problem.variables)
      keep(variable.usages);
    for (auto &edge : model.problem.edges)
      keep(edge.usages);
  }

  std::vector<int64_t> costsOf(size_t op) const {
    return repeats && repeats->mayRepeat(static_cast<int32_t>(op))
               ? repeats->costsOf(static_cast<int32_t>(op))
               : model.choices[op]->times;
  }
  /// A table by what uses a value, for the variable of the user.
  const solver::CostTable &forUser(int32_t op, const solver::CostTable &table) {
    return repeats ? repeats->forUser(op, table) : table;
  }
  uint32_t variableOf(int32_t op) const {
    return static_cast<uint32_t>(model.variables[static_cast<size_t>(op)]);
  }
  const OpChoices *choicesOf(int32_t op) const {
    return model.choices[static_cast<size_t>(op)].get();
  }

  /// The users of a value, each op once with all operands that are the value.
  std::vector<std::pair<int32_t, End>> usersOf(const FlowValue &value) const {
    std::vector<std::pair<int32_t, End>> users;
    for (const FlowUse &use : value.uses) {
      if (isBound() && repeats->isFoundAnyway(value.producer, use))
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
    if (repeats && repeats->mayRepeat(value.producer))
      repeats->add(number, producer, users);
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
    parts.addEdge(variableOf(first.op), variableOf(second.op),
                  parts.pool.add(std::move(costs)));
  }

  /// What is computed again is so by the strategy of the first time. An error if pins
  /// leave the two no strategy in common.
  Expected<void> addRepetition(int32_t op) {
    const int32_t original = graph.ops[static_cast<size_t>(op)].repeats;
    const OpChoices &first = *choicesOf(original), &again = *choicesOf(op);
    std::vector<int64_t> costs(first.size() * again.size(), solver::forbidden);
    bool any = false;
    for (size_t one = 0; one < first.size(); ++one) {
      for (size_t two = 0; two < again.size(); ++two)
        if (haveEqualForms(first, one, again, two)) {
          costs[one * again.size() + two] = 0;
          any = true;
        }
    }
    if (!any)
      return makeError("hints give '" + graph.ops[static_cast<size_t>(op)].name +
                       "' another strategy than '" +
                       graph.ops[static_cast<size_t>(original)].name +
                       "' has, by which it is computed again");
    parts.addEdge(variableOf(original), variableOf(op), parts.pool.add(std::move(costs)));
    return {};
  }
  static bool haveEqualForms(const OpChoices &first, size_t one, const OpChoices &again,
                             size_t two) {
    auto areEqual = [&](const std::vector<std::vector<int32_t>> &a,
                        const std::vector<std::vector<int32_t>> &b) {
      return std::ranges::equal(
          a, b, [&](const auto &x, const auto &y) { return x[one] == y[two]; });
    };
    return areEqual(first.operands, again.operands) &&
           areEqual(first.results, again.results);
  }

  void addDirect(int32_t number, const End &producer,
                 const std::pair<int32_t, End> &user) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const DirectTable &table = tables.direct(number, producer, user.second);
    parts.addEdge(variableOf(value.producer), variableOf(user.first),
                  forUser(user.first, table.costs));
    model.directs.emplace_back(number, model.problem.edges.size() - 1);
    if (!parts.memory || hasNoBytesAgain(value))
      return;
    auto &usages = model.problem.edges.back().usages;
    int64_t made = timing.bornAt(value.producer),
            converted = Timing::convertsAt(value.producer),
            done = timing.doneAt(user.first);
    if (isState(value)) {
      int64_t runs = std::max(Timing::runsAt(user.first), converted + 1);
      const bool hasPlace = !timing.liesElsewhere(number),
                 staysAnyway = options.rows == Rows::Most;
      if (hasPlace)
        usages.push_back(
            {made, staysAnyway ? done : runs, forUser(user.first, table.making)});
      if (!isBound())
        usages.push_back({runs - 1, runs, forUser(user.first, table.besideConverting)});
      if (runs < done)
        usages.push_back(
            {runs, done,
             forUser(user.first,
                     hasPlace && !staysAnyway ? table.waiting : table.besideWaiting)});
      return;
    }
    usages.push_back({made, converted, forUser(user.first, table.making)});
    usages.push_back({converted, converted + 1, forUser(user.first, table.converting)});
    if (converted + 1 < done)
      usages.push_back({converted + 1, done, forUser(user.first, table.waiting)});
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
    SharedValue shared{number, parts.addVariable(table.times), table.states};
    parts.addEdge(variableOf(value.producer), shared.variable, table.producer);
    shared.edge = model.problem.edges.size();
    for (size_t u = 0; u < users.size(); ++u) {
      shared.users.push_back(users[u].first);
      const int32_t user = users[u].first;
      // What reads a state again may gather it again.
      parts.addEdge(shared.variable, variableOf(user),
                    repeats && isState(value) ? repeats->forReader(user, table.users[u])
                                              : forUser(user, table.users[u]));
      if (isBound())
        addFound(value, users[u], table.states);
      else if (options.rows == Rows::Most)
        addReading(converted, user, table.readings[u]);
    }
    if (isBound()) {
      addLeast(shared.variable, value, last, table);
    } else if (options.rows == Rows::Least) {
      addCertain(shared, value, users, table);
    } else if (isState(value)) {
      int64_t first = last;
      for (const auto &[op, user] : users)
        first = std::min(first, Timing::runsAt(op) - 1);
      if (!timing.liesElsewhere(number))
        parts.use(shared.variable, timing.bornAt(value.producer), last, table.making);
      parts.use(shared.variable, std::max(first, converted), last, table.copies);
    } else {
      parts.use(shared.variable, converted - 1, converted, table.making);
      parts.use(shared.variable, converted, last, table.all);
    }
    model.values.push_back(std::move(shared));
  }

  /// Bytes that are there whoever reads which copy: the value as it is made, and from
  /// then on the form of its last user. A state lies in its home until the first user
  /// runs, and to the last one where that wants it so; each user has its form while it
  /// runs.
  void addCertain(const SharedValue &shared, const FlowValue &value,
                  const std::vector<std::pair<int32_t, End>> &users,
                  const SharedTable &table) {
    if (!parts.memory)
      return;
    const bool hasPlace = !timing.liesElsewhere(shared.value) &&
                          (isState(value) || !timing.hasNoBytes(shared.value));
    auto doneAt = [&](const auto &user) { return timing.doneAt(user.first); };
    const auto last = std::ranges::max_element(users, {}, doneAt);
    int64_t from = Timing::convertsAt(value.producer);
    if (isState(value)) {
      from = doneAt(*last);
      for (const auto &user : users)
        from = std::min(from, Timing::runsAt(user.first));
    }
    if (hasPlace)
      parts.use(shared.variable, timing.bornAt(value.producer), from, table.making);
    auto use = [&](const auto &user, int64_t begin, int64_t end,
                   solver::CostTable bytes) {
      if (begin < end)
        model.problem.edges[shared.edge + static_cast<size_t>(&user - users.data())]
            .usages.push_back({begin, end, std::move(bytes)});
    };
    auto bytesOf = [&](const auto &user, bool ofProduced, bool ofCopies) {
      return wantedBytes(table.states, user.second, value.elementBytes, ofProduced,
                         ofCopies);
    };
    use(*last, from, doneAt(*last), bytesOf(*last, hasPlace, !isState(value)));
    if (!isState(value))
      return;
    for (const auto &user : users)
      if (!timing.isView(user.first))
        use(user, Timing::runsAt(user.first), Timing::runsAt(user.first) + 1,
            bytesOf(user, false, true));
  }

  /// Bytes of the forms that a user of a value wants, [state][choice]: of the produced
  /// one, of others, or of all.
  const solver::CostTable &
  wantedBytes(const std::shared_ptr<const std::vector<ValueState>> &states,
              const End &user, int64_t elementBytes, bool ofProduced, bool ofCopies) {
    solver::CostTable &bytes =
        wanted[{states.get(), user, elementBytes, 2 * ofProduced + ofCopies}];
    if (!bytes.empty())
      return bytes;
    std::vector<int64_t> table;
    for (const ValueState &state : *states)
      for (size_t choice = 0; choice < user.choices->size(); ++choice) {
        table.push_back(0);
        for (int32_t form : wantedBy(user, choice))
          if (form == state.produced ? ofProduced : ofCopies)
            table.back() += timing.localBytes(form, elementBytes);
      }
    return bytes = parts.pool.add(std::move(table));
  }

  /// Adds, of a bound, the bytes of a shared value in any step: of a state its home,
  /// of another one whichever of its forms is the smallest, as one of them is there.
  void addLeast(uint32_t variable, const FlowValue &value, int64_t last,
                const SharedTable &table) {
    const int64_t born = timing.bornAt(value.producer);
    if (isState(value)) {
      if (!timing.liesElsewhere(numberOf(value)))
        parts.use(variable, born, last, table.making);
      return;
    }
    if (hasNoBytesAgain(value))
      return;
    parts.use(variable, Timing::convertsAt(value.producer), last,
              parts.pool.add(leastBytes(timing, table, value.elementBytes)));
  }
  /// Adds, of a bound, what a user of a state, by the last edge, finds beside its home
  /// while it runs. Users may share it, but do not run at the same time; a loop that
  /// reads it has it to its end.
  void addFound(const FlowValue &value, const std::pair<int32_t, End> &user,
                const std::shared_ptr<const std::vector<ValueState>> &states) {
    if (!parts.memory || !isState(value) || timing.isView(user.first))
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
    parts.useByPair(runs, done,
                    forUser(user.first, wantedBytes(states, user.second,
                                                    value.elementBytes, false, true)));
  }
  int32_t numberOf(const FlowValue &value) const {
    return graph.ops[static_cast<size_t>(value.producer)]
        .results[static_cast<size_t>(value.result)];
  }
  /// Says, of a bound, that what the forward pass makes counts where it is kept only.
  bool hasNoBytesAgain(const FlowValue &value) const {
    return isBound() && repeats->isForward(value.producer);
  }
  /// Says whether no step, whatever it computes again, takes less than an answer says.
  bool isBound() const { return options.anyRecompute && options.rows == Rows::Least; }

  /// What lies from run to run; it is converted where it is used.
  bool isState(const FlowValue &value) const {
    return graph.ops[static_cast<size_t>(value.producer)].kind == FlowKind::State;
  }

  /// What a user of a state, by the last edge, gathers for itself.
  void addReading(int64_t converted, int32_t user, const ReadingTable &table) {
    if (!parts.memory || table.gathered.empty())
      return;
    int64_t runs = std::max(Timing::runsAt(user), converted + 1),
            done = timing.doneAt(user);
    auto &usages = model.problem.edges.back().usages;
    usages.push_back({runs - 1, runs, forUser(user, table.converting)});
    if (runs < done)
      usages.push_back({runs, done, forUser(user, table.gathered)});
  }

  void addSource(int32_t number, const FlowValue &value,
                 const std::vector<std::pair<int32_t, End>> &users) {
    if (!parts.memory || graph.ops[static_cast<size_t>(value.producer)].isUniform())
      return;
    if (value.bytes() < options.smallSource) {
      model.fixedBytes += options.rows == Rows::Most ? value.bytes() : 0;
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
      return parts.use(variableOf(users[0].first), 0, end,
                       forUser(users[0].first, parts.pool.add(std::move(bytes))));
    }
    SharedSource shared{number, {}, {}};
    for (const auto &[op, user] : users)
      for (size_t choice = 0; choice < user.choices->size(); ++choice)
        for (int32_t form : wantedBy(user, choice))
          if (std::find(shared.forms.begin(), shared.forms.end(), form) ==
              shared.forms.end())
            shared.forms.push_back(form);
    for (int32_t form : shared.forms) {
      uint32_t copy = parts.addVariable({0, 0});
      shared.copies.push_back(copy);
      parts.use(copy, 0, end, parts.pool.add({0, bytesOf(form)}));
      for (const auto &[op, user] : users)
        addWish(copy, op, user, form);
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
    HomeSource home{number,
                    parts.addVariable(std::vector<int64_t>(table.forms.size(), 0)),
                    model.problem.edges.size(), table.forms};
    parts.use(home.variable, 0, end, table.kept);
    parts.addEdge(home.variable, variableOf(user.first),
                  forUser(user.first, table.costs));
    model.homes.push_back(home);
    if (isBound())
      return;
    auto &usages = model.problem.edges.back().usages;
    int64_t runs = Timing::runsAt(user.first);
    if (runs > 0)
      usages.push_back(
          {runs - 1, runs,
           forUser(user.first,
                   options.rows == Rows::Most ? table.converting : table.gathered)});
    usages.push_back(
        {runs, timing.doneAt(user.first), forUser(user.first, table.gathered)});
  }

  /// A user that wants the form of a source needs it.
  void addWish(uint32_t copy, int32_t op, const End &user, int32_t form) {
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
      parts.addEdge(copy, variableOf(op), forUser(op, parts.pool.add(std::move(costs))));
  }

  Timing &timing;
  const ModelOptions &options;
  const FlowGraph &graph;
  Tables tables;
  Model model;
  ProblemParts parts;
  std::map<std::tuple<const void *, End, int64_t, int>, solver::CostTable> wanted;
  int64_t end;
  std::optional<Repeats> repeats; ///< with `anyRecompute`
};
} // namespace

Expected<Model> search::buildModel(Timing &timing, const ModelOptions &options) {
  auto choices = choicesOf(timing, options.pins, options.given);
  if (!choices)
    return tl::unexpected(choices.error());
  return Builder(timing, options).build(std::move(*choices));
}
