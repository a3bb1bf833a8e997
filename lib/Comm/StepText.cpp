//===- StepText.cpp - Schedules as torch.distributed writes them ----------===//
#include "partita/Comm/StepText.h"

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Bundle/StageOrder.h"

#include <algorithm>
#include <charconv>
#include <set>

using namespace partita;

std::string partita::stepText(const PipelineStep &step) {
  std::string text;
  for (int64_t g = 0; g < step.groups; ++g) {
    std::string line;
    for (const StepTurn &turn : turnsOf(step, g)) {
      const char kind = turn.part == StepPart::Forward  ? 'F'
                        : turn.part == StepPart::Weight ? 'W'
                        : step.partsWeights()           ? 'I'
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
    step.groups = static_cast<int64_t>(lines.size());
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
    bool parts = false;
    for (const auto &cells : lines)
      for (const Cell &cell : cells) {
        parts |= cell.kind == 'I' || cell.kind == 'W';
        step.microBatches = std::max(step.microBatches, cell.microBatch + 1);
        step.stages = std::max(step.stages, cell.stage + 1);
      }
    step.given.resize(lines.size());
    for (size_t g = 0; g < lines.size(); ++g) {
      auto &turns = step.given[g];
      for (const Cell &cell : lines[g]) {
        if (cell.stage % step.groups != static_cast<int64_t>(g))
          return makeError(where + ": line " + std::to_string(g + 1) + " has stage " +
                           std::to_string(cell.stage) + ": stages are dealt to the " +
                           std::to_string(lines.size()) + " ranks in turn");
        const StepPart part = cell.kind == 'F'   ? StepPart::Forward
                              : cell.kind == 'W' ? StepPart::Weight
                                                 : StepPart::Backward;
        turns.push_back({part, cell.microBatch, cell.stage});
        if (parts && cell.kind == 'B')
          turns.push_back({StepPart::Weight, cell.microBatch, cell.stage});
      }
      if (auto ok = check(g, parts); !ok)
        return tl::unexpected(ok.error());
    }
    return std::move(step);
  }

  Expected<void> check(size_t group, bool parts) const {
    std::set<StepTurn> seen;
    auto fail = [&](const StepTurn &turn, const std::string &what) {
      return makeError(where + ": stage " + std::to_string(turn.stage) + ": " +
                       (turn.part == StepPart::Forward    ? "the forward part"
                        : turn.part == StepPart::Backward ? "the backward part"
                                                          : "the weight part") +
                       " of micro-batch " + std::to_string(turn.microBatch) + " " + what);
    };
    for (const StepTurn &turn : step.given[group]) {
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
    for (auto stage = static_cast<int64_t>(group); stage < step.stages;
         stage += step.groups)
      for (StepPart part : {StepPart::Forward, StepPart::Backward, StepPart::Weight})
        for (int64_t m = 0; m < step.microBatches; ++m)
          if ((parts || part != StepPart::Weight) && !seen.contains({part, m, stage}))
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
  if (auto schedule = stepScheduleOf(plan.schedule))
    return PipelineStep{*schedule, static_cast<int64_t>(plan.stages.size()),
                        plan.microBatches, orderOf(plan).numGroups()};
  auto given = readStepText(plan.schedule, "plan.json");
  return given ? std::optional(std::move(*given)) : std::nullopt;
}
