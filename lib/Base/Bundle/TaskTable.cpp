//===- TaskTable.cpp - Building task tables -------------------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <cstring>

using namespace partita;

static constexpr std::string_view kindNames[] = {
#define X(NAME, TEXT) TEXT,
    PARTITA_TASK_KINDS(X)
#undef X
};

std::string_view partita::name(TaskKind kind) {
  return kindNames[static_cast<size_t>(kind)];
}

bool partita::isCollective(TaskKind kind) {
  return (kind >= TaskKind::AllReduce && kind <= TaskKind::Exchange) ||
         kind == TaskKind::Halo;
}

TaskTableBuilder::TaskTableBuilder(const Mesh &mesh) {
  addString(""); // offset 0 is the empty string
  for (const Mesh::Axis &axis : mesh.axes())
    axes.push_back({static_cast<uint64_t>(axis.size), addString(axis.name), 0});
}

uint32_t TaskTableBuilder::addString(std::string_view text) {
  auto it = stringIndex.find(text);
  if (it != stringIndex.end())
    return it->second;
  auto offset = static_cast<uint32_t>(strings.size());
  strings.append(text);
  strings.push_back('\0');
  stringIndex.emplace(text, offset);
  return offset;
}

partita_range TaskTableBuilder::addInts(std::span<const int64_t> values) {
  if (values.empty())
    return {0, 0};
  auto [it, inserted] =
      intsIndex.emplace(std::vector<int64_t>(values.begin(), values.end()),
                        static_cast<uint32_t>(ints.size()));
  if (inserted)
    ints.insert(ints.end(), values.begin(), values.end());
  return {it->second, static_cast<uint32_t>(values.size())};
}

uint32_t TaskTableBuilder::addBuffer(Space space, uint64_t offset, uint64_t bytes) {
  buffers.push_back({offset, bytes, static_cast<uint32_t>(space), 0});
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t TaskTableBuilder::addTensor(const TensorSpec &tensor) {
  partita_tensor record{};
  record.role = static_cast<uint32_t>(tensor.role);
  record.dtype = static_cast<uint32_t>(tensor.type);
  record.name = addString(tensor.name);
  record.layout = addString(tensor.layout);
  record.shape = addInts(tensor.shape);
  record.buffer = tensor.buffer;
  record.file = tensor.file;
  record.file_offset = tensor.fileOffset;
  record.file_bytes = tensor.fileBytes;
  tensors.push_back(record);
  return static_cast<uint32_t>(tensors.size() - 1);
}

uint32_t TaskTableBuilder::addKernel(std::string_view symbol) {
  uint32_t name = addString(symbol);
  for (size_t i = 0; i < kernels.size(); ++i)
    if (kernels[i].symbol == name)
      return static_cast<uint32_t>(i);
  kernels.push_back({name, 0});
  return static_cast<uint32_t>(kernels.size() - 1);
}

uint32_t TaskTableBuilder::addRankValue(const RankValueSpec &value) {
  std::vector<int64_t> list;
  for (const AxisRef &ref : value.axes)
    list.insert(list.end(), {ref.axis, ref.pre, ref.size});
  partita_rank_value record{
      value.kind, 0, value.size, value.block, addInts(list), addInts(value.listed)};
  for (size_t i = 0; i < rankValues.size(); ++i)
    if (std::memcmp(&rankValues[i], &record, sizeof(record)) == 0)
      return static_cast<uint32_t>(i);
  rankValues.push_back(record);
  return static_cast<uint32_t>(rankValues.size() - 1);
}

uint32_t TaskTableBuilder::addTask(const TaskSpec &task) {
  partita_task record{};
  record.kind = static_cast<uint16_t>(task.kind);
  record.stream = task.stream;
  record.kernel = task.kernel;
  record.source = addString(task.source);
  record.operands = addInts(task.operands);
  record.params = addInts(task.params);
  record.rank_values = addInts(task.rankValues);
  record.waits = addInts(task.waits);
  tasks.push_back(record);
  return static_cast<uint32_t>(tasks.size() - 1);
}

void TaskTableBuilder::setMemory(uint64_t arenaBytes, uint64_t weightBytes,
                                 uint64_t packedBytes) {
  header.arena_bytes = arenaBytes;
  header.weight_bytes = weightBytes;
  header.packed_bytes = packedBytes;
}

namespace {
struct Writer {
  std::string blob = std::string(sizeof(partita_table_header), '\0');
  partita_table_header header;

  void section(partita_section_id id, const void *records, size_t count, size_t width) {
    blob.resize((blob.size() + 7) / 8 * 8, '\0');
    header.sections[id] = {blob.size(), count};
    blob.append(static_cast<const char *>(records), count * width);
  }
  template <typename T> void section(partita_section_id id, const std::vector<T> &list) {
    section(id, list.data(), list.size(), sizeof(T));
  }
};
} // namespace

std::string TaskTableBuilder::finish() const {
  Writer out{.header = header};
  out.section(PARTITA_SECTION_STRINGS, strings.data(), strings.size(), 1);
  out.section(PARTITA_SECTION_INTS, ints);
  out.section(PARTITA_SECTION_AXES, axes);
  out.section(PARTITA_SECTION_BUFFERS, buffers);
  out.section(PARTITA_SECTION_TENSORS, tensors);
  out.section(PARTITA_SECTION_KERNELS, kernels);
  out.section(PARTITA_SECTION_RANK_VALUES, rankValues);
  out.section(PARTITA_SECTION_TASKS, tasks);
  out.blob.resize((out.blob.size() + 7) / 8 * 8, '\0');
  out.header.magic = PARTITA_TABLE_MAGIC;
  out.header.version = PARTITA_TABLE_VERSION;
  out.header.total_bytes = out.blob.size();
  std::memcpy(out.blob.data(), &out.header, sizeof(out.header));
  return std::move(out.blob);
}
