//===- Request.cpp - Commands as JSON requests ----------------------------===//
#include "passes/Pipelines/Request.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Json.h"
#include "passes/Pipelines/Inspect.h"
#include "passes/Pipelines/PlanModel.h"
#include "passes/Pipelines/Report.h"
#include "passes/Pipelines/Verify.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

using namespace partita;
using Json = nlohmann::ordered_json;

namespace {
/// The members of a request, each read into where an option is kept. A member that no
/// reader has asked for is an error at the end, as is one of the wrong type at once.
class Members {
public:
  explicit Members(JsonValue request) : request(std::move(request)) {}

  void read(std::string_view name, std::string &into) {
    take(name, into, [](const JsonValue &v) { return v.asString(); });
  }
  void read(std::string_view name, bool &into) {
    take(name, into, [](const JsonValue &v) { return v.asBool(); });
  }
  void read(std::string_view name, double &into) {
    take(name, into, [](const JsonValue &v) { return v.asNumber(); });
  }
  void read(std::string_view name, std::vector<std::string> &into) {
    take(name, into, [](const JsonValue &v) { return v.asStrings(); });
  }
  template <typename Integer>
  void read(std::string_view name, Integer &into, int64_t low, int64_t high) {
    take(name, into, [&](const JsonValue &v) { return v.asInteger(low, high); });
  }
  /// Reads one of `words`, and gives its index to `set`.
  void readWord(std::string_view name, const std::vector<std::string> &words,
                const std::function<void(size_t)> &set) {
    std::string word;
    read(name, word);
    if (word.empty())
      return;
    auto found = std::find(words.begin(), words.end(), word);
    if (found != words.end())
      return set(static_cast<size_t>(found - words.begin()));
    std::string known;
    for (const std::string &it : words)
      known += (known.empty() ? "" : ", ") + it;
    keep(request.at(name)
             ->error("expected one of " + known + ", got \"" + word + "\"")
             .value());
  }
  void readRequired(std::string_view name, std::string &into) {
    read(name, into);
    if (into.empty())
      keep(request.error("\"" + std::string(name) + "\" is missing").value());
  }
  bool has(std::string_view name) const {
    return request.has(name) && !request.at(name)->isNull();
  }

  /// The first error of all that was read, or that a member is not known.
  Expected<void> finish() const {
    if (error)
      return tl::unexpected(*error);
    auto members = request.members();
    if (!members)
      return tl::unexpected(members.error());
    for (const auto &[name, value] : *members)
      if (!known.contains(name))
        return value.error("this command has no such option");
    return {};
  }

private:
  template <typename T, typename Read>
  void take(std::string_view name, T &into, const Read &read) {
    known.insert(std::string(name));
    auto value = request.has(name) ? request.at(name) : Expected<JsonValue>(request);
    if (!request.has(name) || value->isNull())
      return;
    if (auto got = read(*value))
      into = static_cast<T>(std::move(*got));
    else
      keep(got.error());
  }
  void keep(Error failure) {
    if (!error)
      error = std::move(failure);
  }

  JsonValue request;
  std::set<std::string, std::less<>> known = {"command"};
  std::optional<Error> error;
};
} // namespace

static void readModelOptions(Members &members, CompileOptions &options) {
  members.readRequired("model", options.model);
  members.read("mesh", options.mesh);
  members.readWord("mode", {"auto", "data-parallel", "semi-auto"}, [&](size_t index) {
    options.mode = index == 0 ? "auto" : index == 1 ? "data-parallel" : "semi-auto";
  });
  members.read("hints", options.hints);
  members.read("cluster", options.cluster);
  members.read("memory", options.memory);
  members.read("plan", options.plan);
  members.read("train", options.train);
  members.read("all_to_all", options.allToAll);
  members.read("shapes", options.shapes);
  members.read("constants", options.constants);
}

static Json figuresOf(const CompileReport &report) {
  Json result = {{"notes", report.notes}, {"seconds", report.seconds}};
  result["memory"] = {{"weights", report.weightBytesPerRank},
                      {"packed", report.packedBytes},
                      {"arena", report.arenaBytes},
                      {"states", report.stateBytes}};
  result["received_bytes"] = report.emitted.receivedBytes;
  return result;
}

static Expected<Json> answerCompile(Members &members, StopFlag stop) {
  CompileOptions options;
  options.stop = stop;
  readModelOptions(members, options);
  members.readRequired("output", options.output);
  members.read("force", options.force);
  members.read("stages", options.stages, 1, 1024);
  members.read("groups", options.groups, 1, 1024);
  members.read("micro_batches", options.microBatches, 1, 65536);
  members.readWord("schedule", {"interleaved", "gpipe"}, [&](size_t index) {
    options.schedule = index == 0 ? "interleaved" : "gpipe";
  });
  members.read("states", options.states);
  members.read("copy_weights", options.copyWeights);
  members.read("hash_weights", options.hashWeights);
  members.read("write_hints", options.hintsOutput);
  members.read("dump_dir", options.dumpDir);
  members.readWord("target", {"cpu", "plain"},
                   [&](size_t index) { options.target = index == 0 ? "cpu" : "plain"; });
  members.read("target_cpu", options.targetCpu);
  members.read("threads", options.threads, 0, 1024);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  auto report = compileModel(options, [](const std::string &) {});
  if (!report)
    return tl::unexpected(report.error());
  Json result = figuresOf(*report);
  result["bundle"] = options.output;
  return result;
}

static Expected<Json> answerPlan(Members &members, StopFlag stop) {
  PlanOptions options;
  options.model.to = Level::L2; // weights are not read
  options.model.stop = stop;
  readModelOptions(members, options.model);
  members.read("output", options.output);
  members.read("as_hints", options.hintsOutput);
  members.read("report", options.report);
  members.read("axes", options.mostAxes, 1, 4);
  members.read("time_limit", options.timeLimit);
  int64_t work = 0;
  members.read("work", work, 1, 1'000'000'000'000);
  if (work)
    options.workLimit = work;
  members.read("threads", options.threads, 1, 64);
  members.read("overlap", options.overlap);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  if (options.model.cluster.empty() && options.model.mesh.empty())
    return makeError("plan needs \"cluster\", or \"mesh\" for this host");
  auto planned = planModel(options, [](const std::string &) {});
  if (!planned)
    return tl::unexpected(planned.error());
  return Json{{"text", planned->text}, {"plan", Json::parse(planned->json)}};
}

static Expected<Json> answerReport(Members &members) {
  std::string path, entry;
  members.readRequired("bundle", path);
  members.read("entry", entry);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  Expected<std::string> file = entry.empty() ? path : planFile(path, entry);
  auto text = file.and_then([](const std::string &name) { return reportJson(name); });
  if (!text)
    return tl::unexpected(text.error());
  return Json::parse(*text);
}

static Expected<Json> answerInspect(Members &members) {
  InspectOptions options;
  options.json = true;
  members.readRequired("model", options.model.model);
  members.read("shapes", options.model.shapes);
  members.read("constants", options.model.constants);
  members.read("nodes", options.nodes);
  members.read("weights", options.weights);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  auto result = inspectModel(options);
  if (!result)
    return tl::unexpected(result.error());
  Json json = Json::parse(result->text);
  json["supported"] = result->supported;
  return json;
}

static Expected<Json> answerVerify(Members &members, const BundleRunner &run,
                                   StopFlag stop) {
  VerifyOptions options;
  options.run = run;
  options.stop = stop;
  CompileOptions compile;
  std::string bundle;
  bool strict = false, noCheck = false;
  bool isBundle = members.has("bundle");
  if (isBundle) {
    members.readRequired("bundle", bundle);
    members.read("model", options.model);
    members.read("entry", options.entry);
    members.read("no_check", noCheck);
    options.weights.check = !noCheck;
  } else {
    readModelOptions(members, compile);
    members.read("steps", options.steps, 1, 1'000'000);
    members.read("f64", options.wide);
  }
  members.read("inputs_dir", options.inputs);
  members.read("expect_dir", options.expected);
  members.read("weights_dir", options.weights.folder);
  members.read("strict", strict);
  members.read("rtol", options.rtol);
  members.read("atol", options.atol);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  if (!options.expected.empty() && options.inputs.empty())
    return makeError("\"expect_dir\" needs \"inputs_dir\"");
  std::error_code unreadable;
  if (const std::string &folder = options.weights.folder;
      !folder.empty() && !std::filesystem::is_directory(folder, unreadable))
    return makeError("\"weights_dir\": '" + folder + "' is not a folder");
  auto result = isBundle ? verifyBundle(bundle, options) : verifyModel(compile, options);
  if (!result)
    return tl::unexpected(result.error());
  if (strict && !result->unchecked.empty())
    return makeError(result->verdict());
  return Json{{"lines", result->lines},
              {"verdict", result->verdict()},
              {"outputs", result->numOutputs},
              {"unchecked", result->unchecked}};
}

static Expected<Json> answer(std::string_view request, const BundleRunner &run,
                             StopFlag stop) {
  auto json = parseJson(request, "request");
  if (!json)
    return tl::unexpected(json.error());
  auto command = json->at("command").and_then(
      [](const JsonValue &value) { return value.asString(); });
  if (!command)
    return tl::unexpected(command.error());
  Members members(*json);
  if (*command == "compile")
    return answerCompile(members, stop);
  if (*command == "plan")
    return answerPlan(members, stop);
  if (*command == "report")
    return answerReport(members);
  if (*command == "inspect")
    return answerInspect(members);
  if (*command == "verify")
    return answerVerify(members, run, stop);
  return json->at("command")->error("expected compile, plan, report, inspect or verify, "
                                    "got \"" +
                                    *command + "\"");
}

static Json describe(const Error &error) {
  Json result = {{"message", error.message}};
  if (!error.node.empty())
    result["node"] = error.node;
  if (error.dim >= 0)
    result["dim"] = error.dim;
  if (!error.hint.empty())
    result["hint"] = error.hint;
  return result;
}

std::string partita::answerRequest(std::string_view request, const BundleRunner &run,
                                   StopFlag stop) {
  auto result = answer(request, run, stop);
  Json document;
  if (result)
    document["result"] = std::move(*result);
  else // while it stops, another part may report an error that is not the reason
    document["error"] =
        describe(stop.isRaised() ? Error{.message = "cancelled"} : result.error());
  // A name that is no UTF-8 must not make writing fail.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}
