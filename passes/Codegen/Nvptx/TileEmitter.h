//===- TileEmitter.h - Tile programs as blocks of threads -------*- C++ -*-===//
//
// Emits a TileKernel for a grid of one dim of TileProgram::grid blocks; arguments are
// those of any kernel (KernelEmitter.h), without scratch.
//
// Tiles of the loop are loaded by cp.async, `stages` − 1 ahead of the products that read
// them, in pieces of 16, 8 or 4 bytes, as strides and offsets allow; halves that are not
// even that aligned by single loads. A row of a tile in shared memory is 16 bytes longer
// than its elements, so that the eight rows that ldmatrix reads, and the vectors of FMA,
// lie in different banks.
//
// A warp has a part of each tile in registers. Thread (g, t) = (lane / 4, lane % 4) has
// the elements at rows g·rowStep + rowOffset(r) and columns t·columnStep +
// columnOffset(c), so that four neighbouring threads share a row:
//
//               rowStep  rowOffset            columnStep  columnOffset
//   mma         1        16·(r/2) + 8·(r%2)   2           8·(c/2) + c%2
//   FMA         v ≤ 4    r%v + 8·v·(r/v)      w ≤ 4       c%w + 4·w·(c/w)
//
// The first is the layout of mma.sync m16n8k16's sums (PTX ISA, 9.7.14).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_TILEEMITTER_H
#define PARTITA_PASSES_CODEGEN_NVPTX_TILEEMITTER_H

#include "passes/Codegen/Nvptx/GpuEmitter.h"
#include "passes/Codegen/Nvptx/TileProgram.h"

namespace partita::codegen {

/// Places of a program's tiles in a block's shared memory.
class SharedTiles {
public:
  struct Place {
    bool isFastColumn = true; ///< neighbours in memory differ in their column
    int64_t slow = 1, fast = 1, width = 4, pitch = 0, stages = 1; ///< pitch in bytes
    int64_t begin = 0;                                            ///< bytes
    int64_t bytes() const { return slow * pitch; }
  };
  explicit SharedTiles(const TileKernel &kernel);

  const Place &operator[](int tile) const { return places[static_cast<size_t>(tile)]; }
  int64_t bytes() const { return all; }

private:
  std::vector<Place> places;
  int64_t all = 0;
};

class TileEmitter : public GpuEmitter {
public:
  /// The symbol of shared memory that a launch sizes: SharedTiles::bytes().
  static constexpr const char *tilesSymbol = "partita_tiles";

  TileEmitter(mlir::OpBuilder &builder, mlir::Location location, const TileKernel &kernel)
      : GpuEmitter(builder, location, kernel.kernel, kernel.name), p(kernel.program),
        places(kernel) {}
  void emit() override;

protected:
  mlir::Value score(int number) override { return currentScore; }

private:
  /// The part of a tile in registers that a thread has.
  struct Layout {
    int64_t warpRows = 0, warpColumns = 0; ///< elements of a warp
    int64_t rowVector = 1, columnVector = 1;
    bool isMma = false;

    size_t rows() const { return static_cast<size_t>(warpRows / 8); }
    size_t columns() const { return static_cast<size_t>(warpColumns / 4); }
    int64_t rowOffset(size_t r) const;
    int64_t columnOffset(size_t c) const;
    int64_t rowStep() const { return isMma ? 1 : rowVector; }
    int64_t columnStep() const { return isMma ? 2 : columnVector; }
  };
  Layout layoutOf(const Tile &tile) const;
  const Tile &tile(int number) const { return p.tiles[static_cast<size_t>(number)]; }
  Values &of(int number) { return registers[static_cast<size_t>(number)]; }

  // i32 and f32.
  mlir::Value word(int64_t value);
  mlir::Value real(double value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value times(mlir::Value a, int64_t b);
  mlir::Value over(mlir::Value a, int64_t b);
  mlir::Value rest(mlir::Value a, int64_t b);
  mlir::Value wide(mlir::Value narrow);
  void act(llvm::StringRef intrinsic, mlir::ValueRange args);

  void findPlace();
  void decodeBlock();
  void run(const TileStep &step);
  void mainLoop();
  /// The loop's loads of the tile that begins at `from` of its dim, into a stage.
  void loadAhead(size_t dim, mlir::Value from, mlir::Value into);
  mlir::Value following(mlir::Value stage);

  // TileMemory.cpp
  /// Copies of one load, in pieces of `bytes`.
  struct Pieces {
    size_t fast, slow;      ///< dims of the domain, by neighbours in shared memory
    bool alongSlow = false; ///< neighbouring threads go along the slow dim
    int64_t bytes = 4, count = 1, perRow = 1;
  };
  Pieces piecesOf(const TileStep &load) const;
  void loadTile(const TileStep &load, mlir::Value stage);
  void copyPiece(const TileStep &load, const Pieces &pieces, mlir::Value number,
                 mlir::Value stage);
  std::pair<mlir::Value, mlir::Value> bytesThere(const Pieces &pieces, int64_t width,
                                                 mlir::Value fastAt, mlir::Value slowAt);
  void copyBytes(int64_t bytes, mlir::Value source, mlir::Value target, mlir::Value there,
                 mlir::Value isThere);
  void keepTile(const TileStep &step);
  void storeTile(const TileStep &step);
  void storeRows(const TileStep &step);
  /// Address in shared memory, `offset` bytes (i32) behind the tile's stage.
  mlir::Value sharedAt(int tile, mlir::Value stage, mlir::Value offset);
  mlir::Value behind(mlir::Value address, int64_t bytes);
  /// Place of a thread's element in the whole domain: i64.
  mlir::Value rowAt(const Tile &tile, const Layout &layout, size_t r);
  mlir::Value columnAt(const Tile &tile, const Layout &layout, size_t c);
  bool hasEdge(size_t dim) const { return spec.domain[dim] % p.dims[dim].tile != 0; }
  mlir::Value isInside(mlir::Value index, size_t dim);

  // TileProducts.cpp
  void multiply(const TileStep &step);
  void multiplyByMma(const TileStep &step, size_t summed);
  void multiplyByFma(const TileStep &step, size_t summed);
  /// Address of the matrix that ldmatrix reads for this thread, at the beginning of the
  /// warp's part; `isFirst`: of the left factor.
  mlir::Value matrixAddress(int tile, size_t summed, bool isFirst, int64_t warpExtent);
  Values loadMatrix(mlir::Value address, bool isTransposed);
  Values leftFragments(const TileStep &step, size_t summed, int64_t block,
                       mlir::Value address);
  mlir::Value packed(mlir::Value low, mlir::Value high, DType type);
  mlir::Value stageOf(int tile);

  // TileRows.cpp
  void nodes(int number);
  void overRows(const TileStep &step);
  void ofRows(const TileStep &step);
  mlir::Value exponential(mlir::Value x);

  const TileProgram &p;
  SharedTiles places;
  std::vector<Values> registers;   ///< of Registers and Rows tiles, by tile
  std::vector<mlir::Value> starts; ///< by dim, i64: where the block's tile begins
  mlir::Value self, lane, g, t, warpRow, warpColumn; ///< i32
  mlir::Value stage;        ///< i32, of the tiles of the loop that are multiplied; null
                            ///< outside
  mlir::Value currentScore; ///< f32
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_NVPTX_TILEEMITTER_H
