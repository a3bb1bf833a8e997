//===- TaskNeeds.cpp - What a task's parameters may be, and imply ---------===//
//
// The ranges of all parameters, and the bytes that they imply per operand: the reader
// compares these with the buffers, so that no engine call or copy can leave its buffer.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <algorithm>

using namespace partita;
using namespace partita::task;

namespace {

/// A product of sizes that remembers overflow.
struct Extent {
  uint64_t value = 1;
  bool overflow = false;

  Extent(std::initializer_list<int64_t> factors) {
    for (int64_t f : factors)
      times(f);
  }
  Extent &times(int64_t f) {
    overflow |= __builtin_mul_overflow(value, static_cast<uint64_t>(f), &value);
    return *this;
  }
  /// Adds (extent - 1) * stride: the reach of one strided dim.
  Extent &reach(int64_t extent, int64_t stride) {
    uint64_t step;
    overflow |= __builtin_mul_overflow(static_cast<uint64_t>(extent - 1),
                                       static_cast<uint64_t>(stride), &step);
    overflow |= __builtin_add_overflow(value, step, &value);
    return *this;
  }
};

/// Collects needs in bytes of one element type.
class Needs {
public:
  explicit Needs(uint8_t dtype) : width(byteWidth(static_cast<DType>(dtype))) {}

  Needs &add(Extent extent, bool optional = false) {
    return add(extent, width, optional);
  }
  /// Elements of another type, of so many bytes.
  Needs &add(Extent extent, uint64_t width, bool optional = false) {
    extent.times(static_cast<int64_t>(width));
    overflow |= extent.overflow;
    list.push_back({extent.value, optional});
    return *this;
  }
  Needs &absent() {
    list.push_back({0, true});
    return *this;
  }
  Expected<std::vector<OperandNeed>> finish() {
    if (overflow)
      return makeError("the sizes overflow 64 bits");
    return std::move(list);
  }

private:
  uint64_t width;
  bool overflow = false;
  std::vector<OperandNeed> list;
};

/// Checks a list of axes and returns the number of ranks it spans.
Expected<int64_t> groupSize(const AxisList &axes, const Mesh &mesh) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const AxisRef &ref = axes[i];
    if (ref.axis < 0 || static_cast<size_t>(ref.axis) >= mesh.axes().size())
      return makeError("axis " + std::to_string(ref.axis) + " is not in the mesh");
    int64_t size = mesh.axes()[static_cast<size_t>(ref.axis)].size;
    if (ref.pre < 1 || ref.size < 1 || ref.pre > size || ref.size > size ||
        size % (ref.pre * ref.size) != 0)
      return makeError("sub-axis (" + std::to_string(ref.pre) + ")" +
                       std::to_string(ref.size) + " does not divide axis " +
                       mesh.axes()[static_cast<size_t>(ref.axis)].name + " of size " +
                       std::to_string(size));
    for (size_t j = 0; j < i; ++j)
      if (overlap(ref, axes[j]))
        return makeError("axis " + mesh.str(ref) + " is named twice in a group");
  }
  return product(axes);
}

/// Keeps the first parameter that is out of range.
class Ranges {
public:
  void range(const char *what, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      fail(std::string(what) + " is " + std::to_string(value) + ", expected " +
           std::to_string(low) + " to " + std::to_string(high));
  }
  /// Sizes are bounded so that byte counts of a few factors are checked products.
  void size(const char *what, int64_t value, int64_t low = 0) {
    range(what, value, low, int64_t(1) << 48);
  }
  void count(const char *what, size_t value, int64_t low, int64_t high) {
    range(what, static_cast<int64_t>(value), low, high);
  }
  void postOps(const std::vector<PostOp> &ops) {
    count("the number of post-ops", ops.size(), 0, 32);
    for (const PostOp &op : ops) {
      range("a post-op", op.kind, 0, PARTITA_NUM_POST_OPS - 1);
      range("a post-op's mask", op.mask, 0, 0xffff);
    }
  }
  void spatial(const std::vector<SpatialDim> &dims) {
    count("the number of spatial dims", dims.size(), 1, 3);
    for (const SpatialDim &d : dims) {
      for (int64_t value : {d.in, d.out, d.kernel, d.stride, d.dilation})
        size("a spatial parameter", value, 1);
      size("a padding", d.padBegin);
      // The end may be negative: the last elements are then never read.
      range("a padding", d.padEnd, -(int64_t(1) << 48), int64_t(1) << 48);
    }
  }
  void format(uint8_t value) {
    range("the format of an image", value, 0, PARTITA_NUM_FORMATS - 1);
  }
  void fail(std::string message) {
    if (error.empty())
      error = std::move(message);
  }
  std::string error;
};

void check(Ranges &r, const Kernel &p) {
  r.range("units", p.units, 1, std::numeric_limits<int64_t>::max());
  r.range("parts", p.parts, 1, p.units);
}
/// Products of 8-bit integers.
template <typename P> void bytes(Ranges &r, const P &p) {
  if (!isOfBytes(p))
    return;
  for (DType type : {lhsType(p), rhsType(p)})
    if (type != DType::I8 && type != DType::U8)
      r.fail("an operand has a type of its own, and one is no 8-bit integer");
  if (static_cast<DType>(p.dtype) != DType::I32)
    r.fail("sums of products of 8-bit integers are not of i32");
}
/// Post-ops of sums in i32: each a function of numbers of the type that they have by
/// then.
void checkRequantization(Ranges &r, const std::vector<PostOp> &ops) {
  auto type = DType::I32;
  for (const PostOp &op : ops) {
    const bool isSum = op.kind == PARTITA_POST_BINARY_ADD ||
                       op.kind == PARTITA_POST_BINARY_SUB ||
                       (op.kind == PARTITA_POST_LINEAR && op.alpha == 1);
    const DType after = typeAfter(op.kind, type);
    const bool isCast = op.kind >= PARTITA_POST_TO_F32;
    if (byteWidth(type) == 1 || (type == DType::I32 && !isSum && after != DType::F32) ||
        (type == DType::F32 && isCast && after == DType::F32))
      r.fail("a post-op of " + std::string(name(type)) + " is of kind " +
             std::to_string(op.kind));
    type = after;
  }
}
/// Post-ops of other sums keep their type.
void keepType(Ranges &r, const std::vector<PostOp> &ops) {
  for (const PostOp &op : ops)
    r.range("a post-op", op.kind, 0, PARTITA_POST_BINARY_MUL);
}
void check(Ranges &r, const MatMul &p) {
  r.size("m", p.m, 1);
  r.size("n", p.n, 1);
  r.size("k", p.k, 1);
  for (int64_t stride : {p.a_row, p.a_col, p.b_row, p.b_col, p.c_row})
    r.size("a stride", stride);
  r.range("bias_mask", p.bias_mask, 0, 3);
  r.range("bias_mask of integers", isOfBytes(p) ? p.bias_mask : 0, 0, 0);
  bytes(r, p);
  r.count("the number of post-ops of integers", isOfBytes(p) ? p.post.size() : 0, 0, 0);
  r.count("the number of batch dims", p.batch.size(), 0, 10);
  for (const BatchDim &d : p.batch) {
    r.size("a batch dim", d.size, 1);
    for (int64_t stride : {d.a, d.b, d.c})
      r.size("a batch stride", stride);
  }
  r.postOps(p.post);
  keepType(r, p.post);
}
void check(Ranges &r, const BlockMatMul &p) {
  r.size("m", p.m, 1);
  r.size("n", p.n, 1);
  r.size("blocks", p.blocks, 1);
  r.size("block", p.block, 2);
  r.range("block modulo 2", p.block % 2, 0, 0);
  for (int64_t stride :
       {p.a_row, p.c_row, p.scale_block, p.scale_col, p.zero_block, p.zero_col})
    r.size("a stride", stride);
  r.range("the element type", p.dtype, PARTITA_DTYPE_F32, PARTITA_DTYPE_F32);
  if (p.zero_dtype && *p.zero_dtype != PARTITA_DTYPE_U8 &&
      *p.zero_dtype != PARTITA_DTYPE_F32)
    r.fail("zeros are neither u8 nor f32");
}
/// What convolutions and their gradients have in common.
template <typename P> void checkImages(Ranges &r, const P &p) {
  r.size("batch", p.batch, 1);
  r.size("in_channels", p.in_channels, 1);
  r.size("out_channels", p.out_channels, 1);
  r.size("groups", p.groups, 1);
  if (r.error.empty() && (p.in_channels % p.groups || p.out_channels % p.groups))
    r.fail("the channels are not a multiple of the groups");
  r.format(p.src_format);
  r.format(p.dst_format);
  r.spatial(p.spatial);
}
void check(Ranges &r, const Conv &p) {
  checkImages(r, p);
  r.range("has_bias of integers", isOfBytes(p) && p.has_bias, 0, 0);
  r.range("adds_to_result of integers", isOfBytes(p) && p.adds_to_result, 0, 0);
  bytes(r, p);
  r.postOps(p.post);
  if (isOfBytes(p))
    checkRequantization(r, p.post);
  else
    keepType(r, p.post);
}
void check(Ranges &r, const ConvBackwardFilter &p) { checkImages(r, p); }
void check(Ranges &r, const Pool &p) {
  r.range("mode", p.mode, 0, PARTITA_NUM_POOLS - 1);
  r.size("batch", p.batch, 1);
  r.size("channels", p.channels, 1);
  r.format(p.src_format);
  r.format(p.dst_format);
  r.spatial(p.spatial);
}
/// The reader compares every item's place with all others'.
constexpr size_t maxItems = 1024;

/// Nothing is reduced in the types behind bool, which are storage.
template <typename P>
constexpr int lastType =
    requires(P p) { p.reduce; } ? PARTITA_DTYPE_BOOL : PARTITA_NUM_DTYPES - 1;

template <typename P> void checkItems(Ranges &r, const P &p) {
  r.count("the number of items", 1 + p.more.size(), 1, maxItems);
  for (size_t i = 0; i <= p.more.size() && r.error.empty(); ++i) {
    const Item item = itemOf(p, i);
    r.range("the element type", item.dtype, 0, lastType<P>);
    r.size("outer", item.outer);
    r.size("block", item.block);
  }
}
void check(Ranges &r, const AllReduce &p) {
  r.size("count", p.count);
  checkItems(r, p);
}
void check(Ranges &r, const AllGather &p) { checkItems(r, p); }
void check(Ranges &r, const ReduceScatter &p) { checkItems(r, p); }
void check(Ranges &r, const AllToAll &p) {
  for (int64_t extent : {p.outer, p.split, p.middle, p.join, p.inner})
    r.size("an extent", extent);
}
void check(Ranges &r, const Permute &p) {
  r.size("count", p.count);
  r.count("the number of axes", std::max(p.from.size(), p.to.size()), 0, 64);
}
void check(Ranges &, const Exchange &) {}
void check(Ranges &r, const task::Halo &p) {
  r.count("the number of windows", p.windows.size(), 1, 64);
}
void check(Ranges &r, const Slice &p) {
  r.size("outer", p.outer);
  r.size("parts", p.parts, 1);
  r.size("block", p.block);
}
void check(Ranges &r, const Mask &p) {
  for (int64_t extent : {p.outer, p.extent, p.inner})
    r.size("an extent", extent);
}
void check(Ranges &r, const Copy &p) { r.size("count", p.count); }
void check(Ranges &r, const Repad &p) {
  for (int64_t extent : {p.outer, p.from, p.to, p.inner})
    r.size("an extent", extent);
}
void check(Ranges &r, const ToPartial &p) { r.size("count", p.count); }
void check(Ranges &r, const Fill &p) { r.size("count", p.count); }
void check(Ranges &, const Wait &) {}
void check(Ranges &r, const Repeat &p) {
  r.range("the number of trips", p.trips, 1, int64_t(1) << 31);
}
void check(Ranges &, const Skip &) {}
void check(Ranges &r, const Update &p) {
  for (int64_t extent : {p.outer, p.extent, p.inner})
    r.size("an extent", extent);
  r.range("count", p.count, 0, p.extent);
}

void check(Ranges &r, const AllToAllV &p) {
  // MPI counts rows in ints.
  for (int64_t rows : {p.rows, p.to_rows})
    r.range("the number of rows", rows, 0, std::numeric_limits<int32_t>::max());
  r.size("inner", p.inner);
}
void check(Ranges &r, const Rows &p) {
  for (int64_t extent : {p.count, p.extent, p.inner})
    r.size("an extent", extent);
  r.range("count", p.count, 1, int64_t(1) << 31);
}

using NeedList = Expected<std::vector<OperandNeed>>;

void addPostOperands(Needs &needs, const std::vector<PostOp> &post,
                     const std::vector<int64_t> &dims) {
  for (const PostOp &op : post) {
    if (!isBinary(op.kind))
      continue;
    Extent extent{};
    for (size_t i = 0; i < dims.size(); ++i)
      if (op.mask >> i & 1)
        extent.times(dims[i]);
    needs.add(extent);
  }
}

NeedList needsOf(const MatMul &p, int64_t) {
  Extent a{}, b{}, c{};
  a.reach(p.m, p.a_row).reach(p.k, p.a_col);
  b.reach(p.k, p.b_row).reach(p.n, p.b_col);
  c.reach(p.m, p.c_row).reach(p.n, 1);
  std::vector<int64_t> dims;
  for (const BatchDim &d : p.batch) {
    a.reach(d.size, d.a);
    b.reach(d.size, d.b);
    c.reach(d.size, d.c);
    dims.push_back(d.size);
  }
  dims.insert(dims.end(), {p.m, p.n});
  Needs needs(p.dtype);
  needs.add(a, byteWidth(lhsType(p))).add(b, byteWidth(rhsType(p))).add(c);
  needs.add({p.bias_mask & 1 ? p.n : 1, p.bias_mask & 2 ? p.m : 1}, p.bias_mask == 0);
  needs.absent();
  addPostOperands(needs, p.post, dims);
  return needs.finish();
}

NeedList needsOf(const BlockMatMul &p, int64_t) {
  Extent a{}, c{}, scales{}, zeros{}, summands{p.blocks, p.block};
  if (summands.overflow || summands.value > uint64_t(1) << 48)
    return makeError("there are more than 2^48 summands");
  const auto k = static_cast<int64_t>(summands.value);
  a.reach(p.m, p.a_row).reach(k, 1);
  c.reach(p.m, p.c_row).reach(p.n, 1);
  scales.reach(p.blocks, p.scale_block).reach(p.n, p.scale_col);
  zeros.reach(p.blocks, p.zero_block).reach(p.n, p.zero_col);
  Needs needs(p.dtype);
  needs.add(a).add({p.n, k / 2}, byteWidth(DType::U8)).add(c).add(scales).absent();
  if (!p.zero_dtype)
    return needs.absent().finish();
  return needs.add(zeros, byteWidth(static_cast<DType>(*p.zero_dtype))).finish();
}

NeedList needsOf(const Conv &p, int64_t) {
  Extent src{p.batch, p.in_channels}, dst{p.batch, p.out_channels};
  Extent weights{p.in_channels, p.out_channels / p.groups};
  std::vector<int64_t> dims{p.batch, p.out_channels};
  for (const SpatialDim &d : p.spatial) {
    src.times(d.in);
    dst.times(d.out);
    weights.times(d.kernel);
    dims.push_back(d.out);
  }
  Needs needs(p.dtype);
  needs.add(src, byteWidth(lhsType(p))).add(weights, byteWidth(rhsType(p)));
  needs.add(dst, byteWidth(resultType(p)));
  needs.add({p.out_channels}, p.has_bias == 0).absent();
  addPostOperands(needs, p.post, dims);
  return needs.finish();
}

NeedList needsOf(const ConvBackwardFilter &p, int64_t) {
  Extent src{p.batch, p.in_channels}, dst{p.batch, p.out_channels};
  Extent weights{p.in_channels / p.groups, p.out_channels};
  for (const SpatialDim &d : p.spatial) {
    src.times(d.in);
    dst.times(d.out);
    weights.times(d.kernel);
  }
  return Needs(p.dtype).add(src).add(dst).add(weights).absent().finish();
}

NeedList needsOf(const Pool &p, int64_t) {
  Extent src{p.batch, p.channels}, dst = src;
  for (const SpatialDim &d : p.spatial) {
    src.times(d.in);
    dst.times(d.out);
  }
  return Needs(p.dtype).add(src).add(dst).absent().finish();
}

// By the number of members, for collectives.
NeedList needsOf(const Kernel &, int64_t) { return std::vector<OperandNeed>(); }
/// Source and target of each item, with this many parts of `block` in a row.
template <typename P>
NeedList needsOfItems(const P &p, int64_t sourceParts, int64_t targetParts) {
  std::vector<OperandNeed> all;
  for (size_t i = 0; i <= p.more.size(); ++i) {
    const Item item = itemOf(p, i);
    auto needs = Needs(item.dtype)
                     .add({item.outer, sourceParts, item.block})
                     .add({item.outer, targetParts, item.block})
                     .finish();
    if (!needs)
      return needs;
    all.insert(all.end(), needs->begin(), needs->end());
  }
  return all;
}
NeedList needsOf(const AllReduce &p, int64_t) { return needsOfItems(p, 1, 1); }
NeedList needsOf(const AllGather &p, int64_t n) { return needsOfItems(p, 1, n); }
NeedList needsOf(const ReduceScatter &p, int64_t n) { return needsOfItems(p, n, 1); }
NeedList needsOf(const AllToAll &p, int64_t n) {
  Extent all{p.outer, p.split, p.middle, p.join, p.inner, n};
  return Needs(p.dtype).add(all).add(all).finish();
}
NeedList needsOf(const Permute &p, int64_t) {
  AxisList a = primes(p.from), b = primes(p.to);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a != b)
    return makeError("the two axis lists of a permute name different digits");
  return Needs(p.dtype).add({p.count}).add({p.count}).finish();
}
// The sizes follow from the layouts, which the table reader knows.
NeedList needsOf(const Exchange &p, int64_t) {
  return Needs(p.dtype).add({0}).add({0}).finish();
}
NeedList needsOf(const task::Halo &p, int64_t) {
  return Needs(p.dtype).add({0}).add({0}).finish();
}
NeedList needsOf(const Slice &p, int64_t) {
  return Needs(p.dtype).add({p.outer, p.parts, p.block}).add({p.outer, p.block}).finish();
}
NeedList needsOf(const Mask &p, int64_t) {
  return Needs(p.dtype).add({p.outer, p.extent, p.inner}).finish();
}
NeedList needsOf(const Copy &p, int64_t) {
  return Needs(p.dtype).add({p.count}).add({p.count}).finish();
}
NeedList needsOf(const Repad &p, int64_t) {
  return Needs(p.dtype)
      .add({p.outer, p.from, p.inner})
      .add({p.outer, p.to, p.inner})
      .finish();
}
NeedList needsOf(const ToPartial &p, int64_t) {
  return Needs(p.dtype).add({p.count}).add({p.count}).finish();
}
NeedList needsOf(const Fill &p, int64_t) {
  return Needs(p.dtype).add({p.count}).finish();
}
// The call that is waited for has been looked at.
NeedList needsOf(const Wait &, int64_t) {
  return std::vector<OperandNeed>{{0, false}, {0, false}};
}

NeedList needsOf(const Repeat &, int64_t) { return std::vector<OperandNeed>(); }
NeedList needsOf(const Skip &, int64_t) { return std::vector<OperandNeed>{{1, false}}; }
NeedList needsOf(const Update &p, int64_t) {
  return Needs(p.dtype)
      .add({p.outer, p.count, p.inner})
      .add({p.outer, p.extent, p.inner})
      .finish();
}

NeedList needsOf(const AllToAllV &p, int64_t) {
  return Needs(p.dtype).add({p.rows, p.inner}).add({p.to_rows, p.inner}).finish();
}
NeedList needsOf(const Rows &p, int64_t) {
  Extent few{p.count, p.inner}, all{p.extent, p.inner};
  return Needs(p.dtype).add(p.put ? few : all).add(p.put ? all : few).finish();
}

template <typename P> NeedList checkedNeeds(const P &p, const Mesh &mesh) {
  Ranges ranges;
  if constexpr (requires { p.dtype; })
    ranges.range("the element type", p.dtype, 0, lastType<P>);
  if constexpr (requires { p.reduce; })
    ranges.range("the reduction", p.reduce, 0, PARTITA_NUM_REDUCES - 1);
  check(ranges, p);
  if (!ranges.error.empty())
    return makeError(ranges.error);
  Expected<int64_t> members = 1;
  if constexpr (requires { p.group; })
    members = groupSize(p.group, mesh);
  if constexpr (std::is_same_v<P, Permute>) {
    members = groupSize(p.from, mesh);
    if (members)
      members = groupSize(p.to, mesh);
  }
  if (!members)
    return tl::unexpected(members.error());
  return needsOf(p, *members);
}

} // namespace

NeedList task::operandNeeds(const Params &params, const Mesh &mesh) {
  return std::visit([&](const auto &p) { return checkedNeeds(p, mesh); }, params);
}

size_t task::numItems(const Params &params) {
  return std::visit(
      [&]<typename P>(const P &p) -> size_t {
        if constexpr (requires { p.more; })
          return 1 + p.more.size();
        return isCollective(kindOf(params)) ? 1 : 0;
      },
      params);
}

int64_t task::listLength(const Params &params) {
  if (auto *p = std::get_if<AllToAllV>(&params))
    return product(p->group) * product(p->group);
  auto *rows = std::get_if<Rows>(&params);
  return rows ? rows->count : 0;
}
