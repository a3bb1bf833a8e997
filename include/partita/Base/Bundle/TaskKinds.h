//===- TaskKinds.h - Kinds of tasks and their parameters --------*- C++ -*-===//
//
// A task is a variant of the kinds' parameters, which are the structs that the schema's
// compiler generates (lib/Base/Bundle/TaskTable.fbs): a field is written down once, in
// the schema.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_TASKKINDS_H
#define PARTITA_BASE_BUNDLE_TASKKINDS_H

#include "partita/Base/Bundle/TaskTable_generated.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace partita {

namespace task {

using Kernel = fb::KernelT;
using MatMul = fb::MatMulT;
using BlockMatMul = fb::BlockMatMulT;
using Conv = fb::ConvT;
/// Has the parameters of Conv.
struct ConvTranspose : Conv {
  ConvTranspose() = default;
  explicit ConvTranspose(Conv params) : Conv(std::move(params)) {}
};
using ConvBackwardFilter = fb::ConvBackwardFilterT;
using Pool = fb::PoolT;
using AllReduce = fb::AllReduceT;
using AllGather = fb::AllGatherT;
using ReduceScatter = fb::ReduceScatterT;
using AllToAll = fb::AllToAllT;
using Permute = fb::PermuteT;
using Exchange = fb::ExchangeT;
using Halo = fb::HaloT;
using Slice = fb::SliceT;
using Mask = fb::MaskT;
using Copy = fb::CopyT;
using Repad = fb::RepadT;
using ToPartial = fb::ToPartialT;
using Fill = fb::FillT;
using Wait = fb::WaitT;
using Repeat = fb::RepeatT;
using Skip = fb::SkipT;
using Update = fb::UpdateT;
using AllToAllV = fb::AllToAllVT;
using Rows = fb::RowsT;

/// What a task does, with everything but its operands. In the order of the schema's
/// union.
using Params = std::variant<Kernel, MatMul, BlockMatMul, Conv, ConvTranspose,
                            ConvBackwardFilter, Pool, AllReduce, AllGather, ReduceScatter,
                            AllToAll, Permute, Exchange, Halo, Slice, Mask, Copy, Repad,
                            ToPartial, Fill, Wait, Repeat, Skip, Update, AllToAllV, Rows>;

/// Fixed operand positions of the engine calls.
/// Element types of the operands of a MatMul or a Conv: those of the table, or the
/// result's.
template <typename P> DType lhsType(const P &p) {
  return static_cast<DType>(p.a_dtype.value_or(p.dtype));
}
template <typename P> DType rhsType(const P &p) {
  return static_cast<DType>(p.b_dtype.value_or(p.dtype));
}
/// Whether products of 8-bit integers are summed in a wider type.
template <typename P> bool isOfBytes(const P &p) { return p.a_dtype || p.b_dtype; }

enum MatMulOperand { MatMulA, MatMulB, MatMulC, MatMulBias, MatMulScratch, MatMulPost };
enum BlockMatMulOperand {
  BlockMatMulA,
  BlockMatMulB,
  BlockMatMulC,
  BlockMatMulScales,
  BlockMatMulScratch,
  BlockMatMulZeros
};
enum ConvOperand { ConvSrc, ConvWeights, ConvDst, ConvBias, ConvScratch, ConvPost };
enum ConvBackwardFilterOperand {
  BackwardSrc,
  BackwardDst,
  BackwardFilter,
  BackwardScratch
};
enum PoolOperand { PoolSrc, PoolDst, PoolScratch };

/// The bit pattern of `value` as an element of `type` (for Fill, Mask, Repad…): the
/// nearest value; bool is 0 or 1.
int64_t elementBits(DType type, double value);
bool isBinary(int64_t postKind);
/// The type of what a post-op makes of a number of this type.
DType typeAfter(int64_t postKind, DType type);
/// Element type of a call's result: of sums, or what post-ops make of them.
template <typename P> DType resultType(const P &p) {
  auto type = static_cast<DType>(p.dtype);
  for (const PostOp &op : p.post)
    type = typeAfter(op.kind, type);
  return type;
}

/// Tensors that a collective moves: one, or the items of a bucket. None for other kinds.
/// The sizes of Permute, AllToAll and those that layouts tell are theirs, not an item's.
size_t numItems(const Params &params);
/// Item `i` of an AllReduce, AllGather or ReduceScatter.
template <typename P> Item itemOf(const P &p, size_t i) {
  if (i > 0)
    return p.more[i - 1];
  if constexpr (requires { p.block; })
    return {p.outer, p.block, p.dtype};
  else
    return {1, p.count, p.dtype};
}

/// Equal bytes are equal parameters.
std::string bytesOf(const Params &params);
/// "{ dtype: 0, m: 5, … }": fields that differ from what the schema gives them.
std::string text(const Params &params);

/// What a task reads and writes: for each operand the bytes that the parameters imply
/// (0: unknown), and whether it may be absent. Empty for Kernel.
struct OperandNeed {
  uint64_t bytes;
  bool optional;
};
/// An error if a parameter is out of its range.
Expected<std::vector<OperandNeed>> operandNeeds(const Params &params, const Mesh &mesh);
/// The operands that a task with so many may write, first and behind the last. Those that
/// a kernel only reads stand before the others.
std::pair<size_t, size_t> writtenOperands(const Params &params, size_t numOperands);
/// How many elements the list has that a task of this kind takes as its first rank value;
/// 0: it takes none. The parameters have been checked.
int64_t listLength(const Params &params);

} // namespace task

/// The places of the kinds in task::Params.
enum class TaskKind : uint8_t {
  Kernel,
  MatMul,
  BlockMatMul,
  Conv,
  ConvTranspose,
  ConvBackwardFilter,
  Pool,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Permute,
  Exchange,
  Halo,
  Slice,
  Mask,
  Copy,
  Repad,
  ToPartial,
  Fill,
  Wait,
  Repeat,
  Skip,
  Update,
  AllToAllV,
  Rows,
};
inline TaskKind kindOf(const task::Params &params) {
  return static_cast<TaskKind>(params.index());
}
/// "matmul", "all-reduce"…
std::string_view name(TaskKind kind);
/// Whether the task talks to other ranks.
inline bool isCollective(TaskKind kind) {
  return (kind >= TaskKind::AllReduce && kind <= TaskKind::Halo) ||
         kind == TaskKind::AllToAllV;
}
/// Whether a task of this kind may be only started: other tasks run until it is waited
/// for.
inline bool mayFly(TaskKind kind) { return isCollective(kind) || kind == TaskKind::Copy; }
/// Whether it copies elements within the rank, so that its operands need no alignment.
inline bool isLocalCopy(TaskKind kind) {
  return (kind >= TaskKind::Slice && kind <= TaskKind::Fill) ||
         kind == TaskKind::Update || kind == TaskKind::Rows;
}
/// Whether an engine does it.
inline bool isEngineCall(TaskKind kind) {
  return kind >= TaskKind::MatMul && kind <= TaskKind::Pool;
}

/// Whether one of its operands is a weight, which may be repacked at load.
inline bool hasWeight(TaskKind kind) {
  return kind >= TaskKind::MatMul && kind <= TaskKind::ConvTranspose;
}
/// The operand that a task other than a kernel, wait, loop or skipped part writes. A task
/// in place may have fewer operands.
size_t resultOperand(TaskKind kind);
/// The operand of an engine call that is scratch.
size_t scratchOperand(TaskKind kind);

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_TASKKINDS_H
