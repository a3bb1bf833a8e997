//===- BlockAvx2.cpp - Weights of 4 bits, for AVX2 and FMA ----------------===//
#include "BlockTiles.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

#include <immintrin.h>

namespace {
/// A mask leaves number i times 16^i, which saves a shift. The last one would be
/// negative.
struct Numbers {
  static constexpr int width = 8;
  using Vector = VectorOf<width>;
  using Ints = int32_t __attribute__((vector_size(4 * width)));

  static Vector real(WordsOf<width> numbers) {
    return __builtin_convertvector(reinterpret_cast<Ints>(numbers), Vector);
  }
  static Vector graded(WordsOf<width> words, int i) {
    return real(i == 7 ? words >> 28 : words & (15u << 4 * i));
  }
  static Vector plain(WordsOf<width> words, int i) { return real(words >> 4 * i & 15u); }
};
template <int rows, int panels> constexpr auto tile = addBlocks<Numbers, rows, panels>;

/// Two products of a number below 16 and a byte are at most 3810 together, so that those
/// of four groups stay in 16 bits.
struct Bytes {
  static constexpr int width = 8, groups = 4, chains = 1;
  using Part = int16_t __attribute__((vector_size(4 * width)));
  using Ints = int32_t __attribute__((vector_size(4 * width)));

  static Part add(Part to, WordsOf<width> numbers, const int8_t *row) {
    int32_t four;
    __builtin_memcpy(&four, row, sizeof(four));
    return to + reinterpret_cast<Part>(_mm256_maddubs_epi16(
                    reinterpret_cast<__m256i>(numbers), _mm256_set1_epi32(four)));
  }
  static Ints widen(Part sums) {
    return reinterpret_cast<Ints>(
        _mm256_madd_epi16(reinterpret_cast<__m256i>(sums), _mm256_set1_epi16(1)));
  }
};
template <int rows, int panels>
constexpr auto byteTile = addByteBlocks<Bytes, rows, panels>;

using Group = VectorOf<groupSize>;
using GroupInts = int32_t __attribute__((vector_size(4 * groupSize)));

/// The largest magnitude of a block. Its bits are compared: those of infinities, and of
/// what is no number, are larger than all others.
uint32_t largestOf(const float *from, int64_t groups) {
  GroupInts most = {};
  for (int64_t g = 0; g < groups; ++g) {
    const auto bits =
        reinterpret_cast<GroupInts>(loadFrom<groupSize>(from + g * groupSize)) &
        INT32_MAX;
    most = bits > most ? bits : most;
  }
  int32_t largest = 0;
  for (int i = 0; i < groupSize; ++i)
    largest = most[i] > largest ? most[i] : largest;
  return static_cast<uint32_t>(largest);
}

/// Numbers times `factor` as bytes. Returns the sum of these.
int32_t roundBlock(const float *from, int64_t groups, float factor, int8_t *to) {
  using Eight = int8_t __attribute__((vector_size(groupSize)));
  GroupInts sums = {};
  for (int64_t g = 0; g < groups; ++g) {
    const Group scaled = loadFrom<groupSize>(from + g * groupSize) * factor;
    const auto near =
        reinterpret_cast<GroupInts>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(scaled)));
    const Eight bytes = __builtin_convertvector(near, Eight);
    const Eight inOrder = __builtin_shufflevector(bytes, bytes, 0, 2, 4, 6, 1, 3, 5, 7);
    __builtin_memcpy(to + g * groupSize, &inOrder, sizeof(inOrder));
    sums += near;
  }
  int32_t sum = 0;
  for (int i = 0; i < groupSize; ++i)
    sum += sums[i];
  return sum;
}

} // namespace

void gemm::roundRow(const RoundRow &row) {
  constexpr uint32_t infinity = 0x7f800000;
  const int64_t block = row.groups * groupSize;
  for (int64_t b = 0; b < row.blocks; ++b) {
    const float *from = row.from + b * block;
    const uint32_t bits = largestOf(from, row.groups);
    const auto largest = __builtin_bit_cast(float, bits);
    const bool isNumber = bits < infinity, isZero = largest < smallestBlock;
    const float factor = isZero || !isNumber ? 0 : 127 / largest;
    row.scales[b] = !isNumber ? __builtin_nanf("") : isZero ? 0 : largest / 127;
    if (factor == 0)
      __builtin_memset(row.to + b * block, 0, static_cast<size_t>(block));
    row.sums[b] = factor == 0 ? 0
                              : static_cast<float>(roundBlock(from, row.groups, factor,
                                                              row.to + b * block));
  }
}

const BlockKernels gemm::blocksAvx2 = {0,
                                       true,
                                       4,
                                       {2, 1, 1, 1},
                                       {{tile<1, 1>, tile<1, 2>},
                                        {tile<2, 1>, tile<2, 1>},
                                        {tile<3, 1>, tile<3, 1>},
                                        {tile<4, 1>, tile<4, 1>}},
                                       unpackBlock<Numbers>,
                                       "blocks:avx2"};

const BlockKernels gemm::byteBlocksAvx2 = {0,
                                           false,
                                           4,
                                           {2, 1, 1, 1},
                                           {{byteTile<1, 1>, byteTile<1, 2>},
                                            {byteTile<2, 1>, byteTile<2, 1>},
                                            {byteTile<3, 1>, byteTile<3, 1>},
                                            {byteTile<4, 1>, byteTile<4, 1>}},
                                           nullptr,
                                           "byte blocks:avx2"};

#endif
