//===- StepText.h - Schedules as torch.distributed writes them --*- C++ -*-===//
//
// The "compute_only" text of torch.distributed.pipelining: a line per rank, cells between
// commas, each a stage, a kind and a micro-batch: F forward, B backward with gradients of
// weights, I backward without them, W gradients of weights. An empty cell is a pause,
// which has no meaning here: a part begins when what it waits for is there.
//
//   0F0,0F1,,0B0,0B1
//   ,1F0,1B0,1F1,1B1
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_STEPTEXT_H
#define PARTITA_COMM_STEPTEXT_H

#include "partita/Base/Error.h"
#include "partita/Comm/StepOrder.h"

#include <string>

namespace partita {

/// A line per rank, a cell per turn.
std::string stepText(const PipelineStep &step);

/// The inverse; a stage lies on the rank whose line has it. `where` names the text in
/// messages. An error names line and cell of what is no cell, a line without stages or
/// with those of another rank, stages and parts that are missing, twice there or in an
/// order in which a rank cannot run them: before what they read, or not by ascending
/// micro-batch.
Expected<PipelineStep> readStepText(const std::string &text, const std::string &where);

struct PlanEntry;
/// The schedule of a plan of a training step of several stages; nullopt: it is another.
std::optional<PipelineStep> stepOf(const PlanEntry &plan);

} // namespace partita

#endif // PARTITA_COMM_STEPTEXT_H
