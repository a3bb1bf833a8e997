//===- Transfer.cpp - From the ranks of one mesh to those of another ------===//
#include "partita/Base/Layout/Transfer.h"

#include <algorithm>

using namespace partita;

Expected<void> partita::verifyTransfer(const TransferEnd &from, const TransferEnd &to) {
  for (const TransferEnd *end : {&from, &to}) {
    if (auto ok = end->layout.verify(end->mesh); !ok)
      return ok;
    if (!end->layout.partial.empty())
      return makeError("a partial value has to be reduced before it is transferred");
  }
  if (from.layout.globalShape() != to.layout.globalShape())
    return makeError("the two layouts have different shapes");
  return {};
}

/// Per dim the intersections of what both hold.
static ExchangeBlock blockBetween(const TransferEnd &from, int64_t peer,
                                  const std::vector<std::vector<DimRun>> &wanted) {
  ExchangeBlock block{peer, {}};
  for (size_t d = 0; d < wanted.size(); ++d) {
    block.dims.emplace_back();
    for (const DimRun &s : dimRuns(from.mesh, from.layout.dims[d], peer))
      for (const DimRun &t : wanted[d]) {
        int64_t first = std::max(s.global, t.global);
        int64_t end = std::min(s.global + s.length, t.global + t.length);
        if (first < end)
          block.dims.back().push_back(
              {s.local + first - s.global, t.local + first - t.global, end - first});
      }
  }
  return block;
}

std::vector<ExchangeBlock> partita::transferBlocks(const TransferEnd &from,
                                                   const TransferEnd &to, int64_t rank) {
  std::vector<std::vector<DimRun>> wanted;
  for (const DimLayout &dim : to.layout.dims)
    wanted.push_back(dimRuns(to.mesh, dim, rank));
  AxisList held = from.layout.shardingAxes();
  std::vector<std::vector<int64_t>> holders(static_cast<size_t>(product(held)));
  for (int64_t r = 0; r < from.mesh.numRanks(); ++r)
    holders[static_cast<size_t>(from.mesh.coordinate(r, held))].push_back(r);
  std::vector<ExchangeBlock> blocks;
  for (const std::vector<int64_t> &same : holders) {
    int64_t peer = same[static_cast<size_t>(rank) % same.size()];
    ExchangeBlock block = blockBetween(from, peer, wanted);
    if (block.elements() != 0)
      blocks.push_back(std::move(block));
  }
  return blocks;
}
