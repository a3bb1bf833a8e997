//===- TileEmitter.cpp - Tile programs as blocks of threads ---------------===//
#include "passes/Codegen/Nvptx/TileEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// The first step that multiplies the tile, and whether as the left factor.
static const TileStep *productOf(const TileProgram &program, int tile) {
  for (const auto *steps : {&program.before, &program.loop, &program.after})
    for (const TileStep &step : *steps)
      if (step.kind == TileStep::Product && (step.a == tile || step.b == tile))
        return &step;
  return nullptr;
}

static const KernelOperand *operandOf(const TileKernel &kernel, int tile) {
  for (const auto *steps : {&kernel.program.before, &kernel.program.loop})
    for (const TileStep &step : *steps)
      if (step.kind == TileStep::Load && step.to == tile)
        return &kernel.kernel.operands[static_cast<size_t>(step.operand)];
  return nullptr;
}

/// FMA reads vectors along the dim that is not summed; ldmatrix reads either, so that
/// tiles lie as their operands do.
SharedTiles::SharedTiles(const TileKernel &kernel) {
  const TileProgram &program = kernel.program;
  for (auto [number, tile] : llvm::enumerate(program.tiles)) {
    Place place;
    if (tile.memory == Tile::Shared) {
      const int self = static_cast<int>(number);
      const size_t summed = program.summedDim(*productOf(program, self));
      const KernelOperand *from = operandOf(kernel, self);
      place.isFastColumn = program.isMma ? !from || from->strides[tile.rows] != 1 ||
                                               from->strides[tile.columns] == 1
                                         : tile.columns != summed;
      int64_t rows = program.rowsOf(tile), columns = program.columnsOf(tile);
      place.slow = place.isFastColumn ? rows : columns;
      place.fast = place.isFastColumn ? columns : rows;
      place.width = static_cast<int64_t>(byteWidth(tile.type));
      place.pitch = place.fast * place.width + 16;
      place.stages = program.isLoadedInLoop(self) ? program.stages : 1;
      place.begin = all;
      all += place.stages * place.bytes();
    }
    places.push_back(place);
  }
}

int64_t TileEmitter::Layout::rowOffset(size_t r) const {
  auto i = static_cast<int64_t>(r);
  return isMma ? 16 * (i / 2) + 8 * (i % 2)
               : i % rowVector + 8 * rowVector * (i / rowVector);
}

int64_t TileEmitter::Layout::columnOffset(size_t c) const {
  auto i = static_cast<int64_t>(c);
  return isMma ? 8 * (i / 2) + i % 2
               : i % columnVector + 4 * columnVector * (i / columnVector);
}

TileEmitter::Layout TileEmitter::layoutOf(const Tile &tile) const {
  Layout layout;
  layout.isMma = p.isMma;
  layout.warpRows = p.rowsOf(tile) / p.warpRows;
  if (tile.memory == Tile::Registers)
    layout.warpColumns = p.columnsOf(tile) / p.warpColumns;
  layout.rowVector = std::min<int64_t>(4, layout.warpRows / 8);
  layout.columnVector = std::clamp<int64_t>(layout.warpColumns / 4, 1, 4);
  return layout;
}

//===----------------------------------------------------------------------===//
// Shorthands
//===----------------------------------------------------------------------===//

Value TileEmitter::word(int64_t value) {
  return arith::ConstantIntOp::create(builder, location, value, 32);
}
Value TileEmitter::real(double value) { return constant(builder.getF32Type(), value); }
Value TileEmitter::add(Value a, Value b) {
  return arith::AddIOp::create(builder, location, a, b);
}
Value TileEmitter::times(Value a, int64_t b) {
  Value factor = a.getType().isInteger(64) ? integer(b) : word(b);
  return arith::MulIOp::create(builder, location, a, factor);
}
Value TileEmitter::over(Value a, int64_t b) {
  Value divisor = a.getType().isInteger(64) ? integer(b) : word(b);
  return arith::DivUIOp::create(builder, location, a, divisor);
}
Value TileEmitter::rest(Value a, int64_t b) {
  Value divisor = a.getType().isInteger(64) ? integer(b) : word(b);
  return arith::RemUIOp::create(builder, location, a, divisor);
}
Value TileEmitter::wide(Value narrow) {
  return arith::ExtUIOp::create(builder, location, builder.getI64Type(), narrow);
}

void TileEmitter::act(StringRef intrinsic, ValueRange args) {
  LLVM::CallIntrinsicOp::create(builder, location, builder.getStringAttr(intrinsic),
                                args);
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

void TileEmitter::findPlace() {
  self = intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", builder.getI32Type(), {});
  lane = rest(self, threadsPerWarp);
  g = over(lane, 4), t = rest(lane, 4);
  Value warp = over(self, threadsPerWarp);
  warpRow = over(warp, p.warpColumns), warpColumn = rest(warp, p.warpColumns);
}

/// From the block's number to its tile of each dim. Where two dims are divided, blocks
/// that follow each other share eight rows of tiles, which stay in the cache.
void TileEmitter::decodeBlock() {
  constexpr int64_t group = 8;
  Value left =
      wide(intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", builder.getI32Type(), {}));
  auto count = [&](size_t d) {
    return (spec.domain[d] + p.dims[d].tile - 1) / p.dims[d].tile;
  };
  starts.assign(p.dims.size(), integer(0));
  SmallVector<size_t> inner;
  for (size_t d = spec.numOuter(); d < p.dims.size(); ++d)
    if (p.dims[d].role == TileDim::Grid)
      inner.push_back(d);
  if (inner.size() == 2) {
    const int64_t m = count(inner[0]), n = count(inner[1]);
    Value number = rest(left, m * n), first = times(over(number, group * n), group);
    left = over(left, m * n);
    Value within = rest(number, group * n);
    Value rows = arith::MinUIOp::create(
        builder, location, integer(group),
        arith::SubIOp::create(builder, location, integer(m), first));
    Value row = add(first, arith::RemUIOp::create(builder, location, within, rows));
    Value column = arith::DivUIOp::create(builder, location, within, rows);
    starts[inner[0]] = times(row, p.dims[inner[0]].tile);
    starts[inner[1]] = times(column, p.dims[inner[1]].tile);
  } else {
    for (size_t d : inner) {
      starts[d] = times(rest(left, count(d)), p.dims[d].tile);
      left = over(left, count(d));
    }
  }
  for (size_t d = spec.numOuter(); d-- > 0;) {
    point[d] = rest(left, spec.domain[d]);
    left = over(left, spec.domain[d]);
  }
}

void TileEmitter::run(const TileStep &step) {
  switch (step.kind) {
  case TileStep::Load:
    return loadTile(step, word(0));
  case TileStep::Keep:
    return keepTile(step);
  case TileStep::Fill: {
    Layout layout = layoutOf(tile(step.to));
    bool isRows = tile(step.to).memory == Tile::Rows;
    of(step.to).assign(layout.rows() * (isRows ? 1 : layout.columns()), real(step.value));
    return;
  }
  case TileStep::Product:
    return multiply(step);
  case TileStep::Nodes:
    return nodes(step.to);
  case TileStep::MaxRows:
  case TileStep::SumRows:
    return overRows(step);
  case TileStep::Store:
    return tile(step.a).memory == Tile::Rows ? storeRows(step) : storeTile(step);
  case TileStep::Copy:
    of(step.to) = of(step.a);
    return;
  case TileStep::Decay:
  case TileStep::Exp:
  case TileStep::Scale:
  case TileStep::Divide:
    return ofRows(step);
  }
}

void TileEmitter::loadAhead(size_t dim, Value from, Value into) {
  starts[dim] = from;
  for (const TileStep &step : p.loop)
    if (step.kind == TileStep::Load)
      loadTile(step, into);
}

/// The stage behind this one.
Value TileEmitter::following(Value now) {
  Value isLast = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, now,
                                       word(p.stages - 1));
  return arith::SelectOp::create(builder, location, isLast, word(0), add(now, word(1)));
}

/// Loads run stages − 1 tiles ahead. Behind the barrier all threads are done with the
/// tile before, in whose stage the next load goes, and see the tile that has come.
void TileEmitter::mainLoop() {
  size_t dim = 0;
  for (auto [d, how] : llvm::enumerate(p.dims))
    if (how.role == TileDim::Loop)
      dim = d;
  const int64_t step = p.dims[dim].tile, ahead = p.stages - 1;
  const int64_t count = (spec.domain[dim] + step - 1) / step;
  for (int64_t i = 0; i < ahead; ++i) {
    if (i < count)
      loadAhead(dim, integer(i * step), word(i));
    act("llvm.nvvm.cp.async.commit.group", {});
  }
  SmallVector<int> carried;
  Values initial = {word(0), word(ahead % p.stages)};
  for (size_t i = 0; i < p.tiles.size(); ++i)
    if (!registers[i].empty()) {
      carried.push_back(static_cast<int>(i));
      llvm::append_range(initial, registers[i]);
    }
  auto take = [&](ValueRange values) {
    for (int i : carried) {
      of(i).assign(values.begin(), values.begin() + static_cast<int64_t>(of(i).size()));
      values = values.drop_front(of(i).size());
    }
  };
  auto loop = scf::ForOp::create(builder, location, integer(0), integer(count),
                                 integer(1), initial);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    stage = loop.getRegionIterArgs()[0];
    Value into = loop.getRegionIterArgs()[1];
    take(ValueRange(loop.getRegionIterArgs()).drop_front(2));
    act("llvm.nvvm.cp.async.wait.group", {word(ahead - 1)});
    meet();
    Value next = add(loop.getInductionVar(), integer(ahead));
    Value isThere = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt,
                                          next, integer(count));
    onlyIf(isThere, [&] { loadAhead(dim, times(next, step), into); });
    act("llvm.nvvm.cp.async.commit.group", {});
    starts[dim] = times(loop.getInductionVar(), step);
    for (const TileStep &s : p.loop)
      if (s.kind != TileStep::Load)
        run(s);
    Values yielded = {following(stage), following(into)};
    for (int i : carried)
      llvm::append_range(yielded, of(i));
    scf::YieldOp::create(builder, location, yielded);
  }
  stage = nullptr;
  starts[dim] = integer(0);
  take(loop.getResults().drop_front(2));
}

void TileEmitter::emit() {
  func::FuncOp function = beginFunction(symbol, {});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.front());
  scopes.emplace_back();
  registers.resize(p.tiles.size());
  findPlace();
  decodeBlock();
  for (const TileStep &step : p.before)
    run(step);
  mainLoop();
  for (const TileStep &step : p.after)
    run(step);
  func::ReturnOp::create(builder, location);
  scopes.pop_back();
}
