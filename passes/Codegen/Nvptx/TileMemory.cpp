//===- TileMemory.cpp - Tiles between memories ----------------------------===//
#include "passes/Codegen/Nvptx/TileEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

Value TileEmitter::sharedAt(int number, Value at, Value offset) {
  const SharedTiles::Place &place = places[number];
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext(), 3);
  Value base =
      LLVM::AddressOfOp::create(builder, location, pointer, StringRef(tilesSymbol));
  Value bytes = offset;
  if (place.stages > 1)
    bytes = add(bytes, times(at, place.bytes()));
  Value there = LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                                    ValueRange{bytes});
  return behind(there, place.begin);
}

Value TileEmitter::behind(Value address, int64_t bytes) {
  if (bytes == 0)
    return address;
  return LLVM::GEPOp::create(builder, location, address.getType(), builder.getI8Type(),
                             address,
                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
}

Value TileEmitter::isInside(Value index, size_t dim) {
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, index,
                               integer(spec.domain[dim]));
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

/// The largest pieces that are whole in both memories: all strides but that of the dim
/// along which a piece lies, and the offset, are multiples of it.
TileEmitter::Pieces TileEmitter::piecesOf(const TileStep &load) const {
  const Tile &to = tile(load.to);
  const SharedTiles::Place &place = places[load.to];
  const KernelOperand &from = spec.operands[static_cast<size_t>(load.operand)];
  const size_t fast = place.isFastColumn ? to.columns : to.rows;
  const size_t slow = place.isFastColumn ? to.rows : to.columns;
  Pieces pieces{fast, slow};
  pieces.bytes = place.width;
  if (from.strides[fast] == 1) {
    int64_t all = from.offset;
    for (auto [d, stride] : llvm::enumerate(from.strides))
      if (d != fast && spec.domain[d] != 1)
        all |= stride;
    while (pieces.bytes < 16 && (all * place.width) % (2 * pieces.bytes) == 0)
      pieces.bytes *= 2;
  } else {
    pieces.alongSlow = from.strides[slow] == 1;
  }
  pieces.perRow = place.fast * place.width / pieces.bytes;
  pieces.count = place.slow * pieces.perRow;
  return pieces;
}

void TileEmitter::loadTile(const TileStep &load, Value stage) {
  const Pieces pieces = piecesOf(load);
  for (int64_t first = 0; first < pieces.count; first += p.threads()) {
    Value number = first == 0 ? self : add(self, word(first));
    if (first + p.threads() <= pieces.count) {
      copyPiece(load, pieces, number, stage);
      continue;
    }
    Value isThere = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::ult,
                                          number, word(pieces.count));
    onlyIf(isThere, [&] { copyPiece(load, pieces, number, stage); });
  }
}

/// Counts the bytes of a piece that are there (i32), and says whether any is; null: all
/// always are.
std::pair<Value, Value> TileEmitter::bytesThere(const Pieces &pieces, int64_t width,
                                                Value fastAt, Value slowAt) {
  const int64_t elements = pieces.bytes / width;
  Value isThere, there = word(pieces.bytes);
  if (hasEdge(pieces.slow))
    isThere = isInside(slowAt, pieces.slow);
  if (hasEdge(pieces.fast)) {
    Value left = arith::SubIOp::create(builder, location,
                                       integer(spec.domain[pieces.fast]), fastAt);
    left = arith::MaxSIOp::create(builder, location, left, integer(0));
    left = arith::MinSIOp::create(builder, location, left, integer(elements));
    there = times(arith::TruncIOp::create(builder, location, builder.getI32Type(), left),
                  width);
    Value some = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::sgt, left,
                                       integer(0));
    isThere = isThere
                  ? arith::AndIOp::create(builder, location, isThere, some).getResult()
                  : some;
  }
  if (isThere)
    there = arith::SelectOp::create(builder, location, isThere, there, word(0));
  return {there, isThere};
}

void TileEmitter::copyPiece(const TileStep &load, const Pieces &pieces, Value number,
                            Value stage) {
  const SharedTiles::Place &place = places[load.to];
  const KernelOperand &from = spec.operands[static_cast<size_t>(load.operand)];
  const size_t fast = pieces.fast, slow = pieces.slow;
  Value fastIndex, slowIndex;
  if (pieces.alongSlow) {
    slowIndex = rest(number, place.slow), fastIndex = over(number, place.slow);
  } else {
    fastIndex = times(rest(number, pieces.perRow), pieces.bytes / place.width);
    slowIndex = over(number, pieces.perRow);
  }
  Value target = sharedAt(
      load.to, stage, add(times(slowIndex, place.pitch), times(fastIndex, place.width)));
  // The part of the thread first: it is the same in all trips.
  Value offset = add(times(wide(fastIndex), from.strides[fast]),
                     times(wide(slowIndex), from.strides[slow]));
  for (size_t d = 0; d < spec.numOuter(); ++d)
    if (from.strides[d] != 0)
      offset = add(offset, times(point[d], from.strides[d]));
  offset = add(offset, integer(from.offset));
  offset = add(offset, add(times(starts[fast], from.strides[fast]),
                           times(starts[slow], from.strides[slow])));
  auto [there, isThere] =
      bytesThere(pieces, place.width, add(starts[fast], wide(fastIndex)),
                 add(starts[slow], wide(slowIndex)));
  if (isThere)
    offset = arith::SelectOp::create(builder, location, isThere, offset, integer(0));
  Type element = builder.getIntegerType(static_cast<unsigned>(8 * place.width));
  Value pointer = pointers[static_cast<size_t>(load.operand)];
  Value source = LLVM::GEPOp::create(builder, location, pointer.getType(), element,
                                     pointer, ValueRange{offset});
  copyBytes(pieces.bytes, source, target, there, isThere);
}

/// cp.async fills with zeros what lies behind the bytes that are there; it takes no less
/// than four.
void TileEmitter::copyBytes(int64_t bytes, Value source, Value target, Value there,
                            Value isThere) {
  if (bytes == 2) {
    Type element = builder.getIntegerType(16);
    Value half = LLVM::LoadOp::create(builder, location, element, source);
    if (isThere)
      half =
          arith::SelectOp::create(builder, location, isThere, half,
                                  arith::ConstantIntOp::create(builder, location, 0, 16));
    LLVM::StoreOp::create(builder, location, half, target);
    return;
  }
  source = LLVM::AddrSpaceCastOp::create(
      builder, location, LLVM::LLVMPointerType::get(builder.getContext(), 1), source);
  const std::string name = std::string("llvm.nvvm.cp.async.") +
                           (bytes == 16 ? "cg" : "ca") + ".shared.global." +
                           std::to_string(bytes) + ".s";
  act(name, {target, source, there});
}

//===----------------------------------------------------------------------===//
// From registers
//===----------------------------------------------------------------------===//

Value TileEmitter::rowAt(const Tile &to, const Layout &layout, size_t r) {
  Value inBlock = add(times(warpRow, layout.warpRows), times(g, layout.rowStep()));
  return add(starts[to.rows], wide(add(inBlock, word(layout.rowOffset(r)))));
}

Value TileEmitter::columnAt(const Tile &to, const Layout &layout, size_t c) {
  Value inBlock =
      add(times(warpColumn, layout.warpColumns), times(t, layout.columnStep()));
  return add(starts[to.columns], wide(add(inBlock, word(layout.columnOffset(c)))));
}

/// Rows of a thread are neighbours in shared memory: a vector of them for each column.
void TileEmitter::keepTile(const TileStep &step) {
  const SharedTiles::Place &place = places[step.to];
  const Layout layout = layoutOf(tile(step.a));
  const auto vector = static_cast<size_t>(layout.rowVector);
  auto type = VectorType::get({layout.rowVector}, builder.getF32Type());
  Value row = add(times(warpRow, layout.warpRows), times(g, layout.rowStep()));
  Value column =
      add(times(warpColumn, layout.warpColumns), times(t, layout.columnStep()));
  Value begin = sharedAt(step.to, word(0),
                         add(times(column, place.pitch), times(row, place.width)));
  meet(); // all have read what was here before
  for (size_t c = 0; c < layout.columns(); ++c)
    for (size_t r = 0; r < layout.rows(); r += vector) {
      Value all = LLVM::PoisonOp::create(builder, location, type);
      for (size_t i = 0; i < vector; ++i)
        all = LLVM::InsertElementOp::create(builder, location, all,
                                            of(step.a)[(r + i) * layout.columns() + c],
                                            integer(static_cast<int64_t>(i)));
      LLVM::StoreOp::create(builder, location, all,
                            behind(begin, layout.columnOffset(c) * place.pitch +
                                              layout.rowOffset(r) * place.width),
                            static_cast<unsigned>(4 * layout.rowVector));
    }
  meet();
}

void TileEmitter::storeTile(const TileStep &step) {
  const Tile &from = tile(step.a);
  const Layout layout = layoutOf(from);
  const KernelOperand &output = spec.outputs[static_cast<size_t>(step.operand)];
  Value pointer = pointers[spec.operands.size() + static_cast<size_t>(step.operand)];
  for (size_t r = 0; r < layout.rows(); ++r) {
    point[from.rows] = rowAt(from, layout, r);
    auto columns = [&] {
      for (size_t c = 0; c < layout.columns(); ++c) {
        point[from.columns] = columnAt(from, layout, c);
        auto put = [&] {
          store(pointer, linear(output.offset, output.strides), output.type,
                of(step.a)[r * layout.columns() + c]);
        };
        hasEdge(from.columns) ? onlyIf(isInside(point[from.columns], from.columns), put)
                              : put();
      }
    };
    hasEdge(from.rows) ? onlyIf(isInside(point[from.rows], from.rows), columns)
                       : columns();
  }
  point[from.rows] = point[from.columns] = nullptr;
}

/// Stored by the first of those that have the row.
void TileEmitter::storeRows(const TileStep &step) {
  const Tile &from = tile(step.a);
  const Layout layout = layoutOf(from);
  const KernelOperand &output = spec.outputs[static_cast<size_t>(step.operand)];
  Value pointer = pointers[spec.operands.size() + static_cast<size_t>(step.operand)];
  Value isFirst =
      arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, t, word(0));
  onlyIf(isFirst, [&] {
    for (size_t r = 0; r < layout.rows(); ++r) {
      point[from.rows] = rowAt(from, layout, r);
      onlyIf(isInside(point[from.rows], from.rows), [&] {
        store(pointer, linear(output.offset, output.strides), output.type, of(step.a)[r]);
      });
    }
  });
  point[from.rows] = nullptr;
}
