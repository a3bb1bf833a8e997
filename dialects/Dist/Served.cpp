//===- Served.cpp - How users of values are served, as attributes ---------===//
#include "dialects/Dist/ProgramFlow.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

static ArrayAttr attributeOf(MeshAttr mesh, const std::vector<ServedEntry> &entries) {
  Builder builder(mesh.getContext());
  SmallVector<Attribute> list;
  for (const ServedEntry &entry : entries) {
    Attribute form = builder.getI64IntegerAttr(entry.window);
    if (entry.layout)
      form = LayoutAttr::get(mesh.getContext(), mesh, entry.layout->canonicalized());
    SmallVector<Attribute> parts{form, builder.getI64IntegerAttr(entry.from)};
    if (entry.epoch || !entry.users.empty())
      parts.append({builder.getI64IntegerAttr(entry.epoch.value_or(-1)),
                    builder.getDenseI32ArrayAttr(entry.users)});
    list.push_back(builder.getArrayAttr(parts));
  }
  return builder.getArrayAttr(list);
}

static std::vector<ServedEntry> servedEntriesIn(Attribute list) {
  std::vector<ServedEntry> entries;
  for (auto parts : cast<ArrayAttr>(list).getAsRange<ArrayAttr>()) {
    ServedEntry entry;
    if (auto layout = dyn_cast<LayoutAttr>(parts[0]))
      entry.layout = layout.getLayout();
    else
      entry.window = static_cast<int32_t>(cast<IntegerAttr>(parts[0]).getInt());
    entry.from = static_cast<int32_t>(cast<IntegerAttr>(parts[1]).getInt());
    if (parts.size() == 4) {
      if (int64_t epoch = cast<IntegerAttr>(parts[2]).getInt(); epoch >= 0)
        entry.epoch = epoch;
      llvm::append_range(entry.users, cast<DenseI32ArrayAttr>(parts[3]).asArrayRef());
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

void dist::writeServed(FunctionOpInterface function, const ProgramFlow &flow,
                       int32_t value, const std::vector<ServedEntry> &entries) {
  MeshAttr mesh = findMesh(function);
  Builder builder(function.getContext());
  const FlowValue &it = flow.graph.values[static_cast<size_t>(value)];
  ArrayAttr list = attributeOf(mesh, entries);
  const FlowEnd &end = flow.ends[static_cast<size_t>(it.producer)];
  if (end.kind == FlowEnd::Argument) {
    cast<FunctionOpInterface>(end.op).setArgAttr(end.number, servedAttr,
                                                 builder.getArrayAttr({list}));
    return;
  }
  Operation *op = end.op ? end.op : flow.operations[static_cast<size_t>(it.producer)];
  StringRef name = flow.isCopy(it.producer) ? servedAgainAttr : servedAttr;
  SmallVector<Attribute> lists(op->getNumResults(), builder.getArrayAttr({}));
  if (auto now = op->getAttrOfType<ArrayAttr>(name))
    lists.assign(now.begin(), now.end());
  lists[end.op ? end.number : static_cast<size_t>(it.result)] = list;
  op->setAttr(name, builder.getArrayAttr(lists));
}

std::vector<ServedEntry> dist::servedOn(const ProgramFlow &flow, int32_t value) {
  const FlowValue &it = flow.graph.values[static_cast<size_t>(value)];
  const FlowEnd &end = flow.ends[static_cast<size_t>(it.producer)];
  if (end.kind == FlowEnd::Argument) {
    auto lists = cast<FunctionOpInterface>(end.op).getArgAttrOfType<ArrayAttr>(
        end.number, servedAttr);
    return lists ? servedEntriesIn(lists[0]) : std::vector<ServedEntry>{};
  }
  Operation *op = end.op ? end.op : flow.operations[static_cast<size_t>(it.producer)];
  auto lists = op->getAttrOfType<ArrayAttr>(flow.isCopy(it.producer) ? servedAgainAttr
                                                                     : servedAttr);
  if (!lists)
    return {};
  return servedEntriesIn(lists[end.op ? end.number : static_cast<unsigned>(it.result)]);
}

FailureOr<Servings> dist::readServings(FunctionOpInterface function,
                                       const ProgramFlow &flow,
                                       const std::vector<Strategy> &strategies) {
  Servings servings;
  for (size_t v = 0; v < flow.graph.values.size(); ++v) {
    auto number = static_cast<int32_t>(v);
    if (flow.graph.values[v].producer < 0)
      continue;
    std::vector<ServedEntry> entries = servedOn(flow, number);
    if (entries.empty())
      continue;
    auto served = serveBy(flow.graph, strategies, number, entries);
    if (!served)
      return function.emitOpError("has a bad dist.served: ") << served.error().message;
    servings[number] = std::move(*served);
  }
  return servings;
}

void dist::clearServed(FunctionOpInterface function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    function.removeArgAttr(i, servedAttr);
  function.walk([](Operation *op) {
    op->removeAttr(servedAttr);
    op->removeAttr(servedAgainAttr);
  });
}
