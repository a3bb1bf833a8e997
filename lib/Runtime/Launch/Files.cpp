//===- Files.cpp - Inputs and outputs of a run ----------------------------===//
#include "Internal.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/StoredTensor.h"
#include "partita/Base/Files/TensorProto.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

std::string runtime::shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Expected<void> runtime::checkTensor(const TensorInfo &info, const StoredTensor &tensor,
                                    const std::vector<int64_t> &shape,
                                    const std::string &path) {
  // NumPy has no bf16, so such values may come as 16-bit integers.
  bool bits = info.type == DType::BF16 && tensor.type == DType::U16;
  if (tensor.type != info.type && !bits)
    return makeError("input '" + info.name + "': '" + path + "' has element type " +
                     std::string(name(tensor.type)) + ", expected " +
                     std::string(name(info.type)));
  if (tensor.shape != shape)
    return makeError("input '" + info.name + "': '" + path + "' has shape " +
                     shapeText(tensor.shape) + ", expected " + shapeText(shape));
  return {};
}

static Expected<void> readNamed(const RunOptions &options,
                                const std::vector<TensorInfo> &expected,
                                std::vector<std::string> &paths) {
  for (const std::string &item : options.inputs) {
    size_t equal = item.find('=');
    if (equal == std::string::npos || equal == 0 || equal + 1 == item.size())
      return makeError("--input " + item + ": expected NAME=FILE");
    std::string wanted = item.substr(0, equal);
    size_t k = 0;
    while (k < expected.size() && expected[k].name != wanted)
      ++k;
    if (k == expected.size()) {
      std::string known;
      for (const TensorInfo &info : expected)
        known += (known.empty() ? "" : ", ") + info.name;
      return makeError("there is no input '" + wanted + "'; the inputs are " + known);
    }
    if (!paths[k].empty() && options.inputsDir.empty())
      return makeError("input '" + wanted + "' is given twice");
    paths[k] = item.substr(equal + 1);
  }
  return {};
}

/// The files of a folder are numbered as the model's inputs are, some of which may be
/// bound at compile time. A folder made for another model has more files, and may fit by
/// chance in the others.
static Expected<void> readNumbered(const RunOptions &options,
                                   const std::vector<TensorInfo> &expected,
                                   std::vector<std::string> &paths) {
  if (options.inputsDir.empty())
    return {};
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  std::vector<std::string> names = std::move(bundle->inputs);
  if (names.empty())
    for (const TensorInfo &info : expected)
      names.push_back(info.name);
  auto path = [&](size_t number) {
    return options.inputsDir + "/input_" + std::to_string(number) + ".pb";
  };
  if (std::string surplus = path(names.size()); ::access(surplus.c_str(), F_OK) == 0)
    return makeError("'" + surplus + "' is there, but the model has only " +
                     std::to_string(names.size()) + " inputs");
  for (size_t k = 0; k < paths.size(); ++k)
    paths[k] = path(static_cast<size_t>(
        std::find(names.begin(), names.end(), expected[k].name) - names.begin()));
  return {};
}

Expected<std::vector<std::string>>
runtime::pathsOf(const RunOptions &options, const std::vector<TensorInfo> &expected) {
  std::vector<std::string> paths(expected.size());
  if (auto ok = readNumbered(options, expected, paths); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = readNamed(options, expected, paths); !ok)
    return tl::unexpected(ok.error());
  return paths;
}

static Expected<std::vector<StoredTensor>>
openTensors(const std::vector<std::string> &paths,
            const std::vector<TensorInfo> &expected) {
  std::vector<StoredTensor> out;
  for (size_t k = 0; k < paths.size(); ++k) {
    if (paths[k].empty())
      return makeError("input '" + expected[k].name +
                       "' is missing; give --input, --inputs-dir or --data");
    auto tensor = openTensor(paths[k], expected[k].name);
    if (!tensor)
      return makeError("input '" + expected[k].name + "': " + tensor.error().message);
    out.push_back(std::move(*tensor));
  }
  return out;
}

static Shapes shapesOf(const std::vector<StoredTensor> &tensors,
                       const std::vector<TensorInfo> &infos) {
  Shapes shapes;
  for (size_t k = 0; k < tensors.size(); ++k)
    shapes[infos[k].name] = tensors[k].shape;
  return shapes;
}

Expected<std::string> runtime::entryFor(const RunOptions &options) {
  if (!options.entry.empty())
    return options.entry;
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  if (bundle->entries.size() == 1)
    return bundle->entries[0].name;
  auto entries = entryInterfaces(options.bundle);
  if (!entries)
    return tl::unexpected(entries.error());
  // Entries have the same inputs.
  const std::vector<TensorInfo> &infos = entries->front().inputs;
  auto paths = pathsOf(options, infos);
  if (!paths)
    return tl::unexpected(paths.error());
  auto tensors = openTensors(*paths, infos);
  if (!tensors)
    return tl::unexpected(tensors.error());
  auto choice = chooseEntry(*entries, shapesOf(*tensors, infos), options.pad);
  if (!choice)
    return tl::unexpected(choice.error());
  return (*entries)[choice->entry].info.name;
}

/// With zeros behind, in memory.
static Expected<StoredTensor> paddedTo(const TensorInfo &info, StoredTensor tensor) {
  if (tensor.shape == info.shape)
    return tensor;
  auto all = readAll(tensor);
  if (!all)
    return tl::unexpected(all.error());
  StoredTensor result{tensor.type, info.shape, nullptr, 0, nullptr};
  result.whole = std::make_shared<HostTensor>(padded(*all, info));
  return result;
}

Expected<std::vector<StoredTensor>> runtime::openInputs(const RunOptions &options,
                                                        const EntryInterface &entry,
                                                        Extents &extents) {
  auto paths = pathsOf(options, entry.inputs);
  if (!paths)
    return tl::unexpected(paths.error());
  auto tensors = openTensors(*paths, entry.inputs);
  if (!tensors)
    return tensors;
  if (options.pad) {
    auto choice = chooseEntry({entry}, shapesOf(*tensors, entry.inputs), true);
    if (!choice)
      return tl::unexpected(choice.error());
    extents = std::move(choice->extents);
  }
  for (size_t k = 0; k < tensors->size(); ++k) {
    if (!extents.empty()) {
      auto made = paddedTo(entry.inputs[k], std::move((*tensors)[k]));
      if (!made)
        return tl::unexpected(made.error());
      (*tensors)[k] = std::move(*made);
    }
    if (auto ok = checkTensor(entry.inputs[k], (*tensors)[k], entry.inputs[k].shape,
                              (*paths)[k]);
        !ok)
      return tl::unexpected(ok.error());
    (*tensors)[k].type = entry.inputs[k].type; // 16 bits that stand for bf16
  }
  return tensors;
}

/// Makes the folder unless it is there; `made` tells which.
static Expected<void> makeFolder(const std::string &folder, bool &made) {
  struct stat info;
  made = ::mkdir(folder.c_str(), 0777) == 0;
  if (!made &&
      (errno != EEXIST || ::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)))
    return makeError("cannot create the folder '" + folder +
                     "': " + std::strerror(errno));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return makeError("cannot write into '" + folder + "': " + std::strerror(errno));
  return {};
}

Expected<std::string> runtime::openStateDir(const RunOptions &options,
                                            const Session &session) {
  if (options.stateDir.empty())
    return std::string();
  if (session.states().empty())
    return makeError("the bundle has no states for '" + options.stateDir +
                     "'; compile it with --state or --train");
  bool made = false;
  if (session.isRoot())
    if (auto ok = makeFolder(options.stateDir, made); !ok)
      return tl::unexpected(ok.error());
  return options.stateDir + "/state.safetensors";
}

Expected<void> runtime::makeLogFolder(const RunOptions &options) {
  bool made = false;
  return makeFolder(options.logDir, made);
}

Expected<void> runtime::checkOutputs(const RunOptions &options) {
  if (options.outputsDir.empty())
    return {};
  bool made = false;
  auto ok = makeFolder(options.outputsDir, made);
  // A run that fails leaves nothing, not even an empty folder.
  if (made)
    ::rmdir(options.outputsDir.c_str());
  return ok;
}

Expected<void> runtime::writeOutputs(const RunOptions &options,
                                     const std::vector<TensorInfo> &infos,
                                     const std::vector<HostTensor> &outputs) {
  if (options.outputsDir.empty())
    return {};
  bool made = false;
  if (auto ok = makeFolder(options.outputsDir, made); !ok)
    return ok;
  for (size_t k = 0; k < outputs.size(); ++k) {
    std::string stem = options.outputsDir + "/output_" + std::to_string(k);
    if (auto ok = writeTensorProto(stem + ".pb", outputs[k], infos[k].name); !ok)
      return ok;
    if (options.npy)
      if (auto ok = writeNpy(stem + ".npy", outputs[k]); !ok)
        return ok;
  }
  return {};
}
