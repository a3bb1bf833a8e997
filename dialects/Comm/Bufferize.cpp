//===- Bufferize.cpp - From communication of tensors to that of buffers ---===//
//
//   %1 = comm.all_reduce %0 from … to … : (tensor<8xf32>) -> tensor<8xf32>
//
// becomes
//
//   %y = memref.alloc() : memref<8xf32>
//   comm.all_reduce %x into %y from … to … : (memref<8xf32>, memref<8xf32>) -> ()
//
// Every op gets a buffer of its own: what it reads may be read again.
//
//===----------------------------------------------------------------------===//
#include "dialects/Comm/Comm.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace partita;

namespace {
template <typename Op>
struct CommBufferization
    : BufferizableOpInterface::ExternalModel<CommBufferization<Op>, Op> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &operand,
                              const AnalysisState &) const {
    return operand.getOperandNumber() == 0;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &, const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    if (op->getNumResults() == 0) // on buffers already
      return success();
    FailureOr<Value> input = getBuffer(rewriter, op->getOperand(0), options, state);
    if (failed(input))
      return failure();
    auto tensor = cast<RankedTensorType>(op->getResult(0).getType());
    auto type = MemRefType::get(tensor.getShape(), tensor.getElementType());
    FailureOr<Value> out = options.createAlloc(rewriter, op->getLoc(), type, {});
    if (failed(out))
      return failure();
    OperationState form(op->getLoc(), op->getName(), {*input, *out}, TypeRange{},
                        op->getAttrs());
    rewriter.create(form);
    replaceOpWithBufferizedValues(rewriter, op, *out);
    return success();
  }
};

/// The result is the operand's buffer.
struct ClaimBufferization
    : BufferizableOpInterface::ExternalModel<ClaimBufferization, comm::ClaimOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &, const AnalysisState &) const {
    return false;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &, const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &,
                                      const AnalysisState &) const {
    return {{op->getResult(0), BufferRelation::Equivalent}};
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    FailureOr<Value> input = getBuffer(rewriter, op->getOperand(0), options, state);
    if (failed(input))
      return failure();
    replaceOpWithBufferizedValues(rewriter, op, *input);
    return success();
  }
};

template <typename... Ops> void attachTo(MLIRContext *context) {
  (Ops::template attachInterface<CommBufferization<Ops>>(*context), ...);
}
} // namespace

void comm::registerBufferization(DialectRegistry &registry) {
  registry.insert<BufferizationDialect, memref::MemRefDialect>();
  registry.addExtension(+[](MLIRContext *context, CommDialect *) {
    attachTo<AllReduceOp, ReduceScatterOp, ToPartialOp, AllGatherOp, SliceOp, AllToAllOp,
             PermuteOp, ExchangeOp, RepadOp, HaloOp, PiecesOp, MaskOp, LocalIndexOp>(
        context);
    ClaimOp::attachInterface<ClaimBufferization>(*context);
  });
}
