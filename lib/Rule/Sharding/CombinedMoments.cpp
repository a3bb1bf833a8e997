//===- CombinedMoments.cpp - Mean and variance by one collective ----------===//
#include "partita/Rule/Sharding/CombinedMoments.h"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace partita;

std::optional<MomentGroups> MomentGroups::of(const Layout &tensor,
                                             std::vector<int64_t> axes) {
  if (!tensor.partial.empty())
    return std::nullopt;
  std::ranges::sort(axes);
  MomentGroups result{tensor, std::move(axes),
                      std::vector<int64_t>(tensor.dims.size(), 1)};
  for (int64_t axis : result.axes) {
    const auto d = static_cast<size_t>(axis);
    const DimLayout &dim = tensor.dims[d];
    if (dim.factors.size() != 1 || !dim.factors[0].blocks.empty() ||
        dim.factors[0].padded != dim.factors[0].size)
      return std::nullopt;
    result.groups[d] = product(dim.factors[0].axes);
  }
  return result;
}

int64_t MomentGroups::count() const {
  return std::accumulate(groups.begin(), groups.end(), int64_t(1), std::multiplies<>());
}

int64_t MomentGroups::elements() const {
  const std::vector<int64_t> shape = tensor.globalShape();
  int64_t result = 1;
  for (int64_t axis : axes)
    result *= shape[static_cast<size_t>(axis)];
  return result;
}

int64_t MomentGroups::gatheredBytes(int64_t moments, int64_t elementBytes) const {
  return 2 * count() * moments * elementBytes;
}

namespace {
class Writer {
public:
  Writer(const MomentGroups &groups, const Layout &moment)
      : groups(groups), moment(moment) {}

  MomentProgram write() {
    using enum MomentOp::Kind;
    const auto p = static_cast<double>(groups.count());
    const auto all = static_cast<double>(groups.elements());
    const double n = all / p;
    const int32_t grouped = group();
    const int32_t mean = divide(sum(grouped, inner, local), n, local);
    const int32_t distance = op(Subtract, {grouped, mean}, layout);
    const int32_t squares = op(Multiply, {distance, distance}, layout);
    const int32_t total = sum(squares, inner, local);
    const int32_t means = op(Gather, {mean}, everywhere),
                  totals = op(Gather, {total}, everywhere);
    const int32_t whole = divide(sum(means, outer, one), p, one);
    const int32_t apart = op(Subtract, {means, whole}, everywhere);
    const int32_t between = sum(op(Multiply, {apart, apart}, everywhere), outer, one);
    const int32_t within = sum(totals, outer, one);
    const int32_t added = op(Add, {within, op(Multiply, {between}, one, n)}, one);
    const int32_t variance = divide(added, all, one);
    program.mean = op(Reshape, {whole}, moment);
    program.variance = op(Reshape, {variance}, moment);
    return std::move(program);
  }

private:
  /// The tensor with a dim for the groups in front of each dim that is split.
  int32_t group() {
    const std::vector<int64_t> shape = groups.tensor.globalShape();
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const DimLayout &dim = groups.tensor.dims[d];
      const int64_t count = groups.groups[d];
      if (count > 1) {
        outer.push_back(at++);
        DimLayout each = dim;
        each.factors[0].size = each.factors[0].padded = count;
        layout.dims.push_back(each);
        local.dims.push_back(each);
        everywhere.dims.push_back(bare(count));
        one.dims.push_back(bare(1));
      }
      if (count > 1 || std::ranges::count(groups.axes, static_cast<int64_t>(d))) {
        inner.push_back(at);
        layout.dims.push_back(bare(shape[d] / count));
        for (Layout *reduced : {&local, &everywhere, &one})
          reduced->dims.push_back(bare(1));
      } else {
        for (Layout *kept : {&layout, &local, &everywhere, &one})
          kept->dims.push_back(dim);
      }
      ++at;
    }
    return op(MomentOp::Kind::Reshape, {-1}, layout);
  }

  static DimLayout bare(int64_t size) { return Layout::replicated({size}).dims[0]; }

  int32_t op(MomentOp::Kind kind, std::vector<int32_t> operands, const Layout &to,
             double number = 0, std::vector<int64_t> axes = {}) {
    program.ops.push_back({kind, std::move(operands), to, number, std::move(axes)});
    return static_cast<int32_t>(program.ops.size()) - 1;
  }
  int32_t sum(int32_t of, const std::vector<int64_t> &axes, const Layout &to) {
    return op(MomentOp::Kind::Sum, {of}, to, 0, axes);
  }
  int32_t divide(int32_t of, double by, const Layout &to) {
    return op(MomentOp::Kind::Divide, {of}, to, by);
  }

  const MomentGroups &groups;
  const Layout &moment;
  MomentProgram program;
  /// Dims of groups, and those that each rank reduces for its groups.
  std::vector<int64_t> outer, inner;
  /// Layouts of the grouped tensor, of a moment per group where the groups are and on all
  /// ranks, and of a moment of all groups.
  Layout layout, local, everywhere, one;
};
} // namespace

MomentProgram partita::combinedMoments(const MomentGroups &groups, const Layout &moment) {
  return Writer(groups, moment).write();
}
