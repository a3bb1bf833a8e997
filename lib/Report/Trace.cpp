//===- Trace.cpp - A run for Perfetto -------------------------------------===//
#include "partita/Report/RunReport.h"

#include "partita/Base/Files/JsonWriter.h"

#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::report;

namespace {
/// An event per line: https://perfetto.dev reads Chrome's "JSON object format".
class TraceWriter {
public:
  explicit TraceWriter(const RunRecord &record) : profile(*record.profile) {
    for (const RankRecord &rank : profile.ranks)
      for (const RunSpan &span : rank.spans)
        origin = std::min(origin, span.begin);
    text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    label("process_name", -1, record.bundle);
  }

  std::string write() {
    for (size_t r = 0; r < profile.ranks.size(); ++r) {
      const RunProgram &program = profile.programs[profile.ranks[r].program];
      auto rank = static_cast<int64_t>(r);
      label("thread_name", rank,
            "rank " + std::to_string(r) +
                (program.name.empty() ? "" : " (" + program.name + ")"));
      for (const RunSpan &span : profile.ranks[r].spans)
        add(program, rank, span);
    }
    return text + "\n]}\n";
  }

private:
  void line(JsonWriter &out) {
    text += (isFirst ? "\n" : ",\n") + out.take();
    isFirst = false;
  }

  void label(std::string_view what, int64_t rank, const std::string &name) {
    JsonWriter out(JsonWriter::Style::Compact);
    out.beginObject();
    out.member("ph", std::string_view("M"));
    out.member("name", what);
    out.member("pid", int64_t(0));
    if (rank >= 0)
      out.member("tid", rank);
    out.key("args");
    out.beginObject();
    out.member("name", std::string_view(name));
    out.endObject();
    out.endObject();
    line(out);
  }

  /// Whole nanoseconds, so that what nests in seconds nests in the file.
  int64_t nanoseconds(double time) const { return std::llround((time - origin) * 1e9); }

  void event(const std::string &name, const std::string &category, int64_t rank,
             double begin, const RunSpan &span, int64_t handle = -1) {
    JsonWriter out(JsonWriter::Style::Compact);
    out.beginObject();
    out.member("ph", std::string_view("X"));
    out.member("name", std::string_view(name));
    out.member("cat", std::string_view(category));
    out.member("pid", int64_t(0));
    out.member("tid", rank);
    int64_t from = nanoseconds(begin), to = nanoseconds(span.end);
    out.member("ts", static_cast<double>(from) / 1e3);
    out.member("dur", static_cast<double>(to - from) / 1e3);
    out.key("args");
    out.beginObject();
    out.member("request", static_cast<int64_t>(span.request));
    if (span.what == RunSpan::Segment || span.what == RunSpan::Transfer)
      out.member("micro_batch", static_cast<int64_t>(span.microBatch));
    if (handle >= 0)
      out.member("handle", handle);
    if (span.received != 0)
      out.member("received_bytes", span.received);
    out.endObject();
    out.endObject();
    line(out);
  }

  void add(const RunProgram &program, int64_t rank, const RunSpan &span) {
    switch (span.what) {
    case RunSpan::Request:
      event("request " + std::to_string(span.request), "request", rank, span.begin, span);
      break;
    case RunSpan::Segment:
      event(program.segments[span.index], "segment", rank, span.begin, span);
      break;
    case RunSpan::Task:
      event(program.tasks[span.index].node, program.tasks[span.index].kind, rank,
            span.begin, span, program.tasks[span.index].handle);
      break;
    case RunSpan::Transfer:
      event(program.transfers[span.index], "transfer", rank, span.begin, span);
      break;
    }
    // A task waits for others when it has done its own part.
    bool waits = span.what == RunSpan::Task || span.what == RunSpan::Transfer;
    if (RunSpan whole = span; waits && span.waited > 0) {
      whole.received = 0;
      event("waiting", "waiting", rank, std::max(span.begin, span.end - span.waited),
            whole);
    }
  }

  const RunProfile &profile;
  double origin = std::numeric_limits<double>::infinity();
  std::string text;
  bool isFirst = true;
};
} // namespace

std::string report::traceJson(const RunRecord &record) {
  return TraceWriter(record).write();
}
