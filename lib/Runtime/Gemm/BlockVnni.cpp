//===- BlockVnni.cpp - Weights of 4 bits by rows of bytes, for VNNI -------===//
#include "BlockTiles.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

#include <immintrin.h>

namespace {
/// Four products are added to a sum of 32 bits, which no block fills.
struct Bytes {
  static constexpr int width = 16, groups = 1 << 24, chains = 2;
  using Part = int32_t __attribute__((vector_size(4 * width)));

  static Part add(Part to, WordsOf<width> numbers, const int8_t *row) {
    int32_t four;
    __builtin_memcpy(&four, row, sizeof(four));
    return reinterpret_cast<Part>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(to),
                                                      reinterpret_cast<__m512i>(numbers),
                                                      _mm512_set1_epi32(four)));
  }
  static Part widen(Part sums) { return sums; }
};
template <int rows, int panels> constexpr auto tile = addByteBlocks<Bytes, rows, panels>;
} // namespace

const BlockKernels gemm::byteBlocksVnni = {0,
                                           false,
                                           6,
                                           {4, 4, 2, 2, 2, 2},
                                           {{tile<1, 1>, tile<1, 4>},
                                            {tile<2, 1>, tile<2, 4>},
                                            {tile<3, 1>, tile<3, 2>},
                                            {tile<4, 1>, tile<4, 2>},
                                            {tile<5, 1>, tile<5, 2>},
                                            {tile<6, 1>, tile<6, 2>}},
                                           nullptr,
                                           "byte blocks:vnni"};

#endif
