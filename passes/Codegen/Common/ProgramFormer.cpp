//===- ProgramFormer.cpp - From a scheduled program to tasks --------------===//
#include "passes/Codegen/Common/ProgramFormer.h"

#include "dialects/Comm/Comm.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;
using namespace partita::task_ir;

namespace {

/// One program of the pipeline.
class ProgramFormer {
public:
  ProgramFormer(ProgramOp op, const schedule::Pipeline &pipeline, size_t number,
                TargetModel::Calls &calls, const std::string &prefix,
                const RollingStates &rolling, Program &program)
      : op(op), pipeline(pipeline), plan(pipeline.programs[number]), number(number),
        rolling(rolling), program(program), state(calls) {
    // Constants of one program are as they were when there was only one.
    state.constantPrefix = prefix + (number == 0 ? "" : std::to_string(number) + ".");
  }

  LogicalResult run() {
    Block &block = op.getBody().front();
    program.identity.name = op.getSymName().str();
    program.identity.microBatches = static_cast<uint32_t>(pipeline.microBatches);
    for (int64_t rank : op.getRanks())
      program.identity.ranks.push_back(static_cast<int32_t>(rank));
    program.mesh = op->getAttrOfType<dist::MeshAttr>(dist::meshAttr).getMesh();
    buffers.resize(plan.buffers.size());
    countEntries();
    size_t b = 0;
    for (auto buffer : block.getOps<BufferOp>())
      addBuffer(buffer, b++);
    size_t s = 0;
    for (auto segment : block.getOps<SegmentOp>())
      if (failed(formSegment(segment, plan.segments[s++])))
        return failure();
    b = 0;
    for (auto buffer : block.getOps<BufferOp>()) {
      if (buffer.getOutput())
        addTensor(buffer, b, Role::Output);
      storage(buffer, b++); // of those that no segment touches too
    }
    addTransfers();
    addSegments();
    dropUnusedKernels();
    return success();
  }

private:
  /// By buffer how many entries of a schedule touch it. What is transferred counts as
  /// touched by several.
  void countEntries() {
    entries.assign(plan.buffers.size(), 0);
    std::vector<const schedule::Segment *> seen(plan.buffers.size());
    for (const schedule::Segment &segment : plan.segments)
      for (const auto *list : {&segment.reads, &segment.writes})
        for (int64_t b : *list)
          if (std::exchange(seen[static_cast<size_t>(b)], &segment) != &segment)
            entries[static_cast<size_t>(b)] += segment.once ? 1 : pipeline.microBatches;
    for (const schedule::Transfer &t : pipeline.transfers) {
      if (t.from == static_cast<int64_t>(number))
        entries[static_cast<size_t>(t.fromBuffer)] += 2;
      if (t.to == static_cast<int64_t>(number))
        entries[static_cast<size_t>(t.toBuffer)] += 2;
    }
  }

  /// Whether more than one entry of a schedule touches the buffer.
  bool isShared(size_t b) const { return plan.buffers[b].slots > 1 || entries[b] > 1; }

  void addBuffer(BufferOp op, size_t b) {
    BufferSlot &buffer = buffers[b];
    buffer.name = op.getOutput() ? op.getOutput()->str() : op.getSymName().str();
    buffer.kind.input = plan.buffers[b].input;
    buffer.kind.output = plan.buffers[b].output;
    buffer.kind.slots = static_cast<uint32_t>(plan.buffers[b].slots);
    buffer.kind.space =
        op.getState()
            ? Space::State
            : static_cast<Space>(op.getSpace().value_or(task_ir::Region::Device));
    // A state is there before and behind all tasks.
    buffer.kind.shared = isShared(b) || op.getState();
    if (op.getState())
      addRoll(op, b);
    if (op.getInput())
      addTensor(op, b, Role::Input);
    if (op.getState())
      addTensor(op, b, Role::State);
  }

  void addRoll(BufferOp buffer, size_t b) {
    auto &roll = buffers[b].kind.roll = rolling.rollOf(op, buffer);
    if (!roll)
      return;
    if (auto moved = rolling.segmentOf(op, buffer))
      moves[moved->segment].push_back({&buffers[b], std::move(moved->values)});
  }

  /// Those that another form has taken the place of.
  void dropUnusedKernels() {
    std::vector<int64_t> numberOf(program.kernels.size(), -1);
    for (const Task &task : program.tasks)
      if (auto *kernel = std::get_if<task::Kernel>(&task.params))
        numberOf[kernel->kernel] = 0;
    std::vector<KernelSpec> used;
    for (size_t k = 0; k < numberOf.size(); ++k)
      if (numberOf[k] == 0) {
        numberOf[k] = static_cast<int64_t>(used.size());
        used.push_back(std::move(program.kernels[k]));
      }
    program.kernels = std::move(used);
    for (Task &task : program.tasks)
      if (auto *kernel = std::get_if<task::Kernel>(&task.params))
        kernel->kernel = static_cast<uint32_t>(numberOf[kernel->kernel]);
  }

  int storage(BufferOp op, size_t b) {
    RankedTensorType type = op.getTensorType();
    return TaskFormer::storageOf(program, buffers[b],
                                 *partita::dtypeOf(type.getElementType()),
                                 type.getNumElements());
  }

  void addTensor(BufferOp op, size_t b, Role role) {
    TensorEntry entry;
    entry.spec.role = role;
    entry.spec.type = *partita::dtypeOf(op.getTensorType().getElementType());
    entry.spec.name = (role == Role::Input   ? op.getInput()
                       : role == Role::State ? op.getState()
                                             : op.getOutput())
                          ->str();
    if (op.getInit())
      entry.initial = op.getInit()->str();
    entry.spec.layout = op.getLayout().getLayout();
    entry.storage = storage(op, b);
    program.tensors.push_back(std::move(entry));
  }

  LogicalResult formSegment(SegmentOp segment, const schedule::Segment &from) {
    ProgramSegment &out = program.segments.emplace_back();
    out.name = from.name, out.once = from.once;
    out.firstTask = program.tasks.size();
    SmallVector<BufferSlot *> reads, writes;
    // Its condition is no argument.
    for (int64_t b : ArrayRef(from.reads).take_front(segment.getReads().size()))
      reads.push_back(&buffers[static_cast<size_t>(b)]);
    for (int64_t b : from.writes)
      writes.push_back(&buffers[static_cast<size_t>(b)]);
    if (!from.mayBeSkipped)
      return TaskFormer(segment.callee(), program, state)
          .run(reads, writes, moves[segment]);
    auto condition = static_cast<size_t>(from.reads.back());
    int held = storage(bufferOp(condition), condition);
    program.tasks.push_back({from.name, {{held, 0, 1}}, task::Skip()});
    if (failed(TaskFormer(segment.callee(), program, state).run(reads, writes)))
      return failure();
    std::get<task::Skip>(program.tasks[out.firstTask].params).tasks =
        static_cast<uint32_t>(program.tasks.size() - out.firstTask - 1);
    return success();
  }

  BufferOp bufferOp(size_t b) {
    auto ops = op.getBody().front().getOps<BufferOp>();
    return *std::next(ops.begin(), static_cast<std::ptrdiff_t>(b));
  }

  void addTransfers() {
    auto module = op->getParentOfType<ModuleOp>();
    for (auto [i, transfer] : llvm::enumerate(pipeline.transfers)) {
      bool sends = transfer.from == static_cast<int64_t>(number);
      if (!sends && transfer.to != static_cast<int64_t>(number))
        continue;
      auto ends =
          *std::next(module.getOps<TransferOp>().begin(), static_cast<std::ptrdiff_t>(i));
      BufferOp own = lookup(sends ? ends.getSource() : ends.getTarget());
      BufferOp peer = lookup(sends ? ends.getTarget() : ends.getSource());
      ProgramTransfer &out = program.transfers.emplace_back();
      numbers[static_cast<int64_t>(i)] =
          static_cast<int64_t>(program.transfers.size()) - 1;
      TransferSpec &spec = out.spec;
      spec.name = transfer.name, spec.number = static_cast<uint32_t>(i);
      spec.type = *partita::dtypeOf(own.getTensorType().getElementType());
      spec.sends = sends, spec.once = transfer.once;
      spec.layout = own.getLayout().getLayout();
      spec.peerMesh = peer.getLayout().devices();
      spec.peerLayout = peer.getLayout().getLayout();
      for (int64_t rank : peer->getParentOfType<ProgramOp>().getRanks())
        spec.peerRanks.push_back(static_cast<int32_t>(rank));
      out.storage =
          buffers[static_cast<size_t>(sends ? transfer.fromBuffer : transfer.toBuffer)]
              .storage;
    }
  }

  BufferOp lookup(SymbolRefAttr name) {
    return SymbolTable::lookupNearestSymbolFrom<BufferOp>(op->getParentOp(), name);
  }

  /// What segments read and write, and schedules, by the numbers of the table.
  void addSegments() {
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      for (int64_t b : plan.segments[s].reads)
        program.segments[s].reads.push_back(buffers[static_cast<size_t>(b)].storage);
      for (int64_t b : plan.segments[s].writes)
        program.segments[s].writes.push_back(buffers[static_cast<size_t>(b)].storage);
    }
    program.schedules = plan.schedules;
    for (schedule::Schedule &schedule : program.schedules)
      for (schedule::Entry &entry : schedule.entries)
        for (auto *list : {&entry.waits, &entry.starts})
          for (schedule::Flight &flight : *list)
            flight.transfer = numbers.lookup(flight.transfer);
  }

  ProgramOp op;
  const schedule::Pipeline &pipeline;
  const schedule::Program &plan;
  size_t number;
  const RollingStates &rolling;
  Program &program;
  FormerState state;
  /// By segment the states that it moves on.
  llvm::DenseMap<Operation *, SmallVector<TaskFormer::Rolling, 0>> moves;
  std::vector<BufferSlot> buffers;
  std::vector<int64_t> entries;             ///< by buffer, see countEntries
  llvm::DenseMap<int64_t, int64_t> numbers; ///< of transfers, in the program
};

} // namespace

LogicalResult codegen::formPrograms(ModuleOp module, const TargetModel &target,
                                    TargetModel::Calls &calls, TeamPlan team,
                                    std::vector<Program> &programs,
                                    const std::string &prefix,
                                    const RollingStates *rolling) {
  RollingStates own;
  if (!rolling)
    own.add(module);
  schedule::Pipeline pipeline = task_ir::pipelineOf(module);
  if (team.threads == 0) {
    int64_t ranks = 0;
    for (auto op : module.getOps<ProgramOp>())
      ranks += static_cast<int64_t>(op.getRanks().size());
    team.threads = target.threadsPerRank(ranks);
  }
  // For gates alone.
  module.walk([](comm::ClaimOp claim) {
    claim.getResult().replaceAllUsesWith(claim.getInput());
    claim.erase();
  });
  size_t number = 0;
  for (auto op : module.getOps<ProgramOp>()) {
    Program &program = programs.emplace_back();
    program.team = team;
    program.target = &target;
    if (failed(ProgramFormer(op, pipeline, number++, calls, prefix,
                             rolling ? *rolling : own, program)
                   .run()))
      return failure();
  }
  return success();
}
