//===- Metrics.cpp - What is told of the steps of a run -------------------===//
#include "Metrics.h"

#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Scalar.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <cmath>
#include <sys/resource.h>

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
  return log.descriptor() >= 0 ? log.add(done.step, json(done, outputs))
                               : Expected<void>();
}

Expected<void> Metrics::evaluatedBehind(int64_t step, double loss) {
  evaluated.emplace(step, loss);
  print("step " + std::to_string(step) + ": eval loss " + formatted("%.6g", loss));
  JsonWriter out(JsonWriter::Style::Compact);
  write(out, loss);
  return log.amendLast(step, "eval_loss", out.take());
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
