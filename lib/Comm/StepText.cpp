//===- StepText.cpp - Schedules as torch.distributed writes them ----------===//
#include "partita/Comm/StepText.h"

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Bundle/StageOrder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

using namespace partita;

std::string partita::stepText(const PipelineStep &step) {
  std::string text;
  for (const std::vector<StepTurn> &turns : step.turns) {
    std::string line;
    for (const StepTurn &turn : turns) {
      const char kind = turn.part == StepPart::Forward  ? 'F'
                        : turn.part == StepPart::Weight ? 'W'
                        : step.partsWeights             ? 'I'
                                                        : 'B';
      line += (line.empty() ? "" : ",") + std::to_string(turn.stage) + kind +
              std::to_string(turn.microBatch);
    }
    text += line + "\n";
  }
  return text;
}

namespace {
class Reader {
public:
  explicit Reader(const std::string &where) : where(where) {}

  Expected<PipelineStep> read(const std::string &text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      if (line.ends_with('\r'))
        line.pop_back();
      if (auto ok = readLine(line); !ok)
        return tl::unexpected(ok.error());
    }
    if (lines.empty())
      return makeError(where + ": has no line");
    return finish();
  }

private:
  struct Cell {
    char kind = 'F';
    int64_t microBatch = 0, stage = 0;
  };

  std::string at(size_t cell) const {
    return where + ": line " + std::to_string(lines.size() + 1) + ", cell " +
           std::to_string(cell + 1) + ": ";
  }

  Expected<void> readLine(const std::string &line) {
    std::vector<Cell> cells;
    size_t number = 0;
    for (size_t begin = 0; begin <= line.size(); ++number) {
      const size_t end = std::min(line.find(',', begin), line.size());
      std::string text = line.substr(begin, end - begin);
      begin = end + 1;
      std::erase_if(text, [](char c) { return c == ' ' || c == '"'; });
      if (text.empty())
        continue;
      Cell cell;
      const char *last = text.data() + text.size();
      auto first = std::from_chars(text.data(), last, cell.stage);
      if (first.ec == std::errc() && first.ptr != last)
        cell.kind = *first.ptr;
      auto second = std::from_chars(std::min(first.ptr + 1, last), last, cell.microBatch);
      if (first.ec != std::errc() || second.ec != std::errc() || second.ptr != last ||
          std::string("FBIW").find(cell.kind) == std::string::npos || cell.stage < 0 ||
          cell.microBatch < 0)
        return makeError(at(number) + "'" + text +
                         "' is no stage, kind and micro-batch of a schedule of "
                         "computations (F, B, I, W)");
      cells.push_back(cell);
    }
    if (cells.empty())
      return makeError(at(0) + "the line has no stage");
    lines.push_back(std::move(cells));
    return {};
  }

  Expected<PipelineStep> finish() {
    if (auto ok = place(); !ok)
      return tl::unexpected(ok.error());
    step.turns.resize(lines.size());
    for (size_t g = 0; g < lines.size(); ++g) {
      for (const Cell &cell : lines[g]) {
        const StepPart part = cell.kind == 'F'   ? StepPart::Forward
                              : cell.kind == 'W' ? StepPart::Weight
                                                 : StepPart::Backward;
        step.turns[g].push_back({part, cell.microBatch, cell.stage});
        if (step.partsWeights && cell.kind == 'B')
          step.turns[g].push_back({StepPart::Weight, cell.microBatch, cell.stage});
      }
      if (auto ok = check(g); !ok)
        return tl::unexpected(ok.error());
    }
    return std::move(step);
  }

  /// A stage lies on the rank of the line that has it.
  Expected<void> place() {
    std::map<int64_t, int64_t> groupOf;
    for (size_t g = 0; g < lines.size(); ++g)
      for (const Cell &cell : lines[g]) {
        step.partsWeights |= cell.kind == 'I' || cell.kind == 'W';
        step.microBatches = std::max(step.microBatches, cell.microBatch + 1);
        auto [known, isNew] = groupOf.emplace(cell.stage, static_cast<int64_t>(g));
        if (known->second != static_cast<int64_t>(g))
          return makeError(where + ": line " + std::to_string(g + 1) + " has stage " +
                           std::to_string(cell.stage) +
                           ", which is on the rank of line " +
                           std::to_string(known->second + 1));
      }
    for (auto [stage, group] : groupOf) {
      if (stage != step.stages())
        return makeError(where + ": has stage " + std::to_string(stage) +
                         ", but no stage " + std::to_string(step.stages()));
      step.groupOf.push_back(group);
    }
    return {};
  }

  Expected<void> check(size_t group) const {
    std::set<StepTurn> seen;
    auto fail = [&](const StepTurn &turn, const std::string &what) {
      return makeError(where + ": stage " + std::to_string(turn.stage) + ": " +
                       (turn.part == StepPart::Forward    ? "the forward part"
                        : turn.part == StepPart::Backward ? "the backward part"
                                                          : "the weight part") +
                       " of micro-batch " + std::to_string(turn.microBatch) + " " + what);
    };
    for (const StepTurn &turn : step.turns[group]) {
      if (!seen.insert(turn).second)
        return fail(turn, "is there twice");
      for (StepPart before : {StepPart::Forward, StepPart::Backward})
        if (before < turn.part && !seen.contains({before, turn.microBatch, turn.stage}))
          return fail(turn, "comes before what it reads");
      // Sums over micro-batches are added up in their order.
      if (turn.microBatch > 0 &&
          !seen.contains({turn.part, turn.microBatch - 1, turn.stage}))
        return fail(turn, "comes before that of micro-batch " +
                              std::to_string(turn.microBatch - 1));
    }
    for (int64_t stage = 0; stage < step.stages(); ++stage)
      for (StepPart part : {StepPart::Forward, StepPart::Backward, StepPart::Weight})
        for (int64_t m = 0; m < step.microBatches; ++m)
          if (step.groupOf[static_cast<size_t>(stage)] == static_cast<int64_t>(group) &&
              (step.partsWeights || part != StepPart::Weight) &&
              !seen.contains({part, m, stage}))
            return fail({part, m, stage}, "is missing");
    return {};
  }

  const std::string &where;
  std::vector<std::vector<Cell>> lines;
  PipelineStep step;
};
} // namespace

Expected<PipelineStep> partita::readStepText(const std::string &text,
                                             const std::string &where) {
  return Reader(where).read(text);
}

std::optional<PipelineStep> partita::stepOf(const PlanEntry &plan) {
  auto schedule = stepScheduleOf(plan.schedule);
  auto made = schedule ? makeStep(*schedule, orderOf(plan).groupOf, plan.microBatches)
                       : readStepText(plan.schedule, "plan.json");
  return made ? std::optional(std::move(*made)) : std::nullopt;
}
