//===- Quantity.cpp - Numbers of a cluster file, checked ------------------===//
#include "partita/Topology/Quantity.h"

#include <charconv>
#include <cmath>

using namespace partita;

namespace {
struct Unit {
  std::string_view name;
  double bytes;
};
} // namespace

static constexpr Unit units[] = {
    {"", 1},      {"B", 1},      {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
};

/// Bytes that `text` names, or -1.
static double bytesOf(std::string_view text) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number))
    return -1;
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ')
    rest.remove_prefix(1);
  for (const Unit &unit : units)
    if (unit.name == rest)
      return number * unit.bytes;
  return -1;
}

static constexpr int64_t mostBytes = int64_t(1) << 60;

Expected<int64_t> cluster::parseBytes(std::string_view text) {
  double bytes = bytesOf(text);
  if (bytes < 1 || bytes > static_cast<double>(mostBytes))
    return makeError("expected bytes such as \"80GiB\", got \"" + std::string(text) +
                     "\"");
  return static_cast<int64_t>(std::llround(bytes));
}

Expected<int64_t> cluster::readBytes(const JsonValue &value) {
  if (!value.isString())
    return value.asInteger(1, mostBytes);
  auto bytes = parseBytes(*value.asString());
  return bytes ? bytes : value.error(bytes.error().message);
}

std::string cluster::listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}
