//===- TileProducts.cpp - Products of tiles -------------------------------===//
#include "passes/Codegen/Nvptx/TileEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

void TileEmitter::multiply(const TileStep &step) {
  const size_t summed = p.summedDim(step);
  p.isMma ? multiplyByMma(step, summed) : multiplyByFma(step, summed);
}

/// The stage of a tile that is read now.
Value TileEmitter::stageOf(int number) {
  return places[number].stages > 1 ? stage : word(0);
}

//===----------------------------------------------------------------------===//
// FMA
//===----------------------------------------------------------------------===//

/// Goes from one place of the summed dim to the next: vectors of both factors, and their
/// outer product.
void TileEmitter::multiplyByFma(const TileStep &step, size_t summed) {
  const Layout layout = layoutOf(tile(step.to));
  const int64_t extent = p.dims[summed].tile;
  auto vectors = [&](int number, Value begin, int64_t k, int64_t vector, size_t count,
                     auto offset) {
    const SharedTiles::Place &place = places[number];
    auto type = VectorType::get({vector}, builder.getF32Type());
    Values elements;
    for (size_t i = 0; i < count; i += static_cast<size_t>(vector)) {
      Value all =
          LLVM::LoadOp::create(builder, location, type,
                               behind(begin, k * place.pitch + offset(i) * place.width),
                               static_cast<unsigned>(4 * vector));
      for (int64_t v = 0; v < vector; ++v)
        elements.push_back(
            LLVM::ExtractElementOp::create(builder, location, all, integer(v)));
    }
    return elements;
  };
  Value row = add(times(warpRow, layout.warpRows), times(g, layout.rowStep()));
  Value column =
      add(times(warpColumn, layout.warpColumns), times(t, layout.columnStep()));
  Value beginA = sharedAt(step.a, stageOf(step.a), times(row, 4));
  Value beginB = sharedAt(step.b, stageOf(step.b), times(column, 4));
  Values &sums = of(step.to);
  for (int64_t k = 0; k < extent; ++k) {
    Values a = vectors(step.a, beginA, k, layout.rowVector, layout.rows(),
                       [&](size_t r) { return layout.rowOffset(r); });
    Values b = vectors(step.b, beginB, k, layout.columnVector, layout.columns(),
                       [&](size_t c) { return layout.columnOffset(c); });
    for (size_t r = 0; r < a.size(); ++r)
      for (size_t c = 0; c < b.size(); ++c) {
        Value &sum = sums[r * b.size() + c];
        sum = LLVM::FMulAddOp::create(builder, location, a[r], b[c], sum);
      }
  }
}

//===----------------------------------------------------------------------===//
// mma.sync
//===----------------------------------------------------------------------===//

/// ldmatrix .x4 reads four matrices of 8 × 8 halves, whose rows lane 8·q + i names: row i
/// of matrix q. Of the left factor these are (rows 0, k 0), (8, 0), (0, 8), (8, 8), of
/// the right one (k 0, columns 0), (8, 0), (0, 8), (8, 8).
Value TileEmitter::matrixAddress(int number, size_t summed, bool isFirst,
                                 int64_t warpExtent) {
  const SharedTiles::Place &place = places[number];
  const Tile &factor = tile(number);
  const size_t fast = place.isFastColumn ? factor.columns : factor.rows;
  Value q = over(lane, 8), i = rest(lane, 8);
  Value low = times(rest(q, 2), 8), high = times(over(q, 2), 8);
  Value k = isFirst ? high : low, other = isFirst ? low : high;
  // A row of a matrix in memory is along the fast dim.
  fast == summed ? other = add(other, i) : k = add(k, i);
  other = add(other, times(isFirst ? warpRow : warpColumn, warpExtent));
  Value slowIndex = fast == summed ? other : k, fastIndex = fast == summed ? k : other;
  return sharedAt(number, stageOf(number),
                  add(times(slowIndex, place.pitch), times(fastIndex, place.width)));
}

TileEmitter::Values TileEmitter::loadMatrix(Value address, bool isTransposed) {
  Type i32 = builder.getI32Type();
  auto type =
      LLVM::LLVMStructType::getLiteral(builder.getContext(), {i32, i32, i32, i32});
  Value all = intrinsic(isTransposed ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                     : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                        type, {address});
  Values parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(builder, location, all, i));
  return parts;
}

/// Two numbers as the halves of a word.
Value TileEmitter::packed(Value low, Value high, DType type) {
  bool isBrain = type == DType::BF16;
  auto half = isBrain ? Type(builder.getBF16Type()) : Type(builder.getF16Type());
  Value both = intrinsic(isBrain ? "llvm.nvvm.ff2bf16x2.rn" : "llvm.nvvm.ff2f16x2.rn",
                         VectorType::get({2}, half), {high, low});
  return LLVM::BitcastOp::create(builder, location, builder.getI32Type(), both);
}

/// The four words of the left factor in 16 columns, for each 16 rows of the warp. Sums in
/// registers lie as those of the left factor do.
TileEmitter::Values TileEmitter::leftFragments(const TileStep &step, size_t summed,
                                               int64_t block, Value address) {
  const Tile &a = tile(step.a);
  Values parts;
  if (a.memory == Tile::Registers) {
    const Layout layout = layoutOf(a);
    DType type = tile(step.b).type;
    for (size_t r = 0; r < layout.rows(); r += 2)
      for (size_t word = 0; word < 4; ++word) {
        size_t at = (r + word % 2) * layout.columns() + static_cast<size_t>(4 * block) +
                    2 * (word / 2);
        parts.push_back(packed(of(step.a)[at], of(step.a)[at + 1], type));
      }
    return parts;
  }
  const SharedTiles::Place &place = places[step.a];
  bool isAlong = (place.isFastColumn ? a.columns : a.rows) == summed;
  const int64_t rows = layoutOf(tile(step.to)).warpRows;
  for (int64_t row = 0; row < rows; row += 16) {
    int64_t bytes = isAlong ? row * place.pitch + 16 * block * place.width
                            : 16 * block * place.pitch + row * place.width;
    llvm::append_range(parts, loadMatrix(behind(address, bytes), !isAlong));
  }
  return parts;
}

void TileEmitter::multiplyByMma(const TileStep &step, size_t summed) {
  const Layout layout = layoutOf(tile(step.to));
  const SharedTiles::Place &place = places[step.b];
  const Tile &b = tile(step.b);
  const bool isAlong = (place.isFastColumn ? b.columns : b.rows) == summed;
  const bool isBrain = b.type == DType::BF16;
  Type f32 = builder.getF32Type();
  auto type =
      LLVM::LLVMStructType::getLiteral(builder.getContext(), {f32, f32, f32, f32});
  auto pair = VectorType::get({2}, builder.getF16Type());
  auto factor = [&](Value bits) -> Value {
    return isBrain ? bits
                   : LLVM::BitcastOp::create(builder, location, pair, bits).getResult();
  };
  Value beginA;
  if (tile(step.a).memory == Tile::Shared)
    beginA = matrixAddress(step.a, summed, true, layout.warpRows);
  Value beginB = matrixAddress(step.b, summed, false, layout.warpColumns);
  Values &sums = of(step.to);
  const size_t width = layout.columns();
  for (int64_t block = 0; block < p.dims[summed].tile / 16; ++block) {
    Values left = leftFragments(step, summed, block, beginA);
    for (int64_t column = 0; column < layout.warpColumns; column += 16) {
      int64_t bytes = isAlong ? column * place.pitch + 16 * block * place.width
                              : 16 * block * place.pitch + column * place.width;
      Values right = loadMatrix(behind(beginB, bytes), !isAlong);
      for (size_t half = 0; half < 2; ++half)
        for (size_t row = 0; row < layout.rows(); row += 2) {
          size_t at = row * width + static_cast<size_t>(column / 4) + 2 * half;
          size_t places[] = {at, at + 1, at + width, at + width + 1};
          Values args;
          for (size_t i = 0; i < 4; ++i)
            args.push_back(factor(left[2 * row + i]));
          args.push_back(factor(right[2 * half]));
          args.push_back(factor(right[2 * half + 1]));
          for (size_t i : places)
            args.push_back(sums[i]);
          Value result = intrinsic(isBrain ? "llvm.nvvm.mma.m16n8k16.row.col.bf16"
                                           : "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
                                   type, args);
          for (int64_t i = 0; i < 4; ++i)
            sums[places[i]] = LLVM::ExtractValueOp::create(builder, location, result, i);
        }
    }
  }
}
