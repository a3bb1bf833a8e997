//===- TraceEvents.cpp - What `run --trace` wrote -------------------------===//
#include "TraceEvents.h"

#include "partita/Base/Files/Json.h"

#include <algorithm>

using namespace partita;
using namespace partita::report;

/// The event of a line that has a category.
static Expected<TraceEvent> eventOf(const JsonValue &line) {
  TraceEvent event;
  Expected<void> ok;
  auto text = [&](const char *key, std::string &into) {
    if (ok)
      ok = line.at(key)
               .and_then([](const JsonValue &v) { return v.asString(); })
               .map([&](std::string read) { into = std::move(read); });
  };
  auto number = [&](const char *key) {
    double read = 0;
    if (ok)
      ok = line.at(key)
               .and_then([](const JsonValue &v) { return v.asNumber(); })
               .map([&](double value) { read = value; });
    return read;
  };
  text("name", event.name);
  text("cat", event.kind);
  event.rank = static_cast<int64_t>(number("tid"));
  event.begin = 1e-6 * number("ts");
  event.end = event.begin + 1e-6 * number("dur");
  auto arguments = ok ? line.at("args") : tl::unexpected(ok.error());
  auto whole = [&](const char *key, int64_t &into, bool isNeeded) {
    if (ok && (isNeeded || arguments->has(key)))
      ok = arguments->at(key)
               .and_then([](const JsonValue &v) { return v.asInteger(0, INT64_MAX); })
               .map([&](int64_t read) { into = read; });
  };
  if (!arguments)
    return tl::unexpected(arguments.error());
  whole("request", event.request, true);
  whole("micro_batch", event.microBatch, event.kind == "segment");
  whole("handle", event.handle, false);
  if (!ok)
    return tl::unexpected(ok.error());
  return event;
}

Expected<TracedRequest> report::readTrace(const std::string &file) {
  auto json = readJsonFile(file);
  auto list = json ? json->at("traceEvents").and_then([](const JsonValue &events) {
    return events.elements();
  })
                   : tl::unexpected(json.error());
  if (!list)
    return tl::unexpected(list.error());
  TracedRequest last{-1};
  for (const JsonValue &line : *list) {
    if (!line.has("cat"))
      continue;
    auto event = eventOf(line);
    if (!event)
      return tl::unexpected(event.error());
    if (event->kind != "request") {
      last.events.push_back(std::move(*event));
      continue;
    }
    // The file has the requests of one rank behind those of another.
    if (event->request < last.number)
      continue;
    const bool isNew = event->request > last.number;
    last.begin = isNew ? event->begin : std::min(last.begin, event->begin);
    last.end = isNew ? event->end : std::max(last.end, event->end);
    last.number = event->request;
  }
  if (last.number < 0)
    return makeError(file + ": has no request; `partita run --trace` writes one");
  std::erase_if(last.events,
                [&](const TraceEvent &event) { return event.request != last.number; });
  return last;
}
