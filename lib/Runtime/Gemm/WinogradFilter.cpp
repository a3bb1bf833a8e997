//===- WinogradFilter.cpp - Gradients of filters by Winograd's algorithm --===//
//
// A tile of 2 × 2 results is Aᵀ·[(G·g·Gᵀ) ⊙ (Bᵀ·d·B)]·A, so the gradient by g is the sum
// over tiles of Gᵀ·[(A·y·Aᵀ) ⊙ (Bᵀ·d·B)]·G, with y the tile's cotangent: 16 products of
// [out × tiles] by [tiles × in] in place of 36.
//
// Loops from outer to inner: a block of tiles; its pieces of images and of cotangents; a
// piece, whose products are added to its sums; the panels of input channels; rows of
// output channels. At the end the sums become taps. Each sum has the tiles in their
// order, whatever the threads.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Winograd.h"

#include "WinogradTiles.h"
#include "partita/Runtime/Team.h"

#include <cstring>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

namespace {
/// Tiles of a block: the more, the seldomer all sums are read and written; their pieces
/// are to stay in a second-level cache where channels are few.
constexpr int64_t leastTiles = 64, mostTiles = 192, blockBytes = 1 << 20;

class FilterGradient : public Call {
public:
  FilterGradient(const task::ConvBackwardFilter &params, const WinogradKernels &kernel);
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *) const noexcept override;
  std::string implementation() const override { return kernel.name; }

private:
  /// Addresses of a run.
  struct Run {
    Images src, dst;
    float *images, *cotangents; ///< [pieces][tiles of the block][channels]
    float *turned;              ///< by thread, [out][tiles of the block]
    float *sums;                ///< [pieces][out][in]
    float *filter;
  };
  void readTiles(const Run &run, Span block, Span tiles) const;
  void multiply(const Run &run, Span block, int64_t piece, float *turned) const;
  void writeTaps(const Run &run, Span outputs) const;

  task::ConvBackwardFilter p;
  const WinogradKernels &kernel;
  TileGrid grid;
  int64_t tiles, blocks;
  int64_t imageRow, imagePiece, cotangentRow, cotangentPiece; ///< elements apart
  int64_t turnedRow, sumRow, sumPiece, zeros;
  int parts;
};
} // namespace

FilterGradient::FilterGradient(const task::ConvBackwardFilter &params,
                               const WinogradKernels &kernel)
    : p(params), kernel(kernel), grid(p.spatial[0].out, p.spatial[1].out),
      tiles(p.batch * grid.perImage()) {
  const int64_t in = p.in_channels, out = p.out_channels;
  const int64_t fits =
      std::clamp(blockBytes / (4 * pieces * (in + out)), leastTiles, mostTiles);
  blocks = ceilDiv(tiles, fits);
  const int64_t most = ceilDiv(tiles, blocks);
  // Rows are no power of two apart, or a panel's would lie in few sets of the cache.
  imageRow = ceilDiv(in, panelColumns) * panelColumns + panelColumns;
  cotangentRow = ceilDiv(out, panelColumns) * panelColumns + panelColumns;
  imagePiece = apart(most * imageRow), cotangentPiece = apart(most * cotangentRow);
  turnedRow = ceilDiv(most, 16) * 16 + 16;
  sumRow = ceilDiv(in, panelColumns) * panelColumns;
  sumPiece = apart(out * sumRow);
  zeros = ceilDiv(std::max(in, out), 16) * 16;
  constexpr double worth = 1 << 17; // multiplications, as for products
  const double work = double(in) * double(out) * double(tiles) * pieces;
  parts = static_cast<int>(std::min(double(runtime::teamSize()),
                                    std::clamp(work / worth, 1.0, double(pieces))));
  memory.scratch =
      static_cast<uint64_t>(4 * (pieces * (imagePiece + cotangentPiece + sumPiece) +
                                 parts * out * turnedRow + zeros));
}

bool FilterGradient::run(Frame &, std::span<void *const> operands,
                         const Weight *) const noexcept {
  auto *scratch = static_cast<float *>(operands[task::BackwardScratch]);
  float *zero = scratch + pieces * (imagePiece + cotangentPiece + sumPiece) +
                parts * p.out_channels * turnedRow;
  std::memset(zero, 0, static_cast<size_t>(4 * zeros));
  const task::SpatialDim &height = p.spatial[0], &width = p.spatial[1];
  Run run{{static_cast<const float *>(operands[task::BackwardSrc]), height.in, width.in,
           p.in_channels, zero},
          {static_cast<const float *>(operands[task::BackwardDst]), height.out, width.out,
           p.out_channels, zero},
          scratch,
          scratch + pieces * imagePiece,
          scratch + pieces * (imagePiece + cotangentPiece + sumPiece),
          scratch + pieces * (imagePiece + cotangentPiece),
          static_cast<float *>(operands[task::BackwardFilter])};
  for (int64_t b = 0; b < blocks; ++b) {
    const Span block = blockOf(tiles, b, blocks);
    runtime::runParts(parts, [&](int part) {
      readTiles(run, block,
                {block.begin + runtime::partBegin(block.size(), part, parts),
                 block.begin + runtime::partBegin(block.size(), part + 1, parts)});
    });
    runtime::runParts(parts, [&](int part) {
      float *turned = run.turned + part * p.out_channels * turnedRow;
      for (int64_t piece = runtime::partBegin(pieces, part, parts);
           piece < runtime::partBegin(pieces, part + 1, parts); ++piece)
        multiply(run, block, piece, turned);
    });
  }
  runtime::runParts(parts, [&](int part) {
    writeTaps(run, {runtime::partBegin(p.out_channels, part, parts),
                    runtime::partBegin(p.out_channels, part + 1, parts)});
  });
  return true;
}

void FilterGradient::readTiles(const Run &run, Span block, Span tiles) const {
  const int64_t first = tiles.begin - block.begin;
  Patch image{{}, p.in_channels, run.images + first * imageRow, imagePiece};
  Patch cotangent{
      {}, p.out_channels, run.cotangents + first * cotangentRow, cotangentPiece};
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    Position at = grid.at(tile);
    for (int64_t i = 0; i < tileSide * tileSide; ++i)
      cotangent.pixel[i] =
          run.dst.pixel(at.image, at.row + i / tileSide, at.column + i % tileSide);
    kernel.cotangent(cotangent);
    at.row -= p.spatial[0].padBegin, at.column -= p.spatial[1].padBegin;
    run.src.takePatch(at, image);
    kernel.patch(image);
    image.to += imageRow, cotangent.to += cotangentRow;
  }
}

/// Adds the block's products of a piece to its sums.
void FilterGradient::multiply(const Run &run, Span block, int64_t piece,
                              float *turned) const {
  kernels()->transpose(block.size(), p.out_channels,
                       run.cotangents + piece * cotangentPiece, cotangentRow, turned,
                       turnedRow);
  for (int64_t from = 0; from < sumRow; from += kernel.panels * panelColumns) {
    const int64_t columns = std::min(kernel.panels * panelColumns, sumRow - from);
    Tile tile{block.size(),
              turned,
              turnedRow,
              run.images + piece * imagePiece + from,
              imageRow,
              panelColumns,
              run.sums + piece * sumPiece + from,
              sumRow,
              columns,
              block.begin > 0,
              nullptr,
              nullptr,
              0};
    for (int64_t row = 0; row < p.out_channels; row += kernel.rows) {
      const int64_t rows = std::min(kernel.rows, p.out_channels - row);
      kernel.tile[rows - 1][columns > panelColumns](tile);
      tile.a += rows * turnedRow;
      tile.c += rows * sumRow;
    }
  }
}

void FilterGradient::writeTaps(const Run &run, Span outputs) const {
  for (int64_t o = outputs.begin; o < outputs.end; ++o)
    kernel.taps({run.sums + o * sumRow, sumPiece, p.in_channels,
                 run.filter + o * p.in_channels * 9});
}

std::unique_ptr<Call> winograd::filterGradient(const task::ConvBackwardFilter &p,
                                               Vectors vectors) {
  const WinogradKernels *kernel = kernelsFor(vectors);
  if (!kernel || !areWindows(p.spatial) || static_cast<DType>(p.dtype) != DType::F32 ||
      p.groups != 1 || p.src_format != PARTITA_FORMAT_CHANNELS_LAST ||
      p.dst_format != PARTITA_FORMAT_CHANNELS_LAST)
    return nullptr;
  return std::make_unique<FilterGradient>(p, *kernel);
}
