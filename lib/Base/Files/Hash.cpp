//===- Hash.cpp - XXH3-128 of bytes ---------------------------------------===//
#include "partita/Base/Files/Hash.h"

#include <charconv>
#include <cstdio>

// Compiled in, so that the runtime depends on no other library.
#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace partita;

struct Hasher::State {
  XXH3_state_t xxh;
};

static Hash128 plain(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

std::string Hash128::str() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx",
                static_cast<unsigned long long>(high),
                static_cast<unsigned long long>(low));
  return text;
}

Hash128 partita::hashOf(std::span<const std::byte> bytes) {
  return plain(XXH3_128bits(bytes.data(), bytes.size()));
}

std::optional<Hash128> partita::parseHash(std::string_view text) {
  Hash128 hash;
  if (text.size() != 32 ||
      text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + 16, hash.high, 16);
  std::from_chars(text.data() + 16, text.data() + 32, hash.low, 16);
  return hash;
}

Hasher::Hasher() : state(std::make_unique<State>()) { reset(); }
Hasher::~Hasher() = default;
void Hasher::reset() { XXH3_128bits_reset(&state->xxh); }
void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state->xxh, bytes.data(), bytes.size());
}
Hash128 Hasher::hash() const { return plain(XXH3_128bits_digest(&state->xxh)); }
