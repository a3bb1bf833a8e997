/*===- TaskTable.h - The task table's binary records ---------------*- C -*-===*\
|*
|* A stage's shared object carries, next to its kernels, one constant blob
|*
|*   extern const unsigned char partita_task_table[];
|*   extern const uint64_t partita_task_table_size;
|*
|* which every rank walks from the first task to the last. It is the same for all
|* ranks and its size does not depend on their number: what differs per rank is
|* written as a closed form of the rank's mesh coordinates (partita_rank_value).
|*
|* The blob is position independent: a header, then sections of fixed-size records;
|* records refer to each other by index, to strings by byte offset into the string
|* section (NUL-terminated), to lists by a range of the int64 section. Little endian,
|* every section 8-byte aligned. This header is plain C with no dependency; the C++
|* builder and the checked reader are in partita/Base/Bundle/TaskTable.h.
|*
|* Values of all enumerations are written into bundles: append only, and raise
|* PARTITA_TABLE_VERSION when the meaning of a record changes.
|*
\*===----------------------------------------------------------------------===*/
#ifndef PARTITA_ABI_TASKTABLE_H
#define PARTITA_ABI_TASKTABLE_H

#include <stdint.h>

#define PARTITA_TABLE_MAGIC 0x4c425450u /* "PTBL" */
#define PARTITA_TABLE_VERSION 2u
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
 * stays in its buffers. */
typedef void (*partita_kernel_fn)(void *const *buffers, const int64_t *scalars,
                                  struct partita_status *status);

/* Element types, in the order of partita::DType:            name   bytes */
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
  X(BOOL, "bool", 1)

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

/*===----------------------------------------------------------------------===*
 * Sections
 *===----------------------------------------------------------------------===*/

/*                  enumerator   record type          */
#define PARTITA_SECTIONS(X)                                                              \
  X(STRINGS, char)                                                                       \
  X(INTS, int64_t)                                                                       \
  X(AXES, struct partita_axis)                                                           \
  X(BUFFERS, struct partita_buffer)                                                      \
  X(TENSORS, struct partita_tensor)                                                      \
  X(KERNELS, struct partita_kernel)                                                      \
  X(RANK_VALUES, struct partita_rank_value)                                              \
  X(TASKS, struct partita_task)

enum partita_section_id {
#define X(NAME, TYPE) PARTITA_SECTION_##NAME,
  PARTITA_SECTIONS(X)
#undef X
      PARTITA_NUM_SECTIONS
};

struct partita_section {
  uint64_t offset; /* bytes from the start of the blob, a multiple of 8 */
  uint64_t count;  /* records, not bytes */
};

struct partita_table_header {
  uint32_t magic;
  uint32_t version;
  uint64_t total_bytes;  /* of the blob, this header included */
  uint64_t arena_bytes;  /* one allocation per rank: every Arena buffer lies inside */
  uint64_t weight_bytes; /* likewise for Weight buffers */
  uint64_t packed_bytes; /* predicted bytes of weights repacked for engines, per rank */
  struct partita_section sections[PARTITA_NUM_SECTIONS];
};

/* `count` records from `first` of the section that the field names. */
struct partita_range {
  uint32_t first;
  uint32_t count;
};

/* A mesh axis, in mesh order (row-major ranks: the last axis varies fastest). */
struct partita_axis {
  uint64_t size;
  uint32_t name; /* string */
  uint32_t reserved;
};

enum partita_space { PARTITA_SPACE_ARENA, PARTITA_SPACE_WEIGHT, PARTITA_NUM_SPACES };

/* A place in one of the two regions of a rank. Buffers may overlap (the planner reuses
 * memory). A Weight buffer may be backed by the mapped file instead of the region. */
struct partita_buffer {
  uint64_t offset; /* multiple of PARTITA_BUFFER_ALIGNMENT */
  uint64_t bytes;
  uint32_t space; /* enum partita_space */
  uint32_t reserved;
};

enum partita_role {
  PARTITA_ROLE_INPUT,
  PARTITA_ROLE_OUTPUT,
  PARTITA_ROLE_WEIGHT,
  PARTITA_NUM_ROLES
};

/* A tensor that enters or leaves the stage. `layout` says which elements each rank
 * holds; `buffer` holds the dense row-major local tensor. Inputs and outputs are in
 * graph order within their role and live in the arena at fixed places. An output's
 * layout has no partial axes. */
struct partita_tensor {
  uint32_t role;              /* enum partita_role */
  uint32_t dtype;             /* enum partita_dtype */
  uint32_t name;              /* string */
  uint32_t layout;            /* string: Layout::str on the table's mesh */
  struct partita_range shape; /* ints: the global shape */
  uint32_t buffer;
  uint32_t file;        /* weights: index into the bundle's weight files */
  uint64_t file_offset; /* weights: first byte of the global tensor in that file */
  uint64_t file_bytes;  /* weights: bytes of the global tensor */
};

/* A kernel of this shared object. */
struct partita_kernel {
  uint32_t symbol; /* string */
  uint32_t reserved;
};

/* A scalar that depends on the rank's coordinates. c is the coordinate along the axes:
 * with triples (axis, pre, size), first major, c = mixed radix of
 * (axis_coordinate / (axis_size / (pre·size))) mod size.  No axes: c = 0. */
enum partita_rank_value_kind {
  PARTITA_RANK_BLOCK_INDEX,  /* c */
  PARTITA_RANK_VALID_EXTENT, /* clamp(size − c·block, 0, block) */
  PARTITA_RANK_BLOCK_START,  /* c·block */
  PARTITA_RANK_LISTED,       /* listed[c] */
  PARTITA_NUM_RANK_VALUE_KINDS
};

struct partita_rank_value {
  uint32_t kind;
  uint32_t reserved;
  int64_t size;
  int64_t block;
  struct partita_range axes;   /* ints: 3 per axis: axis, pre, size */
  struct partita_range listed; /* ints: one per coordinate; empty for other kinds */
};

/* One call. */
struct partita_task {
  uint16_t kind; /* enum partita_task_kind */
  uint16_t stream;
  uint32_t kernel; /* Kernel tasks: index into the kernels; otherwise 0 */
  uint32_t source; /* string: the source node's name */
  uint32_t reserved;
  struct partita_range operands;    /* ints: buffer indices; −1 where absent */
  struct partita_range params;      /* ints: by kind, below */
  struct partita_range rank_values; /* ints: indices into the rank values */
  struct partita_range waits;       /* ints: earlier tasks on other streams */
};

/*===----------------------------------------------------------------------===*
 * Task kinds. Operands in order; parameters are int64 in the order of the field lists
 * below, followed by the tail lists described. Floats travel as the bit pattern of an
 * f32 in the low 32 bits. `dtype` is enum partita_dtype; `bits` an element's bit
 * pattern in its low bytes; sizes and strides are in elements. "group" as a tail is
 * 3 ints per axis: axis, pre, size; the members are the ranks that differ from this one
 * only along it, member i has coordinate i, p is their number.
 *===----------------------------------------------------------------------===*/

/*  enumerator       text              operands */
#define PARTITA_TASK_KINDS(X)                                                            \
  /* compiled code: any operands; scalars from the rank values; parameters: the names    \
   * of the nodes behind its checks, as strings */                                       \
  X(KERNEL, "kernel")                                                                    \
  /* engine calls: operand 3 bias, 4 scratch may be −1; one more operand per           \
   * binary post-op, in order */                                                         \
  X(MATMUL, "matmul")                 /* a, b, c, bias, scratch, … */                    \
  X(CONV, "conv")                     /* src, weights, dst, bias, scratch, …*/           \
  X(CONV_TRANSPOSE, "conv-transpose") /* likewise */                                     \
  X(POOL, "pool")                     /* src, dst, scratch */                            \
  /* collectives: source and target may be the same buffer only for AllReduce            \
   * and Broadcast */                                                                    \
  X(ALL_REDUCE, "all-reduce")         /* source, target */                               \
  X(ALL_GATHER, "all-gather")         /* source, target */                               \
  X(REDUCE_SCATTER, "reduce-scatter") /* source, target */                               \
  X(ALL_TO_ALL, "all-to-all")         /* source, target */                               \
  X(PERMUTE, "permute")               /* source, target */                               \
  X(BROADCAST, "broadcast")           /* source, target */                               \
  X(EXCHANGE, "exchange")             /* source, target */                               \
  /* local copies */                                                                     \
  X(SLICE, "slice")           /* source, target; value: c */                             \
  X(MASK, "mask")             /* target; value: valid extent */                          \
  X(COPY, "copy")             /* source, target */                                       \
  X(REPAD, "repad")           /* source, target */                                       \
  X(TO_PARTIAL, "to-partial") /* source, target; value: c */                             \
  X(FILL, "fill")             /* target */                                               \
  /* reserved for asynchronous schedules; readers refuse them today */                   \
  X(START, "start")                                                                      \
  X(WAIT, "wait")                                                                        \
  /* a collective again */                                                               \
  X(HALO, "halo") /* source, target */

enum partita_task_kind {
#define X(NAME, TEXT) PARTITA_TASK_##NAME,
  PARTITA_TASK_KINDS(X)
#undef X
      PARTITA_NUM_TASK_KINDS
};

/* clang-format off */

/* c[…, m, n] = post(Σ_k a[…, m, k] · b[…, k, n] + bias). Row-major c with row stride
 * c_row; transposed operands are strides. bias_mask: 0 no bias; bit 0: it varies
 * along n, bit 1: along m. b_packed 1: b is a weight that
 * the runtime repacks once at load.
 * Tail: per batch dim, major first: size, a, b, c strides (0 broadcasts a or b);
 * then the post-ops (see below). */
#define PARTITA_MATMUL_FIELDS(X)                                                         \
  X(dtype)                                                                               \
  X(m) X(n) X(k) X(a_row) X(a_col) X(b_row) X(b_col) X(c_row) X(bias_mask) X(b_packed)   \
      X(num_batch) X(num_post)

/* Convolution of dense src [batch, in_channels, spatial…] with weights
 * [out_channels, in_channels/groups, kernel…] (ConvTranspose: [in_channels,
 * out_channels/groups, kernel…]) to dst [batch, out_channels, spatial…]; bias per
 * output channel. weights_packed 1: repacked once at load. src_format, dst_format:
 * enum partita_format.
 * Tail: per spatial dim, major first: in, out, kernel, stride, dilation (1 = dense),
 * pad_begin, pad_end; then the post-ops. */
#define PARTITA_CONV_FIELDS(X)                                                           \
  X(dtype)                                                                               \
  X(batch) X(in_channels) X(out_channels) X(groups) X(has_bias) X(weights_packed)        \
      X(src_format) X(dst_format) X(num_spatial) X(num_post)

/* mode: enum partita_pool. Tail: per spatial dim as for Conv. */
#define PARTITA_POOL_FIELDS(X)                                                           \
  X(dtype) X(mode) X(batch) X(channels) X(src_format) X(dst_format) X(num_spatial)

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

/* Post-ops: num_post records of PARTITA_POST_INTS ints {kind, alpha, beta, mask},
 * applied in order to the result x. Binary ones take the next extra operand y: dense over
 * the result's dims whose bit is set in mask, broadcast along the rest. Bit i is the
 * result's dim i: MatMul: the batch dims as listed, then m, n, and y is row-major in that
 * order; Conv: batch, channels, spatial…, and y is in the order of dst_format.
 *                 kind            meaning */
#define PARTITA_POST_OPS(X)                                                              \
  X(RELU, "relu") /* x > 0 ? x : alpha·x */                                              \
  X(GELU_ERF, "gelu-erf")                                                                \
  X(GELU_TANH, "gelu-tanh")                                                              \
  X(TANH, "tanh")                                                                        \
  X(LOGISTIC, "logistic")                                                                \
  X(SWISH, "swish")             /* x · logistic(alpha·x) */                              \
  X(HARDSWISH, "hardswish")     /* x · clip(x/6 + 1/2, 0, 1) */                          \
  X(HARDSIGMOID, "hardsigmoid") /* clip(alpha·x + beta, 0, 1) */                         \
  X(CLIP, "clip")               /* clip(x, alpha, beta) */                               \
  X(LINEAR, "linear")           /* alpha·x + beta */                                     \
  X(ELU, "elu")                 /* x > 0 ? x : alpha·(e^x − 1) */                        \
  X(SQRT, "sqrt")                                                                        \
  X(SQUARE, "square")                                                                    \
  X(ABS, "abs")                                                                          \
  X(EXP, "exp")                                                                          \
  X(BINARY_ADD, "binary-add")                                                            \
  X(BINARY_SUB, "binary-sub")                                                            \
  X(BINARY_MUL, "binary-mul")                                                            \
  X(BINARY_MAX, "binary-max")                                                            \
  X(BINARY_MIN, "binary-min")

enum partita_post_op {
#define X(NAME, TEXT) PARTITA_POST_##NAME,
  PARTITA_POST_OPS(X)
#undef X
      PARTITA_NUM_POST_OPS
};
#define PARTITA_POST_INTS 4

/* target[i] = reduce over members of source[i]. Tail: group. */
#define PARTITA_ALL_REDUCE_FIELDS(X) X(dtype) X(reduce) X(count)

/* source [outer, block], target [outer, p, block]: target[:, i] is member i's source.
 * (A dim d is gathered with outer = the dims above it, block = local d · inner.)
 * Tail: group. */
#define PARTITA_ALL_GATHER_FIELDS(X) X(dtype) X(outer) X(block)

/* source [outer, p, block], target [outer, block]: member i gets the reduction of
 * everyone's source[:, i]. Tail: group. */
#define PARTITA_REDUCE_SCATTER_FIELDS(X) X(dtype) X(reduce) X(outer) X(block)

/* One dim becomes sharded (split, by p) and another whole (joined).
 * split_first 1: source [outer, p, split, middle, join, inner]
 *             → target [outer, split, middle, p, join, inner]
 * split_first 0: source [outer, join, middle, p, split, inner]
 *             → target [outer, p, join, middle, split, inner]
 * Member i gets piece i along the source's p; the target's p is the sender. split and
 * join are the sizes per member. Tail: group. */
#define PARTITA_ALL_TO_ALL_FIELDS(X)                                                     \
  X(dtype) X(split_first) X(outer) X(split) X(middle) X(join) X(inner)

/* A rank r receives the source of the rank that equals r except that its coordinate
 * along the list `from` is r's coordinate along the list `to` (equal products, and the
 * two lists name the same digits, so that this is a bijection). Tail: `from`, then `to`,
 * num_from and num_to triples (axis, pre, size). */
#define PARTITA_PERMUTE_FIELDS(X) X(dtype) X(count) X(num_from) X(num_to)

/* Member `root`'s source to every member's target. Tail: group. */
#define PARTITA_BROADCAST_FIELDS(X) X(dtype) X(count) X(root)

/* General exchange between two layouts of one tensor, each a string (Layout::str);
 * a rank fetches what it lacks from the nearest holder. */
#define PARTITA_EXCHANGE_FIELDS(X) X(dtype) X(before) X(after)

/* Windows of a tensor, see partita/Base/Layout/Halo.h: `before` and `positions` are layouts as
 * strings; a rank fetches what its windows cover from the nearest holders, and where
 * nothing is, the target becomes `bits`. Tail: per window: dim, stride, reach, low. */
#define PARTITA_HALO_FIELDS(X) X(dtype) X(before) X(positions) X(bits) X(num_windows)

/* target [outer, block] = source [outer, parts, block] at [:, c]. */
#define PARTITA_SLICE_FIELDS(X) X(dtype) X(outer) X(parts) X(block)

/* target [outer, extent, inner]: elements [:, valid … extent, :] become `bits`. */
#define PARTITA_MASK_FIELDS(X) X(dtype) X(outer) X(extent) X(inner) X(bits)

#define PARTITA_COPY_FIELDS(X) X(dtype) X(count)

/* source [outer, from, inner] → target [outer, to, inner]; what is new becomes `bits`. */
#define PARTITA_REPAD_FIELDS(X) X(dtype) X(outer) X(from) X(to) X(inner) X(bits)

/* c == 0: target = source; otherwise every element becomes `bits` (the neutral one). */
#define PARTITA_TO_PARTIAL_FIELDS(X) X(dtype) X(count) X(bits)

#define PARTITA_FILL_FIELDS(X) X(dtype) X(count) X(bits)

/* clang-format on */

/*  kind's struct     kind            fields */
#define PARTITA_TASK_PARAMS(X)                                                           \
  X(MatMul, MATMUL, PARTITA_MATMUL_FIELDS)                                               \
  X(Conv, CONV, PARTITA_CONV_FIELDS)                                                     \
  X(Pool, POOL, PARTITA_POOL_FIELDS)                                                     \
  X(AllReduce, ALL_REDUCE, PARTITA_ALL_REDUCE_FIELDS)                                    \
  X(AllGather, ALL_GATHER, PARTITA_ALL_GATHER_FIELDS)                                    \
  X(ReduceScatter, REDUCE_SCATTER, PARTITA_REDUCE_SCATTER_FIELDS)                        \
  X(AllToAll, ALL_TO_ALL, PARTITA_ALL_TO_ALL_FIELDS)                                     \
  X(Permute, PERMUTE, PARTITA_PERMUTE_FIELDS)                                            \
  X(Broadcast, BROADCAST, PARTITA_BROADCAST_FIELDS)                                      \
  X(Exchange, EXCHANGE, PARTITA_EXCHANGE_FIELDS)                                         \
  X(Halo, HALO, PARTITA_HALO_FIELDS)                                                     \
  X(Slice, SLICE, PARTITA_SLICE_FIELDS)                                                  \
  X(Mask, MASK, PARTITA_MASK_FIELDS)                                                     \
  X(Copy, COPY, PARTITA_COPY_FIELDS)                                                     \
  X(Repad, REPAD, PARTITA_REPAD_FIELDS)                                                  \
  X(ToPartial, TO_PARTIAL, PARTITA_TO_PARTIAL_FIELDS)                                    \
  X(Fill, FILL, PARTITA_FILL_FIELDS)

/* Plain-C view of the leading parameters, e.g. struct partita_all_gather_params:
 * `params` of a task may be read through it (int64 fields in order). */
#define X(FIELD) int64_t FIELD;
struct partita_matmul_params {
  PARTITA_MATMUL_FIELDS(X)
};
struct partita_conv_params {
  PARTITA_CONV_FIELDS(X)
};
struct partita_pool_params {
  PARTITA_POOL_FIELDS(X)
};
struct partita_all_reduce_params {
  PARTITA_ALL_REDUCE_FIELDS(X)
};
struct partita_all_gather_params {
  PARTITA_ALL_GATHER_FIELDS(X)
};
struct partita_reduce_scatter_params {
  PARTITA_REDUCE_SCATTER_FIELDS(X)
};
struct partita_all_to_all_params {
  PARTITA_ALL_TO_ALL_FIELDS(X)
};
struct partita_permute_params {
  PARTITA_PERMUTE_FIELDS(X)
};
struct partita_broadcast_params {
  PARTITA_BROADCAST_FIELDS(X)
};
struct partita_exchange_params {
  PARTITA_EXCHANGE_FIELDS(X)
};
struct partita_halo_params {
  PARTITA_HALO_FIELDS(X)
};
struct partita_slice_params {
  PARTITA_SLICE_FIELDS(X)
};
struct partita_mask_params {
  PARTITA_MASK_FIELDS(X)
};
struct partita_copy_params {
  PARTITA_COPY_FIELDS(X)
};
struct partita_repad_params {
  PARTITA_REPAD_FIELDS(X)
};
struct partita_to_partial_params {
  PARTITA_TO_PARTIAL_FIELDS(X)
};
struct partita_fill_params {
  PARTITA_FILL_FIELDS(X)
};
#undef X

#endif /* PARTITA_ABI_TASKTABLE_H */
