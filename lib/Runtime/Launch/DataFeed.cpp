//===- DataFeed.cpp - Rows of a data file as inputs -----------------------===//
#include "DataFeed.h"

#include "partita/Base/Bundle/Evaluation.h"
#include "partita/Base/Files/Json.h"
#include "partita/Base/Scalar.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <set>

#include <filesystem>
#include <glob.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

static tl::unexpected<Error> inputError(const std::string &input,
                                        const std::string &message) {
  return makeError("input '" + input + "': " + message);
}

/// A tensor of rows: any number of what the input has behind dim 0.
static Expected<void> checkRowShape(const TensorInfo &info, const StoredTensor &tensor,
                                    const std::string &path) {
  if (info.shape.empty())
    return inputError(info.name, "a scalar has no rows; give it by --input");
  if (auto ok = checkTensor(info, tensor, tensor.shape, path); !ok)
    return ok;
  std::vector<int64_t> row(info.shape.begin() + 1, info.shape.end());
  if (tensor.shape.empty() ||
      !std::equal(tensor.shape.begin() + 1, tensor.shape.end(), row.begin(), row.end()))
    return inputError(info.name, "'" + path + "' has shape " + shapeText(tensor.shape) +
                                     ", expected rows of " + shapeText(row));
  return {};
}

std::string runtime::fileText(const std::vector<std::string> &given) {
  std::string text = "'" + given.front() + "'";
  return given.size() == 1 ? text
                           : text + " and " + std::to_string(given.size() - 1) + " more";
}

/// Raises the soft limit of open files: each file stays open for every input.
static Expected<void> allowOpenFiles(size_t files, size_t inputs) {
  constexpr size_t others = 128; // of this process, and of a library of messages
  const size_t needed = files * inputs + others;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return {};
  limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed)
    return {};
  return makeError(countText(files, "file") + " of " + countText(inputs, "input") +
                   " are open together, and `ulimit -Hn` allows a process " +
                   std::to_string(limit.rlim_max) + "; join some of them");
}

/// The files that names and patterns stand for, each once, in the order of bytes of their
/// absolute names, however they are given. A link is a file of its own name.
static Expected<std::vector<std::string>>
findFiles(const std::vector<std::string> &given) {
  std::set<std::string> found;
  auto add = [&](const std::string &name) {
    found.insert(std::filesystem::path(absolutePath(name)).lexically_normal().string());
  };
  for (const std::string &name : given) {
    const bool isName = name.find_first_of("*?[") == std::string::npos ||
                        ::access(name.c_str(), F_OK) == 0;
    if (isName) {
      add(name);
      continue;
    }
    glob_t matches = {};
    const int status = ::glob(name.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches);
    for (size_t k = 0; status == 0 && k < matches.gl_pathc; ++k)
      add(matches.gl_pathv[k]);
    ::globfree(&matches);
    if (status == GLOB_NOMATCH)
      return makeError("there is no file '" + name + "'");
    if (status != 0)
      return makeError("the files '" + name +
                       "' cannot be looked for: a folder of the "
                       "pattern cannot be read");
  }
  return std::vector<std::string>(found.begin(), found.end());
}

Expected<void> DataFeed::addFixed(const TensorInfo &info, const std::string &path) {
  auto tensor = openTensor(path, info.name);
  if (!tensor)
    return inputError(info.name, tensor.error().message);
  if (auto ok = checkTensor(info, *tensor, info.shape, path); !ok)
    return ok;
  tensor->type = info.type; // 16 bits that stand for bf16
  sources.push_back({info.name, std::move(*tensor), true});
  return {};
}

Expected<void> DataFeed::addRows(const TensorInfo &info,
                                 const std::vector<std::string> &files) {
  const bool isFirst = first.empty();
  std::vector<StoredTensor> parts;
  for (size_t k = 0; k < files.size(); ++k) {
    auto tensor = openTensor(files[k], info.name);
    if (!tensor)
      return inputError(info.name, tensor.error().message);
    if (auto ok = checkRowShape(info, *tensor, files[k]); !ok)
      return ok;
    if (isFirst)
      rowsOfFile.push_back(tensor->shape[0]);
    if (tensor->shape[0] != rowsOfFile[k])
      return makeError("'" + files[k] + "' has " + std::to_string(rowsOfFile[k]) +
                       " rows of '" + first + "' and " +
                       std::to_string(tensor->shape[0]) + " of '" + info.name + "'");
    tensor->type = info.type; // 16 bits that stand for bf16
    parts.push_back(std::move(*tensor));
  }
  StoredTensor joined = joinRows(parts);
  if (isFirst)
    first = info.name, rows = joined.shape[0], rowsOfBatch = info.shape[0];
  if (info.shape[0] != rowsOfBatch)
    return makeError("a request takes " + std::to_string(rowsOfBatch) + " rows of '" +
                     first + "' and " + std::to_string(info.shape[0]) + " of '" +
                     info.name + "'; give one of them by --input");
  sources.push_back({info.name, std::move(joined), false});
  return {};
}

Expected<void> DataFeed::checkRows(const DataOptions &options, bool isHeldOut) const {
  const std::string haveText = options.files.size() == 1 ? " has " : " have ";
  if (first.empty())
    return makeError((isHeldOut ? "--eval " : "--data ") + fileText(options.files) +
                     ": there is no input that it could be for");
  if (options.batch && *options.batch != rowsOfBatch)
    return makeError("--batch " + std::to_string(*options.batch) +
                     ": the bundle takes batches of " + std::to_string(rowsOfBatch));
  if (rows == 0 || rowsOfBatch == 0)
    return makeError(fileText(options.files) + haveText + "no rows");
  if (rows < rowsOfBatch && options.last == LastBatch::Drop)
    return makeError(fileText(options.files) + haveText + std::to_string(rows) +
                     " rows, fewer than a batch of " + std::to_string(rowsOfBatch) +
                     "; --last pad repeats rows");
  return {};
}

/// Finds what the specification of a training step says of its labels; other bundles have
/// no such file.
void DataFeed::findLabels(const std::string &bundle) {
  std::string path = bundle + "/" + specificationFileName;
  auto loss =
      readJsonFile(path).and_then([](const auto &root) { return root.at("loss"); });
  auto kind = loss.and_then([](const auto &it) { return it.at("kind"); });
  auto kindText = kind.and_then([](const auto &it) { return it.asString(); });
  auto name = loss.and_then([](const auto &it) { return it.at("labels"); });
  auto nameText = name.and_then([](const auto &it) { return it.asString(); });
  bool isOfClasses =
      kindText && (*kindText == "softmax_cross_entropy" || *kindText == "nll");
  if (!isOfClasses || !nameText) // a step that the model's file has says neither
    return;
  for (size_t k = 0; k < sources.size(); ++k)
    if (sources[k].name == *nameText && !sources[k].isFixed)
      labels = k;
  if (loss->has("ignore_index"))
    if (auto index = loss->at("ignore_index")->asInteger())
      ignored = *index;
}

Expected<std::optional<int64_t>>
DataFeed::countLabels(const std::shared_ptr<const std::vector<int64_t>> &taken) const {
  if (!labels)
    return std::nullopt;
  auto values = readAll(takeRows(*sources[*labels].tensor, taken));
  if (!values)
    return tl::unexpected(values.error());
  int64_t count = elementCount(values->shape);
  if (!ignored)
    return count;
  return visitType(values->type, [&]<typename T>() -> std::optional<int64_t> {
    const T *all = values->data<T>();
    return std::count_if(all, all + count, [&](const T &label) {
      return static_cast<int64_t>(load(label)) != *ignored;
    });
  });
}

Expected<DataFeed> DataFeed::open(const RunOptions &options, const EntryInterface &entry,
                                  bool isHeldOut) {
  auto paths = pathsOf(options, entry.inputs);
  if (!paths)
    return tl::unexpected(paths.error());
  auto files = findFiles(options.data.files);
  auto mayOpen = files ? allowOpenFiles(files->size(), entry.inputs.size())
                       : Expected<void>(tl::unexpected(files.error()));
  if (!mayOpen)
    return makeError((isHeldOut ? "--eval: " : "--data: ") + mayOpen.error().message);
  DataFeed feed;
  for (size_t k = 0; k < entry.inputs.size(); ++k) {
    const std::string &name = entry.inputs[k].name;
    if (isHeldOut && name == rowWeightsInput) {
      feed.sources.push_back({name, std::nullopt, false});
      feed.hasWeights = true;
      continue;
    }
    bool isFixed = std::ranges::any_of(
        options.inputs, [&](const auto &item) { return item.starts_with(name + "="); });
    auto ok = isFixed ? feed.addFixed(entry.inputs[k], (*paths)[k])
                      : feed.addRows(entry.inputs[k], *files);
    if (!ok)
      return tl::unexpected(ok.error());
  }
  if (auto ok = feed.checkRows(options.data, isHeldOut); !ok)
    return tl::unexpected(ok.error());
  feed.findLabels(options.bundle);
  return feed;
}

std::vector<std::optional<StoredTensor>>
DataFeed::inputs(const std::shared_ptr<const std::vector<int64_t>> &taken) const {
  std::vector<std::optional<StoredTensor>> result;
  for (const Source &source : sources)
    result.push_back(source.isFixed || !source.tensor ? source.tensor
                                                      : takeRows(*source.tensor, taken));
  return result;
}

Expected<Hash128> DataFeed::agree(Session &session, const std::string &option) const {
  auto sample = sampleHash();
  if (!sample)
    return sample;
  // The largest of all numbers is the least one, too, where all are equal.
  const auto own = static_cast<int64_t>(sample->low >> 1);
  int64_t both[] = {own, -own, session.isRoot() ? rows : 0};
  if (auto ok = session.agree(both); !ok)
    return tl::unexpected(ok.error());
  if (both[0] == -both[1])
    return sample;
  return makeError(option + ": ranks find other rows than rank 0, which has " +
                   std::to_string(both[2]) +
                   ": the files that the option names must be the same for all");
}

Expected<Hash128> DataFeed::sampleHash() const {
  constexpr uint64_t pieces = 16, pieceBytes = 4096;
  Hasher hasher;
  for (const Source &source : sources) {
    if (!source.tensor)
      continue;
    const StoredTensor &tensor = *source.tensor;
    std::string head = source.name + " " + std::string(name(tensor.type)) + " " +
                       shapeText(tensor.shape) + (source.isFixed ? " fixed" : "");
    hasher.add(std::as_bytes(std::span(head)));
    std::vector<std::byte> piece(std::min(pieceBytes, tensor.bytes()));
    uint64_t last = tensor.bytes() - piece.size();
    for (uint64_t k = 0; k < pieces; ++k) {
      // Not last · k, which may overflow.
      uint64_t at = last / (pieces - 1) * k + last % (pieces - 1) * k / (pieces - 1);
      if (auto ok = readBytes(tensor, at, piece); !ok)
        return tl::unexpected(ok.error());
      hasher.add(piece);
    }
  }
  return hasher.hash();
}

/// The entries that options allow, and what they take.
static Expected<std::vector<EntryInterface>> allowed(const RunOptions &options) {
  auto entries = entryInterfaces(options.bundle);
  if (!entries)
    return entries;
  if (options.entry.empty()) {
    std::erase_if(*entries,
                  [](const auto &entry) { return isEvaluation(entry.info.name); });
    return entries;
  }
  std::erase_if(*entries,
                [&](const auto &entry) { return entry.info.name != options.entry; });
  if (entries->empty())
    return makeError("the bundle has no entry '" + options.entry + "'");
  return entries;
}

Expected<void> runtime::chooseForData(RunOptions &options) {
  auto entries = allowed(options);
  if (!entries)
    return tl::unexpected(entries.error());
  std::optional<DataFeed> chosen;
  std::string sizes;
  Expected<void> failure;
  for (const EntryInterface &entry : *entries) {
    auto feed = DataFeed::open(options, entry);
    if (!feed) {
      if (failure)
        failure = tl::unexpected(feed.error());
      continue;
    }
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(feed->batch());
    if (chosen)
      return makeError("several entries take rows of " + fileText(options.data.files) +
                       ", in batches of " + sizes + "; say which by --batch or --entry");
    chosen = std::move(*feed);
    options.entry = entry.info.name;
  }
  if (!chosen)
    return failure;
  DataOptions &data = options.data;
  if (!data.checkpoints.folder.empty()) {
    if (!data.steps && !data.epochs)
      data.epochs = 1;
    return {};
  }
  int64_t perEpoch = chosen->order(data).stepsPerEpoch();
  int64_t most = INT64_MAX / perEpoch;
  int64_t ofEpochs = std::min(data.epochs.value_or(data.steps ? most : 1), most);
  data.steps = std::min(data.steps.value_or(INT64_MAX), ofEpochs * perEpoch);
  data.epochs.reset();
  return {};
}
