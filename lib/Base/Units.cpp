//===- Units.cpp - Figures as people read them ----------------------------===//
#include "partita/Base/Units.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>

using namespace partita;

std::string partita::formatted(const char *format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return std::string(buffer, static_cast<size_t>(std::clamp(length, 0, 511)));
}

std::string partita::bytesText(double bytes) {
  static constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit)
    bytes /= 1024;
  return formatted(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
}

std::string partita::durationText(double seconds) {
  return seconds < 1e-3 ? formatted("%.1f µs", seconds * 1e6)
                        : formatted("%.3f ms", seconds * 1e3);
}

std::string partita::countText(size_t count, const std::string &noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}
