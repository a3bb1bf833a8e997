//===- CheckBundle.cpp - Compiled equals original, on real ranks ----------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Graph/Returned.h"
#include "dialects/Task/Task.h"
#include "passes/Codegen/Bundle/EmitBundle.h"
#include "passes/Codegen/Targets/Targets.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Reference/Evaluate.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/xxhash.h"

#include <chrono>

namespace partita {
#define GEN_PASS_DEF_CHECKBUNDLEPASS
#include "passes/Pipelines/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// A temporary folder that goes when it goes out of scope, unless a name was given.
struct Folder {
  explicit Folder(StringRef kept) {
    if (!kept.empty()) {
      bundle = kept.str();
      return;
    }
    SmallString<128> made;
    if (!llvm::sys::fs::createUniqueDirectory("partita-check", made)) {
      path = made.str().str();
      bundle = path + "/bundle";
    }
  }
  ~Folder() {
    if (!path.empty())
      llvm::sys::fs::remove_directories(path);
  }
  std::string path, bundle;
};

/// Whether the module is of level L3: its functions are those of one rank, with types of
/// what a rank holds.
bool isPartitioned(ModuleOp module) {
  return module
      .walk([](Operation *op) {
        return isa<comm::CommOpInterface>(op) || op->hasAttr(dist::ruleAttr)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// The type of all of a tensor of which a rank holds what the layout says.
Type globalType(Type local, Attribute layout) {
  auto of = dyn_cast_or_null<dist::LayoutAttr>(layout);
  auto tensor = cast<RankedTensorType>(local);
  return of ? tensor.clone(of.getLayout().globalShape()) : tensor;
}

struct CheckBundlePass : partita::impl::CheckBundlePassBase<CheckBundlePass> {
  using CheckBundlePassBase::CheckBundlePassBase;

  BundleRunner runBundle;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!runBundle) {
      module.emitError("this program was built without the runtime, so it cannot run "
                       "what it compiles");
      return signalPassFailure();
    }
    if (!module.getOps<task_ir::ProgramOp>().empty()) {
      if (auto ok = checkPrograms(module); !ok) {
        module.emitError(ok.error().message);
        signalPassFailure();
      }
      return;
    }
    OwningOpRef<ModuleOp> local = module.clone();
    ofOneRank = isPartitioned(module);
    if (module->hasAttr(dist::meshAttr) && !ofOneRank) {
      PassManager manager(&getContext());
      buildRanksPipelineFor(manager, module);
      if (failed(manager.run(*local)))
        return signalPassFailure();
    }
    for (auto function : module.getOps<func::FuncOp>()) {
      // One that an op runs is checked with that op: its values may be partial sums.
      if (isRun(module, function))
        continue;
      if (auto ok = check(function, *local); !ok) {
        emitError(function.getLoc())
            << "@" << function.getName() << ": " << ok.error().message;
        signalPassFailure();
      }
    }
  }

private:
  Expected<void> check(func::FuncOp function, ModuleOp local) {
    weightTypes.clear();
    auto note = [&](graph::WeightOp op) {
      weightTypes[op.getName()] = globalType(
          op.getResult().getType(), ofOneRank ? op->getAttr(dist::layoutAttr) : nullptr);
    };
    auto argumentType = [&](unsigned i) {
      return globalType(function.getArgumentTypes()[i],
                        ofOneRank ? function.getArgAttr(i, dist::layoutAttr) : nullptr);
    };
    // Of functions that it runs too; its own count where names are equal.
    getOperation().walk(note);
    function.walk(note);
    for (const dist::StateEnds &ends : dist::statesOf(function))
      if (ends.state && ends.state.getInit())
        weightTypes[ends.state.getInit()] =
            argumentType(static_cast<unsigned>(ends.argument));
    Tensors inputs;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      inputs.push_back(random(argumentType(i), seed + i));
    auto actual = runCompiled(local, function, inputs, {});
    if (!actual)
      return makeError("the compiled program fails: " + actual.error().message);
    if (!compare)
      return {};
    return compareWith(function, inputs, *actual);
  }

  Expected<void> compareWith(func::FuncOp function, const Tensors &inputs,
                             const Tensors &actual) {
    auto weights = [&](StringRef name) { return weight(name); };
    auto expected = ofOneRank ? evaluatePartitioned(function, inputs, weights)
                              : evaluate(function, inputs, weights);
    if (!expected)
      return makeError("the original fails: " + expected.error().message);
    expected = graph::Returned(function).of(*expected);
    if (!expected)
      return tl::unexpected(expected.error());
    for (size_t i = 0; i < expected->size(); ++i)
      if (auto ok =
              compareTensors(actual[i], (*expected)[i],
                             std::max(rtol.getValue(), rounding((*expected)[i])), atol);
          !ok)
        return makeError("result " + std::to_string(i) +
                         " of the compiled program differs: " + ok.error().message);
    return {};
  }

  /// Names of inputs or outputs, in the order of a session.
  static SmallVector<StringRef> namesOf(ModuleOp module, bool inputs) {
    SmallVector<StringRef> names;
    for (auto program : module.getOps<task_ir::ProgramOp>())
      for (auto buffer : program.getBody().front().getOps<task_ir::BufferOp>()) {
        auto name = inputs ? buffer.getInput() : buffer.getOutput();
        if (name && !llvm::is_contained(names, *name))
          names.push_back(*name);
      }
    return names;
  }

  /// Programs against the function that says what they compute.
  Expected<void> checkPrograms(ModuleOp module) {
    auto reference = module.lookupSymbol<func::FuncOp>("reference");
    if (!reference)
      return makeError("has no function @reference");
    reference.walk([&](graph::WeightOp op) {
      weightTypes[op.getName()] = op.getResult().getType();
    });
    llvm::StringMap<HostTensor> given;
    Tensors inputs;
    std::map<std::string, HostTensor> global;
    for (auto [i, type] : llvm::enumerate(reference.getArgumentTypes())) {
      auto index = static_cast<unsigned>(i);
      inputs.push_back(random(type, seed + i));
      if (auto name = reference.getArgAttrOfType<StringAttr>(index, "graph.name"))
        given[name] = inputs.back();
    }
    for (StringRef name : namesOf(module, true)) {
      auto found = given.find(name);
      if (found == given.end())
        return makeError("@reference has no argument \"" + name.str() + "\"");
      global[name.str()] = found->second;
    }
    auto outputs = runCompiled(module, nullptr, {}, global);
    if (!outputs)
      return makeError("the compiled programs fail: " + outputs.error().message);
    SmallVector<StringRef> names = namesOf(module, false);
    Tensors actual;
    for (unsigned i = 0; i < reference.getNumResults(); ++i) {
      auto name = reference.getResultAttrOfType<StringAttr>(i, "graph.name");
      auto at = name ? llvm::find(names, name.getValue()) : names.end();
      if (at == names.end())
        return makeError("no program gives result " + std::to_string(i) +
                         " of @reference");
      actual.push_back((*outputs)[static_cast<size_t>(at - names.begin())]);
    }
    return compare ? compareWith(reference, inputs, actual) : Expected<void>();
  }

  /// Two units in the last place: the evaluator rounds after every op, kernels at the
  /// end.
  static double rounding(const HostTensor &tensor) {
    return tensor.type == DType::F16 ? 0x1p-9 : tensor.type == DType::BF16 ? 0x1p-6 : 0;
  }

  Expected<HostTensor> weight(StringRef name) const {
    return random(weightTypes.lookup(name), seed + llvm::xxh3_64bits(name) % 1000);
  }

  /// A function on its arguments, or, where that is null, the module's programs on
  /// inputs by name.
  Expected<Tensors> runCompiled(ModuleOp local, func::FuncOp function,
                                const Tensors &arguments,
                                const std::map<std::string, HostTensor> &inputs) {
    auto model = codegen::targetNamed(target);
    if (!model)
      return tl::unexpected(model.error());
    Folder folder(keep);
    codegen::EmitOptions options;
    options.function = function ? function.getName().str() : "";
    options.out = folder.bundle;
    options.threads = threads;
    options.workPerPart = workPerPart;
    options.model = "check-bundle";
    codegen::EmitEntry entry;
    entry.module = local;
    if (function) {
      graph::Returned returned(function);
      entry.dims = returned.dims();
      entry.sizes = returned.sizes();
    }
    entry.weights = [&](const std::string &name) -> Expected<codegen::WeightData> {
      auto tensor = std::make_shared<HostTensor>(*weight(name));
      return codegen::WeightData{tensor->type,  tensor->shape, {}, {}, 0,
                                 tensor->bytes, tensor};
    };
    auto report = codegen::emitBundle({&entry, 1}, **model, options);
    if (!report)
      return tl::unexpected(report.error());
    int request = 0;
    auto timed = [&](double seconds) {
      if (repeat > 1)
        llvm::outs() << "request " << request++ << ": " << seconds << " s\n";
    };
    BundleRun how{.repeat = repeat, .timed = timed};
    if (function)
      return runBundleOf(function, runBundle, folder.bundle, arguments, how);
    std::map<std::string, HostTensor> states;
    return runBundle(folder.bundle, inputs, states, how);
  }

  static HostTensor random(Type type, uint64_t seed) {
    auto tensor = cast<RankedTensorType>(type);
    return randomTensor(*dtypeOf(tensor.getElementType()), tensor.getShape().vec(), seed);
  }

  llvm::StringMap<Type> weightTypes;
  bool ofOneRank = false; ///< the module is of level L3
};
} // namespace

void partita::registerCheckBundle(BundleRunner run) {
  registerPass([run = std::move(run)] {
    auto pass = std::make_unique<CheckBundlePass>();
    pass->runBundle = run;
    return pass;
  });
}
