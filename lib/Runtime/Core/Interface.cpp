//===- Interface.cpp - Inputs and outputs of a run's programs -------------===//
#include "Interface.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

size_t runtime::stageOf(const Stages &stages, int rank) {
  for (size_t i = 0; i < stages.size(); ++i)
    if (stages[i]->table().placeOf(rank) >= 0)
      return i;
  return 0;
}

static std::string typeText(const TensorInfo &info) {
  std::string text(name(info.type));
  for (int64_t extent : info.shape)
    text += " " + std::to_string(extent);
  return text;
}

Expected<Interface> Interface::of(const Stages &stages) {
  Interface out;
  for (size_t i = 0; i < stages.size(); ++i) {
    const TaskTable &table = stages[i]->table();
    for (size_t t = 0; t < table.numTensors(); ++t) {
      const TensorView &view = table.tensor(t);
      if (view.role == Role::Weight)
        continue;
      TensorInfo info{
          std::string(view.name), view.type, {view.shape.begin(), view.shape.end()}};
      info.layout = table.layoutOf(view).str(table.mesh()) + " on " + table.mesh().str();
      if (view.role == Role::State) {
        if (std::ranges::any_of(out.states, [&](auto &s) { return s.name == info.name; }))
          return makeError("state '" + info.name + "' is in two programs");
        out.states.push_back(std::move(info));
        out.keepers.push_back({i, t});
        continue;
      }
      bool isInput = view.role == Role::Input;
      if (isInput && !table.layoutOf(view).partial.empty())
        return makeError("input '" + info.name + "' is partial, which cannot be bound");
      auto &list = isInput ? out.inputs : out.outputs;
      auto known =
          std::ranges::find_if(list, [&](const auto &o) { return o.name == info.name; });
      // Within a program, tensors of one name are different ones.
      bool isShared = isInput && known != list.end() &&
                      out.takers[static_cast<size_t>(known - list.begin())][0].stage != i;
      if (isShared && (known->type != info.type || known->shape != info.shape))
        return makeError("input '" + info.name + "' is " + typeText(*known) +
                         " in one program and " + typeText(info) + " in another");
      if (isShared) {
        out.takers[static_cast<size_t>(known - list.begin())].push_back({i, t});
        continue;
      }
      list.push_back(std::move(info));
      if (isInput)
        out.takers.push_back({{i, t}});
      else
        out.givers.push_back({i, t});
    }
  }
  return out;
}

/// [4, 2, 8] is [8, 8]: the elements lie alike.
static Expected<void> joinFirstDims(std::vector<TensorInfo> &tensors,
                                    const std::string &name, bool &found) {
  auto it = std::ranges::find_if(tensors, [&](const auto &t) { return t.name == name; });
  if (it == tensors.end())
    return {};
  found = true;
  if (it->shape.size() < 2)
    return makeError("'" + name + "' is sliced and has no dim for it");
  it->shape[1] *= it->shape[0];
  it->shape.erase(it->shape.begin());
  return {};
}

/// The model's outputs in its order.
static Expected<void> orderOutputs(Interface &interface, const BundleEntry &entry) {
  std::vector<TensorInfo> &outputs = interface.outputs;
  if (entry.outputs.empty())
    return {};
  if (entry.outputs.size() != outputs.size())
    return makeError("the bundle lists " + std::to_string(entry.outputs.size()) +
                     " outputs, its programs have " + std::to_string(outputs.size()));
  std::vector<TensorInfo> infos;
  std::vector<Interface::Bound> places;
  for (const std::string &name : entry.outputs) {
    auto it =
        std::ranges::find_if(outputs, [&](const auto &t) { return t.name == name; });
    if (it == outputs.end())
      return makeError("the bundle lists output '" + name + "', which no program has");
    places.push_back(interface.givers[static_cast<size_t>(it - outputs.begin())]);
    infos.push_back(*it);
    it->name.clear(); // two outputs of one name are two
  }
  outputs = std::move(infos), interface.givers = std::move(places);
  return {};
}

/// Takes the sizes out of the outputs.
static Expected<void> separateSizes(Interface &interface, const BundleEntry &entry) {
  for (const std::string &name : entry.sizes) {
    std::vector<TensorInfo> &outputs = interface.outputs;
    auto it =
        std::ranges::find_if(outputs, [&](const auto &t) { return t.name == name; });
    if (it == outputs.end() || it->type != DType::I64 || !it->shape.empty())
      return makeError("the bundle lists size '" + name +
                       "', which is no i64 scalar of a program");
    auto giver = interface.givers.begin() + (it - outputs.begin());
    interface.sizes.push_back(std::move(*it));
    outputs.erase(it);
    std::rotate(giver, giver + 1, interface.givers.end());
  }
  for (const TensorInfo &output : interface.outputs) {
    std::vector<int> &own = interface.sizeOf.emplace_back(output.shape.size(), -1);
    auto dims = entry.dims.find(output.name);
    for (size_t d = 0; dims != entry.dims.end() && d < own.size(); ++d)
      if (auto it = d < dims->second.size()
                        ? std::ranges::find(entry.sizes, dims->second[d])
                        : entry.sizes.end();
          it != entry.sizes.end())
        own[d] = static_cast<int>(it - entry.sizes.begin());
  }
  return {};
}

static Expected<void> checkFlags(const Interface &interface, const BundleEntry &entry) {
  for (const std::string &name : {entry.flags.skipped, entry.flags.stop})
    if (!name.empty() && std::ranges::none_of(interface.outputs, [&](const auto &t) {
          return t.name == name && t.shape.empty();
        }))
      return makeError("the bundle lists flag '" + name +
                       "', which is no scalar output of a program");
  return {};
}

std::vector<TensorInfo> Interface::given() const {
  std::vector<TensorInfo> all = outputs;
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

Expected<void> Interface::arrange(const BundleEntry &entry) {
  for (const std::string &name : entry.sliced) {
    bool found = false;
    for (auto *list : {&inputs, &outputs, &states})
      if (auto ok = joinFirstDims(*list, name, found); !ok)
        return ok;
    if (!found)
      return makeError("the bundle slices '" + name + "', which no program has");
  }
  if (auto ok = orderOutputs(*this, entry); !ok)
    return ok;
  if (auto ok = separateSizes(*this, entry); !ok)
    return ok;
  return checkFlags(*this, entry);
}
