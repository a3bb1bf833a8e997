/*===- TaskTable.h - What a stage and the runtime agree on ---------*- C -*-===*\
|*
|* A stage's shared object carries, next to its kernels, one constant blob
|*
|*   extern const unsigned char partita_task_table[];
|*   extern const uint64_t partita_task_table_size;
|*
|* which every rank walks from the first task to the last. It is a FlatBuffer; the schema
|* is lib/Base/Bundle/TaskTable.fbs, and partita/Base/Bundle/TaskTable.h builds and reads
|* it. This header is plain C with no dependency: the type of kernels, and the
|* enumerations whose values stand in tables.
|*
|* Values of all enumerations are written into bundles: append only within a version.
|*
\*===----------------------------------------------------------------------===*/
#ifndef PARTITA_ABI_TASKTABLE_H
#define PARTITA_ABI_TASKTABLE_H

#include <stdint.h>

#define PARTITA_TABLE_SYMBOL "partita_task_table"
#define PARTITA_TABLE_SIZE_SYMBOL "partita_task_table_size"

/* Offsets of buffers and the addresses handed to kernels are multiples of this. */
#define PARTITA_BUFFER_ALIGNMENT 64

/* What a kernel met that it cannot compute with. */
enum partita_status_code {
  PARTITA_STATUS_OK,
  PARTITA_STATUS_INDEX, /* `value` is no index of a dim of `size` elements */
  PARTITA_NUM_STATUS_CODES
};

/* Where a kernel leaves word of it. The first finding stays; a kernel reads the code and
 * never clears it. `check` is the number of the place in the kernel, of which the task
 * has the source nodes' names. */
struct partita_status {
  int64_t code;
  int64_t value;
  int64_t size;
  int64_t check;
};

/* The type of every compiled kernel. `buffers` are the task's operands in order,
 * 64-byte aligned; `scalars` the task's rank values in order. Shapes are baked in. A
 * kernel has no other inputs and no state. Whatever it finds, it comes to its end and
 * stays in its buffers.
 *
 * The work of a kernel is a number of units, which the task says and which are
 * independent of each other: the call does those from `begin` to before `end`. Calls of
 * one task may run at the same time, each with another `thread` (0, 1, …), the number of
 * its own part of the scratch operand. The call whose range begins at 0 leaves word for
 * all. What is computed does not depend on how the units are divided. */
typedef void (*partita_kernel_fn)(void *const *buffers, const int64_t *scalars,
                                  struct partita_status *status, int64_t begin,
                                  int64_t end, int64_t thread);

/* Element types, in the order of partita::DType. Those from F8E4M3FN on are storage: one
 * byte per element in memory, and no task computes or reduces in them.
 *                                                         name   bytes */
#define PARTITA_DTYPES(X)                                                                \
  X(F32, "f32", 4)                                                                       \
  X(F64, "f64", 8)                                                                       \
  X(F16, "f16", 2)                                                                       \
  X(BF16, "bf16", 2)                                                                     \
  X(I8, "i8", 1)                                                                         \
  X(I16, "i16", 2)                                                                       \
  X(I32, "i32", 4)                                                                       \
  X(I64, "i64", 8)                                                                       \
  X(U8, "u8", 1)                                                                         \
  X(U16, "u16", 2)                                                                       \
  X(U32, "u32", 4)                                                                       \
  X(U64, "u64", 8)                                                                       \
  X(BOOL, "bool", 1)                                                                     \
  X(F8E4M3FN, "f8e4m3fn", 1)                                                             \
  X(F8E4M3FNUZ, "f8e4m3fnuz", 1)                                                         \
  X(F8E5M2, "f8e5m2", 1)                                                                 \
  X(F8E5M2FNUZ, "f8e5m2fnuz", 1)                                                         \
  X(F8E8M0, "f8e8m0", 1)                                                                 \
  X(F4E2M1, "f4e2m1", 1)                                                                 \
  X(I4, "i4", 1)                                                                         \
  X(U4, "u4", 1)                                                                         \
  X(I2, "i2", 1)                                                                         \
  X(U2, "u2", 1)

enum partita_dtype {
#define X(NAME, TEXT, BYTES) PARTITA_DTYPE_##NAME,
  PARTITA_DTYPES(X)
#undef X
      PARTITA_NUM_DTYPES
};

/* Reductions, in the order of partita::ReduceKind. Members are combined in the order
 * of their coordinate; f16 and bf16 accumulate in f32 and round once; on bool sum and
 * max are "or", prod and min are "and". max and min of floats propagate NaN. */
enum partita_reduce {
  PARTITA_REDUCE_SUM,
  PARTITA_REDUCE_MAX,
  PARTITA_REDUCE_MIN,
  PARTITA_REDUCE_PROD,
  PARTITA_NUM_REDUCES
};

enum partita_role {
  PARTITA_ROLE_INPUT,
  PARTITA_ROLE_OUTPUT,
  PARTITA_ROLE_WEIGHT,
  PARTITA_ROLE_STATE, /* lasts from one request to the next */
  PARTITA_NUM_ROLES
};

/* A scalar that depends on the rank's coordinates. c is the coordinate along the axes:
 * with triples (axis, pre, size), first major, c = mixed radix of
 * (axis_coordinate / (axis_size / (pre·size))) mod size.  No axes: c = 0. */
enum partita_rank_value_kind {
  PARTITA_RANK_BLOCK_INDEX,  /* c */
  PARTITA_RANK_VALID_EXTENT, /* clamp(size − c·block, 0, block) */
  PARTITA_RANK_BLOCK_START,  /* c·block */
  PARTITA_RANK_LISTED,       /* listed[c] */
  PARTITA_RANK_READ,         /* an element of a buffer that an earlier task wrote */
  PARTITA_NUM_RANK_VALUE_KINDS
};

enum partita_pool {
  PARTITA_POOL_MAX,
  PARTITA_POOL_AVG_INCLUDE, /* divides by the window, padding counted */
  PARTITA_POOL_AVG_EXCLUDE, /* divides by the elements inside the image */
  PARTITA_NUM_POOLS
};

/* Order of an image tensor's dims in memory. */
enum partita_format {
  PARTITA_FORMAT_CHANNELS_FIRST, /* batch, channels, spatial… */
  PARTITA_FORMAT_CHANNELS_LAST,  /* batch, spatial…, channels */
  PARTITA_NUM_FORMATS
};

/* What an engine call may do to its result.
 *                 kind            meaning */
#define PARTITA_POST_OPS(X)                                                              \
  X(RELU, "relu")               /* x > 0 ? x : alpha·x */                                \
  X(HARDSWISH, "hardswish")     /* x · clip(x/6 + 1/2, 0, 1) */                          \
  X(HARDSIGMOID, "hardsigmoid") /* clip(alpha·x + beta, 0, 1) */                         \
  X(CLIP, "clip")               /* clip(x, alpha, beta) */                               \
  X(LINEAR, "linear")           /* alpha·x + beta */                                     \
  X(BINARY_ADD, "binary-add")                                                            \
  X(BINARY_SUB, "binary-sub")                                                            \
  X(BINARY_MUL, "binary-mul")                                                            \
  X(ROUND, "round") /* to the nearest integer, of two the even one */                    \
  X(TO_F32, "to-f32")                                                                    \
  X(TO_U8, "to-u8") /* a number that the type has: a clip stands before it */            \
  X(TO_I8, "to-i8")

enum partita_post_op {
#define X(NAME, TEXT) PARTITA_POST_##NAME,
  PARTITA_POST_OPS(X)
#undef X
      PARTITA_NUM_POST_OPS
};
#endif /* PARTITA_ABI_TASKTABLE_H */
