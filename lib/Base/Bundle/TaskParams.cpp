//===- TaskParams.cpp - Parameters of each task kind ----------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <bit>
#include <cstring>
#include <initializer_list>

using namespace partita;
using namespace partita::task;

int64_t task::floatBits(float value) { return std::bit_cast<uint32_t>(value); }
float task::floatFromBits(int64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}

int64_t task::elementBits(DType type, double value) {
  switch (type) {
  case DType::F32:
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  case DType::F64:
    return std::bit_cast<int64_t>(value);
  case DType::F16:
    return floatToHalf(static_cast<float>(value));
  case DType::BF16:
    return floatToBfloat16(static_cast<float>(value));
  case DType::Bool:
    return value != 0;
  case DType::U64:
    return static_cast<int64_t>(value >= 0x1p64 ? UINT64_MAX
                                                : static_cast<uint64_t>(value));
  default:
    // Every signed and narrower unsigned integer; 2^63 and above saturate.
    return value >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(value);
  }
}

bool task::isBinary(int64_t postKind) { return postKind >= PARTITA_POST_BINARY_ADD; }

//===----------------------------------------------------------------------===//
// Encoding: the C struct's fields in order, then the tail.
//===----------------------------------------------------------------------===//

namespace {

template <typename Fields> constexpr size_t fieldCount = sizeof(Fields) / 8;

template <typename Fields> Ints encodeFields(const Fields &fields) {
  Ints out(fieldCount<Fields>);
  std::memcpy(out.data(), &fields, sizeof(Fields));
  return out;
}

void append(Ints &out, const AxisList &axes) {
  for (const AxisRef &ref : axes)
    out.insert(out.end(), {ref.axis, ref.pre, ref.size});
}

void append(Ints &out, const std::vector<PostOp> &post) {
  for (const PostOp &op : post)
    out.insert(out.end(), {op.kind, floatBits(op.alpha), floatBits(op.beta), op.mask});
}

void append(Ints &out, const std::vector<SpatialDim> &dims) {
  for (const SpatialDim &d : dims)
    out.insert(out.end(),
               {d.in, d.out, d.kernel, d.stride, d.dilation, d.padBegin, d.padEnd});
}

void append(Ints &out, const std::vector<HaloWindow> &windows) {
  for (const HaloWindow &w : windows)
    out.insert(out.end(), {w.dim, w.stride, w.reach, w.low});
}

/// Reads parameters front to back; the first thing out of range is kept as the error.
class Reader {
public:
  explicit Reader(IntsView params) : rest(params) {}

  template <typename Fields> void fields(Fields &out) {
    if (rest.size() < fieldCount<Fields>)
      return fail("expected at least " + std::to_string(fieldCount<Fields>) +
                  " parameters, got " + std::to_string(rest.size()));
    std::memcpy(&out, rest.data(), sizeof(Fields));
    rest = rest.subspan(fieldCount<Fields>);
  }

  int64_t next() {
    if (rest.empty()) {
      fail("the parameter list is too short");
      return 0;
    }
    int64_t value = rest.front();
    rest = rest.subspan(1);
    return value;
  }

  void range(const char *what, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      fail(std::string(what) + " is " + std::to_string(value) + ", expected " +
           std::to_string(low) + " to " + std::to_string(high));
  }
  void dtype(int64_t value) {
    range("the element type", value, 0, PARTITA_NUM_DTYPES - 1);
  }
  void reduce(int64_t value) {
    range("the reduction", value, 0, PARTITA_NUM_REDUCES - 1);
  }
  /// Sizes are bounded so that byte counts of a few factors are checked products.
  void size(const char *what, int64_t value, int64_t low = 0) {
    range(what, value, low, int64_t(1) << 48);
  }

  AxisList axes(size_t count) {
    AxisList list;
    for (size_t i = 0; i < count && !failed(); ++i) {
      AxisRef ref;
      int64_t axis = next();
      range("an axis", axis, 0, INT32_MAX);
      ref.axis = static_cast<int32_t>(axis);
      ref.pre = next();
      ref.size = next();
      list.push_back(ref);
    }
    return list;
  }
  /// Everything that is left, as one list.
  AxisList axesToEnd() {
    if (rest.size() % 3 != 0)
      fail("the axis list has " + std::to_string(rest.size()) +
           " ints, not a multiple of 3");
    return axes(rest.size() / 3);
  }

  std::vector<PostOp> postOps(int64_t count) {
    std::vector<PostOp> ops;
    range("the number of post-ops", count, 0, 32);
    for (int64_t i = 0; i < count && !failed(); ++i) {
      PostOp op;
      op.kind = next();
      range("a post-op", op.kind, 0, PARTITA_NUM_POST_OPS - 1);
      op.alpha = floatFromBits(next());
      op.beta = floatFromBits(next());
      op.mask = next();
      range("a post-op's mask", op.mask, 0, 0xffff);
      ops.push_back(op);
    }
    return ops;
  }

  std::vector<SpatialDim> spatial(int64_t count) {
    std::vector<SpatialDim> dims;
    range("the number of spatial dims", count, 1, 3);
    for (int64_t i = 0; i < count && !failed(); ++i) {
      SpatialDim d;
      for (int64_t *field : {&d.in, &d.out, &d.kernel, &d.stride, &d.dilation})
        size("a spatial parameter", *field = next(), 1);
      size("a padding", d.padBegin = next());
      // The end may be negative: the last elements are then never read.
      range("a padding", d.padEnd = next(), -(int64_t(1) << 48), int64_t(1) << 48);
      dims.push_back(d);
    }
    return dims;
  }

  void fail(std::string message) {
    if (error.empty())
      error = std::move(message);
  }
  bool failed() const { return !error.empty(); }

  template <typename T> Expected<T> finish(T value) {
    if (!failed() && !rest.empty())
      fail(std::to_string(rest.size()) + " parameters too many");
    if (failed())
      return makeError(error);
    return value;
  }

private:
  IntsView rest;
  std::string error;
};

/// The C struct that a parameter struct derives from.
template <typename Fields> Fields &base(Fields &fields) { return fields; }

} // namespace

Ints MatMul::encode() const {
  partita_matmul_params fields = *this;
  fields.num_batch = static_cast<int64_t>(batch.size());
  fields.num_post = static_cast<int64_t>(post.size());
  Ints out = encodeFields(fields);
  for (const BatchDim &d : batch)
    out.insert(out.end(), {d.size, d.a, d.b, d.c});
  append(out, post);
  return out;
}

Expected<MatMul> MatMul::decode(IntsView params) {
  Reader in(params);
  MatMul p;
  in.fields(base<partita_matmul_params>(p));
  in.dtype(p.dtype);
  in.size("m", p.m, 1);
  in.size("n", p.n, 1);
  in.size("k", p.k, 1);
  for (int64_t stride : {p.a_row, p.a_col, p.b_row, p.b_col, p.c_row})
    in.size("a stride", stride);
  in.range("bias_mask", p.bias_mask, 0, 3);
  in.range("b_packed", p.b_packed, 0, 1);
  in.range("the number of batch dims", p.num_batch, 0, 10);
  for (int64_t i = 0; i < p.num_batch && !in.failed(); ++i) {
    BatchDim d;
    in.size("a batch dim", d.size = in.next(), 1);
    for (int64_t *stride : {&d.a, &d.b, &d.c})
      in.size("a batch stride", *stride = in.next());
    p.batch.push_back(d);
  }
  p.post = in.postOps(p.num_post);
  return in.finish(std::move(p));
}

Ints Conv::encode() const {
  partita_conv_params fields = *this;
  fields.num_spatial = static_cast<int64_t>(spatial.size());
  fields.num_post = static_cast<int64_t>(post.size());
  Ints out = encodeFields(fields);
  append(out, spatial);
  append(out, post);
  return out;
}

Expected<Conv> Conv::decode(IntsView params) {
  Reader in(params);
  Conv p;
  in.fields(base<partita_conv_params>(p));
  in.dtype(p.dtype);
  in.size("batch", p.batch, 1);
  in.size("in_channels", p.in_channels, 1);
  in.size("out_channels", p.out_channels, 1);
  in.size("groups", p.groups, 1);
  if (!in.failed() && (p.in_channels % p.groups != 0 || p.out_channels % p.groups != 0))
    in.fail("the channels are not a multiple of the groups");
  in.range("has_bias", p.has_bias, 0, 1);
  in.range("weights_packed", p.weights_packed, 0, 1);
  in.range("src_format", p.src_format, 0, PARTITA_NUM_FORMATS - 1);
  in.range("dst_format", p.dst_format, 0, PARTITA_NUM_FORMATS - 1);
  p.spatial = in.spatial(p.num_spatial);
  p.post = in.postOps(p.num_post);
  return in.finish(std::move(p));
}

Ints Pool::encode() const {
  partita_pool_params fields = *this;
  fields.num_spatial = static_cast<int64_t>(spatial.size());
  Ints out = encodeFields(fields);
  append(out, spatial);
  return out;
}

Expected<Pool> Pool::decode(IntsView params) {
  Reader in(params);
  Pool p;
  in.fields(base<partita_pool_params>(p));
  in.dtype(p.dtype);
  in.range("mode", p.mode, 0, PARTITA_NUM_POOLS - 1);
  in.size("batch", p.batch, 1);
  in.size("channels", p.channels, 1);
  in.range("src_format", p.src_format, 0, PARTITA_NUM_FORMATS - 1);
  in.range("dst_format", p.dst_format, 0, PARTITA_NUM_FORMATS - 1);
  p.spatial = in.spatial(p.num_spatial);
  return in.finish(std::move(p));
}

//===----------------------------------------------------------------------===//
// Collectives and local copies
//===----------------------------------------------------------------------===//

static void checkReduce(Reader &in, int64_t dtype, int64_t reduce) {
  in.dtype(dtype);
  in.reduce(reduce);
}
static void check(Reader &in, AllReduce &p) {
  checkReduce(in, p.dtype, p.reduce);
  in.size("count", p.count);
}
static void check(Reader &in, AllGather &p) {
  in.dtype(p.dtype);
  in.size("outer", p.outer);
  in.size("block", p.block);
}
static void check(Reader &in, ReduceScatter &p) {
  checkReduce(in, p.dtype, p.reduce);
  in.size("outer", p.outer);
  in.size("block", p.block);
}
static void check(Reader &in, AllToAll &p) {
  in.dtype(p.dtype);
  in.range("split_first", p.split_first, 0, 1);
  for (int64_t extent : {p.outer, p.split, p.middle, p.join, p.inner})
    in.size("an extent", extent);
}
static void check(Reader &in, Broadcast &p) {
  in.dtype(p.dtype);
  in.size("count", p.count);
  in.size("root", p.root);
}

#define PARTITA_GROUP(NAME, FIELDS)                                                      \
  Ints NAME::encode() const {                                                            \
    Ints out = encodeFields<FIELDS>(*this);                                              \
    append(out, group);                                                                  \
    return out;                                                                          \
  }                                                                                      \
  Expected<NAME> NAME::decode(IntsView params) {                                         \
    Reader in(params);                                                                   \
    NAME p;                                                                              \
    in.fields(base<FIELDS>(p));                                                          \
    check(in, p);                                                                        \
    p.group = in.axesToEnd();                                                            \
    return in.finish(std::move(p));                                                      \
  }
PARTITA_GROUP(AllReduce, partita_all_reduce_params)
PARTITA_GROUP(AllGather, partita_all_gather_params)
PARTITA_GROUP(ReduceScatter, partita_reduce_scatter_params)
PARTITA_GROUP(AllToAll, partita_all_to_all_params)
PARTITA_GROUP(Broadcast, partita_broadcast_params)
#undef PARTITA_GROUP

Ints Permute::encode() const {
  partita_permute_params fields = *this;
  fields.num_from = static_cast<int64_t>(from.size());
  fields.num_to = static_cast<int64_t>(to.size());
  Ints out = encodeFields(fields);
  append(out, from);
  append(out, to);
  return out;
}

Expected<Permute> Permute::decode(IntsView params) {
  Reader in(params);
  Permute p;
  in.fields(base<partita_permute_params>(p));
  in.dtype(p.dtype);
  in.size("count", p.count);
  in.range("num_from", p.num_from, 0, 64);
  in.range("num_to", p.num_to, 0, 64);
  if (!in.failed())
    p.from = in.axes(static_cast<size_t>(p.num_from));
  if (!in.failed())
    p.to = in.axes(static_cast<size_t>(p.num_to));
  return in.finish(std::move(p));
}

Ints task::Halo::encode() const {
  partita_halo_params fields = *this;
  fields.num_windows = static_cast<int64_t>(windows.size());
  Ints out = encodeFields(fields);
  append(out, windows);
  return out;
}

Expected<task::Halo> task::Halo::decode(IntsView params) {
  Reader in(params);
  task::Halo p;
  in.fields(base<partita_halo_params>(p));
  in.dtype(p.dtype);
  in.range("before", p.before, 0, UINT32_MAX);
  in.range("positions", p.positions, 0, UINT32_MAX);
  in.range("num_windows", p.num_windows, 1, 64);
  for (int64_t i = 0; i < p.num_windows && !in.failed(); ++i) {
    int64_t dim = in.next();
    in.range("the dim of a window", dim, 0, INT32_MAX);
    p.windows.push_back({static_cast<int32_t>(dim), in.next(), in.next(), in.next()});
  }
  return in.finish(std::move(p));
}

static void check(Reader &in, Exchange &p) {
  in.dtype(p.dtype);
  in.range("before", p.before, 0, UINT32_MAX);
  in.range("after", p.after, 0, UINT32_MAX);
}
static void check(Reader &in, Slice &p) {
  in.dtype(p.dtype);
  in.size("outer", p.outer);
  in.size("parts", p.parts, 1);
  in.size("block", p.block);
}
static void check(Reader &in, Mask &p) {
  in.dtype(p.dtype);
  for (int64_t extent : {p.outer, p.extent, p.inner})
    in.size("an extent", extent);
}
static void check(Reader &in, Copy &p) {
  in.dtype(p.dtype);
  in.size("count", p.count);
}
static void check(Reader &in, Repad &p) {
  in.dtype(p.dtype);
  for (int64_t extent : {p.outer, p.from, p.to, p.inner})
    in.size("an extent", extent);
}
static void check(Reader &in, ToPartial &p) {
  in.dtype(p.dtype);
  in.size("count", p.count);
}
static void check(Reader &in, Fill &p) {
  in.dtype(p.dtype);
  in.size("count", p.count);
}

#define PARTITA_PLAIN(NAME, FIELDS)                                                      \
  Ints NAME::encode() const { return encodeFields<FIELDS>(*this); }                      \
  Expected<NAME> NAME::decode(IntsView params) {                                         \
    Reader in(params);                                                                   \
    NAME p;                                                                              \
    in.fields(base<FIELDS>(p));                                                          \
    check(in, p);                                                                        \
    return in.finish(std::move(p));                                                      \
  }
PARTITA_PLAIN(Exchange, partita_exchange_params)
PARTITA_PLAIN(Slice, partita_slice_params)
PARTITA_PLAIN(Mask, partita_mask_params)
PARTITA_PLAIN(Copy, partita_copy_params)
PARTITA_PLAIN(Repad, partita_repad_params)
PARTITA_PLAIN(ToPartial, partita_to_partial_params)
PARTITA_PLAIN(Fill, partita_fill_params)
#undef PARTITA_PLAIN
