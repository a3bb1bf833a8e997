//===- EvaluatePipeline.cpp - Running schedules on host tensors -----------===//
#include "passes/Reference/EvaluatePipeline.h"

#include "dialects/Task/Task.h"
#include "partita/Base/Layout/Reshard.h"

#include <algorithm>

using namespace mlir;
using namespace partita;

namespace {
class Runner {
public:
  Runner(ModuleOp module, const WeightLoader &weights, const Evaluating &how)
      : pipeline(task_ir::pipelineOf(module)), weights(weights), how(how) {
    for (auto op : module.getOps<task_ir::ProgramOp>()) {
      Program &program = programs.emplace_back();
      program.mesh = dist::findMesh(op).getMesh();
      for (auto buffer : op.getBody().front().getOps<task_ir::BufferOp>())
        program.buffers.push_back({buffer, std::vector<Tensors>(buffer.getSlots())});
      for (auto segment : op.getBody().front().getOps<task_ir::SegmentOp>())
        program.segments.push_back(segment);
    }
  }

  Expected<NamedTensors> run(const NamedTensors &given) {
    if (auto ok = bind(given); !ok)
      return tl::unexpected(ok.error());
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t p = 0; p < programs.size(); ++p)
        for (;;) {
          auto went = advance(p);
          if (!went)
            return tl::unexpected(went.error());
          if (!*went)
            break;
          moves = true;
        }
    }
    for (size_t p = 0; p < programs.size(); ++p)
      if (programs[p].next < entries(p).size())
        return makeError("program " + pipeline.programs[p].name + " waits for ever in " +
                         "entry " + std::to_string(programs[p].next));
    return results();
  }

private:
  /// Each slot has a part per rank; none: nothing was written there yet.
  struct Buffer {
    task_ir::BufferOp op;
    std::vector<Tensors> slots;

    const Layout &layout() { return op.getLayout().getLayout(); }
  };
  struct Program {
    std::vector<Buffer> buffers;
    SmallVector<task_ir::SegmentOp> segments;
    Mesh mesh;
    size_t next = 0; ///< entry
  };

  const std::vector<schedule::Entry> &entries(size_t program) const {
    return pipeline.programs[program].schedules[0].entries;
  }

  Buffer &bufferAt(int64_t program, int64_t buffer) {
    return programs[static_cast<size_t>(program)].buffers[static_cast<size_t>(buffer)];
  }

  Tensors &slot(int64_t program, int64_t buffer, int64_t microBatch) {
    auto &slots = bufferAt(program, buffer).slots;
    return slots[static_cast<size_t>(microBatch) % slots.size()];
  }

  static Tensors partsOf(Program &program, Buffer &buffer, const HostTensor &whole) {
    Tensors parts;
    for (int64_t r = 0; r < program.mesh.numRanks(); ++r)
      parts.push_back(localPart(program.mesh, buffer.layout(), r, whole));
    return parts;
  }

  /// The part of a request's tensor that a micro-batch has: rows of the first dim.
  static HostTensor slice(const HostTensor &whole, size_t part, size_t parts) {
    HostTensor one = whole;
    one.shape[0] /= static_cast<int64_t>(parts);
    const size_t bytes = whole.bytes.size() / parts;
    auto begin = whole.bytes.begin() + static_cast<std::ptrdiff_t>(part * bytes);
    one.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    return one;
  }

  Expected<void> bind(const NamedTensors &given) {
    for (Program &program : programs)
      for (Buffer &buffer : program.buffers) {
        auto name = buffer.op.getInput() ? buffer.op.getInput() : buffer.op.getState();
        if (!name)
          continue;
        auto found = given.find(name->str());
        if (found == given.end())
          return makeError("nothing is given for '" + name->str() + "'");
        for (size_t s = 0; s < buffer.slots.size(); ++s)
          buffer.slots[s] = partsOf(program, buffer,
                                    buffer.slots.size() == 1
                                        ? found->second
                                        : slice(found->second, s, buffer.slots.size()));
      }
    return {};
  }

  /// A transfer takes place when both of its ends have started it.
  Expected<void> start(const schedule::Flight &flight) {
    const schedule::Transfer &it =
        pipeline.transfers[static_cast<size_t>(flight.transfer)];
    if (++started[flight] < 2)
      return {};
    const Tensors &from = slot(it.from, it.fromBuffer, flight.microBatch);
    auto fail = [&](const std::string &why) {
      return makeError("transfer " + it.name + " of micro-batch " +
                       std::to_string(flight.microBatch) + ": " + why);
    };
    if (from.empty())
      return fail("there is nothing to move");
    auto whole = assemble(programs[static_cast<size_t>(it.from)].mesh,
                          bufferAt(it.from, it.fromBuffer).layout(), from);
    if (!whole)
      return fail(whole.error().message);
    slot(it.to, it.toBuffer, flight.microBatch) = partsOf(
        programs[static_cast<size_t>(it.to)], bufferAt(it.to, it.toBuffer), *whole);
    return {};
  }

  Expected<bool> advance(size_t p) {
    Program &program = programs[p];
    if (program.next == entries(p).size())
      return false;
    const schedule::Entry &entry = entries(p)[program.next];
    for (const schedule::Flight &flight : entry.waits)
      if (started[flight] < 2)
        return false;
    if (entry.segment >= 0)
      if (auto ok = runSegment(p, entry); !ok)
        return tl::unexpected(ok.error());
    for (const schedule::Flight &flight : entry.starts)
      if (auto ok = start(flight); !ok)
        return tl::unexpected(ok.error());
    ++program.next;
    return true;
  }

  Expected<void> runSegment(size_t p, const schedule::Entry &entry) {
    const auto number = static_cast<size_t>(entry.segment);
    const schedule::Segment &segment = pipeline.programs[p].segments[number];
    task_ir::SegmentOp op = programs[p].segments[number];
    if (segment.mayBeSkipped)
      return makeError("segment " + segment.name +
                       " has a condition, which is not "
                       "evaluated");
    const Mesh &mesh = programs[p].mesh;
    RankTensors inputs(static_cast<size_t>(mesh.numRanks()));
    auto fail = [&](const std::string &why) {
      return makeError("program " + pipeline.programs[p].name + ", segment " +
                       segment.name + " of micro-batch " +
                       std::to_string(entry.microBatch) + ": " + why);
    };
    for (int64_t buffer : segment.reads) {
      const Tensors &parts = slot(static_cast<int64_t>(p), buffer, entry.microBatch);
      if (parts.empty())
        return fail("'" + pipeline.programs[p].buffers[static_cast<size_t>(buffer)].name +
                    "' holds nothing");
      for (size_t r = 0; r < inputs.size(); ++r)
        inputs[r].push_back(parts[r]);
    }
    auto outputs =
        evaluateRanks(op.callee(), mesh, inputs, weights, /*poison=*/true, how);
    if (!outputs)
      return fail(outputs.error().message);
    for (auto [i, number] : llvm::enumerate(segment.writes)) {
      Buffer &buffer = bufferAt(static_cast<int64_t>(p), number);
      Tensors &parts = slot(static_cast<int64_t>(p), number, entry.microBatch);
      parts.clear();
      for (size_t r = 0; r < inputs.size(); ++r) {
        parts.push_back(std::move((*outputs)[r][i]));
        poisonPadding(mesh, buffer.layout(), static_cast<int64_t>(r), parts.back());
      }
    }
    return {};
  }

  Expected<NamedTensors> results() {
    NamedTensors named;
    for (Program &program : programs)
      for (Buffer &buffer : program.buffers) {
        auto name = buffer.op.getOutput() ? buffer.op.getOutput() : buffer.op.getState();
        if (!name)
          continue;
        HostTensor whole;
        for (size_t s = 0; s < buffer.slots.size(); ++s) {
          auto part = assemble(program.mesh, buffer.layout(), buffer.slots[s]);
          if (!part)
            return makeError("'" + name->str() + "': " + part.error().message);
          if (s == 0) {
            whole = std::move(*part);
            continue;
          }
          whole.shape[0] += part->shape[0];
          llvm::append_range(whole.bytes, part->bytes);
        }
        named.insert_or_assign(name->str(), std::move(whole));
      }
    return named;
  }

  schedule::Pipeline pipeline;
  const WeightLoader &weights;
  const Evaluating &how;
  std::vector<Program> programs;
  std::map<schedule::Flight, int> started; ///< ends
};
} // namespace

Expected<NamedTensors> partita::evaluatePipeline(ModuleOp module,
                                                 const NamedTensors &given,
                                                 const WeightLoader &weights,
                                                 const Evaluating &how) {
  return Runner(module, weights, how).run(given);
}
