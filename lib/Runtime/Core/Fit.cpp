//===- Fit.cpp - Which entry point a request is for -----------------------===//
#include "partita/Runtime/Fit.h"

#include "Interface.h"
#include "partita/Base/Bundle/Evaluation.h"

#include <algorithm>
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
      auto stage = Stage::load(folder + "/" + from.file, from.hash);
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
  // An evaluation takes what a step takes; it is asked for by its name.
  auto isLeftOut = [&](const EntryInterface &entry) {
    return entries.size() > 1 && isEvaluation(entry.info.name);
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    if (isLeftOut(entries[i]))
      continue;
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
    if (isLeftOut(entry))
      continue;
    there += (there.empty() ? "'" : "; '") + entry.info.name + "' takes ";
    const char *comma = "";
    for (const TensorInfo &info : entry.inputs)
      if (given.count(info.name)) {
        there += comma + info.name + " " + shapeText(info.shape);
        comma = ", ";
      }
  }
  return makeError("no entry takes " + asked + ": " + there +
                   (isNear && !pad
                        ? "; --pad, in Python pad=True, fills with zeros what is "
                          "shorter"
                        : ""));
}

void runtime::copyCommon(const std::byte *from, const std::vector<int64_t> &fromShape,
                         std::byte *to, const std::vector<int64_t> &toShape,
                         size_t width) {
  if (elementCount(fromShape) == 0 || elementCount(toShape) == 0)
    return;
  size_t rank = fromShape.size();
  // A row of the last dim after the other.
  int64_t run = rank == 0 ? 1 : std::min(fromShape[rank - 1], toShape[rank - 1]);
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < rank; ++d)
    rows *= std::min(fromShape[d], toShape[d]);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t left = row, source = 0, target = 0, sourceStride = 1, targetStride = 1;
    for (size_t d = rank; d-- > 0;) {
      int64_t common = std::min(fromShape[d], toShape[d]);
      if (d + 1 < rank) {
        source += left % common * sourceStride;
        target += left % common * targetStride;
        left /= common;
      }
      sourceStride *= fromShape[d];
      targetStride *= toShape[d];
    }
    std::memmove(to + static_cast<size_t>(target) * width,
                 from + static_cast<size_t>(source) * width,
                 static_cast<size_t>(run) * width);
  }
}

void runtime::shortenTo(HostTensor &tensor, const std::vector<int64_t> &shape) {
  tensor.shape = shape;
  tensor.bytes.resize(static_cast<size_t>(elementCount(shape)) * byteWidth(tensor.type));
}

std::vector<int64_t> runtime::cutShape(const std::vector<int64_t> &shape,
                                       const std::vector<std::string> &dims,
                                       const Extents &extents) {
  std::vector<int64_t> result = shape;
  for (size_t d = 0; d < shape.size() && d < dims.size(); ++d)
    if (auto extent = extents.find(dims[d]); extent != extents.end())
      result[d] = std::min(shape[d], extent->second);
  return result;
}

HostTensor runtime::padded(const HostTensor &tensor, const TensorInfo &info) {
  if (tensor.shape == info.shape)
    return tensor;
  HostTensor result = HostTensor::zeros(tensor.type, info.shape);
  copyCommon(tensor.bytes.data(), tensor.shape, result.bytes.data(), result.shape,
             byteWidth(tensor.type));
  return result;
}

HostTensor runtime::trimmed(const HostTensor &tensor,
                            const std::vector<std::string> &dims,
                            const Extents &extents) {
  std::vector<int64_t> shape = cutShape(tensor.shape, dims, extents);
  if (shape == tensor.shape)
    return tensor;
  HostTensor result = HostTensor::zeros(tensor.type, shape);
  copyCommon(tensor.bytes.data(), tensor.shape, result.bytes.data(), result.shape,
             byteWidth(tensor.type));
  return result;
}
