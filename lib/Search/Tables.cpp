//===- Tables.cpp - Costs between ops, shared by equal ones ---------------===//
#include "Tables.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

std::vector<int32_t> search::wantedBy(const End &user, size_t choice) {
  std::vector<int32_t> forms;
  for (int32_t operand : user.places) {
    int32_t form = user.choices->operands[static_cast<size_t>(operand)][choice];
    if (std::find(forms.begin(), forms.end(), form) == forms.end())
      forms.push_back(form);
  }
  return forms;
}

static const std::vector<int32_t> &producedBy(const End &producer) {
  return producer.choices->results[static_cast<size_t>(producer.places[0])];
}

int64_t Tables::tripsOf(int32_t value) const {
  int32_t producer = timing.graph.values[static_cast<size_t>(value)].producer;
  return producer < 0 ? 1 : timing.graph.ops[static_cast<size_t>(producer)].trips;
}

const DirectTable &Tables::direct(int32_t value, const End &producer, const End &user) {
  const FlowValue &it = timing.graph.values[static_cast<size_t>(value)];
  // What the table depends on besides the ends.
  int kind = 0;
  if (it.producer >= 0 && it.uses.size() == 1)
    kind = timing.isInternal(value) + 2 * timing.isView(it.producer) +
           4 * timing.isView(it.uses[0].op) + 8 * timing.hasNoBytes(value);
  auto [place, added] = directs.try_emplace(
      {producer, {user}, it.elementBytes, kind, tripsOf(value)}, DirectTable{});
  if (added)
    place->second = makeDirect(value, producer, user);
  return place->second;
}

namespace {
/// Choices by what they want or give: tables have few distinct rows and columns.
template <typename Key> struct Distinct {
  std::vector<Key> keys;
  std::vector<size_t> of; ///< per choice
  void add(Key key) {
    auto [place, added] = numbers.try_emplace(key, keys.size());
    if (added)
      keys.push_back(std::move(key));
    of.push_back(place->second);
  }
  std::map<Key, size_t> numbers;
};
} // namespace

DirectTable Tables::makeDirect(int32_t value, const End &producer, const End &user) {
  const FlowValue &it = timing.graph.values[static_cast<size_t>(value)];
  Distinct<int32_t> rows;
  Distinct<std::vector<int32_t>> columns;
  for (int32_t form : producedBy(producer))
    rows.add(form);
  for (size_t choice = 0; choice < user.choices->size(); ++choice)
    columns.add(wantedBy(user, choice));
  struct Entry {
    int64_t cost, making, converting, waiting, besideConverting, besideWaiting;
  };
  std::vector<Entry> entries;
  for (int32_t produced : rows.keys)
    for (const std::vector<int32_t> &forms : columns.keys) {
      Service service = bestServiceOfOp(timing, produced, forms, it.elementBytes);
      bool stays = std::find(forms.begin(), forms.end(), produced) != forms.end();
      Entry entry{solver::forbidden, 0, 0, 0, 0, 0};
      if (service.possible)
        entry.cost =
            repeated(service.time + (service.entries.empty()
                                         ? 0
                                         : timing.breaking(value, produced, forms[0])),
                     tripsOf(value));
      entry.making = entry.converting = timing.localBytes(produced, it.elementBytes);
      entry.waiting = stays ? entry.making : 0;
      for (const Service::Entry &made : service.entries) {
        int64_t bytes = timing.localBytes(made.form, it.elementBytes);
        entry.besideConverting += bytes;
        if (std::find(forms.begin(), forms.end(), made.form) != forms.end())
          entry.besideWaiting += bytes;
      }
      entry.converting += entry.besideConverting;
      entry.waiting += entry.besideWaiting;
      // What stays in a kernel, or is read under another name, has no bytes of its own.
      if (service.entries.empty() && timing.hasNoBytes(value))
        entry.making = entry.converting = entry.waiting = 0;
      entries.push_back(entry);
    }
  DirectTable table;
  std::vector<int64_t> costs, making, converting, waiting, besideConverting,
      besideWaiting;
  for (size_t row : rows.of)
    for (size_t column : columns.of) {
      const Entry &entry = entries[row * columns.keys.size() + column];
      costs.push_back(entry.cost);
      making.push_back(entry.making);
      converting.push_back(entry.converting);
      waiting.push_back(entry.waiting);
      besideConverting.push_back(entry.besideConverting);
      besideWaiting.push_back(entry.besideWaiting);
    }
  table.besideConverting = std::move(besideConverting);
  table.besideWaiting = std::move(besideWaiting);
  table.making = std::move(making);
  table.converting = std::move(converting);
  table.waiting = std::move(waiting);
  table.costs = solver::CostTable(std::move(costs));
  return table;
}

namespace {
/// The states of a value, fewest copies first.
class States {
public:
  States(Timing &timing, const ModelOptions &options, int64_t elementBytes)
      : timing(timing), options(options), width(elementBytes) {}

  void run(const std::vector<int32_t> &produced, const std::vector<int32_t> &wanted,
           bool withReadAnew) {
    for (int32_t from : produced)
      add(from, {});
    for (int32_t from : produced)
      if (withReadAnew && timing.forms[from].layout.partial.empty()) {
        states.push_back({from, {}, true});
        times.push_back(0);
      }
    for (size_t copies = 1; copies <= options.mostCopies; ++copies)
      if (!addAll(produced, wanted, copies))
        return;
  }

  std::vector<ValueState> states;
  std::vector<int64_t> times;

private:
  /// All sets of so many copies, or as many of them as there is room for, those that
  /// take the least time from each produced layout. False when the room is used up.
  bool addAll(const std::vector<int32_t> &produced, const std::vector<int32_t> &wanted,
              size_t copies) {
    size_t sets = copies == 1 ? wanted.size() : wanted.size() * (wanted.size() - 1) / 2;
    size_t room = options.mostStates - std::min(options.mostStates, states.size());
    bool fits = sets * produced.size() <= room;
    // Of pairs all or none: which ones matter is not seen from the time of each alone.
    if (!fits && copies > 1)
      return false;
    size_t each = fits ? sets : std::max<size_t>(8, room / produced.size());
    for (int32_t from : produced) {
      std::vector<std::pair<Picos, std::vector<int32_t>>> found;
      for (size_t i = 0; i < wanted.size(); ++i)
        for (size_t j = copies == 1 ? i : i + 1;
             j < (copies == 1 ? i + 1 : wanted.size()); ++j)
          offer(found, from,
                copies == 1 ? std::vector<int32_t>{wanted[i]}
                            : std::vector<int32_t>{wanted[i], wanted[j]});
      if (!fits)
        std::sort(found.begin(), found.end());
      for (size_t i = 0; i < std::min(each, found.size()); ++i)
        add(from, found[i].second);
    }
    return fits;
  }

  void offer(std::vector<std::pair<Picos, std::vector<int32_t>>> &found, int32_t from,
             std::vector<int32_t> copies) {
    if (std::find(copies.begin(), copies.end(), from) != copies.end())
      return;
    if (Service service = bestService(timing, from, copies, width); service.possible)
      found.emplace_back(service.time, std::move(copies));
  }

  void add(int32_t produced, const std::vector<int32_t> &copies) {
    states.push_back({produced, copies});
    times.push_back(bestService(timing, produced, copies, width).time);
  }

  Timing &timing;
  const ModelOptions &options;
  int64_t width;
};
} // namespace

const SharedTable &Tables::shared(int32_t value, const End &producer,
                                  const std::vector<End> &users) {
  int64_t bytes = timing.graph.values[static_cast<size_t>(value)].elementBytes;
  auto [place, added] =
      shareds.try_emplace({producer, users, bytes, tripsOf(value)}, SharedTable{});
  if (added)
    place->second = makeShared(value, producer, users);
  return place->second;
}

static void addOnce(std::vector<int32_t> &list, int32_t form) {
  if (std::find(list.begin(), list.end(), form) == list.end())
    list.push_back(form);
}

/// Whether a user finds all that it wants.
static bool serves(const ValueState &state, const std::vector<int32_t> &wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](int32_t form) {
    return form == state.produced || std::find(state.copies.begin(), state.copies.end(),
                                               form) != state.copies.end();
  });
}

/// Whether users may convert the value one by one: a state large enough.
bool Tables::mayBeReadAnew(int32_t value) const {
  const FlowValue &it = timing.graph.values[static_cast<size_t>(value)];
  return options.memoryLimit && it.producer >= 0 &&
         timing.graph.ops[static_cast<size_t>(it.producer)].kind == FlowKind::State &&
         it.bytes() >= options.leastGathered;
}

namespace {
/// What one user finds, pays and holds: [state][choice].
struct UserTable {
  solver::CostTable costs;
  ReadingTable reading;
};

/// A user of a value, in each of its states.
class UserTables {
public:
  UserTables(Timing &timing, int64_t elementBytes, int64_t trips)
      : timing(timing), width(elementBytes), trips(trips) {}

  UserTable run(const std::vector<ValueState> &states, const End &user) {
    Distinct<std::vector<int32_t>> columns;
    for (size_t choice = 0; choice < user.choices->size(); ++choice)
      columns.add(wantedBy(user, choice));
    std::vector<int64_t> costs, converting, gathered;
    costs.reserve(states.size() * columns.of.size());
    bool anyReadAnew = false;
    std::vector<Entry> row(columns.keys.size());
    for (const ValueState &state : states) {
      for (size_t k = 0; k < row.size(); ++k)
        row[k] = entry(state, columns.keys[k]);
      for (size_t column : columns.of) {
        costs.push_back(row[column].cost);
        converting.push_back(row[column].converting);
        gathered.push_back(row[column].gathered);
      }
      anyReadAnew |= state.isReadAnew;
    }
    UserTable table{solver::CostTable(std::move(costs)), {}};
    if (anyReadAnew) {
      table.reading.converting = std::move(converting);
      table.reading.gathered = std::move(gathered);
    }
    return table;
  }

private:
  struct Entry {
    int64_t cost, converting, gathered;
  };

  Entry entry(const ValueState &state, const std::vector<int32_t> &wanted) {
    if (serves(state, wanted))
      return {0, 0, 0};
    const Entry none{solver::forbidden, 0, 0};
    if (!state.isReadAnew || wanted.size() != 1 || timing.forms[wanted[0]].halo)
      return none;
    const Conversion &way = timing.convert(state.produced, wanted[0], width);
    if (!way.possible)
      return none;
    int64_t own = timing.localBytes(state.produced, width),
            bytes = timing.localBytes(wanted[0], width);
    return {repeated(way.time, trips), std::max(bytes, way.peakBytes - own), bytes};
  }

  Timing &timing;
  int64_t width, trips;
};
} // namespace

SharedTable Tables::makeShared(int32_t value, const End &producer,
                               const std::vector<End> &users) {
  int64_t width = timing.graph.values[static_cast<size_t>(value)].elementBytes;
  std::vector<int32_t> produced, wanted;
  for (int32_t form : producedBy(producer))
    addOnce(produced, form);
  for (const End &user : users)
    for (size_t choice = 0; choice < user.choices->size(); ++choice)
      for (int32_t form : wantedBy(user, choice))
        addOnce(wanted, form);
  // On the way to window buffers, as serveUses has them.
  for (size_t i = 0, n = wanted.size(); i < n; ++i)
    if (timing.forms[wanted[i]].halo)
      addOnce(wanted, timing.forms.add(timing.forms[wanted[i]].layout));
  States all(timing, options, width);
  all.run(produced, wanted, mayBeReadAnew(value));
  SharedTable table;
  table.times = std::move(all.times);
  for (int64_t &time : table.times)
    time = repeated(time, tripsOf(value));
  auto states = std::make_shared<const std::vector<ValueState>>(std::move(all.states));
  std::vector<int64_t> costs;
  for (int32_t form : producedBy(producer))
    for (const ValueState &state : *states)
      costs.push_back(state.produced == form ? 0 : solver::forbidden);
  table.producer = solver::CostTable(std::move(costs));
  std::map<End, UserTable> known; // of a step's rate there are hundreds of users
  UserTables make(timing, width, tripsOf(value));
  for (const End &user : users) {
    auto [place, added] = known.try_emplace(user);
    if (added)
      place->second = make.run(*states, user);
    table.users.push_back(place->second.costs);
    table.readings.push_back(place->second.reading);
  }
  std::vector<int64_t> making, everything, copies;
  for (const ValueState &state : *states) {
    making.push_back(timing.localBytes(state.produced, width));
    everything.push_back(making.back());
    for (int32_t form : state.copies)
      everything.back() += timing.localBytes(form, width);
    copies.push_back(everything.back() - making.back());
  }
  table.copies = std::move(copies);
  table.making = std::move(making);
  table.all = std::move(everything);
  table.states = std::move(states);
  return table;
}

const HomeTable &Tables::home(const End &user, int64_t elementBytes) {
  auto [place, added] = homes.try_emplace({user, elementBytes}, HomeTable{});
  if (added)
    place->second = makeHome(user, elementBytes);
  return place->second;
}

/// The forms are those in which the user would read the source: whatever it is kept in,
/// some strategy wants it so. Only what is smaller is converted; a form with partial
/// axes, or a buffer of windows, is read as it is.
HomeTable Tables::makeHome(const End &user, int64_t elementBytes) {
  HomeTable table;
  std::vector<int32_t> wanted;
  for (size_t choice = 0; choice < user.choices->size(); ++choice) {
    wanted.push_back(wantedBy(user, choice).front());
    addOnce(table.forms, wanted.back());
  }
  auto isPlain = [&](int32_t form) {
    return !timing.forms[form].halo && timing.forms[form].layout.partial.empty();
  };
  std::vector<int64_t> costs, kept, converting, gathered;
  for (int32_t home : table.forms) {
    int64_t own = timing.forms[home].layout.localElements() * elementBytes;
    kept.push_back(own);
    for (int32_t form : wanted) {
      Conversion way{home == form, 0, 0, own};
      int64_t bytes = timing.localBytes(form, elementBytes);
      if (home != form && isPlain(home) && isPlain(form) && own < bytes)
        way = timing.convert(home, form, elementBytes);
      costs.push_back(way.possible ? way.time : solver::forbidden);
      converting.push_back(home == form ? 0 : std::max(bytes, way.peakBytes - own));
      gathered.push_back(home == form ? 0 : bytes);
    }
  }
  table.costs = std::move(costs);
  table.kept = std::move(kept);
  table.converting = std::move(converting);
  table.gathered = std::move(gathered);
  return table;
}
