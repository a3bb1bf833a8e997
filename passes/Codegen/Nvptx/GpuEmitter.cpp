//===- GpuEmitter.cpp - A kernel as blocks of threads ---------------------===//
#include "passes/Codegen/Nvptx/GpuEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Value GpuEmitter::intrinsic(StringRef name, Type result, ValueRange args) {
  auto call = LLVM::CallIntrinsicOp::create(builder, location, result,
                                            builder.getStringAttr(name), args);
  return call->getResult(0);
}

/// A special register, as i64.
Value GpuEmitter::number(StringRef special) {
  Value narrow =
      intrinsic(("llvm.nvvm.read.ptx.sreg." + special).str(), builder.getI32Type(), {});
  return arith::ExtUIOp::create(builder, location, builder.getI64Type(), narrow);
}

Value GpuEmitter::binary(bool isMultiply, Value a, Value b) {
  if (isMultiply)
    return arith::MulIOp::create(builder, location, a, b);
  return arith::AddIOp::create(builder, location, a, b);
}

Value GpuEmitter::less(Value a, Value b) {
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, a, b);
}

void GpuEmitter::meet() {
  LLVM::CallIntrinsicOp::create(
      builder, location, builder.getStringAttr("llvm.nvvm.barrier.cta.sync.aligned.all"),
      ValueRange{arith::ConstantIntOp::create(builder, location, 0, 32)});
}

/// Anything of up to 64 bits as i64 and back.
static Value toBits(OpBuilder &b, Location at, Value value) {
  Type type = value.getType();
  unsigned width = type.getIntOrFloatBitWidth();
  if (isa<FloatType>(type))
    value = arith::BitcastOp::create(b, at, b.getIntegerType(width), value);
  return width == 64 ? value
                     : arith::ExtUIOp::create(b, at, b.getI64Type(), value).getResult();
}

static Value fromBits(OpBuilder &b, Location at, Value bits, Type type) {
  unsigned width = type.getIntOrFloatBitWidth();
  if (width != 64)
    bits = arith::TruncIOp::create(b, at, b.getIntegerType(width), bits);
  return isa<FloatType>(type) ? arith::BitcastOp::create(b, at, type, bits).getResult()
                              : bits;
}

Value GpuEmitter::shuffle(StringRef how, Value value, Value lane, int64_t clamp) {
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto word = [&](int64_t v) -> Value {
    return arith::ConstantIntOp::create(builder, location, v, 32);
  };
  Value bits = toBits(builder, location, value);
  bool isWide = value.getType().getIntOrFloatBitWidth() == 64;
  Value sum;
  for (int64_t shift : isWide ? SmallVector<int64_t>{0, 32} : SmallVector<int64_t>{0}) {
    Value part = arith::ShRUIOp::create(builder, location, bits, integer(shift));
    part = arith::TruncIOp::create(builder, location, i32, part);
    part = intrinsic(("llvm.nvvm.shfl.sync." + how + ".i32").str(), i32,
                     {word(-1), part, lane, word(clamp)});
    part = arith::ExtUIOp::create(builder, location, i64, part);
    part = arith::ShLIOp::create(builder, location, part, integer(shift));
    sum = sum ? arith::OrIOp::create(builder, location, sum, part).getResult() : part;
  }
  return fromBits(builder, location, sum, value.getType());
}

/// Slots of 8 bytes in the block's shared memory.
Value GpuEmitter::shared(Value slot) {
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext(), 3);
  Value base =
      LLVM::AddressOfOp::create(builder, location, pointer, StringRef(sharedSymbol));
  return LLVM::GEPOp::create(builder, location, pointer, builder.getI64Type(), base,
                             ValueRange{slot});
}

void GpuEmitter::keep(Value slot, Value value) {
  LLVM::StoreOp::create(builder, location, toBits(builder, location, value),
                        shared(slot));
}

Value GpuEmitter::kept(Value slot, Type type) {
  Value bits =
      LLVM::LoadOp::create(builder, location, builder.getI64Type(), shared(slot));
  return fromBits(builder, location, bits, type);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

Value GpuEmitter::strided(Value from, Value to, Value step, Value initial,
                          llvm::function_ref<Value(Value, Value)> body) {
  auto loop = scf::ForOp::create(builder, location, from, to, step,
                                 initial ? ValueRange{initial} : ValueRange{});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value next = body(loop.getInductionVar(),
                    initial ? Value(loop.getRegionIterArgs()[0]) : Value());
  if (!initial)
    return nullptr;
  scf::YieldOp::create(builder, location, next);
  return loop.getResult(0);
}

void GpuEmitter::mapFirst(int64_t points, llvm::function_ref<void()> body) {
  strided(thread, integer(points), integer(threadsPerBlock), nullptr,
          [&](Value linear, Value) {
            goTo(linear);
            body();
            leavePlace();
            return Value();
          });
  meet();
}

void GpuEmitter::forEach(Value from, Value to, Value step,
                         llvm::function_ref<void(Value)> body) {
  Value first = binary(false, from, binary(true, thread, step));
  strided(first, to, binary(true, step, integer(threadsPerBlock)), nullptr,
          [&](Value at, Value) {
            body(at);
            return Value();
          });
  meet();
}

/// Places of a row are divided among its threads.
Value GpuEmitter::isMine(Value place) {
  Value owner =
      arith::RemUIOp::create(builder, location, place, integer(threadsPerBlock));
  return arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, owner,
                               thread);
}

Value GpuEmitter::overBlock(Value value, Value neutral, Combine combine) {
  for (int64_t distance = threadsPerWarp / 2; distance > 0; distance /= 2)
    value = combine(value,
                    shuffle("bfly", value,
                            arith::ConstantIntOp::create(builder, location, distance, 32),
                            31));
  Value lane = arith::RemUIOp::create(builder, location, thread, integer(threadsPerWarp));
  Value warp = arith::DivUIOp::create(builder, location, thread, integer(threadsPerWarp));
  meet(); // what was here before has been read
  Value isFirst = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, lane,
                                        integer(0));
  auto branch = scf::IfOp::create(builder, location, isFirst, /*withElse=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&branch.getThenRegion().front());
    keep(warp, value);
  }
  meet();
  Value all = kept(integer(0), value.getType());
  for (int64_t w = 1; w < threadsPerBlock / threadsPerWarp; ++w)
    all = combine(all, kept(integer(w), value.getType()));
  return all;
}

Value GpuEmitter::reduceRow(Value neutral, Element element, Combine combine) {
  Value own = strided(thread, integer(rowElements()), integer(threadsPerBlock), neutral,
                      [&](Value linear, Value so) {
                        goTo(linear);
                        Value next = combine(so, element());
                        leavePlace();
                        return next;
                      });
  return overBlock(own, neutral, combine);
}

Value GpuEmitter::before(Value value, Value neutral, Combine combine) {
  Type i32 = builder.getI32Type();
  Value lane = arith::RemUIOp::create(builder, location, thread, integer(threadsPerWarp));
  Value warp = arith::DivUIOp::create(builder, location, thread, integer(threadsPerWarp));
  auto distanceOf = [&](int64_t d) -> Value {
    return arith::ConstantIntOp::create(builder, location, d, 32);
  };
  (void)i32;
  for (int64_t d = 1; d < threadsPerWarp; d *= 2) {
    Value sum = combine(shuffle("up", value, distanceOf(d), 0), value);
    value =
        arith::SelectOp::create(builder, location, less(lane, integer(d)), value, sum);
  }
  Value mine = shuffle("up", value, distanceOf(1), 0);
  mine =
      arith::SelectOp::create(builder, location, less(lane, integer(1)), neutral, mine);
  meet();
  Value isLast = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, lane,
                                       integer(threadsPerWarp - 1));
  auto branch = scf::IfOp::create(builder, location, isLast, /*withElse=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&branch.getThenRegion().front());
    keep(warp, value);
  }
  meet();
  Value sum = neutral;
  for (int64_t w = 0; w + 1 < threadsPerBlock / threadsPerWarp; ++w) {
    Value next = combine(sum, kept(integer(w), value.getType()));
    sum = arith::SelectOp::create(builder, location, less(integer(w), warp), next, sum);
  }
  return combine(sum, mine);
}

/// Each thread has neighbouring points: first what they are together, then, from what all
/// threads before have, one by one.
void GpuEmitter::scanRow(Value neutral, Element element, Combine combine, Step step,
                         bool backwards) {
  int64_t row = rowElements(), each = (row + threadsPerBlock - 1) / threadsPerBlock;
  Value from = binary(true, thread, integer(each));
  Value to = arith::MinSIOp::create(builder, location, binary(false, from, integer(each)),
                                    integer(row));
  auto pass = [&](Value initial, bool isLast) {
    return strided(from, to, integer(1), initial, [&](Value at, Value so) {
      Value linear = at;
      if (backwards)
        linear = arith::SubIOp::create(builder, location, integer(row - 1), at);
      goTo(linear);
      Value next = combine(so, element());
      if (isLast)
        step(so, next);
      leavePlace();
      return next;
    });
  };
  Value own = pass(neutral, false);
  pass(before(own, neutral, combine), true);
  meet();
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

void GpuEmitter::checkLoop(ArrayRef<int64_t> shape,
                           llvm::function_ref<void(ValueRange)> body) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  Value first = binary(false, binary(true, block, integer(threadsPerBlock)), thread);
  strided(first, integer(count), binary(true, blocks, integer(threadsPerBlock)), nullptr,
          [&](Value linear, Value) {
            SmallVector<Value> place(shape.size());
            for (size_t d = shape.size(); d-- > 0;) {
              Value size = integer(shape[d]);
              place[d] = arith::RemUIOp::create(builder, location, linear, size);
              linear = arith::DivUIOp::create(builder, location, linear, size);
            }
            body(place);
            return Value();
          });
}

/// The first thread that finds something leaves word of it.
Value GpuEmitter::claimStatus(Value word) {
  Value free = integer(PARTITA_STATUS_OK);
  auto exchange = LLVM::AtomicCmpXchgOp::create(
      builder, location, word, free, integer(PARTITA_STATUS_INDEX),
      LLVM::AtomicOrdering::monotonic, LLVM::AtomicOrdering::monotonic);
  return LLVM::ExtractValueOp::create(builder, location, exchange, ArrayRef<int64_t>{1});
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

bool GpuEmitter::hasRows(const KernelSpec &kernel) {
  return kernel.rowDims != 0 || llvm::any_of(kernel.nodes, [](const KernelNode &n) {
           return n.kind == KernelNode::Row;
         });
}

void GpuEmitter::emit() {
  func::FuncOp function = beginFunction(symbol, {});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.front());
  thread = number("tid.x"), block = number("ctaid.x"), blocks = number("nctaid.x");
  if (spec.scratchBytes != 0) {
    Value bytes = binary(true, block, integer(static_cast<int64_t>(spec.scratchBytes)));
    pointers.back() =
        LLVM::GEPOp::create(builder, location, pointers.back().getType(),
                            builder.getI8Type(), pointers.back(), ValueRange{bytes});
  }
  scopes.emplace_back();
  emitAllChecks();
  int64_t outer = 1, all = 1;
  for (auto [d, size] : llvm::enumerate(spec.domain)) {
    all *= size;
    outer *= d < numOuter() ? size : 1;
  }
  Value width = integer(threadsPerBlock);
  const bool sharesRow = hasRows(spec);
  Value first = sharesRow ? block : binary(false, binary(true, block, width), thread);
  Value step = sharesRow ? blocks : binary(true, blocks, width);
  strided(first, integer(sharesRow ? outer : all), step, nullptr,
          [&](Value linear, Value) {
            // The outer dims only, of a kernel with rows.
            size_t dims = sharesRow ? numOuter() : spec.domain.size();
            scopes.emplace_back();
            for (size_t d = dims; d-- > 0;) {
              Value size = integer(spec.domain[d]);
              point[d] = arith::RemUIOp::create(builder, location, linear, size);
              linear = arith::DivUIOp::create(builder, location, linear, size);
            }
            if (sharesRow)
              rowBody();
            else
              storeOutputs(false);
            scopes.pop_back();
            if (sharesRow)
              meet();
            return Value();
          });
  func::ReturnOp::create(builder, location);
}
