//===- Meshes.cpp - The meshes of a cluster -------------------------------===//
#include "partita/Search/Meshes.h"

using namespace partita;

/// Every ordered product of `axes` sizes above 1 that is `devices`.
static std::vector<std::vector<int64_t>> factorise(int64_t devices, size_t axes) {
  if (axes == 1)
    return devices > 1 ? std::vector<std::vector<int64_t>>{{devices}}
                       : std::vector<std::vector<int64_t>>{};
  std::vector<std::vector<int64_t>> found;
  for (int64_t last = 2; last <= devices / 2; ++last)
    if (devices % last == 0)
      for (std::vector<int64_t> &sizes : factorise(devices / last, axes - 1)) {
        sizes.push_back(last);
        found.push_back(std::move(sizes));
      }
  return found;
}

std::vector<Mesh> search::meshesOf(const Topology &topology, size_t mostAxes) {
  std::vector<Mesh> meshes;
  if (topology.numDevices() == 1)
    return {*Mesh::parse("")};
  for (size_t axes = 1; axes <= mostAxes; ++axes)
    for (const std::vector<int64_t> &list : factorise(topology.numDevices(), axes)) {
      std::vector<Mesh::Axis> named;
      for (size_t i = 0; i < list.size(); ++i)
        named.push_back({"axis" + std::to_string(i), list[i]});
      if (auto mesh = Mesh::create(std::move(named)))
        meshes.push_back(std::move(*mesh));
    }
  return meshes;
}
