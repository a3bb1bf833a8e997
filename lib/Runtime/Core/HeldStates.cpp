//===- HeldStates.cpp - Which rank holds what of a state ------------------===//
#include "Interface.h"

using namespace partita;
using namespace partita::runtime;

/// The slot of a state at one place of its program's mesh. Slots follow each other along
/// dim 0 of the whole state, or are a dim of their own before the others.
static StatePart partOf(const TaskTable &table, const TensorView &tensor,
                        const TensorInfo &info, int64_t place, uint32_t slot) {
  const Layout &layout = table.layoutOf(tensor);
  StatePart part;
  part.rank = static_cast<int>(table.worldRank(place)), part.slot = slot;
  part.block = table.mesh().coordinate(place, layout.shardingAxes());
  part.localShape = layout.localShape();
  for (const DimLayout &dim : layout.dims)
    part.runs.push_back(dimRuns(table.mesh(), dim, place));
  if (info.shape.size() > layout.dims.size()) {
    part.runs.insert(part.runs.begin(), {{slot, 0, 1}});
    part.localShape.insert(part.localShape.begin(), 1);
  } else if (slot > 0 && !part.runs.empty()) {
    for (DimRun &run : part.runs[0])
      run.global += slot * layout.dims[0].size();
  }
  return part;
}

std::vector<HeldState> runtime::heldStates(const Stages &stages,
                                           const Interface &interface) {
  std::vector<HeldState> states;
  for (size_t i = 0; i < interface.states.size(); ++i) {
    const TensorInfo &info = interface.states[i];
    const TaskTable &table = stages[interface.keepers[i].stage]->table();
    const TensorView &tensor = table.tensor(interface.keepers[i].tensor);
    HeldState &state = states.emplace_back(
        HeldState{info.name, info.type, info.shape, tensor.fileBytes != 0});
    uint32_t slots = table.buffers()[tensor.buffer].slots;
    for (int64_t place = 0; place < table.mesh().numRanks(); ++place)
      for (uint32_t slot = 0; slot < slots; ++slot)
        state.parts.push_back(partOf(table, tensor, info, place, slot));
  }
  return states;
}

Expected<Hash128> runtime::hashOrigins(const Stages &stages, const Interface &interface,
                                       const WeightStore &weights) {
  // Enough to tell two models apart, and little where there are thousands of states.
  constexpr uint64_t sampled = 65536;
  std::map<std::string, std::vector<std::byte>> origins;
  for (const Interface::Bound &keeper : interface.keepers) {
    const TensorView &tensor = stages[keeper.stage]->table().tensor(keeper.tensor);
    if (tensor.fileBytes == 0)
      continue;
    std::string key = std::string(tensor.name) + " " + std::string(name(tensor.type));
    for (int64_t extent : tensor.shape)
      key += " " + std::to_string(extent);
    std::vector<std::byte> &bytes = origins[key];
    bytes.resize(std::min(tensor.fileBytes, sampled));
    if (auto ok = weights.file(tensor.file).read(tensor.fileOffset, bytes); !ok)
      return tl::unexpected(ok.error());
  }
  Hasher hasher;
  for (const auto &[key, bytes] : origins) {
    hasher.add(std::as_bytes(std::span(key)));
    hasher.add(bytes);
  }
  return hasher.hash();
}
