//===- TaskTable.cpp - Building task tables -------------------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include "partita/Base/Scalar.h"

#include <algorithm>
#include <bit>
#include <flatbuffers/minireflect.h>

using namespace partita;

static constexpr std::string_view kindNames[] = {"kernel",         "matmul",
                                                 "block-matmul",   "conv",
                                                 "conv-transpose", "conv-backward-filter",
                                                 "pool",           "all-reduce",
                                                 "all-gather",     "reduce-scatter",
                                                 "all-to-all",     "permute",
                                                 "exchange",       "halo",
                                                 "slice",          "mask",
                                                 "copy",           "repad",
                                                 "to-partial",     "fill",
                                                 "wait",           "repeat",
                                                 "skip",           "update",
                                                 "all-to-all-v",   "rows"};
static_assert(std::size(kindNames) == std::variant_size_v<task::Params> &&
              size_t(fb::Params::MAX) == std::variant_size_v<task::Params>);

std::string_view partita::name(TaskKind kind) {
  return kindNames[static_cast<size_t>(kind)];
}

std::string_view partita::name(Space space) {
  constexpr std::string_view names[] = {"arena", "weights", "state", "io", "host"};
  return names[static_cast<size_t>(space)];
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

fb::Axis flatbuffers::Pack(const AxisRef &axis) {
  return {axis.axis, axis.pre, axis.size};
}
AxisRef flatbuffers::UnPack(const fb::Axis &axis) {
  return {axis.axis(), axis.pre(), axis.size()};
}
fb::PostOp flatbuffers::Pack(const task::PostOp &op) {
  return {static_cast<uint8_t>(op.kind), op.alpha, op.beta,
          static_cast<uint64_t>(op.mask)};
}
task::PostOp flatbuffers::UnPack(const fb::PostOp &op) {
  return {op.kind(), op.alpha(), op.beta(), static_cast<int64_t>(op.mask())};
}
fb::BatchDim flatbuffers::Pack(const task::BatchDim &dim) {
  return {dim.size, dim.a, dim.b, dim.c};
}
task::BatchDim flatbuffers::UnPack(const fb::BatchDim &dim) {
  return {dim.size(), dim.a(), dim.b(), dim.c()};
}
fb::SpatialDim flatbuffers::Pack(const task::SpatialDim &d) {
  return {d.in, d.out, d.kernel, d.stride, d.dilation, d.padBegin, d.padEnd};
}
task::SpatialDim flatbuffers::UnPack(const fb::SpatialDim &d) {
  return {d.in(),       d.out(),       d.kernel(), d.stride(),
          d.dilation(), d.pad_begin(), d.pad_end()};
}
fb::Window flatbuffers::Pack(const HaloWindow &window) {
  return {window.dim, window.stride, window.kernelExtent, window.low};
}
HaloWindow flatbuffers::UnPack(const fb::Window &window) {
  return {window.dim(), window.stride(), window.kernel_extent(), window.low()};
}
fb::Run flatbuffers::Pack(const ExchangeRun &run) {
  return {run.before, run.after, run.length};
}
ExchangeRun flatbuffers::UnPack(const fb::Run &run) {
  return {run.before(), run.after(), run.length()};
}
fb::Item flatbuffers::Pack(const task::Item &item) {
  return {item.outer, item.block, item.dtype};
}
task::Item flatbuffers::UnPack(const fb::Item &item) {
  return {item.outer(), item.block(), item.dtype()};
}
fb::Move flatbuffers::Pack(const task::Move &move) {
  return {move.operand, move.loop, move.begin, move.stride};
}
task::Move flatbuffers::UnPack(const fb::Move &move) {
  return {move.operand(), move.loop(), move.begin(), move.stride()};
}

int64_t task::elementBits(DType type, double value) {
  switch (type) {
  case DType::F32:
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  case DType::F64:
    return std::bit_cast<int64_t>(value);
  case DType::F16:
    return floatToHalf(static_cast<float>(value));
  case DType::BF16:
    return floatToBfloat16(static_cast<float>(value));
  case DType::F8E4M3FN:
  case DType::F8E4M3FNUZ:
  case DType::F8E5M2:
  case DType::F8E5M2FNUZ:
  case DType::F8E8M0:
  case DType::F4E2M1:
    return floatToSmall(type, static_cast<float>(value));
  case DType::Bool:
    return value != 0;
  case DType::U64:
    return static_cast<int64_t>(value >= 0x1p64 ? UINT64_MAX
                                                : static_cast<uint64_t>(value));
  default:
    // Every signed and narrower unsigned integer; 2^63 and above saturate.
    return value >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(value);
  }
}

size_t partita::resultOperand(TaskKind kind) {
  switch (kind) {
  case TaskKind::MatMul:
  case TaskKind::BlockMatMul:
    return task::MatMulC;
  case TaskKind::Conv:
  case TaskKind::ConvTranspose:
    return task::ConvDst;
  case TaskKind::ConvBackwardFilter:
    return task::BackwardFilter;
  case TaskKind::Mask:
  case TaskKind::Fill:
    return 0;
  default:
    return 1;
  }
}

size_t partita::scratchOperand(TaskKind kind) {
  switch (kind) {
  case TaskKind::Pool:
    return task::PoolScratch;
  case TaskKind::ConvBackwardFilter:
    return task::BackwardScratch;
  default:
    return task::MatMulScratch;
  }
}

std::pair<size_t, size_t> task::writtenOperands(const Params &params,
                                                size_t numOperands) {
  TaskKind kind = kindOf(params);
  if (auto *kernel = std::get_if<Kernel>(&params))
    return {kernel->inputs, numOperands};
  if (numOperands == 0 || kind == TaskKind::Wait || kind == TaskKind::Repeat ||
      kind == TaskKind::Skip)
    return {0, 0};
  // The sources of all items but the first are between the targets.
  if (size_t items = numItems(params); items > 1)
    return {1, 2 * items};
  size_t result = std::min(resultOperand(kind), numOperands - 1);
  return {result, result + 1};
}

bool task::isBinary(int64_t postKind) {
  return postKind >= PARTITA_POST_BINARY_ADD && postKind <= PARTITA_POST_BINARY_MUL;
}

DType task::typeAfter(int64_t postKind, DType type) {
  switch (postKind) {
  case PARTITA_POST_TO_F32:
    return DType::F32;
  case PARTITA_POST_TO_U8:
    return DType::U8;
  case PARTITA_POST_TO_I8:
    return DType::I8;
  default:
    return type;
  }
}

using Builder = flatbuffers::FlatBufferBuilder;

static flatbuffers::Offset<void> pack(Builder &out, const task::Params &params) {
  return std::visit(
      [&]<typename P>(const P &p) { return P::TableType::Pack(out, &p).Union(); },
      params);
}

/// The parameters as a buffer, until the next call of this thread. Loading asks this of
/// every engine call.
static const Builder &packed(const task::Params &params) {
  thread_local Builder out;
  out.Clear();
  out.Finish(flatbuffers::Offset<fb::Fill>(pack(out, params).o));
  return out;
}

std::string task::bytesOf(const Params &params) {
  const Builder &out = packed(params);
  return std::string(1, static_cast<char>(params.index())) +
         std::string(reinterpret_cast<const char *>(out.GetBufferPointer()),
                     out.GetSize());
}

std::string task::text(const Params &params) {
  const Builder &out = packed(params);
  return std::visit(
      [&]<typename P>(const P &) {
        return flatbuffers::FlatBufferToString(out.GetBufferPointer(),
                                               P::TableType::MiniReflectTypeTable());
      },
      params);
}

//===----------------------------------------------------------------------===//
// The builder
//===----------------------------------------------------------------------===//

/// The index of `value` in the list; equal ones have one.
template <typename Map, typename Key, typename List, typename Value>
static uint32_t indexOf(Map &map, Key key, List &list, const Value &value) {
  auto [found, added] =
      map.try_emplace(std::move(key), static_cast<uint32_t>(list.size()));
  if (added)
    list.emplace_back(value);
  return found->second;
}

uint32_t TaskTableBuilder::addBuffer(Space space, uint64_t offset, uint64_t bytes,
                                     uint64_t slotStride, uint32_t slots) {
  buffers.emplace_back(offset, bytes, slotStride, static_cast<fb::Space>(space));
  slotCounts.push_back(slots);
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t TaskTableBuilder::addTensor(const TensorSpec &tensor) {
  tensors.push_back(tensor);
  tensorLayouts.push_back(addLayout(tensor.layout));
  return static_cast<uint32_t>(tensors.size() - 1);
}

uint32_t TaskTableBuilder::addKernel(std::string_view symbol) {
  return indexOf(kernelIndex, std::string(symbol), kernels, symbol);
}

uint32_t TaskTableBuilder::addRankValue(const RankValueSpec &value) {
  return indexOf(rankValueIndex, value, rankValues, value);
}

uint32_t TaskTableBuilder::addLayout(const Layout &layout) {
  return indexOf(layoutIndex, layout.str(mesh), layouts, layout);
}

/// Everything but the operands and the source: equal bytes are equal descriptors.
static std::string bytesOfDescriptor(const TaskSpec &task) {
  std::string bytes;
  auto add = [&](auto... values) {
    int64_t list[] = {static_cast<int64_t>(values)...};
    bytes.append(reinterpret_cast<const char *>(list), sizeof(list));
  };
  add(task.operands.size(), task.handle, task.rankValues.size(), task.moves.size());
  for (uint32_t value : task.rankValues)
    add(value);
  for (const task::Move &move : task.moves)
    add(move.operand, move.loop, move.begin, move.stride);
  return bytes + task::bytesOf(task.params);
}

uint32_t TaskTableBuilder::addTask(TaskSpec task) {
  auto [descriptor, isNew] = descriptorIndex.try_emplace(
      bytesOfDescriptor(task), static_cast<uint32_t>(descriptors.size()));
  auto [call, isFirst] = callIndex.try_emplace({descriptor->second, task.operands},
                                               static_cast<uint32_t>(calls.size()));
  if (isFirst) {
    calls.emplace_back(descriptor->second, static_cast<uint32_t>(operands.size()));
    operands.insert(operands.end(), task.operands.begin(), task.operands.end());
  }
  auto [source, isNamed] =
      sourceIndex.try_emplace(task.source, static_cast<uint32_t>(sources.size()));
  if (isNamed)
    sources += task.source;
  tasks.emplace_back(call->second, source->second,
                     static_cast<uint32_t>(task.source.size()));
  if (isNew)
    descriptors.push_back(std::move(task));
  return static_cast<uint32_t>(tasks.size() - 1);
}

void TaskTableBuilder::addSegment(SegmentSpec segment) {
  segments.emplace_back(std::move(segment), tasks.size());
}

uint32_t TaskTableBuilder::addTransfer(TransferSpec transfer) {
  uint32_t layout = addLayout(transfer.layout);
  transfers.emplace_back(std::move(transfer), layout);
  return static_cast<uint32_t>(transfers.size() - 1);
}

void TaskTableBuilder::addSchedule(schedule::Schedule schedule) {
  schedules.push_back(std::move(schedule));
}

void TaskTableBuilder::setMemory(uint64_t arena, uint64_t weights, uint64_t packed) {
  setRegion(Space::Arena, arena);
  setRegion(Space::Weight, weights);
  packedBytes = packed;
}

namespace {
template <typename T> using Offset = flatbuffers::Offset<T>;

/// Writes each part behind what it refers to, as FlatBuffers wants it.
struct Writer {
  Builder out;

  auto axes(const AxisList &list) {
    return out.CreateVectorOfNativeStructs<fb::Axis, AxisRef>(list);
  }
  /// The vector of what `make` makes of each entry.
  template <typename List, typename Make> auto each(const List &list, Make make) {
    std::vector<decltype(make(*list.begin()))> offsets;
    for (const auto &entry : list)
      offsets.push_back(make(entry));
    return out.CreateVector(offsets);
  }
  auto text(std::string_view text) {
    return out.CreateSharedString(text.data(), text.size());
  }

  Offset<fb::Layout> layout(const Layout &layout) {
    auto dims = each(layout.dims, [&](const DimLayout &dim) {
      return fb::CreateDim(out, each(dim.factors, [&](const DimFactor &f) {
                             auto list = axes(f.axes);
                             return fb::CreateFactor(out, f.size, f.padded, list,
                                                     out.CreateVector(f.blocks));
                           }));
    });
    auto partial = each(layout.partial, [&](const PartialAxes &entry) {
      return fb::CreatePartial(out, static_cast<uint8_t>(entry.kind), axes(entry.axes));
    });
    return fb::CreateLayout(out, dims, partial);
  }

  Offset<fb::Tensor> tensor(const TensorSpec &t, uint32_t layout) {
    auto name = text(t.name);
    fb::Roll roll;
    if (t.roll)
      roll = {t.roll->dim, t.roll->capacity, t.roll->advance};
    return fb::CreateTensor(out, static_cast<uint8_t>(t.role),
                            static_cast<uint8_t>(t.type), name, layout, t.buffer, t.file,
                            t.fileOffset, t.fileBytes, t.roll ? &roll : nullptr);
  }

  Offset<fb::Descriptor> descriptor(const TaskSpec &t) {
    auto values = out.CreateVector(t.rankValues);
    // The union counts from 1: 0 is none.
    auto kind = static_cast<fb::Params>(t.params.index() + 1);
    auto params = pack(out, t.params);
    auto moves = t.moves.empty()
                     ? Offset<flatbuffers::Vector<const fb::Move *>>()
                     : out.CreateVectorOfNativeStructs<fb::Move, task::Move>(t.moves);
    return fb::CreateDescriptor(out, static_cast<uint32_t>(t.operands.size()), values,
                                kind, params, t.handle, moves);
  }

  auto axesOf(const Mesh &mesh) {
    return each(mesh.axes(), [&](const Mesh::Axis &axis) {
      return fb::CreateMeshAxis(out, text(axis.name), axis.size);
    });
  }

  Offset<fb::Transfer> transfer(const TransferSpec &t, uint32_t layoutNumber) {
    auto name = text(t.name);
    auto mesh = axesOf(t.peerMesh);
    auto ranks = out.CreateVector(t.peerRanks);
    return fb::CreateTransfer(out, name, t.number, static_cast<uint8_t>(t.type), t.sends,
                              t.once, t.buffer, layoutNumber, mesh, ranks,
                              layout(t.peerLayout));
  }

  auto flights(const std::vector<schedule::Flight> &list) {
    std::vector<fb::Flight> records;
    for (schedule::Flight f : list)
      records.emplace_back(static_cast<uint32_t>(f.transfer),
                           static_cast<uint32_t>(f.microBatch));
    return out.CreateVectorOfStructs(records);
  }

  Offset<fb::Schedule> schedule(const schedule::Schedule &s) {
    auto entries = each(s.entries, [&](const schedule::Entry &e) {
      auto waits = flights(e.waits);
      return fb::CreateEntry(out, static_cast<int32_t>(e.segment),
                             static_cast<uint32_t>(e.microBatch), waits,
                             flights(e.starts));
    });
    return fb::CreateSchedule(
        out, out.CreateVector(std::vector<int32_t>(s.ranks.begin(), s.ranks.end())),
        entries);
  }

  Offset<fb::Segment> segment(const SegmentSpec &s, size_t numTasks) {
    auto name = text(s.name);
    auto reads = out.CreateVector(s.reads);
    return fb::CreateSegment(out, name, static_cast<uint32_t>(numTasks), s.once, reads,
                             out.CreateVector(s.writes));
  }
};
} // namespace

std::string TaskTableBuilder::finish() const {
  Writer w;
  auto axes = w.axesOf(mesh);
  auto layoutList = w.each(layouts, [&](const Layout &l) { return w.layout(l); });
  auto places = w.out.CreateVectorOfStructs(buffers);
  auto next = tensorLayouts.begin();
  auto tensorList =
      w.each(tensors, [&](const TensorSpec &t) { return w.tensor(t, *next++); });
  auto symbols = w.each(kernels, [&](const std::string &name) { return w.text(name); });
  auto values = w.each(rankValues, [&](const RankValueSpec &v) {
    auto list = w.axes(v.axes);
    return fb::CreateRankValue(w.out, v.kind, v.size, v.block, list,
                               w.out.CreateVector(v.listed), static_cast<uint8_t>(v.type),
                               v.count);
  });
  auto descriptorList =
      w.each(descriptors, [&](const TaskSpec &t) { return w.descriptor(t); });
  auto callList = w.out.CreateVectorOfStructs(calls);
  auto operandList = w.out.CreateVector(operands);
  auto taskList = w.out.CreateVectorOfStructs(tasks);
  auto names = w.out.CreateString(sources);
  auto pieces = segments;
  if (pieces.empty() || pieces[0].second != 0)
    pieces.insert(pieces.begin(), {{.name = "request"}, 0});
  pieces.push_back({{}, tasks.size()});
  std::vector<Offset<fb::Segment>> segmentList;
  for (size_t i = 0; i + 1 < pieces.size(); ++i)
    segmentList.push_back(
        w.segment(pieces[i].first, pieces[i + 1].second - pieces[i].second));
  auto segmentVector = w.out.CreateVector(segmentList);
  auto name = w.text(program.name);
  auto ranks = w.out.CreateVector(program.ranks);
  bool hasSlots = std::ranges::any_of(slotCounts, [](uint32_t n) { return n != 1; });
  auto slots = w.out.CreateVector(hasSlots ? slotCounts : std::vector<uint32_t>());
  auto transferList =
      w.each(transfers, [&](const auto &t) { return w.transfer(t.first, t.second); });
  auto scheduleList =
      w.each(schedules, [&](const schedule::Schedule &s) { return w.schedule(s); });
  auto of = [&](Space space) { return regions[static_cast<size_t>(space)]; };
  auto told = w.text(formulas);
  fb::FinishTaskTableBuffer(
      w.out,
      fb::CreateTaskTable(w.out, axes, of(Space::Arena), of(Space::Weight), packedBytes,
                          layoutList, places, tensorList, symbols, values, descriptorList,
                          callList, operandList, taskList, names, segmentVector, name,
                          program.microBatches, ranks, slots, transferList, scheduleList,
                          of(Space::State), of(Space::Io), of(Space::Host), told));
  return std::string(reinterpret_cast<const char *>(w.out.GetBufferPointer()),
                     w.out.GetSize());
}
