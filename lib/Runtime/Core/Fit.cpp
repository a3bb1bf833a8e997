//===- Fit.cpp - Which entry point a request is for -----------------------===//
#include "partita/Runtime/Fit.h"

#include "Interface.h"

#include <cstring>

using namespace partita;
using namespace partita::runtime;

Expected<std::vector<EntryInterface>>
runtime::entryInterfaces(const std::string &folder) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  std::vector<EntryInterface> result;
  for (const BundleEntry &entry : bundle->entries) {
    Stages stages;
    for (const BundleStage &from : entry.stages) {
      auto stage = Stage::load(folder + "/" + from.file, from.fingerprint);
      if (!stage)
        return tl::unexpected(stage.error());
      stages.push_back(std::move(*stage));
    }
    auto interface = Interface::of(stages);
    if (!interface)
      return tl::unexpected(interface.error());
    if (auto ok = interface->arrange(entry); !ok)
      return tl::unexpected(ok.error());
    result.push_back(
        {entry, std::move(interface->inputs), std::move(interface->outputs)});
  }
  return result;
}

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Whether one tensor is as large as `own`, or shorter along symbolic dims.
static bool fitTensor(const std::vector<int64_t> &given, const std::vector<int64_t> &own,
                      const std::vector<std::string> *dims, Extents &extents) {
  if (given.size() != own.size())
    return false;
  for (size_t d = 0; d < own.size(); ++d) {
    std::string symbol = dims && d < dims->size() ? (*dims)[d] : "";
    if (symbol.empty() && given[d] != own[d])
      return false;
    if (symbol.empty())
      continue;
    auto [known, fresh] = extents.try_emplace(symbol, given[d]);
    if (given[d] > own[d] || known->second != given[d])
      return false;
  }
  return true;
}

std::optional<Extents> runtime::fit(const EntryInterface &entry, const Shapes &given) {
  Extents extents;
  std::map<std::string, int64_t> own;
  for (const TensorInfo &info : entry.inputs) {
    auto shape = given.find(info.name);
    if (shape == given.end())
      continue;
    auto dims = entry.info.dims.find(info.name);
    const auto *names = dims == entry.info.dims.end() ? nullptr : &dims->second;
    if (!fitTensor(shape->second, info.shape, names, extents))
      return std::nullopt;
    for (size_t d = 0; names && d < info.shape.size() && d < names->size(); ++d)
      own[(*names)[d]] = info.shape[d];
  }
  std::erase_if(extents, [&](const auto &e) { return own[e.first] == e.second; });
  return extents;
}

static int64_t elementsOf(const EntryInterface &entry) {
  int64_t sum = 0;
  for (const TensorInfo &info : entry.inputs)
    sum += elementCount(info.shape);
  return sum;
}

Expected<Choice> runtime::chooseEntry(const std::vector<EntryInterface> &entries,
                                      const Shapes &given, bool pad) {
  std::optional<Choice> best;
  bool isNear = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    auto extents = fit(entries[i], given);
    if (!extents)
      continue;
    if (extents->empty())
      return Choice{i, {}};
    isNear = true;
    if (pad && (!best || elementsOf(entries[i]) < elementsOf(entries[best->entry])))
      best = Choice{i, std::move(*extents)};
  }
  if (best)
    return *best;
  std::string asked, there;
  for (const auto &[name, shape] : given)
    asked += (asked.empty() ? "" : ", ") + name + " " + shapeText(shape);
  for (const EntryInterface &entry : entries) {
    there += (there.empty() ? "'" : "; '") + entry.info.name + "' takes ";
    const char *comma = "";
    for (const TensorInfo &info : entry.inputs)
      if (given.count(info.name)) {
        there += comma + info.name + " " + shapeText(info.shape);
        comma = ", ";
      }
  }
  return makeError("no entry takes " + asked + ": " + there +
                   (isNear && !pad ? "; --pad fills with zeros what is shorter" : ""));
}

/// Copies what two tensors have in common, whose shapes differ in extents alone.
static void copyCommon(const HostTensor &from, HostTensor &to) {
  if (elementCount(from.shape) == 0 || elementCount(to.shape) == 0)
    return;
  size_t rank = from.shape.size(), width = byteWidth(from.type);
  std::vector<int64_t> common(rank), at(rank, 0);
  for (size_t d = 0; d < rank; ++d)
    common[d] = std::min(from.shape[d], to.shape[d]);
  int64_t run = rank == 0 ? 1 : common[rank - 1];
  auto offset = [&](const std::vector<int64_t> &shape) {
    int64_t sum = 0;
    for (size_t d = 0; d < rank; ++d)
      sum = sum * shape[d] + at[d];
    return static_cast<size_t>(sum) * width;
  };
  for (;;) {
    std::memcpy(to.bytes.data() + offset(to.shape),
                from.bytes.data() + offset(from.shape), static_cast<size_t>(run) * width);
    size_t d = rank == 0 ? 0 : rank - 1;
    while (d-- > 0 && ++at[d] == common[d])
      at[d] = 0;
    if (d == SIZE_MAX || rank == 0)
      return;
  }
}

HostTensor runtime::padded(const HostTensor &tensor, const TensorInfo &info) {
  if (tensor.shape == info.shape)
    return tensor;
  HostTensor result = HostTensor::zeros(tensor.type, info.shape);
  copyCommon(tensor, result);
  return result;
}

HostTensor runtime::trimmed(const HostTensor &tensor,
                            const std::vector<std::string> &dims,
                            const Extents &extents) {
  std::vector<int64_t> shape = tensor.shape;
  for (size_t d = 0; d < shape.size() && d < dims.size(); ++d)
    if (auto extent = extents.find(dims[d]); extent != extents.end())
      shape[d] = std::min(shape[d], extent->second);
  if (shape == tensor.shape)
    return tensor;
  HostTensor result = HostTensor::zeros(tensor.type, shape);
  copyCommon(tensor, result);
  return result;
}
