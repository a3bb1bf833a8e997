//===- BlockMatMul.cpp - Products with weights of 4 bits ------------------===//
//
// Few rows take as long as the weight takes to come from memory, so numbers are unpacked
// on their way to the multipliers, once for all rows, and a block's sum is scaled. Of
// many rows, a part of some panels is unpacked to f32 in the first-level cache and
// multiplied by the tiles of other products.
//
//===----------------------------------------------------------------------===//
#include "BlockKernels.h"
#include "Blocks.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Team.h"

#include <cstring>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

#if defined(__x86_64__)

namespace {

/// Blocks whose scales and zero points are brought together at a time.
constexpr int64_t blocksTogether = 16;
/// Rows of the left operand that are packed at a time, for many rows.
constexpr int64_t rowsTogether = 240;
/// Largest block of rows of bytes, of which sums are integers of f32.
constexpr int64_t mostOfByteBlock = 1 << 16;

/// Numbers `step` apart, less one.
template <typename T>
void readColumns(const T *from, int64_t step, int64_t count, float less, float *to) {
  if (step == 1)
    for (int64_t j = 0; j < count; ++j)
      to[j] = static_cast<float>(from[j]) - less;
  else
    for (int64_t j = 0; j < count; ++j)
      to[j] = static_cast<float>(from[j * step]) - less;
}

/// Numbers of each block and column, or one for all.
struct PerBlock {
  const void *at = nullptr;
  bool isBytes = false;
  int64_t block = 0, column = 0; ///< strides
  float fallback = 0;

  /// Numbers of `count` columns of a block less `less`, and zeros up to `width`.
  void get(int64_t inBlock, int64_t first, int64_t count, int64_t width, float less,
           float *to) const {
    const int64_t place = inBlock * block + first * column;
    if (!at)
      std::fill(to, to + count, fallback - less);
    else if (isBytes)
      readColumns(static_cast<const uint8_t *>(at) + place, column, count, less, to);
    else
      readColumns(static_cast<const float *>(at) + place, column, count, less, to);
    std::fill(to + count, to + width, 0.0f);
  }
};

class BlockProduct final : public Call {
public:
  BlockProduct(const task::BlockMatMul &params, const BlockKernels &kernel,
               const WinogradKernels &tiles);
  Expected<void> pack(const void *raw, void *packed) const override;
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return std::make_unique<Packed>(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return kernel.name; }

private:
  struct Packed : Weight {
    const uint8_t *at;
    explicit Packed(const void *at) : at(static_cast<const uint8_t *>(at)) {}
  };
  /// Addresses of a run.
  struct Run {
    const float *a;
    const uint8_t *b;
    float *c, *scratch;
    PerBlock scales, zeros;
  };
  /// Columns of some panels; `width` counts those that are not there.
  struct Columns {
    int64_t panel, width, columns;
  };
  /// Scales and zero points of some blocks and columns.
  struct Scaled {
    alignas(64) float scales[blocksTogether * mostPanels * panelColumns];
    alignas(64) float zeros[blocksTogether * mostPanels * panelColumns];
  };
  bool takesBytes() const { return !kernel.unpack; }
  /// Says whether rows are multiplied by tiles that unpack numbers.
  bool unpacksInTiles() const { return takesBytes() || p.m <= mostRows; }
  int64_t rowsAtOnce() const { return std::min(p.m, rowsTogether); }
  /// Elements of scratch for the left operand: rows, of which four bytes are one, and of
  /// each block of a row its sum and its scale.
  int64_t leftElements() const { return rowsAtOnce() * k / (takesBytes() ? 4 : 1); }
  int64_t blockElements() const { return rowsAtOnce() * p.blocks; }
  int64_t rowBytes() const {
    const int64_t elements =
        unpacksInTiles() ? leftElements() + (takesBytes() ? 2 : 1) * blockElements()
                         : rowsAtOnce() * depthBlocks * leftStep();
    return ceilDiv(4 * elements, 64) * 64;
  }
  void prepareRows(const Run &run, int64_t first, int64_t rows) const;
  /// Says whether zero points differ from what kernels take off.
  bool hasZeros(const Run &run) const {
    return run.zeros.at || kernel.center != run.zeros.fallback;
  }
  /// Panels of a wide tile: of all tiles, where some rows have several.
  int64_t panelsTogether(int64_t rows) const {
    return kernel.panelsAt[ceilDiv(rows, ceilDiv(rows, kernel.rows)) - 1];
  }
  int64_t leftStep() const { return depth + panelColumns; }
  void multiplyRows(const Run &run, int64_t first, int64_t rows) const;
  void byTiles(const Run &run, int64_t first, int64_t rows, int64_t panel,
               int64_t count) const;
  void getScales(const Run &run, const Columns &at, Span blocks, Scaled &to) const;
  void addTile(const Run &run, const Columns &at, Span rows, Span blocks,
               const Scaled &scaled, bool isWide, float *sums) const;
  void packRows(const Run &run, int64_t first, int64_t rows) const;
  void unpack(const Run &run, int64_t panel, int64_t count, Span summands,
              float *to) const;
  void manyRows(const Run &run, int64_t first, int64_t rows, int64_t panel,
                int64_t count) const;

  task::BlockMatMul p;
  const BlockKernels &kernel;
  const WinogradKernels &tiles;
  int64_t k, panels, panelBytes;
  int64_t depth; ///< summands of a part of a panel, for many rows
  int64_t depthBlocks;
};

} // namespace

BlockProduct::BlockProduct(const task::BlockMatMul &params, const BlockKernels &kernel,
                           const WinogradKernels &tiles)
    : p(params), kernel(kernel), tiles(tiles), k(p.blocks * p.block),
      panels(ceilDiv(p.n, panelColumns)), panelBytes(k / groupSize * groupBytes),
      depth(std::min(k, tileDepth / tiles.panels / groupSize * groupSize)),
      depthBlocks(ceilDiv(k, depth)) {
  memory.scratch = static_cast<uint64_t>(rowBytes());
  if (!p.b_packed) {
    memory.scratch += static_cast<uint64_t>(panels * panelBytes);
    return;
  }
  memory.packed = static_cast<uint64_t>(panels * panelBytes);
  weightForm = {"u4 " + std::to_string(p.n) + " " + std::to_string(p.blocks) + " " +
                    std::to_string(p.block),
                "words in panels of " + std::to_string(panelColumns)};
}

Expected<void> BlockProduct::pack(const void *raw, void *packed) const {
  auto *from = static_cast<const uint8_t *>(raw);
  auto *to = static_cast<uint8_t *>(packed);
  const int64_t groups = k / groupSize, columnBytes = k / 2;
  runtime::runRanges(panels, panelBytes, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t j = 0; j < panelColumns; ++j) {
          const int64_t column = panel * panelColumns + j;
          uint8_t *at = to + panel * panelBytes + g * groupBytes + 4 * j;
          if (column < p.n)
            std::memcpy(at, from + column * columnBytes + 4 * g, 4);
          else
            std::memset(at, 0, 4);
        }
  });
  return {};
}

bool BlockProduct::run(Frame &, std::span<void *const> operands,
                       const Weight *weight) const noexcept {
  auto *own = static_cast<uint8_t *>(operands[task::BlockMatMulScratch]) + rowBytes();
  if (!weight)
    (void)pack(operands[task::BlockMatMulB], own);
  const Run run{static_cast<const float *>(operands[task::BlockMatMulA]),
                weight ? static_cast<const Packed *>(weight)->at : own,
                static_cast<float *>(operands[task::BlockMatMulC]),
                static_cast<float *>(operands[task::BlockMatMulScratch]),
                {operands[task::BlockMatMulScales], false, p.scale_block, p.scale_col},
                {p.zero_dtype ? operands[task::BlockMatMulZeros] : nullptr,
                 p.zero_dtype == PARTITA_DTYPE_U8, p.zero_block, p.zero_col, 8}};
  for (int64_t first = 0; first < p.m; first += rowsTogether)
    multiplyRows(run, first, std::min(rowsTogether, p.m - first));
  return true;
}

void BlockProduct::multiplyRows(const Run &run, int64_t first, int64_t rows) const {
  const bool isTiled = unpacksInTiles();
  const int64_t together = isTiled ? panelsTogether(rows) : tiles.panels;
  if (isTiled)
    prepareRows(run, first, rows);
  else
    packRows(run, first, rows);
  runtime::runRanges(ceilDiv(panels, together),
                     together * panelColumns * k *
                         (isTiled ? ceilDiv(rows, mostRows) : rows),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t u = begin; u < end; ++u) {
                         const int64_t panel = u * together;
                         const int64_t count = std::min(together, panels - panel);
                         if (isTiled)
                           byTiles(run, first, rows, panel, count);
                         else
                           manyRows(run, first, rows, panel, count);
                       }
                     });
}

/// Eight sums side by side, then theirs.
static float sumOf(const float *from, int64_t count) {
  float sums[groupSize] = {};
  for (int64_t e = 0; e < count; e += groupSize)
    for (int64_t j = 0; j < groupSize; ++j)
      sums[j] += from[e + j];
  for (int64_t half = groupSize / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j)
      sums[j] += sums[j + half];
  return sums[0];
}

/// Some rows as tiles want them, and behind them the sums of their blocks, and scales.
void BlockProduct::prepareRows(const Run &run, int64_t first, int64_t rows) const {
  constexpr float grade[groupSize] = {1,        0x1p-4f,  0x1p-8f,  0x1p-12f,
                                      0x1p-16f, 0x1p-20f, 0x1p-24f, 1};
  float *sums = run.scratch + leftElements(), *scales = sums + blockElements();
  auto prepare = [&](int64_t i) {
    const float *from = run.a + (first + i) * p.a_row;
    if (takesBytes())
      return roundRow({from, p.blocks, p.block / groupSize,
                       reinterpret_cast<int8_t *>(run.scratch) + i * k,
                       sums + i * p.blocks, scales + i * p.blocks});
    float *to = run.scratch + i * k;
    for (int64_t b = 0; hasZeros(run) && b < p.blocks; ++b)
      sums[i * p.blocks + b] = sumOf(from + b * p.block, p.block);
    for (int64_t e = 0; e < k; ++e)
      to[e] = kernel.isGraded ? from[e] * grade[e % groupSize] : from[e];
  };
  runtime::runRanges(rows, k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      prepare(i);
  });
}

/// Some rows of some panels of the result: as many as wide tiles have, or the last ones.
void BlockProduct::byTiles(const Run &run, int64_t first, int64_t rows, int64_t panel,
                           int64_t count) const {
  static_assert(mostRows * mostPanels <= 2 * rowsTogether);
  alignas(
      64) float sums[2 * rowsTogether * panelColumns]; // two panels at most of many rows
  Scaled scaled;
  const int64_t rowTiles = ceilDiv(rows, kernel.rows);
  const bool isWide = count == panelsTogether(rows);
  for (int64_t end = panel + count; panel < end; panel += isWide ? count : 1) {
    const int64_t width = (isWide ? count : 1) * panelColumns;
    const int64_t column = panel * panelColumns, columns = std::min(width, p.n - column);
    const Columns at{panel, width, columns};
    std::fill(sums, sums + rows * width, 0.0f);
    for (int64_t b = 0; b < p.blocks; b += blocksTogether) {
      const Span blocks{b, std::min(b + blocksTogether, p.blocks)};
      getScales(run, at, blocks, scaled);
      for (int64_t t = 0; t < rowTiles; ++t)
        addTile(run, at, blockOf(rows, t, rowTiles), blocks, scaled, isWide, sums);
    }
    for (int64_t i = 0; i < rows; ++i)
      std::copy(sums + i * width, sums + i * width + columns,
                run.c + (first + i) * p.c_row + column);
  }
}

void BlockProduct::getScales(const Run &run, const Columns &at, Span blocks,
                             Scaled &to) const {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t place = (b - blocks.begin) * at.width, column = at.panel * panelColumns;
    run.scales.get(b, column, at.columns, at.width, 0, to.scales + place);
    if (hasZeros(run))
      run.zeros.get(b, column, at.columns, at.width, kernel.center, to.zeros + place);
  }
}

/// Adds what some blocks give to the sums of some rows.
void BlockProduct::addTile(const Run &run, const Columns &at, Span rows, Span blocks,
                           const Scaled &scaled, bool isWide, float *sums) const {
  const int64_t bytes = takesBytes() ? 1 : static_cast<int64_t>(sizeof(float));
  const float *perBlock =
      run.scratch + leftElements() + rows.begin * p.blocks + blocks.begin;
  const BlockTile tile{blocks.size(),
                       p.block / groupSize,
                       reinterpret_cast<const char *>(run.scratch) +
                           (rows.begin * k + blocks.begin * p.block) * bytes,
                       k * bytes,
                       perBlock,
                       perBlock + blockElements(),
                       p.blocks,
                       run.b + at.panel * panelBytes +
                           blocks.begin * p.block / groupSize * groupBytes,
                       panelBytes,
                       scaled.scales,
                       hasZeros(run) ? scaled.zeros : nullptr,
                       sums + rows.begin * at.width};
  kernel.tile[rows.size() - 1][isWide](tile);
}

/// Some rows by parts of their summands: of each, rows leftStride apart.
void BlockProduct::packRows(const Run &run, int64_t first, int64_t rows) const {
  runtime::runRanges(rows, k, [&](int64_t begin, int64_t end) {
    for (int64_t q = 0; q < depthBlocks; ++q)
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(run.scratch + (q * rows + i) * leftStep(),
                    run.a + (first + i) * p.a_row + q * depth,
                    static_cast<size_t>(4 * std::min(depth, k - q * depth)));
  });
}

/// Summands of some panels, side by side.
void BlockProduct::unpack(const Run &run, int64_t panel, int64_t count, Span summands,
                          float *to) const {
  alignas(64) float scales[panelColumns], zeros[panelColumns];
  for (int64_t j = 0; j < count; ++j) {
    const int64_t column = (panel + j) * panelColumns;
    const int64_t columns = std::min(panelColumns, p.n - column);
    for (int64_t at = summands.begin; at < summands.end;) {
      const int64_t block = at / p.block;
      const int64_t end = std::min(summands.end, (block + 1) * p.block);
      run.scales.get(block, column, columns, panelColumns, 0, scales);
      run.zeros.get(block, column, columns, panelColumns, 0, zeros);
      kernel.unpack({(end - at) / groupSize,
                     run.b + (panel + j) * panelBytes + at / groupSize * groupBytes,
                     scales, zeros,
                     to + (at - summands.begin) * count * panelColumns + j * panelColumns,
                     count * panelColumns});
      at = end;
    }
  }
}

/// The packed rows times some panels, as many as a tile has at most.
void BlockProduct::manyRows(const Run &run, int64_t first, int64_t rows, int64_t panel,
                            int64_t count) const {
  alignas(64) float right[tileDepth * panelColumns];
  const int64_t column = panel * panelColumns, wide = count * panelColumns;
  const int64_t rowTiles = ceilDiv(rows, tiles.rows);
  for (int64_t q = 0; q < depthBlocks; ++q) {
    const Span summands{q * depth, std::min(k, (q + 1) * depth)};
    unpack(run, panel, count, summands, right);
    for (int64_t t = 0; t < rowTiles; ++t) {
      const Span part = blockOf(rows, t, rowTiles);
      const Tile tile{summands.size(),
                      run.scratch + (q * rows + part.begin) * leftStep(),
                      leftStep(),
                      right,
                      wide,
                      panelColumns,
                      run.c + (first + part.begin) * p.c_row + column,
                      p.c_row,
                      std::min(wide, p.n - column),
                      q > 0,
                      nullptr,
                      nullptr,
                      0};
      tiles.tile[part.size() - 1][count - 1](tile);
    }
  }
}

/// Says whether the sizes are numbers: a table may say what no program has.
static bool isCountable(const task::BlockMatMul &p) {
  double summands = double(p.blocks) * double(p.block);
  return summands * double(p.n) < 1e15 && summands * double(p.m) < 1e15;
}

/// Kernels for rows of bytes.
static const BlockKernels &byteKernels(bool isWide) {
  return isWide && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vnni")
             ? byteBlocksVnni
             : byteBlocksAvx2;
}

std::unique_ptr<Call> gemm::blockMatMul(const task::BlockMatMul &p, bool isWide) {
  if (p.block % groupSize != 0 || !isCountable(p) || !__builtin_cpu_supports("avx2") ||
      !__builtin_cpu_supports("fma") || (p.byte_rows && p.block > mostOfByteBlock))
    return nullptr;
  isWide &= __builtin_cpu_supports("avx512f") != 0;
  const BlockKernels &ofReals = isWide ? blocksAvx512 : blocksAvx2;
  return std::make_unique<BlockProduct>(p, p.byte_rows ? byteKernels(isWide) : ofReals,
                                        isWide ? winogradAvx512 : winogradAvx2);
}

#else

std::unique_ptr<Call> gemm::blockMatMul(const task::BlockMatMul &, bool) {
  return nullptr;
}

#endif
