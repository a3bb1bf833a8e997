//===- Winograd.cpp - Convolutions of f32 by Winograd's algorithm ---------===//
//
// Loops from outer to inner: a block of tiles, whose pieces fit the second-level cache;
// as many panels of output channels as a micro-kernel takes; the 16 pieces; a block of
// summands; the rows of tiles that a micro-kernel takes at once. So a filter is read in
// the order in which it is packed, once per block, and products are made into pixels
// while they are in cache.
//
// "Tile" is here a tile of the image. The rows of the products are tiles, some of which
// are a strip: what gemm::Tile is.
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

/// Bytes of a block's pieces and of a panel of their products: beside what comes of the
/// filter, they stay in a second-level cache of 256 KiB and are quick to come by again.
constexpr int64_t blockBytes = 208 * 1024;
/// Tiles of a block at least, however many channels they have: with fewer, the filter
/// would come from memory more slowly than it is multiplied.
constexpr int64_t leastTiles = 24;
constexpr const char *packedForm = "winograd 2x2, panels of 16";
static_assert(panelColumns == 16);

/// Strides of a post-op's operand along the dims of the result.
struct Post {
  task::PostOp op;
  size_t operand = 0; ///< among the call's
  int64_t image = 0, row = 0, pixel = 0, channel = 0;
};

struct PackedFilter : Call::Weight {
  const float *at;
  explicit PackedFilter(const void *at) : at(static_cast<const float *>(at)) {}
};

class WinogradConv : public Call {
public:
  WinogradConv(const task::Conv &params, const WinogradKernels &kernel,
               bool isTransposed);
  Expected<void> pack(const void *raw, void *packed) const override;
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return std::make_unique<PackedFilter>(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return kernel.name; }

private:
  /// One thread's part: its addresses, and its scratch.
  struct Part {
    std::span<void *const> operands;
    const float *packed;
    float *left, *sums; ///< pieces of the block's tiles, and their products
    float *zeros;       ///< a pixel outside of the image
  };
  void addPost(const task::PostOp &op, size_t operand);
  int64_t perPart() const { return leftPiece * pieces + sumPiece * pieces + zeros; }
  void packFilter(const float *raw, float *to) const;
  void units(const Part &part, int64_t begin, int64_t end) const;
  void readTiles(const Part &part, Span tiles) const;
  void multiply(const Part &part, Span strips, Span panels) const;
  void writeTiles(const Part &part, Span tiles, Span panels) const;
  void finishRow(const Part &part, const Position &from, int64_t pixels,
                 Span panels) const;
  /// Elements of a panel of the packed filter.
  int64_t panelSize() const { return pieces * p.in_channels * panelColumns; }

  task::Conv p;
  const WinogradKernels &kernel;
  bool isTransposed;
  task::SpatialDim height, width;
  TileGrid grid;
  Geometry sizes;             ///< of the products; their rows are tiles
  int64_t leftRow, leftPiece; ///< elements between tiles, and pieces, of the left
  int64_t sumRow, sumPiece;   ///< the same of the products
  int64_t zeros, groups;      ///< channels of a pixel; of panels
  bool isRelu;
  std::vector<Post> posts;
  int parts = 1;
};

} // namespace

/// A transposed convolution of stride 1 is one with other paddings.
static task::SpatialDim asConv(task::SpatialDim dim, bool isTransposed) {
  if (isTransposed)
    dim.padBegin = dim.kernel - 1 - dim.padBegin;
  return dim;
}

WinogradConv::WinogradConv(const task::Conv &params, const WinogradKernels &kernel,
                           bool isTransposed)
    : p(params), kernel(kernel), isTransposed(isTransposed),
      height(asConv(p.spatial[0], isTransposed)),
      width(asConv(p.spatial[1], isTransposed)), grid(height.out, width.out),
      sizes(p.batch * grid.perImage(), p.out_channels, p.in_channels, kernel.rows),
      sumRow(kernel.panels * panelColumns), groups(ceilDiv(sizes.panels, kernel.panels)),
      isRelu(!p.post.empty() && p.post[0].kind == PARTITA_POST_RELU &&
             p.post[0].alpha == 0) {
  // Rows of several blocks of summands are not a page apart.
  leftRow = ceilDiv(p.in_channels, 8) * 8 + (sizes.depthBlocks > 1 ? 16 : 0);
  int64_t fits = std::max(blockBytes / (4 * pieces * (leftRow + sumRow)), leastTiles);
  sizes.rowBlocks = ceilDiv(sizes.tiles, fits / kernel.rows);
  int64_t most = ceilDiv(sizes.tiles, sizes.rowBlocks) * kernel.rows;
  leftPiece = apart(most * leftRow);
  sumPiece = apart(most * sumRow);
  zeros = ceilDiv(p.in_channels, 16) * 16;
  size_t next = task::ConvPost;
  for (size_t i = 0; i < p.post.size(); ++i) {
    size_t operand = task::isBinary(p.post[i].kind) ? next++ : 0;
    if (i > 0 || !isRelu)
      addPost(p.post[i], operand);
  }
  constexpr double worth = 1 << 17; // multiplications, as for products
  double work = double(sizes.summands) * double(p.out_channels) * pieces *
                double(p.batch * grid.perImage());
  double unitCount = double(sizes.rowBlocks * groups);
  parts = static_cast<int>(
      std::min(double(runtime::teamSize()), std::clamp(work / worth, 1.0, unitCount)));
  memory.scratch = static_cast<uint64_t>(4 * parts * perPart());
  const auto packed = static_cast<uint64_t>(4 * sizes.panels * panelSize());
  if (!p.weights_packed) {
    memory.scratch += packed;
    return;
  }
  memory.packed = packed;
  weightForm = {"f32 filter " + std::to_string(p.out_channels) + " " +
                    std::to_string(p.in_channels),
                packedForm};
}

/// The operand is dense over the dims in the mask, in their order in memory.
void WinogradConv::addPost(const task::PostOp &op, size_t operand) {
  Post post{op, operand};
  int64_t stride = 1;
  auto place = [&](int dim, int64_t size, int64_t &at) {
    if (!(op.mask >> dim & 1))
      return;
    at = stride;
    stride *= size;
  };
  place(1, p.out_channels, post.channel);
  place(3, width.out, post.pixel);
  place(2, height.out, post.row);
  place(0, p.batch, post.image);
  posts.push_back(post);
}

//===----------------------------------------------------------------------===//
// The filter
//===----------------------------------------------------------------------===//

/// A filter is stored [out, in, taps]. The gradient of a convolution's images applies the
/// filter turned by half, which is stored [in, out, taps] then.
void WinogradConv::packFilter(const float *raw, float *to) const {
  constexpr int64_t taps = 9;
  const int64_t column = isTransposed ? taps : p.in_channels * taps;
  const int64_t channel = isTransposed ? p.out_channels * taps : taps;
  runtime::runRanges(sizes.panels, 4 * panelSize(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * panelColumns;
      kernel.filter({raw + first * column, column, channel, isTransposed,
                     std::min(panelColumns, p.out_channels - first), p.in_channels,
                     to + i * panelSize()});
    }
  });
}

Expected<void> WinogradConv::pack(const void *raw, void *packed) const {
  packFilter(static_cast<const float *>(raw), static_cast<float *>(packed));
  return {};
}

//===----------------------------------------------------------------------===//
// The images
//===----------------------------------------------------------------------===//

bool WinogradConv::run(Frame &, std::span<void *const> operands,
                       const Weight *weight) const noexcept {
  auto *scratch = static_cast<float *>(operands[task::ConvScratch]);
  const int64_t unitCount = sizes.rowBlocks * groups;
  const float *packed = weight ? static_cast<const PackedFilter *>(weight)->at : nullptr;
  if (!packed) {
    float *made = scratch + parts * perPart();
    packFilter(static_cast<const float *>(operands[task::ConvWeights]), made);
    packed = made;
  }
  runtime::runParts(parts, [&](int number) {
    float *own = scratch + number * perPart();
    Part part{operands, packed, own, own + pieces * leftPiece,
              own + pieces * (leftPiece + sumPiece)};
    std::memset(part.zeros, 0, static_cast<size_t>(4 * zeros));
    units(part, runtime::partBegin(unitCount, number, parts),
          runtime::partBegin(unitCount, number + 1, parts));
  });
  return true;
}

/// A unit is a group of panels for a block of tiles. Two threads that share a block both
/// make its pieces, which is little beside the products.
void WinogradConv::units(const Part &part, int64_t begin, int64_t end) const {
  while (begin < end) {
    int64_t block = begin / groups, first = begin % groups;
    Span mine{first, std::min(groups, first + end - begin)};
    begin += mine.size();
    Span strips = blockOf(sizes.tiles, block, sizes.rowBlocks);
    Span tiles{sizes.rowOf(strips.begin), sizes.rowOf(strips.end)};
    readTiles(part, tiles);
    for (int64_t group = mine.begin; group < mine.end; ++group) {
      Span panels{group * kernel.panels,
                  std::min(sizes.panels, (group + 1) * kernel.panels)};
      multiply(part, strips, panels);
      writeTiles(part, tiles, panels);
    }
  }
}

void WinogradConv::readTiles(const Part &part, Span tiles) const {
  const Images images{static_cast<const float *>(part.operands[task::ConvSrc]), height.in,
                      width.in, p.in_channels, part.zeros};
  Patch patch{{}, p.in_channels, part.left, leftPiece};
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile, patch.to += leftRow) {
    Position at = grid.at(tile);
    at.row -= height.padBegin;
    at.column -= width.padBegin;
    images.takePatch(at, patch);
    kernel.patch(patch);
  }
}

/// All pieces of the block's tiles by those of the panels' filters.
void WinogradConv::multiply(const Part &part, Span strips, Span panels) const {
  const float *b = part.packed + panels.begin * panelSize();
  const bool isWide = panels.size() > 1;
  for (int64_t piece = 0; piece < pieces; ++piece)
    for (int64_t q = 0; q < sizes.depthBlocks; ++q) {
      Span summands = sizes.summandsOf(q);
      const int64_t depth = summands.size();
      Tile tile{depth,
                part.left + piece * leftPiece + summands.begin,
                leftRow,
                b,
                panelColumns,
                panelSize(),
                part.sums + piece * sumPiece,
                sumRow,
                panels.size() * panelColumns,
                q > 0,
                nullptr,
                nullptr,
                0};
      b += depth * panelColumns;
      // What is multiplied next, as in products of matrices.
      const int64_t lines = depth * panels.size(), share = ceilDiv(lines, strips.size());
      Lines next{b, depth, panelSize(), lines};
      const bool asks = strips.size() < manyTiles;
      tile.next = b;
      for (int64_t strip = strips.begin; strip < strips.end; ++strip) {
        const int64_t rows = sizes.rowsOf(strip);
        // A tile of several panels asks for all of them.
        tile.nextStep = !asks     ? 0
                        : !isWide ? std::max<int64_t>(64 / strips.size(), 1)
                                  : strip == strips.begin;
        if (!asks)
          next.ask(share);
        kernel.tile[rows - 1][isWide](tile);
        tile.a += rows * leftRow;
        tile.c += rows * sumRow;
        tile.next += isWide ? 0 : tile.nextStep * depth / 4;
      }
    }
}

void WinogradConv::writeTiles(const Part &part, Span tiles, Span panels) const {
  const int64_t first = panels.begin * panelColumns;
  auto *dst = static_cast<float *>(part.operands[task::ConvDst]) + first;
  auto *bias =
      p.has_bias ? static_cast<const float *>(part.operands[task::ConvBias]) : nullptr;
  Spread spread{part.sums,
                sumPiece,
                {},
                std::min(panels.size() * panelColumns, p.out_channels - first),
                bias ? bias + first : nullptr,
                p.adds_to_result != 0,
                isRelu};
  for (int64_t tile = tiles.begin; tile < tiles.end;) {
    const Position from = grid.at(tile);
    const int64_t end = std::min(tiles.end, (tile / grid.columns + 1) * grid.columns);
    for (Position at = from; tile < end; ++tile, at.column += tileSide) {
      for (int64_t i = 0; i < 4; ++i) {
        int64_t row = at.row + i / 2, column = at.column + i % 2;
        int64_t pixel = (at.image * height.out + row) * width.out + column;
        bool isInside = row < height.out && column < width.out;
        spread.pixel[i] = isInside ? dst + pixel * p.out_channels : nullptr;
      }
      kernel.spread(spread);
      spread.from += sumRow;
    }
    if (!posts.empty())
      finishRow(part, from, grid.at(end - 1).column + tileSide - from.column, panels);
  }
}

/// The post-ops on panels of the pixels of neighbouring tiles.
void WinogradConv::finishRow(const Part &part, const Position &from, int64_t pixels,
                             Span panels) const {
  auto *dst = static_cast<float *>(part.operands[task::ConvDst]);
  const int64_t lastRow = std::min(from.row + tileSide, height.out);
  const int64_t last = std::min(panels.end * panelColumns, p.out_channels);
  pixels = std::min(pixels, width.out - from.column);
  for (int64_t row = from.row; row < lastRow; ++row) {
    int64_t pixel = (from.image * height.out + row) * width.out + from.column;
    for (int64_t c = panels.begin * panelColumns; c < last; c += panelColumns)
      for (const Post &post : posts) {
        PostStep step{post.op.kind, post.op.alpha, post.op.beta,
                      nullptr,      post.pixel,    post.channel};
        if (post.operand)
          step.y = static_cast<const float *>(part.operands[post.operand]) +
                   from.image * post.image + row * post.row + from.column * post.pixel +
                   c * post.channel;
        kernels()->post(step, pixels, std::min(panelColumns, last - c),
                        dst + pixel * p.out_channels + c, p.out_channels);
      }
  }
}

//===----------------------------------------------------------------------===//
// Which are taken
//===----------------------------------------------------------------------===//

const WinogradKernels *gemm::kernelsFor(winograd::Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == winograd::Vectors::Of512Bits)
    return kernels() && __builtin_cpu_supports("avx512f") ? &winogradAvx512 : nullptr;
  return kernels() ? &winogradAvx2 : nullptr;
#endif
  return nullptr;
}

bool gemm::areWindows(const std::vector<task::SpatialDim> &spatial) {
  return spatial.size() == 2 && std::ranges::all_of(spatial, [](const auto &d) {
           return winograd::isWindow(d.kernel, d.stride, d.dilation);
         });
}

std::unique_ptr<Call> winograd::conv(const task::Conv &p, Vectors vectors,
                                     bool isTransposed) {
  const WinogradKernels *kernel = kernelsFor(vectors);
  if (!kernel || !areWindows(p.spatial) || static_cast<DType>(p.dtype) != DType::F32 ||
      (isTransposed && p.weights_packed) || p.groups != 1 ||
      p.src_format != PARTITA_FORMAT_CHANNELS_LAST ||
      p.dst_format != PARTITA_FORMAT_CHANNELS_LAST)
    return nullptr;
  return std::make_unique<WinogradConv>(p, *kernel, isTransposed);
}

static int64_t pixelsOf(int64_t batch, const std::vector<task::SpatialDim> &spatial) {
  for (const task::SpatialDim &d : spatial)
    batch *= d.out;
  return batch;
}

bool winograd::isWorth(const task::Conv &p) {
  return isWorth(pixelsOf(p.batch, p.spatial), p.in_channels, p.out_channels);
}

bool winograd::isWorth(const task::ConvBackwardFilter &p) {
  return isWorth(pixelsOf(p.batch, p.spatial), p.in_channels, p.out_channels);
}

bool winograd::isForm(const engine::WeightForm &form) {
  return form.packed == packedForm;
}
