//===- TaskNeeds.cpp - What a task's operands must hold -------------------===//
//
// Bytes implied by the parameters, per operand: the reader compares them with the
// buffers, so that no engine call or copy can leave its buffer.
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
  explicit Needs(int64_t dtype) : width(byteWidth(static_cast<DType>(dtype))) {}

  Needs &add(Extent extent, bool optional = false) {
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

Expected<std::vector<OperandNeed>> matmulNeeds(const MatMul &p) {
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
  needs.add(a).add(b).add(c);
  needs.add({p.bias_mask & 1 ? p.n : 1, p.bias_mask & 2 ? p.m : 1}, p.bias_mask == 0);
  needs.absent();
  addPostOperands(needs, p.post, dims);
  return needs.finish();
}

Expected<std::vector<OperandNeed>> convNeeds(const Conv &p) {
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
  needs.add(src).add(weights).add(dst);
  needs.add({p.out_channels}, p.has_bias == 0).absent();
  addPostOperands(needs, p.post, dims);
  return needs.finish();
}

Expected<std::vector<OperandNeed>> poolNeeds(const Pool &p) {
  Extent src{p.batch, p.channels}, dst = src;
  for (const SpatialDim &d : p.spatial) {
    src.times(d.in);
    dst.times(d.out);
  }
  return Needs(p.dtype).add(src).add(dst).absent().finish();
}

template <typename Params, typename Make>
Expected<std::vector<OperandNeed>> decoded(IntsView params, Make make) {
  Expected<Params> p = Params::decode(params);
  if (!p)
    return tl::unexpected(p.error());
  return make(*p);
}

/// Likewise for collectives, with the group checked and its size handed on.
template <typename Params, typename Make>
Expected<std::vector<OperandNeed>> grouped(IntsView params, const Mesh &mesh, Make make) {
  Expected<Params> p = Params::decode(params);
  if (!p)
    return tl::unexpected(p.error());
  Expected<int64_t> members = groupSize(p->group, mesh);
  if (!members)
    return tl::unexpected(members.error());
  return make(*p, *members);
}

Expected<std::vector<OperandNeed>> permuteNeeds(IntsView params, const Mesh &mesh) {
  Expected<Permute> p = Permute::decode(params);
  if (!p)
    return tl::unexpected(p.error());
  Expected<int64_t> from = groupSize(p->from, mesh), to = groupSize(p->to, mesh);
  if (!from || !to)
    return tl::unexpected(from ? to.error() : from.error());
  AxisList a = primes(p->from), b = primes(p->to);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a != b)
    return makeError("the two axis lists of a permute name different digits");
  return Needs(p->dtype).add({p->count}).add({p->count}).finish();
}

} // namespace

static Expected<std::vector<OperandNeed>> collectiveNeeds(TaskKind kind, IntsView params,
                                                          const Mesh &mesh) {
  switch (kind) {
  case TaskKind::AllReduce:
    return grouped<AllReduce>(params, mesh, [](const AllReduce &p, int64_t) {
      return Needs(p.dtype).add({p.count}).add({p.count}).finish();
    });
  case TaskKind::AllGather:
    return grouped<AllGather>(params, mesh, [](const AllGather &p, int64_t n) {
      return Needs(p.dtype).add({p.outer, p.block}).add({p.outer, n, p.block}).finish();
    });
  case TaskKind::ReduceScatter:
    return grouped<ReduceScatter>(params, mesh, [](const ReduceScatter &p, int64_t n) {
      return Needs(p.dtype).add({p.outer, n, p.block}).add({p.outer, p.block}).finish();
    });
  case TaskKind::AllToAll:
    return grouped<AllToAll>(params, mesh, [](const AllToAll &p, int64_t n) {
      Extent all{p.outer, p.split, p.middle, p.join, p.inner, n};
      return Needs(p.dtype).add(all).add(all).finish();
    });
  case TaskKind::Broadcast:
    return grouped<Broadcast>(
        params, mesh,
        [](const Broadcast &p, int64_t n) -> Expected<std::vector<OperandNeed>> {
          if (p.root >= n)
            return makeError("the root is " + std::to_string(p.root) + " of " +
                             std::to_string(n) + " members");
          return Needs(p.dtype).add({p.count}).add({p.count}).finish();
        });
  case TaskKind::Permute:
    return permuteNeeds(params, mesh);
  // The sizes follow from the layouts, which the table reader parses.
  case TaskKind::Halo:
    return decoded<task::Halo>(params, [](const task::Halo &p) {
      return Needs(p.dtype).add({0}).add({0}).finish();
    });
  default:
    return decoded<Exchange>(params, [](const Exchange &p) {
      return Needs(p.dtype).add({0}).add({0}).finish();
    });
  }
}

static Expected<std::vector<OperandNeed>> localNeeds(TaskKind kind, IntsView params) {
  switch (kind) {
  case TaskKind::Slice:
    return decoded<Slice>(params, [](const Slice &p) {
      return Needs(p.dtype)
          .add({p.outer, p.parts, p.block})
          .add({p.outer, p.block})
          .finish();
    });
  case TaskKind::Mask:
    return decoded<Mask>(params, [](const Mask &p) {
      return Needs(p.dtype).add({p.outer, p.extent, p.inner}).finish();
    });
  case TaskKind::Copy:
    return decoded<Copy>(params, [](const Copy &p) {
      return Needs(p.dtype).add({p.count}).add({p.count}).finish();
    });
  case TaskKind::Repad:
    return decoded<Repad>(params, [](const Repad &p) {
      return Needs(p.dtype)
          .add({p.outer, p.from, p.inner})
          .add({p.outer, p.to, p.inner})
          .finish();
    });
  case TaskKind::ToPartial:
    return decoded<ToPartial>(params, [](const ToPartial &p) {
      return Needs(p.dtype).add({p.count}).add({p.count}).finish();
    });
  default:
    return decoded<Fill>(
        params, [](const Fill &p) { return Needs(p.dtype).add({p.count}).finish(); });
  }
}

Expected<std::vector<OperandNeed>> task::operandNeeds(TaskKind kind, IntsView params,
                                                      const Mesh &mesh) {
  switch (kind) {
  case TaskKind::Kernel:
    return std::vector<OperandNeed>{};
  case TaskKind::MatMul:
    return decoded<MatMul>(params, matmulNeeds);
  case TaskKind::Conv:
  case TaskKind::ConvTranspose:
    return decoded<Conv>(params, convNeeds);
  case TaskKind::Pool:
    return decoded<Pool>(params, poolNeeds);
  case TaskKind::Start:
  case TaskKind::Wait:
    return makeError("asynchronous tasks are not supported by this runtime");
  default:
    return isCollective(kind) ? collectiveNeeds(kind, params, mesh)
                              : localNeeds(kind, params);
  }
}
