//===- ExplainValue.cpp - Where a value lies, and who reads it so ---------===//
#include "passes/Shard/ExplainValue.h"

#include "dialects/Dist/Dist.h"

using namespace mlir;
using namespace partita;

/// 'a', 'b' and 'c'.
static std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

static std::string readerName(Operation *op) {
  if (op->hasTrait<OpTrait::IsTerminator>())
    return "the caller";
  return "'" + dist::nodeName(op) + "'";
}

/// The steps between two layouts with what the worst rank receives.
static std::string stepsText(const Mesh &mesh, const Layout &from, const Layout &to,
                             const ReshardOptions &options, int64_t elementBytes) {
  auto plan = planReshard(mesh, from, to, options);
  if (!plan)
    return plan.error().message;
  std::vector<std::string> steps;
  int64_t received = 0;
  for (const Step &step : plan->steps) {
    if (step.kind != StepKind::View)
      steps.push_back(std::string(name(step.kind)));
    received += step.receivedElements * elementBytes;
  }
  return (steps.empty() ? "the same elements" : joined(steps)) + ", " +
         std::to_string(received) + " B received";
}

namespace {
class Explainer {
public:
  Explainer(const Mesh &mesh, Value value)
      : mesh(mesh),
        options(dist::reshardOptionsOf(value.getParentRegion()->getParentOp())),
        elementBytes(elementBytesOf(value)) {}

  /// Tells of `value`, which lies in `layout`, and of what it is converted to.
  void tell(Value value, const Layout &layout, const std::string &how) {
    std::vector<Operation *> readers;
    for (Operation *user : value.getUsers())
      if (!isa<dist::ReshardOp, dist::WindowOp>(user) &&
          !llvm::is_contained(readers, user))
        readers.push_back(user);
    llvm::sort(readers, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    text += (text.empty() ? "" : "; ") + how;
    if (readers.empty()) {
      text += ", which no op reads";
    } else {
      std::vector<std::string> names;
      for (Operation *reader : readers)
        names.push_back(readerName(reader));
      text += ", read by " + joined(names);
      if (names.size() > 1)
        text += ", last by " + names.back();
    }
    // Uses are listed last first.
    SmallVector<Operation *> users(value.getUsers());
    for (Operation *user : llvm::reverse(users))
      convert(user, layout);
  }

  std::string text;

private:
  void convert(Operation *user, const Layout &from) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(user)) {
      Layout to = reshard.getLayout().getLayout().canonicalized();
      tell(reshard.getResult(), to,
           "as " + to.str(mesh) + " (" +
               stepsText(mesh, from, to, options, elementBytes) + ")");
    }
    if (auto window = dyn_cast<dist::WindowOp>(user)) {
      Halo halo = window.getWindows().from(from);
      tell(window.getResult(), from,
           "as a window buffer (" +
               std::to_string(haloElements(mesh, halo) * elementBytes) + " B received)");
    }
  }

  const Mesh &mesh;
  ReshardOptions options;
  int64_t elementBytes;
};

/// Weights and constants are read in any layout, each rank its slices.
std::string explainSource(const Mesh &mesh, Value value) {
  std::string text;
  auto add = [&](const std::string &layout, Value read) {
    std::vector<std::string> names;
    for (Operation *user : read.getUsers())
      if (!isa<dist::ReshardOp, dist::WindowOp>(user) || read != value)
        names.push_back(readerName(user));
    if (names.empty())
      return;
    std::reverse(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    text += (text.empty() ? "" : "; ") + std::string("read ") + layout + " by " +
            joined(names);
  };
  add("whole", value);
  for (Operation *user : value.getUsers())
    if (auto reshard = dyn_cast<dist::ReshardOp>(user))
      add("as " + reshard.getLayout().getLayout().str(mesh), reshard.getResult());
  return text.empty() ? "read by nobody" : text;
}
} // namespace

std::string partita::explainValue(const dist::ProgramFlow &flow,
                                  const std::vector<Strategy> &strategies, int32_t value,
                                  Value now) {
  const FlowValue &entry = flow.graph.values[static_cast<size_t>(value)];
  const FlowOp &producer = flow.graph.ops[static_cast<size_t>(entry.producer)];
  const Mesh &mesh = flow.graph.mesh;
  if (producer.kind == FlowKind::Source)
    return "'" + entry.name + "' is " + explainSource(mesh, now);
  Layout layout =
      resultLayout(producer.rule, strategies[static_cast<size_t>(entry.producer)],
                   static_cast<size_t>(entry.result))
          .canonicalized();
  Explainer explainer(mesh, now);
  explainer.tell(now, layout, "made as " + layout.str(mesh));
  return "the value '" + entry.name + "' is " + explainer.text;
}
