//===- Served.cpp - Services as plans write them --------------------------===//
#include "partita/Rule/Sharding/Served.h"

#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>
#include <charconv>

using namespace partita;

/// What every use of a value wants, in their order; of halos `before` says nothing.
static std::vector<OperandForm> wantedForms(const FlowGraph &graph,
                                            const std::vector<Strategy> &strategies,
                                            const FlowValue &value) {
  std::vector<OperandForm> forms;
  for (const FlowUse &use : value.uses)
    forms.push_back(operandForm(graph.ops[static_cast<size_t>(use.op)].rule,
                                strategies[static_cast<size_t>(use.op)],
                                static_cast<size_t>(use.operand)));
  return forms;
}

/// Whether two halos fill equal buffers.
static bool isSameBuffer(const Halo &a, const Halo &b) {
  return a.positions == b.positions && a.windows == b.windows && a.fill == b.fill;
}

/// The distinct halos among forms, in their order.
static std::vector<const OperandForm *> halosOf(const std::vector<OperandForm> &forms) {
  std::vector<const OperandForm *> halos;
  for (const OperandForm &form : forms)
    if (form.window && std::none_of(halos.begin(), halos.end(), [&](auto *other) {
          return isSameBuffer(*other->window, *form.window);
        }))
      halos.push_back(&form);
  return halos;
}

std::vector<ServedEntry> partita::servedEntries(const FlowGraph &graph,
                                                const std::vector<Strategy> &strategies,
                                                int32_t value,
                                                const std::vector<ServedLayout> &served) {
  auto forms = wantedForms(graph, strategies, graph.values[static_cast<size_t>(value)]);
  auto halos = halosOf(forms);
  std::vector<ServedEntry> entries;
  for (const ServedLayout &it : served) {
    ServedEntry entry;
    entry.from = it.from;
    if (!it.halo)
      entry.layout = it.layout;
    else
      entry.window = static_cast<int32_t>(
          std::find_if(
              halos.begin(), halos.end(),
              [&](auto *form) { return isSameBuffer(*form->window, *it.halo); }) -
          halos.begin());
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// The entry that names a use of the value; −1: none does.
static int64_t namedFor(const std::vector<ServedEntry> &entries, int32_t use) {
  auto named = std::find_if(entries.begin(), entries.end(), [&](const ServedEntry &it) {
    return std::find(it.users.begin(), it.users.end(), use) != it.users.end();
  });
  return named == entries.end() ? -1 : named - entries.begin();
}

Expected<std::vector<ServedEntry>>
partita::exactEntries(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                      int32_t value, const std::vector<ServedLayout> &served) {
  auto entries = servedEntries(graph, strategies, value, served);
  auto usual = serveBy(graph, strategies, value, entries);
  // Where nothing is served without being named, all are.
  auto isAsUsual = [&](size_t i) { return usual && (*usual)[i].uses == served[i].uses; };
  bool isUsual = true;
  for (size_t i = 0; i < served.size(); ++i)
    isUsual &= isAsUsual(i);
  const auto &uses = graph.values[static_cast<size_t>(value)].uses;
  for (size_t i = 0; i < served.size() && !isUsual; ++i)
    for (const FlowUse &use : served[i].uses)
      entries[i].users.push_back(
          static_cast<int32_t>(std::find(uses.begin(), uses.end(), use) - uses.begin()));
  if (!isUsual)
    usual = serveBy(graph, strategies, value, entries);
  if (!usual)
    return tl::unexpected(usual.error());
  for (size_t i = 0; i < served.size(); ++i)
    if ((*usual)[i].epoch != served[i].epoch)
      entries[i].epoch = served[i].epoch;
  return entries;
}

Expected<std::vector<ServedLayout>>
partita::serveBy(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                 int32_t value, const std::vector<ServedEntry> &entries) {
  const FlowValue &it = graph.values[static_cast<size_t>(value)];
  auto producer = static_cast<size_t>(it.producer);
  auto forms = wantedForms(graph, strategies, it);
  auto halos = halosOf(forms);
  Layout produced = resultLayout(graph.ops[producer].rule, strategies[producer],
                                 static_cast<size_t>(it.result))
                        .canonicalized();
  std::vector<ServedLayout> served;
  for (size_t i = 0; i < entries.size(); ++i) {
    const ServedEntry &entry = entries[i];
    std::string where = "conversion " + std::to_string(i) + " of '" + it.name + "' ";
    if (entry.from < -1 || entry.from >= static_cast<int32_t>(i) ||
        (entry.from >= 0 && served[static_cast<size_t>(entry.from)].halo))
      return makeError(where + "comes from conversion " + std::to_string(entry.from) +
                       ", which is not an earlier one to a layout");
    const Layout &at =
        entry.from < 0 ? produced : served[static_cast<size_t>(entry.from)].layout;
    ServedLayout next{{}, entry.from, {}, std::nullopt};
    if (entry.layout) {
      if (entry.layout->globalShape() != it.shape)
        return makeError(where + "leads to " + entry.layout->str(graph.mesh) +
                         ", which is for another shape");
      next.layout = entry.layout->canonicalized();
    } else {
      if (entry.window < 0 || entry.window >= static_cast<int32_t>(halos.size()))
        return makeError(where + "fills window buffer " + std::to_string(entry.window) +
                         ", of which its users want " + std::to_string(halos.size()));
      const OperandForm &form = *halos[static_cast<size_t>(entry.window)];
      next.layout = form.layout;
      next.halo = form.window;
      next.halo->before = at;
      if (at.partial != next.halo->positions.partial)
        return makeError(where + "fills a window buffer from other partial axes");
    }
    served.push_back(std::move(next));
  }
  for (size_t u = 0; u < forms.size(); ++u) {
    auto isWanted = [&](const ServedLayout &s) {
      return forms[u].window ? s.halo && isSameBuffer(*s.halo, *forms[u].window)
                             : !s.halo && s.layout == forms[u].layout;
    };
    if (auto named = namedFor(entries, static_cast<int32_t>(u)); named >= 0) {
      ServedLayout &its = served[static_cast<size_t>(named)];
      if (!isWanted(its))
        return makeError("conversion " + std::to_string(named) + " of '" + it.name +
                         "' is for '" +
                         graph.ops[static_cast<size_t>(it.uses[u].op)].name +
                         "', which wants it as " + forms[u].layout.str(graph.mesh));
      its.uses.push_back(it.uses[u]);
      continue;
    }
    // Of equal entries each op takes the next: what was read is given up.
    auto same = std::find_if(served.begin(), served.end(), isWanted);
    auto isTaken = [&] {
      return !same->uses.empty() && same->uses.back().op != it.uses[u].op;
    };
    for (auto next = same; next != served.end() && isTaken(); same = next) {
      next = std::find_if(same + 1, served.end(), isWanted);
      if (next == served.end())
        break;
    }
    // A source is read as it is wanted.
    bool isSource = graph.ops[producer].kind == FlowKind::Source && !forms[u].window;
    if (same == served.end() && isSource)
      same = served.insert(served.end(), {forms[u].layout, -1, {}, std::nullopt});
    if (same == served.end() && (forms[u].window || forms[u].layout != produced))
      return makeError(
          "nothing serves '" + graph.ops[static_cast<size_t>(it.uses[u].op)].name +
          "', which wants '" + it.name + "' as " + forms[u].layout.str(graph.mesh));
    if (same == served.end())
      same = served.insert(served.end(), {produced, -1, {}, std::nullopt});
    same->uses.push_back(it.uses[u]);
  }
  giveEpochs(graph, produced, served);
  for (size_t i = 0; i < entries.size(); ++i)
    served[i].epoch = entries[i].epoch.value_or(served[i].epoch);
  return served;
}

std::string partita::servedText(const Mesh &mesh,
                                const std::vector<ServedEntry> &entries) {
  std::string text;
  for (const ServedEntry &entry : entries) {
    text += (text.empty() ? "" : "; ") + (entry.layout
                                              ? entry.layout->str(mesh)
                                              : "window " + std::to_string(entry.window));
    if (entry.from >= 0)
      text += " from " + std::to_string(entry.from);
    if (entry.epoch)
      text += " epoch " + std::to_string(*entry.epoch);
    for (size_t i = 0; i < entry.users.size(); ++i)
      text += (i ? " " : " for ") + std::to_string(entry.users[i]);
  }
  return text;
}

static std::optional<int32_t> numberOf(std::string_view text) {
  int32_t number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size())
    return std::nullopt;
  return number;
}

/// Cuts " from 0" and the like off the end of an entry, and reads the numbers; none:
/// there is no such end. Absent: an end that has no number, or another thing.
static std::optional<std::vector<int32_t>> takeEnd(std::string_view &entry,
                                                   std::string_view word) {
  std::vector<int32_t> numbers;
  size_t begin = entry.find(word);
  if (begin == std::string_view::npos)
    return numbers;
  std::string_view rest = entry.substr(begin + word.size());
  for (size_t at = 0; at <= rest.size();) {
    size_t stop = std::min(rest.find(' ', at), rest.size());
    auto number = numberOf(rest.substr(at, stop - at));
    if (!number)
      return std::nullopt;
    numbers.push_back(*number);
    at = stop + 1;
  }
  entry = entry.substr(0, begin);
  return numbers;
}

Expected<std::vector<ServedEntry>> partita::parseServed(std::string_view text,
                                                        const Mesh &mesh) {
  std::vector<ServedEntry> entries;
  for (size_t at = 0; at < text.size();) {
    size_t stop = std::min(text.find("; ", at), text.size());
    std::string_view part = text.substr(at, stop - at);
    at = stop + 2;
    ServedEntry entry;
    std::string_view rest = part;
    auto users = takeEnd(rest, " for ");
    auto epoch = takeEnd(rest, " epoch ");
    auto from = takeEnd(rest, " from ");
    auto window = rest.starts_with("window ") ? numberOf(rest.substr(7)) : std::nullopt;
    if (!users || !epoch || epoch->size() > 1 || !from || from->size() > 1 ||
        (rest.starts_with("window ") && !window))
      return makeError("\"" + std::string(part) +
                       "\" is not a conversion: expected a layout "
                       "or \"window 0\", then \" from 0\"");
    entry.users = std::move(*users);
    if (!epoch->empty())
      entry.epoch = epoch->front();
    if (!from->empty())
      entry.from = from->front();
    entry.window = window.value_or(0);
    if (!window) {
      auto layout = Layout::parse(rest, mesh);
      if (!layout)
        return tl::unexpected(layout.error());
      entry.layout = layout->canonicalized();
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}
