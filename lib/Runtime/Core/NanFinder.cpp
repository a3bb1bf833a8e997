//===- NanFinder.cpp - The first op that made a NaN or infinity -----------===//
#include "NanFinder.h"

#include "ExecutorOp.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::runtime;

/// Rows of a kernel that are computed once more: enough to find a node, whatever the
/// size.
static constexpr int64_t mostRows = 4096;

Expected<std::unique_ptr<NanFinder>> NanFinder::create(const TaskTable &table, int rank,
                                                       ReadPayload readPayload) {
  if (table.formulas().empty() && table.numKernels() != 0)
    return makeError(
        "the bundle does not say what its kernels compute; compile the model "
        "again");
  auto formulas = Formulas::parse(table.formulas());
  if (!formulas)
    return tl::unexpected(formulas.error());
  std::unique_ptr<NanFinder> made(
      new NanFinder(table, rank, std::move(*formulas), std::move(readPayload)));
  made->flights.resize(table.numHandles());
  return made;
}

void NanFinder::beginRequest() {
  number = 0;
  records.clear();
  ended.clear();
  isResultBad = false;
  tainted.clear();
}

const KernelFormula *NanFinder::formulaOf(size_t task) const {
  auto *kernel = std::get_if<task::Kernel>(&table.task(task).params);
  return kernel && kernel->kernel < formulas.kernels.size()
             ? &formulas.kernels[kernel->kernel]
             : nullptr;
}

MadeName NanFinder::nameOf(size_t task, size_t number) const {
  std::string source(table.task(task).source);
  auto names = formulas.names.find(task);
  if (names == formulas.names.end() || number >= names->second.size() ||
      names->second[number].node.empty())
    return {source, source};
  return names->second[number];
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

namespace {
/// Types of the operands of a task that is no kernel, where all have one but for these.
struct TypeOf {
  size_t operand;

  template <typename P> DType operator()(const P &p) const {
    if constexpr (std::is_base_of_v<task::Conv, P> || std::is_same_v<P, task::MatMul>) {
      if (operand == 0)
        return task::lhsType(p);
      if (operand == 1)
        return task::rhsType(p);
    }
    if constexpr (std::is_same_v<P, task::BlockMatMul>) {
      if (operand == task::BlockMatMulB)
        return DType::U8;
      if (operand == task::BlockMatMulZeros)
        return static_cast<DType>(p.zero_dtype.value_or(p.dtype));
    }
    if constexpr (std::is_base_of_v<task::Conv, P>)
      return ofConv(p);
    else if constexpr (requires { p.more; })
      return static_cast<DType>(task::itemOf(p, operand / 2).dtype);
    else if constexpr (requires { p.dtype; })
      return static_cast<DType>(p.dtype);
    else
      return DType::U8; // nothing is read or written
  }
  /// Post-ops' operands have the type of the number by then.
  DType ofConv(const task::Conv &p) const {
    auto type = static_cast<DType>(p.dtype);
    size_t next = task::ConvPost;
    for (const task::PostOp &op : p.post) {
      type = task::typeAfter(op.kind, type);
      if (task::isBinary(op.kind) && next++ == operand)
        return type;
    }
    return operand == task::ConvDst ? type : static_cast<DType>(p.dtype);
  }
};

/// Kinds whose written operand keeps elements that the task does not write.
bool keepsElements(TaskKind kind) {
  return kind == TaskKind::Update || kind == TaskKind::Rows || kind == TaskKind::Mask ||
         kind == TaskKind::AllToAllV;
}
} // namespace

std::vector<NanFinder::Operand> NanFinder::operandsOf(size_t task,
                                                      Addresses addresses) const {
  const TaskView view = table.task(task);
  std::vector<Operand> list(addresses.size());
  for (size_t i = 0; i < list.size() && i < view.operands.size(); ++i)
    if (view.operands[i] >= 0) {
      list[i].data = addresses[i];
      list[i].bytes = table.buffers()[static_cast<size_t>(view.operands[i])].bytes;
    }
  if (const KernelFormula *formula = formulaOf(task)) {
    size_t reads = formula->reads.size();
    for (size_t i = 0; i < list.size() && i < reads + formula->writes.size(); ++i) {
      list[i].access = i < reads ? &formula->reads[i] : &formula->writes[i - reads];
      list[i].type = list[i].access->type;
      list[i].reads = i < reads, list[i].writes = i >= reads;
      list[i].isOwn = formula->isWhole || static_cast<int>(i) < formula->ownReads;
    }
    return list;
  }
  auto needs = task::operandNeeds(view.params, table.mesh());
  if (!needs || view.kind() == TaskKind::Kernel)
    return list;
  auto [first, behind] = task::writtenOperands(view.params, list.size());
  const bool isCall = isEngineCall(view.kind());
  for (size_t i = 0; i < list.size() && i < needs->size(); ++i) {
    Operand &operand = list[i];
    if (isCall && i == scratchOperand(view.kind()))
      continue;
    operand.type = std::visit(TypeOf{i}, view.params);
    uint64_t bytes = (*needs)[i].bytes != 0 ? (*needs)[i].bytes : operand.bytes;
    operand.elements = std::min(bytes, operand.bytes) / byteWidth(operand.type);
    operand.writes = isCall ? i == resultOperand(view.kind()) : i >= first && i < behind;
    if (isCollective(view.kind()))
      operand.writes = i % 2 == 1;
    operand.reads = !operand.writes || keepsElements(view.kind()) || list.size() == 1;
  }
  if (auto *conv = std::get_if<task::Conv>(&view.params); conv && conv->adds_to_result)
    list[task::ConvDst].reads = true;
  return list;
}

NotFinite NanFinder::countIn(size_t task, const Operand &operand) const {
  NotFinite count;
  if (!operand.data || !isFloat(operand.type))
    return count;
  auto visit = [&](int64_t place) {
    ++count.elements;
    count.add(elementAt(operand.type, operand.data, place));
  };
  if (operand.access)
    forEachElement(*formulaOf(task), *operand.access, operand.bytes, visit);
  for (uint64_t i = 0; !operand.access && i < operand.elements; ++i)
    visit(static_cast<int64_t>(i));
  return count;
}

//===----------------------------------------------------------------------===//
// Around a task
//===----------------------------------------------------------------------===//

static bool doOverlap(const auto &a, const auto &b) {
  return a.begin && b.begin && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

void NanFinder::before(size_t task, Addresses addresses) {
  ++number;
  currentReads.clear();
  isTainted = false;
  current.clear();
  const TaskView view = table.task(task);
  if (auto *wait = std::get_if<task::Wait>(&view.params)) {
    task = flights[wait->handle].task;
    currentReads = std::move(flights[wait->handle].reads);
    current = operandsOf(task, addresses);
    return;
  }
  current = operandsOf(task, addresses);
  for (Operand &operand : current) {
    NotFinite count;
    if (operand.reads && operand.isOwn)
      count = countIn(task, operand);
    bool isBehind = operand.reads && std::ranges::any_of(tainted, [&](const Range &it) {
                      return doOverlap(it, Range{operand.data, operand.bytes});
                    });
    if (count.any() || isBehind)
      currentReads.push_back({operand.data, operand.bytes, count});
    isTainted |= isBehind || (isEngineCall(view.kind()) && count.nan != 0);
    bool isOverwritten = std::ranges::any_of(current, [&](const Operand &other) {
      return other.writes && doOverlap(Range{operand.data, operand.bytes},
                                       Range{other.data, other.bytes});
    });
    if (operand.reads && isOverwritten)
      operand.copy.assign(operand.data, operand.data + operand.bytes);
  }
  if (view.handle != 0)
    flights[view.handle] = {task, std::move(currentReads)};
  // A number that is sent may do harm on another rank alone.
  if (isCollective(view.kind()))
    for (const Operand &operand : current)
      if (operand.reads && countIn(task, operand).any())
        ended.push_back({operand.data, operand.bytes});
}

void NanFinder::after(size_t task, Addresses) {
  const TaskView view = table.task(task);
  if (view.handle != 0)
    return; // its Wait sees it
  if (auto *wait = std::get_if<task::Wait>(&view.params))
    task = flights[wait->handle].task;
  Record record{task, number, now(), currentReads, {}, {}};
  for (const Operand &operand : current)
    if (operand.writes)
      if (NotFinite count = countIn(task, operand); count.any()) {
        record.writes.push_back({operand.data, operand.bytes, count});
        record.count += count;
      }
  std::erase_if(tainted, [&](const Range &it) {
    return std::ranges::any_of(current, [&](const Operand &operand) {
      return operand.writes && doOverlap(it, Range{operand.data, operand.bytes});
    });
  });
  if (record.writes.empty())
    return isTainted ? addTaint(std::move(record)) : void();
  if (!isTainted)
    judge(record);
  records.push_back(std::move(record));
}

/// A task whose results are finite, though what it has read is not.
void NanFinder::addTaint(Record record) {
  for (const Operand &operand : current)
    if (operand.writes && operand.data)
      record.writes.push_back({operand.data, operand.bytes});
  tainted.insert(tainted.end(), record.writes.begin(), record.writes.end());
  records.push_back(std::move(record));
}

void NanFinder::sends(DType type, const std::byte *data, uint64_t elements) {
  for (uint64_t i = 0; isFloat(type) && i < elements; ++i)
    if (!std::isfinite(elementAt(type, data, static_cast<int64_t>(i))))
      return ended.push_back({data, elements * byteWidth(type)});
}

void NanFinder::ends(const std::byte *data, uint64_t bytes) {
  ended.push_back({data, bytes});
  isResultBad = true;
}

//===----------------------------------------------------------------------===//
// Makers
//===----------------------------------------------------------------------===//

FoundNan NanFinder::at(const Record &record, FoundNan::Origin origin,
                       std::string text) const {
  // Programs of several count tasks of their own.
  bool isOnly = table.transfers().empty();
  return {origin,
          isOnly ? static_cast<int64_t>(record.number)
                 : static_cast<int64_t>(record.time * 1e6),
          rank, "rank " + std::to_string(rank) + ", node '" + std::move(text)};
}

/// "3 NaN and 1 infinity of 96 elements".
static std::string countText(const NotFinite &count) {
  std::string text;
  if (count.nan != 0)
    text = std::to_string(count.nan) + " NaN";
  if (count.inf != 0)
    text += (text.empty() ? "" : " and ") + std::to_string(count.inf) +
            (count.inf == 1 ? " infinity" : " infinities");
  return text + " among " + std::to_string(count.elements) + " elements";
}

std::string NanFinder::madeText(const Record &record, const MadeName &name,
                                const NotFinite &count) const {
  std::string of = name.value == name.node ? "" : " of value '" + name.value + "'";
  return name.node + "' (" + std::string(partita::name(table.task(record.task).kind())) +
         "): it made " + countText(count) + of;
}

void NanFinder::judgeKernel(Record &record, const KernelFormula &formula) const {
  std::vector<TrialOperand> reads, writes;
  for (const Operand &operand : current) {
    if (!operand.access)
      continue;
    const std::byte *data = operand.copy.empty() ? operand.data : operand.copy.data();
    (operand.reads ? reads : writes).push_back({data, operand.bytes});
  }
  Trial trial = tryKernel(formula, reads, writes, mostRows, readPayload);
  auto origins = {FoundNan::Made, FoundNan::Infinite};
  for (FoundNan::Origin origin : origins)
    for (size_t i = 0; i < trial.made.size(); ++i)
      if (const NotFinite &count = trial.made[i][origin]; count.any()) {
        record.found =
            at(record, origin,
               madeText(record, nameOf(record.task, i), count) +
                   (origin == FoundNan::Made ? ", of finite operands"
                                             : ", of operands of which some are infinite "
                                               "and none is NaN"));
        return;
      }
  if (trial.suspects.empty() || !record.reads.empty())
    return;
  std::vector<std::string> nodes;
  for (int suspect : trial.suspects)
    if (std::string node = nameOf(record.task, static_cast<size_t>(suspect)).node;
        std::ranges::find(nodes, node) == nodes.end())
      nodes.push_back(node);
  std::string more;
  for (size_t i = 1; i < nodes.size(); ++i)
    more += (i == 1 ? ", or in the same kernel '" : ", '") + nodes[i] + "'";
  record.found = at(record, FoundNan::Made,
                    madeText(record, {nodes[0], nodes[0]}, record.count) +
                        ", of finite operands" + more);
}

void NanFinder::judgeCall(Record &record) const {
  if (!record.reads.empty())
    return;
  std::vector<TrialOperand> operands;
  std::span<const std::byte> before;
  const TaskView view = table.task(record.task);
  for (const Operand &operand : current) {
    operands.push_back({operand.data, operand.data ? operand.bytes : 0});
    if (operand.writes)
      before = operand.copy;
  }
  auto names = formulas.names.find(record.task);
  size_t count = names == formulas.names.end() ? 1 : names->second.size();
  int step = count == 1 ? 0 : tryCall(view.params, operands, before);
  std::string more;
  if (step < 0)
    for (size_t i = 1; i < count; ++i)
      more += (i == 1 ? ", or in the same call '" : ", '") + nameOf(record.task, i).node +
              "'";
  MadeName name = nameOf(record.task, step < 0 ? 0 : static_cast<size_t>(step));
  record.found = at(record, FoundNan::Made,
                    madeText(record, name, record.count) + ", of finite operands" + more);
}

/// A kernel of which the parts are not known, or a task that moves and reduces.
void NanFinder::judgeAsOne(Record &record) const {
  if (!record.reads.empty())
    return;
  const TaskView view = table.task(record.task);
  std::string text = madeText(record, nameOf(record.task, SIZE_MAX), record.count);
  if (view.kind() == TaskKind::Kernel)
    record.found = at(record, FoundNan::Made, text + ", of finite operands");
  else if (isCollective(view.kind()))
    record.found = at(record, FoundNan::Received, text + ", of what ranks have sent");
}

void NanFinder::judge(Record &record) const {
  const TaskView view = table.task(record.task);
  const KernelFormula *formula = formulaOf(record.task);
  if (formula && formula->isWhole)
    judgeKernel(record, *formula);
  else if (isEngineCall(view.kind()))
    judgeCall(record);
  else
    judgeAsOne(record);
}

const NanFinder::Record *NanFinder::writerOf(const Range &range, uint64_t before) const {
  for (size_t i = records.size(); i-- > 0;) {
    if (records[i].number >= before)
      continue;
    for (const Range &write : records[i].writes)
      if (doOverlap(write, range))
        return &records[i];
  }
  return nullptr;
}

std::optional<FoundNan>
NanFinder::endRequest(const std::function<std::string(const std::byte *)> &nameAt) {
  FoundNan best;
  auto offer = [&](FoundNan found) {
    if (found < best)
      best = std::move(found);
  };
  std::set<const Record *> seen;
  std::vector<const Record *> left;
  auto follow = [&](const Range &range, const Record *reader) {
    const Record *writer = writerOf(range, reader ? reader->number : UINT64_MAX);
    if (writer && seen.insert(writer).second)
      left.push_back(writer);
    if (writer)
      return;
    std::string source = nameAt(range.begin);
    auto origin = range.count.nan != 0 ? FoundNan::Read : FoundNan::ReadInfinite;
    if (!source.empty() && reader)
      offer(at(*reader, origin,
               std::string(table.task(reader->task).source) + "' (" +
                   std::string(partita::name(table.task(reader->task).kind())) +
                   "): it is the first that reads " + source + ", which has " +
                   countText(range.count)));
    else if (!source.empty())
      offer({FoundNan::Read, INT64_MAX, rank,
             "rank " + std::to_string(rank) + ": " + source +
                 " has numbers that are not finite from before"});
  };
  for (const Range &range : ended)
    follow(range, nullptr);
  while (!left.empty()) {
    const Record *record = left.back();
    left.pop_back();
    offer(record->found);
    for (const Range &read : record->reads)
      follow(read, record);
  }
  if (best.origin == FoundNan::None && !isResultBad)
    return std::nullopt;
  best.isOfResult = isResultBad;
  return best;
}
