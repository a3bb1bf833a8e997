//===- Placement.cpp - Which links a group of ranks uses ------------------===//
#include "partita/Topology/Placement.h"

#include <algorithm>
#include <numeric>

using namespace partita;

int64_t Span::size() const {
  return std::accumulate(members.begin(), members.end(), int64_t(1),
                         std::multiplies<int64_t>());
}

int Span::outermost() const {
  for (int i = static_cast<int>(members.size()); i-- > 0;)
    if (members[static_cast<size_t>(i)] > 1)
      return i;
  return -1;
}

Expected<Placement> Placement::create(const Mesh &mesh, const Topology &topology) {
  if (mesh.numRanks() == topology.numDevices())
    return Placement(mesh, topology);
  std::string sizes;
  for (const LinkLevel &level : topology.levels)
    sizes += (sizes.empty() ? "" : " × ") + level.name + " " + std::to_string(level.size);
  return makeError("the mesh " + mesh.str() + " has " + std::to_string(mesh.numRanks()) +
                   " ranks, the cluster " + std::to_string(topology.numDevices()) +
                   " devices (" + sizes + ")");
}

namespace {
struct Strides {
  int64_t stride, size;
};
} // namespace

/// Device numbers from one index of the axis to the next.
static int64_t strideOf(const Mesh &mesh, const AxisRef &ref) {
  int64_t stride = mesh.axes()[static_cast<size_t>(ref.axis)].size / (ref.pre * ref.size);
  for (size_t i = static_cast<size_t>(ref.axis) + 1; i < mesh.axes().size(); ++i)
    stride *= mesh.axes()[i].size;
  return stride;
}

/// Indices of a run of devices that stay inside one unit of so many devices.
static int64_t insideOf(int64_t stride, int64_t size, int64_t unit) {
  return unit % stride == 0 ? std::gcd(size, unit / stride) : 1;
}

/// The device numbers of a list of axes, neighbours joined: {dp, tp} of a whole mesh is
/// one row of all devices, however its sizes fit the levels.
static std::vector<Strides> stridesOf(const Mesh &mesh, const AxisList &axes) {
  std::vector<Strides> result;
  for (const AxisRef &ref : axes) {
    if (ref.size == 1)
      continue;
    result.push_back({strideOf(mesh, ref), ref.size});
  }
  std::sort(result.begin(), result.end(),
            [](const Strides &a, const Strides &b) { return a.stride < b.stride; });
  size_t kept = 0;
  for (size_t i = 1; i < result.size(); ++i)
    if (result[kept].stride * result[kept].size == result[i].stride)
      result[kept].size *= result[i].size;
    else
      result[++kept] = result[i];
  if (!result.empty())
    result.resize(kept + 1);
  return result;
}

Span Placement::span(const AxisList &axes) const {
  Span result;
  for (const Strides &run : stridesOf(*ranks, axes)) {
    int64_t below = 1, unit = 1;
    for (size_t l = 0; l < devices->levels.size(); ++l) {
      int64_t inner = unit;
      unit *= devices->levels[l].size;
      int64_t inside = insideOf(run.stride, run.size, unit);
      // Members of this digit are run.stride · below apart; unless the units of the level
      // inside divide that, two of them may share one.
      if (inside > below && (run.stride * below) % inner != 0)
        result.exact = false;
      result.members[l] *= inside / below;
      below = inside;
    }
  }
  return result;
}

GroupLevels Placement::divide(const AxisList &axes, size_t level) const {
  const int64_t unit = level == 0 ? 1 : devices->unit(level - 1);
  GroupLevels result;
  for (const AxisRef &ref : axes) {
    const int64_t inside = insideOf(strideOf(*ranks, ref), ref.size, unit);
    const int64_t units = ref.size / inside;
    if (units > 1)
      result.across.push_back({ref.axis, ref.pre, units});
    if (inside > 1)
      result.within.push_back({ref.axis, ref.pre * units, inside});
  }
  return result;
}

Topology partita::topologyOfMesh(const Mesh &mesh, const Device &device,
                                 const LinkLevel &link, const Host &host) {
  Topology result{device, {}, host};
  for (size_t i = mesh.axes().size(); i-- > 0;) {
    const Mesh::Axis &axis = mesh.axes()[i];
    if (axis.size == 1)
      continue;
    if (result.levels.size() == Topology::maxLevels) {
      result.levels.back().size *= axis.size;
      continue;
    }
    result.levels.push_back(link);
    result.levels.back().name = axis.name;
    result.levels.back().size = axis.size;
  }
  return result;
}
