//===- ReshardExecute.cpp - Running a plan on virtual ranks ---------------===//
#include "ReshardRefine.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

using namespace partita;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// Calls visit with a value of the C++ type that holds one element.
template <typename Visit> static void dispatch(DType type, Visit visit) {
  switch (type) {
  case DType::F32:
    return visit(float());
  case DType::F64:
    return visit(double());
  case DType::I8:
    return visit(int8_t());
  case DType::I16:
    return visit(int16_t());
  case DType::I32:
    return visit(int32_t());
  case DType::I64:
    return visit(int64_t());
  case DType::U8:
    return visit(uint8_t());
  case DType::F16:
  case DType::BF16:
  case DType::U16:
    return visit(uint16_t());
  case DType::U32:
    return visit(uint32_t());
  case DType::U64:
    return visit(uint64_t());
  case DType::Bool:
    return visit(bool());
  case DType::I4:
  case DType::I2:
    return visit(int8_t());
  default: // storage only: nobody reduces them
    return visit(uint8_t());
  }
}

template <typename T> static T neutral(ReduceKind kind) {
  using Limits = std::numeric_limits<T>;
  switch (kind) {
  case ReduceKind::Sum:
    return T(0);
  case ReduceKind::Prod:
    return T(1);
  case ReduceKind::Max:
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  case ReduceKind::Min:
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  return T(0);
}

/// A NaN stays, as in the runtime and in a maximum over one rank's elements.
template <typename T> static T reduceOne(T a, T b, ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
    return static_cast<T>(a + b);
  case ReduceKind::Prod:
    return static_cast<T>(a * b);
  case ReduceKind::Max:
    return a > b || a != a ? a : b;
  case ReduceKind::Min:
    return a < b || a != a ? a : b;
  }
  return a;
}

/// Integers wrap around as the hardware does, without undefined behaviour.
template <typename T> static T combine(T a, T b, ReduceKind kind) {
  if constexpr (std::is_same_v<T, bool>) {
    bool any = kind == ReduceKind::Sum || kind == ReduceKind::Max;
    return any ? a || b : a && b;
  } else if constexpr (std::is_integral_v<T>) {
    uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if (kind == ReduceKind::Sum)
      return static_cast<T>(x + y);
    if (kind == ReduceKind::Prod)
      return static_cast<T>(x * y);
    return reduceOne(a, b, kind);
  } else {
    return reduceOne(a, b, kind);
  }
}

static bool isHalf(DType type) { return type == DType::F16 || type == DType::BF16; }

static float halfAsFloat(DType type, uint16_t bits) {
  return type == DType::F16 ? halfToFloat(bits) : bfloat16ToFloat(bits);
}

static uint16_t floatAsHalf(DType type, float value) {
  return type == DType::F16 ? floatToHalf(value) : floatToBfloat16(value);
}

void partita::fillNeutral(HostTensor &tensor, ReduceKind kind) {
  if (isHalf(tensor.type)) {
    std::fill_n(tensor.data<uint16_t>(), tensor.size(),
                floatAsHalf(tensor.type, neutral<float>(kind)));
    return;
  }
  dispatch(tensor.type, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(tensor.data<T>(), tensor.size(), neutral<T>(kind));
  });
}

void partita::reduceInto(HostTensor &into, const HostTensor &from, ReduceKind kind) {
  assert(into.type == from.type && into.bytes.size() == from.bytes.size());
  int64_t count = into.size();
  if (isHalf(into.type)) {
    uint16_t *a = into.data<uint16_t>();
    const uint16_t *b = from.data<uint16_t>();
    for (int64_t i = 0; i < count; ++i)
      a[i] = floatAsHalf(into.type, combine(halfAsFloat(into.type, a[i]),
                                            halfAsFloat(into.type, b[i]), kind));
    return;
  }
  dispatch(into.type, [&](auto zero) {
    using T = decltype(zero);
    T *a = into.data<T>();
    const T *b = from.data<T>();
    for (int64_t i = 0; i < count; ++i)
      a[i] = combine(a[i], b[i], kind);
  });
}

HostTensor partita::extractLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                                 const HostTensor &global) {
  HostTensor local = HostTensor::zeros(global.type, layout.localShape());
  extractLocal(mesh, layout, rank, byteWidth(global.type), global.bytes.data(),
               local.bytes.data());
  // From the outermost kind inwards, each keeping what is there on its first rank.
  for (const PartialAxes &entry : layout.partial)
    if (mesh.coordinate(rank, entry.axes) != 0)
      fillNeutral(local, entry.kind);
  return local;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

namespace {
/// A block on its way from one local tensor to another.
struct BlockCopy {
  const ExchangeBlock &block;
  const std::vector<int64_t> &source, &target;
  const HostTensor &from;
  HostTensor &to;
  size_t width;

  void copy(int64_t fromAt, int64_t toAt, int64_t elements) {
    std::memcpy(to.bytes.data() + toAt * width, from.bytes.data() + fromAt * width,
                elements * width);
  }

  void run(size_t dim, int64_t fromAt, int64_t toAt) {
    if (dim == block.dims.size())
      return copy(fromAt, toAt, 1);
    fromAt *= source[dim];
    toAt *= target[dim];
    bool last = dim + 1 == block.dims.size();
    for (const ExchangeRun &part : block.dims[dim]) {
      if (last)
        copy(fromAt + part.before, toAt + part.after, part.length);
      for (int64_t i = 0; !last && i < part.length; ++i)
        run(dim + 1, fromAt + part.before + i, toAt + part.after + i);
    }
  }
};
} // namespace

void reshard::copyBlock(const ExchangeBlock &block, const std::vector<int64_t> &source,
                        const std::vector<int64_t> &target, const HostTensor &from,
                        HostTensor &to) {
  BlockCopy{block, source, target, from, to, byteWidth(to.type)}.run(0, 0, 0);
}

namespace {
/// Runs one step; `in` and `out` are indexed by rank.
class Runner {
public:
  Runner(const Mesh &mesh, const Step &step, const std::vector<HostTensor> &in)
      : mesh(mesh), step(step), in(in), g(stepGeometry(step)),
        width(byteWidth(in[0].type)) {}

  std::vector<HostTensor> run() {
    std::vector<HostTensor> out;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
      out.push_back(HostTensor::zeros(in[0].type, step.after.localShape()));
      runRank(rank, out.back());
    }
    return out;
  }

private:
  void runRank(int64_t rank, HostTensor &out) {
    switch (step.kind) {
    case StepKind::View:
      out.bytes = in[rank].bytes;
      return;
    case StepKind::Slice:
      return takeBlock(in[rank], mesh.coordinate(rank, step.axes), out);
    case StepKind::AllGather:
      return gather(rank, out);
    case StepKind::AllToAll:
      return allToAll(rank, out);
    case StepKind::Permute:
      out.bytes = in[permuteSource(mesh, step, rank)].bytes;
      return;
    case StepKind::AllReduce:
    case StepKind::ReduceScatter:
      return reduce(rank, out);
    case StepKind::ToPartial:
      out.bytes = in[rank].bytes;
      if (std::optional<ReduceKind> fill = toPartialFill(mesh, step, rank))
        fillNeutral(out, *fill);
      return;
    case StepKind::Repad:
      for (int64_t o = 0; o < g.outer; ++o)
        copy(in[rank], o * g.chunk * g.inner, out, o * g.toChunk * g.inner,
             std::min(g.chunk, g.toChunk) * g.inner);
      return;
    case StepKind::Exchange:
      return exchange(rank, out);
    }
  }

  void copy(const HostTensor &from, int64_t fromAt, HostTensor &to, int64_t toAt,
            int64_t elements) {
    std::memcpy(to.bytes.data() + toAt * width, from.bytes.data() + fromAt * width,
                elements * width);
  }

  /// out = block `index` of `whole` seen as [outer, count·chunk, inner].
  void takeBlock(const HostTensor &whole, int64_t index, HostTensor &out) {
    int64_t block = g.chunk * g.inner;
    for (int64_t o = 0; o < g.outer; ++o)
      copy(whole, (o * g.count + index) * block, out, o * block, block);
  }

  void gather(int64_t rank, HostTensor &out) {
    std::vector<int64_t> group = mesh.group(rank, step.axes);
    int64_t block = g.chunk * g.inner;
    for (int64_t i = 0; i < g.count; ++i)
      for (int64_t o = 0; o < g.outer; ++o)
        copy(in[group[i]], o * block, out, (o * g.count + i) * block, block);
  }

  void reduce(int64_t rank, HostTensor &out) {
    bool scatter = step.kind == StepKind::ReduceScatter;
    HostTensor part = out;
    fillNeutral(out, step.reduce);
    for (int64_t member : mesh.group(rank, step.axes)) {
      if (scatter)
        takeBlock(in[member], mesh.coordinate(rank, step.axes), part);
      else
        part.bytes = in[member].bytes;
      reduceInto(out, part, step.reduce);
    }
  }

  void allToAll(int64_t rank, HostTensor &out) {
    std::vector<int64_t> group = mesh.group(rank, step.axes);
    int64_t own = mesh.coordinate(rank, step.axes);
    // Extents of the two places in one member's block, and in the whole views.
    int64_t first = g.fromFirst ? g.chunk : g.toChunk;
    int64_t second = g.fromFirst ? g.toChunk : g.chunk;
    int64_t inFirst = g.fromFirst ? first : first * g.count;
    int64_t inSecond = g.fromFirst ? second * g.count : second;
    int64_t outFirst = g.fromFirst ? first * g.count : first;
    int64_t outSecond = g.fromFirst ? second : second * g.count;
    for (int64_t i = 0; i < g.count; ++i)
      for (int64_t o = 0; o < g.outer; ++o)
        for (int64_t f = 0; f < first; ++f)
          for (int64_t m = 0; m < g.middle; ++m) {
            int64_t inF = g.fromFirst ? f : own * first + f;
            int64_t inS = g.fromFirst ? own * second : 0;
            int64_t outF = g.fromFirst ? i * first + f : f;
            int64_t outS = g.fromFirst ? 0 : i * second;
            copy(in[group[i]],
                 (((o * inFirst + inF) * g.middle + m) * inSecond + inS) * g.inner, out,
                 (((o * outFirst + outF) * g.middle + m) * outSecond + outS) * g.inner,
                 second * g.inner);
          }
  }

  void exchange(int64_t rank, HostTensor &out) {
    std::vector<int64_t> source = step.before.localShape(),
                         target = step.after.localShape();
    for (const ExchangeBlock &block : exchangeBlocks(mesh, step.before, step.after, rank))
      reshard::copyBlock(block, source, target, in[block.peer], out);
  }

  const Mesh &mesh;
  const Step &step;
  const std::vector<HostTensor> &in;
  StepGeometry g;
  size_t width;
};
} // namespace

void partita::poisonPadding(const Mesh &mesh, const Layout &layout, int64_t rank,
                            HostTensor &local) {
  if (layout.globalShape() == layout.localShape())
    return;
  // Valid elements are those that a tensor of ones has, a rank's partial sums too.
  HostTensor ones{DType::U8, layout.globalShape(), {}};
  ones.bytes.assign(static_cast<size_t>(ones.size()), std::byte{1});
  Layout held = layout;
  held.partial.clear();
  const HostTensor valid = extractLocal(mesh, held, rank, ones);
  const size_t width = byteWidth(local.type);
  for (size_t i = 0; i < local.bytes.size(); ++i)
    if (valid.bytes[i / width] == std::byte{0})
      local.bytes[i] = std::byte(local.type == DType::Bool                       ? 1
                                 : isFloat(local.type) || i % width != width - 1 ? 0xff
                                                                                 : 0x3f);
}

std::vector<HostTensor> partita::executeReshard(const Mesh &mesh, const ReshardPlan &plan,
                                                const std::vector<HostTensor> &locals,
                                                bool poison) {
  assert(static_cast<int64_t>(locals.size()) == mesh.numRanks());
  std::vector<HostTensor> current = locals;
  for (const Step &step : plan.steps) {
    if (poison)
      for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
        poisonPadding(mesh, step.before, rank, current[rank]);
    current = Runner(mesh, step, current).run();
  }
  return current;
}
