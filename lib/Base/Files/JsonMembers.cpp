//===- JsonMembers.cpp - Members of a hand-written JSON file --------------===//
#include "partita/Base/Files/JsonMembers.h"

#include <charconv>
#include <cmath>

using namespace partita;

namespace {
/// An end of a range of numbers.
struct End {
  double at;
  bool isIn;
};
} // namespace

static Expected<double> readIn(const JsonValue &value, End low, End high,
                               const char *what) {
  auto number = value.asNumber();
  if (!number)
    return number;
  bool isIn = std::isfinite(*number) &&
              (low.isIn ? *number >= low.at : *number > low.at) &&
              (high.isIn ? *number <= high.at : *number < high.at);
  if (isIn)
    return number;
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), *number);
  return value.error("expected " + std::string(what) + ", got " + std::string(text, end));
}

Expected<double> partita::readPositive(const JsonValue &value) {
  return readIn(value, {0, false}, {HUGE_VAL, true}, "a number above 0");
}

Expected<double> partita::readNonNegative(const JsonValue &value) {
  return readIn(value, {0, true}, {HUGE_VAL, true}, "a number of at least 0");
}

Expected<double> partita::readFraction(const JsonValue &value) {
  return readIn(value, {0, false}, {1, true}, "a fraction above 0 and at most 1");
}

Expected<double> partita::readUpToOne(const JsonValue &value) {
  return readIn(value, {0, true}, {1, true}, "a number from 0 to 1");
}

Expected<double> partita::readBelowOne(const JsonValue &value) {
  return readIn(value, {0, true}, {1, false}, "a number of at least 0 and below 1");
}

Expected<size_t> partita::readName(const JsonValue &value,
                                   std::span<const std::string_view> names) {
  auto text = value.asString();
  if (!text)
    return tl::unexpected(text.error());
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == *text)
      return i;
    list += i == 0 ? "\"" : i + 1 < names.size() ? ", \"" : " or \"";
    list += std::string(names[i]) + "\"";
  }
  return value.error("expected " + list + ", got \"" + *text + "\"");
}
