//===- Units.h - Figures as people read them --------------------*- C++ -*-===//
#ifndef PARTITA_BASE_UNITS_H
#define PARTITA_BASE_UNITS_H

#include <cstddef>
#include <string>

namespace partita {

/// As printf writes it; cut at 511 characters.
__attribute__((format(printf, 1, 2))) std::string formatted(const char *format, ...);

/// "512 B", "1.50 GiB": the largest unit, of 1024, that leaves 1 or more.
std::string bytesText(double bytes);

/// "1 rank", "2 ranks".
std::string countText(size_t count, const std::string &noun);

/// "3.2 µs" below a millisecond, else "1234.567 ms".
std::string durationText(double seconds);

} // namespace partita

#endif // PARTITA_BASE_UNITS_H
