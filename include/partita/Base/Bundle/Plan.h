//===- Plan.h - Everything that was decided, as a file ----------*- C++ -*-===//
//
// plan.json says how a model is spread: per entry and stage the mesh, the strategy of
// every op, the conversions of every value, and the layouts of arguments and results. It
// is written into every bundle, read by reports and by verification, and accepted by a
// later compile (`--plan FILE`) instead of deciding anew. All of it is said by the L2
// modules of the program.
//
// In the file, ops that are planned alike stand together, and so do values and
// collectives that are alike: the layers of a model are lists of names.
//
//   {"op": "graph.contract", "strategy": "{b: tp}",
//    "names": ["h.0.fc", "h.1.fc", ["h.1.fc", 2]]}
//
// A node may be several ops of one kind: ["h.1.fc", 2] is the second in program order.
// Values of one name are counted likewise.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_PLAN_H
#define PARTITA_BASE_BUNDLE_PLAN_H

#include "partita/Base/Error.h"
#include "partita/Base/Phase.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita {

class JsonWriter;

/// Of plan.json; raised when an older reader could misread a newer file.
inline constexpr int64_t planFormat = 3;

struct PlanNode {
  std::string name;     ///< the ONNX node it came from
  std::string op;       ///< e.g. "graph.contract"
  std::string strategy; ///< Strategy::str
  Phase phase = Phase::Forward;
  bool isRepeated = false; ///< for the backward pass (dist.recompute)
};
/// How the users of a value are served (servedText). One that is not there has no
/// conversions, or as a weight is read as each user wants it; in a plan without any
/// values all are served the usual way.
struct PlanValue {
  std::string name;
  int64_t number = 1; ///< among the values of this name, in program order, from 1
  std::string served;
};
struct PlanTensor {
  std::string name, layout; ///< Layout::str
  std::string state = {};   ///< the state that comes or goes by it; empty: none
  /// Of a result whose size is data, per dim the result that is its size, or "".
  std::vector<std::string> sizes = {};
};
struct PlanCollective {
  std::string op, axes, node;
  int64_t bytes = 0; ///< that one rank receives each time, at most
  /// Runs of the collective in a run of the program: the trips of the loops around the
  /// collective times the micro-batches of a pipeline. A branch counts as if it were
  /// always taken.
  int64_t times = 1;
};

/// Communication of one run, on the rank with most of it. `run --profile` counts the
/// same, but for branches that are not taken and loops that end early.
struct PlanCommunication {
  int64_t collectives = 0, receivedBytes = 0;
};
PlanCommunication communicationOf(const std::vector<PlanCollective> &collectives);

/// "h.*.fc" of "h.12.fc" and "h.3.fc": the first number of a name, which counts layers,
/// is a star. Others tell places in a layer apart: "h.*.residual_1".
std::string layerClass(const std::string &name);

/// The layer of a parameter or node, as modules are named: "h.3" of "h.3.attn.weight",
/// "layer1.0" of "layer1.0.conv1.weight", "conv1" of "conv1.weight". Its number is a part
/// of its own, or ends the first part that a number ends.
std::string layerOf(const std::string &name);

/// What a rank's memory holds when the values of the arena take most. Kinds are those of
/// Cost/Memory.h; "unused" is what the arena has besides its values. Together they are
/// the arena, weights, packed weights, states and regions of PlanMemory.
struct PlanPeak {
  std::string node; ///< that runs then
  std::vector<std::pair<std::string, int64_t>> kinds;
  struct Value {
    std::string node, kind; ///< the class of nodes that make it, see layerClass
    int64_t bytes = 0;      ///< of all `count`
    int64_t count = 1;
  };
  std::vector<Value> largest; ///< of the arena, largest first
};

/// Bytes that a stage has in memory while requests run: of one rank, and of a process.
/// What the runtime itself takes (its code, stacks, the transport) comes on top.
struct PlanMemory {
  int64_t arena = 0;
  int64_t weights = 0; ///< those that some task reads as they are stored
  int64_t packed = 0;  ///< weights in the form an engine wants, instead of the stored one
  int64_t inputs = 0, outputs = 0; ///< whole tensors, held by the caller of a request
  int64_t states = 0;              ///< what lasts from one request to the next
  /// Bytes that a request writes into states; bytes of windows that roll which move to
  /// the front of their places, on average. They take no memory.
  int64_t stateWrites = 0, stateMoves = 0;
  int64_t regions = 0; ///< io and host memory
  /// What reductions between processes collect the others' parts in; threads have none.
  int64_t transport = 0;
  /// A process of its own, at most: arena, weights, packed, inputs, states, regions,
  /// transport; of the
  /// first rank, which collects the outputs, those too and room for the largest part of
  /// one.
  int64_t rank = 0;
  /// All ranks as threads of one process, where ranks share packed weights and mapped
  /// files as far as they hold the same elements.
  int64_t process = 0;
  PlanPeak peak = {};
};

/// What a search knows of its plan. Seconds of one run of the program, predicted.
struct PlanCertificate {
  double stepSeconds = 0;
  /// Seconds of a request, its tasks and what the runtime adds (Cost/Request.h); absent
  /// where the cluster says nothing of the runtime.
  std::optional<double> requestSeconds = {};
  /// No plan takes less that does what `within` says; it would be higher if it did not
  /// ignore what `ignores` says. In words (Search/Bound.h).
  struct Bound {
    double seconds = 0;
    std::vector<std::string> within = {}, ignores = {};
  };
  Bound bound = {};
  double gap = 0;      ///< (step − bound) / step; 0 if the step is faster than the bound
  bool proved = false; ///< the step takes as long as the bound
  /// Makes gap and `proved` those of the step and a bound.
  void setBound(Bound of);
  int64_t memoryPerDevice = 0;
  std::optional<int64_t> memoryLimit;
  int64_t communicationBytes = 0; ///< that one rank receives
  /// What the plan would take, and any plan at least, were collectives in flight while
  /// kernels run; absent where nobody asked.
  struct Overlapped {
    double seconds = 0, lowerBoundSeconds = 0;
  };
  std::optional<Overlapped> overlapped;
  /// Bytes of the device's memory above the limit: see MemoryReserve of Topology.h.
  struct Reserve {
    int64_t context = 0, communicators = 0, fragmentation = 0;
    int64_t total() const { return context + communicators + fragmentation; }
  };
  std::optional<Reserve> memoryReserve;
  /// In the step's seconds; 0: not known. See Search/Throughput.h.
  struct Rates {
    double flopsPerDevice = 0, utilization = 0, samples = 0, tokens = 0;
  };
  Rates rates = {};
  /// Absent in bundles: the same compile writes the same bytes.
  std::optional<double> searchSeconds;
  /// Devices for which it was priced, and how they are joined, from inside out.
  struct Level {
    std::string name;
    int64_t size = 1;
  };
  std::string device = {};
  std::vector<Level> levels = {};
};

/// What the backward pass of a training step computes again, as it was chosen under a
/// memory limit.
struct PlanRecompute {
  std::vector<std::vector<std::string>> nodes; ///< of the model, by stretch
  /// What the nodes make is computed again whatever reads it; else what is read outside
  /// of a stretch is kept.
  bool exactly = false;
  double seconds = 0;     ///< that a step takes longer, predicted
  int64_t savedBytes = 0; ///< at the peak of a device, predicted
};

/// How the operations of a stage are spread (Rule/Decide/Work.h).
struct PlanWork {
  double total = 0, mostPerRank = 0, meanPerRank = 0; ///< operations of one run
  double duplicated = 0; ///< share of what ranks compute that another computes too
  struct Axis {
    std::string name;
    double unused = 0, onlyPadding = 0; ///< shares of the total
  };
  std::vector<Axis> axes;
};

/// A function that an op of the program runs, a loop's body: the layouts of its ends,
/// which are those of what goes into the op and comes out of it.
struct PlanFunction {
  std::string name;
  std::vector<std::string> arguments, results; ///< Layout::str
};

struct PlanStage {
  std::string mesh; ///< Mesh::str
  /// The kinds of parallelism by the names that people know: "TP2·DP4·ZeRO-1"; empty: not
  /// known (Search/PlanName.h).
  std::string name = {};
  /// Of a pipeline the ranks of the run that it is on; several stages may share theirs.
  std::vector<int64_t> ranks = {};
  /// In program order, or, as read from a file, those of one name and op in it.
  std::vector<PlanNode> nodes;
  /// In program order, or, as read from a file, in any.
  std::vector<PlanValue> values = {};
  std::vector<PlanTensor> arguments, results;
  std::vector<PlanFunction> functions = {};
  std::vector<PlanCollective> collectives;
  std::optional<PlanMemory> memory; ///< of a bundle's plan
  std::optional<PlanWork> work;
};

/// Links of a cluster by which collectives go level by level (Comm/Levels.h).
struct PlanLinks {
  struct Level {
    std::string name;
    int64_t size = 1;     ///< members
    double bandwidth = 0; ///< bytes/s that a device gets while all send
    double latency = 0;   ///< seconds per message
    double ramp = 0; ///< bytes up to which a collective runs at half of the bandwidth
    bool sharesMemory = false;
    bool operator==(const Level &) const = default;
  };
  double launch = 0;              ///< seconds that a call takes to start
  std::vector<Level> levels = {}; ///< from inside out
  bool operator==(const PlanLinks &) const = default;
};

/// Rules by which collectives become calls, as they were asked for or chosen
/// (docs/communication.md).
struct PlanCalls {
  /// Calls in flight where another starts; absent: as many as compile takes without a
  /// word.
  std::optional<int64_t> inFlight = {};
  /// Most distinct calls, and most groups of ranks; absent or 0: any number.
  std::optional<int64_t> reuse = {};
  bool makesBuckets = true; ///< false: memory had no room for them
  bool allToAll = true;     ///< false: reshards by slices, gathers and reductions only
  /// Links that say which collectives go level by level; absent: none does.
  std::optional<PlanLinks> hierarchical = {};
  bool operator==(const PlanCalls &) const = default;
};

/// All that is decided of a program beside its ops, values and ends: an attribute of its
/// L2 module.
struct PlanFacts {
  std::string mode;
  std::string hints;              ///< file or rule, as given; empty: none
  std::vector<std::string> notes; ///< what the user was told
  std::string target = "cpu";
  std::string targetCpu = {}; ///< LLVM's name; empty: that of the host
  int64_t threads = 1;        ///< per rank; 0: cores of the host divided by the ranks
  /// The type that the model computes in (Base/Compute.h), and nodes that do so in f32.
  std::string compute = "f32";
  std::vector<std::string> keepF32 = {};
  /// Level of products with weights of 4 bits, in place of what the model says.
  std::optional<int64_t> accuracyLevel = {};
  std::optional<PlanRecompute> recompute = {}; ///< of a training step that needs it
  /// Micro-batches of a training step, where its specification left them open.
  std::optional<int64_t> accumulation = {};
  PlanCalls calls = {};
};

/// The program of one entry of a bundle.
struct PlanEntry : PlanFacts {
  std::string name = "main";
  std::vector<std::string> shapes; ///< NAME=1,128 as given
  std::vector<PlanStage> stages;
  int64_t microBatches = 1;  ///< slices of the batch that go through the stages
  int64_t round = 1;         ///< of them, see StageOrder
  std::string schedule = {}; ///< of a training step of several stages (StepSchedule)
  std::optional<PlanCertificate> certificate; ///< of a plan that was searched
};

struct Plan {
  std::string file = {}; ///< that it was read from, for messages
  std::string model;     ///< absolute path of the ONNX file
  /// The same relative to the bundle; empty: the plan is of none.
  std::string modelRelative = {};
  /// Absolute paths of the files of the other ranks, of a model that has one per rank.
  std::vector<std::string> others = {};
  std::vector<std::string> constants; ///< NAME=FILE, as given, with an absolute path
  std::vector<std::string> states;    ///< INPUT=OUTPUT as given, see `--state`
  std::string train; ///< absolute path of the specification; empty: inference
  std::vector<PlanEntry> entries = std::vector<PlanEntry>(1);

  std::string json() const;
  /// The first: of a compile of one entry the one.
  PlanEntry &entry() { return entries.front(); }
  const PlanEntry &entry() const { return entries.front(); }
  /// The plan of one entry (empty: the first). A plan of one entry is any entry's. An
  /// error lists the entries.
  Expected<Plan> of(const std::string &name) const;
};

/// "TP2·DP4", "PP2·TP2": the stages' names if they have one, and their number.
std::string nameOf(const PlanEntry &entry);
/// "12.3 TFLOP/s per device, 39.4% of its peak (model FLOPs), 1234 tokens/s"; empty: none
/// is known.
std::string ratesText(const PlanCertificate::Rates &rates);
/// The members that say the rates that are known.
void writeRates(JsonWriter &out, const PlanCertificate::Rates &rates);

/// The member "memory" of a stage, all figures: of plan.json, and of reports.
void writeMemory(JsonWriter &out, const PlanMemory &memory);

/// Reads and checks a plan; the error names the file and the place in it.
Expected<Plan> readPlan(const std::string &path);
/// The same, of format 2 too, which no compile follows: for reports, and for the model
/// that a bundle was made of.
Expected<Plan> readAnyPlan(const std::string &path);

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_PLAN_H
