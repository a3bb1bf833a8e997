//===- GateCasesTest.cpp - Every op × attribute at L3, made wrong ---------===//
//
// Every case of Cases.cpp is partitioned by several strategies on several meshes. Then
// every attribute of every op, argument, result and of the module is made wrong in every
// way of Wrong.cpp.
//
// Attributes that say where data lies: the verifier or the gate of level L3 refuses each.
//
// Attributes that say what is computed: each is refused, or it changes nothing (a pad
// that no window reaches), or the program is what comes out when another model is
// partitioned, the one with this attribute in its op. No check of a partitioned program
// alone can tell that this model is not meant; partitioning it shows that nothing else is
// wrong.
//
//===----------------------------------------------------------------------===//
#include "Runner.h"
#include "Strategies.h"
#include "Wrong.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"

#include <catch2/catch.hpp>

#include <cstdio>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

/// Why an attribute of an op may have any value at L3; empty if it may not.
std::string whyAnything(Operation *op, StringRef attribute, ModuleOp module) {
  if (attribute == "epoch")
    return "keeps equal conversions from merging, and nothing merges here";
  auto pool = dyn_cast<graph::PoolOp>(op);
  if (!pool || pool.getKind() != graph::PoolKind::Average)
    return "";
  if (attribute == "count_padding")
    return "pads of a split window are elements of its buffer, whether those of other "
           "dims "
           "count is another model";
  // The plan made two ops of one: `changed` has no place for the second.
  bool isScaled =
      module.walk([](graph::MulOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return isScaled ? "an average over split windows, corrected by a table of the plan: "
                    "the program of the model that has this pool and that table"
                  : "";
}

/// One place of an attribute in a partitioned program.
struct Site {
  Operation *op;
  NamedAttribute attr;
  std::function<void(Attribute)> set;
};

std::vector<Site> sitesOf(ModuleOp module) {
  std::vector<Site> sites;
  auto function = *module.getOps<func::FuncOp>().begin();
  // Of an argument that nobody reads any layout is right.
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (!function.getArgument(i).use_empty())
      for (NamedAttribute attr : function_interface_impl::getArgAttrs(function, i))
        sites.push_back({function, attr, [=](Attribute value) mutable {
                           function.setArgAttr(i, attr.getName(), value);
                         }});
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto layout = dist::resultLayout(function, i)) {
      auto name = StringAttr::get(module.getContext(), dist::layoutAttr);
      sites.push_back({function, {name, layout}, [=](Attribute value) mutable {
                         function.setResultAttr(i, name, value);
                       }});
    }
  for (Operation &op : function.front().without_terminator())
    for (NamedAttribute attr : op.getAttrs())
      sites.push_back({&op, attr, [&op, attr](Attribute value) {
                         value ? op.setAttr(attr.getName(), value)
                               : void(op.removeAttr(attr.getName()));
                       }});
  return sites;
}

class CaseSweep {
public:
  explicit CaseSweep(MLIRContext &context) : context(context), gate(context) {}

  void run(const OpCase &opCase, size_t number) {
    auto created = Runner::create(context, opCase, 1 + number);
    REQUIRE(created);
    Runner runner = std::move(*created);
    for (const char *text : {"tp=2", "tp=3", "dp=2,tp=2"}) {
      Mesh mesh = *Mesh::parse(text);
      auto strategies = enumerateStrategies(mesh, runner.rule(), Depth::Assignments);
      // A few, others from case to case.
      size_t step = std::max<size_t>(1, strategies.size() / 3);
      for (size_t s = number % step; s < strategies.size(); s += step)
        tryProgram(runner, opCase, mesh, strategies[s],
                   s / step % 2 ? Feed::Weights : Feed::Whole);
    }
  }

  void tryProgram(Runner &runner, const OpCase &opCase, const Mesh &mesh,
                  const Strategy &strategy, Feed feed) {
    auto made = runner.partition(mesh, {strategy}, feed);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    ModuleOp module = **made;
    REQUIRE(!gate.refuses(module));
    ++programs;
    label =
        opCase.name() + " on " + mesh.str() + " by " + strategy.str(mesh, runner.rule());
    for (Site &site : sitesOf(module)) {
      std::string key =
          site.op->getName().getStringRef().str() + "." + site.attr.getName().str();
      auto places = wrongPlaces(site.op, site.attr);
      for (auto &[change, value] : places) {
        site.set(value);
        bool refused = gate.refuses(module);
        ++(refused ? refusedPlaces : missed);
        if (!refused && missed <= 20)
          FAIL_CHECK(label << ": " << key << ": " << change << " passes the gate\n"
                           << print(module));
        site.set(site.attr.getValue());
      }
      if (!places.empty()) {
        tried.insert(key);
        continue;
      }
      tryComputations(runner, mesh, strategy, feed, module, site, key);
    }
    tryMeshes(module, mesh);
    REQUIRE(!gate.refuses(module));
  }

  void tryComputations(Runner &runner, const Mesh &mesh, const Strategy &strategy,
                       Feed feed, ModuleOp module, Site &site, const std::string &key) {
    for (auto &[change, value] : wrongComputations(site.op, site.attr)) {
      tried.insert(key);
      site.set(value);
      if (gate.refuses(module))
        ++refusedComputations;
      else if (runner.check(module, mesh, strategy, 0, feed))
        ++harmless[key + ", the same result"];
      else if (isAnotherModel(runner, mesh, strategy, feed, module, site, value))
        ++harmless[key + ", another model's program"];
      else if (std::string why = whyAnything(site.op, site.attr.getName(), module);
               !why.empty())
        ++harmless[key + ", " + why];
      else if (++missed <= 20)
        FAIL_CHECK(label << ": " << key << ": " << change
                         << " passes the gate and is no other model\n"
                         << print(module));
      site.set(site.attr.getValue());
    }
  }

  /// Whether `module`, in which `value` stands at `site`, is the partitioned program of
  /// the model with `value` in its op, or with as much more than its own as `value` is
  /// more than what the local op had: pads of a split window count from its buffer.
  bool isAnotherModel(Runner &runner, const Mesh &mesh, const Strategy &strategy,
                      Feed feed, ModuleOp module, const Site &site, Attribute value) {
    if (site.op->getName() != runner.original().op->getName())
      return false;
    if (isModelWith(runner, mesh, strategy, feed, module, site, value))
      return true;
    auto own = dyn_cast_if_present<DenseI64ArrayAttr>(
        runner.original().op->getAttr(site.attr.getName()));
    auto before = dyn_cast<DenseI64ArrayAttr>(site.attr.getValue());
    auto now = dyn_cast<DenseI64ArrayAttr>(value);
    if (!own || !before || !now || own.size() != now.size() ||
        before.size() != now.size())
      return false;
    SmallVector<int64_t> moved;
    for (auto [o, b, n] :
         llvm::zip_equal(own.asArrayRef(), before.asArrayRef(), now.asArrayRef()))
      moved.push_back(o + n - b);
    return isModelWith(runner, mesh, strategy, feed, module, site,
                       DenseI64ArrayAttr::get(&context, moved));
  }

  bool isModelWith(Runner &runner, const Mesh &mesh, const Strategy &strategy, Feed feed,
                   ModuleOp module, const Site &site, Attribute value) {
    auto other = runner.changed(site.attr.getName(), value);
    if (!other || other->rule().factors.size() != runner.rule().factors.size() ||
        !verifyStrategy(mesh, other->rule(), strategy))
      return false;
    auto made = other->partition(mesh, {strategy}, feed);
    return made && print(**made) == print(module);
  }

  /// The program on other devices than its layouts speak of.
  void tryMeshes(ModuleOp module, const Mesh &mesh) {
    Attribute old = module->getAttr(dist::meshAttr);
    for (const char *text : {"tp=2", "tp=3", "tp=4", "dp=2,tp=2", "tp=2,dp=2", "dp=2"})
      if (Mesh other = *Mesh::parse(text); other != mesh) {
        module->setAttr(dist::meshAttr, dist::MeshAttr::get(&context, other));
        bool refused = gate.refuses(module);
        ++(refused ? refusedMeshes : missed);
        if (!refused && missed <= 20)
          FAIL_CHECK(label << " passes the gate on mesh " << text << "\n"
                           << print(module));
      }
    module->setAttr(dist::meshAttr, old);
  }

  MLIRContext &context;
  Gate gate;
  std::string label;
  size_t programs = 0, refusedPlaces = 0, refusedComputations = 0, refusedMeshes = 0;
  size_t missed = 0;
  std::map<std::string, size_t> harmless;
  std::set<std::string> tried;
};
} // namespace

TEST_CASE("no wrong attribute of any op case passes the gate") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  REQUIRE(cases);
  CaseSweep sweep(context);
  for (size_t i = 0; i < cases->size(); ++i)
    sweep.run((*cases)[i], i);
  size_t others = 0;
  for (const auto &[key, count] : sweep.harmless)
    others += count;
  std::printf("gate by cases: %zu cases, %zu programs, %zu op attributes; refused: %zu "
              "places, %zu computations, %zu meshes; %zu are "
              "harmless\n",
              cases->size(), sweep.programs, sweep.tried.size(), sweep.refusedPlaces,
              sweep.refusedComputations, sweep.refusedMeshes, others);
  for (const auto &[key, count] : sweep.harmless)
    std::printf("  harmless: %s: %zu\n", key.c_str(), count);
  CHECK(sweep.missed == 0);
}
