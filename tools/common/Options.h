//===- Options.h - The options of commands, whoever gives them --*- C++ -*-===//
//
// The command line and JSON requests (docs/requests.md) have the same options. An option
// has its name, its words or range, and the one reader of its text here; a Set is who has
// the values: CommandOptions or the members of a request. It has
//   text(name, read, help)             a text, for `read`
//   texts(name, plural, read, help)    several; a request has a list of them, `plural`
//   repeated(name, read, help)         one or several; a request has a text or a list
//   flag(name, bool, help)             "no-x" is false for x, as is "x": false
//   word(name, words, set, help)       one of `words`, whose place is for `set`; the
//   first
//                                      is the default
//   range(name, number, low, high, help)
// and keeps the first error of a reader. In a request "dump-dir" is "dump_dir".
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMMON_OPTIONS_H
#define PARTITA_TOOLS_COMMON_OPTIONS_H

#include "passes/Pipelines/Inspect.h"
#include "passes/Pipelines/PlanModel.h"
#include "passes/Pipelines/Verify.h"

#include <limits>

namespace partita {

inline Expected<std::string> asIs(const std::string &text) { return text; }

/// A reader that puts what `parse` makes of a text into `to`.
template <typename To, typename Parse = decltype(&asIs)>
auto into(To &to, Parse parse = &asIs) {
  return [&to, parse](const std::string &text) {
    return parse(text).map([&](auto value) { to = std::move(value); });
  };
}
/// The same, behind what is there already.
template <typename T, typename Parse = decltype(&asIs)>
auto append(std::vector<T> &list, Parse parse = &asIs) {
  return [&list, parse](const std::string &text) {
    return parse(text).map([&](T value) { list.push_back(std::move(value)); });
  };
}

/// Shapes and constants.
template <typename Set> void addBindings(Set &set, ModelSource &model) {
  set.texts("shape", "shapes", append(model.shapes, onnx_model::parseShapeBinding),
            "NAME=1,128: shape of an input, or extent of a symbolic dim; several "
            "times for one name: an entry for each (docs/entries.md)");
  set.texts("const", "constants", append(model.constants, onnx_model::readConstBinding),
            "NAME=FILE: fix an input to the value in a .npy or .pb file; the "
            "program then has no such input");
}

/// The mesh of a command that takes one.
template <typename Set> void addMesh(Set &set, Request &request) {
  set.text(
      "mesh", into(request.meshes, readMeshes),
      "Named axes and their sizes, e.g. dp=2,tp=4 (default: one rank; of plan, every "
      "mesh of the cluster is tried)");
}

/// The meshes of a bundle's worlds.
template <typename Set> void addWorlds(Set &set, Request &request) {
  set.repeated(
      "mesh",
      [&request](const std::string &text) -> Expected<void> {
        if (text.empty())
          return makeError("a mesh is empty; one rank is the mesh r=1");
        return readMeshes(text).map([&](std::vector<Mesh> meshes) {
          if (request.meshes.empty())
            request.meshes = std::move(meshes);
          else
            request.worlds.push_back(std::move(meshes));
        });
      },
      "Named axes and their sizes, e.g. dp=2,tp=4 (default: one rank); given several "
      "times, a world of the bundle for each (docs/elastic.md)");
}

/// Options that compile, plan and verify have in common beside the mesh.
template <typename Set> void addPlanning(Set &set, Request &request) {
  set.text(
      "hints", into(request.hints, readHints),
      "Hints file (docs/hints.md), or a rule that finds the model's blocks: "
      "megatron[:axis], megatron-sp[:axis], megatron-ep[:axis], fsdp; mode auto then "
      "spreads them and does not search");
  Machine &machine = request.machine;
  set.text(
      "cluster", [&](const std::string &file) { return machine.readCluster(file); },
      "Cluster file (docs/topology.md) for mode auto; default: this host's cores, a "
      "level of shared memory per mesh axis");
  set.text(
      "memory", [&](const std::string &text) { return machine.readMemory(text); },
      "Bytes that a device may use in mode auto, exactly, e.g. 16GiB (default: those of "
      "the cluster file's device, less what its preset keeps)");
  set.text("train", into(request.train, readTraining),
           "The training step of the model that this file describes: loss, optimizer, "
           "what trains (JSON, docs/training.md)");
  set.word(
      "compute", {computeNames.begin(), computeNames.end()},
      into(request.compute,
           [](const std::string &word) {
             return Expected<Compute>(*computeFromName(word));
           }),
      "The type that an f32 model computes in: bf16 and f16 take half of the memory, "
      "with fewer digits (docs/precision.md); tf32 is for GPUs");
  set.texts("keep-f32", "keep_f32", append(request.keepF32),
            "NODE or glob: nodes that compute in f32 under --compute");
  set.range("accuracy-level", request.accuracyLevel, 0, 4,
            "How exact products with weights of 4 bits are, in place of what the model "
            "says: 4 permits rows of 8 bits, others compute in f32 (docs/few-bits.md)");
  set.flag("no-all-to-all", request.allToAll,
           "Reshard by slices, gathers and reductions only");
  addBindings(set, request.model);
}

/// What compile and verify have in common.
template <typename Set> void addModel(Set &set, Request &request) {
  addPlanning(set, request);
  set.word(
      "mode", {"auto", "data-parallel", "semi-auto", "manual"},
      into(request.mode,
           [](const std::string &word) {
             return Expected<ShardMode>(*shardModeFromName(word));
           }),
      "auto: search the fastest plan, or with hints spread them; data-parallel: "
      "split the batch; semi-auto: split what hints ask for, and no more; manual: the "
      "graph is written per rank, with nodes that say what ranks exchange "
      "(docs/manual.md)");
  set.text("plan", into(request.plan, readPlan),
           "Use the strategies of this plan.json instead of deciding");
  set.flag(
      "hierarchical", request.hierarchical,
      "Collectives over several levels of the cluster work within a unit, as a host, "
      "and then across units, where that is predicted to be faster");
}

/// Stages of a pipeline.
template <typename Set> void addCut(Set &set, Cut &cut) {
  set.range("stages", cut.stages, 1, 1024,
            "Cut the model into this many stages of a pipeline (docs/stages.md); --mesh "
            "holds for every stage, or lists one each: \"tp=2;tp=1\"");
  set.range("groups", cut.groups, 1, 1024,
            "Deal the stages in turn to this many groups of ranks, each with a mesh of "
            "--mesh (default: a group for each stage)");
  set.text(
      "schedule", [&cut](const std::string &text) { return readSchedule(text, cut); },
      "Order in which ranks run several stages. interleaved: the next stage for a "
      "few micro-batches; gpipe: all micro-batches of a stage. With --train: 1f1b "
      "(default), interleaved (--groups), gpipe; zb-h1, zb-h2, zb-auto:ROOM, which put "
      "gradients of weights off; zb-v, v-half, v-min, two stages on each group; or "
      "FILE.csv in the form of torch.distributed.pipelining "
      "(docs/training-pipelines.md)");
  set.range("micro-batches", cut.microBatches, 1, 65536,
            "Slices of the batch that go through the stages one after the other");
}

template <typename Set> void addCompile(Set &set, Request &request) {
  addWorlds(set, request);
  addModel(set, request);
  addCut(set, request.cut);
  set.texts("state", "states", append(request.model.states),
            "INPUT=OUTPUT: a request's output is the input of the next one, and stays in "
            "place; a star means the same text on both sides: 'past.*=present.*' "
            "(repeatable; docs/state.md)");
  set.flag("force", request.emission.force,
           "Replace a bundle of that name, in one step, when the new one is done");
  set.text("write-hints", into(request.told.hints),
           "Write the hints to this file, including those that a rule has found");
  set.text("dump-dir", into(request.levels.dump),
           "Write the IR of every level into this folder");
  set.flag(
      "copy-weights", request.emission.copyWeights,
      "Copy the model's external data into the bundle, which then needs nothing else "
      "(docs/bundle-format.md)");
  set.flag("hash-weights", request.emission.hashWeights,
           "Hash all of the model's external data, not a sample, and compare it with the "
           "checksums that the model states");
  set.range("comm-in-flight", request.commInFlight, 0, Request::mostInFlight,
            "Collectives of a training step that may be in flight where another starts "
            "(docs/communication.md); 0: each is waited for where it starts");
  set.range("comm-reuse", request.commReuse, 0, Request::mostReuse,
            "Most distinct communication calls of a program, and most groups of ranks "
            "(docs/communication.md); 0: any number");
  set.word("target", {"cpu", "plain"}, into(request.target.name),
           "cpu: with oneDNN; plain: loops only, slow, for reference");
  set.text("target-cpu", into(request.target.cpu),
           "LLVM name of the CPU (default: this one)");
  set.range("threads", request.target.threads, 0, 1024,
            "Threads per rank; 0: this machine's cores divided by the ranks");
}

template <typename Set> void addPlan(Set &set, PlanOptions &options) {
  set.text("output", into(options.output), "Write the plan to this file");
  set.text("as-hints", into(options.hintsOutput),
           "Write the shortest hints that lead to the plan to this file");
  set.text("report", into(options.report),
           "Write an HTML page about the plan to this file");
  set.range("axes", options.mostAxes, 1, 4, "Axes of the meshes that are tried");
  set.range("time-limit", options.timeLimit, 0.001, 1e6, "Seconds of solving per mesh");
  set.range("work", options.workLimit, 1, 1'000'000'000'000,
            "Instead of seconds so much work of the solver per mesh (a second is 10,000 "
            "to 500,000): every machine then has the same plan");
  set.range("threads", options.threads, 1, 64, "Threads of the solver");
  set.flag(
      "overlap", options.overlap,
      "Choose the plan that would be the fastest if collectives were in flight while "
      "kernels run (simulated; the runtime takes turns)");
  set.flag("price", options.price,
           "Search nothing: price the plan that --hints lead to on --mesh, with batches "
           "over the axes that they leave (as --mode data-parallel), and with the "
           "micro-batches, recompute and optimizer_parallel that --train states");
}

template <typename Set> void addInspect(Set &set, InspectOptions &options) {
  addBindings(set, options.model);
  set.text(
      "nodes", into(options.nodes),
      "List the nodes whose name or module path matches this pattern (default: all), "
      "as hints see them: shapes, and the loops that can be split");
  set.text("weights", into(options.weights),
           "List the weights whose name or module path matches this pattern (default: "
           "all)");
}

template <typename Set> void addVerifyBundle(Set &set, VerifyOptions &options) {
  set.text("model", into(options.model), "The model of the bundle, if it has moved");
  set.text("entry", into(options.entry),
           "Which entry point of the bundle (default: the first)");
}

template <typename Set> void addVerifyModel(Set &set, VerifyOptions &options) {
  set.range("steps", options.steps, 1, 1'000'000,
            "Requests behind one another, each on the states that the one before left");
  set.flag("f64", options.wide,
           "Compare with every float type as f64: what differs then is no rounding of "
           "narrower types");
}

/// Of a bundle and of a model.
template <typename Set> void addVerify(Set &set, VerifyOptions &options, bool &strict) {
  set.text("inputs-dir", into(options.inputs),
           "Folder with input_K.pb (default: random inputs: indices over their whole "
           "range, masks of 0 and 1)");
  set.text("expect-dir", into(options.expected),
           "Folder with output_K.pb that the model must give for these inputs");
  set.flag("strict", strict,
           "Exit with status 1 where an output had no elements to compare");
  set.range("rtol", options.rtol, 0, std::numeric_limits<double>::infinity(),
            "Relative tolerance");
  set.range(
      "whole-within", options.wholeWithin, 0, 1e9,
      "Seconds. A model that takes longer to evaluate is compared with itself as one "
      "rank of target 'plain', and nodes that are drawn are evaluated");
  set.range("seed", options.seed, 0, std::numeric_limits<int64_t>::max(),
            "Seed by which these nodes are drawn");
  set.range("atol", options.atol, 0, std::numeric_limits<double>::infinity(),
            "Absolute tolerance");
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_OPTIONS_H
