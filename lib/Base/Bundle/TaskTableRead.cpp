//===- TaskTableRead.cpp - Reading task tables, and refusing damaged ones -===//
//
// FlatBuffers' verifier shows that every offset leads to a whole record. What records say
// is checked here, each part before what refers to it. Records may lie anywhere and be
// referred to by many, so a small blob can describe a huge table; every list is therefore
// charged to a budget of a few times the blob's size.
//
//===----------------------------------------------------------------------===//
#include "InFlight.h"

#include <algorithm>
#include <cstring>

using namespace partita;

static tl::unexpected<Error> damaged(const std::string &what) {
  return makeError("the task table is damaged: " + what);
}

static std::string_view textOf(const flatbuffers::String *text) {
  return text ? std::string_view(text->c_str(), text->size()) : std::string_view();
}

/// The entries of a vector that may be absent.
template <typename T>
static std::vector<typename flatbuffers::Vector<T>::return_type>
entriesOf(const flatbuffers::Vector<T> *list) {
  std::vector<typename flatbuffers::Vector<T>::return_type> out;
  for (uint32_t i = 0; list && i < list->size(); ++i)
    out.push_back(list->Get(i));
  return out;
}

static AxisList axesOf(const flatbuffers::Vector<const fb::Axis *> *list) {
  AxisList axes;
  for (const fb::Axis *axis : entriesOf(list))
    axes.push_back(flatbuffers::UnPack(*axis));
  return axes;
}

class TaskTable::Reader {
public:
  Reader(TaskTable &table, const fb::TaskTable &from)
      : table(table), from(from), budget(4 * 8 * table.words.size()) {}

  Expected<void> run() {
    for (auto step : {&Reader::mesh, &Reader::layouts, &Reader::buffers, &Reader::tensors,
                      &Reader::kernels, &Reader::rankValues, &Reader::tasks})
      if (Expected<void> ok = (this->*step)(); !ok)
        return ok;
    return {};
  }

private:
  /// False once the lists taken together are larger than the blob.
  template <typename T> bool charge(const flatbuffers::Vector<T> *list) {
    if (!isAligned(list))
      return false;
    constexpr uint64_t each = flatbuffers::IndirectHelper<T>::element_stride;
    uint64_t bytes = list ? list->size() * each : 0;
    bool fits = bytes <= budget;
    budget -= std::min(bytes, budget);
    return fits;
  }
  bool charge(const flatbuffers::Vector<const fb::Axis *> *list) {
    bool fits = isAligned(list) && (!list || list->size() <= 64);
    budget -= std::min<uint64_t>(budget, list ? list->size() * sizeof(fb::Axis) : 0);
    return fits && budget != 0;
  }
  static tl::unexpected<Error> tooMuch(const std::string &where) {
    return damaged(where + ": its lists are larger than the table, or out of place");
  }
  /// The verifier looks at where a vector's length lies, not at its elements.
  template <typename T> static bool isAligned(const flatbuffers::Vector<T> *list) {
    constexpr size_t alignment = alignof(std::remove_pointer_t<T>);
    return !list || list->size() == 0 ||
           reinterpret_cast<uintptr_t>(list->Data()) % alignment == 0;
  }

  Expected<void> mesh() {
    std::vector<Mesh::Axis> list;
    for (const fb::MeshAxis *a : entriesOf(from.mesh())) {
      if (list.size() >= 64 || a->size() < 1 || a->size() > INT32_MAX)
        return damaged("axis " + std::to_string(list.size()));
      list.push_back({std::string(textOf(a->name())), a->size()});
    }
    Expected<Mesh> mesh = Mesh::create(std::move(list));
    if (!mesh)
      return damaged(mesh.error().message);
    table.meshOfRanks = std::move(*mesh);
    return {};
  }

  Expected<void> layouts() {
    for (const fb::Layout *l : entriesOf(from.layouts())) {
      std::string where = "layout " + std::to_string(table.layouts.size());
      Layout layout;
      if (!read(*l, layout))
        return tooMuch(where);
      if (Expected<void> ok = layout.verify(table.mesh()); !ok)
        return damaged(where + ": " + ok.error().message);
      table.layouts.push_back(std::move(layout));
    }
    return {};
  }

  /// What verify takes for granted: few enough parts, kinds that there are.
  bool read(const fb::Layout &l, Layout &layout) {
    if (!charge(l.dims()) || !charge(l.partial()))
      return false;
    for (const fb::Dim *d : entriesOf(l.dims())) {
      DimLayout &dim = layout.dims.emplace_back();
      if (!charge(d->factors()))
        return false;
      for (const fb::Factor *f : entriesOf(d->factors())) {
        if (!charge(f->axes()) || !charge(f->blocks()))
          return false;
        dim.factors.push_back(
            {f->size(), f->padded(), axesOf(f->axes()), entriesOf(f->blocks())});
      }
    }
    for (const fb::Partial *p : entriesOf(l.partial())) {
      if (p->kind() >= PARTITA_NUM_REDUCES || !charge(p->axes()))
        return false;
      layout.partial.push_back({static_cast<ReduceKind>(p->kind()), axesOf(p->axes())});
    }
    return true;
  }

  Expected<void> buffers() {
    if (!isAligned(from.buffers()))
      return tooMuch("the list of buffers");
    table.memory[0] = from.arena_bytes();
    table.memory[1] = from.weight_bytes();
    table.memory[2] = from.packed_bytes();
    for (const fb::Buffer *b : entriesOf(from.buffers())) {
      std::string where = "buffer " + std::to_string(table.bufferList.size());
      if (b->space() > fb::Space::MAX)
        return damaged(where + " is in an unknown space");
      auto space = static_cast<Space>(b->space());
      if (space > Space::Weight || b->slot_stride() != 0)
        return makeError("the task table has slots, or a buffer in space " +
                         std::string(fb::EnumNameSpace(b->space())) +
                         ", which this runtime does not know (" + where + ")");
      uint64_t size = space == Space::Arena ? table.arenaBytes() : table.weightBytes();
      if (b->offset() % PARTITA_BUFFER_ALIGNMENT != 0)
        return damaged(where + " is not aligned");
      if (b->offset() > size || b->bytes() > size - b->offset())
        return damaged(where + " leaves its region of " + std::to_string(size) +
                       " bytes");
      table.bufferList.push_back({space, b->offset(), b->bytes(), 0, 1});
    }
    return {};
  }

  /// The buffer holds the local tensor, the file range the global one.
  Expected<void> tensor(const TensorView &t, const std::string &where) {
    const Layout &layout = table.layouts[t.layout];
    uint64_t bytes = byteWidth(t.type);
    for (int64_t extent : t.shape)
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
        return damaged(where + ": the shape overflows");
    uint64_t local = static_cast<uint64_t>(layout.localElements()) * byteWidth(t.type);
    if (t.buffer >= table.bufferList.size() || table.bufferList[t.buffer].bytes < local)
      return damaged(where + ": its buffer is too small");
    if (t.role == Role::Weight && t.fileBytes != bytes)
      return damaged(where + ": " + std::to_string(t.fileBytes) + " bytes in the file, " +
                     std::to_string(bytes) + " by its shape");
    bool inWeights = table.bufferList[t.buffer].space == Space::Weight;
    if (inWeights != (t.role == Role::Weight))
      return damaged(where + ": its buffer is in the wrong space");
    if (t.role == Role::Output && !layout.partial.empty())
      return damaged(where + ": an output cannot be partial");
    return {};
  }

  Expected<void> tensors() {
    for (const fb::Tensor *t : entriesOf(from.tensors())) {
      std::string where = "tensor " + std::to_string(table.tensors.size());
      if (t->role() >= PARTITA_NUM_ROLES || t->dtype() >= PARTITA_NUM_DTYPES ||
          t->layout() >= table.layouts.size())
        return damaged(where + " has a field out of range");
      // Its shape is a copy.
      uint64_t copied = 8 * table.layouts[t->layout()].dims.size();
      if (copied > budget)
        return tooMuch(where);
      budget -= copied;
      TensorView view{static_cast<Role>(t->role()),
                      static_cast<DType>(t->dtype()),
                      textOf(t->name()),
                      t->layout(),
                      table.layouts[t->layout()].globalShape(),
                      t->buffer(),
                      t->file(),
                      t->file_offset(),
                      t->file_bytes()};
      where += " (" + std::string(view.name.substr(0, 256)) + ")";
      if (Expected<void> ok = tensor(view, where); !ok)
        return ok;
      table.tensors.push_back(std::move(view));
    }
    return {};
  }

  Expected<void> kernels() {
    for (const flatbuffers::String *symbol : entriesOf(from.kernels())) {
      if (!charge(symbol))
        return tooMuch("the kernels");
      table.kernels.emplace_back(textOf(symbol));
      if (table.kernels.back().empty())
        return damaged("a kernel has no name");
    }
    return {};
  }

  Expected<void> rankValues() {
    for (const fb::RankValue *v : entriesOf(from.rank_values())) {
      std::string where = "rank value " + std::to_string(table.rankValues.size());
      if (!charge(v->axes()) || !charge(v->listed()))
        return tooMuch(where);
      if (v->kind() >= PARTITA_NUM_RANK_VALUE_KINDS)
        return damaged(where + " has a field out of range");
      constexpr int64_t limit = int64_t(1) << 48;
      if (v->block() < 0 || v->size() < 0 || v->block() > limit || v->size() > limit)
        return damaged(where + " has a size out of range");
      // The same check of the axes as for a collective's group.
      task::AllReduce group;
      group.group = axesOf(v->axes());
      if (auto ok = task::operandNeeds(group, table.mesh()); !ok)
        return damaged(where + ": " + ok.error().message);
      RankValueSpec value{v->kind(), v->size(), v->block(), group.group,
                          entriesOf(v->listed())};
      if (value.kind == PARTITA_RANK_LISTED &&
          static_cast<int64_t>(value.listed.size()) != product(value.axes))
        return damaged(where + " lists " + std::to_string(value.listed.size()) +
                       " values for " + std::to_string(product(value.axes)) +
                       " coordinates");
      // c·block must not overflow.
      if (product(value.axes) > (int64_t(1) << 14) && value.block > (int64_t(1) << 32))
        return damaged(where + " has a size out of range");
      table.rankValues.push_back(std::move(value));
    }
    return {};
  }

  Expected<void> tasks() {
    if (!from.segments() || from.segments()->size() != 1)
      return makeError("the task table has " +
                       std::to_string(from.segments() ? from.segments()->size() : 0) +
                       " segments, this runtime runs one");
    auto list = entriesOf(from.segments()->Get(0)->tasks());
    InFlight flights(table.bufferList, list.size());
    for (const fb::Task *t : list) {
      std::string where = "task " + std::to_string(table.tasks.size());
      TaskView view;
      if (Expected<void> ok = take(*t, where, view); !ok)
        return ok;
      where += " (" + std::string(view.source.substr(0, 256)) + ", " +
               std::string(name(view.kind())) + ")";
      if (Expected<void> ok = task(view, where); !ok)
        return ok;
      if (Expected<void> ok = flights.next(view); !ok)
        return damaged(where + ": " + ok.error().message);
      table.handles = std::max(table.handles, view.handle + 1);
      table.tasks.push_back(std::move(view));
    }
    if (Expected<void> ok = flights.end(); !ok)
      return damaged("segment 'request': " + ok.error().message);
    return {};
  }

  Expected<void> take(const fb::Task &t, const std::string &where, TaskView &view) {
    if (!charge(t.operands()) || !charge(t.rank_values()))
      return tooMuch(where);
    view.source = textOf(t.source());
    view.handle = t.handle();
    if (t.operands())
      view.operands = {t.operands()->data(), t.operands()->size()};
    if (t.rank_values())
      view.rankValues = {t.rank_values()->data(), t.rank_values()->size()};
    if (t.params_type() > fb::Params::MAX)
      return makeError("the task table has a task of kind " +
                       std::to_string(static_cast<int>(t.params_type())) +
                       ", which this runtime does not know (" + where + ")");
    if (t.params_type() == fb::Params::NONE || !t.params())
      return damaged(where + " does nothing");
    bool fits = true;
    unpack(t, view.params, fits,
           std::make_index_sequence<std::variant_size_v<task::Params>>());
    return fits ? Expected<void>() : tooMuch(where);
  }

  template <size_t... I>
  void unpack(const fb::Task &t, task::Params &params, bool &fits,
              std::index_sequence<I...>) {
    ((static_cast<size_t>(t.params_type()) == I + 1 ? unpackAs<I>(t, params, fits)
                                                    : void()),
     ...);
  }
  template <size_t I> void unpackAs(const fb::Task &t, task::Params &params, bool &fits) {
    auto &p = params.emplace<I>();
    using Table = typename std::decay_t<decltype(p)>::TableType;
    auto *record = static_cast<const Table *>(t.params());
    fits = chargeLists(*record);
    if (fits)
      record->UnPackTo(&p);
  }
  /// The lists that some kind has.
  template <typename T> bool chargeLists(const T &record) {
    bool fits = true;
    if constexpr (requires { record.batch()->size(); })
      fits &= charge(record.batch());
    if constexpr (requires { record.post(); })
      fits &= charge(record.post());
    if constexpr (requires { record.spatial(); })
      fits &= charge(record.spatial());
    if constexpr (requires { record.group(); })
      fits &= charge(record.group());
    if constexpr (requires { record.from()->size(); })
      fits &= charge(record.from()) && charge(record.to());
    if constexpr (requires { record.windows(); })
      fits &= charge(record.windows());
    if constexpr (requires { record.checks(); })
      for (const flatbuffers::String *text : entriesOf(record.checks()))
        fits = fits && charge(text);
    return fits;
  }

  static size_t rankValuesOf(TaskKind kind) {
    return kind == TaskKind::Slice || kind == TaskKind::Mask ||
           kind == TaskKind::ToPartial;
  }

  Expected<void> task(const TaskView &t, const std::string &where) {
    auto needs = task::operandNeeds(t.params, table.mesh());
    if (!needs)
      return damaged(where + ": " + needs.error().message);
    bool kernel = t.kind() == TaskKind::Kernel;
    if (kernel && std::get<task::Kernel>(t.params).kernel >= table.kernels.size())
      return damaged(where + ": no such kernel");
    if (!kernel && t.operands.size() != needs->size())
      return damaged(where + ": " + std::to_string(t.operands.size()) +
                     " operands, expected " + std::to_string(needs->size()));
    for (size_t i = 0; i < t.operands.size(); ++i) {
      int32_t buffer = t.operands[i];
      if (buffer == -1 && !kernel && (*needs)[i].optional)
        continue;
      if (buffer < 0 || static_cast<size_t>(buffer) >= table.bufferList.size())
        return damaged(where + ": operand " + std::to_string(i) + " is no buffer");
      uint64_t has = table.bufferList[static_cast<size_t>(buffer)].bytes;
      if (!kernel && has < (*needs)[i].bytes)
        return damaged(where + ": operand " + std::to_string(i) + " has " +
                       std::to_string(has) + " bytes, the call needs " +
                       std::to_string((*needs)[i].bytes));
    }
    if (!kernel && t.rankValues.size() != rankValuesOf(t.kind()))
      return damaged(where + ": wrong number of rank values");
    for (uint32_t v : t.rankValues)
      if (v >= table.rankValues.size())
        return damaged(where + ": no rank value " + std::to_string(v));
    if (auto *exchange = std::get_if<task::Exchange>(&t.params))
      return this->exchange(t, *exchange, where);
    if (auto *halo = std::get_if<task::Halo>(&t.params))
      return this->halo(t, *halo, where);
    return {};
  }

  /// Whether operand `i` holds a tensor of this shape.
  Expected<void> holds(const TaskView &t, size_t i, const std::vector<int64_t> &shape,
                       uint8_t dtype, const std::string &where) {
    uint64_t bytes =
        static_cast<uint64_t>(elementCount(shape)) * byteWidth(static_cast<DType>(dtype));
    if (table.bufferList[static_cast<size_t>(t.operands[i])].bytes < bytes)
      return damaged(where + ": operand " + std::to_string(i) + " is too small");
    return {};
  }

  bool haveLayouts(uint32_t a, uint32_t b) const {
    return std::max(a, b) < table.layouts.size();
  }

  /// The layouts of a halo agree, and the buffers hold what they say.
  Expected<void> halo(const TaskView &t, const task::Halo &p, const std::string &where) {
    if (!haveLayouts(p.before, p.positions))
      return damaged(where + ": a layout is missing");
    Halo halo = table.halo(p);
    if (Expected<void> ok = halo.verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    if (auto ok = holds(t, 0, halo.before.localShape(), p.dtype, where); !ok)
      return ok;
    return holds(t, 1, halo.shape(), p.dtype, where);
  }

  /// The buffers of an exchange hold the local tensors of one global one.
  Expected<void> exchange(const TaskView &t, const task::Exchange &p,
                          const std::string &where) {
    if (!haveLayouts(p.before, p.after))
      return damaged(where + ": a layout is missing");
    const Layout &before = table.layouts[p.before], &after = table.layouts[p.after];
    if (before.globalShape() != after.globalShape())
      return damaged(where + ": the two layouts have different shapes");
    if (auto ok = holds(t, 0, before.localShape(), p.dtype, where); !ok)
      return ok;
    return holds(t, 1, after.localShape(), p.dtype, where);
  }

  TaskTable &table;
  const fb::TaskTable &from;
  uint64_t budget; ///< bytes of lists that may still come: sharing is for names only
};

int64_t TaskTable::rankValue(size_t index, int64_t rank) const {
  const RankValueSpec &v = rankValues[index];
  int64_t c = meshOfRanks.coordinate(rank, v.axes);
  if (v.kind == PARTITA_RANK_BLOCK_INDEX)
    return c;
  if (v.kind == PARTITA_RANK_BLOCK_START)
    return c * v.block;
  if (v.kind == PARTITA_RANK_LISTED)
    return v.listed[static_cast<size_t>(c)];
  return std::clamp<int64_t>(v.size - c * v.block, 0, v.block);
}

Halo TaskTable::halo(const task::Halo &params) const {
  Halo halo;
  halo.before = layouts[params.before];
  halo.positions = layouts[params.positions];
  halo.windows = params.windows;
  return halo;
}

/// The identifier is behind the first offset: "PTB" and the version.
static Expected<void> checkVersion(std::span<const std::byte> bytes) {
  constexpr size_t first = 4, length = 4;
  if (bytes.size() < first + length)
    return damaged("it has only " + std::to_string(bytes.size()) + " bytes");
  std::string_view id(reinterpret_cast<const char *>(bytes.data()) + first, length);
  std::string_view known = fb::TaskTableIdentifier();
  // Version 1 began with its magic number.
  std::string_view magic(reinterpret_cast<const char *>(bytes.data()), 4);
  if (!id.starts_with(known.substr(0, 3)) && magic != "PTBL")
    return damaged("it does not begin with its identifier");
  std::string version(1, magic == "PTBL" ? '1' : id.back());
  if (version[0] != known.back())
    return makeError("the task table has version " + version + ", this runtime reads " +
                     "version " + std::string(1, known.back()));
  return {};
}

Expected<TaskTable> TaskTable::read(std::span<const std::byte> bytes) {
  if (Expected<void> ok = checkVersion(bytes); !ok)
    return tl::unexpected(ok.error());
  TaskTable table;
  table.words.resize((bytes.size() + 7) / 8);
  std::memcpy(table.words.data(), bytes.data(), bytes.size());
  auto *data = reinterpret_cast<const uint8_t *>(table.words.data());
  // No record is smaller than the offset that leads to it: one that is reached more often
  // than there are offsets is shared in order to grow.
  constexpr unsigned depth = 16;
  auto most = static_cast<unsigned>(std::min<size_t>(bytes.size() / 4, INT32_MAX));
  flatbuffers::Verifier verifier(data, bytes.size(), depth, most);
  if (!fb::VerifyTaskTableBuffer(verifier))
    return damaged("its records do not hold together");
  if (Expected<void> ok = Reader(table, *fb::GetTaskTable(data)).run(); !ok)
    return tl::unexpected(ok.error());
  return table;
}
