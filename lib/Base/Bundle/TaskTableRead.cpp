//===- TaskTableRead.cpp - Reading task tables, and refusing damaged ones -===//
//
// FlatBuffers' verifier shows that every offset leads to a whole record. What records say
// is checked here, each part before what refers to it. Records may lie anywhere and be
// referred to by many, so a small blob can describe a huge table; every list is therefore
// charged to a budget of a few times the blob's size.
//
//===----------------------------------------------------------------------===//
#include "Nesting.h"
#include "ProgramReader.h"
#include "SharedPlaces.h"
#include "StateRoll.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace partita;

namespace {
/// Where an error is: "task 12 (fc1, matmul)". There are many records and hardly ever an
/// error, so that it is made into words only then.
struct Where {
  std::string_view record;
  size_t number;
  std::string_view name = {}, kind = {};

  operator std::string() const {
    std::string text = std::string(record) + " " + std::to_string(number);
    if (!name.empty() || !kind.empty())
      text += " (" + std::string(name.substr(0, 256)) +
              (kind.empty() ? "" : ", " + std::string(kind)) + ")";
    return text;
  }
};

std::string operator+(const Where &where, const std::string &rest) {
  return std::string(where) + rest;
}
} // namespace

class TaskTable::Reader : RecordReader {
public:
  Reader(TaskTable &table, const fb::TaskTable &from)
      : RecordReader(table.words.size() * 8), table(table), from(from) {}

  Expected<void> run() {
    for (auto step : {&Reader::mesh, &Reader::layouts, &Reader::buffers, &Reader::tensors,
                      &Reader::kernels, &Reader::rankValues, &Reader::tasks})
      if (Expected<void> ok = (this->*step)(); !ok)
        return ok;
    return ProgramReader(table, from).run();
  }

private:
  /// What a descriptor says of its operands: of those at the end, if they are fewer (what
  /// code needs of its buffers is not in the table).
  struct DescriptorNeeds {
    bool isRead = false;
    std::vector<task::OperandNeed> list;

    task::OperandNeed of(size_t operand, size_t numOperands) const {
      size_t others = numOperands - list.size();
      return operand < others ? task::OperandNeed{0, false} : list[operand - others];
    }
  };

  Expected<void> mesh() {
    auto mesh = readMesh(from.mesh());
    if (!mesh)
      return tl::unexpected(mesh.error());
    table.meshOfRanks = std::move(*mesh);
    return {};
  }

  Expected<void> layouts() {
    for (const fb::Layout *l : entriesOf(from.layouts())) {
      Where where{"layout", table.layouts.size()};
      Layout layout;
      if (!read(*l, layout))
        return tooMuch(where);
      if (Expected<void> ok = layout.verify(table.mesh()); !ok)
        return damaged(where + ": " + ok.error().message);
      table.layouts.push_back(std::move(layout));
    }
    return {};
  }

  Expected<void> buffers() {
    if (!isAligned(from.buffers()))
      return tooMuch("the list of buffers");
    uint64_t bytes[] = {from.arena_bytes(), from.weight_bytes(), from.state_bytes(),
                        from.io_bytes(), from.host_bytes()};
    std::ranges::copy(bytes, table.regions);
    table.packed = from.packed_bytes();
    auto slots = entriesOf(from.slots());
    if (!charge(from.slots()))
      return tooMuch("the list of slots");
    if (!slots.empty() && (!from.buffers() || slots.size() != from.buffers()->size()))
      return damaged("there are not as many counts of slots as buffers");
    for (const fb::Buffer *b : entriesOf(from.buffers())) {
      Where where{"buffer", table.bufferList.size()};
      if (b->space() > fb::Space::MAX)
        return damaged(where + " is in an unknown space");
      auto space = static_cast<Space>(b->space());
      size_t index = table.bufferList.size();
      BufferView view{space, b->offset(), b->bytes(), b->slot_stride(),
                      slots.empty() ? 1 : slots[index]};
      if (auto ok = buffer(view, where); !ok)
        return ok;
      table.bufferList.push_back(view);
    }
    return {};
  }

  Expected<void> buffer(const BufferView &b, const Where &where) {
    uint64_t size = table.bytesOf(b.space);
    if (b.offset % PARTITA_BUFFER_ALIGNMENT != 0 ||
        b.slotStride % PARTITA_BUFFER_ALIGNMENT != 0)
      return damaged(where + " is not aligned");
    if (b.offset > size || b.bytes > size - b.offset)
      return damaged(where + " leaves its region of " + std::to_string(size) + " bytes");
    if (b.slots == 0 || (b.slots == 1) != (b.slotStride == 0))
      return damaged(where + " has " + std::to_string(b.slots) + " slots " +
                     std::to_string(b.slotStride) + " bytes apart");
    uint64_t others = 0;
    if (b.slots > 1 && (b.slotStride < b.bytes ||
                        __builtin_mul_overflow(b.slotStride, b.slots - 1, &others) ||
                        others > size - b.offset - b.bytes))
      return damaged(where + ": its slots overlap or leave their region");
    return {};
  }

  /// The buffer holds the local tensor, the file range the global one.
  Expected<void> tensor(const TensorView &t, const Where &where) {
    const Layout &layout = table.layouts[t.layout];
    uint64_t bytes = byteWidth(t.type);
    for (int64_t extent : t.shape)
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
        return damaged(where + ": the shape overflows");
    uint64_t local = static_cast<uint64_t>(layout.localElements()) * byteWidth(t.type);
    if (t.buffer >= table.bufferList.size() || table.bufferList[t.buffer].bytes < local)
      return damaged(where + ": its buffer is too small");
    if (t.role == Role::Weight && table.bufferList[t.buffer].slots != 1)
      return damaged(where + ": a weight has slots");
    if (t.role == Role::State && t.fileBytes != 0 &&
        table.bufferList[t.buffer].slots != 1)
      return damaged(where + ": a state with slots has a file");
    bool hasFile = t.role == Role::Weight || (t.role == Role::State && t.fileBytes != 0);
    if (hasFile && t.fileBytes != bytes)
      return damaged(where + ": " + std::to_string(t.fileBytes) + " bytes in the file, " +
                     std::to_string(bytes) + " by its shape");
    if (!mayBeIn(t.role, table.bufferList[t.buffer].space))
      return damaged(where + ": its buffer is in the wrong space");
    if (t.role != Role::Input && t.role != Role::Weight && !layout.partial.empty())
      return damaged(where + ": an output or state cannot be partial");
    return t.roll ? checkRoll(table, t, where) : Expected<void>();
  }

  static bool mayBeIn(Role role, Space space) {
    if (role == Role::Weight || role == Role::State)
      return space == (role == Role::Weight ? Space::Weight : Space::State);
    return space == Space::Arena || space == Space::Io;
  }

  /// One place per state, and one state per place.
  Expected<void> states() {
    std::map<uint64_t, const TensorView *> byOffset;
    std::set<std::string_view> names;
    auto of = [&](const TensorView &t) -> auto & { return table.bufferList[t.buffer]; };
    for (const TensorView &t : table.tensors) {
      if (t.role != Role::State)
        continue;
      std::string where = "state '" + std::string(t.name.substr(0, 256)) + "'";
      if (!names.insert(t.name).second)
        return damaged(where + " is there twice");
      // One that is empty takes no place.
      if (of(t).bytes != 0 && !byOffset.emplace(of(t).offset, &t).second)
        return damaged(where + " overlaps another one");
    }
    uint64_t end = 0;
    for (const auto &[offset, t] : byOffset) {
      if (offset < end)
        return damaged("state '" + std::string(t->name.substr(0, 256)) +
                       "' overlaps another one");
      end = of(*t).end();
    }
    for (size_t b = 0; b < table.bufferList.size(); ++b) {
      BufferView &buffer = table.bufferList[b];
      if (buffer.space != Space::State || buffer.end() == buffer.offset)
        continue;
      auto next = byOffset.upper_bound(buffer.offset);
      if (next == byOffset.begin() || of(*std::prev(next)->second).end() < buffer.end())
        return damaged("buffer " + std::to_string(b) + " lies in no state");
      if (const TensorView *state = std::prev(next)->second; state->roll)
        buffer.rolling = static_cast<int32_t>(state - table.tensors.data());
    }
    return {};
  }

  Expected<void> tensors() {
    for (const fb::Tensor *t : entriesOf(from.tensors())) {
      Where where{"tensor", table.tensors.size()};
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
                      t->file_bytes(),
                      {}};
      if (t->roll())
        view.roll = {t->roll()->dim(), t->roll()->capacity(), t->roll()->advance()};
      where.name = view.name;
      if (view.buffer < table.bufferList.size())
        if (uint32_t slots = table.bufferList[view.buffer].slots; slots > 1)
          view.shape.insert(view.shape.begin(), slots);
      if (Expected<void> ok = tensor(view, where); !ok)
        return ok;
      table.tensors.push_back(std::move(view));
    }
    return states();
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
      Where where{"rank value", table.rankValues.size()};
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
      value.type = static_cast<DType>(v->dtype());
      value.count = v->count();
      bool isList = value.kind == PARTITA_RANK_READ && value.count > 1;
      if (value.count != 1 && (!isList || value.count > limit))
        return damaged(where + " is a list of " + std::to_string(value.count));
      bool isIndex = value.type == DType::I32 || value.type == DType::I64;
      if (value.kind == PARTITA_RANK_READ && (!isIndex || !value.axes.empty()))
        return damaged(where + " is read and no i32 or i64 of all ranks");
      table.rankValues.push_back(std::move(value));
    }
    return {};
  }

  Expected<void> tasks() {
    if (!charge(from.segments()) || !charge(from.descriptors()) ||
        !charge(from.calls()) || !charge(from.operands()) || !charge(from.tasks()))
      return tooMuch("the tasks");
    if (!from.segments() || from.segments()->size() == 0)
      return damaged("it has no segment");
    table.calls = listOf<fb::Call>(from.calls());
    table.operands = listOf<int32_t>(from.operands());
    table.tasks = listOf<fb::Task>(from.tasks());
    table.sources = textOf(from.sources());
    table.formulaText = textOf(from.formulas());
    table.descriptors.resize(from.descriptors() ? from.descriptors()->size() : 0);
    descriptors.resize(table.descriptors.size());
    calls.resize(table.calls.size(), CallIs::New);
    size_t next = 0;
    for (const fb::Segment *s : entriesOf(from.segments()))
      if (Expected<void> ok = segment(*s, next); !ok)
        return ok;
    if (next != table.tasks.size())
      return damaged("task " + std::to_string(next) + " is in no segment");
    // What nobody refers to has not been looked at.
    if (auto call = std::ranges::find(calls, CallIs::New); call != calls.end())
      return damaged("no task is call " + std::to_string(call - calls.begin()));
    auto isUnread = [](const DescriptorNeeds &d) { return !d.isRead; };
    if (auto d = std::ranges::find_if(descriptors, isUnread); d != descriptors.end())
      return damaged("no call has descriptor " + std::to_string(d - descriptors.begin()));
    return {};
  }

  template <typename T, typename Vector> static std::span<const T> listOf(Vector *list) {
    if (!list || list->size() == 0)
      return {};
    return {reinterpret_cast<const T *>(list->Data()), list->size()};
  }

  Expected<void> segment(const fb::Segment &s, size_t &next) {
    std::string where = "segment '" + std::string(textOf(s.name()).substr(0, 256)) + "'";
    if (!charge(s.reads()) || !charge(s.writes()))
      return tooMuch(where);
    SegmentView segment{textOf(s.name()), next, s.num_tasks(), s.once(), {}, {}};
    for (uint32_t buffer : entriesOf(s.reads()))
      segment.reads.push_back(buffer);
    for (uint32_t buffer : entriesOf(s.writes()))
      segment.writes.push_back(buffer);
    for (const auto *list : {&segment.reads, &segment.writes})
      for (int64_t buffer : *list)
        if (static_cast<size_t>(buffer) >= table.bufferList.size())
          return damaged(where + " has no buffer " + std::to_string(buffer));
    size_t count = segment.numTasks;
    if (count > table.tasks.size() - next)
      return damaged(where + " has " + std::to_string(count) + " tasks, " +
                     std::to_string(table.tasks.size() - next) + " are left");
    InFlight flights(table, count);
    Nesting nesting(count);
    for (size_t place = 0; place < count; ++place, ++next)
      if (Expected<void> ok = task(next, place, flights, nesting); !ok)
        return ok;
    Expected<void> ok = nesting.arrive(count, flights);
    if (ok)
      ok = flights.end();
    if (!ok)
      return damaged(where + ": " + ok.error().message);
    table.segmentList.push_back(std::move(segment));
    return {};
  }

  /// What a task needs is looked at once per call, unless the tasks around it matter.
  Expected<void> task(size_t index, size_t place, InFlight &flights, Nesting &nesting) {
    const fb::Task &t = table.tasks[index];
    bool isNamed = t.source() <= table.sources.size() &&
                   t.source_bytes() <= table.sources.size() - t.source();
    if (isNamed && t.call() < calls.size() && calls[t.call()] == CallIs::Good &&
        !nesting.isOpen() && !flights.isAny())
      return {};
    Where where{"task", index};
    if (t.call() >= calls.size())
      return damaged(where + " is no call");
    if (!isNamed)
      return damaged(where + ": its source is no name");
    where.name = table.sources.substr(t.source(), t.source_bytes());
    if (calls[t.call()] == CallIs::New)
      if (Expected<void> ok = call(t.call(), where); !ok)
        return ok;
    return inPlace(index, place, flights, nesting, where);
  }

  Expected<void> inPlace(size_t index, size_t place, InFlight &flights, Nesting &nesting,
                         Where &where) {
    const TaskView view = table.task(index);
    const auto &needs = descriptors[table.calls[table.callOf(index)].descriptor()];
    where.kind = name(view.kind());
    if (Expected<void> ok = nesting.arrive(place, flights); !ok)
      return damaged(where + ": " + ok.error().message);
    if (auto ok = moves(view, needs, nesting, where); !ok)
      return ok;
    Expected<void> ok = flights.next(view);
    if (ok)
      ok = nesting.enter(place, view, flights);
    return ok ? ok : damaged(where + ": " + ok.error().message);
  }

  /// Operands that move stay in their buffers.
  Expected<void> moves(const TaskView &view, const DescriptorNeeds &needs,
                       const Nesting &nesting, const Where &where) {
    if (view.moves.empty())
      return {};
    auto reach = nesting.reach(view);
    if (!reach)
      return damaged(where + ": " + reach.error().message);
    for (size_t i = 0; i < view.operands.size(); ++i) {
      if ((*reach)[i] == 0)
        continue;
      uint64_t has = table.bufferList[static_cast<size_t>(view.operands[i])].bytes;
      if (has - needs.of(i, view.operands.size()).bytes < (*reach)[i])
        return damaged(where + ": operand " + std::to_string(i) +
                       " moves out of its buffer");
    }
    return {};
  }

  /// The first task of a call: its descriptor, where that is new, and its operands.
  Expected<void> call(uint32_t index, Where &where) {
    const fb::Call &c = table.calls[index];
    if (c.descriptor() >= descriptors.size())
      return damaged(where + ": no descriptor " + std::to_string(c.descriptor()));
    DescriptorNeeds &needs = descriptors[c.descriptor()];
    if (!needs.isRead)
      if (Expected<void> ok = descriptor(c.descriptor(), needs, where); !ok)
        return ok;
    const Descriptor &what = table.descriptors[c.descriptor()];
    where.kind = name(what.kind());
    if (c.operands() > table.operands.size() ||
        what.numOperands > table.operands.size() - c.operands())
      return damaged(where + ": its operands are not in the list of them");
    // Calls may share them.
    if (4 * uint64_t(what.numOperands) > budget)
      return tooMuch(where);
    budget -= 4 * uint64_t(what.numOperands);
    auto operands = table.operands.subspan(c.operands(), what.numOperands);
    for (size_t i = 0; i < operands.size(); ++i)
      if (auto ok = operand(operands[i], i, needs.of(i, operands.size()), where); !ok)
        return ok;
    calls[index] = what.dependsOnPlace() ? CallIs::GoodInPlace : CallIs::Good;
    return {};
  }

  Expected<void> descriptor(size_t index, DescriptorNeeds &needs, Where &where) {
    Descriptor &what = table.descriptors[index];
    if (auto ok =
            take(*from.descriptors()->Get(static_cast<uint32_t>(index)), where, what);
        !ok)
      return ok;
    where.kind = name(what.kind());
    auto own = task::operandNeeds(what.params, table.mesh());
    if (!own)
      return damaged(where + ": " + own.error().message);
    bool isKernel = what.kind() == TaskKind::Kernel;
    if (auto *kernel = std::get_if<task::Kernel>(&what.params)) {
      if (kernel->inputs > what.numOperands)
        return damaged(where + ": it has fewer operands than inputs");
      if (kernel->kernel >= table.kernels.size())
        return damaged(where + ": no such kernel");
    }
    needs.list = std::move(*own);
    // Those of the call that is waited for, source and target of each of its items.
    if (what.kind() == TaskKind::Wait && what.numOperands % 2 == 0 &&
        what.numOperands <= table.operands.size())
      needs.list.resize(std::max<size_t>(what.numOperands, 2));
    if (auto ok = values(what, needs.list, where); !ok)
      return ok;
    if (isKernel && what.numOperands < needs.list.size())
      return damaged(where + ": it has no operands for the rank values that it reads");
    if (!isKernel && what.numOperands != needs.list.size())
      return damaged(where + ": " + std::to_string(what.numOperands) +
                     " operands, expected " + std::to_string(needs.list.size()));
    if (isEngineCall(what.kind()) && reachesPacked(what))
      return damaged(where + ": a packed weight cannot move");
    Expected<void> ok;
    if (auto *exchange = std::get_if<task::Exchange>(&what.params))
      ok = this->exchange(*exchange, needs.list, where);
    if (auto *halo = std::get_if<task::Halo>(&what.params))
      ok = this->halo(*halo, needs.list, where);
    if (!ok)
      return ok;
    table.handles = std::max(table.handles, what.handle + 1);
    needs.isRead = true;
    return {};
  }

  Expected<void> take(const fb::Descriptor &d, const Where &where, Descriptor &what) {
    if (!charge(d.rank_values()) || !charge(d.moves()))
      return tooMuch(where);
    for (const fb::Move *move : entriesOf(d.moves()))
      what.moves.push_back(flatbuffers::UnPack(*move));
    what.numOperands = d.num_operands();
    what.handle = d.handle();
    if (d.rank_values())
      what.rankValues = {d.rank_values()->data(), d.rank_values()->size()};
    if (d.params_type() > fb::Params::MAX)
      return makeError("the task table has a task of kind " +
                       std::to_string(static_cast<int>(d.params_type())) +
                       ", which this runtime does not know (" + std::string(where) + ")");
    if (d.params_type() == fb::Params::NONE || !d.params())
      return damaged(where + " does nothing");
    bool fits = true;
    unpack(d, what.params, fits,
           std::make_index_sequence<std::variant_size_v<task::Params>>());
    return fits ? Expected<void>() : tooMuch(where);
  }

  template <size_t... I>
  void unpack(const fb::Descriptor &t, task::Params &params, bool &fits,
              std::index_sequence<I...>) {
    ((static_cast<size_t>(t.params_type()) == I + 1 ? unpackAs<I>(t, params, fits)
                                                    : void()),
     ...);
  }
  template <size_t I>
  void unpackAs(const fb::Descriptor &t, task::Params &params, bool &fits) {
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
    if constexpr (requires { record.more(); })
      fits &= charge(record.more());
    if constexpr (requires { record.from()->size(); })
      fits &= charge(record.from()) && charge(record.to());
    if constexpr (requires { record.windows(); })
      fits &= charge(record.windows());
    if constexpr (requires { record.pieces(); })
      fits &= charge(record.pieces()) && charge(record.runs());
    if constexpr (requires { record.checks(); })
      for (const flatbuffers::String *text : entriesOf(record.checks()))
        fits = fits && charge(text);
    return fits;
  }

  static bool takesValues(TaskKind kind, size_t count) {
    bool takesOne = kind == TaskKind::Slice || kind == TaskKind::Mask ||
                    kind == TaskKind::ToPartial || kind == TaskKind::Update ||
                    kind == TaskKind::AllToAllV || kind == TaskKind::Rows;
    return kind == TaskKind::Kernel || count == (takesOne ? 1 : 0) ||
           (kind == TaskKind::Repeat && count == 1) ||
           (kind == TaskKind::Rows && count == 2);
  }

  /// The values exist; the operands at the end from which some are read hold them.
  Expected<void> values(const Descriptor &t, std::vector<task::OperandNeed> &needs,
                        const Where &where) {
    if (!takesValues(t.kind(), t.rankValues.size()))
      return damaged(where + ": wrong number of rank values");
    int64_t list = task::listLength(t.params);
    for (uint32_t v : t.rankValues) {
      if (v >= table.rankValues.size())
        return damaged(where + ": no rank value " + std::to_string(v));
      const RankValueSpec &value = table.rankValues[v];
      bool isRead = value.kind == PARTITA_RANK_READ;
      if (int64_t count = std::max<int64_t>(std::exchange(list, 0), 1);
          value.count != count || (count > 1 && !isRead))
        return damaged(where + ": rank value " + std::to_string(v) + " is a list of " +
                       std::to_string(value.count) + ", expected " +
                       std::to_string(count));
      if (isRead)
        needs.push_back(
            {static_cast<uint64_t>(value.block + value.count) * byteWidth(value.type),
             false});
    }
    return {};
  }

  Expected<void> operand(int32_t buffer, size_t i, const task::OperandNeed &need,
                         const Where &where) {
    if (buffer == -1 && need.optional)
      return {};
    if (buffer < 0 || static_cast<size_t>(buffer) >= table.bufferList.size())
      return damaged(where + ": operand " + std::to_string(i) + " is no buffer");
    const BufferView &view = table.bufferList[static_cast<size_t>(buffer)];
    if (view.bytes < need.bytes)
      return damaged(where + ": operand " + std::to_string(i) + " has " +
                     std::to_string(view.bytes) + " bytes, the call needs " +
                     std::to_string(need.bytes));
    if (!staysInRoll(table, view))
      return damaged(where + ": operand " + std::to_string(i) +
                     " leaves its state when that has rolled");
    return {};
  }

  static bool reachesPacked(const Descriptor &t) {
    bool packed = false;
    if (auto *p = std::get_if<task::MatMul>(&t.params))
      packed = p->b_packed;
    if (auto *p = std::get_if<task::BlockMatMul>(&t.params))
      packed = p->b_packed;
    if (auto *p = std::get_if<task::Conv>(&t.params))
      packed = p->weights_packed;
    if (auto *p = std::get_if<task::ConvTranspose>(&t.params))
      packed = p->weights_packed;
    return packed && std::ranges::any_of(t.moves, [](const task::Move &move) {
             return move.operand == 1;
           });
  }

  uint64_t bytesOf(const std::vector<int64_t> &shape, uint8_t dtype) const {
    return static_cast<uint64_t>(elementCount(shape)) *
           byteWidth(static_cast<DType>(dtype));
  }

  bool haveLayouts(uint32_t a, uint32_t b) const {
    return std::max(a, b) < table.layouts.size();
  }

  /// The layouts of a halo agree, and say what its operands hold.
  Expected<void> halo(const task::Halo &p, std::vector<task::OperandNeed> &needs,
                      const Where &where) {
    if (!haveLayouts(p.before, p.positions))
      return damaged(where + ": a layout is missing");
    Halo halo = table.halo(p);
    if (Expected<void> ok = halo.verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    needs[0].bytes = bytesOf(halo.before.localShape(), p.dtype);
    needs[1].bytes = bytesOf(halo.shape(), p.dtype);
    return {};
  }

  /// The operands of an exchange hold the local tensors of one global one.
  Expected<void> exchange(const task::Exchange &p, std::vector<task::OperandNeed> &needs,
                          const Where &where) {
    if (!haveLayouts(p.before, p.after))
      return damaged(where + ": a layout is missing");
    const Layout &before = table.layouts[p.before], &after = table.layouts[p.after];
    if (!p.pieces.empty() || !p.runs.empty()) {
      if (auto ok = pieces(p, where); !ok)
        return ok;
    } else if (before.globalShape() != after.globalShape()) {
      return damaged(where + ": the two layouts have different shapes");
    }
    needs[0].bytes = bytesOf(before.localShape(), p.dtype);
    needs[1].bytes = bytesOf(after.localShape(), p.dtype);
    return {};
  }

  /// The pieces fit the two whole tensors.
  Expected<void> pieces(const task::Exchange &p, const Where &where) const {
    const Layout &before = table.layouts[p.before];
    for (uint32_t i : {p.before, p.after})
      if (const Layout &layout = table.layouts[i];
          !layout.isReplicated() || layout.localShape() != layout.globalShape())
        return damaged(where + ": a tensor that is exchanged by pieces is not whole");
    if (p.runs.size() != p.pieces.size() * before.dims.size())
      return damaged(where + ": " + std::to_string(p.runs.size()) + " runs of " +
                     std::to_string(p.pieces.size()) + " pieces");
    if (Expected<void> ok = table.pieces(p).verify(table.mesh()); !ok)
      return damaged(where + ": " + ok.error().message);
    return {};
  }

  TaskTable &table;
  const fb::TaskTable &from;
  std::vector<DescriptorNeeds> descriptors; ///< by number
  /// By number: not looked at yet, good wherever it is, or good if its place is.
  enum class CallIs : uint8_t { New, Good, GoodInPlace };
  std::vector<CallIs> calls;
};

size_t TaskTable::numReadValues(const TaskView &task) const {
  return static_cast<size_t>(std::ranges::count_if(task.rankValues, [&](uint32_t v) {
    return rankValues[v].kind == PARTITA_RANK_READ;
  }));
}

int64_t TaskTable::rankValue(size_t index, int64_t rank) const {
  const RankValueSpec &v = rankValues[index];
  if (v.kind == PARTITA_RANK_READ)
    return 0;
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

Pieces TaskTable::pieces(const task::Exchange &params) const {
  Pieces pieces{
      layouts[params.before].globalShape(), layouts[params.after].globalShape(), {}};
  const size_t rank = pieces.before.size();
  for (size_t i = 0; i < params.pieces.size(); ++i) {
    auto runs = params.runs.begin() + static_cast<std::ptrdiff_t>(i * rank);
    pieces.list.push_back({params.pieces[i].from(),
                           params.pieces[i].to(),
                           {runs, runs + static_cast<std::ptrdiff_t>(rank)}});
  }
  return pieces;
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
  if (Expected<void> ok = checkSharedPlaces(table); !ok)
    return damaged(ok.error().message);
  return table;
}
