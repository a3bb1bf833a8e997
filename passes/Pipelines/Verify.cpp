//===- Verify.cpp - Checking a model's partitioning -----------------------===//
#include "passes/Pipelines/Verify.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Dist/Manual.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Graph/Returned.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Base/Units.h"
#include "passes/Pipelines/BundleRequest.h"
#include "passes/Pipelines/CompileStages.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Pipelines/Roundings.h"
#include "passes/Pipelines/VerifyCompare.h"
#include "passes/Pipelines/VerifyCost.h"
#include "passes/Pipelines/VerifySampled.h"
#include "passes/Reference/EvaluatePipeline.h"
#include "passes/Reference/Inputs.h"

#include <cstring>
#include <filesystem>
#include <map>

using namespace mlir;
using namespace partita;

/// input_K.pb (or output_K.pb) of a folder, checked against the types. With `wide`, the
/// types are those of the program in f64 and the tensors become so. `numbers` are the K.
static Expected<Tensors> readTensors(const std::string &folder, const std::string &stem,
                                     TypeRange types, ArrayRef<int64_t> numbers,
                                     bool wide = false) {
  Tensors result;
  for (auto [type, number] : llvm::zip_equal(types, numbers)) {
    std::string path = folder + "/" + stem + "_" + std::to_string(number) + ".pb";
    auto named = readTensorProto(path);
    if (!named)
      return tl::unexpected(named.error());
    auto tensor = cast<RankedTensorType>(type);
    if (wide)
      named->tensor = toF64(named->tensor);
    if (named->tensor.shape != tensor.getShape().vec() ||
        named->tensor.type != dtypeOf(tensor.getElementType()))
      return makeError("'" + path + "' does not have the model's type for " + stem + " " +
                       std::to_string(number));
    result.push_back(std::move(named->tensor));
  }
  return result;
}

namespace {
class Verifier {
public:
  Verifier(const Request &request, const VerifyOptions &options)
      : job(
            request, [](const std::string &) {}, options.stop),
        options(options), compiler(job) {
    takeChoices(job);
    job.form.wide = options.wide || !options.f64.empty();
    job.form.keepPairs = true;
  }

  /// A pipeline is run against its model: stage by stage there is nothing to compare it
  /// with.
  Expected<Verified> run(bool isPipeline = false) {
    std::vector<std::string> lines;
    if (auto ok = readModel(lines); !ok)
      return tl::unexpected(ok.error());
    const EvaluationCost cost(original());
    // The partitioned program computes as much on all ranks together, or more.
    const double times = isPipeline || !options.f64.empty() ? 1 : 2;
    const double whole = times * cost.seconds() * static_cast<double>(options.steps);
    if (whole > options.wholeWithin && maySample())
      return sampled(whole, std::move(lines));
    auto expected = evaluateModel(cost, options.wholeWithin / times, lines);
    if (!expected && tooLong > 0)
      return sampled(times * tooLong, std::move(lines));
    if (!expected)
      return tl::unexpected(expected.error());
    if (!options.f64.empty())
      return write(*expected);
    auto ok = isPipeline ? quantize(lines) : checkPrograms(*expected, lines);
    if (ok && !options.bundle.empty())
      ok = returned.of(wanted.front()).and_then([&](const Tensors &outputs) {
        return runBundle(options.bundle, options.entry, outputs, lines);
      });
    return ok.map([&] { return verified(std::move(lines)); });
  }

private:
  /// The imported program against the outputs that are given, and the partitioned one
  /// against the imported one.
  Expected<void> checkPrograms(const Tensors &expected, std::vector<std::string> &lines) {
    auto given = returned.of(expected);
    if (!given)
      return tl::unexpected(given.error());
    auto judged = compareExpected("imported program", *given, lines).and_then([&] {
      return quantize(lines);
    });
    if (!judged)
      return judged;
    auto staged = wantsStages(job.request);
    if (!staged)
      return tl::unexpected(staged.error());
    if (*staged)
      return comparePipeline(lines);
    if (auto ok = compiler.annotate(); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = compiler.partition(); !ok)
      return tl::unexpected(ok.error());
    lines.push_back("communication per rank: " + describe(compiler.report.priced) +
                    " by the plan, " + describe(compiler.report.emitted) +
                    " by the program");
    return comparePartitioned(lines);
  }

  /// Has products between pairs of QuantizeLinear and DequantizeLinear computed on bytes,
  /// as a bundle does: judges that against the definition, and puts it in its place.
  Expected<void> quantize(std::vector<std::string> &lines) {
    if (auto ok = compiler.quantize(); !ok || !compiler.isQuantized)
      return ok;
    const std::vector<Tensors> definition = std::move(wanted);
    wanted.clear();
    const EvaluationCost cost(original());
    for (size_t step = 0; step < fresh.size(); ++step) {
      const auto number = static_cast<int64_t>(step);
      asked[step] = inputsOf(original(), number, fresh[step], wanted);
      EvaluationProgress progress("the program on bytes" + stepText(number), cost,
                                  told());
      auto outputs =
          evaluate(original(), asked[step], weights(), progress.hooks(options.stop));
      if (!outputs)
        return tl::unexpected(outputs.error());
      wanted.push_back(std::move(*outputs));
    }
    // Bytes that differ by roundings differ by more in a later step.
    if (options.steps > 1)
      return {};
    auto ours = returned.of(wanted.front()), theirs = returned.of(definition.front());
    if (!ours || !theirs)
      return tl::unexpected((ours ? theirs : ours).error());
    return compareQuantized(*ours, *theirs, lines);
  }

  Expected<void> compareQuantized(const Tensors &ours, const Tensors &theirs,
                                  std::vector<std::string> &lines) {
    std::vector<Tensors> moved;
    for (size_t i = 0; i < ours.size(); ++i) {
      const std::string where = "program on bytes, output " + std::to_string(i);
      lines.push_back(where + ": " + distance(ours[i], theirs[i]).str());
      if (compareTensors(ours[i], theirs[i], options.rtol, options.atol))
        continue;
      if (auto ok = findTruth(); !ok)
        return ok;
      auto flips = moved.empty() ? evaluateWide(moveToNeighbours)
                                 : Expected<std::vector<Tensors>>(moved);
      if (!flips)
        return tl::unexpected(flips.error());
      moved = std::move(*flips);
      auto judged = judgeBytes(ours[i], theirs[i], truth[0][i], moved[0][i]);
      if (!judged)
        return makeError(where + ": " + judged.error().message);
      lines.push_back(where + ": " + *judged);
    }
    return {};
  }

  Verified verified(std::vector<std::string> lines) const {
    Verified result{std::move(lines), hasElements.size(), {}};
    for (size_t i = 0; i < hasElements.size(); ++i)
      if (!hasElements[i])
        result.unchecked.push_back(i);
    return result;
  }

  /// Outputs of the imported program against those that are given.
  Expected<void> compareExpected(const std::string &what, const Tensors &outputs,
                                 std::vector<std::string> &lines) {
    if (options.expected.empty())
      return {};
    SmallVector<Type> types;
    for (const HostTensor &tensor : outputs)
      types.push_back(tensorType(&compiler.context, tensor.type, tensor.shape));
    auto outside = readTensors(
        options.expected, "output", types,
        llvm::to_vector(llvm::seq<int64_t>(0, static_cast<int64_t>(types.size()))));
    if (!outside)
      return tl::unexpected(outside.error());
    // In a narrower type the model has been judged; what is given is judged likewise.
    return isNarrow() ? compareNarrow("given outputs", *outside, lines, 0)
                      : compareReturned(what, outputs, *outside, lines);
  }

  func::FuncOp original() { return compiler.module->lookupSymbol<func::FuncOp>("main"); }

  /// The imported program, and the inputs that are given, or drawn.
  Expected<void> readModel(std::vector<std::string> &lines) {
    if (auto ok = compiler.import(); !ok)
      return ok;
    returned = graph::Returned(original());
    auto inputs = readInputs(original());
    if (!inputs)
      return tl::unexpected(inputs.error());
    given = std::move(*inputs);
    if (options.inputs.empty() && options.f64.empty())
      lines = describeInputs(original());
    return options.steps > 1 ? beginStates(original()) : Expected<void>();
  }

  /// The outputs of the imported program. An evaluation that may be sampled and turns out
  /// to take more than `most` seconds ends, and leaves `tooLong`.
  Expected<Tensors> evaluateModel(const EvaluationCost &cost, double most,
                                  std::vector<std::string> &lines) {
    for (int64_t step = 0; step < options.steps; ++step) {
      // Of what is drawn, other inputs in each step.
      if (step > 0 && options.inputs.empty())
        drawn = drawInputs(original(), static_cast<uint64_t>(step) << 32);
      fresh.push_back(step == 0 ? given : drawn);
      asked.push_back(inputsOf(original(), step, fresh.back(), wanted));
      EvaluationProgress progress("the model" + stepText(step), cost, told());
      if (maySample())
        progress.endIfLonger(most);
      auto outputs =
          evaluate(original(), asked.back(), weights(), progress.hooks(options.stop));
      if (!outputs && !options.stop.isRaised())
        tooLong = progress.tooLong();
      if (tooLong > 0)
        fresh.clear(), asked.clear();
      if (!outputs)
        return tl::unexpected(outputs.error());
      wanted.push_back(std::move(*outputs));
    }
    // The model in f64 is evaluated once, for all steps.
    for (size_t step = 0; isNarrow() && step < wanted.size(); ++step)
      if (auto ok = checkImported(step, lines); !ok)
        return tl::unexpected(ok.error());
    return wanted.front();
  }

  /// Tells whether the programs are judged by the roundings of their type. What a
  /// training step makes of them has no bound.
  bool isNarrow() const {
    return !job.request.train && !job.form.wide &&
           storedType(computeOf(job.request)) != DType::F32;
  }

  /// The imported program, which computes in a narrower type, against its model.
  Expected<void> checkImported(size_t step, std::vector<std::string> &lines) {
    std::vector<std::string> unused;
    const bool isLast = step + 1 == static_cast<size_t>(options.steps);
    return compare("imported program" + stepText(static_cast<int64_t>(step)),
                   wanted[step], wanted[step], isLast ? lines : unused, step);
  }

  std::string stepText(int64_t step) const {
    return options.steps > 1 ? ", step " + std::to_string(step) : std::string();
  }

  Progress told() const {
    return options.progress ? options.progress : [](const std::string &) {};
  }

  /// Roundings of a narrower type are those of the whole model, and one rank is no
  /// stand-in for a graph that is written per rank.
  bool maySample() {
    return options.run && options.steps == 1 && !job.form.wide && !isNarrow() &&
           !dist::findManual(compiler.module.get());
  }

  /// The model as one rank of `plain` stands for the model: see VerifySampled.h.
  Expected<Verified> sampled(double whole, std::vector<std::string> lines) {
    if (auto ok = compiler.quantize(); !ok)
      return tl::unexpected(ok.error());
    const EvaluationCost cost(original());
    const NodeSample sample(original(), cost, options.seed);
    told()("evaluating all of it would take about " + roughly(whole) +
           ": nodes of it are drawn");
    lines.push_back("evaluated: " + std::to_string(sample.size()) + " of " +
                    std::to_string(sample.numNodes()) + " nodes, drawn by seed " +
                    std::to_string(options.seed) + " (--seed)");
    told()("running it as one rank of 'plain'");
    auto plain = PlainRank::compile(job, compiler,
                                    [&](func::FuncOp main) { sample.addResults(main); });
    auto results = plain ? plain->run(options.run, given, options.stop)
                         : tl::unexpected(plain.error());
    if (!results)
      return tl::unexpected(results.error());
    auto behind = results->end() - static_cast<ptrdiff_t>(sample.numResults());
    const Tensors values(std::make_move_iterator(behind),
                         std::make_move_iterator(results->end()));
    results->erase(behind, results->end());
    isSampled = true;
    told()("evaluating " + std::to_string(sample.size()) + " nodes");
    auto ok = checkNodes(sample, values, lines)
                  .and_then([&] {
                    return compareExpected("one rank of 'plain'", *results, lines);
                  })
                  .and_then([&] {
                    told()("running its ranks");
                    return runRanks(*results, lines);
                  });
    return ok.map([&] {
      Verified result = verified(std::move(lines));
      result.sample = {sample.size(), sample.numNodes()};
      return result;
    });
  }

  /// The evaluator sums in f64 and rounds once. A sum in the node's own type errs by the
  /// size of its terms, which all elements of a result share.
  Expected<void> checkNodes(const NodeSample &sample, const Tensors &values,
                            std::vector<std::string> &lines) {
    double worst = 0;
    std::string worstNode;
    auto judge = [&](const std::string &where, const HostTensor &made,
                     const HostTensor &evaluated) -> Expected<void> {
      const double rtol = std::max(options.rtol, 2 * unitRoundoff(made.type));
      const Distance far = distance(made, evaluated);
      if (isFloat(made.type) && far.rms > worst * far.scale)
        worst = far.rms / far.scale, worstNode = where;
      auto ok = compareTensors(made, evaluated, rtol, options.atol + rtol * far.scale);
      return ok ? ok
                : makeError("one rank of 'plain', " + where + ": " + ok.error().message);
    };
    auto ok = sample.check(values, given, weights(), judge, options.stop);
    if (ok && !worstNode.empty())
      lines.push_back("one rank of 'plain': of the evaluated nodes " + worstNode +
                      " differs most, rms " + formatted("%.3g", worst) + " of its own");
    return ok;
  }

  /// The bundle, or one that is made for it, against one rank of `plain`.
  Expected<void> runRanks(const Tensors &expected, std::vector<std::string> &lines) {
    if (!options.bundle.empty())
      return runBundle(options.bundle, options.entry, expected, lines);
    auto folder = temporaryFolder();
    if (!folder)
      return tl::unexpected(folder.error());
    Request request = job.request;
    request.emission = {.output = folder->path() + "/bundle"};
    if (auto report = compileModel(
            request, [](const std::string &) {}, options.stop);
        !report)
      return tl::unexpected(report.error());
    return runBundle(request.emission.output, "", expected, lines);
  }

  std::function<Expected<HostTensor>(StringRef)> weights() const {
    return [this](StringRef name) { return weight(compiler, name); };
  }

  /// As a bundle's states do: with a weight of the model, or with zeros.
  Expected<void> beginStates(func::FuncOp function) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      dist::StateAttr state = dist::argumentState(function, i);
      if (!state)
        continue;
      given[i] = HostTensor::zeros(given[i].type, given[i].shape);
      if (!state.getInit())
        continue;
      auto value = weight(compiler, state.getInit().getValue());
      if (!value)
        return tl::unexpected(value.error());
      if (value->type != given[i].type) {
        value->bytes = narrowed(value->bytes, given[i].type);
        value->type = given[i].type;
      }
      given[i] = std::move(*value);
    }
    return {};
  }

  /// The inputs of a step: `fresh` ones, and the states that the step before left.
  static Tensors inputsOf(func::FuncOp function, int64_t step, Tensors fresh,
                          const std::vector<Tensors> &results) {
    if (step == 0)
      return fresh;
    std::map<StringRef, const HostTensor *> left;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (dist::StateAttr state = dist::resultState(function, i))
        left[state.getName().getValue()] = &results.back()[i];
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (dist::StateAttr state = dist::argumentState(function, i))
        if (auto it = left.find(state.getName().getValue()); it != left.end())
          fresh[i] = *it->second;
    return fresh;
  }

  /// All steps on virtual ranks: each from what the partitioned program itself has left.
  Expected<void> comparePartitioned(std::vector<std::string> &lines) {
    auto local = original();
    const EvaluationCost cost(local, job.request.mesh().numRanks());
    std::vector<Tensors> actual;
    for (int64_t step = 0; step < options.steps; ++step) {
      auto at = static_cast<size_t>(step);
      EvaluationProgress progress("the ranks' program" + stepText(step), cost, told());
      auto outputs = evaluatePartitioned(local, inputsOf(local, step, asked[at], actual),
                                         weights(), progress.hooks(options.stop));
      if (!outputs)
        return tl::unexpected(outputs.error());
      actual.push_back(std::move(*outputs));
    }
    std::vector<std::string> unused;
    for (size_t step = 0; step < actual.size(); ++step) {
      const bool isLast = step + 1 == actual.size();
      if (auto ok = compare("partitioned program" + stepText(static_cast<int64_t>(step)),
                            actual[step], wanted[step], isLast ? lines : unused, step);
          !ok)
        return ok;
    }
    return {};
  }

  /// All steps on the virtual ranks of a pipeline, each from what it itself has left.
  Expected<void> comparePipeline(std::vector<std::string> &lines) {
    Job staged = job.upTo(Level::L4);
    staged.form.keepPairs = false;
    auto made = stageCompiler(staged);
    if (auto ok = made->run(); !ok)
      return ok;
    Compiler &product = made->compiler();
    auto original = compiler.module->lookupSymbol<func::FuncOp>("main");
    NamedTensors left; // states
    for (size_t step = 0; step < asked.size(); ++step) {
      NamedTensors inputs;
      for (unsigned i = 0; i < original.getNumArguments(); ++i) {
        dist::StateAttr state = dist::argumentState(original, i);
        StringAttr name = state ? state.getName()
                                : original.getArgAttrOfType<StringAttr>(i, "graph.name");
        inputs.insert_or_assign(name.str(), asked[step][i]);
      }
      for (auto &[name, tensor] : left)
        inputs.insert_or_assign(name, std::move(tensor));
      auto outputs = evaluatePipeline(
          *product.module, inputs, [&](StringRef name) { return weight(product, name); },
          options.stop);
      if (!outputs)
        return tl::unexpected(outputs.error());
      left.clear();
      Tensors actual;
      for (unsigned i = 0; i < original.getNumResults(); ++i) {
        dist::StateAttr state = dist::resultState(original, i);
        const std::string name =
            (state ? state.getName()
                   : original.getResultAttrOfType<StringAttr>(i, "graph.name"))
                .str();
        auto found = outputs->find(name);
        if (found == outputs->end())
          return makeError("the pipeline does not give '" + name + "'");
        if (state)
          left.emplace(name, found->second);
        actual.push_back(found->second);
      }
      std::vector<std::string> unused;
      const bool isLast = step + 1 == asked.size();
      if (auto ok = compare("pipeline" + stepText(static_cast<int64_t>(step)), actual,
                            wanted[step], isLast ? lines : unused, step);
          !ok)
        return ok;
    }
    return {};
  }

  /// Of the module at hand, at whatever level: what counts are names.
  Expected<void> runBundle(const std::string &bundle, const std::string &entry,
                           const Tensors &expected, std::vector<std::string> &lines) {
    if (!options.run)
      return makeError("'" + bundle +
                       "' cannot be run: this program was built without the runtime");
    auto real =
        runBundleOf(original(), options.run, bundle, given,
                    {.entry = entry, .weights = options.weights, .stop = options.stop});
    if (!real)
      return tl::unexpected(real.error());
    return compareReturned("bundle on its ranks", *real, expected, lines);
  }

  Expected<Tensors> readInputs(func::FuncOp function) const {
    if (options.inputs.empty())
      return drawInputs(function, /*seed=*/0);
    // Inputs that are bound at compile time are counted, and not read.
    SmallVector<int64_t> numbers;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name");
      numbers.push_back(llvm::find(compiler.inputNames, name.getValue()) -
                        compiler.inputNames.begin());
    }
    return readTensors(options.inputs, "input", function.getArgumentTypes(), numbers,
                       job.form.wide);
  }

  /// What was drawn for the integer inputs: whoever reads "equal" can see for which.
  static std::vector<std::string> describeInputs(func::FuncOp function) {
    std::vector<std::string> lines;
    for (BlockArgument argument : function.getArguments()) {
      Type element = getElementTypeOrSelf(argument.getType());
      if (!element.isInteger() || element.isInteger(1))
        continue;
      InputRange range = inputRange(argument);
      auto name =
          function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "graph.name");
      lines.push_back("random input '" + (name ? name.getValue().str() : "") +
                      "': " + std::to_string(range.low) + " to " +
                      std::to_string(range.high - 1) +
                      (range.isIndex ? ", an index" : ""));
    }
    return lines;
  }

  static std::string describe(const Communication &communication) {
    return std::to_string(communication.receivedBytes) + " B received and " +
           std::to_string(communication.peakBytes) + " B of buffers";
  }

  Expected<Verified> write(const Tensors &results) const {
    auto given = returned.of(results);
    if (!given)
      return tl::unexpected(given.error());
    const Tensors &outputs = *given;
    std::error_code code;
    std::filesystem::create_directories(options.f64, code);
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::string path = options.f64 + "/output_" + std::to_string(i) + ".npy";
      if (auto ok = writeNpy(path, outputs[i]); !ok)
        return tl::unexpected(ok.error());
    }
    return Verified{
        {"wrote " + std::to_string(outputs.size()) + " outputs as f64 gives them"},
        0,
        {}};
  }

  static Expected<HostTensor> weight(const Compiler &compiler, StringRef name) {
    auto it = compiler.weights.find(name.str());
    if (it == compiler.weights.end())
      return makeError("weight '" + name.str() + "' has no bytes");
    const onnx_model::Tensor &tensor = it->second;
    HostTensor result = HostTensor::zeros(tensor.type, tensor.shape);
    if (tensor.bytes.size() != result.bytes.size())
      return makeError("weight '" + name.str() + "' has no bytes");
    std::memcpy(result.bytes.data(), tensor.bytes.data(), result.bytes.size());
    return result;
  }

  /// Of all results what is returned: what stands behind it is nobody's matter.
  Expected<void> compare(const std::string &what, const Tensors &actual,
                         const Tensors &expected, std::vector<std::string> &lines,
                         size_t step) {
    auto ours = returned.of(actual), theirs = returned.of(expected);
    if (!ours || !theirs)
      return makeError(what + ": " + (ours ? theirs.error() : ours.error()).message);
    return compareReturned(what, *ours, *theirs, lines, step);
  }

  Expected<void> compareReturned(const std::string &what, const Tensors &actual,
                                 const Tensors &expected, std::vector<std::string> &lines,
                                 size_t step = 0) {
    hasElements.resize(expected.size());
    if (isNarrow())
      return compareNarrow(what, actual, lines, step);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].bytes.empty())
        hasElements[i] = true;
      auto ok = compareOne(
          what + ", output " + std::to_string(i), actual[i], expected[i], tolerance(),
          [&] { return truthOf(i); }, lines);
      if (!ok)
        return ok;
    }
    return {};
  }

  /// Roundings of several steps have no bound.
  Tolerance tolerance() const { return {options.rtol, options.atol, options.steps == 1}; }

  /// Outputs of a program in a narrower type by the roundings of that.
  Expected<void> compareNarrow(const std::string &what, const Tensors &actual,
                               std::vector<std::string> &lines, size_t step) {
    const Compute type = computeOf(job.request);
    if (auto ok = findTruth(); !ok)
      return ok;
    if (rounded.empty()) {
      auto all = evaluateWide([type](HostTensor &tensor) { roundDigits(tensor, type); });
      if (!all)
        return tl::unexpected(all.error());
      rounded = std::move(*all);
    }
    for (size_t i = 0; i < actual.size(); ++i) {
      if (!actual[i].bytes.empty())
        hasElements[i] = true;
      std::string where = what + ", output " + std::to_string(i);
      auto judged = judgeRoundings(actual[i], truth[step][i], rounded[step][i], type);
      if (!judged)
        return makeError(where + ": " + judged.error().message);
      lines.push_back(where + ": " + *judged);
    }
    return {};
  }

  Expected<HostTensor> truthOf(size_t output) {
    return findTruth().map([&] { return truth[0][output]; });
  }

  Expected<void> findTruth() {
    if (!truth.empty())
      return {};
    auto all = isSampled ? plainTruth() : evaluateWide({});
    if (!all)
      return tl::unexpected(all.error());
    truth = std::move(*all);
    return {};
  }

  /// The model with every float type as f64.
  struct Wide {
    explicit Wide(const Job &given) : job(given), compiler(job) {}
    Job job;
    Compiler compiler;
  };
  Expected<std::unique_ptr<Wide>> wideModel() const {
    Job wide = job;
    wide.form.wide = true;
    auto made = std::make_unique<Wide>(wide);
    return made->compiler.import().map([&] { return std::move(made); });
  }

  /// The outputs of every step of the model in f64, where `change` has seen every value.
  Expected<std::vector<Tensors>>
  evaluateWide(const std::function<void(HostTensor &)> &change) const {
    auto wide = wideModel();
    if (!wide)
      return tl::unexpected(wide.error());
    auto main = (*wide)->compiler.module->lookupSymbol<func::FuncOp>("main");
    const EvaluationCost cost(main);
    std::vector<Tensors> results, outputs;
    for (size_t step = 0; step < fresh.size(); ++step) {
      Tensors inputs = fresh[step];
      for (HostTensor &input : inputs) {
        input = toF64(input);
        if (change)
          change(input);
      }
      const auto number = static_cast<int64_t>(step);
      EvaluationProgress progress("the model in f64" + stepText(number), cost, told());
      Evaluating how = progress.hooks(options.stop);
      how.change = change;
      auto made = evaluate(
          main, inputsOf(main, number, std::move(inputs), results),
          [&](StringRef name) { return weight((*wide)->compiler, name); }, how);
      if (!made)
        return tl::unexpected(made.error());
      auto given = returned.of(*made);
      if (!given)
        return tl::unexpected(given.error());
      results.push_back(std::move(*made));
      outputs.push_back(std::move(*given));
    }
    return outputs;
  }

  /// The same by one rank of `plain`.
  Expected<std::vector<Tensors>> plainTruth() const {
    auto wide = wideModel();
    if (!wide)
      return tl::unexpected(wide.error());
    Tensors inputs;
    for (const HostTensor &input : given)
      inputs.push_back(toF64(input));
    return PlainRank::compile((*wide)->job, (*wide)->compiler, nullptr)
        .and_then([&](const PlainRank &plain) {
          return plain.run(options.run, inputs, options.stop);
        })
        .map([](Tensors outputs) { return std::vector<Tensors>{std::move(outputs)}; });
  }

  Job job;
  const VerifyOptions &options;
  Compiler compiler;
  Tensors given, drawn; ///< the inputs of the first step, and of the one at hand
  /// Lists by step: inputs that are no states of the step before, all inputs, and what
  /// the model gives.
  std::vector<Tensors> fresh, asked, wanted;
  double tooLong = 0; ///< seconds of an evaluation that was ended for them
  /// Outputs by step in f64, and those with every value rounded, once they are asked
  /// for.
  std::vector<Tensors> truth, rounded;
  bool isSampled = false;        ///< one rank of `plain` stands for the model
  std::vector<bool> hasElements; ///< by output: in some comparison
  graph::Returned returned;      ///< what there is of the results of the model
};
} // namespace

std::string Verified::verdict() const {
  std::string text = "checked: equal";
  if (sample)
    text = "sampled: equal, " + std::to_string(sample->nodes) + " of " +
           std::to_string(sample->ofNodes) + " nodes";
  if (unchecked.empty())
    return text;
  if (unchecked.size() == numOutputs)
    return "not checked: no output has elements";
  text += "; not checked, as without elements: output";
  for (size_t i = 0; i < unchecked.size(); ++i)
    text += (i ? ", " : " ") + std::to_string(unchecked[i]);
  return text;
}

Expected<Verified> partita::verifyModel(const Request &request,
                                        const VerifyOptions &options) {
  Request found = request;
  if (!options.weights.folder.empty())
    found.model.dataFolders = {options.weights.folder};
  return Verifier(found, options).run();
}

Expected<Verified> partita::verifyBundle(const std::string &bundle,
                                         VerifyOptions options) {
  auto request =
      requestOf(bundle, {options.model, options.entry, options.weights.folder});
  if (!request)
    return tl::unexpected(request.error());
  if (!request->plan && !request->model.others.empty())
    return makeError("'" + request->model.file + "' and " +
                     std::to_string(request->model.others.size()) +
                     " other files are programs of a pipeline's stages, and there is no "
                     "model of one rank to compare them with");
  options.bundle = bundle;
  return Verifier(*request, options).run(/*isPipeline=*/!request->plan);
}
