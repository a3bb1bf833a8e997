//===- ByteTiles.cpp - Tiles of products of 8-bit integers ----------------===//
#include "ByteTiles.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

//===----------------------------------------------------------------------===//
// Pairs of 16 bits, vectors of 256
//===----------------------------------------------------------------------===//

namespace {
constexpr int64_t pairColumns = 16; ///< two vectors of sums
constexpr int pairRows = 6;         ///< twelve of sixteen vectors are sums

template <int rows> [[gnu::target("avx2")]] void addPairs(const ByteTile &tile) {
  __m256i sum[rows][2];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v) {
      const int32_t *from = tile.adds ? tile.sums + r * tile.sumsRow : tile.begin;
      sum[r][v] =
          from ? _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + 8 * v))
               : _mm256_setzero_si256();
    }
  auto *left = static_cast<const char *>(tile.left);
  auto *right = static_cast<const __m256i *>(tile.right);
  for (int64_t p = 0; p < tile.steps; ++p) {
    __m256i low = _mm256_load_si256(right + 2 * p);
    __m256i high = _mm256_load_si256(right + 2 * p + 1);
    for (int r = 0; r < rows; ++r) {
      int32_t both; // broadcast from memory
      std::memcpy(&both, left + r * tile.leftRow + 4 * p, sizeof both);
      __m256i pair = _mm256_set1_epi32(both);
      sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(pair, low));
      sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(pair, high));
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v)
      _mm256_storeu_si256(
          reinterpret_cast<__m256i *>(tile.sums + r * tile.sumsRow + 8 * v), sum[r][v]);
}

constexpr decltype(&addPairs<1>) pairTiles[pairRows] = {
    addPairs<1>, addPairs<2>, addPairs<3>, addPairs<4>, addPairs<5>, addPairs<6>};

//===----------------------------------------------------------------------===//
// Quads of 8 bits, vectors of 512
//===----------------------------------------------------------------------===//

constexpr int64_t quadColumns = 32;
constexpr int quadRows = 14; ///< 28 of 32 vectors are sums

template <int rows>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")]] void
addQuads(const ByteTile &tile) {
  __m512i sum[rows][2];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v) {
      const int32_t *from = tile.adds ? tile.sums + r * tile.sumsRow : tile.begin;
      sum[r][v] = from ? _mm512_loadu_si512(from + 16 * v) : _mm512_setzero_si512();
    }
  auto *left = static_cast<const char *>(tile.left);
  auto *right = static_cast<const char *>(tile.right);
  for (int64_t p = 0; p < tile.steps; ++p) {
    __m512i low = _mm512_load_si512(right + 128 * p);
    __m512i high = _mm512_load_si512(right + 128 * p + 64);
    for (int r = 0; r < rows; ++r) {
      int32_t four;
      std::memcpy(&four, left + r * tile.leftRow + 4 * p, sizeof four);
      __m512i quad = _mm512_set1_epi32(four);
      sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], quad, low);
      sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], quad, high);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v)
      _mm512_storeu_si512(tile.sums + r * tile.sumsRow + 16 * v, sum[r][v]);
}

template <int... n> constexpr auto quadTable(std::integer_sequence<int, n...>) {
  struct Table {
    decltype(&addQuads<1>) by[sizeof...(n)];
  };
  return Table{{addQuads<n + 1>...}};
}
constexpr auto quadTiles = quadTable(std::make_integer_sequence<int, quadRows>());

constexpr ByteKernels pairs = {
    pairRows, pairColumns, 2, 2, pairTiles, "pairs:avx2", "pairs in panels of 16"};
constexpr ByteKernels quads = {
    quadRows, quadColumns, 4, 1, quadTiles.by, "quads:vnni", "quads in panels of 32"};
static_assert(quadRows <= mostByteRows && quadColumns <= mostByteColumns);
} // namespace

const ByteKernels *gemm::pairKernels() {
  return __builtin_cpu_supports("avx2") ? &pairs : nullptr;
}

const ByteKernels *gemm::quadKernels() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vnni")
             ? &quads
             : nullptr;
}

//===----------------------------------------------------------------------===//
// Filters per channel
//===----------------------------------------------------------------------===//

/// Unpacking two vectors of sixteen numbers puts the channels 0 to 3 and 8 to 11 side by
/// side with those of the other tap, and then 4 to 7 and 12 to 15.
static constexpr int64_t unpacked[16] = {0, 1, 2, 3, 8,  9,  10, 11,
                                         4, 5, 6, 7, 12, 13, 14, 15};

template <bool isSigned>
[[gnu::target("avx2")]] static __m256i sixteenOf(const uint8_t *from) {
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
  return isSigned ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

template <bool isSigned>
[[gnu::target("avx2")]] static void depthwiseOf(const DepthwisePixel &pixel) {
  const int16_t *weights = pixel.weights;
  for (int64_t block = 0; block < pixel.channels; block += depthwiseChannels) {
    const int64_t c = std::min(block, pixel.channels - depthwiseChannels);
    __m256i first = _mm256_setzero_si256(), second = first;
    for (int64_t q = 0; q < pixel.pairs; ++q, weights += 32) {
      __m256i a = sixteenOf<isSigned>(pixel.taps[2 * q] + c);
      __m256i b = sixteenOf<isSigned>(pixel.taps[2 * q + 1] + c);
      auto *w = reinterpret_cast<const __m256i *>(weights);
      first = _mm256_add_epi32(
          first, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), _mm256_load_si256(w)));
      second = _mm256_add_epi32(second, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b),
                                                          _mm256_load_si256(w + 1)));
    }
    auto *to = reinterpret_cast<__m256i *>(pixel.sums + c);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
  }
}

void gemm::depthwisePixel(const DepthwisePixel &pixel) {
  pixel.isSigned ? depthwiseOf<true>(pixel) : depthwiseOf<false>(pixel);
}

template <typename T>
[[gnu::target("avx2")]] static void widenRow(const T *from, int64_t count, int16_t *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = from[i];
}

void gemm::widenBytes(const void *from, bool isSigned, int64_t count, int16_t *to) {
  isSigned ? widenRow(static_cast<const int8_t *>(from), count, to)
           : widenRow(static_cast<const uint8_t *>(from), count, to);
}

void gemm::packDepthwise(const int16_t *from, int64_t channels, int64_t taps,
                         int16_t *to) {
  for (int64_t block = 0; block < channels; block += depthwiseChannels) {
    const int64_t c = std::min(block, channels - depthwiseChannels);
    for (int64_t q = 0; 2 * q < taps; ++q)
      for (int64_t channel : unpacked)
        for (int64_t tap = 2 * q; tap < 2 * q + 2; ++tap)
          *to++ = tap < taps ? from[(c + channel) * taps + tap] : int16_t(0);
  }
}

#else

const ByteKernels *gemm::pairKernels() { return nullptr; }
const ByteKernels *gemm::quadKernels() { return nullptr; }
void gemm::depthwisePixel(const DepthwisePixel &) {}
void gemm::packDepthwise(const int16_t *, int64_t, int64_t, int16_t *) {}
void gemm::widenBytes(const void *, bool, int64_t, int16_t *) {}

#endif
