//===- Report.cpp - A plan for a person to read ---------------------------===//
#include "passes/Pipelines/Report.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Bundle/StageOrder.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Base/Units.h"
#include "partita/Comm/StepText.h"
#include "partita/Comm/StepTimeline.h"
#include "partita/Report/CallTrace.h"
#include "partita/Report/Cells.h"
#include "partita/Report/StepTrace.h"
#include "passes/Pipelines/Compile.h"
#include "passes/Shard/SearchPlan.h"

#include <algorithm>
#include <filesystem>
#include <map>

using namespace partita;

using report::cell;

static std::string peakText(const PlanPeak &peak) {
  if (peak.kinds.empty())
    return "";
  int64_t all = 0;
  for (const auto &[kind, bytes] : peak.kinds)
    all += bytes;
  std::string text = "of these " + std::to_string(all) + " B last, or are there when '" +
                     peak.node + "' runs, where values take most:\n";
  for (const auto &[kind, bytes] : peak.kinds)
    if (bytes != 0)
      text += "  " + cell(std::to_string(bytes) + " B", 18) + kind + "\n";
  text += "largest in the arena then:\n";
  for (const PlanPeak::Value &value : peak.largest)
    text += "  " + cell(std::to_string(value.bytes) + " B", 18) + cell(value.kind, 14) +
            value.node +
            (value.count > 1 ? ", " + std::to_string(value.count) + " times" : "") + "\n";
  return text;
}

static std::string memoryText(const PlanMemory &memory) {
  auto line = [](const char *what, int64_t bytes) {
    return "  " + cell(std::to_string(bytes) + " B", 18) + what + "\n";
  };
  return "memory per rank:\n" + line("arena", memory.arena) +
         line("weights as stored", memory.weights) +
         line("weights repacked for engines", memory.packed) +
         (memory.states ? line("states", memory.states) +
                              line("  written by a request", memory.stateWrites)
                        : "") +
         (memory.stateMoves ? line("  moved, on average", memory.stateMoves) : "") +
         (memory.regions ? line("io and host memory", memory.regions) : "") +
         line("inputs of a request", memory.inputs) +
         line("outputs of a request", memory.outputs) +
         line("in all, a rank that collects the outputs", memory.rank) +
         line("in all, every rank in one process", memory.process) +
         peakText(memory.peak);
}

/// Repeated layers say the same: the nodes of each op with one strategy, in the order in
/// which the program has the first of them.
struct Group {
  const PlanNode *first;
  std::vector<std::string> nodes;
};

static std::vector<Group> strategiesOf(const PlanStage &stage) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const PlanNode &node : stage.nodes) {
    auto [place, added] = known.try_emplace({node.op, node.strategy}, groups.size());
    if (added)
      groups.push_back({&node, {}});
    groups[place->second].nodes.push_back(node.name);
  }
  return groups;
}

/// ", ranks 2 to 3", of a stage of a pipeline.
static std::string ranksText(const PlanStage &stage) {
  if (stage.ranks.empty())
    return "";
  std::string first = std::to_string(stage.ranks.front());
  return stage.ranks.size() == 1
             ? ", rank " + first
             : ", ranks " + first + " to " + std::to_string(stage.ranks.back());
}

/// ", of dim 0 the first 'y#0'", of an output whose size is data.
static std::string sizesText(const PlanTensor &tensor) {
  std::string text;
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (!tensor.sizes[d].empty())
      text += ", of dim " + std::to_string(d) + " the first '" + tensor.sizes[d] + "'";
  return text;
}

/// Whether a result is the size of another.
static bool isSize(const PlanStage &stage, const PlanTensor &tensor) {
  return std::ranges::any_of(stage.results, [&](const PlanTensor &other) {
    return std::ranges::find(other.sizes, tensor.name) != other.sizes.end();
  });
}

static std::string stageText(const PlanStage &stage, bool inFull) {
  std::string text = "mesh " + (stage.mesh.empty() ? "of one rank" : stage.mesh) +
                     ranksText(stage) + "\n";
  for (const PlanTensor &tensor : stage.arguments)
    text += (tensor.state.empty() ? "  input  " : "  state  ") + cell(tensor.name, 28) +
            tensor.layout + "\n";
  for (const PlanTensor &tensor : stage.results)
    if (tensor.state.empty())
      text += (isSize(stage, tensor) ? "  size   " : "  output ") +
              cell(tensor.name, 28) + tensor.layout + sizesText(tensor) + "\n";
  text += "strategies, in program order (loops that are split, by name, with their axes; "
          "pass: partial values go through):\n";
  for (const Group &group : strategiesOf(stage))
    text += "  " + cell(std::to_string(group.nodes.size()) + " ×", 7) +
            cell(group.first->op, 18) + cell(group.first->strategy, 44) + "first '" +
            group.nodes[0] + "'\n";
  text += summaryText(stage.collectives, inFull);
  if (stage.work)
    text += workText(*stage.work);
  return stage.memory ? text + memoryText(*stage.memory) : text;
}

/// "stage 0", or "group 1 (stages 1, 3)".
static std::string groupName(const StageOrder &order, int64_t group) {
  std::string stages;
  for (size_t s = 0; s < order.groupOf.size(); ++s)
    if (order.groupOf[s] == group)
      stages += (stages.empty() ? "" : ", ") + std::to_string(s);
  return stages.find(',') == std::string::npos
             ? "stage " + stages
             : "group " + std::to_string(group) + " (stages " + stages + ")";
}

/// Draws which part of which micro-batch each group runs when, if a forward part takes
/// one unit, and the backward part two, or one and the gradients of weights one.
static std::string stepChart(const PlanEntry &plan, const PipelineStep &shape) {
  const StepTimeline line = simulate(shape, {StepTimes()});
  double busy = 0;
  for (double stage : line.busy)
    busy += stage;
  std::string text =
      "pipeline of " + std::to_string(shape.stages()) + " stages" +
      (shape.groups() < shape.stages()
           ? " on " + std::to_string(shape.groups()) + " groups of ranks"
           : "") +
      ", " + std::to_string(plan.microBatches) +
      (plan.microBatches == 1 ? " micro-batch, " : " micro-batches, ") +
      (shape.schedule.empty() ? "an order that was given" : shape.schedule) +
      formatted("; idle: %.0f%% if all stages take as long\n",
                100 * (1 - busy / (line.seconds * static_cast<double>(shape.groups()))));
  constexpr double widest = 48;
  const bool isDealt = shape.groups() < shape.stages();
  for (size_t s = 0; s < line.spans.size() && line.seconds <= widest; ++s) {
    std::vector<std::string> cells(static_cast<size_t>(line.seconds + 0.5), ".");
    for (const StepTimeline::Span &span : line.spans[s])
      for (auto t = static_cast<size_t>(span.begin + 0.5);
           static_cast<double>(t) < span.end; ++t)
        cells[t] = (isDealt ? std::to_string(span.turn.stage) : "") +
                   std::string("FBW").substr(static_cast<size_t>(span.turn.part), 1) +
                   std::to_string(span.turn.microBatch);
    text +=
        "  " + cell(groupName(orderOf(plan), static_cast<int64_t>(s)), isDealt ? 24 : 10);
    for (const std::string &it : cells)
      text += cell(it, isDealt ? 5 : 4);
    text += "\n";
  }
  return text;
}

/// When each group of ranks runs which micro-batch, if all stages take as long: a text
/// Gantt with a line per group. Where a group has several stages, a cell is
/// stage:micro-batch.
static std::string pipelineText(const PlanEntry &plan) {
  if (auto step = stepOf(plan))
    return stepChart(plan, *step);
  StageOrder order = orderOf(plan);
  auto begins = beginsOf(order);
  auto stages = static_cast<int64_t>(plan.stages.size());
  int64_t groups = order.numGroups(), length = 0;
  for (const auto &ofStage : begins)
    length = std::max(length, ofStage.back() + 1);
  const double all = static_cast<double>(groups * length);
  std::string text =
      "pipeline of " + std::to_string(stages) + " stages" +
      (groups < stages ? " on " + std::to_string(groups) +
                             (groups == 1 ? " group" : " groups") + " of ranks"
                       : "") +
      ", " + std::to_string(plan.microBatches) +
      (plan.microBatches == 1 ? " micro-batch" : " micro-batches") +
      formatted("; idle: %.0f%% if all stages take as long\n",
                100 * (1 - static_cast<double>(stages * plan.microBatches) / all));
  constexpr int64_t widest = 24;
  for (int64_t g = 0; g < groups && length <= widest; ++g) {
    std::vector<std::string> cells(static_cast<size_t>(length), ".");
    for (StageTurn turn : turnsOf(order, g)) {
      auto s = static_cast<size_t>(turn.stage), m = static_cast<size_t>(turn.microBatch);
      cells[static_cast<size_t>(begins[s][m])] =
          (groups < stages ? std::to_string(s) + ":" : "") + std::to_string(m);
    }
    text += "  " + cell(groupName(order, g), groups < stages ? 24 : 10);
    for (const std::string &it : cells)
      text += cell(it, groups < stages ? 6 : 3);
    text += "\n";
  }
  return text;
}

static Expected<Plan> planOf(const std::string &path, const std::string &entry) {
  std::error_code unreadable;
  bool isBundle = std::filesystem::is_directory(path, unreadable);
  if (!isBundle && path.ends_with(".onnx"))
    return makeError("'" + path + "' is a model; expected a bundle or its plan.json (" +
                     "`partita inspect` shows models)");
  auto file = isBundle ? planFile(path, entry) : Expected<std::string>(path);
  return file.and_then(readAnyPlan).and_then([&](const Plan &all) {
    return all.of(entry);
  });
}

/// Of a bundle of several: which there are.
static std::string entriesText(const std::string &path) {
  std::error_code unreadable;
  auto bundle = std::filesystem::is_directory(path, unreadable)
                    ? readBundle(path)
                    : Expected<Bundle>(Bundle());
  if (!bundle || bundle->entries.size() < 2)
    return "";
  std::string text;
  for (const BundleEntry &entry : bundle->entries)
    text += (text.empty() ? "entries: '" : ", '") + entry.name + "'";
  return text + "; this is the first, --entry shows another\n";
}

/// Figures that a search expected of a step; empty: there was none.
static std::string expectedText(const PlanEntry &plan) {
  if (!plan.certificate || plan.certificate->stepSeconds <= 0)
    return "";
  const PlanCertificate &known = *plan.certificate;
  std::string rates = ratesText(known.rates);
  std::string text = "expected step: " + durationText(known.stepSeconds) +
                     (rates.empty() ? "" : ", " + rates) + "\n";
  if (known.requestSeconds)
    text += "expected request: " + durationText(*known.requestSeconds) + "\n";
  if (const auto &reserve = known.memoryReserve)
    text +=
        "of the device's memory " +
        reserveText(reserve->context, reserve->communicators, reserve->fragmentation) +
        "\n";
  return text;
}

/// "computes in bf16, in f32: fc1, fc2"; empty: in f32. Then the accuracy level, if
/// stated.
static std::string computeText(const PlanFacts &facts) {
  const std::string level = facts.accuracyLevel
                                ? "products with weights of 4 bits at accuracy level " +
                                      std::to_string(*facts.accuracyLevel) + "\n"
                                : "";
  if (facts.compute == PlanFacts().compute)
    return level;
  std::string text = "computes in " + facts.compute;
  for (const std::string &node : facts.keepF32)
    text += (&node == &facts.keepF32.front() ? ", in f32: " : ", ") + node;
  return text + "\n" + level;
}

Expected<std::string> partita::reportText(const std::string &path,
                                          const std::string &name, bool inFull) {
  auto plan = planOf(path, name);
  if (!plan)
    return tl::unexpected(plan.error());
  const PlanEntry &entry = plan->entry();
  std::string text = (name.empty() ? entriesText(path) : "") + "model " + plan->model +
                     ", mode " + entry.mode +
                     (entry.hints.empty() ? "" : ", hints " + entry.hints) + "\n" +
                     computeText(entry);
  for (const std::string &note : entry.notes)
    text += "note: " + note + "\n";
  if (std::string known = nameOf(entry); !known.empty())
    text += "parallelism: " + known + "\n";
  text += expectedText(entry);
  if (entry.accumulation)
    text += "accumulation: chosen, " + std::to_string(*entry.accumulation) +
            (*entry.accumulation == 1 ? " micro-batch\n" : " micro-batches\n");
  if (entry.stages.size() == 1)
    return text + stageText(entry.stages[0], inFull);
  text += pipelineText(entry);
  for (size_t s = 0; s < entry.stages.size(); ++s)
    text += "stage " + std::to_string(s) + ": " + stageText(entry.stages[s], inFull);
  return text;
}

Expected<std::string> partita::reportTrace(const std::string &path,
                                           const std::string &name,
                                           const std::string &trace, double least) {
  auto plan = planOf(path, name);
  if (!plan)
    return tl::unexpected(plan.error());
  if (auto step = stepOf(plan->entry())) {
    if (least > 0)
      return makeError("--slower-calls: '" + path +
                       "' is a step of several stages, "
                       "which wait for each other");
    return report::stepTraceText(plan->entry(), *step, trace);
  }
  if (plan->entry().stages.size() > 1)
    return makeError("--trace: '" + path + "' is a pipeline that does not train");
  auto mesh = Mesh::parse(plan->entry().stages[0].mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  return report::callTraceText(trace, mesh->numRanks(), least);
}

static void writeTensors(JsonWriter &out, const char *key,
                         const std::vector<PlanTensor> &tensors) {
  out.key(key);
  out.beginArray();
  for (const PlanTensor &tensor : tensors) {
    out.beginObject();
    out.member("name", std::string_view(tensor.name));
    out.member("layout", std::string_view(tensor.layout));
    if (!tensor.state.empty())
      out.member("state", std::string_view(tensor.state));
    if (!tensor.sizes.empty())
      out.member("sizes", std::span<const std::string>(tensor.sizes));
    out.endObject();
  }
  out.endArray();
}

static void writeWork(JsonWriter &out, const PlanWork &work) {
  out.key("work");
  out.beginObject();
  out.member("operations", work.total);
  out.member("most_per_rank", work.mostPerRank);
  out.member("mean_per_rank", work.meanPerRank);
  out.member("duplicated", work.duplicated);
  out.key("unused");
  out.beginObject();
  for (const PlanWork::Axis &axis : work.axes)
    out.member(axis.name, axis.unused);
  out.endObject();
  out.key("only_padding");
  out.beginObject();
  for (const PlanWork::Axis &axis : work.axes)
    out.member(axis.name, axis.onlyPadding);
  out.endObject();
  out.endObject();
}

static void writeStage(JsonWriter &out, const PlanStage &stage) {
  out.beginObject();
  out.member("mesh", std::string_view(stage.mesh));
  if (!stage.name.empty())
    out.member("parallelism", std::string_view(stage.name));
  if (!stage.ranks.empty())
    out.member("ranks", std::span(stage.ranks));
  writeTensors(out, "inputs", stage.arguments);
  writeTensors(out, "outputs", stage.results);
  out.key("strategies");
  out.beginArray();
  for (const Group &group : strategiesOf(stage)) {
    out.beginObject();
    out.member("op", std::string_view(group.first->op));
    out.member("strategy", std::string_view(group.first->strategy));
    out.member("count", static_cast<int64_t>(group.nodes.size()));
    out.member("first", std::string_view(group.nodes[0]));
    out.member("nodes", std::span<const std::string>(group.nodes));
    out.endObject();
  }
  out.endArray();
  out.key("collectives");
  out.beginArray();
  for (const PlanCollective &c : stage.collectives) {
    out.beginObject();
    out.member("op", std::string_view(c.op));
    out.member("axes", std::string_view(c.axes));
    out.member("node", std::string_view(c.node));
    out.member("bytes", c.bytes);
    out.member("times", c.times);
    out.endObject();
  }
  out.endArray();
  out.member("received_bytes", communicationOf(stage.collectives).receivedBytes);
  if (stage.work)
    writeWork(out, *stage.work);
  if (stage.memory)
    writeMemory(out, *stage.memory);
  out.endObject();
}

Expected<std::string> partita::reportJson(const std::string &path,
                                          const std::string &name) {
  auto plan = planOf(path, name);
  if (!plan)
    return tl::unexpected(plan.error());
  const PlanEntry &entry = plan->entry();
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("model", std::string_view(plan->model));
  out.member("mode", std::string_view(entry.mode));
  if (!entry.hints.empty())
    out.member("hints", std::string_view(entry.hints));
  out.member("compute", std::string_view(entry.compute));
  if (std::string known = nameOf(entry); !known.empty())
    out.member("parallelism", std::string_view(known));
  if (entry.certificate) {
    out.key("expected");
    out.beginObject();
    out.member("step_seconds", entry.certificate->stepSeconds);
    if (entry.certificate->requestSeconds)
      out.member("request_seconds", *entry.certificate->requestSeconds);
    writeRates(out, entry.certificate->rates);
    out.endObject();
  }
  out.member("notes", std::span<const std::string>(entry.notes));
  if (entry.microBatches != 1)
    out.member("micro_batches", entry.microBatches);
  if (entry.accumulation)
    out.member("accumulation", *entry.accumulation);
  out.key("stages");
  out.beginArray();
  for (const PlanStage &stage : entry.stages)
    writeStage(out, stage);
  out.endArray();
  out.endObject();
  return out.take() + "\n";
}
