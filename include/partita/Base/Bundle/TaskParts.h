//===- TaskParts.h - Small parts of task parameters -------------*- C++ -*-===//
//
// Structs of the schema (lib/Base/Bundle/TaskTable.fbs) that are known by other types in
// memory, and what turns one into the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_TASKPARTS_H
#define PARTITA_BASE_BUNDLE_TASKPARTS_H

#include "partita/Base/Layout/Halo.h"
#include "partita/Base/Layout/Mesh.h"

#include <cstdint>

namespace partita::task {

struct PostOp {
  int64_t kind = 0; ///< enum partita_post_op
  float alpha = 0, beta = 0;
  int64_t mask = 0; ///< binary ops: result dims along which the operand varies
};

struct BatchDim {
  int64_t size = 1, a = 0, b = 0, c = 0; ///< extent and strides in elements
};

struct SpatialDim {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1;
  int64_t padBegin = 0, padEnd = 0;
};

/// A tensor of a collective, in elements of `dtype`.
struct Item {
  int64_t outer = 1, block = 0;
  uint8_t dtype = 0;
};

/// In trip t of a loop around the task, the operand is begin + t·stride bytes further.
struct Move {
  uint32_t operand = 0, loop = 0; ///< loop 0: the innermost one
  int64_t begin = 0, stride = 0;
};

} // namespace partita::task

namespace partita::fb {
struct Axis;
struct PostOp;
struct BatchDim;
struct SpatialDim;
struct Window;
struct Run;
struct Move;
struct Item;
} // namespace partita::fb

/// Where FlatBuffers looks for them.
namespace flatbuffers {
partita::fb::Axis Pack(const partita::AxisRef &axis);
partita::AxisRef UnPack(const partita::fb::Axis &axis);
partita::fb::PostOp Pack(const partita::task::PostOp &op);
partita::task::PostOp UnPack(const partita::fb::PostOp &op);
partita::fb::BatchDim Pack(const partita::task::BatchDim &dim);
partita::task::BatchDim UnPack(const partita::fb::BatchDim &dim);
partita::fb::SpatialDim Pack(const partita::task::SpatialDim &dim);
partita::task::SpatialDim UnPack(const partita::fb::SpatialDim &dim);
partita::fb::Window Pack(const partita::HaloWindow &window);
partita::HaloWindow UnPack(const partita::fb::Window &window);
partita::fb::Run Pack(const partita::ExchangeRun &run);
partita::ExchangeRun UnPack(const partita::fb::Run &run);
partita::fb::Item Pack(const partita::task::Item &item);
partita::task::Item UnPack(const partita::fb::Item &item);
partita::fb::Move Pack(const partita::task::Move &move);
partita::task::Move UnPack(const partita::fb::Move &move);
} // namespace flatbuffers

#endif // PARTITA_BASE_BUNDLE_TASKPARTS_H
