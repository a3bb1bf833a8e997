//===- Metrics.cpp - What is told of the steps of a run -------------------===//
#include "Metrics.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Scalar.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
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

bool Metrics::areFinite(const std::vector<HostTensor> &outputs) const {
  return std::ranges::all_of(scalars, [&](const Scalar &scalar) {
    return std::isfinite(valueOf(outputs[scalar.output]));
  });
}

Expected<void> Metrics::close() {
  if (log && std::fclose(log.release()) != 0)
    return cannotWrite();
  return {};
}
