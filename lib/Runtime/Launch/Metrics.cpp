//===- Metrics.cpp - What is told of the steps of a run -------------------===//
#include "Metrics.h"

#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Scalar.h"

#include <cerrno>
#include <cmath>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

/// The output of a training step that has the rate of its schedule.
static constexpr std::string_view rateName = "learning_rate";

static double valueOf(const HostTensor &tensor) {
  return visitType(tensor.type, [&]<typename T>() {
    return static_cast<double>(load(*tensor.data<T>()));
  });
}

Metrics::Metrics(const std::vector<TensorInfo> &outputs, int64_t batch,
                 const Print &print)
    : batch(batch), print(print) {
  for (size_t k = 0; k < outputs.size(); ++k)
    if (elementCount(outputs[k].shape) == 1)
      scalars.push_back({k, outputs[k].name});
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

std::string Metrics::line(int64_t step, int64_t epoch,
                          const std::vector<HostTensor> &outputs) {
  std::string text = "step " + std::to_string(step) + ", epoch " + std::to_string(epoch);
  char number[64];
  const char *separator = ": ";
  for (const Scalar &scalar : scalars) {
    std::snprintf(number, sizeof(number), "%.6g", valueOf(outputs[scalar.output]));
    text += separator + (scalar.name == rateName ? "learning rate" : scalar.name) + " " +
            number;
    separator = ", ";
  }
  std::snprintf(number, sizeof(number), "%s%.1f samples/s", separator,
                static_cast<double>(stepsSince * batch) / secondsSince);
  return text + number;
}

std::string Metrics::json(int64_t step, int64_t epoch, double seconds,
                          const std::vector<HostTensor> &outputs) const {
  JsonWriter out(JsonWriter::Style::Compact);
  out.beginObject();
  out.member("step", step);
  out.member("epoch", epoch);
  for (const Scalar &scalar : scalars) {
    out.key(scalar.name == rateName ? "lr" : scalar.name);
    double value = valueOf(outputs[scalar.output]);
    if (std::isfinite(value))
      out.value(value);
    else
      out.null(); // JSON has no NaN
  }
  out.member("seconds", seconds);
  out.endObject();
  return out.take() + "\n";
}

Expected<void> Metrics::step(int64_t step, int64_t epoch, double seconds, bool isLast,
                             const std::vector<HostTensor> &outputs) {
  secondsSince += seconds;
  ++stepsSince;
  if (auto now = Clock::now();
      isFirst || isLast || now - printed >= std::chrono::seconds(1)) {
    print(line(step, epoch, outputs));
    printed = now;
    secondsSince = 0, stepsSince = 0;
    isFirst = false;
  }
  if (!log)
    return {};
  std::string text = json(step, epoch, seconds, outputs);
  if (std::fwrite(text.data(), 1, text.size(), log.get()) != text.size() ||
      std::fflush(log.get()) != 0)
    return cannotWrite();
  return {};
}

Expected<void> Metrics::close() {
  if (log && std::fclose(log.release()) != 0)
    return cannotWrite();
  return {};
}
