//===- Verify.cpp - Checking a model's partitioning -----------------------===//
#include "passes/Pipelines/Verify.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Graph/Returned.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Base/Units.h"
#include "partita/Reference/Kernels.h"
#include "passes/Pipelines/CompileStages.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Pipelines/Roundings.h"
#include "passes/Reference/EvaluatePipeline.h"
#include "passes/Reference/Inputs.h"

#include <cmath>
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
  }

  /// A pipeline is run against its model: stage by stage there is nothing to compare it
  /// with.
  Expected<Verified> run(bool isPipeline = false) {
    std::vector<std::string> lines;
    auto expected = evaluateModel(lines);
    if (!expected)
      return tl::unexpected(expected.error());
    if (!options.f64.empty())
      return write(*expected);
    auto ok = isPipeline ? Expected<void>() : checkPrograms(*expected, lines);
    if (ok && !options.bundle.empty())
      ok = runBundle(*expected, lines);
    return ok.map([&] { return verified(std::move(lines)); });
  }

private:
  /// The imported program against the outputs that are given, and the partitioned one
  /// against the imported one.
  Expected<void> checkPrograms(const Tensors &expected, std::vector<std::string> &lines) {
    auto original = compiler.module->lookupSymbol<func::FuncOp>("main");
    if (!options.expected.empty()) {
      auto given = returned.of(expected);
      if (!given)
        return tl::unexpected(given.error());
      SmallVector<Type> types;
      for (const HostTensor &tensor : *given)
        types.push_back(tensorType(original.getContext(), tensor.type, tensor.shape));
      auto outside = readTensors(
          options.expected, "output", types,
          llvm::to_vector(llvm::seq<int64_t>(0, static_cast<int64_t>(types.size()))));
      if (!outside)
        return tl::unexpected(outside.error());
      // In a narrower type the model has been judged; what is given is judged likewise.
      auto ok = isNarrow() ? compareNarrow("given outputs", *outside, lines, 0)
                           : compareReturned("imported program", *given, *outside, lines);
      if (!ok)
        return tl::unexpected(ok.error());
    }
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

  Verified verified(std::vector<std::string> lines) const {
    Verified result{std::move(lines), hasElements.size(), {}};
    for (size_t i = 0; i < hasElements.size(); ++i)
      if (!hasElements[i])
        result.unchecked.push_back(i);
    return result;
  }

  /// The outputs of the imported program on the inputs that are given, or drawn.
  Expected<Tensors> evaluateModel(std::vector<std::string> &lines) {
    if (auto ok = compiler.import(); !ok)
      return tl::unexpected(ok.error());
    auto original = compiler.module->lookupSymbol<func::FuncOp>("main");
    returned = graph::Returned(original);
    auto inputs = readInputs(original);
    if (!inputs)
      return tl::unexpected(inputs.error());
    given = std::move(*inputs);
    if (options.inputs.empty() && options.f64.empty())
      lines = describeInputs(original);
    if (options.steps > 1)
      if (auto ok = beginStates(original); !ok)
        return tl::unexpected(ok.error());
    for (int64_t step = 0; step < options.steps; ++step) {
      // Of what is drawn, other inputs in each step.
      if (step > 0 && options.inputs.empty())
        drawn = drawInputs(original, static_cast<uint64_t>(step) << 32);
      fresh.push_back(step == 0 ? given : drawn);
      asked.push_back(inputsOf(original, step, fresh.back(), wanted));
      auto outputs = evaluate(original, asked.back(), weights(), options.stop);
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

  /// Whether the programs are judged by the roundings of their type. What a training step
  /// makes of them has no bound.
  bool isNarrow() const {
    return !job.request.train && !job.form.wide &&
           storedType(computeOf(job.request)) != DType::F32;
  }

  /// The imported program, which computes in a narrower type, against its model.
  Expected<void> checkImported(size_t step, std::vector<std::string> &lines) {
    std::vector<std::string> unused;
    const bool isLast = step + 1 == static_cast<size_t>(options.steps);
    return compare("imported program" + stepText(step), wanted[step], wanted[step],
                   isLast ? lines : unused, step);
  }

  std::string stepText(size_t step) const {
    return options.steps > 1 ? ", step " + std::to_string(step) : std::string();
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
    auto local = compiler.module->lookupSymbol<func::FuncOp>("main");
    std::vector<Tensors> actual;
    for (int64_t step = 0; step < options.steps; ++step) {
      auto at = static_cast<size_t>(step);
      auto outputs = evaluatePartitioned(local, inputsOf(local, step, asked[at], actual),
                                         weights(), options.stop);
      if (!outputs)
        return tl::unexpected(outputs.error());
      actual.push_back(std::move(*outputs));
    }
    std::vector<std::string> unused;
    for (size_t step = 0; step < actual.size(); ++step) {
      const bool isLast = step + 1 == actual.size();
      if (auto ok = compare("partitioned program" + stepText(step), actual[step],
                            wanted[step], isLast ? lines : unused, step);
          !ok)
        return ok;
    }
    return {};
  }

  /// All steps on the virtual ranks of a pipeline, each from what it itself has left.
  Expected<void> comparePipeline(std::vector<std::string> &lines) {
    Job staged = job.upTo(Level::L4);
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
      if (auto ok = compare("pipeline" + stepText(step), actual, wanted[step],
                            isLast ? lines : unused, step);
          !ok)
        return ok;
    }
    return {};
  }

  /// Of the module at hand, at whatever level: what counts are names.
  Expected<void> runBundle(const Tensors &expected, std::vector<std::string> &lines) {
    if (!options.run)
      return makeError("'" + options.bundle +
                       "' cannot be run: this program was built without the runtime");
    auto real = runBundleOf(
        compiler.module->lookupSymbol<func::FuncOp>("main"), options.run, options.bundle,
        given,
        {.entry = options.entry, .weights = options.weights, .stop = options.stop});
    if (!real)
      return tl::unexpected(real.error());
    auto wanted = returned.of(expected);
    if (!wanted)
      return tl::unexpected(wanted.error());
    return compareReturned("bundle on its ranks", *real, *wanted, lines);
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
      std::string where = what + ", output " + std::to_string(i);
      auto ok = compareTensors(actual[i], expected[i], options.rtol, options.atol);
      // What several steps make of rounding has no bound.
      if (!ok && (expected[i].type != DType::F32 || options.steps > 1))
        return makeError(where + ": " + ok.error().message);
      lines.push_back(where + ": " + distance(actual[i], expected[i]).str());
      if (ok)
        continue;
      // A sum in another order may miss the tolerance and be as good.
      auto judged = judge(actual[i], expected[i], i);
      if (!judged)
        return makeError(where + ": " + ok.error().message + "; " +
                         judged.error().message);
      lines.push_back(where + ": " + *judged);
    }
    return {};
  }

  /// Outputs of a program in a narrower type by the roundings of that.
  Expected<void> compareNarrow(const std::string &what, const Tensors &actual,
                               std::vector<std::string> &lines, size_t step) {
    const Compute type = computeOf(job.request);
    if (truth.empty())
      if (auto ok = evaluateWide(nullptr, truth); !ok)
        return ok;
    if (rounded.empty())
      if (auto ok = evaluateWide(
              [type](HostTensor &tensor) { roundDigits(tensor, type); }, rounded);
          !ok)
        return ok;
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

  /// Who is nearer to output `i` of the model in f64: an error unless the root mean
  /// square and the largest error of `actual` are at most 3 times those of `expected`.
  Expected<std::string> judge(const HostTensor &actual, const HostTensor &expected,
                              size_t i) {
    if (truth.empty())
      if (auto ok = evaluateWide(nullptr, truth); !ok)
        return tl::unexpected(ok.error());
    if (truth[0][i].shape != expected.shape)
      return makeError("in f64 the model gives another number of elements");
    Distance ours = distance(actual, truth[0][i]),
             theirs = distance(expected, truth[0][i]);
    std::string text = formatted("errors against f64: largest %.3g and rms %.3g, those "
                                 "of what it is compared with %.3g and %.3g",
                                 ours.largest, ours.rms, theirs.largest, theirs.rms);
    if (ours.rms > 3 * theirs.rms || ours.largest > 3 * theirs.largest)
      return makeError(text);
    return text;
  }

  /// The outputs of every step of the model with every float type as f64, where `hook`
  /// has seen every value.
  Expected<void> evaluateWide(const ValueHook &hook, std::vector<Tensors> &outputs) {
    Job wide = job;
    wide.form.wide = true;
    Compiler importer(wide);
    if (auto ok = importer.import(); !ok)
      return tl::unexpected(ok.error());
    auto function = importer.module->lookupSymbol<func::FuncOp>("main");
    std::vector<Tensors> results;
    for (size_t step = 0; step < fresh.size(); ++step) {
      Tensors inputs = fresh[step];
      for (HostTensor &input : inputs) {
        input = toF64(input);
        if (hook)
          hook(input);
      }
      inputs = inputsOf(function, static_cast<int64_t>(step), std::move(inputs), results);
      auto made = evaluate(
          function, inputs, [&](StringRef name) { return weight(importer, name); },
          options.stop, hook);
      if (!made)
        return tl::unexpected(made.error());
      auto given = returned.of(*made);
      if (!given)
        return tl::unexpected(given.error());
      results.push_back(std::move(*made));
      outputs.push_back(std::move(*given));
    }
    return {};
  }

  Job job;
  const VerifyOptions &options;
  Compiler compiler;
  Tensors given, drawn; ///< the inputs of the first step, and of the one at hand
  /// By step: inputs that are no states of the step before, all inputs, and what the
  /// model gives.
  std::vector<Tensors> fresh, asked, wanted;
  /// By step the outputs in f64, and those with every value rounded, once they are asked
  /// for.
  std::vector<Tensors> truth, rounded;
  std::vector<bool> hasElements; ///< by output: in some comparison
  graph::Returned returned;      ///< what there is of the results of the model
};
} // namespace

std::string Verified::verdict() const {
  if (unchecked.empty())
    return "checked: equal";
  if (unchecked.size() == numOutputs)
    return "not checked: no output has elements";
  std::string text = "checked: equal; not checked, as without elements: output";
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
  auto file = planFile(bundle, options.entry);
  if (!file)
    return tl::unexpected(file.error());
  auto plan =
      readPlan(*file).and_then([&](const Plan &all) { return all.of(options.entry); });
  if (!plan)
    return tl::unexpected(plan.error());
  Request request;
  ModelSource &model = request.model;
  model.file = options.model.empty()
                   ? findRecorded(bundle, plan->modelRelative, plan->model)
                   : options.model;
  std::error_code unreadable; // a path that is too long is not there either
  if (!std::filesystem::exists(model.file, unreadable))
    return makeError("the bundle's model '" + model.file +
                     "' is not there; --model says where it is now");
  std::string folder = std::filesystem::path(model.file).parent_path().string();
  folder = folder.empty() ? "." : folder;
  // Files that came with the model may have moved with it. Their names alone come last,
  // as another file of this name may lie beside the model.
  auto moved = [&](const std::string &path) {
    std::string beside =
        relativePath(path, std::filesystem::path(plan->model).parent_path().string());
    for (const std::string &place : {folder + "/" + beside, path})
      if (!beside.empty() && std::filesystem::is_regular_file(place, unreadable))
        return place;
    return findRecorded(folder, "", path);
  };
  for (const std::string &text : plan->entry().shapes) {
    auto shape = onnx_model::parseShapeBinding(text);
    if (!shape)
      return tl::unexpected(shape.error());
    model.shapes.push_back(std::move(*shape));
  }
  for (const std::string &text : plan->constants) {
    size_t file = text.find('=') + 1;
    auto constant =
        onnx_model::readConstBinding(text.substr(0, file) + moved(text.substr(file)));
    if (!constant)
      return tl::unexpected(constant.error());
    model.constants.push_back(std::move(*constant));
  }
  model.states = plan->states;
  if (plan->train.empty())
    request.compute = computeFromName(plan->entry().compute);
  request.keepF32 = plan->entry().keepF32;
  // A bundle has its specification with it, as older ones had not.
  const std::string own = bundle + "/" + specificationFileName;
  if (!plan->train.empty()) {
    const std::string train =
        std::filesystem::exists(own, unreadable) ? own : moved(plan->train);
    if (!std::filesystem::exists(train, unreadable))
      return makeError("the specification '" + plan->train +
                       "' of the bundle's training step is not there");
    auto read = readTraining(train);
    if (!read)
      return tl::unexpected(read.error());
    request.train = std::move(*read);
  }
  model.dataFolders = dataFolders(bundle, options.weights.folder);
  options.bundle = bundle;
  if (plan->entry().stages.size() > 1)
    return Verifier(request, options).run(/*isPipeline=*/true);
  auto meshes = readMeshes(plan->entry().stages[0].mesh);
  if (!meshes)
    return tl::unexpected(meshes.error());
  request.meshes = std::move(*meshes);
  request.plan = std::move(*plan);
  return Verifier(request, options).run();
}
