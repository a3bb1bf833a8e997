//===- Avx512.cpp - Micro-kernels for vectors of 512 bits -----------------===//
#include "Tiles.h"
#include "Transforms.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

namespace {
constexpr int width = 16;
template <int rows, int panels> constexpr auto tile = addTile<width, rows, panels>;
} // namespace

const WinogradKernels gemm::winogradAvx512 = {12,
                                              2,
                                              {{tile<1, 1>, tile<1, 2>},
                                               {tile<2, 1>, tile<2, 2>},
                                               {tile<3, 1>, tile<3, 2>},
                                               {tile<4, 1>, tile<4, 2>},
                                               {tile<5, 1>, tile<5, 2>},
                                               {tile<6, 1>, tile<6, 2>},
                                               {tile<7, 1>, tile<7, 2>},
                                               {tile<8, 1>, tile<8, 2>},
                                               {tile<9, 1>, tile<9, 2>},
                                               {tile<10, 1>, tile<10, 2>},
                                               {tile<11, 1>, tile<11, 2>},
                                               {tile<12, 1>, tile<12, 2>}},
                                              filterToPieces,
                                              patchToPieces<width>,
                                              cotangentToPieces<width>,
                                              sumsToTaps<width>,
                                              piecesToPixels<width>,
                                              "winograd:avx512"};

#endif
