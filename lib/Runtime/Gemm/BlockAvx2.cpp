//===- BlockAvx2.cpp - Weights of 4 bits, for AVX2 and FMA ----------------===//
#include "BlockTiles.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

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
} // namespace

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

#endif
