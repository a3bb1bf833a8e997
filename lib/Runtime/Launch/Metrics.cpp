//===- Metrics.cpp - What is told of the steps of a run -------------------===//
#include "Metrics.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Scalar.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

/// The output of a training step that has the rate of its schedule.
static constexpr std::string_view rateName = "learning_rate";

static double valueOf(const HostTensor &tensor) {
  return visitType(tensor.type, [&]<typename T>() {
    return static_cast<double>(load(*tensor.data<T>()));
  });
}

Metrics::Metrics(const std::vector<TensorInfo> &outputs, const StepFlags &flags,
                 int64_t batch, const Print &print)
    : batch(batch), print(print) {
  for (size_t k = 0; k < outputs.size(); ++k)
    if (const std::string &name = outputs[k].name; elementCount(outputs[k].shape) == 1)
      scalars.push_back({k, name,
                         name.empty()            ? Scalar::Value
                         : name == flags.skipped ? Scalar::Skipped
                         : name == flags.stop    ? Scalar::Stop
                                                 : Scalar::Value});
}

tl::unexpected<Error> Metrics::cannotWrite() const {
  return makeError("cannot write '" + path + "': " + std::strerror(errno));
}

Expected<void> Metrics::open(const std::string &file, bool append) {
  path = file;
  if (path.empty())
    return {};
  log.reset(std::fopen(path.c_str(), append ? "ae" : "we"));
  return log ? Expected<void>() : cannotWrite();
}

/// Bytes of the lines of a log up to a step.
static Expected<uint64_t> bytesUpTo(int64_t step, const std::string &path) {
  constexpr std::string_view head = "{\"step\":";
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  std::string_view left = *text;
  for (int64_t line = 1; !left.empty(); ++line) {
    size_t end = left.find('\n');
    if (end == std::string_view::npos)
      break; // a killed process has left it
    int64_t number = 0;
    const char *digits = left.data() + head.size();
    if (end <= head.size() || !left.starts_with(head) ||
        std::from_chars(digits, left.data() + end, number).ec != std::errc())
      return makeError("'" + path + "', line " + std::to_string(line) +
                       ": expected a line of a log, which begins with {\"step\": "
                       "and a number; the file is left as it is");
    if (number > step)
      break;
    left.remove_prefix(end + 1);
  }
  return text->size() - left.size();
}

Expected<void> Metrics::openBehind(const std::string &file, int64_t step) {
  path = file;
  if (path.empty())
    return {};
  if (::access(path.c_str(), F_OK) == 0) {
    auto bytes = bytesUpTo(step, path);
    if (!bytes)
      return tl::unexpected(bytes.error());
    if (::truncate(path.c_str(), static_cast<off_t>(*bytes)) != 0)
      return cannotWrite();
  }
  return open(file, true);
}

int Metrics::descriptor() const { return log ? ::fileno(log.get()) : -1; }

bool Metrics::stopsWhereNotFinite() const {
  return std::ranges::find(scalars, Scalar::Stop, &Scalar::role) != scalars.end();
}

bool Metrics::isSkipped(const std::vector<HostTensor> &outputs) const {
  return std::ranges::any_of(scalars, [&](const Scalar &scalar) {
    return scalar.role == Scalar::Skipped && valueOf(outputs[scalar.output]) != 0;
  });
}

Expected<void> Metrics::serve(const std::string &address) {
  if (address.empty())
    return {};
  auto started = MetricsServer::start(address);
  if (!started)
    return tl::unexpected(started.error());
  server = std::move(*started);
  print("metrics are at http://" + server->address() + "/metrics");
  return {};
}

/// Most bytes of this process that were in memory at once.
static int64_t peakBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

void Metrics::count(const StepDone &done, const std::vector<HostTensor> &outputs) {
  for (Sums *sums : {&since, &all}) {
    sums->seconds += done.seconds;
    ++sums->steps;
    sums->labels += done.labels.value_or(0);
    sums->skipped += isSkipped(outputs);
  }
}

std::string Metrics::line(const StepDone &done,
                          const std::vector<HostTensor> &outputs) const {
  std::string text =
      "step " + std::to_string(done.step) + ", epoch " + std::to_string(done.epoch);
  const char *separator = ": ";
  for (const Scalar &scalar : scalars) {
    if (scalar.role != Scalar::Value)
      continue;
    text += separator + (scalar.name == rateName ? "learning rate" : scalar.name) + " " +
            formatted("%.6g", valueOf(outputs[scalar.output]));
    separator = ", ";
  }
  if (done.evaluated) {
    text += separator + formatted("eval loss %.6g", *done.evaluated);
    separator = ", ";
  }
  text += separator + formatted("%.1f samples/s",
                                static_cast<double>(since.steps * batch) / since.seconds);
  if (done.labels)
    text +=
        formatted(", %.1f tokens/s", static_cast<double>(since.labels) / since.seconds);
  if (all.skipped > 0)
    text += ", " + std::to_string(all.skipped) + " skipped";
  return text;
}

/// JSON has no infinity, and no NaN.
static void write(JsonWriter &out, double number) {
  if (std::isfinite(number))
    out.value(number);
  else
    out.null();
}

std::string Metrics::json(const StepDone &done,
                          const std::vector<HostTensor> &outputs) const {
  JsonWriter out(JsonWriter::Style::Compact);
  auto number = [&](double value) { write(out, value); };
  out.beginObject();
  out.member("step", done.step);
  out.member("epoch", done.epoch);
  for (const Scalar &scalar : scalars) {
    out.key(scalar.name == rateName ? "lr" : scalar.name);
    number(valueOf(outputs[scalar.output]));
  }
  if (done.evaluated) {
    out.key("eval_loss");
    number(*done.evaluated);
  }
  out.member("seconds", done.seconds);
  out.member("samples_per_second", static_cast<double>(batch) / done.seconds);
  if (done.labels)
    out.member("tokens_per_second", static_cast<double>(*done.labels) / done.seconds);
  out.member("memory", peakBytes());
  out.endObject();
  return out.take() + "\n";
}

/// Text form of Prometheus, version 0.0.4.
std::string Metrics::page(const StepDone &done,
                          const std::vector<HostTensor> &outputs) const {
  std::string text;
  auto add = [&](const std::string &name, const char *kind, const char *help,
                 const std::string &value) {
    text += "# HELP partita_" + name + " " + help + "\n# TYPE partita_" + name + " " +
            kind + "\npartita_" + name + " " + value + "\n";
  };
  auto number = [](double value) {
    return std::isnan(value)   ? std::string("NaN")
           : std::isinf(value) ? std::string(value > 0 ? "+Inf" : "-Inf")
                               : formatted("%.17g", value);
  };
  add("step", "gauge", "Steps that are done, of all runs together.",
      std::to_string(done.step));
  add("epoch", "gauge", "Epoch of the last step, from 1 on.", std::to_string(done.epoch));
  add("steps_total", "counter", "Steps of this run.", std::to_string(all.steps));
  add("step_seconds_total", "counter", "Seconds of the steps of this run.",
      number(all.seconds));
  add("samples_total", "counter", "Rows of the data that this run has taken.",
      std::to_string(all.steps * batch));
  if (done.labels)
    add("tokens_total", "counter", "Labels that count of these rows.",
        std::to_string(all.labels));
  add("skipped_steps_total", "counter", "Steps of this run that have changed no state.",
      std::to_string(all.skipped));
  if (evaluated) {
    add("eval_loss", "gauge", "Mean loss over the rows that are held out.",
        number(evaluated->second));
    add("eval_step", "gauge", "Step behind which that was.",
        std::to_string(evaluated->first));
  }
  add("memory_peak_bytes", "gauge", "Most memory of this process so far.",
      std::to_string(peakBytes()));
  text += "# HELP partita_output Scalar outputs of the last step.\n"
          "# TYPE partita_output gauge\n";
  for (const Scalar &scalar : scalars) {
    std::string name;
    for (char c : scalar.name)
      name += c == '\n' ? "\\n" : (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
    text += "partita_output{name=\"" + name + "\"} " +
            number(valueOf(outputs[scalar.output])) + "\n";
  }
  return text;
}

Expected<void> Metrics::step(const StepDone &done,
                             const std::vector<HostTensor> &outputs) {
  count(done, outputs);
  if (done.evaluated)
    evaluated.emplace(done.step, *done.evaluated);
  if (server)
    server->publish(page(done, outputs));
  if (auto now = Clock::now(); isFirst || done.isLast || done.evaluated ||
                               now - printed >= std::chrono::seconds(1)) {
    print(line(done, outputs));
    printed = now;
    since = {};
    isFirst = false;
  }
  if (!log)
    return {};
  std::string text = json(done, outputs);
  if (std::fwrite(text.data(), 1, text.size(), log.get()) != text.size() ||
      std::fflush(log.get()) != 0)
    return cannotWrite();
  return {};
}

/// Adds a member to the last line of a log, in one write: a line that is cut off would be
/// lost where the run goes on once more. No line, or one that has the member, stays.
static Expected<void> amendLast(const std::string &path, const std::string &name,
                                const std::string &value) {
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  const size_t begin = text->rfind('\n', text->size() < 2 ? 0 : text->size() - 2);
  const std::string_view line =
      std::string_view(*text).substr(begin == std::string::npos ? 0 : begin + 1);
  if (!line.ends_with("}\n") || line.find("\"" + name + "\":") != std::string::npos)
    return {};
  const std::string added = ",\"" + name + "\":" + value + "}\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool isWritten = file >= 0 && ::pwrite(file, added.data(), added.size(),
                                               static_cast<off_t>(text->size() - 2)) ==
                                          static_cast<ssize_t>(added.size());
  const int problem = errno;
  if (file >= 0)
    ::close(file);
  if (!isWritten)
    return makeError("cannot write '" + path + "': " + std::strerror(problem));
  return {};
}

Expected<void> Metrics::evaluatedBehind(int64_t step, double loss) {
  evaluated.emplace(step, loss);
  print("step " + std::to_string(step) + ": eval loss " + formatted("%.6g", loss));
  JsonWriter out(JsonWriter::Style::Compact);
  write(out, loss);
  return log ? amendLast(path, "eval_loss", out.take()) : Expected<void>();
}

std::string Metrics::notFinite(const std::vector<HostTensor> &outputs) const {
  std::string text;
  if (isSkipped(outputs))
    return text;
  for (const Scalar &scalar : scalars) {
    double value = valueOf(outputs[scalar.output]);
    if (scalar.role == Scalar::Stop ? value != 0 : !std::isfinite(value))
      text += (text.empty() ? "" : ", ") + scalar.name + formatted(" %g", value);
  }
  return text;
}

Expected<void> Metrics::close() {
  if (log && std::fclose(log.release()) != 0)
    return cannotWrite();
  return {};
}
