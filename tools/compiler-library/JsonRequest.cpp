//===- JsonRequest.cpp - Commands as JSON requests ------------------------===//
#include "JsonRequest.h"

#include "common/Options.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/Json.h"
#include "partita/Base/Units.h"
#include "partita/Topology/Quantity.h"
#include "passes/Pipelines/Report.h"
#include "passes/Pipelines/Worlds.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <set>

using namespace partita;
using Json = nlohmann::ordered_json;

namespace {
/// The members of a request, a Set (Options.h). A member that no reader has asked for is
/// an error at the end.
class Members {
public:
  explicit Members(JsonValue request) : request(std::move(request)) {}

  template <typename Read>
  void text(const char *name, const Read &read, const char * = "") {
    take(name, [&](const JsonValue &value) {
      return value.asString().and_then([&](const std::string &text) {
        return text.empty() ? Expected<void>() : read(text);
      });
    });
  }
  template <typename Read>
  void texts(const char *, const char *plural, const Read &read, const char *) {
    take(plural, [&](const JsonValue &value) {
      return value.asStrings().map([&](const std::vector<std::string> &texts) {
        for (const std::string &text : texts)
          keep(read(text));
      });
    });
  }
  template <typename Read>
  void repeated(const char *name, const Read &read, const char *help) {
    if (has(name) && request.at(name)->elements())
      texts(name, name, read, help);
    else
      text(name, read);
  }
  void flag(std::string_view name, bool &into, const char * = "") {
    name.remove_prefix(name.starts_with("no-") ? 3 : 0);
    take(std::string(name), [&](const JsonValue &value) {
      return value.asBool().map([&](bool is) { into = is; });
    });
  }
  template <typename Read>
  void word(const char *name, const std::vector<std::string> &words, const Read &read,
            const char *) {
    text(name, [&](const std::string &word) -> Expected<void> {
      if (std::ranges::find(words, word) != words.end())
        return read(word);
      return request.at(name)->error("expected one of " + cluster::listed(words) +
                                     ", got \"" + word + "\"");
    });
  }
  template <typename T>
  void range(const char *name, T &into, std::type_identity_t<T> low,
             std::type_identity_t<T> high, const char *) {
    take(name, [&](const JsonValue &value) -> Expected<void> {
      if constexpr (std::is_integral_v<T>) {
        return value.asInteger(low, high).map([&](T number) { into = number; });
      } else {
        auto number = value.asNumber();
        if (number && !(low <= *number && *number <= high))
          return value.error(
              formatted("expected a number from %g to %g, got %g", low, high, *number));
        return number.map([&](double given) { into = given; });
      }
    });
  }
  template <std::integral T>
  void range(const char *name, std::optional<T> &into, std::type_identity_t<T> low,
             std::type_identity_t<T> high, const char *) {
    take(name, [&](const JsonValue &value) {
      return value.asInteger(low, high).map([&](T number) { into = number; });
    });
  }
  void required(const char *name, std::string &to) {
    text(name, into(to));
    if (to.empty())
      keep(request.error("\"" + std::string(name) + "\" is missing"));
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
  template <typename Read> void take(std::string name, const Read &read) {
    std::ranges::replace(name, '-', '_');
    known.insert(name);
    if (has(name))
      keep(read(*request.at(name)));
  }
  void keep(const Expected<void> &read) {
    if (!read && !error)
      error = read.error();
  }

  JsonValue request;
  std::set<std::string, std::less<>> known = {"command"};
  std::optional<Error> error;
};
} // namespace

static Json figuresOf(const WorldReport &world) {
  const CompileReport &report = world.report;
  Json result = {{"notes", report.notes}, {"seconds", report.seconds}};
  result["memory"] = {{"weights", report.weightBytesPerRank},
                      {"packed", report.packedBytes},
                      {"arena", report.arenaBytes},
                      {"states", report.stateBytes}};
  result["received_bytes"] = report.emitted.receivedBytes;
  return result;
}

static Expected<Json> answerCompile(Members &members, StopFlag stop) {
  Request request;
  members.required("model", request.model.file);
  members.texts("", "other_ranks", append(request.model.others), "");
  members.required("output", request.emission.output);
  addCompile(members, request);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  auto reports = compileWorlds(request, [](const std::string &) {}, stop);
  if (!reports)
    return tl::unexpected(reports.error());
  Json result = figuresOf(reports->front());
  result["bundle"] = request.emission.output;
  for (size_t w = 1; w < reports->size(); ++w) {
    Json world = figuresOf((*reports)[w]);
    world["ranks"] = (*reports)[w].ranks;
    result["worlds"].push_back(std::move(world));
  }
  return result;
}

static Expected<Json> answerPlan(Members &members, StopFlag stop) {
  PlanOptions options;
  members.required("model", options.request.model.file);
  addMesh(members, options.request);
  addModel(members, options.request);
  addPlan(members, options);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  if (!options.request.machine.cluster && options.request.meshes.empty())
    return makeError("plan needs \"cluster\", or \"mesh\" for this host");
  auto planned = planModel(options, [](const std::string &) {}, stop);
  if (!planned)
    return tl::unexpected(planned.error());
  return Json{{"text", planned->text}, {"plan", Json::parse(planned->json)}};
}

static Expected<Json> answerReport(Members &members) {
  std::string path, entry;
  members.required("bundle", path);
  members.text("entry", into(entry));
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  auto text = reportJson(path, entry);
  if (!text)
    return tl::unexpected(text.error());
  return Json::parse(*text);
}

static Expected<Json> answerInspect(Members &members) {
  InspectOptions options;
  options.json = true;
  members.required("model", options.model.file);
  addInspect(members, options);
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  auto result = inspectModel(options);
  if (!result)
    return tl::unexpected(result.error());
  Json json = Json::parse(result->text);
  if (result->supported)
    json["supported"] = *result->supported;
  return json;
}

static Expected<Json> answerVerify(Members &members, const BundleRunner &run,
                                   StopFlag stop) {
  VerifyOptions options;
  options.run = run;
  options.stop = stop;
  Request request;
  std::string bundle;
  bool strict = false, noCheck = false;
  bool isBundle = members.has("bundle");
  if (isBundle) {
    members.required("bundle", bundle);
    addVerifyBundle(members, options);
    members.flag("no_check", noCheck);
    options.weights.check = !noCheck;
  } else {
    members.required("model", request.model.file);
    addMesh(members, request);
    addModel(members, request);
    addVerifyModel(members, options);
  }
  addVerify(members, options, strict);
  members.text("weights-dir", into(options.weights.folder));
  if (auto ok = members.finish(); !ok)
    return tl::unexpected(ok.error());
  if (!options.expected.empty() && options.inputs.empty())
    return makeError("\"expect_dir\" needs \"inputs_dir\"");
  std::error_code unreadable;
  if (const std::string &folder = options.weights.folder;
      !folder.empty() && !std::filesystem::is_directory(folder, unreadable))
    return makeError("\"weights_dir\": '" + folder + "' is not a folder");
  auto result = isBundle ? verifyBundle(bundle, options) : verifyModel(request, options);
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
