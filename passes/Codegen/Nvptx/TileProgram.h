//===- TileProgram.h - A kernel as steps on tiles ---------------*- C++ -*-===//
//
// Says, as data, how blocks of threads compute a kernel whose points are products: which
// dims of its domain are divided among blocks, which one a block goes through, what lies
// in shared memory and what in registers, and in which steps. TileEmitter prints it.
//
//   product                                  attention
//   domain  [batch… | m, n, k]               [outer… | depth, width, queries, keys]
//   grid    batch, m by 128, n by 128        outer, queries by 64
//   loop    k by 32                          keys by 64
//   tiles   a shared, b shared, c registers  q, k, v shared; s, o registers; rows
//   before  c = 0                            load q; o = 0; top = -inf; sum = 0
//   loop    load a, b; c += a·b              load k, v; s = q·kᵀ; s = nodes of s;
//                                            next = max(top, rows of s); …; o += s·v
//   after   store c                          o /= sum; store o, top, sum
//
// A tile is two dims of the domain; what a product sums over is the dim that both of its
// factors have, so transposed operands need no word. What lies behind the end of a dim is
// loaded as zero and not stored.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_TILEPROGRAM_H
#define PARTITA_PASSES_CODEGEN_NVPTX_TILEPROGRAM_H

#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

/// How blocks go through a dim of the domain.
struct TileDim {
  enum Role {
    Grid, ///< a block has one tile of it
    Loop, ///< a block goes from tile to tile; one dim at most
    Whole ///< a tile is all of it, and zeros up to the tile's size
  };
  Role role = Grid;
  int64_t tile = 1; ///< elements
};

struct Tile {
  enum Memory {
    Shared,    ///< of the block, once per stage if it is loaded in the loop
    Registers, ///< f32, spread over the threads of the block
    Rows,      ///< f32, one element per row, in the registers of all who have the row
  };
  Memory memory = Registers;
  std::string name;
  DType type = DType::F32;
  size_t rows = 0, columns = 0; ///< dims of the domain; Rows have no columns
};

/// Step of a program; tiles are numbers in TileProgram::tiles.
struct TileStep {
  enum Kind {
    Load,    ///< tile `to` (Shared) from operand `operand`
    Keep,    ///< tile `to` (Shared) from tile `a` (Registers)
    Fill,    ///< `to` = `value`
    Product, ///< `to` += `a` · `b`; a is Shared, or Registers of halves' products
    Nodes,   ///< `to` = the kernel's logits, of which `to` is the score
    MaxRows, ///< `to` (Rows) = max(`a` (Rows), the largest of each row of `b`)
    SumRows, ///< `to` (Rows) += the sum of each row of `b`
    Decay,   ///< `to` (Rows) = exp(`a` − `b`) (Rows), 0 where a is −∞
    Exp,     ///< `to` = exp(`to` − `a` (Rows)), 0 where `to` is −∞
    Scale,   ///< `to` = `to` · `a` (Rows), `to` being Rows, too, or Registers
    Divide,  ///< `to` = `to` / `a` (Rows)
    Copy,    ///< `to` (Rows) = `a` (Rows)
    Store,   ///< output `operand` from tile `a` (Registers or Rows)
  };
  Kind kind = Fill;
  int to = -1, a = -1, b = -1;
  int operand = -1;
  double value = 0;
};

struct TileProgram {
  std::vector<TileDim> dims; ///< of the kernel's domain; outer ones are Grid by 1
  std::vector<Tile> tiles;
  std::vector<TileStep> before, loop, after;
  /// The products' halves are multiplied by tensor cores (mma.sync m16n8k16), f32 by FMA.
  bool isMma = false;
  /// Warps of a block along the rows and columns of a tile in registers.
  int64_t warpRows = 1, warpColumns = 1;
  /// Tiles of the loop that are loaded or being loaded at one time, at least 2.
  int64_t stages = 2;
  /// Blocks that a multiprocessor is to hold: bounds the registers of a thread.
  int64_t residentBlocks = 1;

  int64_t threads() const { return 32 * warpRows * warpColumns; }
  int64_t rowsOf(const Tile &tile) const { return dims[tile.rows].tile; }
  int64_t columnsOf(const Tile &tile) const { return dims[tile.columns].tile; }
  /// The dim that both factors of a product have.
  size_t summedDim(const TileStep &product) const;
  bool isLoadedInLoop(int tile) const;
  /// Blocks of a launch over this domain.
  int64_t grid(const KernelSpec &kernel) const;
  /// For people: dims, tiles and steps.
  std::string text() const;
};

/// A kernel of which only the domain, operands and outputs count, and how it is computed.
struct TileKernel {
  std::string name;
  KernelSpec kernel;
  TileProgram program;
};

/// Tiles of a product.
struct ProductTiles {
  int64_t m = 128, n = 128, k = 32, warpRows = 2, warpColumns = 2, stages = 3;
  int64_t residentBlocks = 1;
};
/// Those that a product of this shape is given: smaller ones where large ones would leave
/// multiprocessors without work.
ProductTiles tilesFor(const task::MatMul &product);
/// Says whether a product is of a type that tile programs have, f32, f16 or bf16, without
/// a bias and post-ops.
bool isTileProduct(const task::MatMul &product);
/// The kernel of a product: operands a, b, output c.
TileKernel tileProduct(const task::MatMul &product, const ProductTiles &tiles,
                       std::string name);

/// Heads of 128 take as many of a thread's registers as its scores, or more.
inline constexpr int64_t widestTileHead = 128;
/// Says whether a kernel of attention is one that tile programs have: forward, heads of
/// up to 128 elements, q, k and v of one type, f32, f16 or bf16.
bool isTileAttention(const KernelSpec &kernel);
TileKernel tileAttention(const KernelSpec &kernel, std::string name);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_TILEPROGRAM_H
