//===- Stage.cpp - Stage libraries, weight files and slices ---------------===//
#include "partita/Base/Files/SafeTensors.h"
#include "partita/Runtime/Executor.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Plain.h"

#include "Sanitizer.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>

using namespace partita;
using namespace partita::runtime;

/// The dynamic loader maps segments without looking at the file's size; a truncated
/// library would end the process by SIGBUS.
static Expected<void> checkLibrary(const std::string &path,
                                   std::optional<Hash128> expected) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return makeError("'" + path + "' is not a shared library");
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    uint64_t at = header.e_phoff + i * sizeof(segment);
    bool inside = at <= bytes.size() && sizeof(segment) <= bytes.size() - at;
    if (inside)
      std::memcpy(&segment, bytes.data() + at, sizeof(segment));
    if (!inside || segment.p_offset > bytes.size() ||
        segment.p_filesz > bytes.size() - segment.p_offset)
      return makeError("'" + path + "' is truncated");
  }
  if (!expected)
    return {};
  if (Hash128 has = hashOf(bytes); has != *expected)
    return makeError("'" + path + "' has the hash " + has.str() +
                     ", the bundle was written with " + expected->str() +
                     ": it is damaged or from another bundle; compile the model again");
  return {};
}

Expected<std::shared_ptr<const Stage>> Stage::load(const std::string &path,
                                                   std::optional<Hash128> hash) {
  if (auto ok = checkLibrary(path, hash); !ok)
    return tl::unexpected(ok.error());
  // A path without a slash would be searched for in the system's folders.
  std::string exact = path.find('/') == std::string::npos ? "./" + path : path;
  void *library = ::dlopen(exact.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return makeError("cannot load stage: " + std::string(::dlerror()));
  auto fail = [&](const std::string &message) {
    ::dlclose(library);
    return makeError("'" + path + "': " + message);
  };
  auto *bytes = static_cast<const std::byte *>(::dlsym(library, PARTITA_TABLE_SYMBOL));
  auto *size = static_cast<const uint64_t *>(::dlsym(library, PARTITA_TABLE_SIZE_SYMBOL));
  if (!bytes || !size)
    return fail("it has no task table");
  Expected<TaskTable> table = TaskTable::read({bytes, *size});
  if (!table)
    return fail(table.error().message);
  std::shared_ptr<Stage> stage(new Stage(std::move(*table)));
  for (size_t i = 0; i < stage->tasks.numKernels(); ++i) {
    void *symbol = ::dlsym(library, stage->tasks.kernel(i).c_str());
    if (!symbol)
      return fail("kernel " + stage->tasks.kernel(i) + " is missing");
    stage->kernels.push_back(reinterpret_cast<partita_kernel_fn>(symbol));
  }
  stage->library = library;
  return stage;
}

std::shared_ptr<const Stage> Stage::fromParts(TaskTable table,
                                              std::vector<partita_kernel_fn> kernels) {
  std::shared_ptr<Stage> stage(new Stage(std::move(table)));
  stage->kernels = std::move(kernels);
  return stage;
}

Stage::~Stage() {
  if (library)
    ::dlclose(library);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

std::shared_ptr<WeightStore::Entry> WeightStore::find(const std::string &identity) {
  std::lock_guard guard(lock);
  auto &entry = entries[identity];
  if (!entry)
    entry = std::make_shared<Entry>();
  return entry;
}

/// Packed blocks are not told apart by the sanitizer where they lie side by side.
void WeightStore::reserve(uint64_t bytes) {
  auto made = checksAddresses ? Memory() : hostMemory(bytes).value_or(nullptr);
  std::lock_guard guard(lock);
  room = made;
  roomBytes = room ? bytes : 0;
  roomTaken = 0;
}

void WeightStore::trim() {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::lock_guard guard(lock);
  uint64_t end = (roomTaken + page - 1) / page * page;
  if (end < roomBytes)
    ::madvise(room.get() + end, roomBytes - end, MADV_DONTNEED);
}

Expected<Memory> WeightStore::blockOf(uint64_t bytes) {
  {
    std::lock_guard guard(lock);
    uint64_t begin = (roomTaken + PARTITA_BUFFER_ALIGNMENT - 1) /
                     PARTITA_BUFFER_ALIGNMENT * PARTITA_BUFFER_ALIGNMENT;
    if (room && begin <= roomBytes && bytes <= roomBytes - begin) {
      roomTaken = begin + bytes;
      return Memory(room, room.get() + begin);
    }
  }
  return hostMemory(bytes);
}

Expected<std::shared_ptr<const std::byte>>
WeightStore::mapped(uint32_t file, uint64_t offset, uint64_t bytes) {
  std::lock_guard guard(lock);
  auto &known = mappings[{file, offset, bytes}];
  if (auto held = known.lock())
    return held;
  auto made = files[file]->map(offset, bytes);
  if (made)
    known = *made;
  return made;
}

/// Without this, a header that was overwritten would go unseen: ranks know the places of
/// their weights from the task table.
static Expected<void> checkHeader(const std::string &path, uint32_t file,
                                  const TaskTable &table) {
  auto header = readSafeTensors(path);
  if (!header)
    return tl::unexpected(header.error());
  std::unordered_map<std::string_view, const SafeTensorEntry *> byName;
  for (const SafeTensorEntry &entry : header->tensors)
    byName.emplace(entry.name, &entry);
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &t = table.tensor(i);
    if (t.role != Role::Weight || t.file != file)
      continue;
    auto found = byName.find(t.name);
    const SafeTensorEntry *entry = found == byName.end() ? nullptr : found->second;
    if (!entry || entry->type != t.type || entry->offset != t.fileOffset ||
        !std::equal(entry->shape.begin(), entry->shape.end(), t.shape.begin(),
                    t.shape.end()))
      return makeError("weight file '" + path + "' " +
                       (entry ? "has another place, type or shape for" : "lacks") +
                       " weight '" + std::string(t.name) +
                       "' than the bundle was compiled with; compile the model again");
  }
  return {};
}

const engine::Engine *runtime::engineOf(std::string_view target,
                                        const std::vector<std::string> &cpuFeatures) {
  return target == "cpu"     ? &onednn::engineFor(cpuFeatures)
         : target == "plain" ? &plain::loops()
                             : nullptr;
}

/// Opens a weight file, with the list of its blocks if they are to be checked.
static Expected<std::shared_ptr<const InputFile>> openWeights(const std::string &folder,
                                                              const WeightFile &file,
                                                              const FoundFile &found,
                                                              bool check) {
  if (!check || found.isSame)
    return InputFile::open(found.path);
  auto list = readBlockList(folder + "/" + file.blocks);
  if (!list)
    return tl::unexpected(list.error());
  bool isSample = !list->isWhole();
  if (isSample && !file.isOfModel())
    return makeError("'" + folder + "/" + file.blocks + "' has " +
                     std::to_string(list->blocks.size()) + " of " +
                     std::to_string(list->numBlocks()) +
                     " blocks of a file of the bundle itself: it is damaged; compile the "
                     "model again");
  std::string hint = file.isOfModel() ? "; --weights-dir names the folder of the right "
                                        "file, else compile the model again"
                                      : ": it is damaged; compile the model again";
  std::vector<BlockList::Block> blocks = isSample ? list->blocks : decltype(blocks)();
  auto opened = InputFile::open(found.path, std::move(*list), hint);
  // A rank that reads few of the sampled blocks would take another file for this one.
  for (const BlockList::Block &block : blocks)
    if (opened)
      if (auto ok = (*opened)->check(block.index * BlockList::blockBytes, 1); !ok)
        return tl::unexpected(ok.error());
  return opened;
}

Expected<std::shared_ptr<WeightStore>>
WeightStore::open(const std::string &folder, const Bundle &bundle,
                  const std::vector<const TaskTable *> &tables,
                  const WeightOptions &options) {
  std::vector<std::shared_ptr<const InputFile>> files;
  for (const WeightFile &file : bundle.weightFiles) {
    auto found = findWeights(folder, file, options.folder);
    if (!found)
      return tl::unexpected(found.error());
    auto opened = openWeights(folder, file, *found, options.check);
    if (!opened)
      return tl::unexpected(opened.error());
    if (file.path.ends_with(".safetensors") && !file.isOfModel())
      for (const TaskTable *table : tables)
        if (auto ok =
                checkHeader(found->path, static_cast<uint32_t>(files.size()), *table);
            !ok)
          return tl::unexpected(ok.error());
    files.push_back(*opened);
  }
  const engine::Engine *engine = engineOf(bundle.target, bundle.cpuFeatures);
  if (!engine)
    return makeError("the bundle is for target '" + bundle.target +
                     "', this runtime has cpu and plain");
  return std::make_shared<WeightStore>(std::move(files), *engine);
}
