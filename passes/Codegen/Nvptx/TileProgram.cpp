//===- TileProgram.cpp - Products and attention as tile programs ----------===//
#include "passes/Codegen/Nvptx/TileProgram.h"

#include "llvm/Support/raw_ostream.h"

#include <limits>

using namespace partita;
using namespace partita::codegen;

static int64_t blocksOf(int64_t size, int64_t tile) { return (size + tile - 1) / tile; }

size_t TileProgram::summedDim(const TileStep &product) const {
  const Tile &a = tiles[static_cast<size_t>(product.a)];
  const Tile &to = tiles[static_cast<size_t>(product.to)];
  return a.rows == to.rows ? a.columns : a.rows;
}

bool TileProgram::isLoadedInLoop(int tile) const {
  return llvm::any_of(loop, [&](const TileStep &step) {
    return step.kind == TileStep::Load && step.to == tile;
  });
}

int64_t TileProgram::grid(const KernelSpec &kernel) const {
  int64_t blocks = 1;
  for (auto [size, dim] : llvm::zip_equal(kernel.domain, dims))
    blocks *= dim.role == TileDim::Grid ? blocksOf(size, dim.tile) : 1;
  return blocks;
}

std::string TileProgram::text() const {
  static const char *roles[] = {"grid", "loop", "whole"};
  static const char *memories[] = {"shared", "registers", "rows"};
  static const char *kinds[] = {"load",   "keep", "fill",  "product", "nodes",
                                "max",    "sum",  "decay", "exp",     "scale",
                                "divide", "copy", "store"};
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "threads " << threads() << (isMma ? " mma" : " fma") << " stages " << stages;
  for (const TileDim &dim : dims)
    os << " " << roles[dim.role] << ":" << dim.tile;
  os << "\n";
  for (const Tile &tile : tiles)
    os << "  " << tile.name << " " << memories[tile.memory] << " " << name(tile.type)
       << "\n";
  auto print = [&](const char *when, const std::vector<TileStep> &steps) {
    for (const TileStep &step : steps) {
      os << "  " << when << " " << kinds[step.kind];
      for (int tile : {step.to, step.a, step.b})
        if (tile >= 0)
          os << " " << tiles[static_cast<size_t>(tile)].name;
      if (step.operand >= 0)
        os << " #" << step.operand;
      os << "\n";
    }
  };
  print("before", before), print("loop", loop), print("after", after);
  return text;
}

static bool isHalf(DType type) { return type == DType::F16 || type == DType::BF16; }

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

bool codegen::isTileProduct(const task::MatMul &product) {
  auto type = static_cast<DType>(product.dtype);
  return (type == DType::F32 || isHalf(type)) && product.bias_mask == 0 &&
         product.post.empty() && !product.b_packed && !product.a_dtype &&
         !product.b_dtype && product.m > 0 && product.n > 0 && product.k > 0;
}

ProductTiles codegen::tilesFor(const task::MatMul &product) {
  // Multiprocessors of a large GPU.
  constexpr int64_t processors = 132;
  int64_t batch = 1;
  for (const task::BatchDim &dim : product.batch)
    batch *= dim.size;
  auto blocks = [&](int64_t m, int64_t n) {
    return batch * blocksOf(product.m, m) * blocksOf(product.n, n);
  };
  // A block of 128 × 256 has a multiprocessor for itself: with fewer than three for each,
  // the last ones would leave too many without work.
  const bool isLarge = blocks(128, 256) >= 3 * processors;
  const bool isMiddle = blocks(128, 128) >= processors;
  if (isHalf(static_cast<DType>(product.dtype)))
    return isLarge    ? ProductTiles{128, 256, 64, 2, 4, 3, 1}
           : isMiddle ? ProductTiles{128, 128, 32, 2, 2, 3, 2}
                      : ProductTiles{64, 64, 32, 2, 2, 3, 2};
  // Two blocks of 128 × 128 at once would spill registers.
  return isLarge    ? ProductTiles{128, 256, 16, 2, 4, 2, 1}
         : isMiddle ? ProductTiles{128, 128, 16, 2, 4, 2, 1}
                    : ProductTiles{64, 64, 16, 2, 2, 2, 2};
}

TileKernel codegen::tileProduct(const task::MatMul &p, const ProductTiles &tiles,
                                std::string name) {
  TileKernel made{std::move(name), {}, {}};
  KernelSpec &kernel = made.kernel;
  auto type = static_cast<DType>(p.dtype);
  KernelOperand a, b, c;
  a.type = b.type = c.type = type;
  for (const task::BatchDim &dim : p.batch) {
    kernel.domain.push_back(dim.size);
    a.strides.push_back(dim.a), b.strides.push_back(dim.b), c.strides.push_back(dim.c);
  }
  const size_t m = p.batch.size(), n = m + 1, k = m + 2;
  kernel.domain.insert(kernel.domain.end(), {p.m, p.n, p.k});
  kernel.rowDims = 3;
  a.strides.insert(a.strides.end(), {p.a_row, 0, p.a_col});
  b.strides.insert(b.strides.end(), {0, p.b_col, p.b_row});
  c.strides.insert(c.strides.end(), {p.c_row, 1, 0});
  kernel.operands = {a, b}, kernel.outputs = {c};
  TileProgram &program = made.program;
  program.dims.assign(p.batch.size(), {});
  program.dims.insert(
      program.dims.end(),
      {{TileDim::Grid, tiles.m}, {TileDim::Grid, tiles.n}, {TileDim::Loop, tiles.k}});
  program.tiles = {{Tile::Shared, "a", type, m, k},
                   {Tile::Shared, "b", type, k, n},
                   {Tile::Registers, "c", DType::F32, m, n}};
  program.before = {{.kind = TileStep::Fill, .to = 2}};
  program.loop = {{.kind = TileStep::Load, .to = 0, .operand = 0},
                  {.kind = TileStep::Load, .to = 1, .operand = 1},
                  {.kind = TileStep::Product, .to = 2, .a = 0, .b = 1}};
  program.after = {{.kind = TileStep::Store, .a = 2, .operand = 0}};
  program.isMma = isHalf(type);
  program.warpRows = tiles.warpRows, program.warpColumns = tiles.warpColumns;
  program.stages = tiles.stages, program.residentBlocks = tiles.residentBlocks;
  return made;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

bool codegen::isTileAttention(const KernelSpec &kernel) {
  if (!kernel.attention || kernel.attention->isGradient())
    return false;
  DType type = kernel.operands[0].type;
  const int64_t *inner = kernel.domain.data() + kernel.numOuter();
  return (type == DType::F32 || isHalf(type)) && kernel.operands[1].type == type &&
         kernel.operands[2].type == type && inner[0] <= widestTileHead &&
         inner[1] <= widestTileHead && llvm::none_of(kernel.nodes, isChecked);
}

/// The roles and tiles of an attention's dims, and its warps. By tensor cores a warp has
/// 32 rows of the result, so that a fragment of keys or values serves two products; of
/// wide heads, or few queries, 16.
static void divide(const KernelSpec &kernel, TileProgram &program) {
  const size_t depth = kernel.numOuter(), width = depth + 1, queries = depth + 2;
  auto rounded = [&](size_t dim) { return blocksOf(kernel.domain[dim], 16) * 16; };
  program.isMma = isHalf(kernel.operands[0].type);
  const bool isWide = std::max(rounded(depth), rounded(width)) > 64;
  const int64_t queryTile = kernel.domain[queries] <= 64 && program.isMma ? 64 : 128;
  program.warpRows = program.isMma && isWide && queryTile == 128 ? 8 : 4;
  program.dims.assign(depth, {});
  program.dims.insert(program.dims.end(), {{TileDim::Whole, rounded(depth)},
                                           {TileDim::Whole, rounded(width)},
                                           {TileDim::Grid, queryTile},
                                           {TileDim::Loop, program.isMma ? 64 : 32}});
}

TileKernel codegen::tileAttention(const KernelSpec &kernel, std::string name) {
  TileKernel made{std::move(name), kernel, {}};
  made.kernel.scratchBytes = 0;
  TileProgram &program = made.program;
  divide(kernel, program);
  const size_t depth = kernel.numOuter(), width = depth + 1, queries = depth + 2,
               keys = depth + 3;
  DType type = kernel.operands[0].type;
  enum { Q, K, V, S, O, Top, Next, Sum, Shrink, P };
  program.tiles = {{Tile::Shared, "q", type, queries, depth},
                   {Tile::Shared, "k", type, keys, depth},
                   {Tile::Shared, "v", type, keys, width},
                   {Tile::Registers, "s", DType::F32, queries, keys},
                   {Tile::Registers, "o", DType::F32, queries, width},
                   {Tile::Rows, "top", DType::F32, queries},
                   {Tile::Rows, "next", DType::F32, queries},
                   {Tile::Rows, "sum", DType::F32, queries},
                   {Tile::Rows, "shrink", DType::F32, queries}};
  program.before = {{.kind = TileStep::Load, .to = Q, .operand = 0},
                    {.kind = TileStep::Fill, .to = O},
                    {.kind = TileStep::Fill,
                     .to = Top,
                     .value = -std::numeric_limits<double>::infinity()},
                    {.kind = TileStep::Fill, .to = Sum}};
  program.loop = {{.kind = TileStep::Load, .to = K, .operand = 1},
                  {.kind = TileStep::Load, .to = V, .operand = 2},
                  {.kind = TileStep::Fill, .to = S},
                  {.kind = TileStep::Product, .to = S, .a = Q, .b = K},
                  {.kind = TileStep::Nodes, .to = S},
                  {.kind = TileStep::MaxRows, .to = Next, .a = Top, .b = S},
                  {.kind = TileStep::Decay, .to = Shrink, .a = Top, .b = Next},
                  {.kind = TileStep::Exp, .to = S, .a = Next},
                  {.kind = TileStep::Scale, .to = Sum, .a = Shrink},
                  {.kind = TileStep::SumRows, .to = Sum, .b = S},
                  {.kind = TileStep::Scale, .to = O, .a = Shrink}};
  int weights = S;
  if (!program.isMma) { // a thread lacks the other elements of its rows
    program.tiles.push_back({Tile::Shared, "p", DType::F32, queries, keys});
    program.loop.push_back({.kind = TileStep::Keep, .to = P, .a = S});
    weights = P;
  }
  program.loop.push_back({.kind = TileStep::Product, .to = O, .a = weights, .b = V});
  program.loop.push_back({.kind = TileStep::Copy, .to = Top, .a = Next});
  program.after = {{.kind = TileStep::Divide, .to = O, .a = Sum},
                   {.kind = TileStep::Store, .a = O, .operand = 0}};
  const int statistics[] = {Top, Sum};
  for (size_t o = 1; o < kernel.outputs.size(); ++o)
    program.after.push_back({.kind = TileStep::Store,
                             .a = statistics[o - 1],
                             .operand = static_cast<int>(o)});
  return made;
}
