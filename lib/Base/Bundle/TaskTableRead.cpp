//===- TaskTableRead.cpp - The checked reader of task tables --------------===//
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <cstring>

using namespace partita;

static constexpr size_t recordWidths[] = {
#define X(NAME, TYPE) sizeof(TYPE),
    PARTITA_SECTIONS(X)
#undef X
};

static constexpr const char *sectionNames[] = {
#define X(NAME, TYPE) #NAME,
    PARTITA_SECTIONS(X)
#undef X
};

static tl::unexpected<Error> damaged(const std::string &what) {
  return makeError("the task table is damaged: " + what);
}

template <typename T> std::span<const T> TaskTable::section(partita_section_id id) const {
  const partita_section &s = header().sections[id];
  return {reinterpret_cast<const T *>(reinterpret_cast<const char *>(words.data()) +
                                      s.offset),
          s.count};
}

std::span<const int64_t> TaskTable::intRange(partita_range range) const {
  return section<int64_t>(PARTITA_SECTION_INTS).subspan(range.first, range.count);
}

const char *TaskTable::string(uint32_t offset) const {
  return section<char>(PARTITA_SECTION_STRINGS).data() + offset;
}

std::span<const partita_buffer> TaskTable::buffers() const {
  return section<partita_buffer>(PARTITA_SECTION_BUFFERS);
}

size_t TaskTable::numTensors() const {
  return header().sections[PARTITA_SECTION_TENSORS].count;
}

TensorView TaskTable::tensor(size_t index) const {
  const auto &t = section<partita_tensor>(PARTITA_SECTION_TENSORS)[index];
  return {static_cast<Role>(t.role),
          static_cast<DType>(t.dtype),
          string(t.name),
          intRange(t.shape),
          string(t.layout),
          t.buffer,
          t.file,
          t.file_offset,
          t.file_bytes};
}

size_t TaskTable::numKernels() const {
  return header().sections[PARTITA_SECTION_KERNELS].count;
}

const char *TaskTable::kernel(size_t index) const {
  return string(section<partita_kernel>(PARTITA_SECTION_KERNELS)[index].symbol);
}

size_t TaskTable::numTasks() const {
  return header().sections[PARTITA_SECTION_TASKS].count;
}

TaskView TaskTable::task(size_t index) const {
  const auto &t = section<partita_task>(PARTITA_SECTION_TASKS)[index];
  TaskView view{};
  view.kind = static_cast<TaskKind>(t.kind);
  view.source = string(t.source);
  view.operands = intRange(t.operands);
  view.params = intRange(t.params);
  view.rankValues = intRange(t.rank_values);
  view.waits = intRange(t.waits);
  view.stream = t.stream;
  view.kernelIndex = t.kernel;
  if (view.kind == TaskKind::Kernel)
    view.kernel = kernel(t.kernel);
  return view;
}

static AxisList axesOf(std::span<const int64_t> ints) {
  AxisList axes;
  for (size_t i = 0; i + 2 < ints.size(); i += 3)
    axes.push_back({static_cast<int32_t>(ints[i]), ints[i + 1], ints[i + 2]});
  return axes;
}

int64_t TaskTable::rankValue(size_t index, int64_t rank) const {
  const auto &v = section<partita_rank_value>(PARTITA_SECTION_RANK_VALUES)[index];
  int64_t c = meshOfRanks.coordinate(rank, axesOf(intRange(v.axes)));
  if (v.kind == PARTITA_RANK_BLOCK_INDEX)
    return c;
  if (v.kind == PARTITA_RANK_BLOCK_START)
    return c * v.block;
  if (v.kind == PARTITA_RANK_LISTED)
    return intRange(v.listed)[static_cast<size_t>(c)];
  return std::clamp<int64_t>(v.size - c * v.block, 0, v.block);
}

//===----------------------------------------------------------------------===//
// Checking. Order matters: sections, then strings and ranges, then what uses them.
//===----------------------------------------------------------------------===//

struct TaskTable::Checker {
  TaskTable &table;

  bool stringOk(uint32_t offset) const {
    return offset < table.header().sections[PARTITA_SECTION_STRINGS].count;
  }
  bool rangeOk(partita_range r) const {
    uint64_t count = table.header().sections[PARTITA_SECTION_INTS].count;
    return r.first <= count && r.count <= count - r.first;
  }

  Expected<void> run() {
    for (auto step :
         {&Checker::sections, &Checker::strings, &Checker::axes, &Checker::buffers,
          &Checker::tensors, &Checker::kernels, &Checker::rankValues, &Checker::tasks})
      if (Expected<void> ok = (this->*step)(); !ok)
        return ok;
    return {};
  }

  Expected<void> sections() {
    const partita_table_header &h = table.header();
    for (int i = 0; i < PARTITA_NUM_SECTIONS; ++i) {
      const partita_section &s = h.sections[i];
      if (s.offset % 8 != 0 || s.offset < sizeof(h) || s.offset > h.total_bytes ||
          s.count > (h.total_bytes - s.offset) / recordWidths[i])
        return damaged(std::string("section ") + sectionNames[i] + " leaves the table");
    }
    return {};
  }

  Expected<void> strings() {
    auto chars = table.section<char>(PARTITA_SECTION_STRINGS);
    if (chars.empty() || chars.back() != '\0')
      return damaged("the strings do not end");
    return {};
  }

  Expected<void> axes() {
    std::vector<Mesh::Axis> list;
    for (const auto &a : table.section<partita_axis>(PARTITA_SECTION_AXES)) {
      if (!stringOk(a.name) || a.size > INT32_MAX)
        return damaged("axis " + std::to_string(list.size()));
      list.push_back({table.string(a.name), static_cast<int64_t>(a.size)});
    }
    Expected<Mesh> mesh = Mesh::create(std::move(list));
    if (!mesh)
      return damaged(mesh.error().message);
    table.meshOfRanks = std::move(*mesh);
    return {};
  }

  Expected<void> buffers() {
    size_t index = 0;
    for (const partita_buffer &b : table.buffers()) {
      std::string where = "buffer " + std::to_string(index++);
      if (b.space >= PARTITA_NUM_SPACES)
        return damaged(where + " is in an unknown space");
      uint64_t size =
          b.space == PARTITA_SPACE_ARENA ? table.arenaBytes() : table.weightBytes();
      if (b.offset % PARTITA_BUFFER_ALIGNMENT != 0)
        return damaged(where + " is not aligned");
      if (b.offset > size || b.bytes > size - b.offset)
        return damaged(where + " leaves its region of " + std::to_string(size) +
                       " bytes");
    }
    return {};
  }

  /// The layout parses on this mesh and says the same shape; the buffer holds the local
  /// tensor, the file range the global one.
  Expected<void> tensor(const partita_tensor &t, const std::string &where) {
    std::vector<int64_t> shape;
    uint64_t bytes = byteWidth(static_cast<DType>(t.dtype));
    for (int64_t extent : table.intRange(t.shape)) {
      if (extent < 0 ||
          __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
        return damaged(where + ": the shape overflows");
      shape.push_back(extent);
    }
    Expected<Layout> layout = Layout::parse(table.string(t.layout), table.mesh());
    if (!layout)
      return damaged(where + ": " + layout.error().message);
    if (Expected<void> ok = layout->verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    if (layout->globalShape() != shape)
      return damaged(where + ": layout and shape disagree");
    uint64_t local = static_cast<uint64_t>(layout->localElements()) *
                     byteWidth(static_cast<DType>(t.dtype));
    if (t.buffer >= table.buffers().size() || table.buffers()[t.buffer].bytes < local)
      return damaged(where + ": its buffer is too small");
    if (t.role == PARTITA_ROLE_WEIGHT && t.file_bytes != bytes)
      return damaged(where + ": " + std::to_string(t.file_bytes) +
                     " bytes in the file, " + std::to_string(bytes) + " by its shape");
    bool inWeights = table.buffers()[t.buffer].space == PARTITA_SPACE_WEIGHT;
    if (inWeights != (t.role == PARTITA_ROLE_WEIGHT))
      return damaged(where + ": its buffer is in the wrong space");
    if (t.role == PARTITA_ROLE_OUTPUT && !layout->partial.empty())
      return damaged(where + ": an output cannot be partial");
    return {};
  }

  Expected<void> tensors() {
    size_t index = 0;
    for (const auto &t : table.section<partita_tensor>(PARTITA_SECTION_TENSORS)) {
      std::string where = "tensor " + std::to_string(index++);
      if (t.role >= PARTITA_NUM_ROLES || t.dtype >= PARTITA_NUM_DTYPES ||
          !stringOk(t.name) || !stringOk(t.layout) || !rangeOk(t.shape))
        return damaged(where + " has a field out of range");
      if (Expected<void> ok = tensor(t, where + " (" + table.string(t.name) + ")"); !ok)
        return ok;
    }
    return {};
  }

  Expected<void> kernels() {
    for (const auto &k : table.section<partita_kernel>(PARTITA_SECTION_KERNELS))
      if (!stringOk(k.symbol) || *table.string(k.symbol) == '\0')
        return damaged("a kernel has no name");
    return {};
  }

  Expected<void> rankValues() {
    size_t index = 0;
    for (const auto &v : table.section<partita_rank_value>(PARTITA_SECTION_RANK_VALUES)) {
      std::string where = "rank value " + std::to_string(index++);
      if (v.kind >= PARTITA_NUM_RANK_VALUE_KINDS || !rangeOk(v.axes) ||
          v.axes.count % 3 != 0 || !rangeOk(v.listed))
        return damaged(where + " has a field out of range");
      constexpr int64_t limit = int64_t(1) << 48;
      if (v.block < 0 || v.size < 0 || v.block > limit || v.size > limit)
        return damaged(where + " has a size out of range");
      // The same check of the axes as for a collective's group.
      task::AllReduce group;
      group.group = axesOf(table.intRange(v.axes));
      auto ok = task::operandNeeds(TaskKind::AllReduce, group.encode(), table.mesh());
      if (!ok)
        return damaged(where + ": " + ok.error().message);
      if (v.kind == PARTITA_RANK_LISTED &&
          static_cast<int64_t>(v.listed.count) != product(group.group))
        return damaged(where + " lists " + std::to_string(v.listed.count) +
                       " values for " + std::to_string(product(group.group)) +
                       " coordinates");
      // c·block must not overflow.
      if (product(group.group) > (int64_t(1) << 14) && v.block > (int64_t(1) << 32))
        return damaged(where + " has a size out of range");
    }
    return {};
  }

  static size_t rankValuesOf(TaskKind kind) {
    return kind == TaskKind::Slice || kind == TaskKind::Mask ||
           kind == TaskKind::ToPartial;
  }

  Expected<void> task(const partita_task &record, const std::string &where,
                      size_t index) {
    TaskView t = table.task(index);
    auto needs = task::operandNeeds(t.kind, t.params, table.mesh());
    if (!needs)
      return damaged(where + ": " + needs.error().message);
    if (t.kind != TaskKind::Kernel && t.operands.size() != needs->size())
      return damaged(where + ": " + std::to_string(t.operands.size()) +
                     " operands, expected " + std::to_string(needs->size()));
    for (size_t i = 0; i < t.operands.size(); ++i) {
      int64_t buffer = t.operands[i];
      bool optional = t.kind != TaskKind::Kernel && (*needs)[i].optional;
      if (buffer == -1 && optional)
        continue;
      if (buffer < 0 || static_cast<size_t>(buffer) >= table.buffers().size())
        return damaged(where + ": operand " + std::to_string(i) + " is no buffer");
      uint64_t has = table.buffers()[static_cast<size_t>(buffer)].bytes;
      if (t.kind != TaskKind::Kernel && has < (*needs)[i].bytes)
        return damaged(where + ": operand " + std::to_string(i) + " has " +
                       std::to_string(has) + " bytes, the call needs " +
                       std::to_string((*needs)[i].bytes));
    }
    if (t.kind != TaskKind::Kernel && t.rankValues.size() != rankValuesOf(t.kind))
      return damaged(where + ": wrong number of rank values");
    size_t numValues = table.header().sections[PARTITA_SECTION_RANK_VALUES].count;
    for (int64_t v : t.rankValues)
      if (v < 0 || static_cast<size_t>(v) >= numValues)
        return damaged(where + ": no rank value " + std::to_string(v));
    for (int64_t w : t.waits)
      if (w < 0 || static_cast<size_t>(w) >= index)
        return damaged(where + ": waits for task " + std::to_string(w));
    for (int64_t check : t.kind == TaskKind::Kernel ? t.params : task::IntsView())
      if (check < 0 || check > UINT32_MAX || !stringOk(static_cast<uint32_t>(check)))
        return damaged(where + ": a check has no name");
    if (t.kind == TaskKind::Exchange)
      return exchange(t, where);
    if (t.kind == TaskKind::Halo)
      return halo(t, where);
    return {};
  }

  /// A layout that a parameter names by the offset of its text.
  Expected<Layout> layoutAt(int64_t offset, const std::string &where) {
    if (!stringOk(static_cast<uint32_t>(offset)))
      return damaged(where + ": a layout is missing");
    auto layout =
        Layout::parse(table.string(static_cast<uint32_t>(offset)), table.mesh());
    if (!layout)
      return damaged(where + ": " + layout.error().message);
    if (Expected<void> ok = layout->verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    return layout;
  }

  /// Whether operand `i` holds a tensor of this shape.
  Expected<void> holds(const TaskView &t, size_t i, const std::vector<int64_t> &shape,
                       int64_t dtype, const std::string &where) {
    uint64_t bytes =
        static_cast<uint64_t>(elementCount(shape)) * byteWidth(static_cast<DType>(dtype));
    if (table.buffers()[static_cast<size_t>(t.operands[i])].bytes < bytes)
      return damaged(where + ": operand " + std::to_string(i) + " is too small");
    return {};
  }

  /// The layouts of a halo parse and agree, and the buffers hold what they say.
  Expected<void> halo(const TaskView &t, const std::string &where) {
    task::Halo p = *task::Halo::decode(t.params);
    for (int64_t offset : {p.before, p.positions})
      if (auto layout = layoutAt(offset, where); !layout)
        return tl::unexpected(layout.error());
    Halo halo = table.halo(p);
    if (Expected<void> ok = halo.verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    if (auto ok = holds(t, 0, halo.before.localShape(), p.dtype, where); !ok)
      return ok;
    return holds(t, 1, halo.shape(), p.dtype, where);
  }

  /// The layouts of an exchange parse, and the buffers hold their local tensors.
  Expected<void> exchange(const TaskView &t, const std::string &where) {
    task::Exchange p = *task::Exchange::decode(t.params);
    int64_t offsets[] = {p.before, p.after};
    std::vector<int64_t> shape;
    for (size_t i = 0; i < 2; ++i) {
      auto layout = layoutAt(offsets[i], where);
      if (!layout)
        return tl::unexpected(layout.error());
      if (i == 1 && layout->globalShape() != shape)
        return damaged(where + ": the two layouts have different shapes");
      shape = layout->globalShape();
      if (auto ok = holds(t, i, layout->localShape(), p.dtype, where); !ok)
        return ok;
    }
    return {};
  }

  Expected<void> tasks() {
    size_t index = 0;
    for (const auto &t : table.section<partita_task>(PARTITA_SECTION_TASKS)) {
      std::string where = "task " + std::to_string(index);
      if (t.kind >= PARTITA_NUM_TASK_KINDS || !stringOk(t.source) ||
          !rangeOk(t.operands) || !rangeOk(t.params) || !rangeOk(t.rank_values) ||
          !rangeOk(t.waits) ||
          (t.kind == PARTITA_TASK_KERNEL && t.kernel >= table.numKernels()))
        return damaged(where + " has a field out of range");
      where += std::string(" (") + table.string(t.source) + ", " +
               std::string(name(static_cast<TaskKind>(t.kind))) + ")";
      if (Expected<void> ok = task(t, where, index); !ok)
        return ok;
      ++index;
    }
    return {};
  }
};

Halo TaskTable::halo(const task::Halo &params) const {
  Halo halo;
  halo.before = *Layout::parse(string(static_cast<uint32_t>(params.before)), mesh());
  halo.positions =
      *Layout::parse(string(static_cast<uint32_t>(params.positions)), mesh());
  halo.windows = params.windows;
  return halo;
}

Expected<TaskTable> TaskTable::read(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(partita_table_header))
    return damaged("it has only " + std::to_string(bytes.size()) + " bytes");
  TaskTable table;
  table.words.resize((bytes.size() + 7) / 8);
  std::memcpy(table.words.data(), bytes.data(), bytes.size());
  const partita_table_header &h = table.header();
  if (h.magic != PARTITA_TABLE_MAGIC)
    return damaged("it does not begin with its magic number");
  if (h.version != PARTITA_TABLE_VERSION)
    return makeError("the task table has version " + std::to_string(h.version) +
                     ", this runtime reads version " +
                     std::to_string(PARTITA_TABLE_VERSION));
  if (h.total_bytes != bytes.size())
    return damaged("it has " + std::to_string(bytes.size()) + " bytes instead of " +
                   std::to_string(h.total_bytes));
  if (Expected<void> ok = Checker{table}.run(); !ok)
    return tl::unexpected(ok.error());
  return table;
}
