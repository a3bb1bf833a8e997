//===- StepModel.cpp - What one rank does in a training step --------------===//
//
// A step of several stages is programs of segments, buffers and transfers (level L4). The
// file of a rank has the segments of its program in the order of the schedule, each as
// often as it runs. A buffer is no more than the value that was put there last, as the
// gate of L4 has shown that every reading finds what it asks for.
//
//===----------------------------------------------------------------------===//
#include "dialects/Task/Task.h"
#include "partita/Onnx/MergeStages.h"
#include "partita/Onnx/MergeStep.h"
#include "passes/RankFiles/RankWriter.h"

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;
using task_ir::BufferOp;
using task_ir::ProgramOp;

namespace {
class StepWriter {
public:
  StepWriter(ModuleOp module, int64_t group, RankWriter &writer)
      : pipeline(task_ir::pipelineOf(module)), group(static_cast<size_t>(group)),
        w(writer) {
    for (auto op : module.getOps<ProgramOp>())
      programs.push_back(op);
    for (auto op : own().getBody().front().getOps<BufferOp>())
      buffers.push_back({op, Names(op.getSlots()), {}, {}});
    for (auto op : own().getBody().front().getOps<task_ir::SegmentOp>())
      segments.push_back(op);
  }

  Expected<onnx_model::Model> run(std::map<std::string, std::string> metadata) {
    w.model.graph.name =
        onnx_model::StagePlace{w.rank, w.mesh.numRanks(), static_cast<int64_t>(group),
                               static_cast<int64_t>(programs.size()),
                               /*isGroup=*/true}
            .text();
    w.model.metadata = std::move(metadata);
    w.model.metadata[std::string(onnx_model::meshKey)] = w.mesh.str();
    w.model.opsets = {{"", 23}};
    takeNames();
    for (Buffer &buffer : buffers)
      bind(buffer);
    for (const schedule::Entry &entry : described().schedules[0].entries)
      runEntry(entry);
    w.part.clear();
    for (Buffer &buffer : buffers)
      give(buffer);
    if (w.failure())
      return tl::unexpected(*w.failure());
    for (const onnx_model::Node &node : w.model.graph.nodes)
      if (!node.domain.empty() && !onnx_model::isAroundPart(node))
        w.model.opsets[node.domain] = 1;
    return std::move(w.model);
  }

private:
  struct Buffer {
    BufferOp op;
    Names slots;               ///< the rank's part of what each holds; "": nothing yet
    std::string input, output; ///< of the model
  };

  ProgramOp own() const { return programs[group]; }
  const schedule::Program &described() const { return pipeline.programs[group]; }

  static Layout layoutOf(BufferOp op) { return op.getLayout().getLayout(); }
  static DType typeOf(BufferOp op) {
    return *dtypeOf(op.getTensorType().getElementType());
  }

  std::string &slotOf(int64_t buffer, int64_t microBatch) {
    Names &slots = buffers[static_cast<size_t>(buffer)].slots;
    return slots[static_cast<size_t>(microBatch) % slots.size()];
  }

  /// The tensor of a request, of whose rows each slot has as many.
  static Shape shapeOf(const Buffer &buffer) {
    Shape shape = layoutOf(buffer.op).globalShape();
    if (buffer.slots.size() > 1)
      shape[0] *= static_cast<int64_t>(buffer.slots.size());
    return shape;
  }

  /// Ends have their names before anything inside has one.
  void takeNames() {
    std::string states;
    for (Buffer &buffer : buffers) {
      auto state = buffer.op.getState();
      if (auto name = state ? state : buffer.op.getInput())
        buffer.input = w.reserve(name->str());
      if (state)
        buffer.output = w.reserve(state->str() + ".next");
      else if (auto name = buffer.op.getOutput())
        buffer.output = w.reserve(name->str());
      if (state)
        states += buffer.input + "=" + buffer.output + "\n";
    }
    if (!states.empty())
      w.model.metadata[std::string(onnx_model::statesKey)] = states;
  }

  /// Fills the slots of what is an input with the rank's parts of it.
  void bind(Buffer &buffer) {
    if (buffer.input.empty())
      return;
    const Layout layout = layoutOf(buffer.op);
    const DType type = typeOf(buffer.op);
    w.model.graph.inputs.push_back({buffer.input, type, shapeOf(buffer)});
    w.begin(buffer.input);
    const auto count = static_cast<int64_t>(buffer.slots.size());
    const int64_t rows = count > 1 ? layout.globalShape()[0] : 0;
    for (int64_t slot = 0; slot < count; ++slot) {
      std::string whole = count == 1
                              ? buffer.input
                              : w.slice(buffer.input, 0, slot * rows, (slot + 1) * rows);
      buffer.slots[static_cast<size_t>(slot)] = toLocal(w, whole, layout, type);
    }
  }

  /// Makes outputs of what is left in buffers that are such, and of states.
  void give(Buffer &buffer) {
    if (buffer.output.empty() || w.failure())
      return;
    w.begin(buffer.output);
    Names wholes;
    for (const std::string &part : buffer.slots)
      wholes.push_back(toGlobal(w, part, layoutOf(buffer.op)));
    const std::string whole =
        wholes.size() == 1 ? wholes[0] : w.node("Concat", wholes, {{"axis", int64_t(0)}});
    writeOutput(w, whole, buffer.output, shapeOf(buffer), typeOf(buffer.op));
  }

  void runEntry(const schedule::Entry &entry) {
    w.part.clear();
    for (const schedule::Flight &flight : entry.waits)
      receive(flight);
    if (entry.segment >= 0)
      runSegment(entry);
    w.part.clear();
    for (const schedule::Flight &flight : entry.starts)
      send(flight);
  }

  void runSegment(const schedule::Entry &entry) {
    const auto number = static_cast<size_t>(entry.segment);
    const schedule::Segment &segment = described().segments[number];
    func::FuncOp function = segments[number].callee();
    w.begin(function.getSymName().str());
    if (segment.mayBeSkipped)
      w.fail("has a condition, under which files per rank cannot run a part of a step");
    w.part = function.getSymName().str() +
             (segment.once ? "" : "." + std::to_string(entry.microBatch)) + "/";
    Block &body = function.getBody().front();
    for (auto [argument, buffer] : llvm::zip(body.getArguments(), segment.reads))
      w.define(argument, slotOf(buffer, entry.microBatch));
    Names results = writeBody(w, body);
    for (auto [result, buffer] : llvm::zip(results, segment.writes))
      slotOf(buffer, entry.microBatch) = result;
  }

  const schedule::Transfer &transferOf(const schedule::Flight &flight) const {
    return pipeline.transfers[static_cast<size_t>(flight.transfer)];
  }

  /// A transfer's value of one micro-batch; `buffer` is that of this end.
  Crossing crossingOf(const schedule::Flight &flight, int64_t buffer,
                      int64_t other) const {
    const schedule::Transfer &transfer = transferOf(flight);
    ArrayRef<int64_t> ranks = programAt(other).getRanks();
    BufferOp op = buffers[static_cast<size_t>(buffer)].op;
    return {transfer.name + (transfer.once
                                 ? ""
                                 : ", micro-batch " + std::to_string(flight.microBatch)),
            layoutOf(op).globalShape(), typeOf(op), ranks.vec()};
  }

  /// A handle, whose methods are not const.
  ProgramOp programAt(int64_t number) const {
    return programs[static_cast<size_t>(number)];
  }

  /// The sender starts a transfer when its value is there; the receiver says by its start
  /// that a slot is free, which no value ever waits for.
  void send(const schedule::Flight &flight) {
    const schedule::Transfer &transfer = transferOf(flight);
    if (transfer.from != static_cast<int64_t>(group) || w.failure())
      return;
    const std::string part = slotOf(transfer.fromBuffer, flight.microBatch);
    const Layout layout = layoutOf(buffers[static_cast<size_t>(transfer.fromBuffer)].op);
    std::string &whole = wholes[{part, layout.str(w.mesh)}];
    const Crossing to = crossingOf(flight, transfer.fromBuffer, transfer.to);
    w.begin(to.name);
    if (whole.empty())
      whole = toGlobal(w, part, layout);
    before.push_back(writeSend(w, whole, to));
  }

  void receive(const schedule::Flight &flight) {
    const schedule::Transfer &transfer = transferOf(flight);
    if (transfer.to != static_cast<int64_t>(group) || w.failure())
      return;
    const Crossing from = crossingOf(flight, transfer.toBuffer, transfer.from);
    const std::string whole = writeReceive(w, from, before);
    before = {whole};
    BufferOp op = buffers[static_cast<size_t>(transfer.toBuffer)].op;
    slotOf(transfer.toBuffer, flight.microBatch) =
        toLocal(w, whole, layoutOf(op), from.type);
  }

  const schedule::Pipeline pipeline;
  const size_t group;
  RankWriter &w;
  std::vector<ProgramOp> programs;
  std::vector<Buffer> buffers;
  std::vector<task_ir::SegmentOp> segments;
  /// Whole values that are sent, by the rank's part and its layout.
  std::map<std::pair<std::string, std::string>, std::string> wholes;
  /// Values that this rank has sent since it received last, and the last received one: a
  /// rank that runs nodes behind their inputs sends what others wait for before it waits.
  Names before;
};
} // namespace

Expected<void> partita::checkStep(ModuleOp module) {
  const schedule::Pipeline pipeline = task_ir::pipelineOf(module);
  if (pipeline.microBatches > maxTrips)
    return makeError("the step has " + std::to_string(pipeline.microBatches) +
                     " micro-batches; files per rank have at most " +
                     std::to_string(maxTrips) + ", written out");
  for (const schedule::Program &program : pipeline.programs)
    if (program.schedules.size() != 1)
      return makeError("ranks of program " + program.name +
                       " have different schedules, and files of a program have the same "
                       "nodes");
  return {};
}

Expected<onnx_model::Model>
partita::rankStepModel(ModuleOp module, int64_t group, int64_t rank, RankDialect dialect,
                       const WeightTensor &weights,
                       const std::map<std::string, std::string> &metadata) {
  auto programs = llvm::to_vector(module.getOps<ProgramOp>());
  const Mesh mesh = dist::findMesh(programs[static_cast<size_t>(group)]).getMesh();
  RankWriter writer(mesh, rank, dialect, weights);
  return StepWriter(module, group, writer).run(metadata);
}
