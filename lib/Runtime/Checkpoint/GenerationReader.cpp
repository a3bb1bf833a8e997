//===- GenerationReader.cpp - States of a generation, read in parts -------===//
#include "partita/Runtime/Checkpoint.h"

#include "partita/Base/Files/SafeTensors.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

/// The elements of a dim that both have: `global` is the place in the one, `local` in the
/// other.
static std::vector<DimRun> common(const std::vector<DimRun> &from,
                                  const std::vector<DimRun> &to) {
  std::vector<DimRun> result;
  for (const DimRun &a : from)
    for (const DimRun &b : to) {
      int64_t begin = std::max(a.global, b.global);
      int64_t end = std::min(a.global + a.length, b.global + b.length);
      if (begin < end)
        result.push_back(
            {a.local + begin - a.global, b.local + begin - b.global, end - begin});
    }
  return result;
}

Expected<const GenerationReader::Part *> GenerationReader::open(size_t index) {
  std::lock_guard guard(mutex);
  Part &part = parts[index];
  if (part.file)
    return &part;
  std::string name = path + "/" + saved.parts[index].file;
  auto list = readBlockList(path + "/" + partBlocks(index));
  if (!list)
    return tl::unexpected(list.error());
  auto file = InputFile::open(name, std::move(*list), "");
  if (!file)
    return tl::unexpected(file.error());
  // Before it is parsed, as far as it usually is.
  if (auto ok = (*file)->check(0, std::min(BlockList::blockBytes, (*file)->size())); !ok)
    return tl::unexpected(ok.error());
  auto header = readSafeTensors(name);
  if (!header)
    return tl::unexpected(header.error());
  // A run has one incarnation, and a generation for each of several steps.
  std::string incarnation, step;
  for (const auto &[key, text] : header->metadata)
    if (key == "incarnation")
      incarnation = text;
    else if (key == "step")
      step = text;
  if (incarnation != saved.incarnation || step != std::to_string(saved.step))
    return makeError("'" + name + "' is of another generation than its manifest");
  uint64_t begin = header->tensors.empty() ? (*file)->size() : header->tensors[0].offset;
  if (auto ok = (*file)->check(0, begin); !ok)
    return tl::unexpected(ok.error());
  for (SafeTensorEntry &entry : header->tensors)
    part.tensors[entry.name] = {entry.type, std::move(entry.shape), *file, entry.offset,
                                nullptr};
  part.file = std::move(*file);
  return &part;
}

Expected<uint64_t> GenerationReader::read(const Manifest::State &state, const Runs &runs,
                                          const std::vector<int64_t> &localShape,
                                          std::byte *local) {
  uint64_t count = 0;
  int64_t found = 0, wanted = elementCount(extentsOf(runs));
  for (const Manifest::SavedPiece &piece : state.pieces) {
    Runs both;
    for (size_t d = 0; d < runs.size(); ++d)
      both.push_back(common(piece.runs[d], runs[d]));
    int64_t elements = elementCount(extentsOf(both));
    if (elements == 0)
      continue;
    auto part = open(piece.part);
    if (!part)
      return tl::unexpected(part.error());
    auto tensor = (*part)->tensors.find(piece.tensor);
    std::vector<int64_t> extents = extentsOf(piece.runs);
    if (tensor == (*part)->tensors.end() || tensor->second.type != state.type ||
        tensor->second.shape != extents)
      return makeError("'" + path + "/" + saved.parts[piece.part].file +
                       "' has no tensor '" + piece.tensor + "' as the manifest says");
    SliceCopy copy(std::move(both), extents, localShape, byteWidth(state.type));
    auto read = readRuns(tensor->second, 0, copy, local);
    if (!read)
      return read;
    count += *read;
    found += elements;
  }
  if (found != wanted)
    return makeError("'" + path + "' has " + std::to_string(found) + " of " +
                     std::to_string(wanted) + " elements of state '" + state.name + "'");
  return count;
}

uint64_t GenerationReader::checkedBytes() const {
  std::lock_guard guard(mutex);
  uint64_t bytes = 0;
  for (const auto &[index, part] : parts)
    if (part.file)
      bytes += part.file->blocks()->checkedBytes();
  return bytes;
}
