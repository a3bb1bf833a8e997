//===- Hash.h - XXH3-128 of bytes -------------------------------*- C++ -*-===//
#ifndef PARTITA_BASE_FILES_HASH_H
#define PARTITA_BASE_FILES_HASH_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace partita {

/// XXH3-128, which tells damaged bytes from whole ones. It does not withstand intent.
struct Hash128 {
  uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128 &, const Hash128 &) = default;
  /// 32 hexadecimal digits, as `xxhsum -H2` prints them.
  std::string str() const;
};

Hash128 hashOf(std::span<const std::byte> bytes);
/// Absent unless the text is 32 lower-case hexadecimal digits.
std::optional<Hash128> parseHash(std::string_view text);

/// The hash of bytes that come piece by piece.
class Hasher {
public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher &) = delete;
  Hasher &operator=(const Hasher &) = delete;
  void add(std::span<const std::byte> bytes);
  /// Hash of all bytes so far.
  Hash128 hash() const;
  void reset();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace partita

#endif // PARTITA_BASE_FILES_HASH_H
