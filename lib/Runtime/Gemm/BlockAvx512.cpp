//===- BlockAvx512.cpp - Weights of 4 bits, for vectors of 512 bits -------===//
#include "BlockTiles.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

#include <immintrin.h>

namespace {
/// A permutation of 16 numbers is a lookup by the lowest 4 bits.
struct Numbers {
  static constexpr int width = 16;
  using Vector = VectorOf<width>;

  static Vector at(WordsOf<width> words, int i, Vector table) {
    return reinterpret_cast<Vector>(_mm512_permutexvar_ps(
        reinterpret_cast<__m512i>(words >> 4 * i), reinterpret_cast<__m512>(table)));
  }
  static Vector graded(WordsOf<width> words, int i) {
    return at(words, i, Vector{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});
  }
  static Vector plain(WordsOf<width> words, int i) {
    return at(words, i, Vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  }
};
template <int rows, int panels> constexpr auto tile = addBlocks<Numbers, rows, panels>;
} // namespace

const BlockKernels gemm::blocksAvx512 = {8,
                                         false,
                                         8,
                                         {4, 4, 2, 2, 1, 1, 1, 1},
                                         {{tile<1, 1>, tile<1, 4>},
                                          {tile<2, 1>, tile<2, 4>},
                                          {tile<3, 1>, tile<3, 2>},
                                          {tile<4, 1>, tile<4, 2>},
                                          {tile<5, 1>, tile<5, 1>},
                                          {tile<6, 1>, tile<6, 1>},
                                          {tile<7, 1>, tile<7, 1>},
                                          {tile<8, 1>, tile<8, 1>}},
                                         unpackBlock<Numbers>,
                                         "blocks:avx512"};

#endif
