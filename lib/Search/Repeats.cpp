//===- Repeats.cpp - What the backward pass may compute again -------------===//
#include "Repeats.h"

#include "partita/Cost/Compute.h"
#include "partita/Search/Memory.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

static size_t at(int32_t number) { return static_cast<size_t>(number); }

/// What a table that follows from another one is of.
enum Kind : int {
  User,          ///< … – op
  PayingUser,    ///< … – op
  Ways,          ///< op – op
  WayBytes,      ///< of an op
  Produced,      ///< op – value that no gradient reads
  ProducedTwice, ///< op – value
  ForwardReader, ///< value – op
  SplitBytes,    ///< value – op
  Gradient,      ///< value – op
  MoreKept,      ///< value – op, bytes
  MoreRepeated,  ///< value – op, bytes
  KeptBytes,     ///< of a value
  RepeatedBytes, ///< of a value
  Making,        ///< op – op, bytes
  Converting,    ///< op – op, bytes
  Waiting,       ///< op – op, bytes
  numKinds
};

/// Per op the first backward op before which it has to run, as that needs what it leads
/// to; the number of ops if there is none.
static std::vector<int32_t> neededBy(const FlowGraph &graph, int32_t turn) {
  const auto none = static_cast<int32_t>(graph.ops.size());
  std::vector<int32_t> needed(graph.ops.size(), none), open;
  for (auto reader = turn; reader < none; ++reader) {
    open.assign(1, reader);
    while (!open.empty()) {
      const FlowOp &op = graph.ops[at(open.back())];
      open.pop_back();
      for (int32_t value : op.operands) {
        int32_t producer = graph.values[at(value)].producer;
        if (producer < 0 || !isForwardOp(graph, producer, turn) ||
            needed[at(producer)] != none)
          continue;
        needed[at(producer)] = reader;
        open.push_back(producer);
      }
    }
  }
  return needed;
}

/// Per op whether all of the forward pass goes through what it makes, but for what most
/// of the model reads (a mask): the sums of a residual stream.
static std::vector<char> necksOf(const FlowGraph &graph, int32_t turn) {
  std::vector<int32_t> last(at(turn), -1), change(at(turn) + 2, 0);
  for (int32_t op = 0; op < turn; ++op) {
    if (!isForwardOp(graph, op, turn))
      continue;
    for (int32_t value : graph.ops[at(op)].results)
      for (const FlowUse &use : graph.values[at(value)].uses)
        if (isForwardOp(graph, use.op, turn))
          last[at(op)] = std::max(last[at(op)], use.op);
    if (2 * (last[at(op)] - op) > turn)
      last[at(op)] = -1;
    if (last[at(op)] > op) {
      ++change[at(op) + 1];
      --change[at(last[at(op)]) + 1];
    }
  }
  std::vector<int32_t> alone(at(turn) + 2, 0); // places in front with one such value
  for (int32_t place = 0, open = 0; place <= turn; ++place) {
    open += change[at(place)];
    alone[at(place) + 1] = alone[at(place)] + (open == 1);
  }
  std::vector<char> isNeck(graph.ops.size(), false);
  for (int32_t op = 0; op < turn; ++op)
    isNeck[at(op)] = last[at(op)] > op && alone[at(last[at(op)]) + 1] > alone[at(op) + 1];
  return isNeck;
}

/// Births of an op at most: a bit per pair of them is the order of two ops' births.
static constexpr size_t mostBirths = 3;

/// Per op the backward ops before which it may run again, the latest first; none if it is
/// never needed, or a neck, unless those run again, too. It has to be there for the first
/// gradient that reads its result, and for what runs again and reads the result: the
/// births of such readers are births of the op, of many the latest; of one the earliest.
/// An op could be needed by any later one where necks run again: of a chain of gradients'
/// operands only the next one is followed then.
///
///     h = x w     read by gradient 95, and by g     births 95, 90
///     g = f(h)    read by gradient 90               births 90
static std::vector<std::vector<int32_t>> birthsOf(const FlowGraph &graph, int32_t turn,
                                                  bool repeatsNecks, size_t most) {
  const auto none = static_cast<int32_t>(graph.ops.size());
  const std::vector<char> isNeck = necksOf(graph, turn);
  std::vector<std::vector<int32_t>> births(graph.ops.size());
  std::vector<int32_t> direct(graph.ops.size(), none);
  for (int32_t op = turn; op-- > 0;) {
    if (!isForwardOp(graph, op, turn) || (isNeck[at(op)] && !repeatsNecks))
      continue;
    std::vector<int32_t> &its = births[at(op)];
    for (int32_t value : graph.ops[at(op)].results)
      for (const FlowUse &use : graph.values[at(value)].uses) {
        const std::vector<int32_t> &others = births[at(use.op)];
        if (isReadByBackward(graph, use, turn))
          direct[at(op)] = std::min(direct[at(op)], use.op);
        else if (repeatsNecks && direct[at(use.op)] < none)
          its.push_back(direct[at(use.op)]);
        else
          its.insert(its.end(), others.begin(), others.end());
      }
    if (direct[at(op)] < none) {
      std::erase_if(its, [&](int32_t birth) { return birth > direct[at(op)]; });
      its.push_back(direct[at(op)]);
    }
    std::ranges::sort(its, std::greater());
    its.erase(std::unique(its.begin(), its.end()), its.end());
    // A single birth is one at which whatever may need the op finds it.
    if (its.size() > most)
      its = most == 1 ? std::vector(1, its.back())
                      : std::vector(its.begin(), its.begin() + mostBirths);
  }
  return births;
}

/// Says whether a gradient alone reads what the op makes. It may share a kernel with the
/// op, which would run later rather than again.
static bool isForOneGradient(const FlowGraph &graph, const FlowOp &op, int32_t turn) {
  const std::vector<FlowUse> &uses = graph.values[at(op.results[0])].uses;
  return uses.size() == 1 && isReadByBackward(graph, uses[0], turn);
}

Repeats::Repeats(Timing &timing, Tables &tables, ProblemParts &parts, Model &model,
                 const ModelOptions &options)
    : timing(timing), graph(timing.graph), tables(tables), parts(parts), model(model),
      rows(options.rows), choosesBirths(!isBound() && options.choosesBirths),
      turn(turnOf(graph)), needed(neededBy(graph, turn)) {
  const size_t most = choosesBirths ? mostBirths : 1;
  if (!isBound())
    births = birthsOf(graph, turn, options.repeatsNecks, most);
  findRepeatable();
  // Each op of a chain is a neck.
  if (!isBound() && std::ranges::count(isRepeatable, true) == 0) {
    births = birthsOf(graph, turn, true, most);
    findRepeatable();
  }
  findWays();
}

void Repeats::findRepeatable() {
  const auto none = static_cast<int32_t>(graph.ops.size());
  isRepeatable.clear();
  for (size_t op = 0; op < graph.ops.size(); ++op)
    isRepeatable.push_back((isBound() ? needed[op] < none : !births[op].empty()) &&
                           graph.ops[op].results.size() == 1 &&
                           (isBound() || !isForOneGradient(graph, graph.ops[op], turn)));
  if (isBound())
    return;
  // A choice names nodes.
  std::unordered_map<std::string_view, std::vector<int32_t>> ofNode;
  for (int32_t op = 0; op < turn; ++op)
    if (isForwardOp(graph, op, turn) && needed[at(op)] < none)
      ofNode[graph.ops[at(op)].name].push_back(op);
  for (const auto &[name, ops] : ofNode)
    if (!std::ranges::all_of(ops, [&](int32_t op) { return mayRepeat(op); }))
      for (int32_t op : ops)
        isRepeatable[at(op)] = false;
}

void Repeats::joinNodes() {
  if (isBound())
    return;
  std::unordered_map<std::string_view, int32_t> lastOf;
  for (int32_t op = 0; op < turn; ++op) {
    if (!mayRepeat(op))
      continue;
    auto [place, isFirst] = lastOf.try_emplace(graph.ops[at(op)].name, op);
    if (isFirst)
      continue;
    const int32_t before = std::exchange(place->second, op);
    std::vector<int64_t> costs;
    for (size_t one = 0; one < choicesOf(before); ++one)
      for (size_t two = 0; two < choicesOf(op); ++two)
        costs.push_back(choiceOf(before, one).isRepeated == choiceOf(op, two).isRepeated
                            ? 0
                            : forbidden);
    parts.addEdge(variableOf(before), variableOf(op), parts.pool.add(std::move(costs)));
  }
}

void Repeats::findWays() {
  constexpr size_t most = 2;
  ways.resize(graph.ops.size());
  for (int32_t op = 0; op < turn; ++op) {
    if (!mayRepeat(op) || hasGradient(op))
      continue;
    int32_t value = graph.ops[at(op)].results[0], last = -1;
    for (const FlowUse &use : graph.values[at(value)].uses)
      last = mayRepeat(use.op) ? std::max(last, use.op) : last;
    if (last >= 0 && ways[at(last)].size() < most)
      ways[at(last)].push_back(value);
  }
  for (size_t op = 0; op < ways.size(); ++op)
    model.repeatedBlocks.push_back(
        isRepeatable[op] ? static_cast<uint32_t>(birthCount(static_cast<int32_t>(op))
                                                 << ways[op].size())
                         : 0);
}

size_t Repeats::choicesOf(int32_t op) const {
  const size_t strategies = model.choices[at(op)]->size();
  if (!mayRepeat(op))
    return strategies;
  return (1 + (birthCount(op) << ways[at(op)].size())) * strategies;
}

/// Kept, then repeated by its birth, by what is kept of what it reads.
Repeats::Choice Repeats::choiceOf(int32_t op, size_t number) const {
  const size_t strategies = model.choices[at(op)]->size(), block = number / strategies;
  if (block == 0)
    return {number % strategies};
  const size_t bits = ways[at(op)].size(), again = block - 1;
  return {number % strategies, true, static_cast<unsigned>(again & ((1U << bits) - 1)),
          again >> bits};
}

size_t Repeats::birthCount(int32_t op) const {
  return isBound() ? 1 : births[at(op)].size();
}

int64_t Repeats::bornAgain(int32_t op, size_t birth) const {
  return Timing::runsAt(births[at(op)][birth]) - 1;
}

template <typename Order>
int Repeats::orderOf(int32_t op, int32_t reader, Order order) const {
  int bits = 0;
  if (choosesBirths && mayRepeat(op) && mayRepeat(reader))
    for (size_t one = 0; one < birthCount(op); ++one)
      for (size_t two = 0; two < birthCount(reader); ++two)
        bits |= int(order(births[at(op)][one], births[at(reader)][two]))
                << (one * mostBirths + two);
  return bits;
}

bool Repeats::isForward(int32_t op) const {
  return op >= 0 && isForwardOp(graph, op, turn);
}

bool Repeats::isFoundAnyway(int32_t producer, const FlowUse &use) const {
  return isForward(producer) && !mayRepeat(producer) &&
         isReadByBackward(graph, use, turn);
}

bool Repeats::hasGradient(int32_t op) const {
  const FlowValue &result = graph.values[at(graph.ops[at(op)].results[0])];
  return std::ranges::any_of(result.uses, [&](const FlowUse &use) {
    return isReadByBackward(graph, use, turn);
  });
}

int32_t Repeats::onlyReader(int32_t op, bool ofBackward) const {
  int32_t reader = -1;
  for (const FlowUse &use : graph.values[at(graph.ops[at(op)].results[0])].uses) {
    if (isReadByBackward(graph, use, turn) != ofBackward)
      continue;
    if (graph.ops[at(use.op)].kind != FlowKind::Compute ||
        (reader >= 0 && reader != use.op))
      return -1;
    reader = use.op;
  }
  return reader;
}

bool Repeats::joins(int32_t op, bool ofBackward) const {
  const int32_t reader = hasGradient(op) ? onlyReader(op, ofBackward) : -1;
  if (reader < 0 || !timing.joining(op, reader).isOneKernel)
    return false;
  // A reader that runs again reads a copy, too: joinForward knows of one such reader.
  std::vector<int32_t> others;
  for (const FlowUse &use : graph.values[at(graph.ops[at(op)].results[0])].uses)
    if (mayRepeat(use.op) && std::ranges::find(others, use.op) == others.end())
      others.push_back(use.op);
  return !ofBackward || others.size() < 2;
}

Picos Repeats::between(int32_t number, int32_t form) const {
  const FlowValue &value = graph.values[at(number)];
  const Device &device = timing.placement.topology().device;
  const auto bytes = static_cast<double>(timing.localBytes(form, value.elementBytes));
  return search::repeated(picosOf(streamSeconds(device, 2 * bytes) + device.launch),
                          graph.ops[at(value.producer)].trips);
}

Picos Repeats::timeAgain(int32_t op, size_t strategy, size_t birth) const {
  const OpChoices &choices = *model.choices[at(op)];
  if (isBound())
    return timing.again(op, choices.strategies[strategy]);
  // A kernel of a gradient runs at the latest birth.
  const Picos saved = between(graph.ops[at(op)].results[0], choices.results[0][strategy]);
  // No op takes less than nothing.
  return std::max(-choices.times[strategy],
                  choices.times[strategy] - saved * (int(birth == 0 && joins(op, true)) +
                                                     int(joins(op, false))));
}

std::vector<int64_t> Repeats::costsOf(int32_t op) const {
  const OpChoices &choices = *model.choices[at(op)];
  std::vector<int64_t> costs;
  for (size_t number = 0; number < choicesOf(op); ++number) {
    const Choice choice = choiceOf(op, number);
    Picos time = choices.times[choice.strategy];
    if (choice.isRepeated)
      time += timeAgain(op, choice.strategy, choice.birth);
    costs.push_back(time);
  }
  return costs;
}

template <typename Entry>
const CostTable &Repeats::once(const CostTable &table, int kind, size_t rows,
                               size_t columns, Entry entry) {
  CostTable &result = made[{table.id(), kind, rows, columns}];
  if (!result.empty())
    return result;
  std::vector<int64_t> entries;
  entries.reserve(rows * columns);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column)
      entries.push_back(entry(row, column));
  return result = CostTable(std::move(entries));
}

const CostTable &Repeats::forUser(int32_t op, const CostTable &table) {
  if (!mayRepeat(op) || table.empty())
    return table;
  const size_t choices = model.choices[at(op)]->size();
  return once(
      table, User, table.size() / choices, choicesOf(op),
      [&](size_t row, size_t number) { return table[row * choices + number % choices]; });
}

const CostTable &Repeats::forReader(int32_t op, const CostTable &table) {
  if (!mayRepeat(op) || table.empty())
    return table;
  const size_t choices = model.choices[at(op)]->size();
  return once(table, PayingUser, table.size() / choices, choicesOf(op),
              [&](size_t row, size_t number) {
                const Choice choice = choiceOf(op, number);
                int64_t cost = table[row * choices + choice.strategy];
                return cost < forbidden && choice.isRepeated ? 2 * cost : cost;
              });
}

void Repeats::add(int32_t number, const End &producer,
                  const std::vector<std::pair<int32_t, End>> &users) {
  Value value{number, graph.values[at(number)].producer, &producer, {}, 0, nullptr};
  std::vector<End> ends;
  for (const auto &[op, end] : users) {
    ends.push_back(end);
    value.readers.push_back(
        {op, &end, isReadByBackward(graph, {op, 0}, turn), mayRepeat(op)});
  }
  const bool isRead = hasGradient(value.producer);
  if (isRead || users.size() > 1)
    value.table = &tables.shared(number, producer, ends);
  isRead ? addRead(std::move(value)) : addOnTheWay(value);
}

void Repeats::addOnTheWay(const Value &value) {
  if (!value.table) {
    joinOps(value, value.readers[0]);
    return useBytesOnTheWay(value);
  }
  const size_t n = value.states(), choices = value.choices();
  const uint32_t variable = parts.addVariable(value.table->times);
  const CostTable &base = value.table->producer;
  parts.addEdge(variableOf(value.producer), variable,
                once(base, Produced, choicesOf(value.producer), n,
                     [&](size_t choice, size_t state) {
                       return base[choice % choices * n + state];
                     }));
  for (size_t r = 0; r < value.readers.size(); ++r) {
    const Reader &reader = value.readers[r];
    parts.addEdge(variable, variableOf(reader.op),
                  forUser(reader.op, value.table->users[r]));
    if (reader.mayRepeat)
      joinOps(value, reader);
  }
  model.values.push_back({value.number, variable, value.table->states});
  if (isBound())
    return;
  const int64_t converted = Timing::convertsAt(value.producer);
  parts.use(variable, converted - 1, converted, value.table->making);
  parts.use(variable, converted, forwardDone(value), value.table->all);
}

int64_t Repeats::forwardDone(const Value &value) const {
  int64_t done = Timing::convertsAt(value.producer) + 1;
  for (const Reader &reader : value.readers)
    if (!reader.isGradient)
      done = std::max(done, timing.doneAt(reader.op));
  return done;
}

int64_t Repeats::done(const Value &value) const {
  int64_t done = forwardDone(value);
  for (const Reader &reader : value.readers)
    done = std::max(done, timing.doneAt(reader.op));
  return done;
}

void Repeats::useBytesOnTheWay(const Value &value) {
  if (isBound() || !parts.memory)
    return;
  const Reader &reader = value.readers[0];
  const DirectTable &table = tables.direct(value.number, *value.end, *reader.end);
  const size_t to = reader.end->choices->size(), rows = choicesOf(value.producer),
               columns = choicesOf(reader.op);
  const int64_t made = timing.bornAt(value.producer),
                converted = Timing::convertsAt(value.producer),
                done = timing.doneAt(reader.op);
  auto use = [&](int64_t from, int64_t until, int kind, const CostTable &bytes) {
    if (!bytes.empty())
      parts.useByPair(
          from, until, once(bytes, kind, rows, columns, [&](size_t row, size_t column) {
            return bytes[choiceOf(value.producer, row).strategy * to +
                         (reader.mayRepeat ? choiceOf(reader.op, column).strategy
                                           : column)];
          }));
  };
  use(made, converted, Making, table.making);
  use(converted, converted + 1, Converting, table.converting);
  use(converted + 1, done, Waiting, table.waiting);
}

void Repeats::joinOps(const Value &value, const Reader &reader) {
  const CostTable &base = tables.direct(value.number, *value.end, *reader.end).costs;
  const size_t to = reader.end->choices->size(), rows = choicesOf(value.producer),
               columns = choicesOf(reader.op);
  const bool isShared = value.table;
  const std::vector<int32_t> &its = ways[at(reader.op)];
  const auto way = std::ranges::find(its, value.number);
  const bool isWay = way != its.end();
  const unsigned bit = isWay ? 1U << (way - its.begin()) : 0;
  if (isShared && !isWay)
    return;
  // A value that is kept leaves the kernel that it stays in else.
  std::vector<int64_t> written(to, 0);
  if (isWay && !isBound() && timing.isInternal(value.number))
    for (size_t choice = 0; choice < to; ++choice)
      for (int32_t form : wantedBy(*reader.end, choice))
        written[choice] = between(value.number, form);
  auto cost = [&](size_t row, size_t column) -> int64_t {
    const Choice one = choiceOf(value.producer, row), two = choiceOf(reader.op, column);
    // Of one of several readers the value's states know what it wants.
    const int64_t time = base[one.strategy * to + two.strategy];
    const int64_t first = isShared ? 0 : time;
    if (!two.isRepeated || !isWay)
      return first;
    const bool isKept = two.keptWays & bit;
    if (isKept == one.isRepeated)
      return forbidden;
    // A value that gradients do not read is made right before its reader.
    if (!isKept && choosesBirths &&
        births[at(value.producer)][one.birth] != births[at(reader.op)][two.birth])
      return forbidden;
    if (!isKept)
      return time < forbidden ? first + time : first;
    return first < forbidden ? first + written[two.strategy] : first;
  };
  const bool isWritten = std::ranges::any_of(written, [](int64_t it) { return it != 0; });
  const int kind =
      Ways + numKinds * (static_cast<int>(isShared + 2 * bit + 8 * isWritten) +
                         16 * orderOf(value.producer, reader.op, std::equal_to()));
  parts.addEdge(variableOf(value.producer), variableOf(reader.op),
                once(base, kind, rows, columns, cost));
  if (!isWay)
    return;
  const std::vector<int64_t> bytes = wantedBytes(value, reader);
  // Counts what the reader finds, kept or not, if it runs again at one of some births.
  auto use = [&](bool isKept, size_t first, size_t last, int64_t from, int64_t to) {
    const auto which =
        static_cast<int>(isKept + 2 * bit + 8 * (first * mostBirths + last));
    parts.use(
        variableOf(reader.op), from, to,
        once(base, WayBytes + numKinds * which, 1, columns, [&](size_t, size_t column) {
          const Choice two = choiceOf(reader.op, column);
          return two.isRepeated && isKept == bool(two.keptWays & bit) &&
                         two.birth >= first && two.birth <= last
                     ? bytes[two.strategy]
                     : 0;
        }));
  };
  if (isBound())
    return use(true, 0, 0, keptFrom(value), keptFrom(value) + 1);
  // A kept operand waits for the copy that reads it.
  int64_t from = forwardDone(value);
  for (size_t birth = birthCount(reader.op); birth-- > 0;) {
    const int64_t born = bornAgain(reader.op, birth);
    use(true, 0, birth, from, born + 1);
    use(false, birth, birth, born, born + 1);
    from = born + 1;
  }
}

void Repeats::addRead(Value value) {
  std::vector<int64_t> times;
  for (size_t again = 0; again <= birthCount(value.producer); ++again)
    times.insert(times.end(), value.table->times.begin(), value.table->times.end());
  value.variable = parts.addVariable(std::move(times));
  const size_t n = value.states();
  const CostTable &base = value.table->producer;
  auto cost = [&](size_t number, size_t state) {
    const Choice choice = choiceOf(value.producer, number);
    return (choice.isRepeated ? 1 + choice.birth : 0) == state / n
               ? base[choice.strategy * n + state % n]
               : forbidden;
  };
  parts.addEdge(
      variableOf(value.producer), value.variable,
      once(base, ProducedTwice, choicesOf(value.producer), allStates(value), cost));
  bool isFirst = true;
  for (size_t r = 0; r < value.readers.size(); ++r)
    if (value.readers[r].isGradient)
      joinGradient(value, r);
    else
      joinForward(value, r, std::exchange(isFirst, false));
  useBytes(value);
  model.values.push_back({value.number, value.variable, value.table->states});
}

void Repeats::joinForward(const Value &value, size_t number, bool isFirst) {
  const Reader &reader = value.readers[number];
  const size_t n = value.states(), choices = reader.end->choices->size(),
               all = choicesOf(reader.op);
  const CostTable &base = value.table->users[number];
  const std::vector<ValueState> &states = *value.table->states;
  auto wayTo = [&](size_t state, size_t choice) -> int64_t {
    Service service = bestServiceOfOp(timing, states[state].produced,
                                      wantedBy(*reader.end, choice), width(value));
    return service.possible ? search::repeated(service.time, trips(value)) : forbidden;
  };
  // A copy that reads one finds it where that was born before.
  auto isLate = [&](size_t state, const Choice &choice) {
    return choosesBirths && choice.isRepeated && state >= n &&
           births[at(value.producer)][state / n - 1] >
               births[at(reader.op)][choice.birth];
  };
  // A copy that this one reads leaves the kernel of its gradient.
  const bool maySplit = !isBound() && reader.mayRepeat && joins(value.producer, true);
  auto splits = [&](size_t state, const Choice &choice) {
    return maySplit && choice.isRepeated && state / n == 1 &&
           states[state % n].copies.empty();
  };
  auto cost = [&](size_t state, size_t column) {
    const Choice choice = reader.mayRepeat ? choiceOf(reader.op, column) : Choice{column};
    if (isLate(state, choice))
      return forbidden;
    int64_t served =
        state < n || choice.isRepeated ? base[state % n * choices + choice.strategy] : 0;
    if (served < forbidden && splits(state, choice))
      served += between(value.number, states[state % n].produced);
    return state < n || !isFirst || served >= forbidden
               ? served
               : wayTo(state % n, choice.strategy);
  };
  const int kind = ForwardReader +
                   numKinds * (int(isFirst) + 2 * int(maySplit) +
                               4 * orderOf(value.producer, reader.op, std::less_equal()));
  parts.addEdge(value.variable, variableOf(reader.op),
                once(base, kind, allStates(value), all, cost));
  if (!maySplit || value.table->all.empty())
    return;
  parts.useByPair(
      std::max(forwardDone(value), bornAgain(value.producer, 0)), done(value),
      once(base, SplitBytes, allStates(value), all, [&](size_t state, size_t column) {
        return splits(state, choiceOf(reader.op, column)) ? value.table->all[state % n]
                                                          : 0;
      }));
}

void Repeats::joinGradient(const Value &value, size_t number) {
  const Reader &reader = value.readers[number];
  const size_t n = value.states(), choices = reader.end->choices->size();
  const CostTable &base = value.table->users[number];
  parts.addEdge(
      value.variable, variableOf(reader.op),
      once(base, Gradient, allStates(value), choices, [&](size_t state, size_t choice) {
        return base[state % n * choices + choice];
      }));
  if (&reader != &lastGradient(value))
    return;
  if (!isBound())
    return;
  const std::vector<int64_t> more = moreThanLeast(value, reader);
  parts.useByPair(keptFrom(value), timing.doneAt(reader.op),
                  once(base, MoreKept, 2 * n, choices, [&](size_t state, size_t choice) {
                    return state < n ? more[state * choices + choice] : 0;
                  }));
  if (hasPlaceRepeated(value))
    parts.useByPair(
        Timing::runsAt(firstGradient(value).op), timing.doneAt(reader.op),
        once(base, MoreRepeated, 2 * n, choices, [&](size_t state, size_t choice) {
          return state < n ? 0 : more[(state - n) * choices + choice];
        }));
}

/// When it has to be there, if it is kept: before the first backward op that needs what
/// it leads to, and what is computed again for that.
int64_t Repeats::keptFrom(const Value &value) const {
  return Timing::runsAt(needed[at(value.producer)]) - 1;
}

const Repeats::Reader &Repeats::firstGradient(const Value &value) const {
  return *std::ranges::find_if(value.readers, &Reader::isGradient);
}

const Repeats::Reader &Repeats::lastGradient(const Value &value) const {
  return *std::find_if(value.readers.rbegin(), value.readers.rend(),
                       [](const Reader &reader) { return reader.isGradient; });
}

/// Whether what is made again is in no kernel, whatever else runs.
bool Repeats::hasPlaceRepeated(const Value &value) const {
  const Reader &first = firstGradient(value);
  return !timing.isView(value.producer) &&
         (&first != &lastGradient(value) || isMatmul(graph.ops[at(first.op)]));
}

void Repeats::useBytes(const Value &value) {
  isBound() ? useLeastBytes(value) : useMostBytes(value);
}

void Repeats::useMostBytes(const Value &value) {
  if (value.readers.size() == 1 && timing.hasNoBytes(value.number))
    return;
  const size_t n = value.states();
  const CostTable &making = value.table->making, &all = value.table->all;
  const int64_t converted = Timing::convertsAt(value.producer),
                forward = forwardDone(value);
  const int64_t done = this->done(value);
  const size_t count = birthCount(value.producer);
  const std::vector<ValueState> &states = *value.table->states;
  // Bytes of states that are kept, and of those that are born again so early; of these
  // the latest may stay in a kernel, as it lies.
  auto use = [&](int64_t from, int64_t to, const CostTable &bytes, bool ofKept,
                 size_t birth, bool staysInKernel) {
    if (from >= to || bytes.empty())
      return;
    const size_t which = 4 * birth + 2 * size_t(staysInKernel) + size_t(ofKept);
    parts.use(value.variable, from, to,
              once(bytes, KeptBytes + numKinds * static_cast<int>(which), 1,
                   allStates(value), [&](size_t, size_t state) {
                     if (state < n)
                       return ofKept ? bytes[state] : 0;
                     const size_t its = state / n - 1;
                     const bool isInKernel = staysInKernel && (ofKept || its == 0) &&
                                             states[state % n].copies.empty();
                     return its < birth || isInKernel ? 0 : bytes[state % n];
                   }));
  };
  const bool joinsForward = joins(value.producer, false);
  use(converted - 1, converted, making, true, 0, joinsForward);
  use(converted, forward, all, true, 0, joinsForward);
  use(forward, done, all, true, count, false);
  for (size_t birth = count; birth-- > 0;)
    use(std::max(forward, bornAgain(value.producer, birth)),
        birth == 0 ? done : bornAgain(value.producer, birth - 1), all, false, birth,
        birth == 0 && joins(value.producer, true));
}

void Repeats::useLeastBytes(const Value &value) {
  const int64_t to = timing.doneAt(lastGradient(value).op);
  const size_t n = value.states();
  const std::vector<int64_t> least = leastBytes(timing, *value.table, width(value));
  const CostTable &base = value.table->producer;
  if (hasPlaceRepeated(value))
    parts.use(value.variable, Timing::runsAt(firstGradient(value).op), to,
              once(base, RepeatedBytes, 1, 2 * n, [&](size_t, size_t state) {
                return state < n ? 0 : least[state - n];
              }));
  // One whose only reader is a gradient may be in a kernel with it, a view of what others
  // read, too, in the place of that.
  if (value.readers.size() == 1 && timing.hasNoBytes(value.number))
    return;
  if (timing.isView(value.producer) &&
      graph.values[at(graph.ops[at(value.producer)].operands[0])].uses.size() > 1)
    return;
  parts.use(value.variable, keptFrom(value), to,
            once(base, KeptBytes, 1, 2 * n,
                 [&](size_t, size_t state) { return state < n ? least[state] : 0; }));
}

std::vector<int64_t> Repeats::wantedBytes(const Value &value,
                                          const Reader &reader) const {
  std::vector<int64_t> wanted;
  for (size_t choice = 0; choice < reader.end->choices->size(); ++choice) {
    wanted.push_back(0);
    for (int32_t form : wantedBy(*reader.end, choice))
      wanted.back() = std::max(wanted.back(), timing.localBytes(form, width(value)));
  }
  return wanted;
}

std::vector<int64_t> Repeats::moreThanLeast(const Value &value,
                                            const Reader &reader) const {
  std::vector<int64_t> least = leastBytes(timing, *value.table, width(value)),
                       wanted = wantedBytes(value, reader);
  const std::vector<ValueState> &states = *value.table->states;
  const bool isView = timing.isView(value.producer);
  std::vector<int64_t> more;
  for (size_t state = 0; state < states.size(); ++state)
    for (size_t choice = 0; choice < wanted.size(); ++choice) {
      // What a view makes may be in the place of what it views.
      bool isInPlace = isView && wantedBy(*reader.end, choice) ==
                                     std::vector<int32_t>{states[state].produced};
      more.push_back(isInPlace ? 0 : std::max<int64_t>(0, wanted[choice] - least[state]));
    }
  return more;
}

std::vector<int64_t> search::leastBytes(const Timing &timing, const SharedTable &table,
                                        int64_t elementBytes) {
  std::vector<int64_t> least;
  for (const ValueState &state : *table.states) {
    least.push_back(timing.localBytes(state.produced, elementBytes));
    for (int32_t form : state.copies)
      least.back() = std::min(least.back(), timing.localBytes(form, elementBytes));
  }
  return least;
}
